"""Subscription vectors as boxes: where they surely match, and where at most they can.

Alpha-cuts commute with min, max and not, so under those the two are the same. For the other
aggregators the inner boxes are where every predicate alone is good enough, the outer ones what
every match must satisfy: a vector is asked whether it is covered with its outer boxes, and covers
others with its inner ones. So a vector reported covered is covered, whatever its aggregator.

Boxes speak of exact readings. A notification with doubt can match a covered vector without
matching the ones that cover it; whoever forwards notifications with doubt must match them all.
"""

from __future__ import annotations

from collections.abc import Mapping

from denwatch.node.covering.boxes import Interval, Subscription
from denwatch.protocol.cuts import cut, find_level
from denwatch.protocol.degrees import MAX, MIN, SUGENO, aggregate
from denwatch.protocol.evaluator import NOT, OR
from denwatch.protocol.vectors import Predicate
from denwatch.protocol.vectors import SubscriptionVector as Vector

ATTRIBUTES_PER_EVENT = 16
# More boxes than this cost more than they save: the vector then covers nothing.
MAX_BOXES = 64

Box = Mapping[int, Interval]


class _TooMany(Exception):
    """The formula has more boxes than it is worth."""


def box_vector(vector: Vector) -> Subscription:
    """Return a vector's boxes over global attribute bits: 16 * event + attribute."""
    base = ATTRIBUTES_PER_EVENT * vector.event
    mask = vector.features << base
    least = max(vector.threshold, vector.certain)
    try:
        outer = _list_boxes(vector, least, inner=False)
        inner = _list_boxes(vector, least, inner=True)
    except _TooMany:
        return Subscription(mask, (), ({},))
    if vector.recent or vector.significance:
        inner = []  # it is silent at times when those that it would cover are not
    return Subscription(mask, _shift(inner, base), _shift(outer, base))


def _shift(boxes: list[Box], base: int) -> tuple[Box, ...]:
    return tuple({base + bit: interval for bit, interval in box.items()} for box in boxes)


def _list_boxes(vector: Vector, least: int, *, inner: bool) -> list[Box]:
    """Return boxes inside or around the values whose degree is at least `least`."""
    tokens = list(vector.pattern)
    kind = vector.aggregator
    if kind == SUGENO:
        boxes: list[Box] = [] if inner else [{}]
    elif not tokens:
        boxes = _join(vector, list(range(len(vector.predicates))), kind, least, inner=inner)
    elif kind != MIN and NOT in tokens:
        boxes = [] if inner else [{}]  # an upper bound of a mean says little about its parts
    else:
        boxes = _walk(vector, tokens, least, True, inner=inner)
    for p in vector.predicates:
        theta = max(p.possible, p.certain)
        if theta:
            boxes = _intersect(boxes, _list_cuts(p, theta))
    return boxes


def _join(vector: Vector, leaves: list[int], kind: int, least: int, *, inner: bool) -> list[Box]:
    """Return the boxes of one aggregation of predicates."""
    weights = bytes(vector.predicates[leaf].weight for leaf in leaves)
    levels = _find_levels(kind, len(leaves), least, weights, inner=inner)
    sides = [_list_cuts(vector.predicates[i], t) for i, t in zip(leaves, levels, strict=True)]
    if kind == MAX:
        return _limit([box for side in sides for box in side])
    boxes: list[Box] = [{}]
    for side in sides:
        boxes = _intersect(boxes, side)
    return boxes


def _find_levels(kind: int, count: int, least: int, weights: bytes, *, inner: bool) -> list[int]:
    """Return what each operand must reach: enough for the aggregate, or needed for it."""
    if kind in (MIN, MAX):
        return [least] * count
    if not inner:
        return [find_level(kind, count, least, weights, i) for i in range(count)]
    for level in range(least, 256):  # all operands at one level: the lowest that is enough
        if aggregate(kind, bytearray([level] * count), 0, count, weights, 0) >= least:
            return [level] * count
    return [256] * count


def _walk(vector: Vector, tokens: list[int], t: int, up: bool, *, inner: bool) -> list[Box]:
    """Take one formula off the end of a postfix pattern; return its boxes.

    They hold where its degree is at least t, or, if not `up`, where it is at most 255 - t.
    """
    op = tokens.pop()
    if op == NOT:
        return _walk(vector, tokens, t, not up, inner=inner)
    if op < len(vector.predicates):
        p = vector.predicates[op]
        return _list_cuts(p if up else _negate(p), t)
    is_or = op & 0xF0 == OR
    count = op & 15
    if is_or or vector.aggregator == MIN:
        levels = [t] * count
    else:
        levels = _find_levels(vector.aggregator, count, t, b"", inner=inner)
    parts = [_walk(vector, tokens, level, up, inner=inner) for level in reversed(levels)]
    if is_or == up:
        return _limit([box for part in parts for box in part])
    boxes: list[Box] = [{}]
    for part in parts:
        boxes = _intersect(boxes, part)
    return boxes


def _negate(p: Predicate) -> Predicate:
    fields = dict(zip(p.FIELDS, p.fields(), strict=True))
    fields["negated"] = not p.negated
    return Predicate(**fields)  # type: ignore[arg-type]  # the fields of a Predicate


def _list_cuts(p: Predicate, t: int) -> list[Box]:
    return [{p.attribute: interval} for interval in cut(p, min(t, 256))]


def _intersect(boxes: list[Box], others: list[Box]) -> list[Box]:
    """Return the boxes that lie in one of each side, without the empty ones."""
    joined: list[Box] = []
    for box in boxes:
        for other in others:
            both = dict(box)
            for bit, (low, high) in other.items():
                start, stop = both.get(bit, (low, high))
                both[bit] = (max(start, low), min(stop, high))
            if all(low <= high for low, high in both.values()):
                joined.append(both)
    return _limit(joined)


def _limit(boxes: list[Box]) -> list[Box]:
    if len(boxes) > MAX_BOXES:
        raise _TooMany
    return boxes
