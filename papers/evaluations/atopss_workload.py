"""Workloads of the A-ToPSS evaluation: concepts, subscriptions, publications as its section 5 says.

Only this file draws random numbers for the benchmark. n_t = 42 attributes have 2 to 5 concepts,
a trapezoid of four uniform points; a subscription takes two attributes and a concept of each, a
publication four attributes with trapezoids of its own. This reading explains the paper's Table 2:
70,000 subscriptions x 10 publications meet in 4,878 pairs of attributes on average, and two random
supports overlap with probability 34/35, so 4,603 matches are expected at alpha = 0; it has 4,628.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from papers import Constraint, Interest, Trapezoid

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
