"""Subscriptions and notifications for the tests of the papers' engines: drawn, and at random.

Few attributes and few terms, so that matches, shared predicates and covering are frequent.
"""

from __future__ import annotations

import random

from denwatch.protocol.degrees import CRISP, MAX, MIN, SUGENO, WEIGHTED
from denwatch.protocol.vectors import (
    AND,
    NOT,
    OR,
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)
from hypothesis import strategies as st

ATTRIBUTES = 5
EVENTS = 2
FOUR = {
    "c1d2": bytes([0, 1, 2, OR | 2, AND | 2]),
    "c2d1": bytes([0, 1, AND | 2, 2, OR | 2]),
    "c2c2": bytes([0, 1, AND | 2, 2, 3, AND | 2, OR | 2]),
    "d3c1": bytes([0, 1, 2, OR | 3, 3, AND | 2]),
}


def draw_number(rng: random.Random, last: int) -> int:
    """Return a value on a coarse grid, so that bounds coincide often."""
    return rng.choice((0, 30, 64, 100, 128, 150, 200, 230, 255)) * (257 if last > 255 else 1)


def make_predicate(rng: random.Random, attribute: int, weight: int = 1) -> Predicate:
    """Return a predicate with any of the things that a predicate may have."""
    wide = attribute == 4
    last = 65535 if wide else 255
    low, high = sorted((draw_number(rng, last), draw_number(rng, last)))
    gammas = (0, 40, 90, 160, CRISP)
    thetas = (0, 0, 0, 60, 200)
    return Predicate(
        attribute,
        low,
        high,
        rng.choice(gammas),
        rng.choice(gammas),
        negated=rng.random() < 0.15,
        hedge=rng.choice((0, 0, 0, 1, 2, 3, 1 | 3 << 2)),
        wide=wide,
        possible=rng.choice(thetas),
        certain=rng.choice(thetas) if rng.random() < 0.3 else 0,
        weight=weight,
    )


def make_pattern(rng: random.Random, count: int) -> bytes:
    """Return a random nesting of and, or and not over so many predicates."""
    stack = [bytes([i]) for i in range(count)]
    while len(stack) > 1:
        size = rng.randint(2, min(3, len(stack)))
        parts = [stack.pop(rng.randrange(len(stack))) for _ in range(size)]
        joined = b"".join(parts) + bytes([rng.choice((AND, OR)) | size])
        stack.append(joined + bytes([NOT]) if rng.random() < 0.2 else joined)
    return stack[0]


def make_subscription(
    rng: random.Random, kinds: tuple[int, ...] = tuple(range(8))
) -> SubscriptionVector:
    """Return a subscription of one of these aggregators, perhaps with a pattern or freshness."""
    kind = rng.choice(kinds)
    count = rng.randint(2 if kind == SUGENO else 1, 4)
    attributes = sorted(rng.sample(range(ATTRIBUTES), count))
    if kind != SUGENO and rng.random() < 0.15:
        attributes.append(rng.choice(attributes))
    predicates = [
        make_predicate(rng, a, rng.randint(1, 9) if kind == WEIGHTED else 1) for a in attributes
    ]
    rules: list[tuple[int, ...]] | None = None
    if kind == SUGENO:
        pairs = count * (count - 1) // 2
        rules = [(rng.randint(0, 255),) for _ in range(pairs)]
        if rng.random() < 0.5:
            rules = [
                (rng.randint(-300, 300), rng.randint(-128, 127), rng.randint(-128, 127))
                for _ in range(pairs)
            ]
    patterned = len(predicates) > 1 and kind not in (MAX, WEIGHTED, SUGENO) and rng.random() < 0.4
    return SubscriptionVector(
        rng.randrange(EVENTS),
        predicates,
        kind,
        rng.choice((0, 1, 60, 128, 200, 255)),
        rng.choice((0, 0, 0, 40, 128)),
        pattern=make_pattern(rng, len(predicates)) if patterned else b"",
        recent=(3, 9) if rng.random() < 0.1 else None,
        consequents=rules,
    )


def make_reading(rng: random.Random, attribute: int, exact: bool) -> Reading:
    """Return an exact value or a trapezoid; attribute 3 comes 16 bits wide though asked in 8."""
    wide = attribute >= 3 and rng.random() < 0.7
    last = 65535 if wide else 255
    if exact:
        value = draw_number(rng, last) if rng.random() < 0.5 else rng.randint(0, last)
        return Reading(attribute, (value,) * 4, wide)
    points = sorted(draw_number(rng, last) for _ in range(4))
    return Reading(attribute, (points[0], points[1], points[2], points[3]), wide)


def make_notification(rng: random.Random, uncertain: float = 0.4) -> NotificationVector:
    """Return a notification in which each reading is uncertain with the given chance."""
    attributes = sorted(rng.sample(range(ATTRIBUTES), rng.randint(1, ATTRIBUTES)))
    readings = [make_reading(rng, a, rng.random() >= uncertain) for a in attributes]
    return NotificationVector(rng.randrange(EVENTS), readings)


@st.composite
def subscriptions(
    draw: st.DrawFn, kinds: tuple[int, ...] = tuple(range(8))
) -> SubscriptionVector:  # fmt: skip
    """Draw a subscription; hypothesis shrinks the seed."""
    return make_subscription(random.Random(draw(st.integers(0, 2**32))), kinds)


@st.composite
def notifications(draw: st.DrawFn, uncertain: float = 0.4) -> NotificationVector:
    """Draw a notification."""
    return make_notification(random.Random(draw(st.integers(0, 2**32))), uncertain)


def make_crisp_subscription(rng: random.Random) -> SubscriptionVector:
    """Return a conjunction of crisp points and intervals."""
    attributes = sorted(rng.sample(range(ATTRIBUTES), rng.randint(1, 4)))
    predicates = []
    for a in attributes:
        last = 65535 if a == 4 else 255
        low = draw_number(rng, last)
        high = low if rng.random() < 0.4 else max(low, draw_number(rng, last))
        predicates.append(Predicate(a, low, high, CRISP, wide=a == 4))
    return SubscriptionVector(rng.randrange(EVENTS), predicates, MIN, rng.choice((1, 128, 255)))
