"""Covering between two fuzzy subscriptions: whatever matches the narrow one matches the wide one.

The DENS paper compares the triples (Fig. 5c, with the roles put right): s covers t if its
attributes are among t's and its sets contain t's. Here the sets are compared where it counts: under
min, the alpha-cuts at the thresholds; under the other aggregators, at every height. Sound for exact
and for uncertain readings; it may say no where a finer argument would say yes.
"""

from __future__ import annotations

from typing import NamedTuple

from denwatch.protocol.cuts import cut, within
from denwatch.protocol.degrees import MIN, PRODUCT, SUGENO
from denwatch.protocol.evaluator import NOT
from denwatch.protocol.vectors import Predicate, SubscriptionVector

Interval = tuple[int, int]


class Cut(NamedTuple):
    """What one predicate must reach under min: the two levels and where it reaches them."""

    possible: int
    certain: int
    possible_at: list[Interval]
    certain_at: list[Interval]


class Outline:
    """A subscription as covering sees it; computed once, compared often."""

    __slots__ = ("cuts", "monotone", "subscription", "vector")

    def __init__(self, subscription: SubscriptionVector) -> None:
        s = subscription
        self.subscription = s
        self.vector = describe_vector(s)
        self.monotone = s.aggregator != SUGENO and NOT not in s.pattern
        self.cuts: dict[int, list[Cut]] = {}
        if s.aggregator == MIN and not s.pattern:
            for p in s.predicates:
                possible = max(p.possible, s.threshold)
                certain = max(p.certain, s.certain)
                where = Cut(possible, certain, cut(p, possible), cut(p, certain))
                self.cuts.setdefault(p.attribute << 1 | p.wide, []).append(where)


def describe_vector(s: SubscriptionVector) -> tuple[object, ...]:
    """Return all that decides a match: equal descriptions have equal answers, always."""
    predicates = tuple([p.fields() for p in s.predicates])
    rules = tuple(s.consequents) if s.consequents is not None else None
    thresholds = (s.threshold, s.certain)
    return s.event, predicates, s.aggregator, thresholds, s.pattern, s.recent, rules


def covers(wide: Outline, narrow: Outline) -> bool:
    """Return whether every notification that matches `narrow` matches `wide`."""
    s = wide.subscription
    t = narrow.subscription
    if s.event != t.event or s.features & ~t.features:
        return False
    if wide.vector == narrow.vector:
        return True
    lower = s.threshold <= t.threshold and s.certain <= t.certain
    # Age fades the whole, not the predicates: only the thresholds of the whole then count.
    if s.recent is not None and not (s.recent == t.recent and lower):
        return False
    if wide.cuts and narrow.cuts:
        return _contain_cuts(wide, narrow)
    if not lower or s.aggregator != t.aggregator:
        return False
    if not wide.monotone or s.pattern != t.pattern:
        return False
    if s.aggregator == PRODUCT and not s.pattern:
        return _contain_factors(s, t)
    return len(s.predicates) == len(t.predicates) and all(
        contains(p, q) for p, q in zip(s.predicates, t.predicates, strict=True)
    )


def contains(p: Predicate, q: Predicate) -> bool:
    """Return whether p's degree is never below q's, and its own thresholds never above."""
    if (p.attribute, p.wide, p.hedge, p.negated) != (q.attribute, q.wide, q.hedge, q.negated):
        return False
    if p.weight != q.weight or p.possible > q.possible or p.certain > q.certain:
        return False
    outer, inner = (q, p) if p.negated else (p, q)
    return (
        outer.low <= inner.low
        and outer.high >= inner.high
        and outer.left <= inner.left
        and outer.right <= inner.right
    )


def _contain_cuts(wide: Outline, narrow: Outline) -> bool:
    """Compare two conjunctions under min: each cut of the wide one contains one of the narrow."""
    for attribute, cuts in wide.cuts.items():
        others = narrow.cuts.get(attribute, [])
        for a in cuts:
            # A lower level helps the wide one twice: its set and the reading's are both larger.
            possible = [
                within(b.possible_at, a.possible_at) for b in others if b.possible >= a.possible
            ]
            certain = [within(b.certain_at, a.certain_at) for b in others if b.certain >= a.certain]
            if not (any(possible) and any(certain)):
                return False
    return True


def _contain_factors(s: SubscriptionVector, t: SubscriptionVector) -> bool:
    """Compare two products: leaving a factor out never lowers one, with one factor an attribute."""
    if len({p.attribute for p in t.predicates}) < len(t.predicates):
        return False
    others = {q.attribute: q for q in t.predicates}
    return len({p.attribute for p in s.predicates}) == len(s.predicates) and all(
        contains(p, others[p.attribute]) for p in s.predicates
    )
