"""Services by region on Spark: which device best offers what a subscription asks for.

The finders are those of `node.services`. Regions are searched separately. Several tasks share a
region with many requests, each with all its services; within a task services are added in the order
of their names, which also decides ties. So the answer depends neither on how rows are distributed
nor on the number of tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from denwatch.node import services as finders
from denwatch.node.services import FeasibilityRule, ServiceRequest
from denwatch.protocol import subscription as codec
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import FUZZY
from denwatch.spark.matching.windows import Meanings
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

REQUESTS = "region string, request string, wants array<string>, against array<string>"
FOUND = "region string, request string, place int, service string, squared int, probes bigint"
_TEXT, _INT = pa.string(), pa.int32()
_ARROW = pa.schema(
    {"region": _TEXT, "request": _TEXT, "place": _INT, "service": _TEXT, "squared": _INT}
    | {"probes": pa.int64()}
)
METHODS: dict[str, Callable[[int, np.random.Generator], finders.Finder]] = {
    "exact": lambda width, _: finders.ExactFinder(width),
    "basic": lambda width, _: finders.BasicSvdFinder(width),
    "weighted": finders.WeightedSvdFinder,
    "sums": lambda width, _: finders.SumFinder(width),
    "random": lambda width, _: finders.RandomFinder(width),
    "exhaustive": lambda width, _: finders.ExhaustiveFinder(width),
}


def find_services(
    services: DataFrame,
    requests: DataFrame,
    *,
    method: str = "exact",
    rule: FeasibilityRule = FeasibilityRule.POSITIVE,
    limit: int = 1,
    parts: int = 1,
    seed: int = 0,
) -> DataFrame:
    """Return the best services of each request, FOUND; a request that none serves has no row.

    `services` are live ones (region, service, has, against), `requests` has REQUESTS. `squared` is
    the squared distance: under POSITIVE with binary attributes, how many attributes a service has
    beyond the request. `probes` is what finding them cost. Up to `parts` tasks share a region.
    """
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    if limit < 1 or parts < 1:
        raise ValueError(f"limit and parts are at least 1, not {limit} and {parts}")
    offered = services.select("region", "service", "has", "against").withColumn(
        "part", F.explode(F.sequence(F.lit(0), F.lit(parts - 1)))
    )
    # Of the same type on both sides: rows are brought together by its hash.
    part = F.pmod(F.xxhash64("request"), parts).cast("int")
    asked = requests.select(*("region", "request", "wants", "against"), part.alias("part"))

    def search(offers: pa.Table, requests: pa.Table) -> pa.Table:
        return search_region(offers, requests, method, rule, limit, seed)

    groups = offered.groupBy("region", "part"), asked.groupBy("region", "part")
    return groups[0].cogroup(groups[1]).applyInArrow(search, FOUND)


def search_region(
    offers: pa.Table, requests: pa.Table, method: str, rule: FeasibilityRule, limit: int, seed: int
) -> pa.Table:
    """Answer the requests of one region."""
    rows: list[tuple[str, str, int, str, int, int]] = []
    if offers.num_rows and requests.num_rows:
        offered = sorted(offers.to_pylist(), key=lambda row: str(row["service"]))
        asked = sorted(requests.to_pylist(), key=lambda row: str(row["request"]))
        region = str(asked[0]["region"])
        names = _list_names(offered, "has") | _list_names(asked, "wants")
        places = {name: place for place, name in enumerate(sorted(names))}
        width = max(1, len(places))
        finder = METHODS[method](width, _seed_rng(seed, region))
        vectors = [encode(row["has"], row["against"], places, width) for row in offered]
        finder.add_many([row["service"] for row in offered], vectors)
        for row in asked:
            values = tuple(encode(row["wants"], row["against"], places, width).tolist())
            rng = _seed_rng(seed, region, str(row["request"]))
            result = finder.find(ServiceRequest(values, rule, limit=limit), rng)
            for place, match in enumerate(result.matches, 1):
                best = place, str(match.identity), match.squared
                rows.append((region, row["request"], *best, result.probes))
    columns = zip(*rows, strict=True) if rows else ([] for _ in _ARROW)
    return pa.table([pa.array(column) for column in columns], schema=_ARROW)


def warm_up() -> None:
    """Compile the kernels of both searches before workers are forked."""
    offers = pa.table({"region": ["a"], "service": ["b"], "has": [["c"]], "against": [[]]})
    asked = pa.table({"region": ["a"], "request": ["d"], "wants": [["c"]], "against": [[]]})
    for method in ("exact", "weighted"):
        search_region(offers, asked, method, FeasibilityRule.POSITIVE, 1, 0)


def encode(
    plus: Sequence[str] | None, minus: Sequence[str] | None, places: dict[str, int], width: int
) -> npt.NDArray[np.int8]:
    """Return a vector: 1 for what is wanted or there, -1 for what is refused."""
    values = np.zeros(width, np.int8)
    values[[places[name] for name in plus or ()]] = 1
    values[[places[name] for name in minus or ()]] = -1
    return values


def _list_names(rows: list[dict[str, list[str] | None]], column: str) -> set[str]:
    return {name for row in rows for key in (column, "against") for name in row[key] or ()}


def _seed_rng(seed: int, *names: str) -> np.random.Generator:
    """Return a source of chance that a region, or a request in it, has for itself."""
    digest = hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


# Offers and requests from the logs ------------------------------------------------------
# Devices offer the attributes that they sense, subscriptions request attributes. An attribute is
# named `event.attribute` by its vocabulary, so that devices and subscribers with different
# vocabularies of the same meaning find each other; without a document its name is made of numbers.

Names = dict[tuple[bytes, int], dict[int, str]]  # by vocabulary and event: attributes by bit
Frames = Iterator[pd.DataFrame]
_BITS = 16
_EVENTS = 64


def list_names(meanings: Meanings) -> Names:
    """Return how the known vocabularies call attributes."""
    names: Names = {}
    for hash_ in meanings.known:
        for number in range(_EVENTS):
            event = meanings.find_event(hash_, number)
            if event is not None:
                named = {a.bit: f"{event.name}.{a.name}" for a in event.attributes.values()}
                names[hash_, number] = named
    return names


def name_features(names: Names, vocabulary: bytes, event: int, features: int) -> list[str]:
    """Return the attributes of a mask."""
    known = names.get((vocabulary, event), {})
    other = f"{vocabulary.hex()}:{event}"
    return [known.get(bit, f"{other}.{bit}") for bit in range(_BITS) if features >> bit & 1]


def read_offers(device: DataFrame, names: Names) -> DataFrame:
    """Return what records of the kind `device` say, as updates for `refresh_services`: SERVICES.

    A hello offers what the device senses; a device that went silent offers nothing.
    """
    said = device.where("not is_up or senses is not null").select(
        "node", "device", "epoch", "number", "is_up", "senses", "vocabulary"
    )
    return said.mapInPandas(_make_offers(names), SERVICES)


def _make_offers(names: Names) -> Callable[[Frames], Frames]:
    def read(row: Any) -> tuple[object, ...]:
        has = None
        if row.is_up:
            senses, vocabulary = map(int, row.senses), bytes(row.vocabulary or b"")
            parts = (name_features(names, vocabulary, s >> 32, s & 0xFFFF) for s in senses)
            has = [name for part in parts for name in part]
        version = {"epoch": int(row.epoch), "number": int(row.number)}
        return row.node, row.device, version, has, []

    return _map_rows(read, _COLUMNS)


def _map_rows(
    read: Callable[[Any], tuple[object, ...] | None], columns: Sequence[str]
) -> Callable[[Frames], Frames]:
    """Return a function for `mapInPandas` that makes a row of a row, or none."""

    def map_frames(batches: Frames) -> Frames:
        for batch in batches:
            rows = filter(None, map(read, batch.itertuples(index=False)))
            yield pd.DataFrame(rows, columns=list(columns))

    return map_frames


def read_requests(windows: DataFrame, stays: DataFrame, names: Names, at: int) -> DataFrame:
    """Return what the subscriptions in force at a time (ms) ask for, and where.

    `windows` and `stays` are those of `spark.matching` and `spark.analytics`. Who was at no
    node yet is looked for where the subscription was made. The columns are those of REQUESTS;
    `request` is the subscription's id in hexadecimal.
    """
    places = (
        stays.where(F.col("begin") <= at)
        .groupBy("subscriber")
        .agg(F.max_by("node", F.struct("end", "begin", "node")).alias("here"))
    )
    live = windows.where(
        (F.col("begins") <= at) & (F.col("ends") > at) & (F.col("language") == FUZZY)
    )
    asked = live.join(places, "subscriber", "left").select(
        F.coalesce("here", "origin").alias("region"),
        F.lower(F.lpad(F.hex("subscription_id"), 16, "0")).alias("request"),
        "vocabulary",
        "vector",
    )
    return asked.mapInPandas(_make_requests(names), REQUESTS)


def _make_requests(names: Names) -> Callable[[Frames], Frames]:
    def read(row: Any) -> tuple[object, ...] | None:
        try:
            vector = codec.decode(bytes(row.vector or b""))
        except ProtocolError:  # matching tells of it
            return None
        vocabulary = bytes(row.vocabulary or b"")
        wants = name_features(names, vocabulary, vector.event, vector.features)
        return row.region, row.request, wants, []

    return _map_rows(read, ("region", "request", "wants", "against"))


# Keeping services current ---------------------------------------------------------------
# A later record of a service replaces an earlier one. Records may come in any order, twice, and in
# batches of any size: the version decides, which rises with every record of a node. A withdrawn
# service stays as a row without attributes, so that an older record cannot bring it back.

SERVICES = (
    "region string, service string, version struct<epoch: bigint, number: bigint>, "
    "has array<string>, against array<string>"
)
_KEY = ("region", "service")
_COLUMNS = (*_KEY, "version", "has", "against")


def refresh_services(services: DataFrame, updates: DataFrame) -> DataFrame:
    """Return the services after some updates; both have the columns of SERVICES.

    `has` lists the attributes that a service has, `against` those that it refuses (ternary ones);
    a null in `has` withdraws it.
    """
    both = services.select(*_COLUMNS).unionByName(updates.select(*_COLUMNS))
    said = F.struct("has", "against")
    latest = both.groupBy(*_KEY).agg(
        F.max("version").alias("version"), F.max_by(said, F.col("version")).alias("said")
    )
    return latest.select(*_KEY, "version", "said.has", "said.against")


def list_live(services: DataFrame) -> DataFrame:
    """Return the services that are offered now."""
    return services.where("has is not null")


# Recommendations ------------------------------------------------------------------------
# The best device for each subscription where its subscriber is, and how well regions are served.
# Both searches run: the exact one, which is recommended, and SVDS, so that answers and cost can be
# compared on the site's own data. A request that no device in its region serves gets the best of
# all other regions.

EVERYWHERE = ""  # the region of those who look in all regions
_PARTS = 4


def recommend_services(services: DataFrame, requests: DataFrame, windows: DataFrame) -> DataFrame:
    """Return one row a request: who serves it best.

    `services` are live. Columns: region, subscriber, subscription_id, words, wants, service (null:
    none here), beyond (attributes that it has and nobody asked for), probes, svd_service,
    svd_beyond, svd_probes, elsewhere (region and device, where there is none here).
    """
    both = []
    for method, prefix in (("exact", ""), ("weighted", "svd_")):
        found = find_services(services, requests, method=method, parts=_PARTS)
        named = (("service", "service"), ("squared", "beyond"), ("probes", "probes"))
        columns = (F.col(name).alias(prefix + called) for name, called in named)
        both.append(found.select("region", "request", *columns))
    exact, svd = both
    here = requests.join(exact, ["region", "request"], "left").join(
        svd, ["region", "request"], "left"
    )
    unserved = here.where("service is null").withColumn("region", F.lit(EVERYWHERE))
    anywhere = services.withColumn("service", F.concat_ws(": ", "region", "service")).withColumn(
        "region", F.lit(EVERYWHERE)
    )
    others = find_services(anywhere, unserved, method="exact", parts=_PARTS).select(
        "request", F.col("service").alias("elsewhere")
    )
    known = windows.select(
        F.lower(F.lpad(F.hex("subscription_id"), 16, "0")).alias("request"),
        *("subscription_id", "subscriber", "words"),
    )
    return (
        here.join(others, "request", "left")
        .join(known, "request")
        .select(
            *("region", "subscriber", "subscription_id", "words", "wants", "service", "beyond"),
            *("probes", "svd_service", "svd_beyond", "svd_probes", "elsewhere"),
        )
    )


def sum_regions(
    services: DataFrame, recommended: DataFrame, stopped: DataFrame | None = None
) -> DataFrame:
    """Return one row a region: services, requests, served, unserved, and what both searches cost.

    `stopped` are the regions (`region`) whose node was shut down in order: devices leave it then,
    and nobody is called unserved. Columns: region, services, requests, served, elsewhere (served by
    another region only), unserved, unjudged, beyond and svd_beyond, probes and svd_probes (means).
    """
    if stopped is None:
        stopped = recommended.sparkSession.createDataFrame([], "region string")
    ended = stopped.distinct().withColumn("is_stopped", F.lit(True))
    recommended = recommended.join(ended, "region", "left")
    offered = services.groupBy("region").agg(F.count("*").alias("services"))
    sums = (
        *("count(*) as requests", "count(service) as served"),
        "count_if(service is null and elsewhere is not null) as elsewhere",
        "count_if(service is null and elsewhere is null and is_stopped is null) as unserved",
        "count_if(service is null and elsewhere is null and is_stopped) as unjudged",
    )
    means = (f"round(avg({x}), 2) as {x}" for x in ("beyond", "svd_beyond", "probes", "svd_probes"))
    asked = recommended.groupBy("region").agg(*map(F.expr, (*sums, *means)))
    counts = ["services", "requests", "served", "elsewhere", "unserved", "unjudged"]
    return offered.join(asked, "region", "full").fillna(0, counts)
