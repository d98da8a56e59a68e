"""Global matching on Spark: our job, the best SQL forms, and the matcher alone, on the same tables.

    python -m benchmarks.spark [--json] [--quick] [--save]

Everybody reads the same Parquet files, keeps to two cores, and ends with the same three numbers:
how many matches, the sum of their degrees, and a sum over pairs of ids. If they differ, that is an
error. Start-up stands apart for all: sessions, workers, compilation, and what is made of the
subscriptions (our index, the tables in which SQL looks them up). Whoever runs on Java first works
for a minute that does not count: what is called a few times a query is compiled only after hundreds
of queries, and the compiler takes a core's time meanwhile. Contenders take turns, round after
round, and a ratio is the median of those of the rounds, so that whatever else the machine does
falls on all of them. In its turn a contender does the work twice, and the second time counts: Spark
ends Python processes that wait for a minute while others have their turn. SQL is first tried in
several forms with a tenth of the notifications; the two best of each engine do all the work, and
the better one counts. One that takes much longer than the other does it once.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from denwatch.spark.session import build_session
from pyspark.sql import SparkSession

from benchmarks.common import run, say
from benchmarks.spark_contenders import (
    CORES,
    Check,
    Contender,
    prepare_alone,
    prepare_duckdb,
    prepare_index,
    prepare_job,
    prepare_rows,
    prepare_spark_sql,
    prepare_table,
    run_limited,
)
from benchmarks.spark_log import measure_log
from benchmarks.spark_report import save_report
from benchmarks.spark_sql import DUCKDB_FORMS, LEADERS, SPARK_FORMS, Form
from benchmarks.spark_work import FEW, MANY, Shape, Work, make_work

_OPTIONS = {"spark.driver.memory": "6g"}
WARM = 60  # seconds of work before the time counts, on Java: a job's time halves in the last forty
_HOPELESS = 1.5  # times what the other form took in the first round
_PATIENCE = 30.0  # seconds for a form of SQL on a tenth of the notifications


@dataclass
class Timing:
    """What one contender took in each round, in seconds, and what it found."""

    rounds: list[float]
    check: Check

    @property
    def seconds(self) -> float:
        """The median of its rounds."""
        return statistics.median(self.rounds)


class Entry(NamedTuple):
    """A contender, how many rounds it is to run, and for how many seconds before them."""

    call: Contender
    rounds: int
    warm: float = 0.0


@dataclass
class Trial:
    """A form of SQL on a tenth of the notifications."""

    engine: str
    form: Form
    seconds: float | None  # None: it was stopped
    pairs: int


@dataclass
class Contest:
    """One workload, and all who did it."""

    work: Work
    build: float = 0.0
    timings: dict[str, Timing] = field(default_factory=dict)

    def over(self, name: str) -> float:
        """Return how many times our job's time a contender took: the median over rounds."""
        pairs = zip(self.timings[name].rounds, self.timings["job"].rounds, strict=False)
        return statistics.median(other / ours for other, ours in pairs)

    def over_best(self, engine: str) -> float:
        """Return how many times our job's time the better form of an engine took."""
        return min(self.over(name) for name in self.timings if name.startswith(engine))


def take_turns(work: Work, entries: Mapping[str, Entry]) -> dict[str, Timing]:
    """Let contenders do the work in turns."""
    for name, entry in entries.items():
        if entry.warm:
            say(f"  {name}: {entry.warm:.0f} s to get warm")
        start = time.perf_counter()
        while time.perf_counter() - start < entry.warm:
            entry.call(work.take_first())
    timings: dict[str, Timing] = {}
    for turn in range(max(entry.rounds for entry in entries.values())):
        for name, entry in entries.items():
            is_out = turn > 0 and is_hopeless(name, timings[name].rounds[0], timings)
            if is_out or turn >= entry.rounds:
                continue
            check, seconds = clock(entry.call, work)
            if turn or not is_hopeless(name, seconds, timings):
                check, seconds = clock(entry.call, work)
            say(f"  {name}: {seconds:.2f} s, {check[0]:,} matches")
            timings.setdefault(name, Timing([], check)).rounds.append(seconds)
            if check != timings["job"].check:
                raise AssertionError(f"{name} found something else: {check}, {timings['job']}")
    return timings


def clock(call: Contender, work: Work) -> tuple[Check, float]:
    """Return what a contender found, and how many seconds it took."""
    start = time.perf_counter()
    return call(work), time.perf_counter() - start


def is_hopeless(name: str, seconds: float, timings: Mapping[str, Timing]) -> bool:
    """Return whether another form of the same engine was much faster in the first round."""
    engine = name.partition(":")[0]
    rivals = [timings[key] for key in timings if key != name and key.startswith(engine)]
    return any(seconds > _HOPELESS * rival.rounds[0] for rival in rivals)


def try_forms(spark: SparkSession, work: Work, wanted: Check, is_quick: bool) -> list[Trial]:
    """Time each form of SQL once, after an eighth of the work; in a quick run only the leaders."""
    trials = []
    many = LEADERS if is_quick else None
    forms = [("spark_sql", form) for form in SPARK_FORMS[:many]]
    forms += [("duckdb", form) for form in DUCKDB_FORMS[:many]]
    for engine, form in forms:
        is_spark = engine == "spark_sql"
        call = prepare_spark_sql(spark, work, form) if is_spark else prepare_duckdb(work, form)
        seconds = None
        if run_limited(spark, partial(call, work.take_first()), _PATIENCE / 4) is not None:
            start = time.perf_counter()
            check = run_limited(spark, partial(call, work), _PATIENCE)
            if check is not None:
                seconds = time.perf_counter() - start
                if check != wanted:
                    raise AssertionError(f"{engine}, {form.name}: {check} is not {wanted}")
        say(f"  {engine}, {form.name}: {'stopped' if seconds is None else f'{seconds:.2f} s'}")
        trials.append(Trial(engine, form, seconds, work.pairs))
    return trials


def find_best(trials: list[Trial], engine: str) -> list[Form]:
    """Return the two fastest forms of an engine."""
    tried = [trial for trial in trials if trial.engine == engine]
    tried.sort(key=lambda trial: math.inf if trial.seconds is None else trial.seconds)
    return [trial.form for trial in tried[:2]]


class Bench:
    """A session, a folder of workloads, and the sizes of this run."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int, is_quick: bool) -> None:
        self.spark = spark
        self.folder = folder
        self.rng = np.random.default_rng(seed)
        self.size = (20_000, 40_000) if is_quick else (100_000, 1_000_000)
        self.is_quick = is_quick
        self._made = 0

    def make(self, shape: Shape, subscriptions: int, notes: int, has_masks: bool = False) -> Work:
        """Draw a workload."""
        self._made += 1
        say(f"{shape.name}: {subscriptions:,} subscriptions, {notes:,} notifications")
        folder = self.folder / str(self._made)
        return make_work(shape, subscriptions, notes, folder, self.rng, has_masks)

    def try_sql(self, shape: Shape) -> list[Trial]:
        """Try all forms of SQL with a tenth of the notifications."""
        work = self.make(shape, self.size[0], self.size[1] // 10, has_masks=True)
        wanted = prepare_alone(prepare_index(self.spark, work))(work)
        return try_forms(self.spark, work, wanted, self.is_quick)

    def compare(self, shape: Shape, trials: list[Trial]) -> Contest:
        """Let everybody do a workload of full size."""
        best = {engine: find_best(trials, engine) for engine in ("duckdb", "spark_sql")}
        has_masks = any(form.needs_masks for forms in best.values() for form in forms)
        contest = Contest(self.make(shape, *self.size, has_masks))
        start = time.perf_counter()
        index = prepare_index(self.spark, contest.work)
        contest.build = time.perf_counter() - start
        work, spark = contest.work, self.spark
        warm = 0.0 if self.is_quick else WARM
        entries = {
            "job": Entry(prepare_job(spark, index), 11, warm),
            "alone": Entry(prepare_alone(index), 11),
            "rows": Entry(prepare_rows(spark, index), 3, warm),
            "table": Entry(prepare_table(spark, index, self.folder), 1, warm),
        }
        for engine, forms in best.items():
            for form in forms:
                is_spark = engine == "spark_sql"
                sql = prepare_spark_sql(spark, work, form) if is_spark else None
                call = sql or prepare_duckdb(work, form)
                entries[f"{engine}: {form.name}"] = Entry(call, 5, warm if is_spark else 0.0)
        node = prepare_index(spark, work, is_filed=False)
        entries["node_index"] = Entry(prepare_alone(node), 1)
        if self.is_quick:
            entries = {name: entry._replace(rounds=1) for name, entry in entries.items()}
        contest.timings = take_turns(work, entries)
        return contest

    def time_tenth(self, subscriptions: int, notes: int) -> Contest:
        """Let our job and the matcher alone do a smaller workload."""
        contest = Contest(self.make(MANY, subscriptions, notes))
        index = prepare_index(self.spark, contest.work)
        job, alone = prepare_job(self.spark, index), prepare_alone(index)
        contest.timings = take_turns(contest.work, {"job": Entry(job, 3), "alone": Entry(alone, 3)})
        return contest


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything and return the headline figures."""
    start = time.perf_counter()
    spark = build_session(f"local[{CORES}]", name="benchmark", options=_OPTIONS)
    started = time.perf_counter() - start
    say(f"Spark started in {started:.1f} s")
    with tempfile.TemporaryDirectory(prefix="denwatch-spark-") as name:
        bench = Bench(spark, Path(name), options.seed, options.quick)
        trials = {MANY: bench.try_sql(MANY)}
        contests = [bench.compare(MANY, trials[MANY])]
        if not options.quick:
            trials[FEW] = bench.try_sql(FEW)
        contests.append(bench.compare(FEW, trials.get(FEW, trials[MANY])))
        subscriptions, notes = bench.size
        tenths = (subscriptions, notes // 10), (subscriptions // 10, notes)
        contests += [bench.time_tenth(*tenth) for tenth in tenths]
        log = measure_log(spark, Path(name) / "log", 40_000 if options.quick else 400_000)
        spark.stop()
        one = measure_one_core(contests[0].work, 0.0 if options.quick else WARM)
    result = summarise(contests, log, one, started)
    if options.save:
        save_report(contests, trials, result)
    return result


def measure_one_core(work: Work, warm: float) -> float:
    """Return the seconds of our job on one core."""
    spark = build_session("local[1]", name="benchmark", options=_OPTIONS)
    job = prepare_job(spark, prepare_index(spark, work))
    timing = take_turns(work, {"job": Entry(job, 3, warm)})["job"]
    spark.stop()
    return timing.seconds


def summarise(contests: list[Contest], log: float, one: float, started: float) -> dict[str, Any]:
    """Return one flat dictionary: the headline is many small masks, the harder case."""
    many, few, fewer_notes, fewer_subscriptions = contests
    job = many.timings["job"].seconds
    return {
        "over_spark_sql": round(many.over_best("spark_sql"), 2),
        "over_duckdb": round(many.over_best("duckdb"), 2),
        "over_matcher_alone": round(1 / many.over("alone"), 3),
        "pairs_per_s": round(many.work.pairs / job),
        "log_records_per_s": round(log),
        "matches": many.timings["job"].check[0],
        "matches_per_s": round(many.timings["job"].check[0] / job),
        "over_node_index_alone": round(1 / many.over("node_index"), 3),
        "medians_over_matcher_alone": round(job / many.timings["alone"].seconds, 3),
        "rows_over_matcher_alone": round(many.over("rows") / many.over("alone"), 3),
        "table_over_matcher_alone": round(many.over("table") / many.over("alone"), 3),
        "few_over_spark_sql": round(few.over_best("spark_sql"), 2),
        "few_over_duckdb": round(few.over_best("duckdb"), 2),
        "few_over_matcher_alone": round(1 / few.over("alone"), 3),
        "few_over_node_index_alone": round(1 / few.over("node_index"), 3),
        "tenth_of_notes": round(job / fewer_notes.timings["job"].seconds, 2),
        "tenth_of_subscriptions": round(job / fewer_subscriptions.timings["job"].seconds, 2),
        "two_cores_over_one": round(one / job, 2),
        "index_seconds": round(many.build, 2),
        "session_seconds": round(started, 1),
    }


def main() -> None:
    """Run from the command line."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
