"""Runs of the Subsumption paper's experiment: its subscriptions, one table, and what came of it.

A run whose memory counts is played in a process of its own, because a process's peak never goes
down. The second half is the plan: what the benchmark runs, and where its results are found again.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from denwatch.node.covering import (
    Approximate,
    BoxedSubscription,
    Covering,
    Domains,
    Exact,
    Metric,
    PairWise,
    Policy,
)
from denwatch.node.matching import compiling

from benchmarks.common import median

TOP = 1000  # the domain of each dimension is [0, TOP]
LIMIT_MIB = 4096


@dataclass(frozen=True)
class Workload:
    """How the lower ends are spread: by Zipf, says the paper, but not which values are popular.

    Popularity falls with rank to the power of `exponent`; `order` says how values are ranked:
    "low" from 0 up, "high" from TOP down, "centre" from the middle outwards, "scattered" at random.
    """

    order: str = "centre"
    exponent: float = 0.5

    def draw(self, rng: np.random.Generator, count: int, dimensions: int) -> npt.NDArray[np.int64]:
        """Return `count` boxes, shaped (count, dimensions, 2)."""
        ranks = np.arange(TOP + 1)
        weights = (ranks + 1.0) ** -self.exponent
        drawn = rng.choice(ranks, size=(count, dimensions), p=weights / weights.sum())
        if self.order == "low":
            low = drawn
        elif self.order == "high":
            low = TOP - drawn
        elif self.order == "centre":
            low = TOP // 2 + (drawn + 1) // 2 * np.where(drawn % 2, 1, -1)
        elif self.order == "scattered":
            places = np.stack([rng.permutation(TOP + 1) for _ in range(dimensions)], axis=1)
            low = np.take_along_axis(places, drawn, axis=0)
        else:
            raise ValueError(f"unknown order of popularity {self.order!r}")
        high = low + rng.integers(0, TOP - low + 1)
        return np.stack((low, high), axis=2)


@dataclass(frozen=True)
class Job:
    """One run: so many subscriptions in so many dimensions under one policy."""

    dimensions: int
    policy: Policy
    count: int
    seed: int
    workload: Workload = field(default_factory=Workload)
    seconds: float = float("inf")  # of processor time, after which it gives up


@dataclass
class Trace:
    """What a run showed, every tenth of the way and at its end."""

    done: int = 0
    seconds: float = 0.0  # of processor time: a shared machine does not change it much
    peak_mib: float = 0.0
    at: list[int] = field(default_factory=list)
    passive: list[int] = field(default_factory=list)
    union: list[int] = field(default_factory=list)  # passive, though no single one covers them
    rectangles: list[int] = field(default_factory=list)

    def note(self, passive: int, union: int, rectangles: int) -> None:
        """Remember where the run stands."""
        self.at.append(self.done)
        self.passive.append(passive)
        self.union.append(union)
        self.rectangles.append(rectangles)


def draw_subscriptions(job: Job) -> list[BoxedSubscription]:
    """Return a job's subscriptions; only the seed, the dimensions and the workload decide them."""
    rng = np.random.default_rng([job.seed, job.dimensions])
    drawn = job.workload.draw(rng, job.count, job.dimensions)
    mask = (1 << job.dimensions) - 1
    return [
        BoxedSubscription(mask, ({bit: (low, high) for bit, (low, high) in enumerate(box)},))
        for box in drawn.tolist()
    ]


def fill_table(job: Job) -> tuple[Covering[int], Trace]:
    """Subscribe to everything, or until the job's time or 4 GiB are used up."""
    subscriptions = draw_subscriptions(job)
    compiling.declare_ready()  # times are of the compiled kernels
    table: Covering[int] = Covering(Domains((0, TOP)), job.policy)
    trace = Trace()
    passive = union = 0
    start = time.process_time()
    for number, subscription in enumerate(subscriptions):
        placement = table.subscribe(number, subscription)
        passive += not placement.active
        union += not placement.active and placement.by is None
        trace.done = number + 1
        trace.seconds = time.process_time() - start
        if trace.done % max(1, job.count // 10) == 0:
            trace.note(passive, union, table.count_rectangles())
        if number % 25 == 0 and (trace.seconds > job.seconds or read_peak_mib() > LIMIT_MIB):
            break
    if not trace.at or trace.at[-1] != trace.done:
        trace.note(passive, union, table.count_rectangles())
    trace.peak_mib = read_peak_mib()
    return table, trace


def play(job: Job) -> Trace:
    """Run a job here."""
    return fill_table(job)[1]


def play_all(jobs: Iterable[Job], at_once: int) -> dict[Job, Trace]:
    """Run jobs beside each other; those in 4 and more dimensions each in a new process."""
    unique = list(dict.fromkeys(jobs))
    spawn = multiprocessing.get_context("spawn")
    traces: dict[Job, Trace] = {}
    for large, tasks in ((True, 1), (False, None)):
        chosen = [job for job in unique if (job.dimensions >= 4) is large]
        with spawn.Pool(at_once, maxtasksperchild=tasks) as pool:
            traces |= zip(chosen, pool.imap(play, chosen, chunksize=1), strict=True)
    return traces


def read_peak_mib() -> float:
    """Return the most memory that this process has held, interpreter and compiler included."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent held before the exec
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass(frozen=True)
class Churn:
    """What cancelling many subscriptions cost, and what a rebuild gained afterwards."""

    active_before: int
    active_after: int
    active_rebuilt: int
    rectangles_before: int
    rectangles_after: int
    rectangles_rebuilt: int
    brought_back: int
    mean_ms: float
    rebuild_s: float


def churn(job: Job, cancelled: int) -> Churn:
    """Fill a table, cancel some active subscriptions at random, rebuild."""
    table, _ = fill_table(job)
    rng = np.random.default_rng(job.seed)
    before = len(table.active())
    rectangles = table.count_rectangles()
    back, spent = 0, 0.0
    for _ in range(cancelled):
        active = table.active()
        target = active[int(rng.integers(len(active)))]
        start = time.process_time()
        back += len(table.unsubscribe(target))
        spent += time.process_time() - start
    after, freed = len(table.active()), table.count_rectangles()
    start = time.process_time()
    table.rebuild()
    rebuild_s = time.process_time() - start
    return Churn(
        before,
        after,
        len(table.active()),
        rectangles,
        freed,
        table.count_rectangles(),
        back,
        1000 * spent / cancelled,
        rebuild_s,
    )


PAIRS = PairWise()
EXACT = Exact(pairs=False)
MERGED = Exact(pairs=False, merging=True)
PAPER = Approximate(k=50, pairs=False, handover=False)  # Fig. 8 and 9 as printed
OURS = Approximate(k=50)
K = {k: Approximate(k=k) for k in (10, 50, 100)}
METRICS = {metric: Approximate(k=50, metric=metric) for metric in Metric}
DYNAMIC = Approximate(k=50, dynamic=True)
CHURNS: dict[str, Policy] = {
    "exact": EXACT,
    "approximate, as printed": PAPER,
    "approximate, with handover": OURS,
}
WORKLOADS = [
    Workload("centre", 0.5),
    Workload("low", 0.5),
    Workload("low", 1.0),
    Workload("high", 1.0),
    Workload("scattered", 0.5),
]


@dataclass(frozen=True)
class Plan:
    """How much to run: all of it, or a taste."""

    count: int
    seeds: tuple[int, ...]
    seconds_5d: float
    cancelled: int


class Results:
    """All traces, found by what was run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.traces: dict[Job, Trace] = {}
        self.churns: dict[str, Churn] = {}

    def job(
        self, dimensions: int, policy: Policy, seed: int, workload: Workload | None = None
    ) -> Job:
        """Name a run of the plan."""
        seconds = self.plan.seconds_5d if dimensions == 5 else float("inf")
        chosen = workload or WORKLOADS[0]
        return Job(dimensions, policy, self.plan.count, seed, chosen, seconds)

    def first(self, dimensions: int, policy: Policy, workload: Workload | None = None) -> Trace:
        """Return the run with the first seed."""
        return self.traces[self.job(dimensions, policy, self.plan.seeds[0], workload)]

    def middle(self, dimensions: int, policy: Policy, what: str, tenth: int = 10) -> int:
        """Return the median over the seeds of `passive`, `union` or `rectangles` after n tenths."""
        jobs = [self.job(dimensions, policy, seed) for seed in self.plan.seeds]
        return int(median([getattr(self.traces[job], what)[tenth - 1] for job in jobs]))

    def share(self, dimensions: int, policy: Policy, whole: Policy) -> float:
        """Return how many subscriptions one policy finds passive, as a share of another."""
        return self.middle(dimensions, policy, "passive") / self.middle(
            dimensions, whole, "passive"
        )


def list_jobs(results: Results) -> list[Job]:
    """List all runs, the longest first."""
    seeds = results.plan.seeds
    jobs = [results.job(5, policy, seeds[0]) for policy in (EXACT, MERGED, OURS, PAIRS)]
    for seed in seeds:
        for dimensions in (4, 3, 2):
            policies: list[Policy] = [PAIRS, EXACT, MERGED, PAPER, OURS]
            if dimensions == 3:
                policies += [*K.values(), *METRICS.values(), DYNAMIC]
            jobs += [results.job(dimensions, policy, seed) for policy in policies]
    for workload in WORKLOADS[1:]:
        for dimensions in (4, 3, 2):
            others: dict[int, list[Policy]] = {2: [], 3: [PAPER], 4: [PAIRS]}
            needed = [EXACT, *others[dimensions]]
            jobs += [results.job(dimensions, policy, seeds[0], workload) for policy in needed]
    return jobs
