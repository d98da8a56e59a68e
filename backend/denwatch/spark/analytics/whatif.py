"""What other strategies and copy budgets would have done on Spark, and which one to take.

The notifications are cut into parts that are replayed apart (`replay`), all with the same contacts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
from denwatch.spark.analytics.arrival import Contact, Graph, Stay
from denwatch.spark.analytics.oracle import limit_time
from denwatch.spark.analytics.replay import Carried, World, list_places, make_strategy, replay
from denwatch.spark.analytics.summaries import measure_latency
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

STRATEGIES = (
    *("direct", "spray:2", "spray:4", "spray:8", "spray:16"),
    *("utility:4", "utility:8", "utility:11", "utility:16", "epidemic"),
)
REPLAYED = (
    "strategy string, note_id bigint, relays int, owner string, at bigint, delivered bigint, "
    "is_remote boolean"
)
_PART = 2_000  # notifications replayed together
_ENOUGH = 0.99  # of what the best delivers
_SOON = 1.25  # times the latency (p90) of the fastest of those

NEEDED = ("note_id", "owner", "origin", "born", "at", "until", "degree", "asked")


def replay_strategies(
    pairs: DataFrame,
    contacts: Sequence[Contact],
    stays: Mapping[str, Sequence[Stay]],
    homes: Mapping[str, tuple[int, str]],
    end: int,
    strategies: Sequence[str] = STRATEGIES,
) -> DataFrame:
    """Return what each strategy does with each pair of `describe_pairs`.

    `homes` says where and since when each subscriber is known to be before it comes anywhere: where
    it subscribed first.
    """
    notes = pairs.groupBy("note_id", "origin", "born", "at").agg(
        F.collect_list(F.struct("owner", "degree", "asked", "until")).alias("wanted")
    )
    size = F.greatest(F.lit(1), F.ceil(F.lit(notes.count()) / _PART))
    parts = notes.withColumn("part", F.pmod(F.xxhash64("note_id"), size))
    names = notes.sparkSession.createDataFrame([(name,) for name in strategies], "strategy string")
    work = _build_work(list(contacts), dict(stays), list_places(stays, homes), end)
    return parts.crossJoin(names).groupBy("strategy", "part").applyInPandas(work, REPLAYED)


def _build_work(
    contacts: list[Contact],
    stays: dict[str, Sequence[Stay]],
    places: dict[str, list[tuple[int, str]]],
    end: int,
) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def work(frame: pd.DataFrame) -> pd.DataFrame:
        name = str(frame["strategy"].iloc[0])
        frame = frame.sort_values("note_id")
        graph = Graph(contacts, {stay.node for kept in stays.values() for stay in kept})
        notes = [_read_note(graph, stays, end, row) for row in frame.to_dict("records")]
        done = replay(World(contacts, places), notes, make_strategy(name))
        rows = []
        for note, result, at in zip(notes, done, frame["at"], strict=True):
            for owner in note.wanted:
                time, node = result.delivered.get(owner, (None, None))
                is_remote = None if node is None else node != note.origin
                rows.append((name, note.id, result.relays, owner, int(at), time, is_remote))
        columns = [column.split()[0] for column in REPLAYED.split(", ")]
        return pd.DataFrame(rows, columns=columns).astype({"delivered": "Int64"})

    return work


def _read_note(
    graph: Graph, stays: Mapping[str, Sequence[Stay]], end: int, row: dict[str, object]
) -> Carried:
    wanted: dict[str, tuple[int, list[Stay]]] = {}
    last = 0
    for want in row["wanted"]:  # type: ignore[attr-defined]
        owner = want["owner"]
        limit = limit_time(want["until"], end)
        last = max(last, limit)
        wanted[owner] = int(want["degree"]), _limit_stays(graph, stays, want["asked"], owner, limit)
    return Carried(int(row["note_id"]), str(row["origin"]), int(row["born"]), last, wanted)  # type: ignore[call-overload]


def _limit_stays(
    graph: Graph, stays: Mapping[str, Sequence[Stay]], asked: object, owner: str, limit: int
) -> list[Stay]:
    """Return where a subscriber can be served: there, with the subscription known, in time."""
    known = [graph.find_arrivals(each["origin"], int(each["begins"])) for each in asked]  # type: ignore[attr-defined]
    kept = []
    for stay in stays.get(owner, ()):
        ready = min((graph.read(times, stay.node) for times in known), default=limit + 1)
        if max(stay.begin, ready) <= min(stay.end, limit):
            kept.append(Stay(stay.node, max(stay.begin, ready), min(stay.end, limit)))
    return sorted(kept, key=lambda stay: stay.begin)


def compare_strategies(replayed: DataFrame, note_bytes: float) -> DataFrame:
    """Return one row a strategy: delivered of wanted, latency, copies and bytes a delivery.

    `note_bytes` is what a notification weighs on a link. `overhead` as in `measure_costs`.
    """
    delivered = F.col("delivered").isNotNull()
    pairs = replayed.withColumn("latency", F.col("delivered") - F.col("at"))
    told = pairs.groupBy("strategy").agg(
        F.count("*").alias("wanted"),
        F.count_if(delivered).alias("delivered"),
        F.count_if(F.col("is_remote")).alias("remote"),
        *measure_latency("latency"),
    )
    relays = (
        replayed.select("strategy", "note_id", "relays")
        .distinct()
        .groupBy("strategy")
        .agg(F.sum("relays").alias("relays"))
    )
    return (
        told.join(relays, "strategy")
        .withColumn("ratio", F.try_divide("delivered", "wanted"))
        .withColumn("copies_per_delivery", F.try_divide("relays", "delivered"))
        .withColumn("overhead", F.try_divide(F.col("relays") - F.col("remote"), "delivered"))
        .withColumn("bytes_per_delivery", F.col("copies_per_delivery") * F.lit(note_bytes))
        .orderBy("strategy")
    )


def recommend(table: pd.DataFrame, used: str = "") -> tuple[str, str]:
    """Return the strategy to take and why, from `compare_strategies`.

    Enough is 99 % of what the best delivers; of those that deliver enough and take at most a
    quarter longer than the fastest of them (nine tenths of the deliveries), the one that copies
    least.
    """
    if table.empty or not table["delivered"].sum():
        return "", "Nothing could have been delivered by any strategy: there is nothing to compare."
    enough = table[table["ratio"] >= _ENOUGH * table["ratio"].max()]
    fastest = enough["p90_ms"].min()
    quick = enough[enough["p90_ms"] <= max(_SOON * fastest, fastest + 1_000)]
    best = quick.sort_values(["relays", "p90_ms", "strategy"]).iloc[0]
    most = table.sort_values(["relays", "strategy"]).iloc[-1]
    text = (
        f"{best['strategy']} delivers {best['ratio']:.1%} of what was wanted, "
        f"nine tenths of it within {best['p90_ms'] / 1000:,.0f} s, with "
        f"{best['copies_per_delivery']:.2f} copies a delivery"
    )
    if most["strategy"] != best["strategy"] and most["relays"]:
        text += f"; {most['strategy']} takes {most['copies_per_delivery']:.2f}"
        text += f" for {most['ratio']:.1%}"
    if used and used == best["strategy"]:
        text += ". It is what the nodes use"
    return str(best["strategy"]), text + "."


def find_homes(windows: DataFrame) -> dict[str, tuple[int, str]]:
    """Return where each subscriber asked first, and when."""
    rows = (
        windows.groupBy("owner")
        .agg(F.min("begins").alias("begins"), F.min_by("origin", "begins").alias("origin"))
        .collect()
    )
    return {row["owner"]: (row["begins"], row["origin"]) for row in rows}
