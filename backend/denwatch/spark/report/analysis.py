"""`denwatch analyze`: reads logs, computes all tables, writes them and the report.

Records are first stored as Parquet beside the report (`records`), where a second run adds only new
ones; everything else is computed from there. The only file of the report that writes to disk.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from denwatch.node.log.kinds import KINDS
from denwatch.spark.analytics.outcomes import LATE
from denwatch.spark.analytics.study import BY_PAIR, Study, list_order
from denwatch.spark.analytics.timeline import APPROXIMATE, Logs
from denwatch.spark.analytics.what_if import STRATEGIES, Evidence, advise, make_strategy
from denwatch.spark.record_tables import PLAN, RecordTables, replace_file, write_parquet
from denwatch.spark.report.page import Figures, build_page, write_page
from denwatch.spark.source import QUARANTINE, read_kind
from denwatch.spark.source.decoding import convert_schema, list_ids
from denwatch.spark.source.storage import copy_logs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, LongType

Tell = Callable[[str], None]
_SMALL = 300_000  # records
_MANY = 5_000_000  # records from which on quantiles are approximate
_PARTITION = 250_000  # records that a task of a larger analysis gets, about
_BROADCAST = str(10 << 20)  # bytes; as Spark has it


class EmptyLogsError(ValueError):
    """There is nothing to analyse; the message says why."""


class Report(NamedTuple):
    """The files of a report and its main results."""

    page: Path
    tables: Path
    headline: dict[str, Any]
    advice: str
    quarantined: int
    quarantine: str  # the same in words


def analyze(
    spark: SparkSession,
    folders: Sequence[Path],
    out: Path,
    *,
    late: int = LATE,
    strategies: tuple[str, ...] = STRATEGIES,
    tell: Tell = lambda _: None,
) -> Report:
    """Analyse the logs below some folders, and write report.html and tables into another."""
    began = time.monotonic()
    tables = out / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    tell("reading logs")
    kept = RecordTables(out / "records")
    counts = kept.update(spark, folders)
    bad = kept.read_quarantine()
    records = sum(rows for kind, rows in counts.items() if kind != QUARANTINE)
    _check(folders, records, bad)
    tell(f"{records:,} records; {describe_quarantine(bad)}")
    tune_queries(spark, records)
    logs = Logs(partial(kept.read, spark))
    wrong = {run: clock.offset for run, clock in logs.clocks.items() if clock.offset}
    for (node, _), offset in sorted(wrong.items()):
        tell(f"the clock of {node} was {offset / 1000:+,.1f} s off: corrected")
    used = find_strategy(logs)
    compared = strategies
    with suppress(ValueError):  # newer nodes may have strategies that cannot be replayed here
        make_strategy(used)
        compared = tuple(dict.fromkeys([*strategies, used]))
    is_small = records < _SMALL
    work = None if is_small else open_work(out, f"{late} {compared}")
    study = Study(logs, late=late, strategies=compared, folder=work)
    listed = study.list_tables()
    makers = {name: make for name, (_, make) in listed.items()}
    if work is not None:
        resume_study(spark, study, tables, work)
    small = save_tables(makers, tables, tell, is_small=is_small, is_wide=study.is_wide, work=work)
    small[QUARANTINE] = save_small(bad, tables, QUARANTINE)
    head = small["headline"].iloc[0]
    span = logs.end - logs.begin
    evidence = Evidence(used, int(head["expected"]), int(head["delivered"]), span)
    best, advice, table = advise(small["strategies"], small["strategy_blocks"], evidence)
    small["strategies"] = save_small(table, tables, "strategies")
    places = [str(folder) for folder in folders]
    figures = Figures(small, bad, study.step, best, used, advice, wrong, late, places, records)
    tell("writing the report")
    page = out / "report.html"
    words_of = {name: words for name, (words, _) in listed.items()}
    replace_file(page, write_page(build_page(figures, words_of)).encode())
    logs.release()
    shutil.rmtree(out / _WORK, ignore_errors=True)  # there is none of small logs
    tell(f"done in {time.monotonic() - began:.0f} s: {page}")
    headline: dict[str, Any] = small["headline"].iloc[0].to_dict()
    return Report(page, tables, headline, advice, len(bad), describe_quarantine(bad))


def tune_queries(spark: SparkSession, records: int) -> None:
    """Set how queries are planned, by the size of the logs.

    Small ones are in one partition: nothing is shuffled, broadcast or compiled, which would take
    most of the time. Larger ones get a partition for so many records, on clusters too.
    """
    is_small = records < _SMALL
    parts = 1 if is_small else max(2 * spark.sparkContext.defaultParallelism, records // _PARTITION)
    settings = {
        "spark.sql.codegen.wholeStage": str(not is_small).lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if is_small else "FALLBACK",
        "spark.sql.shuffle.partitions": str(parts),
        "spark.sql.leafNodeDefaultParallelism": str(parts),
        "spark.sql.autoBroadcastJoinThreshold": "-1" if is_small else _BROADCAST,
        APPROXIMATE: str(records > _MANY).lower(),
    }
    for name, value in settings.items():
        spark.conf.set(name, value)


def _check(folders: Sequence[Path], records: int, bad: pd.DataFrame) -> None:
    """Fail if there is nothing to analyse."""
    if records:
        return
    where = ", ".join(map(str, folders))
    if bad.empty:
        raise EmptyLogsError(
            f"no log segments below {where}: they end in .dlog or .open, in a node's data/log"
        )
    first = bad.iloc[0]
    raise EmptyLogsError(
        f"no readable records below {where}: {len(bad)} files or parts are damaged or foreign, "
        f"the first: {first['file']}: {first['reason']}"
    )


def find_strategy(logs: Logs) -> str:
    """Return the strategy that the nodes used, if they all used one."""
    rows = logs.get("start").where("strategy is not null").select("strategy").distinct().collect()
    return str(rows[0]["strategy"]) if len(rows) == 1 else ""


# A run that was stopped -------------------------------------------------------------------
# Large tables are whole when they have their name (`_write_large`), and then leave a mark in the
# folder `.work`, which is for one state of the records and one set of options. A run that finds it
# computes the tables without a mark, from those that have one.

_WORK, _STATE = ".work", "state"
_READ = ("matches", "outcomes", "contacts", "stays", "covering", "services")  # by other tables


def open_work(out: Path, options: str) -> Path:
    """Return the folder of marks, empty unless a run with these records and options has left it."""
    work = out / _WORK
    plan = (out / "records" / PLAN).read_bytes()
    state = hashlib.sha256(plan + options.encode()).hexdigest()
    if not (work / _STATE).exists() or (work / _STATE).read_text() != state:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        replace_file(work / _STATE, state.encode())
    return work


def resume_study(spark: SparkSession, study: Study, tables: Path, work: Path) -> None:
    """Let a study read the tables that a stopped run has left."""
    for name in _READ:
        path = tables / f"{name}.parquet"
        if (work / name).exists() and path.is_dir():
            setattr(study, name, parse_ids(spark.read.parquet(str(path))))


# Tables on disk -------------------------------------------------------------------------
# Small tables come to the driver, all of them in one query, and are written as one CSV and one
# Parquet file. Spark writes large ones as a folder of Parquet, so the driver's memory does not
# matter: those with a row for each match always, those with a row for a record or so when the logs
# are large, those with a row for two nodes when there are many nodes.

HUGE = ("matches", "outcomes", "decisions")
LARGE = (
    *HUGE,
    *("notifications", "subscriptions", "covering", "contacts", "stays", "services"),
    *("stories", "near"),
)
_FIRST = 10_000  # rows of a table by pair that the page gets
IDS = ("notification_id", "subscription_id", "story_id", "closing", "parts")


def name_ids(frame: DataFrame, columns: Iterable[str] = IDS) -> DataFrame:
    """Return a table with ids as people see them, in hexadecimal: the one type of ids."""
    named = {}
    for name in set(columns) & set(frame.columns):
        if frame.schema[name].dataType == LongType():
            named[name] = _write_id(F.col(name))
        elif frame.schema[name].dataType == ArrayType(LongType()):
            named[name] = F.transform(name, _write_id)
    return frame.withColumns(named) if named else frame


def parse_ids(frame: DataFrame) -> DataFrame:
    """Return a table with ids as numbers again; lists of them stay as they are."""
    texts = [name for name in IDS if (name, "string") in frame.dtypes]
    return frame.withColumns({name: F.conv(name, 16, -10).cast("bigint") for name in texts})


def _write_id(id_: Column) -> Column:
    return F.lower(F.lpad(F.hex(id_), 16, "0"))


def save_tables(
    makers: Mapping[str, Callable[[], DataFrame]],
    folder: Path,
    tell: Tell = lambda _: None,
    *,
    is_small: bool = True,
    is_wide: bool = False,
    work: Path | None = None,
) -> dict[str, pd.DataFrame]:
    """Write tables; return those of them that are small, and the first rows of those by pair.

    In the folder `work` each large table that is whole leaves a mark, and one with a mark stays.
    """
    chosen = (*(HUGE if is_small else LARGE), *(BY_PAIR if is_wide else ()))
    large = [name for name in chosen if name in makers]
    first: dict[str, DataFrame] = {}
    for number, name in enumerate(large, 1):
        path = folder / f"{name}.parquet"
        mark = work and work / name
        if mark and mark.exists() and path.is_dir() and name not in BY_PAIR:
            tell(f"{number}/{len(large) + 1} {name} is there, of a run that was stopped")
            continue
        tell(f"{number}/{len(large) + 1} computing {name}")
        frame = makers[name]()
        _write_large(name_ids(frame), path)
        if mark:
            mark.touch()
        if name in BY_PAIR:
            written = frame.sparkSession.read.parquet(str(path))
            first[name] = written.orderBy(*list_order(name)).limit(_FIRST)
    tell(f"{len(large) + 1}/{len(large) + 1} computing {len(makers) - len(large)} smaller tables")
    frames = {name: name_ids(make()) for name, make in makers.items() if name not in large}
    small: dict[str, pd.DataFrame] = {}
    for name, table in collect_tables(frames | first).items():
        small[name] = table.to_pandas()
        if name not in first:
            _remove(folder / f"{name}.parquet")
            write_parquet(folder / f"{name}.parquet", table)
        replace_file(folder / f"{name}.csv", _flatten(small[name]).to_csv(index=False).encode())
    return small


def collect_tables(frames: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    """Return small tables, all computed by one query: their rows travel as JSON."""
    if not frames:
        return {}
    keep = {"ignoreNullFields": "false"}
    shown = {name: frame.drop(*_list_binary(frame)) for name, frame in frames.items()}
    parts = [
        frame.select(F.lit(name).alias("name"), F.to_json(F.struct("*"), keep).alias("row"))
        for name, frame in shown.items()
    ]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in frames}
    for name, row in reduce(DataFrame.unionAll, parts).collect():
        rows[name].append(json.loads(row))
    return {
        name: pa.Table.from_pylist(rows[name], schema=convert_schema(frame.schema))
        for name, frame in shown.items()
    }


def save_small(table: pd.DataFrame, folder: Path, name: str) -> pd.DataFrame:
    """Write a table that the driver made; return it."""
    replace_file(folder / f"{name}.csv", _flatten(table).to_csv(index=False).encode())
    write_parquet(folder / f"{name}.parquet", pa.Table.from_pandas(table, preserve_index=False))
    return table


def _flatten(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose lists are text, as CSV has it."""
    flat = table.copy()
    for column in flat.columns:
        if flat[column].dtype == object:
            flat[column] = [
                json.dumps(list(value)) if isinstance(value, list | np.ndarray) else value
                for value in flat[column]
            ]
    return flat


def _list_binary(frame: DataFrame) -> list[str]:
    return [field.name for field in frame.schema if isinstance(field.dataType, BinaryType)]


def _write_large(frame: DataFrame, path: Path) -> None:
    """Write a directory of Parquet; it has its name only when it is whole."""
    partial = path.with_name(f".{path.name}")
    frame.drop(*_list_binary(frame)).write.mode("overwrite").parquet(str(partial))
    _remove(path)
    partial.rename(path)


def _remove(path: Path) -> None:
    """Remove what an earlier run wrote, if it is another sort of table now."""
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


# A report as a database ------------------------------------------------------------------------

TableMakers = dict[str, tuple[str, Callable[[], DataFrame]]]  # what each contains; how to get it
Place = str | Path
RECORDS = "log_"  # + kind: the records as they were written
_UNREAD = "what could not be read, and why"


def is_report(folder: Path) -> bool:
    """Return whether a folder is a report that `analyze` wrote, with its tables and records."""
    return (folder / "tables").is_dir() and (folder / "records" / PLAN).is_file()


class Tables(Mapping[str, DataFrame]):
    """Every table about some logs, by name: made when it is first asked for, and then kept."""

    def __init__(self, makers: TableMakers) -> None:
        self._makers = makers
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._made:
            self._made[name] = self._makers[name][1]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def describe(self) -> dict[str, str]:
        """Return what each table contains."""
        return {name: words for name, (words, _) in self._makers.items()}


def tables(spark: SparkSession, logs: Place | Iterable[Place]) -> Tables:
    """Return all tables about some logs: those of the analysis, and `log_KIND` with the records.

    `logs` are folders with logs, URIs of other storage, which are copied for this session, or one
    folder that `analyze` wrote, whose tables are there already. Ids are hexadecimal text in all
    tables, times are milliseconds in the common timeline.
    """
    named = [logs] if isinstance(logs, str | Path) else list(logs)
    folders = copy_logs(spark, named)
    found: TableMakers = {}
    if len(folders) == 1 and is_report(folders[0]):
        kept = Logs(partial(RecordTables(folders[0] / "records").read, spark))
        described = {name: words for name, (words, _) in Study(kept).list_tables().items()}
        for name, words in {**described, QUARANTINE: _UNREAD}.items():
            path = folders[0] / "tables" / f"{name}.parquet"
            if path.exists():
                found[name] = words, partial(spark.read.parquet, str(path))
    else:
        kept = Logs(lambda kind: read_kind(spark, folders, kind))
        for name, (words, make) in Study(kept).list_tables().items():
            found[name] = words, partial(_name_made, make)
        found[QUARANTINE] = _UNREAD, partial(read_kind, spark, folders, QUARANTINE)
    for kind in KINDS.values():
        make = partial(kept.get, kind.name)
        found[RECORDS + kind.name] = kind.meaning, partial(_name_made, make, list_ids(kind.name))
    return Tables(found)


def _name_made(make: Callable[[], DataFrame], columns: Iterable[str] = IDS) -> DataFrame:
    return name_ids(make(), columns)


_WORDS = {"damage": "damaged", "duplicate": "there twice", "foreign": "foreign"}


def describe_quarantine(bad: pd.DataFrame) -> str:
    """Return a sentence: how many parts of what class, and the first; `bad` are the rows."""
    if bad.empty:
        return "nothing in quarantine"
    counts = bad.groupby("class").size()
    told = [f"{count} {_WORDS.get(str(kind), str(kind))}" for kind, count in sorted(counts.items())]
    damaged = bad[bad["class"] == "damage"]
    lost = int(damaged["length"].dropna().sum())
    words = f"{len(bad):,} {'part' if len(bad) == 1 else 'parts'} of the logs in quarantine: "
    words += ", ".join(told)
    if lost:
        words += f"; {lost:,} records are known to be lost"
    worst = (damaged if len(damaged) else bad).iloc[0]
    return f"{words}; the first: {worst['file']}: {worst['reason']}"
