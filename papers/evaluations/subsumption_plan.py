"""What the Subsumption benchmark runs, and where its results are found again."""

from __future__ import annotations

from dataclasses import dataclass

from denwatch.node.covering import Approximate, Exact, Metric, PairWise, Policy

from benchmarks.common import median
from papers.evaluations.subsumption_runs import Churn, Job, Trace, Workload

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
