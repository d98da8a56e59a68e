"""`denwatch analyze`: reads logs, computes all tables, writes them and the report.

Records are first stored as Parquet beside the report (`records`), where a second run adds only new
ones; everything else is computed from there. The only file of the report that writes to disk.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from denwatch.spark.analytics.outcomes import LATE
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.analytics.what_if import STRATEGIES, make_strategy, recommend
from denwatch.spark.report.page import Figures, build_page, write_page
from denwatch.spark.source import QUARANTINE
from denwatch.spark.source.decoding import convert_schema
from denwatch.spark.tables import PLAN, RecordTables, replace_file, write_parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StructType

Tell = Callable[[str], None]
_SMALL = 300_000  # records


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
    bad = save_table(kept.read(spark, QUARANTINE), tables, QUARANTINE)
    assert bad is not None, "what is damaged is shown"
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
    study = Study(logs, late=late, strategies=compared, folder=work)
    small: dict[str, pd.DataFrame] = {}
    listed = study.list_tables()
    for number, (name, (words, make)) in enumerate(listed.items(), 1):
        tell(f"{number}/{len(listed)} {words}")
        table = save_table(make(), tables, name)
        if table is not None:
            small[name] = table
    best, advice = recommend(small["strategies"], used)
    figures = Figures(
        small, bad, study.step, best, used, advice, wrong, late, [str(f) for f in folders]
    )
    tell("writing the report")
    page = out / "report.html"
    words_of = {name: words for name, (words, _) in listed.items()}
    replace_file(page, write_page(build_page(figures, words_of)).encode())
    logs.release()
    shutil.rmtree(work)
    tell(f"done in {time.monotonic() - began:.0f} s: {page}")
    headline: dict[str, Any] = small["headline"].iloc[0].to_dict()
    return Report(page, tables, headline, advice, len(bad), describe_quarantine(bad))


def tune_queries(spark: SparkSession, records: int) -> None:
    """Do not compile queries over small logs: compiling would take most of the time."""
    is_small = records < _SMALL
    spark.conf.set("spark.sql.codegen.wholeStage", str(not is_small).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if is_small else "FALLBACK")


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
# Small tables come to the driver and are written as one CSV and one Parquet file. Spark writes
# large ones (one row for each match) as a folder of Parquet, so the driver's memory does not
# matter.

LARGE = (
    *("outcomes", "matches", "notes", "subscriptions", "decisions", "covering", "contacts"),
    *("stays", "services"),
)
IDS = ("note_id", "subscription_id")


def name_ids(frame: DataFrame) -> DataFrame:
    """Return a table with ids as people see them, in hexadecimal."""
    named = {name: F.lower(F.lpad(F.hex(name), 16, "0")) for name in IDS if name in frame.columns}
    return frame.withColumns(named) if named else frame


def save_table(frame: DataFrame, folder: Path, name: str) -> pd.DataFrame | None:
    """Write a table; return it if it is small."""
    frame = name_ids(frame)
    if name in LARGE:
        _write_large(frame, folder / f"{name}.parquet")
        return None
    table: pd.DataFrame = frame.toPandas()
    typed = pa.Table.from_pandas(table, convert_schema(frame.schema), preserve_index=False)
    flat = table.copy()
    for field in frame.schema:
        if isinstance(field.dataType, ArrayType | StructType):
            flat[field.name] = [
                None if v is None else json.dumps(list(v)) for v in flat[field.name]
            ]
    replace_file(folder / f"{name}.csv", flat.to_csv(index=False).encode())
    write_parquet(folder / f"{name}.parquet", typed)
    return table


def _write_large(frame: DataFrame, path: Path) -> None:
    """Write a directory of Parquet; it has its name only when it is whole."""
    dropped = [field.name for field in frame.schema if isinstance(field.dataType, BinaryType)]
    partial = path.with_name(f".{path.name}")
    frame.drop(*dropped).write.mode("overwrite").parquet(str(partial))
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
    partial.rename(path)


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
