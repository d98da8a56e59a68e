"""How fast the nodes' logs become tables: segments as a node writes them, decoded by Spark."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from denwatch.node.log import DiskFiles, Writer, encode_record
from denwatch.spark.record_tables import RecordTables
from pyspark.sql import SparkSession

from benchmarks.common import say
from simulator.memory_store import MemoryStore

NOW = 1_790_000_000_000
_SEGMENTS = 4


def write_log(folder: Path, records: int) -> None:
    """Write a node's log: of ten records, two notifications, five matches, sends and deliveries."""
    rng = np.random.default_rng(1)
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(folder), segment_bytes=1 << 40, segment_age=1 << 60)
    kinds = ("note", "match", "match", "match", "send", "deliver", "note", "match", "match", "send")
    for first in range(0, records, 2_000):
        rows = []
        for number in range(first, first + 2_000):
            rows.append(encode_record(*make_record(kinds[number % 10], number, rng), NOW + number))
        store.apply([], rows)
        store.commit()
        while writer.move(NOW):
            store.commit()
        if first and first % (records // _SEGMENTS) == 0:
            writer.close(NOW)
            writer = Writer(store, DiskFiles(folder), segment_bytes=1 << 40, segment_age=1 << 60)
    writer.close(NOW)


def make_record(kind: str, number: int, rng: np.random.Generator) -> tuple[str, dict[str, object]]:
    """Return a record of a kind with the fields that a node fills."""
    note, subscription = number // 10, int(rng.integers(1 << 62))
    if kind == "note":
        fields: dict[str, object] = {
            "item": note, "origin": "north", "run": 1, "sequence": number, "device": "wd7",
            "device_epoch": 1, "device_sequence": number, "at": NOW + number, "doubt": 500,
            "expires": NOW + 86_400_000, "vocabulary": b"\x01" * 8, "vector": rng.bytes(11),
            "source": "", "degree": 200, "event": "patient", "features": 7,
        }  # fmt: skip
    elif kind == "match":
        fields = {"note": note, "subscription": subscription, "owner": "medic7"}
        fields |= {"possible": 200, "certain": 200}
    else:
        fields = {"note": note, "owner": "medic7", "subscriptions": [subscription], "attempt": 1}
    return kind, fields


def measure_log(spark: SparkSession, folder: Path, records: int) -> float:
    """Return how many records a second become rows of Parquet tables, all kinds in one pass."""
    write_log(folder / "log", records)
    for turn in ("first", "second"):
        start = time.perf_counter()
        counts = RecordTables(folder / turn).update(spark, [folder / "log"])
        seconds = time.perf_counter() - start
        if sum(counts.values()) != records:
            raise AssertionError(f"{counts} are not {records} records")
    say(f"log: {records / seconds:,.0f} records/s")
    return records / seconds
