"""Typed content, indexed: filters found by their most selective constraint, then checked.

Every filter is entered once, under one of its constraints: an equality, a text, or a bound. A value
finds equalities by hash, texts by hashing its own prefixes, suffixes and substrings of the
lengths in use, bounds by binary search. What is found is checked against the filter's other
constraints. Only `ranking.content` defines what a constraint means.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.node.ranking.content import (
    Constraint,
    Content,
    ContentError,
    ContentFilter,
    ContentKind,
    Op,
    PossibleValues,
    matches,
    rate,
)

_TEXTS = (Op.PREFIX, Op.SUFFIX, Op.SUBSTRING)
_RANK = {
    Op.EQ: 0,
    Op.PREFIX: 1,
    Op.SUFFIX: 1,
    Op.SUBSTRING: 1,
    Op.GT: 2,
    Op.GE: 2,
    Op.LT: 2,
    Op.LE: 2,
    Op.NE: 3,
}


@dataclass
class _AttributeFilters:
    """The filters that are entered under one attribute and one kind of value."""

    equal: dict[Any, set[int]] = field(default_factory=dict)
    texts: dict[Op, dict[str, set[int]]] = field(default_factory=lambda: {op: {} for op in _TEXTS})
    lengths: dict[Op, dict[int, int]] = field(default_factory=lambda: {op: {} for op in _TEXTS})
    above: list[tuple[Any, int]] = field(default_factory=list)  # (bound, id): value > or >= bound
    below: list[tuple[Any, int]] = field(default_factory=list)
    unequal: set[int] = field(default_factory=set)

    def enter(self, id: int, c: Constraint) -> None:
        """Enter a filter under one of its constraints."""
        if c.op is Op.EQ:
            self.equal.setdefault(c.value, set()).add(id)
        elif c.op in _TEXTS:
            text = str(c.value)
            self.texts[c.op].setdefault(text, set()).add(id)
            self.lengths[c.op][len(text)] = self.lengths[c.op].get(len(text), 0) + 1
        elif c.op is Op.NE:
            self.unequal.add(id)
        else:
            insort(self.above if c.op in (Op.GT, Op.GE) else self.below, (c.value, id))

    def withdraw(self, id: int, c: Constraint) -> None:
        """Undo `enter`."""
        if c.op is Op.EQ:
            _discard(self.equal, c.value, id)
        elif c.op in _TEXTS:
            text = str(c.value)
            _discard(self.texts[c.op], text, id)
            self.lengths[c.op][len(text)] -= 1
            if not self.lengths[c.op][len(text)]:
                del self.lengths[c.op][len(text)]
        elif c.op is Op.NE:
            self.unequal.discard(id)
        else:
            bounds = self.above if c.op in (Op.GT, Op.GE) else self.below
            del bounds[bisect_left(bounds, (c.value, id))]

    def find(self, value: Any) -> Iterator[int]:
        """Yield the filters whose constraint here may hold for the value, each once."""
        yield from self.equal.get(value, ())
        yield from self.unequal
        for _, id in self.above[: bisect_right(self.above, value, key=itemgetter(0))]:
            yield id
        for _, id in self.below[bisect_left(self.below, value, key=itemgetter(0)) :]:
            yield id
        if isinstance(value, str):
            for op in _TEXTS:
                for piece in self._cut(op, value):
                    yield from self.texts[op].get(piece, ())

    def _cut(self, op: Op, value: str) -> Iterator[str]:
        """Yield the pieces of a value that a text constraint of a length in use may ask for."""
        for length in self.lengths[op]:
            if length > len(value):
                continue
            if op is Op.PREFIX:
                yield value[:length]
            elif op is Op.SUFFIX:
                yield value[len(value) - length :]
            else:
                yield from {value[at : at + length] for at in range(len(value) - length + 1)}


def _discard(sets: dict[Any, set[int]], key: Any, id: int) -> None:
    sets[key].discard(id)
    if not sets[key]:
        del sets[key]


def choose_constraint(filter: ContentFilter) -> Constraint | None:
    """Return the constraint to enter a filter under; None for the filter that asks nothing."""
    return min(filter.constraints, key=_weigh, default=None)


def _weigh(c: Constraint) -> tuple[int, int]:
    """Return how little a constraint is expected to select: equalities first, long texts early."""
    return _RANK[c.op], -len(c.value) if isinstance(c.value, str) else 0


class ContentIndex:
    """A set of filters that answers which of them a notification matches."""

    def __init__(self) -> None:
        self._filters: dict[int, ContentFilter] = {}
        self._by_attribute: dict[tuple[str, ContentKind], _AttributeFilters] = {}
        self._open: set[int] = set()  # filters that ask nothing

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, id: int) -> bool:
        return id in self._filters

    def add(self, id: int, subscription: ContentFilter) -> None:
        """Add a filter, or replace the one with this id."""
        if id in self._filters:
            self.remove(id)
        self._filters[id] = subscription
        chosen = choose_constraint(subscription)
        if chosen is None:
            self._open.add(id)
        else:
            key = (chosen.name, chosen.kind)
            self._by_attribute.setdefault(key, _AttributeFilters()).enter(id, chosen)

    def remove(self, id: int) -> None:
        """Remove a filter; KeyError if there is none with this id."""
        chosen = choose_constraint(self._filters.pop(id))
        if chosen is None:
            self._open.discard(id)
        else:
            self._by_attribute[chosen.name, chosen.kind].withdraw(id, chosen)

    def match(self, notification: Content, age: int = 0) -> list[SubscriptionMatch]:  # noqa: ARG002
        """Return the matches by rising id; a filter ignores how old a notification is."""
        found = set(self._open)
        is_exact = True
        for name, value in notification.items():
            if isinstance(value, PossibleValues):
                is_exact = False
                for one, _ in value.degrees:
                    found.update(self._find(name, one, notification))
            else:
                found.update(self._find(name, value, notification))
        if is_exact:
            return [SubscriptionMatch(id, 255, 255, -1) for id in sorted(found)]
        return [
            SubscriptionMatch(id, *rate(self._filters[id], notification), -1)
            for id in sorted(found)
        ]

    def _find(self, name: str, value: object, notification: Content) -> Iterator[int]:
        """Yield the filters that match, of those entered under a value."""
        try:
            probe = Constraint(name, Op.EQ, value)  # type: ignore[arg-type]
        except ContentError:
            return  # of no kind that a constraint could hold for
        filters = self._by_attribute.get((name, probe.kind))
        if filters is not None:
            near = filters.find(probe.value)
            yield from (id for id in near if matches(self._filters[id], notification))
