"""The best services for each wish of a region, by the finders of `node.services`. On Spark.

Regions are worked on apart. A region with many wishes is shared by several tasks, each of which has
all its services; within a task services are added in the order of their names, which also decides
ties. So the answer depends neither on how rows are distributed nor on how many tasks there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from denwatch.node.services import (
    BasicSvdFinder,
    ExactFinder,
    ExhaustiveFinder,
    FeasibilityRule,
    Finder,
    RandomFinder,
    ServiceRequest,
    SumFinder,
    WeightedSvdFinder,
)
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

WISHES = "region string, wish string, wants array<string>, against array<string>"
FOUND = "region string, wish string, place int, service string, squared int, probes bigint"
_ARROW = pa.schema(
    [
        ("region", pa.string()),
        ("wish", pa.string()),
        ("place", pa.int32()),
        ("service", pa.string()),
        ("squared", pa.int32()),
        ("probes", pa.int64()),
    ]
)

Make = Callable[[int, np.random.Generator], Finder]
METHODS: dict[str, Make] = {
    "exact": lambda width, _: ExactFinder(width),
    "basic": lambda width, _: BasicSvdFinder(width),
    "weighted": WeightedSvdFinder,
    "sums": lambda width, _: SumFinder(width),
    "random": lambda width, _: RandomFinder(width),
    "exhaustive": lambda width, _: ExhaustiveFinder(width),
}


def find_services(
    services: DataFrame,
    wishes: DataFrame,
    *,
    method: str = "exact",
    rule: FeasibilityRule = FeasibilityRule.POSITIVE,
    limit: int = 1,
    parts: int = 1,
    seed: int = 0,
) -> DataFrame:
    """Return the best services of each wish, FOUND; a wish that none serves has no row.

    `services` are live ones (region, service, has, against), `wishes` has WISHES. `squared` is the
    squared distance: under POSITIVE with binary attributes, how many attributes a service has
    beyond the wish. `probes` is what finding them cost. A region is shared by up to `parts` tasks.
    """
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    if limit < 1 or parts < 1:
        raise ValueError(f"limit and parts are at least 1, not {limit} and {parts}")
    offered = services.select("region", "service", "has", "against").withColumn(
        "part", F.explode(F.sequence(F.lit(0), F.lit(parts - 1)))
    )
    # Of the same type on both sides: rows are brought together by its hash.
    part = F.pmod(F.xxhash64("wish"), parts).cast("int")
    asked = wishes.select(*("region", "wish", "wants", "against"), part.alias("part"))

    def search(offers: pa.Table, requests: pa.Table) -> pa.Table:
        return search_region(offers, requests, method, rule, limit, seed)

    groups = offered.groupBy("region", "part"), asked.groupBy("region", "part")
    return groups[0].cogroup(groups[1]).applyInArrow(search, FOUND)


def search_region(
    offers: pa.Table, requests: pa.Table, method: str, rule: FeasibilityRule, limit: int, seed: int
) -> pa.Table:
    """Answer the wishes of one region."""
    rows: list[tuple[str, str, int, str, int, int]] = []
    if offers.num_rows and requests.num_rows:
        offered = sorted(offers.to_pylist(), key=lambda row: str(row["service"]))
        asked = sorted(requests.to_pylist(), key=lambda row: str(row["wish"]))
        region = str(asked[0]["region"])
        names = _list_names(offered, "has") | _list_names(asked, "wants")
        places = {name: place for place, name in enumerate(sorted(names))}
        width = max(1, len(places))
        finder = METHODS[method](width, _seed_rng(seed, region))
        vectors = [encode(row["has"], row["against"], places, width) for row in offered]
        finder.add_many([row["service"] for row in offered], vectors)
        for row in asked:
            values = tuple(encode(row["wants"], row["against"], places, width).tolist())
            rng = _seed_rng(seed, region, str(row["wish"]))
            result = finder.find(ServiceRequest(values, rule, limit=limit), rng)
            for place, match in enumerate(result.matches, 1):
                best = place, str(match.identity), match.squared
                rows.append((region, row["wish"], *best, result.probes))
    columns = zip(*rows, strict=True) if rows else ([] for _ in _ARROW)
    return pa.table([pa.array(column) for column in columns], schema=_ARROW)


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
    """Return a source of chance that a region, or a wish in it, has for itself."""
    digest = hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
