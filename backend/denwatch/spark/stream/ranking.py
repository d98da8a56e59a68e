"""Top-k and the other decisions for each subscriber, as state in shards with expiry.

What a network without delays would have delivered to whom: the table `decisions` of the analysis,
kept current. Subscribers are spread over 32 shards by a hash of their names; a shard's state is one
packed file of the version, read and written by one task. (State by key in Spark's own store took
2 to 8 s a batch for 1,800 keys, 32 packed shards 0.8 s; and that store belongs to one fixed plan,
while here subscriptions come late and change what older notifications match.)

Of each subscriber the state has the subscriptions, what the node's own judge remembers, and the
matches of the last minutes, which are decided anew with every batch, because logs of several nodes
never arrive in order. What is older than that is settled: decided once, its file never touched
again, its matches out of the state. What the judge remembers of a subscription goes when the
subscription is over. If a match comes even later, or goes, its subscriber is decided anew from the
table of matches, from the beginning.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
from denwatch.node.backend_api import DecisionReplay, OfferedMatch
from denwatch.spark.analytics.outcomes import ASKED_COLUMNS
from denwatch.spark.matching.windows import NOTE_COLUMNS
from denwatch.spark.record_tables import replace_file, write_parquet
from denwatch.spark.report.analysis import parse_ids
from denwatch.spark.source.decoding import convert_schema
from denwatch.spark.stream import matching
from denwatch.spark.stream.matching import Changes, list_owners, name_id, read_matches
from denwatch.spark.stream.tables import Batch, add_frame, list_files, remove_rows
from denwatch.spark.stream.versions import STATE
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

TABLE = "decisions.parquet"
SHARDS = 32
SLACK = 300_000  # ms; a match may come so late before it is settled
_TOPK = "topk"
PUBLIC = StructType(
    [
        *(
            StructField(name, StringType())
            for name in ("notification_id", "subscription_id", "subscriber")
        ),
        StructField("offered", LongType()),
        StructField("verdict", StringType()),
    ]
)
FEW = 20_000  # matches
Worker = Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]
Verdict = tuple[int, int, int, str]  # notification, subscription, when it was offered, and what


class Offer(msgspec.Struct, array_like=True):
    """One match that a node has to decide about."""

    offered: int
    notification_id: int
    subscription_id: int
    possible: int
    certain: int
    attribute: int
    note: dict[str, Any]


class PendingState(msgspec.Struct, array_like=True):
    """One subscriber."""

    subs: dict[int, dict[str, Any]]  # by id
    entered: list[int]  # those that were in force when the last match was settled, in order
    rows: list[tuple[str, bytes, bytes]]  # what the judge remembers
    pending: list[Offer]  # not settled
    open: list[Verdict]  # what is decided about those, as far as is known


_decoder = msgspec.msgpack.Decoder(dict[str, PendingState])


def find_shard(subscriber: str) -> int:
    """Return the shard of a subscriber."""
    return zlib.crc32(subscriber.encode()) % SHARDS


def update_decisions(batch: Batch, before: Path, changes: Changes) -> None:
    """Decide about what a batch has changed; `before` is the version that this one follows."""
    spark, building = batch.spark, batch.building
    folder, manifest = building.make("tables", TABLE), building.manifest
    building.make(STATE, _TOPK)
    void = set(changes.stale)  # subscribers who are decided anew
    if manifest.settled > manifest.newest:  # by a clock that was wrong: all of them, once
        void |= set(list_owners(read_matches(spark, building)))
        manifest.settled = 0
    touched = {find_shard(subscriber) for subscriber in void}
    offers = changes.added.join(
        changes.notes.select("notification_id", _pack_note()), "notification_id"
    )
    if changes.rows:
        found = offers.groupBy("subscriber").agg(F.min("note.at").alias("first")).collect()
        void |= {row["subscriber"] for row in found if row["first"] <= manifest.settled}
        touched |= {find_shard(row["subscriber"]) for row in found}
    if not touched:
        return
    manifest.settled = max(manifest.settled, manifest.newest - SLACK)
    if void:
        remove_rows(folder, pa.array(sorted(void), pa.string()), "subscriber", f"{batch.stem}r")
        names = [(name,) for name in sorted(void)]
        chosen = F.broadcast(spark.createDataFrame(names, "subscriber string"))
        whole = parse_ids(read_matches(spark, building)).join(chosen, "subscriber", "left_semi")
        notes = matching.read_notes(spark, building).select("notification_id", _pack_note())
        whole = whole.join(notes, "notification_id")
        offers = offers.join(chosen, "subscriber", "left_anti").unionByName(whole)
    for path in (path for n in touched for path in list_files(folder, f"open-{n:02d}-*.parquet")):
        path.unlink()
    asked = spark.createDataFrame(matching.load_windows(building.folder)).select(
        "subscription_id", F.struct(*ASKED_COLUMNS).alias("asked")
    )
    shard = F.pmod(F.crc32("subscriber"), F.lit(SHARDS)).cast("int")
    ready = offers.join(asked, "subscription_id").withColumn("shard", shard)
    work = make_worker(before, building.folder, batch.stem, manifest.settled)
    # A subscriber without any match left has no row that would bring its shard to a task.
    voids = [(n, sorted(o for o in void if find_shard(o) == n)) for n in sorted(touched)]
    if (manifest.matches if void else changes.rows) <= FEW:
        _decide_here(ready, voids, work, folder / f"{batch.stem}.parquet")
    else:
        orders = spark.createDataFrame(voids, "shard int, void array<string>")
        grouped = ready.groupBy("shard").cogroup(orders.groupBy("shard"))
        add_frame(grouped.applyInPandas(work, PUBLIC), folder, batch.stem)


def _decide_here(
    ready: DataFrame, voids: list[tuple[int, list[str]]], work: Worker, path: Path
) -> None:
    """Do the shards' work in the driver: for a few matches, starting tasks takes far longer."""
    offers: pd.DataFrame = ready.toArrow().to_pandas()
    done = pd.concat(
        work(offers[offers["shard"] == shard], pd.DataFrame({"shard": [shard], "void": [void]}))
        for shard, void in voids
    )
    if len(done):
        schema = convert_schema(PUBLIC)
        write_parquet(path, pa.Table.from_pandas(done, schema, preserve_index=False))


def _pack_note() -> Column:
    return F.struct(*NOTE_COLUMNS).alias("note")


def make_worker(before: Path, after: Path, stem: str, settled: int) -> Worker:
    """Return what one shard's task does: it may be done twice, and ends the same."""

    def work(offers: pd.DataFrame, void: pd.DataFrame) -> pd.DataFrame:
        shard = int(void["shard"].iloc[0])
        states = load_shard(before, shard)
        for subscriber in void["void"].iloc[0]:
            states.pop(subscriber, None)
        for subscriber, frame in offers.groupby("subscriber", sort=True):
            states[str(subscriber)] = take_offers(states.get(str(subscriber)), frame)
        done: list[tuple[str, Verdict]] = []
        still: list[tuple[str, Verdict]] = []
        for subscriber, state in sorted(states.items()):
            if state.pending:
                done += [
                    (subscriber, verdict) for verdict in decide_pending(subscriber, state, settled)
                ]
                still += [(subscriber, verdict) for verdict in state.open]
        save_shard(after, shard, states)
        if still:
            name = f"open-{shard:02d}-{stem}.parquet"
            write_parquet(after / "tables" / TABLE / name, _tabulate(still))
        return _tabulate(done).to_pandas()

    return work


def take_offers(state: PendingState | None, frame: pd.DataFrame) -> PendingState:
    """Return a subscriber's state with more matches to decide about."""
    state = state or PendingState({}, [], [], [], [])
    for row in frame.itertuples(index=False):
        key = int(row.subscription_id)
        numbers = int(row.possible), int(row.certain), int(row.attribute)
        note = _plain(row.note, NOTE_COLUMNS)
        state.pending.append(Offer(note["at"], int(row.notification_id), key, *numbers, note))
        if key not in state.subs:
            state.subs[key] = _plain(row.asked, ASKED_COLUMNS)
    return state


def decide_pending(subscriber: str, state: PendingState, settled: int) -> list[Verdict]:
    """Decide what is pending; return what is settled by that, and leave the rest open."""
    order = sorted(state.pending, key=lambda o: (o.offered, o.notification_id, o.subscription_id))
    replay = DecisionReplay(subscriber, {(space, key): value for space, key, value in state.rows})
    for key in state.entered:
        replay.enter(key, state.subs[key])
    done: list[Verdict] = []
    old = [offer for offer in order if offer.offered <= settled]
    _decide(replay, state, old, done)
    if old:
        entered = replay.list_entered()
        kept = {id_: state.subs[key]["ends"] > settled for key, id_ in entered.items()}
        state.entered = list(entered)
        state.rows = [
            (space, key, value)
            for (space, key), value in sorted(replay.remember().items())
            if kept.get(int.from_bytes(key[:8], "big"), True)
        ]
    state.pending = order[len(old) :]
    state.open = []
    _decide(replay, state, state.pending, state.open)
    return done


def _decide(
    replay: DecisionReplay, state: PendingState, offers: list[Offer], into: list[Verdict]
) -> None:
    for (offered, notification_id), group in groupby(
        offers, key=lambda o: (o.offered, o.notification_id)
    ):
        same = list(group)
        matches = [
            OfferedMatch(
                o.subscription_id, o.possible, o.certain, o.attribute, state.subs[o.subscription_id]
            )
            for o in same
        ]
        verdicts = replay.decide(offered, same[0].note, matches)
        into += [(notification_id, key, offered, why) for key, why in verdicts.items()]


def load_shard(version: Path, shard: int) -> dict[str, PendingState]:
    """Return the state of a shard in a version."""
    try:
        return _decoder.decode((version / STATE / _TOPK / f"{shard:02d}.bin").read_bytes())
    except FileNotFoundError:
        return {}


def save_shard(version: Path, shard: int, states: dict[str, PendingState]) -> None:
    """Write the state of a shard, all of it or nothing."""
    replace_file(version / STATE / _TOPK / f"{shard:02d}.bin", msgspec.msgpack.encode(states))


def _tabulate(rows: Iterable[tuple[str, Verdict]]) -> pa.Table:
    named = [
        (name_id(note), name_id(sub), subscriber, at, why)
        for subscriber, (note, sub, at, why) in rows
    ]
    listed = [dict(zip(PUBLIC.names, row, strict=True)) for row in named]
    return pa.Table.from_pylist(listed, schema=convert_schema(PUBLIC))


def _plain(row: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return a struct of Spark as msgpack can have it."""
    found = {name: row[name] for name in names}
    for name, value in found.items():
        if isinstance(value, bytes | bytearray):
            found[name] = bytes(value)
        elif value is not None and not isinstance(value, str):
            found[name] = int(value)
    return found
