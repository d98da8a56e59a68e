"""The stream: batches in, versions out. The only file that starts a streaming query.

A batch is in the tables when `current` points to its version, and done when Spark's checkpoint
contains it. If the driver is killed in between, the batch comes again with the same number and
records and is skipped, because the version's manifest names it. Before the switch nothing of it is
visible. A version and a checkpoint that do not belong together are refused.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denwatch.spark.analytics.outcomes import LATE
from denwatch.spark.analytics.study import Study
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.analytics.what_if import STRATEGIES, Evidence, advise
from denwatch.spark.matching import MATCHES
from denwatch.spark.report.analysis import (
    find_strategy,
    parse_ids,
    save_small,
    save_tables,
    tune_queries,
)
from denwatch.spark.services import list_live
from denwatch.spark.source import ALL, QUARANTINE, is_start_timeout, stream_kind
from denwatch.spark.stream import matching, ranking, tables
from denwatch.spark.stream.ranking import update_decisions
from denwatch.spark.stream.summary import Judged, build_page, describe_line, save_summary, summarise
from denwatch.spark.stream.tables import Batch, join_small, update_offers, write_records
from denwatch.spark.stream.versions import Building, VersionError, Versions
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

if TYPE_CHECKING:  # it needs paho, which the stream alone does not
    from denwatch.spark.stream.operator_link import OperatorLink

CHECKPOINT = "checkpoint"
Tell = Callable[[str], None]
_POLL = 1  # s
_LITTLE = 300_000  # records
_ATTEMPTS = 30  # to start the query on a busy machine; see `is_start_timeout`


# Any record can change any outcome: a contact that is reported a week later can make a miss
# avoidable. So these tables are replaced as a whole, computed from the records and the matches that
# the stream keeps current. They are those of `analyze`.
LIVE = (
    *("outcomes", "headline", "causes", "delivery", "latency", "subscribers", "origins"),
    *("links", "contacts", "stays", "notifications", "subscriptions", "services", "regions"),
)
_COMPARED = ("strategies", "strategy_blocks")  # the tables of the what-if


@dataclass(frozen=True)
class StreamSettings:
    """Settings of a stream; times in seconds except `late`."""

    every: float = 5.0  # between batches
    late: int = LATE  # ms
    strategies: tuple[str, ...] = STRATEGIES
    max_records: int = 500_000  # of a batch: what bounds memory
    judging: float = 0.25  # share of the time for computing outcomes; 0: never
    plan_every: float = 600.0  # between comparisons of strategies


class StreamEngine:
    """One stream from folders of logs into one folder of tables."""

    def __init__(
        self,
        spark: SparkSession,
        folders: Sequence[Path],
        out: Path,
        settings: StreamSettings | None = None,
        *,
        tell: Tell = lambda _: None,
        loop: OperatorLink | None = None,
    ) -> None:
        self._spark = spark
        self._folders = [Path(folder).resolve() for folder in folders]
        self._out = Path(out).resolve()
        self._settings = settings or StreamSettings()
        self._tell = tell
        self._loop = loop
        self._versions = Versions(self._out)
        self._work = Path(tempfile.mkdtemp(prefix="denwatch-stream-"))
        self._matcher = matching.StreamMatcher(self._work)
        self._lock = threading.Lock()  # one version is built at a time
        self.judged = Judged()  # the latest outcomes
        self._is_stale = self._versions.read_manifest().batch >= 0
        self._judge_at = 0.0
        self._plan_at = 0.0
        self._stopping = threading.Event()

    def close(self) -> None:
        """Release the folder."""
        self._versions.close()
        shutil.rmtree(self._work, ignore_errors=True)

    def stop(self) -> None:
        """Make `run` return after the current step."""
        self._stopping.set()

    def run(self, *, once: bool = False) -> dict[str, Any]:
        """Run until `stop`, or with `once` until all present logs are in the tables.

        Returns the last summary.
        """
        self._check_checkpoint()
        left = _ATTEMPTS
        while not self._stopping.is_set():
            before = self._versions.read_manifest().batch
            try:
                self._follow(once)
                break
            except StreamingQueryException as error:
                reason = _find_reason(error)
                left = _ATTEMPTS if self._versions.read_manifest().batch > before else left - 1
                if left <= 0 or not is_start_timeout(error):
                    raise VersionError(reason) from error
                self._tell(f"{reason}; starting again")  # a batch is still in the tables only once
                self._stopping.wait(_POLL)
        if once and self._settings.judging and not self._stopping.is_set():
            self._judge()
        return self._save_summary()

    def _follow(self, once: bool) -> None:
        query = self._start(once)
        try:
            while not self._stopping.is_set() and not query.awaitTermination(_POLL):
                if not once and self._is_due():
                    self._judge()
        finally:
            if query.isActive:
                query.stop()

    def _start(self, once: bool) -> StreamingQuery:
        frame = stream_kind(self._spark, self._folders, ALL, max_records=self._settings.max_records)
        writer = frame.writeStream.foreachBatch(self._take).option(
            "checkpointLocation", str(self._out / CHECKPOINT)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        every = f"{max(1, round(self._settings.every * 1000))} milliseconds"
        return writer.trigger(processingTime=every).start()

    # Batches --------------------------------------------------------------------------------

    def _check_checkpoint(self) -> None:
        manifest = self._versions.read_manifest()
        found = read_query_id(self._out / CHECKPOINT)
        if manifest.query and found != manifest.query:
            raise VersionError(
                f"{self._out / CHECKPOINT} is not the one that the tables were made with: put it"
                " back, or name a new DIR"
            )
        if not manifest.query and any((self._out / CHECKPOINT / "commits").glob("[0-9]*")):
            raise VersionError(
                f"{self._out} has a checkpoint, but not the tables made with it: put them back, or"
                " name a new DIR"
            )

    def _take(self, frame: DataFrame, number: int) -> None:
        with self._lock:
            began = time.monotonic()
            if self._apply(frame, number):
                self._is_stale = True
                line = describe_line(self._save_summary())
                self._tell(f"{line}; {time.monotonic() - began:.1f} s")

    def _apply(self, frame: DataFrame, number: int) -> bool:
        """Add a batch to the tables; return False if it is there already."""
        manifest = self._versions.read_manifest()
        if number <= manifest.batch:
            return False
        if number > manifest.batch + 1:
            raise VersionError(f"batch {number} follows {manifest.batch}: tables are missing some")
        _tune(frame.sparkSession, sum(manifest.counts.values()))
        before = self._versions.current
        with self._versions.build() as building:
            manifest, stem = building.manifest, f"b{number:08d}"
            written = write_records(frame, building.make("records"), stem)
            batch = Batch(frame.sparkSession, building, stem, written)
            for kind, new in written.items():
                manifest.counts[kind] = manifest.counts.get(kind, 0) + new.rows
            changes = self._matcher.update(batch)
            update_decisions(batch, before, changes)
            update_offers(batch, self._matcher.meanings, is_renamed=changes.is_renamed)
            join_small(tables.list_folders(building.folder), f"{stem}j")
            manifest.batch = number
            manifest.query = read_query_id(self._out / CHECKPOINT)
        return True

    # Outcomes -------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        is_wanted = self._is_stale and self._settings.judging > 0
        return is_wanted and time.monotonic() >= self._judge_at

    def _judge(self) -> None:
        began = time.monotonic()
        with self._lock:
            self._is_stale = False
            if self._versions.read_manifest().batch < 0:
                return
            settings = self._settings
            _tune(self._spark, sum(self._versions.read_manifest().counts.values()))
            has_plan = began >= self._plan_at
            with self._versions.build() as building:
                self.judged = self._judge_all(building, has_plan)
            version = self._versions.current
        if self._loop is not None:
            self._loop.publish(self._spark, version, self.judged)
        took = time.monotonic() - began
        now = time.monotonic()
        self._judge_at = now + took * (1 - settings.judging) / settings.judging
        if has_plan:
            self._plan_at = now + settings.plan_every
        with self._lock:
            line = describe_line(self._save_summary())
        self._tell(f"{line}; outcomes took {took:.1f} s")

    @contextmanager
    def _open_study(self, building: Building) -> Iterator[Study]:
        """Yield a study of a version that uses its matches and decisions."""
        spark, settings = self._spark, self._settings
        logs = Logs(partial(building.records.read, spark))
        logs.clocks = matching.read_clocks(building.manifest)
        study = Study(logs, late=settings.late, strategies=settings.strategies)
        windows = matching.load_windows(building.folder)
        if windows is not None:
            study.subscriptions = spark.createDataFrame(windows)
        matches = parse_ids(matching.read_matches(spark, building))
        study.matches = matches.select(*MATCHES.names)
        decided = tables.list_files(building.make("tables", ranking.TABLE), "*.parquet")
        study.ideal = parse_ids(tables.read_files(spark, decided, ranking.PUBLIC))
        study.offers = list_live(tables.read_services(spark, building))
        try:
            yield study
        finally:
            spark.catalog.clearCache()

    def _judge_all(self, building: Building, has_plan: bool) -> Judged:
        """Replace the outcome tables of a version; without a plan keep the recommendation."""
        folder = building.make("tables")
        judged = Judged(best=self.judged.best, advice=self.judged.advice)
        with self._open_study(building) as study:
            judged.used = find_strategy(study.logs)
            listed = study.list_tables()
            made = {name: listed[name][1] for name in (*LIVE, *(_COMPARED if has_plan else ()))}
            made[QUARANTINE] = lambda: building.records.read(self._spark, QUARANTINE)
            is_small = sum(building.manifest.counts.values()) < _LITTLE
            judged.tables = save_tables(made, folder, is_small=is_small)
            judged.end, judged.step = study.logs.end, study.step
            span = study.logs.end - study.logs.begin
        if has_plan:
            head = judged.tables["headline"].iloc[0]
            evidence = Evidence(judged.used, int(head["expected"]), int(head["delivered"]), span)
            whole, blocks = (judged.tables[name] for name in _COMPARED)
            judged.best, judged.advice, table = advise(whole, blocks, evidence)
            judged.tables[_COMPARED[0]] = save_small(table, folder, _COMPARED[0])
        building.manifest.judged = building.manifest.batch
        return judged

    def _save_summary(self) -> dict[str, Any]:
        loop = {} if self._loop is None else self._loop.describe()
        summary = summarise(self._versions.read_manifest(), self.judged, loop)
        folders = [str(folder) for folder in self._folders]
        page = build_page(summary, self.judged, folders, round(self._settings.every))
        save_summary(self._out, summary, page)
        return summary


def _tune(spark: SparkSession, records: int) -> None:
    """Turn adaptive execution off for small logs: planning again between stages costs more."""
    tune_queries(spark, records)
    spark.conf.set("spark.sql.adaptive.enabled", str(records >= _LITTLE).lower())


def read_query_id(checkpoint: Path) -> str:
    """Return the query id of a checkpoint; "" if there is none."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError) as error:
        raise VersionError(f"{checkpoint / 'metadata'} cannot be read: {error}") from None


def _find_reason(error: StreamingQueryException) -> str:
    """Return the line of a stream's failure that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if "Error:" in line and not line.startswith(("at ", "File "))]
    return ours[-1] if ours else lines[0]
