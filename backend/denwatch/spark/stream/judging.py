"""What became of each match, worked out anew over all records: outcomes, causes, and the plan.

Any record can change any outcome: a contact that is told a week later can make a miss avoidable. So
these tables are not changed but replaced, from the records and the matches that the stream keeps
current; the driver decides how often. They are the tables of `denwatch analyze`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from denwatch.spark.analytics.logs import Logs
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.whatif import recommend
from denwatch.spark.matching import MATCHES
from denwatch.spark.report.analysis import find_strategy
from denwatch.spark.report.tables import save_table
from denwatch.spark.services import list_live
from denwatch.spark.source import QUARANTINE
from denwatch.spark.stream import matching, ranking
from denwatch.spark.stream.files import list_files, read_files
from denwatch.spark.stream.notes import load_windows, read_clocks, read_offsets
from denwatch.spark.stream.offers import read_services
from denwatch.spark.stream.versions import Building
from denwatch.spark.tables import Tables
from pyspark.sql import DataFrame, SparkSession

LIVE = (
    *("outcomes", "headline", "causes", "delivery", "latency", "subscribers", "origins"),
    *("links", "contacts", "stays", "notes", "subscriptions", "services", "regions"),
)
STRATEGIES = "strategies"


@dataclass
class Judged:
    """What was worked out, as far as a page or a message needs it."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    used: str = ""  # the strategy of all nodes, if it is one
    best: str = ""  # the strategy to take, "" before anything can be said
    advice: str = ""
    end: int = 0  # of the logs, ms
    step: int = 1  # of `delivery`, ms


@contextmanager
def open_study(
    spark: SparkSession, building: Building, late: int, strategies: tuple[str, ...]
) -> Iterator[Study]:
    """Yield a study of a version that takes matches and decisions as they are there."""
    tables = Tables(building.folder / "records")
    logs = Logs(lambda kind: tables.read(spark, kind).drop("day"))
    logs.clocks = read_clocks(building.manifest)
    logs.offsets = read_offsets(building.manifest)
    study = Study(logs, late=late, strategies=strategies)
    windows = load_windows(building.folder)
    if windows is not None:
        study.subscriptions = spark.createDataFrame(windows)
    study.matches = matching.parse_ids(matching.read_matches(spark, building)).select(
        *MATCHES.names
    )
    study.ideal = read_decisions(spark, building)
    study.offers = list_live(read_services(spark, building))
    try:
        yield study
    finally:
        spark.catalog.clearCache()


def read_decisions(spark: SparkSession, building: Building) -> DataFrame:
    """Return all decisions, settled or open, ids as numbers."""
    files = list_files(building.make("tables", ranking.TABLE), "*.parquet")
    return matching.parse_ids(read_files(spark, files, ranking.PUBLIC))


def judge_all(
    spark: SparkSession,
    building: Building,
    late: int,
    strategies: tuple[str, ...],
    before: Judged | None,
    *,
    has_plan: bool,
) -> Judged:
    """Replace the judged tables of a version; without a plan, that of before stays."""
    folder = building.make("tables")
    judged = Judged()
    with open_study(spark, building, late, strategies) as study:
        judged.used = find_strategy(study.logs)
        listed = study.list_tables()
        for name in (*LIVE, *((STRATEGIES,) if has_plan else ())):
            table = save_table(listed[name][1](), folder, name)
            if table is not None:
                judged.tables[name] = table
        kept = Tables(building.folder / "records").read(spark, QUARANTINE).drop("day")
        bad = save_table(kept, folder, QUARANTINE)
        assert bad is not None, "what is damaged is shown"
        judged.tables[QUARANTINE] = bad
        judged.end, judged.step = study.logs.end, study.step
    if has_plan:
        judged.best, judged.advice = recommend(judged.tables[STRATEGIES], judged.used)
    elif before is not None:
        judged.best, judged.advice = before.best, before.advice
    building.manifest.judged = building.manifest.batch
    return judged


def pick(table: pd.DataFrame) -> dict[str, Any]:
    """Return the one row of a table, without what is missing."""
    if table.empty:
        return {}
    row: dict[str, Any] = table.iloc[0].to_dict()
    return {name: value for name, value in row.items() if value is not None and value == value}
