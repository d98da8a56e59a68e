"""For tests of the stream: logs that arrive bit by bit, plain readers, the batch's tables."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.record_tables import RecordTables
from denwatch.spark.report.analysis import save_tables
from pyspark.sql import SparkSession

LATE = 60_000
QUICK = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPARED = (
    *("outcomes", "matches", "decisions", "causes", "notifications", "subscriptions", "contacts"),
    *("services", "regions"),
)
NUMBERED = ["node", "epoch", "number"]
Rows = Counter[tuple[Any, ...]]


class Arrival:
    """Puts whole logs into another folder, a piece at a time, in an order drawn at random.

    A segment grows under its name while it is written, cut anywhere, and is closed with its last
    piece; nodes' segments come in any order.
    """

    def __init__(self, source: Path, target: Path, rng: random.Random, pieces: int) -> None:
        self._target = target
        self._steps: list[tuple[Path, Path, int]] = []
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            size = path.stat().st_size
            cuts = sorted(rng.randrange(1, size) for _ in range(pieces - 1))
            place = path.relative_to(source)
            self._steps += [(place, path, cut) for cut in [*cuts, size]]
        # Shuffled over files, in order within each.
        order = [step[0] for step in self._steps]
        rng.shuffle(order)
        queues = {place: [step for step in self._steps if step[0] == place] for place in order}
        self._steps = [queues[place].pop(0) for place in order]

    @property
    def is_over(self) -> bool:
        return not self._steps

    def step(self) -> None:
        """Let one piece arrive, as a writer would write it: behind what is there."""
        place, path, size = self._steps.pop(0)
        data = path.read_bytes()[:size]
        target = self._target / place
        target.parent.mkdir(parents=True, exist_ok=True)
        growing = target.with_suffix(".open")
        held = growing.stat().st_size if growing.exists() else 0
        with growing.open("ab") as file:
            file.write(data[held:])
        if size == path.stat().st_size and path.suffix != ".open":
            growing.rename(target)


def read_plainly(path: Path) -> pa.Table:
    """Return a table as a program reads it that knows nothing of us."""
    return ds.dataset(str(path), partitioning="hive").to_table()


def count_rows(table: pa.Table, leave_out: tuple[str, ...] = ()) -> Rows:
    """Return the rows of a table, as a bag."""
    names = sorted(set(table.column_names) - set(leave_out))
    columns = [[_freeze(value) for value in table[name].to_pylist()] for name in names]
    return Counter(zip(*columns, strict=True))


def _freeze(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return None if value != value else value


class Watch:
    """Reads the tables over and over, as anybody might, and notes what is there twice."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.looks = 0
        self.twice: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.2):
            for name, key in (
                ("records", ["kind", *NUMBERED]),
                ("tables/matches.parquet", ["notification_id", "subscription_id"]),
                ("tables/decisions.parquet", ["notification_id", "subscription_id"]),
                ("tables/outcomes.parquet", ["notification_id", "subscriber"]),
            ):
                # A file that was joined with others is gone for whoever listed it before: the
                # reader looks again. What it must not see is anything twice.
                with contextlib.suppress(FileNotFoundError, pa.ArrowInvalid):
                    self._look(name, key)

    def _look(self, name: str, key: list[str]) -> None:
        if not (self.out / name).exists():
            return
        table = read_plainly(self.out / name)
        if name == "records" and "number" in table.column_names:
            table = table.filter(ds.field("number").is_valid())
        if "cause" in table.column_names:
            table = table.filter(ds.field("cause").is_null() | (ds.field("cause") != "repeated"))
        if table.num_rows:
            self.looks += 1
            found = Counter(zip(*(table[column].to_pylist() for column in key), strict=True))
            self.twice += [f"{name} {row}" for row, times in found.items() if times > 1]


@contextlib.contextmanager
def be_quick(spark: SparkSession) -> Iterator[None]:
    """Let small queries run as they are; compiling each takes most of the time."""
    before = {name: spark.conf.get(name) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.catalog.clearCache()
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)


def write_batch(spark: SparkSession, logs: Path, folder: Path) -> None:
    """Write the tables that a batch makes of whole logs, as `denwatch analyze` does."""
    with be_quick(spark):
        kept = RecordTables(folder / "records")
        kept.update(spark, [logs])
        study = Study(Logs(lambda kind: kept.read(spark, kind)), late=LATE)
        (folder / "tables").mkdir()
        listed = study.list_tables()
        save_tables({name: listed[name][1] for name in COMPARED}, folder / "tables")


def check_equal(out: Path, batch: Path) -> None:
    """See that a plain reader finds the same rows in the stream's tables as in the batch's."""
    for name in COMPARED:
        path = f"tables/{name}.parquet"
        found, wanted = count_rows(read_plainly(out / path)), count_rows(read_plainly(batch / path))
        assert found == wanted, name
    kinds = {path.name for path in (batch / "records").glob("kind=*")}
    assert {path.name for path in (out / "records").glob("kind=*")} == kinds
    for kind in kinds - {"kind=quarantine"}:
        assert read_records(out, kind) == read_records(batch, kind), kind


def read_records(folder: Path, kind: str) -> Rows:
    tables = [
        pq.read_table(path, partitioning=None)
        for path in (folder / "records" / kind).rglob("*.parquet")
    ]
    return count_rows(pa.concat_tables(tables))
