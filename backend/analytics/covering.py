"""The network's minimal set of subscriptions, and what sending only that saves on the air.

Subscriptions of different events, vocabularies or feature masks cannot cover each other unless the
masks are nested, so events are worked on apart: one covering table an event and vocabulary.
"""

from __future__ import annotations

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from edge.dens.covering import Approximate, Covering, Domains
from edge.dens.covering.vectors import ATTRIBUTES_PER_EVENT, box_vector
from edge.dens.matching.interface import FUZZY
from protocol import subscription as codec
from protocol.errors import ProtocolError
from protocol.vectors import Subscription

PLACES = "subscription_id bigint, event int, bytes int, is_active boolean, why string"
_WIDE = (0, 65_535)


def find_minimal(windows: DataFrame, at: int) -> DataFrame:
    """Return which of the subscriptions in force at a time (ms) have to be sent to everybody.

    Columns: subscription_id, event, bytes, is_active, why (for passive ones: the same bytes as
    another, covered, or unreadable).
    """
    live = windows.where(
        (F.col("begins") <= at) & (F.col("ends") > at) & (F.col("language") == FUZZY)
    )
    # The first byte of a vector has the event.
    keyed = live.select(
        "subscription_id", "vector", "vocabulary", F.substring("vector", 1, 1).alias("first")
    )
    return keyed.groupBy("vocabulary", "first").applyInPandas(_place_all, PLACES)


def _place_all(frame: pd.DataFrame) -> pd.DataFrame:
    """Place the subscriptions of one event: the smaller ids first, then all of them anew."""
    whys: dict[int, str] = {}
    vectors: dict[int, Subscription] = {}
    seen: set[bytes] = set()
    sizes = {
        int(k): bytes(v) for k, v in zip(frame["subscription_id"], frame["vector"], strict=True)
    }
    for key, data in sorted(sizes.items()):
        try:
            decoded = codec.decode(data)
        except ProtocolError:
            whys[key] = "unreadable"
            continue
        if data in seen:  # bytes that are the same say the same, whatever the aggregator
            whys[key] = "same"
            continue
        seen.add(data)
        vectors[key] = decoded
    table = _build_table(vectors)
    rows = []
    for key, data in sorted(sizes.items()):
        is_active = table.is_active(key) if key in vectors else whys[key] == "unreadable"
        why = whys.get(key, "" if is_active else "covered")
        rows.append((key, data[0] & 63, len(data), is_active, why))
    return pd.DataFrame(rows, columns=["subscription_id", "event", "bytes", "is_active", "why"])


def _build_table(vectors: dict[int, Subscription]) -> Covering[int]:
    wide = {
        ATTRIBUTES_PER_EVENT * vector.event + predicate.attribute: _WIDE
        for vector in vectors.values()
        for predicate in vector.predicates
        if predicate.wide
    }
    table: Covering[int] = Covering(Domains(special=wide), Approximate())
    for key, vector in vectors.items():
        table.subscribe(key, box_vector(vector))
    table.rebuild()
    return table


def sum_minimal(places: DataFrame) -> DataFrame:
    """Return one row an event: subscriptions, sent, bytes, and bytes saved to each device."""
    return (
        places.groupBy("event")
        .agg(
            F.count("*").alias("subscriptions"),
            F.count_if(F.col("is_active")).alias("sent"),
            F.sum("bytes").alias("bytes"),
            F.sum(F.expr("case when is_active then 0 else bytes end")).alias("bytes_saved"),
        )
        .orderBy("event")
    )
