"""The runs behind `papers.evaluations.svds`: data as in the paper's section 5, and what each costs.

Only this file draws services and requests, and only this file builds finders for the benchmark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from denwatch.node.services import (
    BasicSvdFinder,
    ExactFinder,
    ExhaustiveFinder,
    FeasibilityRule,
    Finder,
    RandomFinder,
    Result,
    ServiceRequest,
    SumFinder,
    WeightedSvdFinder,
)

from benchmarks.common import median, say, time_calls

Matrix = npt.NDArray[np.int8]

DENSITY = 0.2
FEASIBLE = 0.05
GROUPS = 8
CONFIRMED = 20  # requests of the race that the exhaustive search answers too
KINDS = ("binary", "ternary", "grouped")
METHODS = ("bSVDS", "rwSVDS", "SUMS", "RAND", "exact")


@dataclass
class Cell:
    """The runs of one kind of data with one n and m: a list of numbers for each method."""

    kind: str
    n: int
    m: int
    probes: dict[str, list[int]] = field(default_factory=dict)
    checks: dict[str, list[int]] = field(default_factory=dict)
    quality: dict[str, list[float]] = field(default_factory=dict)
    optimum: list[float] = field(default_factory=list)
    feasible: list[float] = field(default_factory=list)

    def average(self, what: str, method: str) -> float:
        """Return the mean of `probes`, `checks` or `quality` of a method."""
        return float(np.mean(getattr(self, what)[method]))

    def average_ratio_to_best(self, method: str) -> float:
        """Return the mean sub-optimality ratio; NaN if no run has one.

        A run has none if the optimum is 0 and the method missed it.
        """
        ratios = [
            1.0 if found == best else found / best
            for found, best in zip(self.quality[method], self.optimum, strict=True)
            if best > 0 or found == best
        ]
        return float(np.mean(ratios)) if ratios else math.nan


def make_finders(m: int, rng: np.random.Generator) -> dict[str, Finder]:
    """Return one of each finder."""
    return {
        "bSVDS": BasicSvdFinder(m),
        "rwSVDS": WeightedSvdFinder(m, rng),
        "SUMS": SumFinder(m),
        "RAND": RandomFinder(m),
        "exact": ExactFinder(m),
        "exhaustive": ExhaustiveFinder(m),
    }


def draw_services(kind: str, n: int, m: int, rng: np.random.Generator) -> Matrix:
    """Draw services: binary with 20 % ones, ternary uniform, or binary in groups of a kind.

    The paper's data are independent; `grouped` ones, where each service is one of eight types
    that make some attributes likely (60 %) and others rare (5 %), have something to find.
    """
    if kind == "ternary":
        return rng.integers(-1, 2, (n, m), dtype=np.int8)
    if kind == "binary":
        return (rng.random((n, m)) < DENSITY).astype(np.int8)
    typical = rng.random((GROUPS, m)) < (DENSITY - 0.05) / (0.6 - 0.05)
    chances = np.where(typical, 0.6, 0.05)[rng.integers(0, GROUPS, n)]
    return (rng.random((n, m)) < chances).astype(np.int8)


def draw_request(
    services: Matrix, kind: str, rng: np.random.Generator
) -> tuple[ServiceRequest, float]:
    """Draw a request, and return it with the share of services that are feasible for it.

    A binary request is, of 30 drawn with two or three ones, the one whose feasible share is nearest
    to 5 %. Under the ordinary nearest neighbour of ternary data every service is feasible.
    """
    m = services.shape[1]
    if kind == "ternary":
        wanted: list[int] = np.asarray(rng.integers(-1, 2, m)).tolist()
        return ServiceRequest(tuple(wanted), FeasibilityRule.NEAREST), 1.0
    best, best_share = np.array([], np.int64), math.inf
    for _ in range(30):
        ones = rng.choice(m, int(rng.integers(2, 4)), replace=False)
        share = float((services[:, ones] == 1).all(axis=1).mean())
        if share > 0 and abs(share - FEASIBLE) < abs(best_share - FEASIBLE):
            best, best_share = ones, share
    asked = set(best.tolist())
    return ServiceRequest(tuple(int(at in asked) for at in range(m))), best_share


def run_cell(kind: str, n: int, m: int, runs: int, seed: int) -> Cell:
    """Draw data and a request `runs` times, and ask every finder."""
    cell = Cell(kind, n, m)
    for run in range(runs):
        rng = np.random.default_rng([seed, KINDS.index(kind), n, m, run])
        services = draw_services(kind, n, m, rng)
        request, share = draw_request(services, kind, rng)
        cell.feasible.append(share)
        for method, finder in make_finders(m, rng).items():
            finder.add_many(range(n), services)
            result = finder.find(request, rng)
            if method == "exhaustive":
                cell.optimum.append(result.quality)
                continue
            cell.probes.setdefault(method, []).append(result.probes)
            cell.checks.setdefault(method, []).append(result.checks)
            cell.quality.setdefault(method, []).append(result.quality)
    return cell


def sweep(
    kind: str, sizes: Iterable[int], widths: Sequence[int], runs: int, seed: int
) -> list[Cell]:
    """Return a cell for each n and m."""
    cells = []
    for n in sizes:
        for m in widths:
            cells.append(run_cell(kind, n, m, runs, seed))
        say(f"{kind}: n = {n}, m = {list(widths)} done")
    return cells


@dataclass
class Race:
    """One method at large n: median time, how often it answers, and how well."""

    method: str
    build_s: float
    median_us: float
    answered: float
    optimal: float
    ratio: float
    probes: float


def race_methods(kind: str, n: int, m: int, queries: int, seed: int) -> list[Race]:
    """Time every finder and hnswlib on the same data and requests."""
    rng = np.random.default_rng([seed, KINDS.index(kind), n, m])
    services = draw_services(kind, n, m, rng)
    requests = [draw_request(services[:5000], kind, rng)[0] for _ in range(queries)]
    finders = make_finders(m, rng)
    built = {}
    for method, finder in finders.items():
        built[method] = time_calls(lambda f: f.add_many(range(n), services), [finder])[0]
        finder.find(requests[0], rng)  # compiles
    results: dict[str, list[Result]] = {method: [] for method in finders}
    seconds: dict[str, list[float]] = {method: [] for method in finders}
    for at, request in enumerate(requests):
        # All methods take turns, so that a busy moment of the machine hits all alike.
        for method, finder in finders.items():
            if method != "exhaustive" or at < CONFIRMED:
                start = time.perf_counter()
                results[method].append(finder.find(request, rng))
                seconds[method].append(time.perf_counter() - start)
    best = [result.quality for result in results["exact"]]
    races = []
    for method in finders:
        found = [result.quality for result in results[method]]
        probes = float(np.mean([result.probes for result in results[method]]))
        races.append(_judge(method, built[method], seconds[method], found, best, probes))
    say(f"{kind}: finders at n = {n} done")
    return races + _race_hnsw(kind, services, requests, best)


def _judge(
    method: str,
    built: float,
    seconds: list[float],
    found: list[float],
    best: list[float],
    probes: float,
) -> Race:
    pairs = list(zip(found, best, strict=False))
    ratios = [one / two for one, two in pairs if two > 0 and math.isfinite(one)]
    return Race(
        method,
        built,
        median(seconds) * 1e6,
        float(np.mean([math.isfinite(one) for one, _ in pairs])),
        float(np.mean([one == two for one, two in pairs])),
        float(np.mean(ratios)) if ratios else math.nan,
        probes,
    )


def _race_hnsw(
    kind: str, services: Matrix, requests: list[ServiceRequest], best: list[float]
) -> list[Race]:
    """Time hnswlib on one thread: ordinary neighbours, then those of them that are feasible."""
    import hnswlib  # type: ignore[import-untyped]

    index: Any = hnswlib.Index(space="l2", dim=services.shape[1])
    index.init_index(max_elements=len(services), ef_construction=200, M=16, random_seed=1)
    index.set_num_threads(1)
    built = time_calls(index.add_items, [services.astype(np.float32)])[0]
    say(f"{kind}: hnswlib built")
    races = []
    for wanted, effort in ((1, 50), (1, 400)) if kind == "ternary" else ((100, 100), (1000, 1000)):
        index.set_ef(effort)
        found: list[float] = []

        def ask(request: ServiceRequest, k: int = wanted, found: list[float] = found) -> None:
            wanted = np.array(request.values, np.float32)
            labels, squares = index.knn_query(wanted, k=k)
            if request.rule is FeasibilityRule.POSITIVE:
                feasible = (services[labels[0]] >= wanted).all(axis=1)
                squares = squares[:, feasible]
            found.append(math.sqrt(squares[0, 0]) if squares.size else math.inf)

        seconds = time_calls(ask, requests)
        name = f"hnswlib, k = {wanted}, ef = {effort}"
        races.append(_judge(name, built, seconds, found, best, math.nan))
    if kind != "ternary":
        races.append(_race_filtered_hnsw(index, built, services, requests, best))
    return races


def _race_filtered_hnsw(
    index: Any, built: float, services: Matrix, requests: list[ServiceRequest], best: list[float]
) -> Race:
    """Time hnswlib with its own filter: a function that it calls for each item it meets."""
    bits = [sum(1 << int(at) for at in np.flatnonzero(row)) for row in services]
    index.set_ef(100)
    found: list[float] = []

    def ask(request: ServiceRequest) -> None:
        wanted = sum(1 << at for at, value in enumerate(request.values) if value)
        keep: Callable[[int], bool] = lambda label: bits[label] & wanted == wanted  # noqa: E731
        try:
            squares = index.knn_query(np.array(request.values, np.float32), k=1, filter=keep)[1]
        except RuntimeError:  # hnswlib's way to say that it met fewer than k
            found.append(math.inf)
        else:
            found.append(math.sqrt(squares[0, 0]))

    asked = requests[:200]
    seconds = time_calls(ask, asked)
    return _judge("hnswlib, filter, ef = 100", built, seconds, found, best, math.nan)
