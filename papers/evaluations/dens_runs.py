"""Workloads and runs of the DENS evaluation: one function for each figure of the paper's section 5.

Only this file draws random numbers for the benchmark. The paper generates subscriptions at random
from approximate terms and does not print how; but its three percentages of equality after covering
(60 % of 100, 92 % of 500, 96 % of 1,000) all leave 40 subscriptions. So the vocabulary here has
three events with four attributes of three terms each, and 44 situations that people ask about,
each naming three or four attributes and a term for each ("heart rate high, oxygen low, temperature
normal"). A subscription is one of them, picked evenly; one word in five is made stronger by "very".
Organisations use other words for the same terms, which the vocabulary maps to the same vectors, so
they leave no trace here. The two numbers, 44 and one in five, were chosen to meet the percentages.

The runs load real engines and time them. A time is processor time of the one thread that works, the
median over events, each the best of several repeats: what a shared machine disturbs least.
"""

from __future__ import annotations

import gc
import math
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from denwatch.protocol.degrees import (
    ARITHMETIC,
    GEOMETRIC,
    HARMONIC,
    MAX,
    MIN,
    PRODUCT,
    VERY,
    aggregate,
)
from denwatch.protocol.matching import match
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import (
    AND,
    OR,
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)

from benchmarks.common import median
from papers import (
    BFCPA1,
    BFCPA2,
    BFCPAB,
    FIP,
    FNIF,
    FNIFC,
    FNIFS,
    AttributeValue,
    approximate,
    size_breakdown,
)

EVENTS = 3
ATTRIBUTES = 4
SITUATIONS = 44
HEDGED = 0.2  # how often a word is made stronger
HALF = 128

# Low, normal and high in 1/255 of the domain, with the gamma code of their slopes.
TERMS = ((0, 60, 90), (100, 155, 90), (195, 255, 90))
PATTERNS = {
    3: (bytes([0, 1, 2, OR | 2, AND | 2]), bytes([0, 1, AND | 2, 2, OR | 2])),
    4: (bytes([0, 1, AND | 2, 2, 3, AND | 2, OR | 2]), bytes([0, 1, 2, OR | 3, 3, AND | 2])),
}

Situation = tuple[int, tuple[tuple[int, int], ...]]  # event, (attribute, term) each


@dataclass(frozen=True)
class Vocabulary:
    """The situations that people ask about."""

    situations: list[Situation]


def draw_vocabulary(rng: np.random.Generator, situations: int = SITUATIONS) -> Vocabulary:
    """Draw distinct situations of three or four attributes."""
    drawn: dict[Situation, None] = {}
    while len(drawn) < situations:
        count = int(rng.integers(3, 5))
        attributes = sorted(rng.choice(ATTRIBUTES, count, replace=False).tolist())
        words = tuple((a, int(rng.integers(len(TERMS)))) for a in attributes)
        drawn[int(rng.integers(EVENTS)), words] = None
    return Vocabulary(list(drawn))


def draw_subscriptions(
    rng: np.random.Generator,
    vocabulary: Vocabulary,
    count: int,
    aggregator: int = MIN,
    patterned: bool = False,
) -> list[SubscriptionVector]:
    """Draw what people ask, all with the threshold 1/2."""
    drawn = []
    for _ in range(count):
        event, words = vocabulary.situations[int(rng.integers(len(vocabulary.situations)))]
        predicates = []
        for attribute, term in words:
            low, high, gamma = TERMS[term]
            hedge = VERY if rng.random() < HEDGED else 0
            predicates.append(Predicate(attribute, low, high, gamma, hedge=hedge))
        pattern = b""
        if patterned:
            pattern = PATTERNS[len(words)][int(rng.integers(2))]
        drawn.append(SubscriptionVector(event, predicates, aggregator, HALF, pattern=pattern))
    return drawn


def draw_events(rng: np.random.Generator, count: int) -> list[NotificationVector]:
    """Draw exact readings of all attributes of an event, uniform over their domains."""
    events = []
    for _ in range(count):
        values = rng.integers(0, 256, ATTRIBUTES).tolist()
        readings = [Reading(a, (x, x, x, x)) for a, x in enumerate(values)]
        events.append(NotificationVector(int(rng.integers(EVENTS)), readings))
    return events


def draw_notifications(
    rng: np.random.Generator, vocabulary: Vocabulary, count: int
) -> list[NotificationVector]:
    """Draw what a source sends: exact readings of the attributes of one situation alone.

    In the paper a notification has the features of the subscription that it was sent for.
    """
    sent = []
    for _ in range(count):
        event, words = vocabulary.situations[int(rng.integers(len(vocabulary.situations)))]
        values = rng.integers(0, 256, len(words)).tolist()
        readings = [Reading(a, (x, x, x, x)) for (a, _), x in zip(words, values, strict=True)]
        sent.append(NotificationVector(event, readings))
    return sent


REPEATS = 7
LOADS = 3
FLAT: dict[str, Callable[[], Any]] = {"FNIF": FNIF, "FNIFS": FNIFS, "FNIFC": FNIFC}
NODE: dict[str, Callable[[], Any]] = {**FLAT, "FIP": FIP, "crisp": AttributeValue}
BROKEN: dict[str, Callable[[], Any]] = {"BFCPAB": BFCPAB, "BFCPA1": BFCPA1, "BFCPA2": BFCPA2}
AGGREGATORS = {
    "min": MIN,
    "max": MAX,
    "product": PRODUCT,
    "arithmetic": ARITHMETIC,
    "geometric, approximated root": GEOMETRIC,
    "harmonic": HARMONIC,
}


class Scene:
    """One vocabulary's subscriptions and events, so that all engines see the same."""

    def __init__(self, seed: int, subscriptions: int, events: int) -> None:
        rng = np.random.default_rng(seed)
        vocabulary = draw_vocabulary(rng)
        self.plain = draw_subscriptions(rng, vocabulary, subscriptions)
        self.patterned = draw_subscriptions(rng, vocabulary, subscriptions, patterned=True)
        self.geometric = [rework(s, GEOMETRIC) for s in self.plain]
        self.events = draw_events(rng, events)
        self.notifications = draw_notifications(rng, vocabulary, events)


def rework(s: SubscriptionVector, aggregator: int) -> SubscriptionVector:
    """Return the same subscription under another aggregator."""
    return SubscriptionVector(s.event, s.predicates, aggregator, s.threshold)


def load(make: Callable[[], Any], subscriptions: Sequence[SubscriptionVector]) -> tuple[Any, float]:
    """Return a filled engine and the milliseconds that filling took, at best."""
    best = math.inf
    for _ in range(LOADS):
        engine = make()
        start = time.thread_time()
        for id, s in enumerate(subscriptions):
            engine.add(id, s)
        best = min(best, time.thread_time() - start)
    return engine, 1e3 * best


def time_each(
    call: Callable[[NotificationVector], object], events: Sequence[NotificationVector]
) -> float:
    """Return the milliseconds of one event: the median of each one's best."""
    best = []
    for event in events:
        times = []
        for _ in range(REPEATS):
            start = time.thread_time()
            call(event)
            times.append(time.thread_time() - start)
        best.append(min(times))
    return 1e3 * median(best)


def time_all(
    call: Callable[[NotificationVector], object], events: Sequence[NotificationVector]
) -> float:
    """Return the milliseconds of all events together, at best."""
    best = math.inf
    for _ in range(REPEATS):
        start = time.thread_time()
        for event in events:
            call(event)
        best = min(best, time.thread_time() - start)
    return 1e3 * best


def run_publisher(scene: Scene, sizes: Sequence[int]) -> dict[str, dict[int, tuple[float, ...]]]:
    """Return (200 events, one event, loading) in ms for each flat engine and size (7a, 7b, 7c)."""
    results: dict[str, dict[int, tuple[float, ...]]] = {name: {} for name in FLAT}
    for size in sizes:
        for name, make in FLAT.items():
            engine, loading = load(make, scene.plain[:size])
            many = time_all(engine.filter, scene.events)
            one = time_each(engine.filter, scene.events[:40])
            results[name][size] = (many, one, loading)
    return results


def run_breakdown(scene: Scene, sizes: Sequence[int]) -> dict[str, dict[int, float]]:
    """Return the ms of matching one event by the break-down algorithms, and FNIF's (7d)."""
    results: dict[str, dict[int, float]] = {name: {} for name in ("FNIF", *BROKEN)}
    for size in sizes:
        for name in results:
            make = BROKEN.get(name, FNIF)
            stored = scene.patterned if name == "BFCPAB" else scene.geometric
            engine, _ = load(make, (scene.plain if name == "FNIF" else stored)[:size])
            results[name][size] = time_each(engine.match, scene.events[:40])
    return results


def measure_approximation(scene: Scene) -> dict[str, float]:
    """Return the mean error of rules that stand for a geometric mean, in percent of full scale."""
    distinct = list({str(s.fields()): s for s in scene.geometric}.values())[:40]
    errors = {}
    for name, order in (("BFCPA1", 1), ("BFCPA2", 0)):
        total = count = 0
        for s in distinct:
            rules = approximate(s, order)
            for event in scene.events:
                exact, near = match(s, event), match(rules, event)
                if exact and near and exact.possible:
                    total += abs(exact.possible - near.possible)
                    count += 1
        errors[name] = 100 * total / count / 255
    return errors


def run_aggregators(scene: Scene, size: int) -> dict[str, tuple[float, float]]:
    """Return (ns of one aggregation of three degrees, ms of matching one event) each (7e)."""
    triples = [bytearray([a, b, c]) for a in (9, 90, 250) for b in (30, 200) for c in (70, 255)]
    rounds = 500

    def time_kind(call: Callable[[bytearray], object]) -> float:
        best = math.inf
        for _ in range(REPEATS):
            start = time.thread_time()
            for _ in range(rounds):
                for degrees in triples:
                    call(degrees)
            best = min(best, time.thread_time() - start)
        return 1e9 * best / (rounds * len(triples))

    def take_root(degrees: bytearray) -> int:
        root: float = float(math.prod(degrees)) ** (1 / len(degrees))
        return round(root)

    def apply(kind: int) -> Callable[[bytearray], int]:
        return lambda degrees: aggregate(kind, degrees, 0, 3, b"", 0)

    results = {}
    for name, kind in AGGREGATORS.items():
        engine, _ = load(FNIF, [rework(s, kind) for s in scene.plain[:size]])
        results[name] = (time_kind(apply(kind)), time_each(engine.match, scene.events[:40]))
    results["geometric, floating-point root"] = (time_kind(take_root), math.nan)
    return results


def measure_root() -> tuple[float, float]:
    """Return the mean and largest error of the approximated root over all pairs, in % of full."""
    errors = []
    for a in range(256):
        for b in range(a, 256):
            near = aggregate(GEOMETRIC, bytearray([a, b]), 0, 2, b"", 0)
            errors.append(abs(near - math.sqrt(a * b)) * 100 / 255)
    return float(np.mean(errors)), max(errors)


def run_node(scene: Scene, sizes: Sequence[int]) -> dict[str, dict[int, tuple[float, float]]]:
    """Return (matching one notification, loading) in ms for every engine of a node (7f, 7h, 7i)."""
    results: dict[str, dict[int, tuple[float, float]]] = {name: {} for name in NODE}
    for size in sizes:
        answers = []
        for name, make in NODE.items():
            engine, loading = load(make, scene.plain[:size])
            results[name][size] = (time_each(engine.match, scene.notifications[:60]), loading)
            if name != "crisp":
                answers.append([engine.match(one) for one in scene.notifications[:20]])
        if any(answer != answers[0] for answer in answers):
            raise AssertionError(f"engines disagree at {size} subscriptions")
    return results


def measure_equality(scene: Scene, sizes: Sequence[int]) -> dict[int, tuple[int, float]]:
    """Return how many subscriptions stay active after covering, and the share that does not."""
    results = {}
    for size in sizes:
        engine, _ = load(FNIFC, scene.plain[:size])
        results[size] = (engine.count_active(), 1 - engine.count_active() / size)
    return results


def measure_memory(scene: Scene, size: int) -> dict[str, float]:
    """Return the kB that each engine allocates beside the subscriptions themselves (7g)."""
    stored = {"BFCPAB": scene.patterned, "BFCPA1": scene.geometric, "BFCPA2": scene.geometric}
    sizes = {}
    for name, make in {**NODE, **BROKEN}.items():
        subscriptions = stored.get(name, scene.plain)[:size]
        gc.collect()
        tracemalloc.start()
        engine, _ = load(make, subscriptions)
        gc.collect()
        sizes[name] = tracemalloc.get_traced_memory()[0] / 1e3
        tracemalloc.stop()
        del engine
    sizes["vectors on the wire"] = sum(len(encode(s)) for s in scene.plain[:size]) / 1e3
    broken = sum(size_breakdown(s) + 8 for s in scene.patterned[:size])
    sizes["break-down vectors"] = broken / 1e3
    return sizes
