"""Offers and wishes from the nodes' logs: what devices sense, and what subscriptions ask for.

An attribute is called `event.attribute` as its vocabulary names it, so that devices and people with
different vocabularies that mean the same find each other; one that no document names is called by
its numbers, and its vocabulary's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd
from denwatch.node.matching.plugins import FUZZY
from denwatch.protocol import subscription as codec
from denwatch.protocol.errors import ProtocolError
from denwatch.spark.matching.meanings import Meanings
from denwatch.spark.services.refresh import SERVICES
from denwatch.spark.services.search import WISHES
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

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
    """Return what records of the kind `device` say, as updates for `refresh`: SERVICES.

    A hello offers what the device senses; a device that went silent offers nothing.
    """
    said = device.where("not is_up or senses is not null").select(
        "node", "device", "epoch", "number", "is_up", "senses", "vocabulary"
    )
    return said.mapInPandas(_make_offers(names), SERVICES)


def _make_offers(names: Names) -> Callable[[Frames], Frames]:
    def read(batches: Frames) -> Frames:
        for batch in batches:
            rows: list[tuple[object, ...]] = []
            for row in batch.itertuples(index=False):
                has = None
                if row.is_up:
                    has = [
                        name
                        for sense in map(int, row.senses)
                        for name in name_features(
                            names, bytes(row.vocabulary or b""), sense >> 32, sense & 0xFFFF
                        )
                    ]
                version = {"epoch": int(row.epoch), "number": int(row.number)}
                rows.append((row.node, row.device, version, has, []))
            columns = ["region", "service", "version", "has", "against"]
            yield pd.DataFrame(rows, columns=columns)

    return read


def read_wishes(windows: DataFrame, stays: DataFrame, names: Names, at: int) -> DataFrame:
    """Return what the subscriptions in force at a time (ms) ask for, where their owners are then.

    `windows` and `stays` are those of `spark.matching` and `spark.analytics`. Who was at no
    node yet is looked for where the subscription was made. The columns are those of WISHES; `wish`
    is the subscription's id in hexadecimal.
    """
    places = (
        stays.where(F.col("begin") <= at)
        .groupBy(F.col("subscriber").alias("owner"))
        .agg(F.max_by("node", F.struct("end", "begin", "node")).alias("here"))
    )
    live = windows.where(
        (F.col("begins") <= at) & (F.col("ends") > at) & (F.col("language") == FUZZY)
    )
    asked = live.join(places, "owner", "left").select(
        F.coalesce("here", "origin").alias("region"),
        F.lower(F.lpad(F.hex("subscription_id"), 16, "0")).alias("wish"),
        "vocabulary",
        "vector",
    )
    return asked.mapInPandas(_make_wishes(names), WISHES)


def _make_wishes(names: Names) -> Callable[[Frames], Frames]:
    def read(batches: Frames) -> Frames:
        for batch in batches:
            rows: list[tuple[object, ...]] = []
            for row in batch.itertuples(index=False):
                try:
                    vector = codec.decode(bytes(row.vector or b""))
                except ProtocolError:  # matching tells of it
                    continue
                wants = name_features(
                    names, bytes(row.vocabulary or b""), vector.event, vector.features
                )
                rows.append((row.region, row.wish, wants, []))
            yield pd.DataFrame(rows, columns=["region", "wish", "wants", "against"])

    return read
