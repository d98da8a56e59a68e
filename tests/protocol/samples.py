"""Random subscriptions, notifications and values, the same from one seed on every runtime."""

from denwatch.protocol.degrees import MAX, SUGENO, WEIGHTED
from denwatch.protocol.vectors import (
    AND,
    NOT,
    OR,
    NotificationVector,
    Predicate,
    Reading,
    Significance,
    SubscriptionVector,
)


class Dice:
    """A small linear congruential generator: MicroPython's `random` gives other numbers."""

    def __init__(self, seed):
        self.state = seed & 0x7FFFFFFF

    def below(self, limit):
        """Return a number of 0..limit-1."""
        self.state = (self.state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self.state >> 8) % limit

    def byte(self):
        """Return a byte, its extremes more often than others."""
        choice = self.below(8)
        return 0 if choice == 0 else 255 if choice == 1 else self.below(256)

    def value(self, wide):
        """Return an 8- or 16-bit value."""
        return self.byte() * 256 + self.byte() if wide else self.byte()

    def chance(self, parts):
        """Return True once in so many times."""
        return self.below(parts) == 0


def draw_predicate(dice, attribute, wide, plain=False):
    """Return a predicate; with `plain`, nothing but a triple."""
    low, high = sorted([dice.value(wide), dice.value(wide)])
    left = dice.byte()
    if plain:
        return Predicate(attribute, low, high, left, wide=wide)
    return Predicate(
        attribute,
        low,
        high,
        left,
        dice.byte() if dice.chance(3) else left,
        dice.chance(3),
        (0, 0, 0, 1, 2, 3, 5, 13)[dice.below(8)],
        wide,
        dice.byte() if dice.chance(6) else 0,
        dice.byte() if dice.chance(6) else 0,
    )


def draw_pattern(dice, count):
    """Return a random postfix pattern over so many predicates."""
    parts = [bytes([i]) for i in range(count)]
    while len(parts) > 1:
        size = 2 + dice.below(min(3, len(parts) - 1))
        taken = [parts.pop(dice.below(len(parts))) for _ in range(size)]
        joined = b"".join(taken) + bytes([(AND if dice.chance(2) else OR) | size])
        parts.append(joined + bytes([NOT]) if dice.chance(4) else joined)
    return parts[0]


def draw_rules(dice, count):
    """Return Takagi-Sugeno consequents for so many predicates."""
    first_order = dice.chance(2)
    return [
        (dice.below(600) - 200, dice.below(256) - 128, dice.below(256) - 128)
        if first_order
        else (dice.byte(),)
        for _ in range(count * (count - 1) // 2)
    ]


def draw_significance(dice, attributes):
    """Return a significance, or None."""
    if not dice.chance(4):
        return None
    window = dice.below(16)
    bands = bytes([1 + dice.below(20) for _ in range(attributes)]) if dice.chance(2) else b""
    return Significance(
        bands,
        dice.byte(),
        1 + dice.below(255),
        1 + dice.below(window) if window else 0,
        window,
        dice.below(0xB8),
        dice.below(0xB8),
    )


def draw_subscription(dice, plain=False):
    """Return a subscription; with `plain`, only triples under one of the aggregators."""
    attributes = sorted({dice.below(16) for _ in range(1 + dice.below(5))})
    wides = [not plain and dice.chance(4) for _ in attributes]
    predicates = [draw_predicate(dice, a, w, plain) for a, w in zip(attributes, wides)]
    if not plain and dice.chance(4):
        again = sorted([dice.below(len(attributes)) for _ in range(1 + dice.below(3))])
        predicates += [draw_predicate(dice, attributes[i], wides[i]) for i in again]
    kind = dice.below(8 if len(predicates) > 1 else 7)
    pattern = b""
    if kind == SUGENO and plain:
        kind = 0
    if kind == WEIGHTED:
        if plain:
            kind = 0
        else:
            for p in predicates:
                p.weight = 1 + dice.below(255)
    elif kind not in (MAX, SUGENO) and not plain and dice.chance(2):
        pattern = draw_pattern(dice, len(predicates))
    other = Dice(dice.state)  # what is drawn besides leaves the rest as it was
    restrictors = bytes([0 if other.chance(3) else other.below(0xB8) for _ in attributes])
    if plain or not any(restrictors) or not other.chance(4):
        restrictors = b""
    return SubscriptionVector(
        dice.below(64),
        predicates,
        kind,
        dice.byte(),
        0 if plain or dice.chance(2) else dice.byte(),
        dice.below(65536),
        dice.below(0xB8),
        pattern,
        not plain and dice.chance(3),
        (dice.below(40), 40 + dice.below(100)) if not plain and dice.chance(4) else None,
        None if plain else draw_significance(dice, len(attributes)),
        draw_rules(dice, len(predicates)) if kind == SUGENO else None,
        restrictors,
    )


def draw_reading(dice, attribute, wide):
    """Return a reading: exact, interval or trapezoid."""
    points = sorted([dice.value(wide) for _ in range(4)])
    choice = dice.below(4)
    if choice == 0:
        points = [points[0]] * 4
    elif choice == 1:
        points = [points[0], points[0], points[3], points[3]]
    return Reading(attribute, (points[0], points[1], points[2], points[3]), wide)


def draw_notification(dice):
    """Return a notification."""
    attributes = sorted({dice.below(16) for _ in range(1 + dice.below(6))})
    readings = [draw_reading(dice, a, dice.chance(4)) for a in attributes]
    free = [a for a in range(16) if a not in attributes]
    faults = 1 << free[dice.below(len(free))] if dice.chance(4) else 0
    why = (dice.below(16), dice.byte()) if dice.chance(3) else None
    other = Dice(dice.state)
    if other.chance(4):
        for reading in readings[1:]:
            reading.age = 0 if other.chance(2) else 1 + other.below(0xB7)
    return NotificationVector(
        dice.below(64), readings, dice.below(65536), dice.below(0x9800), why, faults
    )


def draw_values(dice, s):
    """Return a value for every attribute of a subscription, as evaluate() takes them."""
    values = [0] * 16
    for p in s.predicates:
        near = (p.low, p.high, dice.value(p.wide), dice.value(p.wide))[dice.below(4)]
        values[p.attribute] = max(0, min(p.last, near + dice.below(41) - 20))
    return values
