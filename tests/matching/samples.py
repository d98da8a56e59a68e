"""Subscriptions and notifications to test with: hypothesis strategies, and a fixed corpus.

The corpus covers A-ToPSS's five cases: its subscriptions and its publications are each crisp,
approximate or mixed, so every combination meets every other.
"""

from __future__ import annotations

import random
from typing import Any

from denwatch.protocol.degrees import MAX, SUGENO, WEIGHTED
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from hypothesis import strategies as st

AND, OR, NOT = 0x40, 0x50, 0x60
HEDGES = (0, 1, 2, 3, 5, 9, 15, 7)
WIDE = 4  # in these samples attributes from here on may be 16 bits wide


class Drawn:
    """A random source over hypothesis' draw, so that one generator serves tests and corpus."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def randint(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def choice(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def random(self) -> float:
        return self.draw(st.integers(0, 99)) / 100

    def sample(self, population: Any, k: int) -> list[Any]:
        return self.draw(
            st.lists(st.sampled_from(list(population)), min_size=k, max_size=k, unique=True)
        )


def make_predicate(rng: Any, attribute: int, wide: bool, crisp: bool, weight: int) -> Predicate:
    """Return a predicate; a crisp one has no slopes and no hedges."""
    last = 65535 if wide else 255
    low = rng.randint(0, last)
    high = min(last, low + rng.randint(0, last // 3))
    if crisp:
        return Predicate(attribute, low, high, negated=rng.random() < 0.1, wide=wide, weight=weight)
    left = rng.choice((rng.randint(0, 254), 255))
    right = rng.choice((-1, rng.randint(0, 255)))
    thetas = (rng.randint(0, 255), rng.randint(0, 255)) if rng.random() < 0.15 else (0, 0)
    negated = rng.random() < 0.2
    hedge = rng.choice(HEDGES)
    return Predicate(attribute, low, high, left, right, negated, hedge, wide, *thetas, weight)


def make_pattern(rng: Any, count: int) -> bytes:
    """Return a random nesting of and, or and not over predicates 0..count-1."""
    parts = [bytes([i]) for i in range(count)]
    while len(parts) > 1:
        n = rng.randint(2, min(3, len(parts)))
        joined = b"".join(parts[:n]) + bytes([rng.choice((AND, OR)) | n])
        if rng.random() < 0.25:
            joined += bytes([NOT])
        parts = [*parts[n:], joined] if rng.random() < 0.5 else [joined, *parts[n:]]
    return parts[0]


def make_rules(rng: Any, count: int) -> list[tuple[int, ...]]:
    """Return Takagi-Sugeno consequents for so many predicates, of zero or first order."""
    pairs = count * (count - 1) // 2
    if rng.random() < 0.5:
        return [(rng.randint(0, 255),) for _ in range(pairs)]
    return [
        (rng.randint(-300, 300), rng.randint(-128, 127), rng.randint(-128, 127))
        for _ in range(pairs)
    ]


def make_subscription(
    rng: Any, events: int = 2, attributes: int = 6, wide: bool = True, exact: bool = False
) -> SubscriptionVector:
    """Return any subscription; `exact` leaves out patterns over aggregators that round twice."""
    names = sorted(rng.sample(range(attributes), rng.randint(1, min(4, attributes))))
    again = sorted(rng.choice(names) for _ in range(rng.choice((0, 0, 0, 1, 2))))
    kind = rng.choice((0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7))
    if kind == SUGENO and len(names) + len(again) < 2:
        kind = 0
    style = rng.choice(("crisp", "approximate", "mixed"))
    predicates = []
    for attribute in names + again:
        crisp = style == "crisp" or (style == "mixed" and attribute % 2 == 0)
        weight = rng.randint(1, 9) if kind == WEIGHTED else 1
        is_wide = wide and attribute >= WIDE
        predicates.append(make_predicate(rng, attribute, is_wide, crisp, weight))
    more: dict[str, Any] = {}
    if kind == SUGENO:
        more["consequents"] = make_rules(rng, len(predicates))
    elif (kind == 0 if exact else kind not in (MAX, WEIGHTED)) and len(predicates) > 1:
        more["pattern"] = make_pattern(rng, len(predicates)) if rng.random() < 0.4 else b""
    if rng.random() < 0.15:
        more["recent"] = (rng.randint(0, 20), rng.randint(21, 60))
    threshold = rng.choice((0, 1, 64, 128, 200, 255, rng.randint(0, 255)))
    certain = rng.choice((0, 0, 0, rng.randint(0, 255)))
    event = rng.randint(0, events - 1)
    return SubscriptionVector(event, predicates, kind, threshold, certain, **more)


def make_reading(rng: Any, attribute: int, wide: bool, style: str) -> Reading:
    """Return an exact value, an interval or a trapezoid."""
    last = 65535 if wide else 255
    if style == "exact":
        x = rng.randint(0, last)
        return Reading(attribute, (x, x, x, x), wide)
    if style == "interval":
        low, high = sorted((rng.randint(0, last), rng.randint(0, last)))
        return Reading(attribute, (low, low, high, high), wide)
    a, b, c, d = sorted(rng.randint(0, last) for _ in range(4))
    return Reading(attribute, (a, b, c, d), wide)


def make_notification(
    rng: Any, events: int = 2, attributes: int = 6, wide: bool = True, doubtful_wide: bool = True
) -> NotificationVector:
    """Return a notification whose readings are exact, uncertain or mixed."""
    case = rng.choice(("exact", "interval", "fuzzy", "mixed"))
    readings = []
    for attribute in sorted(rng.sample(range(attributes), rng.randint(1, attributes))):
        style = rng.choice(("exact", "interval", "fuzzy")) if case == "mixed" else case
        is_wide = wide and attribute >= WIDE - 1 and rng.random() < 0.6
        if not doubtful_wide and attribute >= WIDE - 1:
            style = "exact"
        readings.append(make_reading(rng, attribute, is_wide, style))
    return NotificationVector(rng.randint(0, events - 1), readings)


@st.composite
def subscriptions(draw: Any, **options: Any) -> SubscriptionVector:
    """Draw any subscription."""
    return make_subscription(Drawn(draw), **options)


@st.composite
def notifications(draw: Any, **options: Any) -> NotificationVector:
    """Draw any notification."""
    return make_notification(Drawn(draw), **options)


def make_corpus(
    subscriptions: int = 10_000, publications: int = 10_000, seed: int = 20061
) -> tuple[list[SubscriptionVector], list[NotificationVector]]:
    """Return the fixed corpus: 8-bit attributes, two events of six, all five cases."""
    rng = random.Random(seed)
    return (
        [make_subscription(rng, wide=False, exact=True) for _ in range(subscriptions)],
        [make_notification(rng, wide=False) for _ in range(publications)],
    )
