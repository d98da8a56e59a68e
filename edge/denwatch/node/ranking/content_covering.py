"""When one typed-content subscription covers another (PrefSIENA, section 3.1).

A `Region` is what all constraints on one attribute leave of it: an interval (a prefix is an
interval too: "ab" is everything from "ab" up to, but excluding, "ac"), with the suffixes and
substrings that a string must have. Excluded points are not stored: whether a point belongs is
decided by the constraints themselves, which is exact. A notification is a mapping, so an attribute
has one value, and `x >= 5` with `x <= 5` covers the same as `x = 5`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from denwatch.node.ranking.content import Constraint, ContentFilter

_LAST_CHARACTER = chr(0x10FFFF)


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


@cache
def find_regions(subscription: ContentFilter) -> dict[str, Region]:
    """Return what the constraints leave of each attribute that they name."""
    by_name: dict[str, list[Constraint]] = {}
    for constraint in subscription.constraints:
        by_name.setdefault(constraint.name, []).append(constraint)
    return {name: build_region(group) for name, group in by_name.items()}


def covers(general: ContentFilter, special: ContentFilter) -> bool:
    """Return True only if every notification that matches `special` matches `general`.

    Sound for all operators. Exact for numbers and times taken as dense orders; of strings it may
    miss a cover that follows only from prefix, suffix, substring and ≠ taken together. It is
    reflexive and transitive, which the subscription graph relies on.
    """
    regions = find_regions(special)
    if any(region.is_empty for region in regions.values()):
        return True
    for constraint in general.constraints:
        region = regions.get(constraint.name)
        if region is None or not implies(region, constraint):
            return False
    return True
