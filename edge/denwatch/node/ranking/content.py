"""Typed-content subscriptions: constraints on named attributes, and matching.

A `ContentFilter` is a conjunction of constraints (PrefSIENA, Definitions 2 and 3): `genre = Drama`
and `length > 100`. Only this file defines what a constraint means. It parses no text and does no
I/O: a language front end builds these dataclasses.

Two decisions go beyond the paper. Integers and floats are one kind, *number*, and are compared
exactly, because JSON and people do not distinguish 6 from 6.0, and a strict rule would lose
notifications silently. A notification is a mapping, so an attribute has one value.

An uncertain attribute has `PossibleValues`. It satisfies the constraints on it if a value that does
is possible to at least 0.5, what a fuzzy subscription asks for unless it says otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, Self

Value = int | float | str | datetime
Content = Mapping[str, object]


POSSIBLE = 128  # of 255


class PossibleValues(NamedTuple):
    """The values that an uncertain attribute may have, each with its possibility (1..255)."""

    degrees: tuple[tuple[Value, int], ...]


class ContentError(ValueError):
    """A constraint that no notification could be held against; the text names it."""


class ContentKind(StrEnum):
    """What may be compared with what."""

    NUMBER = "number"
    STRING = "string"
    TIME = "time"


class Op(StrEnum):
    """The operators of PrefSIENA; ≠, ≤ and ≥ are accepted as spellings."""

    EQ = "="
    NE = "!="
    LT = "<"
    GT = ">"
    LE = "<="
    GE = ">="
    SUBSTRING = "substring"
    PREFIX = "prefix"
    SUFFIX = "suffix"

    @classmethod
    def _missing_(cls, value: object) -> Op | None:
        return {"≠": cls.NE, "≤": cls.LE, "≥": cls.GE}.get(str(value))


_TEXT_ONLY = frozenset({Op.SUBSTRING, Op.PREFIX, Op.SUFFIX})
_TESTS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.GT: operator.gt,
    Op.LE: operator.le,
    Op.GE: operator.ge,
    Op.SUBSTRING: operator.contains,
    Op.PREFIX: str.startswith,
    Op.SUFFIX: str.endswith,
}
_KINDS: dict[type, ContentKind | None] = {
    int: ContentKind.NUMBER,
    float: ContentKind.NUMBER,
    str: ContentKind.STRING,
    datetime: ContentKind.TIME,
    bool: None,  # a bool is an int to Python; to a person "true > 0" is a mistake
}


def find_kind(value: object) -> ContentKind | None:
    """Return the kind of a value, or None if it is not one that can be compared."""
    try:
        return _KINDS[type(value)]
    except KeyError:
        for base in (str, datetime, int, float):
            if isinstance(value, base):
                return _KINDS[base]
        return None


def _read_op(name: str, op: str) -> Op:
    try:
        return Op(op)
    except ValueError:
        raise ContentError(f"{name}: unknown operator {op!r}") from None


def _normalise(value: Any, kind: ContentKind | None) -> Any:
    """Return the value in comparable form, or None: NaN and times without a zone have none."""
    if kind is ContentKind.NUMBER:
        return value if value == value else None
    if kind is ContentKind.TIME:
        # In UTC, because two zones can disagree about equality around a clock change.
        return None if value.utcoffset() is None else value.astimezone(UTC)
    return value if kind is ContentKind.STRING else None


@dataclass(frozen=True, slots=True)
class Constraint:
    """One condition on one attribute: `Constraint("length", ">", 120)`."""

    name: str
    op: Op
    value: Value
    kind: ContentKind = field(init=False, repr=False, compare=False)
    _test: Callable[[Any, Any], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        op = _read_op(self.name, self.op)
        kind = find_kind(self.value)
        value = _normalise(self.value, kind)
        if kind is None or value is None:
            raise ContentError(
                f"{self.name} {op}: {self.value!r} is not a number, a string or a time with a zone"
            )
        if op in _TEXT_ONLY and kind is not ContentKind.STRING:
            raise ContentError(f"{self.name}: {op} needs a string, not {self.value!r}")
        for slot, content in (("op", op), ("value", value), ("kind", kind), ("_test", _TESTS[op])):
            object.__setattr__(self, slot, content)

    def __reduce__(self) -> tuple[type[Constraint], tuple[str, Op, Value]]:
        # The derived fields hold functions: rebuild instead of copying, also across processes.
        return Constraint, (self.name, self.op, self.value)

    def accepts(self, value: object) -> bool:
        """Return whether an attribute's value satisfies this; another kind never does."""
        if find_kind(value) is not self.kind:
            return False
        if self.kind is not ContentKind.STRING:
            value = _normalise(value, self.kind)
            if value is None:
                return False
        return self._test(value, self.value)

    def __str__(self) -> str:
        return f"{self.name} {self.op} {self.value}"


@dataclass(frozen=True)
class ContentFilter:
    """A conjunction of constraints, in one canonical order; the empty one matches everything."""

    constraints: tuple[Constraint, ...]

    def __post_init__(self) -> None:
        unique = dict.fromkeys(self.constraints)
        ordered = sorted(unique, key=lambda c: (c.name, c.kind, c.op, c.value))
        object.__setattr__(self, "constraints", tuple(ordered))

    @classmethod
    def of(cls, *parts: tuple[str, str, Value]) -> Self:
        """Build a filter from triples: `Filter.of(("genre", "=", "Drama"), ("year", "<", 9))`."""
        return cls(tuple(Constraint(name, _read_op(name, op), value) for name, op, value in parts))

    def __str__(self) -> str:
        return " and ".join(map(str, self.constraints)) or "anything"


def matches(subscription: ContentFilter, notification: Content) -> bool:
    """Return whether every constraint is satisfied by the notification (Definition 3)."""
    for constraint in subscription.constraints:
        value = notification.get(constraint.name)
        if isinstance(value, PossibleValues):
            return rate(subscription, notification)[0] >= POSSIBLE
        if not constraint.accepts(value):
            return False
    return True


def rate(subscription: ContentFilter, notification: Content) -> tuple[int, int]:
    """Return how possible and how certain it is that all constraints are satisfied (0..255)."""
    possible = certain = 255
    for name in {constraint.name for constraint in subscription.constraints}:
        asked = [constraint for constraint in subscription.constraints if constraint.name == name]
        value = notification.get(name)
        degrees = value.degrees if isinstance(value, PossibleValues) else ((value, 255),)
        best = {True: 0, False: 0}
        for one, degree in degrees:
            is_met = all(constraint.accepts(one) for constraint in asked)
            best[is_met] = max(best[is_met], degree)
        possible = min(possible, best[True])
        certain = min(certain, 255 - best[False])
    return possible, certain
