"""The runs behind `papers.evaluations.atopss`: one function for each figure and table of section 5.

They load real engines and count or time what those answer. Times are processor time of the one
thread that works, the best of several repeats of each publication, and of those the median: what a
shared machine disturbs least.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.common import median
from papers import (
    FLOAT,
    Aggregation,
    Association,
    ATopss,
    Interest,
    Order,
    Trapezoid,
)
from papers.encodings import encode
from papers.evaluations.atopss_workload import (
    PUBLICATION_TYPES,
    SUBSCRIPTION_TYPES,
    Workload,
    draw_thresholds,
    draw_workload,
    make_interests,
    mix_crisp,
    shape_publication,
)

ALPHAS = (0.0, 0.5, 1.0)
PUBLICATIONS = 10
REPEATS = 15
VARIANTS = {
    "regular, float, list": (Order.REGULAR, Association.LIST, FLOAT),
    "improved, float, list": (Order.SORTED, Association.LIST, FLOAT),
    "regular, 8 bits, list": (Order.REGULAR, Association.LIST, 8),
    "regular, 4 bits, list": (Order.REGULAR, Association.LIST, 4),
    "regular, float, matrix": (Order.REGULAR, Association.MATRIX, FLOAT),
}


class Cost(NamedTuple):
    """What one variant costs with one number of subscriptions."""

    load_s: float
    match_us: float
    predicates_us: float
    degree_bytes: int
    association_bytes: int


def load(engine: ATopss, interests: Iterable[Interest]) -> float:
    """Add all interests; return the seconds that it took."""
    start = time.thread_time()
    for id, interest in enumerate(interests):
        engine.add(id, interest)
    return time.thread_time() - start


def time_variants(size: int, seed: int, loads: int) -> dict[str, Cost]:
    """Time loading (best of several) and matching of every variant on one workload (Fig. 12)."""
    workload = draw_workload(np.random.default_rng(seed), size, PUBLICATIONS)
    interests = make_interests(workload)
    costs = {}
    for name, (order, association, bits) in VARIANTS.items():
        load(ATopss(order, association, bits), interests[:1000])  # compiles before the clock runs
        seconds = []
        for _ in range(loads):
            engine = ATopss(order, association, bits)
            seconds.append(load(engine, interests))
        whole, first = time_publications(engine, workload.publications)
        memory = engine.count_bytes()
        costs[name] = Cost(min(seconds), whole, first, memory["degrees"], memory["association"])
    return costs


def time_publications(
    engine: ATopss, publications: Sequence[dict[int, Trapezoid]], repeats: int = REPEATS
) -> tuple[float, float]:
    """Return the microseconds of a publication: both stages, and the predicates alone."""
    both, first = [], []
    for publication in publications:
        whole_times, first_times = [], []
        for _ in range(repeats):
            start = time.thread_time()
            satisfied = engine.match_predicates(publication)
            middle = time.thread_time()
            engine.match_subscriptions(satisfied)
            whole_times.append(time.thread_time() - start)
            first_times.append(middle - start)
        both.append(min(whole_times))
        first.append(min(first_times))
    return 1e6 * median(both), 1e6 * median(first)


class Stage(NamedTuple):
    """The first stage with many predicates: regular and improved."""

    regular_us: float
    improved_us: float
    rated: float  # the share of predicates that the improved one rates: the paper's coefficient
    regular_load_s: float
    improved_load_s: float


def time_predicate_stage(concepts: int, width: float, seed: int) -> Stage:
    """Time the first stage alone, regular and improved, with many predicates an attribute."""
    rng = np.random.default_rng(seed)
    workload = draw_workload(rng, 42 * concepts, PUBLICATIONS, (concepts, concepts), width)
    interests = make_interests(workload)
    times, loads = {}, {}
    for order in Order:
        loads[order] = min(load(ATopss(order), interests) for _ in range(2))
        engine = ATopss(order)
        load(engine, interests)
        times[order] = time_publications(engine, workload.publications, 5 * REPEATS)[1]
    sets = {(a, points) for parts in workload.subscriptions for a, points, _ in parts}
    rated = looked = 0
    for publication in workload.publications:
        for a, points in sets:
            if a in publication:
                n1, _, _, n4 = publication[a]
                looked += 1
                rated += points[3] >= n1 and points[0] <= n4
    regular, improved = Order.REGULAR, Order.SORTED
    return Stage(times[regular], times[improved], rated / looked, loads[regular], loads[improved])


def count_matches(size: int, seed: int) -> dict[str, list[int]]:
    """Count matches for every type and alpha (Table 2); alpha limits both measures."""
    workload = draw_workload(np.random.default_rng(seed), size, PUBLICATIONS)
    counts = {}
    for kind in SUBSCRIPTION_TYPES:
        engine = ATopss()
        load(engine, make_interests(workload, kind))
        counts[f"subscriptions {kind}"] = count_passing(engine, workload.publications)
        if kind == "approximate":
            for shape in PUBLICATION_TYPES:
                shaped = [shape_publication(p, shape) for p in workload.publications]
                counts[f"publications {shape}"] = count_passing(engine, shaped)
    return counts


def count_passing(engine: ATopss, publications: Iterable[dict[int, Trapezoid]]) -> list[int]:
    """Return how many answers reach each alpha in both measures."""
    totals = [0] * len(ALPHAS)
    for publication in publications:
        _, possibles, certains = engine.match_subscriptions(engine.match_predicates(publication))
        worst = np.minimum(possibles, certains)
        for at, alpha in enumerate(ALPHAS):
            totals[at] += int((worst >= alpha).sum())
    return totals


def measure_precision(
    size: int, seed: int, default: float, mixed: bool, bits: Sequence[int]
) -> dict[int, float]:
    """Return the precision of encoded engines: floats' answers over theirs (Fig. 13)."""
    rng = np.random.default_rng(seed)
    workload = draw_workload(rng, size, PUBLICATIONS)
    if mixed:
        workload = mix_crisp(workload, rng)
    interests = make_interests(workload, thresholds=draw_thresholds(rng, size, default))
    returned = {}
    for encoding in (FLOAT, *bits):
        engine = ATopss(bits=encoding)
        load(engine, interests)
        returned[encoding] = count_answers(engine, workload)
    return {encoding: returned[FLOAT] / returned[encoding] for encoding in bits}


def count_answers(engine: ATopss, workload: Workload) -> int:
    """Return how many subscriptions are answered over all publications."""
    total = 0
    for publication in workload.publications:
        satisfied = engine.match_predicates(publication)
        total += len(engine.match_subscriptions(satisfied)[0])
    return total


def estimate_precision(
    size: int, seeds: Iterable[int], default: float, mixed: bool, bits: Sequence[int]
) -> dict[int, float]:
    """Return what `measure_precision` would, from the floats' degrees under min.

    A min of cells is the cell of the min, so one load per workload serves all encodings.
    """
    exact = 0
    loose = dict.fromkeys(bits, 0)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        workload = draw_workload(rng, size, PUBLICATIONS)
        if mixed:
            workload = mix_crisp(workload, rng)
        thresholds = draw_thresholds(rng, size, default)
        engine = ATopss()
        load(engine, make_interests(workload))
        for publication in workload.publications:
            for id, possible, _ in engine.match_degrees(publication):
                exact += possible >= thresholds[id]
                for b in bits:
                    loose[b] += encode(possible, b) >= encode(float(thresholds[id]), b)
    return {b: exact / loose[b] for b in bits}


def measure_aggregations(size: int, seed: int, default: float) -> dict[str, float]:
    """Return the F-measure of one aggregation for all users, who want one of four (Fig. 14)."""
    rng = np.random.default_rng(seed)
    workload = draw_workload(rng, size, PUBLICATIONS)
    thresholds = draw_thresholds(rng, size, default)
    interests = make_interests(workload, thresholds=thresholds)
    wanted = rng.integers(0, len(Aggregation), size)
    answers: dict[Aggregation, list[set[int]]] = {}
    for aggregation in Aggregation:
        engine = ATopss(aggregation=aggregation)
        load(engine, interests)
        answers[aggregation] = []
        for publication in workload.publications:
            satisfied = engine.match_predicates(publication)
            answers[aggregation].append(set(engine.match_subscriptions(satisfied)[0].tolist()))
    correct = [
        {id for kind in Aggregation for id in answers[kind][at] if wanted[id] == kind}
        for at in range(len(workload.publications))
    ]
    scores = {}
    for aggregation, found in answers.items():
        good = sum(len(f & c) for f, c in zip(found, correct, strict=True))
        precision = good / sum(len(f) for f in found)
        recall = good / sum(len(c) for c in correct)
        scores[aggregation.name.lower()] = 2 * precision * recall / (precision + recall)
    return scores
