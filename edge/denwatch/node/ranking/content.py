"""Typed-content subscriptions: constraints on named attributes, matching, and covering.

A `ContentFilter` is a conjunction of constraints (PrefSIENA, Definitions 2 and 3): `genre = Drama`
and `length > 100`. Only this file defines what a constraint means. It parses no text and does no
I/O: a language front end builds these dataclasses.

Two decisions go beyond the paper. Integers and floats are one kind, *number*, and are compared
exactly, because JSON and people do not distinguish 6 from 6.0, and a strict rule would lose
notifications silently. A notification is a mapping, so an attribute has one value, and `x >= 5`
with `x <= 5` covers the same as `x = 5`.

A `Region` is what all constraints on one attribute leave of it: an interval (a prefix is an
interval too: "ab" is everything from "ab" up to, but excluding, "ac"), with the suffixes and
substrings that a string must have. Excluded points are not stored: whether a point belongs is
decided by the constraints themselves, which is exact.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

_LAST_CHARACTER = chr(0x10FFFF)
Value = int | float | str | datetime
Content = Mapping[str, object]


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


@dataclass(slots=True)
class Region:
    """The values of one attribute that satisfy a conjunction of constraints on it."""

    constraints: tuple[Constraint, ...]
    low: Any = None  # None: no bound
    low_closed: bool = False
    high: Any = None
    high_closed: bool = False
    suffixes: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()  # every string that the value surely contains
    is_empty: bool = False

    @property
    def is_point(self) -> bool:
        """Whether exactly one value is left."""
        return self.low_closed and self.high_closed and bool(self.low == self.high)

    def admits(self, value: object) -> bool:
        """Return whether a value belongs to the region."""
        return all(constraint.accepts(value) for constraint in self.constraints)

    def raise_low(self, bound: Any) -> None:
        """Keep only what is at the bound or above."""
        self.low = bound if self.low is None else max(self.low, bound)

    def lower_high(self, bound: Any) -> None:
        """Keep only what is at the bound or below."""
        self.high = bound if self.high is None else min(self.high, bound)

    def lies_above(self, bound: Any, closed: bool) -> bool:
        """Return whether everything left is above the bound (or at it, if `closed`)."""
        if self.low is None:
            return False
        return bool(self.low > bound or (self.low == bound and (closed or not self.low_closed)))

    def lies_below(self, bound: Any, closed: bool) -> bool:
        """Return whether everything left is below the bound (or at it, if `closed`)."""
        if self.high is None:
            return False
        return bool(self.high < bound or (self.high == bound and (closed or not self.high_closed)))

    def starts_with(self, prefix: str) -> bool:
        """Return whether every string left has the prefix."""
        end = find_prefix_end(prefix)
        return not prefix or (
            self.lies_above(prefix, closed=True) and (end is None or self.lies_below(end, False))
        )


def build_region(constraints: Sequence[Constraint]) -> Region:
    """Draw the conclusions from all constraints on one attribute."""
    region = Region(tuple(constraints))
    if len({constraint.kind for constraint in constraints}) > 1:
        region.is_empty = True  # one value cannot be of two kinds
        return region
    suffixes: list[str] = []
    pieces: list[str] = []
    for constraint in constraints:
        value: Any = constraint.value
        match constraint.op.value:
            case "=":
                region.raise_low(value)
                region.lower_high(value)
            case ">" | ">=":
                region.raise_low(value)
            case "<" | "<=":
                region.lower_high(value)
            case "prefix" if value:
                pieces.append(value)
                region.raise_low(value)
                if (end := find_prefix_end(value)) is not None:
                    region.lower_high(end)
            case "suffix":
                suffixes.append(value)
                pieces.append(value)
            case "substring":
                pieces.append(value)
    # A bound is closed if it belongs itself: <, !=, a suffix or a prefix's end may exclude it.
    region.low_closed = region.low is not None and region.admits(region.low)
    region.high_closed = region.high is not None and region.admits(region.high)
    if isinstance(region.low, str) and isinstance(region.high, str):
        pieces.append(_find_common_start(region))
    region.suffixes, region.pieces = tuple(suffixes), tuple(pieces)
    region.is_empty = _is_empty(region)
    return region


def implies(region: Region, constraint: Constraint) -> bool:
    """Return whether every value of a region that is not empty satisfies the constraint.

    True is always right; on strings, False may be a miss.
    """
    if region.constraints[0].kind is not constraint.kind:
        return False
    if region.is_point:
        return constraint.accepts(region.low)
    value: Any = constraint.value
    match constraint.op.value:
        case "!=":
            return not region.admits(value)
        case ">" | ">=":
            return region.lies_above(value, closed=constraint.op.value == ">=")
        case "<" | "<=":
            return region.lies_below(value, closed=constraint.op.value == "<=")
        case "prefix":
            return region.starts_with(value)
        case "suffix":
            return not value or any(suffix.endswith(value) for suffix in region.suffixes)
        case "substring":
            return not value or any(value in piece for piece in region.pieces)
    return False  # "=" holds of a single point only


def find_prefix_end(prefix: str) -> str | None:
    """Return the first string after all strings with this prefix, or None if there is none."""
    kept = prefix.rstrip(_LAST_CHARACTER)
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None


def _find_common_start(region: Region) -> str:
    """Return a prefix that every string between the two bounds has."""
    length = 0
    for low, high in zip(region.low, region.high, strict=False):
        if low != high:
            break
        length += 1
    longer: str = region.low[: length + 1]
    return longer if region.starts_with(longer) else longer[:length]


def _is_empty(region: Region) -> bool:
    if region.low is not None and region.high is not None:
        if region.low > region.high:
            return True
        if region.low == region.high and not (region.low_closed and region.high_closed):
            return True
    longest = max(region.suffixes, key=len, default="")
    return not all(longest.endswith(suffix) for suffix in region.suffixes)


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

    @cached_property
    def _hash(self) -> int:
        return hash(self.constraints)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[ContentFilter], tuple[tuple[Constraint, ...]]]:
        # What is cached stays here: the hash of a string differs from process to process.
        return type(self), (self.constraints,)

    @cached_property
    def regions(self) -> dict[str, Region]:
        """What the constraints leave of each attribute they name."""
        by_name: dict[str, list[Constraint]] = {}
        for constraint in self.constraints:
            by_name.setdefault(constraint.name, []).append(constraint)
        return {name: build_region(group) for name, group in by_name.items()}

    @cached_property
    def is_empty(self) -> bool:
        """Whether the constraints contradict each other, as far as can be seen."""
        return any(region.is_empty for region in self.regions.values())

    def __str__(self) -> str:
        return " and ".join(map(str, self.constraints)) or "anything"


def matches(subscription: ContentFilter, notification: Content) -> bool:
    """Return whether every constraint is satisfied by the notification (Definition 3)."""
    for constraint in subscription.constraints:
        if not constraint.accepts(notification.get(constraint.name)):
            return False
    return True


def measure_degree(subscription: ContentFilter, notification: Content) -> int:
    """Return the degree of match on the scale of fuzzy subscriptions: 255 or 0."""
    return 255 if matches(subscription, notification) else 0


def covers(general: ContentFilter, special: ContentFilter) -> bool:
    """Return True only if every notification that matches `special` matches `general`.

    Sound for all operators. Exact for numbers and times taken as dense orders; of strings it may
    miss a cover that follows only from prefix, suffix, substring and ≠ taken together. It is
    reflexive and transitive, which the subscription graph relies on.
    """
    if special.is_empty:
        return True
    regions = special.regions
    for constraint in general.constraints:
        region = regions.get(constraint.name)
        if region is None or not implies(region, constraint):
            return False
    return True
