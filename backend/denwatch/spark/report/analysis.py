"""`denwatch analyze`: logs in, tables and report out, with progress. The only file that does all.

Records are first put into Parquet beside the report (`records`), which a second run only adds to;
everything else is worked out from there.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from denwatch.spark.analytics.logs import Logs
from denwatch.spark.analytics.outcomes import LATE
from denwatch.spark.analytics.replay import make_strategy
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.whatif import STRATEGIES, recommend
from denwatch.spark.report.contents import Figures, build_page
from denwatch.spark.report.page import write_page
from denwatch.spark.report.quarantine import describe_quarantine
from denwatch.spark.report.tables import save_table, save_text
from denwatch.spark.source import QUARANTINE
from denwatch.spark.tables import Tables
from pyspark.sql import SparkSession

Tell = Callable[[str], None]
_SMALL = 300_000  # records


class EmptyLogsError(ValueError):
    """There is nothing to analyse, and why."""


class Report(NamedTuple):
    """What came of it."""

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
    kept = Tables(out / "records")
    counts = kept.update(spark, folders)
    quarantine = kept.read(spark, QUARANTINE).drop("day")
    bad = save_table(quarantine, tables, QUARANTINE)
    assert bad is not None, "what is damaged is shown"
    records = sum(rows for kind, rows in counts.items() if kind != QUARANTINE)
    _check(folders, records, bad)
    tell(f"{records:,} records; {describe_quarantine(bad)}")
    tune_queries(spark, records)
    logs = Logs(lambda kind: kept.read(spark, kind).drop("day"))
    wrong = {run: offset for run, offset in logs.offsets.items() if offset}
    for (node, _), offset in sorted(wrong.items()):
        tell(f"the clock of {node} was {offset / 1000:+,.1f} s off: corrected")
    used = find_strategy(logs)
    work = out / ".work"
    shutil.rmtree(work, ignore_errors=True)  # of a run that was stopped
    compared = tuple(dict.fromkeys([*strategies, *_try(used)]))
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
    save_text(page, write_page(build_page(figures, words_of)))
    logs.release()
    shutil.rmtree(work)
    tell(f"done in {time.monotonic() - began:.0f} s: {page}")
    headline: dict[str, Any] = small["headline"].iloc[0].to_dict()
    return Report(page, tables, headline, advice, len(bad), describe_quarantine(bad))


def tune_queries(spark: SparkSession, records: int) -> None:
    """Let small logs be worked on as they are: compiling each query would take most of the time."""
    is_small = records < _SMALL
    spark.conf.set("spark.sql.codegen.wholeStage", str(not is_small).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if is_small else "FALLBACK")


def _check(folders: Sequence[Path], records: int, bad: pd.DataFrame) -> None:
    """Complain if there is nothing to work with."""
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


def _try(used: str) -> list[str]:
    """Return the strategy in use if it can be replayed: newer nodes may have others."""
    try:
        make_strategy(used)
    except ValueError:
        return []
    return [used]


def find_strategy(logs: Logs) -> str:
    """Return the strategy that the nodes used, if they all used one."""
    rows = logs.get("start").where("strategy is not null").select("strategy").distinct().collect()
    return str(rows[0]["strategy"]) if len(rows) == 1 else ""
