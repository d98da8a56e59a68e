"""`denwatch analyze`: reads logs, computes all tables, writes them and the report.

Records are first stored as Parquet beside the report (`records`), where a second run adds only new
ones; everything else is computed from there. The only file of the report that writes to disk.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from denwatch.spark.analytics.outcomes import LATE
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.analytics.what_if import STRATEGIES, Evidence, advise, make_strategy
from denwatch.spark.report.page import Figures, build_page, write_page
from denwatch.spark.source import QUARANTINE
from denwatch.spark.source.decoding import convert_schema
from denwatch.spark.tables import PLAN, RecordTables, replace_file, write_parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

Tell = Callable[[str], None]
_SMALL = 300_000  # records
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
    work = out / ".work"
    shutil.rmtree(work, ignore_errors=True)  # of a run that was stopped
    compared = strategies
    with suppress(ValueError):  # newer nodes may have strategies that cannot be replayed here
        make_strategy(used)
        compared = tuple(dict.fromkeys([*strategies, used]))
    is_small = records < _SMALL
    study = Study(logs, late=late, strategies=compared, folder=None if is_small else work)
    listed = study.list_tables()
    small = save_tables(
        {name: make for name, (_, make) in listed.items()}, tables, tell, is_small=is_small
    )
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
    shutil.rmtree(work, ignore_errors=True)  # there is none of small logs
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


# Tables on disk -------------------------------------------------------------------------
# Small tables come to the driver, all of them in one query, and are written as one CSV and one
# Parquet file. Spark writes large ones as a folder of Parquet, so the driver's memory does not
# matter: those with a row for each match always, those with a row for a record or so when the logs
# are large.

HUGE = ("matches", "outcomes", "decisions")
LARGE = (
    *HUGE,
    *("notifications", "subscriptions", "covering", "contacts", "stays", "services"),
    *("stories", "near"),
)
IDS = ("notification_id", "subscription_id")


def name_ids(frame: DataFrame) -> DataFrame:
    """Return a table with ids as people see them, in hexadecimal."""
    named = {name: F.lower(F.lpad(F.hex(name), 16, "0")) for name in IDS if name in frame.columns}
    return frame.withColumns(named) if named else frame


def save_tables(
    makers: Mapping[str, Callable[[], DataFrame]],
    folder: Path,
    tell: Tell = lambda _: None,
    *,
    is_small: bool = True,
) -> dict[str, pd.DataFrame]:
    """Write tables; return those of them that are small."""
    large = [name for name in (HUGE if is_small else LARGE) if name in makers]
    for number, name in enumerate(large, 1):
        tell(f"{number}/{len(large) + 1} computing {name}")
        _write_large(name_ids(makers[name]()), folder / f"{name}.parquet")
    tell(f"{len(large) + 1}/{len(large) + 1} computing {len(makers) - len(large)} smaller tables")
    frames = {name: name_ids(make()) for name, make in makers.items() if name not in large}
    small: dict[str, pd.DataFrame] = {}
    for name, table in collect_tables(frames).items():
        _remove(folder / f"{name}.parquet")
        write_parquet(folder / f"{name}.parquet", table)
        small[name] = table.to_pandas()
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


def is_report(folder: Path) -> bool:
    """Return whether a folder is a report that `analyze` wrote, with its tables and records."""
    return (folder / "tables").is_dir() and (folder / "records" / PLAN).is_file()


def list_report_tables(spark: SparkSession, folder: Path) -> tuple[TableMakers, Logs]:
    """Return the tables of a report, as they were written, and its records in one timeline."""
    logs = Logs(partial(RecordTables(folder / "records").read, spark))
    described = {name: words for name, (words, _) in Study(logs).list_tables().items()}
    described[QUARANTINE] = "what could not be read, and why"
    tables: TableMakers = {}
    for name, words in described.items():
        path = folder / "tables" / f"{name}.parquet"
        if path.exists():
            tables[name] = words, partial(spark.read.parquet, str(path))
    return tables, logs


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
