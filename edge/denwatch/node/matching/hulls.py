"""Hulls: the smallest interval of each attribute outside of which a subscription cannot match.

A hull is coarser than the boxes of `boxes.py` (one box around all of them), and computed in plain
Python from the vector itself. It is complete: a notification that matches meets the hull, at the
hull's level, in every attribute. As there, an attribute with two disjoint intervals asks for the
gap between them, which an uncertain reading that meets both covers.

EXAMPLE    "temperature is high or temperature is low": each is an interval; the hull is from the
           lowest value of low to the highest of high. What lies between becomes a candidate, and
           is refused by the exact evaluation.
"""

from __future__ import annotations

from functools import lru_cache

from denwatch.node.matching.evaluation import INNER, OUTER
from denwatch.protocol.cuts import cut_set, find_level
from denwatch.protocol.degrees import MAX, MIN, SUGENO
from denwatch.protocol.vectors import NOT, OR, Predicate, SubscriptionVector

Interval = tuple[int, int]
Bounds = dict[int, Interval]  # by attribute; what is not in it is not asked for
_ALL = (0, 255)
_MEMO = 4096  # cuts that are remembered: subscriptions are made of the same words


class Hull:
    """What a subscription asks for at least; `bounds` is None if nothing can match it."""

    __slots__ = ("bounds", "level")

    def __init__(self, bounds: Bounds | None, level: int) -> None:
        self.bounds = bounds
        self.level = level  # 1..255: the lowest degree that any of its predicates must reach


def find_hull(s: SubscriptionVector) -> Hull:
    """Return the hull of a subscription."""
    least = max(s.threshold, s.certain)
    lowest = [255]
    bounds: Bounds | None = {}
    if s.pattern:
        bounds = _walk(s, list(s.pattern), least, False, lowest)
    elif s.aggregator == MAX:
        parts = [_ask(p, False, least, lowest) for p in s.predicates]
        bounds = _join(parts)
    elif s.aggregator != SUGENO:
        weights = bytes([p.weight for p in s.predicates])
        count = len(s.predicates)
        for i, p in enumerate(s.predicates):
            level = _find_level(s.aggregator, count, least, weights, i)
            bounds = _meet(bounds, _ask(p, False, level, lowest))
    for p in s.predicates:
        theta = max(p.possible, p.certain)
        if theta:
            bounds = _meet(bounds, _ask(p, False, theta, lowest))
    return Hull(bounds, lowest[0])


@lru_cache(maxsize=_MEMO)
def _find_level(kind: int, count: int, t: int, weights: bytes, i: int) -> int:
    return find_level(kind, count, t, weights, i)


def _walk(
    s: SubscriptionVector, tokens: list[int], t: int, flip: bool, lowest: list[int]
) -> Bounds | None:
    """Take one formula off the end of a postfix pattern; return where it may reach t.

    `flip`: where its opposite may. By De Morgan the opposite of "and" joins like "or".
    """
    op = tokens.pop()
    if op == NOT:
        return _walk(s, tokens, t, not flip, lowest)
    if op < len(s.predicates):
        return _ask(s.predicates[op], flip, t, lowest)
    is_or = op & 0xF0 == OR
    count = op & 15
    if not is_or and s.aggregator != MIN:
        t = 0 if flip else _find_level(s.aggregator, count, t, b"", 0)
    parts = [_walk(s, tokens, t, flip, lowest) for _ in range(count)]
    if is_or != flip:
        return _join(parts)
    bounds: Bounds | None = {}
    for part in parts:
        bounds = _meet(bounds, part)
    return bounds


def _ask(p: Predicate, flip: bool, t: int, lowest: list[int]) -> Bounds | None:
    """Return what it takes that a predicate, or its opposite, reaches t; note the level."""
    if t <= 0:
        return {}
    lowest[0] = min(lowest[0], t, 255)
    interval = _cut(p.fields(), flip, t)
    return None if interval is None else {p.attribute: interval}


@lru_cache(maxsize=_MEMO)
def _cut(fields: tuple[object, ...], flip: bool, t: int) -> Interval | None:
    """Return the 8-bit interval around where a predicate reaches t (1..256); None: nowhere.

    Hedges round differently for exact and for uncertain readings: the cut is around both.
    """
    p = Predicate(*fields)  # type: ignore[arg-type]  # the fields of a Predicate
    is_negated = p.negated != flip
    if is_negated:
        t = 256 - t
    level = t
    if p.hedge and t <= 255:
        level = int((INNER if is_negated else OUTER)[p.hedge, t])
    if level > 255:
        return _ALL if is_negated else None
    low, high = cut_set(p, level)
    shift = 8 if p.wide else 0
    if not is_negated:
        return low >> shift, high >> shift
    if low > 0:
        return (0, 255) if high < p.last else (0, (low - 1) >> shift)
    return ((high + 1) >> shift, 255) if high < p.last else None


def _meet(bounds: Bounds | None, others: Bounds | None) -> Bounds | None:
    """And: return what asks for both; of disjoint intervals, the gap between them."""
    if bounds is None or others is None:
        return None
    met = dict(bounds)
    for attribute, (low, high) in others.items():
        before = met.get(attribute, _ALL)
        start, stop = max(before[0], low), min(before[1], high)
        met[attribute] = (start, stop) if start <= stop else (stop, start)
    return met


def _join(parts: list[Bounds | None]) -> Bounds | None:
    """Or: return the hull of those that can be met; None if none can."""
    met = [part for part in parts if part is not None]
    if not met:
        return None
    joined = dict(met[0])
    for part in met[1:]:
        for attribute in list(joined):
            if attribute not in part:
                del joined[attribute]
            else:
                low, high = joined[attribute]
                joined[attribute] = min(low, part[attribute][0]), max(high, part[attribute][1])
    return joined
