"""Workloads and runs of the A-ToPSS evaluation: a function for each figure and table of section 5.

Only this file draws random numbers for the benchmark. n_t = 42 attributes have 2 to 5 concepts,
a trapezoid of four uniform points; a subscription takes two attributes and a concept of each, a
publication four attributes with trapezoids of its own. This reading explains the paper's Table 2:
70,000 subscriptions x 10 publications meet in 4,878 pairs of attributes on average, and two random
supports overlap with probability 34/35, so 4,603 matches are expected at alpha = 0; it has 4,628.

The runs load real engines and count or time what those answer. Times are processor time of the one
thread that works, the best of several repeats of each publication, and of those the median: what a
shared machine disturbs least.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.common import median
from papers import (
    FLOAT,
    Aggregation,
    Association,
    ATopss,
    Constraint,
    Interest,
    Order,
    Trapezoid,
)
from papers.trapezoids import encode

ATTRIBUTES = 42
PREDICATES = 2
PUBLISHED = 4
CONCEPTS = (2, 5)
SUBSCRIPTION_TYPES = ("approximate", "pessimistic", "middle", "optimistic")
PUBLICATION_TYPES = ("approximate", "interval", "point")

Published = dict[int, Trapezoid]


@dataclass(frozen=True)
class Workload:
    """Subscriptions as (attribute, concept, weight) and publications as trapezoids."""

    subscriptions: list[tuple[tuple[int, Trapezoid, float], ...]]
    publications: list[Published]


def draw_trapezoid(rng: np.random.Generator, width: float = 1.0) -> Trapezoid:
    """Return four uniform points of the domain, or of a random part of it of this width."""
    start = rng.random() * (1 - width)
    a, b, c, d = sorted((start + width * rng.random(4)).tolist())
    return a, b, c, d


def draw_workload(
    rng: np.random.Generator,
    subscriptions: int,
    publications: int,
    concepts: tuple[int, int] = CONCEPTS,
    width: float = 1.0,
) -> Workload:
    """Draw a workload; `width` below 1 makes sets that are narrow in their domain."""
    sets: list[list[tuple[Trapezoid, float]]] = []
    for _ in range(ATTRIBUTES):
        count = int(rng.integers(concepts[0], concepts[1] + 1))
        weights = rng.integers(1, 11, count)
        sets.append([(draw_trapezoid(rng, width), float(weights[k])) for k in range(count)])
    drawn = []
    for _ in range(subscriptions):
        parts = []
        for a in rng.choice(ATTRIBUTES, PREDICATES, replace=False).tolist():
            points, weight = sets[a][int(rng.integers(len(sets[a])))]
            parts.append((a, points, weight))
        drawn.append(tuple(parts))
    published = [
        {
            a: draw_trapezoid(rng, width)
            for a in rng.choice(ATTRIBUTES, PUBLISHED, replace=False).tolist()
        }
        for _ in range(publications)
    ]
    return Workload(drawn, published)


def shape_set(points: Trapezoid, kind: str) -> Trapezoid:
    """Return a subscription's set as one of the types of the paper's Table 1."""
    m1, m2, m3, m4 = points
    if kind == "pessimistic":
        return m1, m1, m4, m4
    if kind == "middle":
        low, high = (m1 + m2) / 2, (m3 + m4) / 2
        return low, low, high, high
    if kind == "optimistic":
        return m2, m2, m3, m3
    return points


def shape_publication(publication: Published, kind: str) -> Published:
    """Return a publication's values as one of the types of the paper's Table 1."""
    shaped = {}
    for attribute, (n1, n2, n3, n4) in publication.items():
        middle = (n2 + n3) / 2
        shaped[attribute] = {
            "approximate": (n1, n2, n3, n4),
            "interval": (n2, n2, n3, n3),
            "point": (middle, middle, middle, middle),
        }[kind]
    return shaped


def make_interests(
    workload: Workload, kind: str = "approximate", thresholds: np.ndarray | None = None
) -> list[Interest]:
    """Return the subscriptions as interests of one type, each with its own threshold if given."""
    interests = []
    for at, parts in enumerate(workload.subscriptions):
        constraints = tuple(
            Constraint(a, shape_set(points, kind), weight=weight) for a, points, weight in parts
        )
        omega = 0.0 if thresholds is None else float(thresholds[at])
        interests.append(Interest(constraints, omega))
    return interests


def mix_crisp(workload: Workload, rng: np.random.Generator) -> Workload:
    """Return the workload with half of its concepts and half of its published values crisp."""
    crisp: dict[tuple[int, Trapezoid], Trapezoid] = {}

    def pick(attribute: int, points: Trapezoid) -> Trapezoid:
        key = (attribute, points)
        if key not in crisp:
            crisp[key] = shape_set(points, "middle") if rng.random() < 0.5 else points
        return crisp[key]

    subscriptions = [
        tuple((a, pick(a, points), weight) for a, points, weight in parts)
        for parts in workload.subscriptions
    ]
    publications = []
    for publication in workload.publications:
        points = shape_publication(publication, "point")
        mixed = {a: points[a] if rng.random() < 0.5 else v for a, v in publication.items()}
        publications.append(mixed)
    return Workload(subscriptions, publications)


def draw_thresholds(rng: np.random.Generator, count: int, default: float) -> np.ndarray:
    """Return users' thresholds of possibility: this share at the default 0, the others uniform."""
    thresholds = rng.random(count)
    thresholds[rng.random(count) < default] = 0.0
    return thresholds


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
