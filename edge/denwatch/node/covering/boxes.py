"""Subscriptions as unions of integer boxes, covering between two of them, policies, and vectors.

A notification must carry every feature of a subscription to match it. Whoever matches t with
mask G may carry G alone, so s with mask F covers t only if F is a subset of G and t's boxes,
seen on F's attributes, lie inside s's.

`box_vector` turns a subscription vector into boxes: where it surely matches (inner), and where at
most it can (outer). Alpha-cuts commute with min, max and not, so under those the two are the same.
For the other aggregators the inner boxes are where every predicate alone is good enough, the outer
ones what every match must satisfy. A vector covers others with its inner boxes and is covered only
with its outer ones, so a vector reported covered is covered, whatever its aggregator. These boxes
describe exact readings. `box_doubtful` makes boxes that hold for uncertain ones too: they have the
threshold as one more dimension. README.md proves it.

This file is plain: no numba, no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from denwatch.protocol import cuts
from denwatch.protocol.degrees import CRISP, MAX, MIN, SUGENO, aggregate
from denwatch.protocol.vectors import NOT, OR, Predicate, SubscriptionVector

Rows = npt.NDArray[np.int32]  # (n, 2 * dimensions): lo0, hi0, lo1, hi1, ...
Interval = tuple[int, int]  # both ends belong to it
Box = Mapping[int, Interval]  # by bit number
Row = tuple[int, ...]  # lo0, hi0, lo1, hi1, ... over the bits of a mask, ascending

# Slots a block of rectangles has (`space.py`): few enough that bounds are tight, enough to scan.
BLOCK = 128
_SMALLEST, _LARGEST = -(2**31), 2**31 - 1  # rectangles are stored as 32-bit integers


@dataclass(frozen=True, slots=True)
class Domains:
    """The values that each attribute can take: one common interval, and exceptions by bit."""

    default: Interval = (0, 255)
    special: Mapping[int, Interval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [("default", self.default), *((f"bit {b}", i) for b, i in self.special.items())]
        for name, (low, high) in named:
            if not _SMALLEST <= low <= high <= _LARGEST:
                raise ValueError(
                    f"domain of {name} is not an interval of 32-bit integers: {low, high}"
                )

    def of(self, bit: int) -> Interval:
        """Return the domain of one attribute, or of its last reading."""
        return self.special.get(bit - OLD if OLD <= bit < AGE else bit, self.default)

    def span(self, mask: int) -> Row:
        """Return the box of everything over the attributes of a mask."""
        return tuple(end for bit in list_bits(mask) for end in self.of(bit))


@dataclass(frozen=True, slots=True)
class BoxedSubscription:
    """The features that a notification must carry, and the boxes of which its values meet one.

    A box maps an attribute's bit number to the interval of its values; an attribute of the mask
    that a box leaves out may have any value. Without boxes nothing matches.

    Where boxes cannot say exactly what matches, `boxes` hold what surely does and `outer` what can
    at most: the subscription covers others with the former and is covered only with the latter.
    """

    mask: int
    boxes: tuple[Box, ...]
    outer: tuple[Box, ...] | None = None  # None: the same as `boxes`
    is_loner: bool = False  # it covers others alone, but never together with others

    def __post_init__(self) -> None:
        if self.mask < 0:
            raise ValueError(f"a feature mask must not be negative, but is {self.mask}")
        for number, box in enumerate((*self.boxes, *(self.outer or ()))):
            for bit, (low, high) in box.items():
                if bit < 0 or not self.mask >> bit & 1:
                    raise ValueError(f"box {number}: bit {bit} is not in mask {self.mask:#x}")
                if low > high:
                    raise ValueError(f"box {number}, bit {bit}: {low} > {high}; leave it out")


def find_outer(subscription: BoxedSubscription) -> tuple[Box, ...]:
    """Return the boxes outside of which a subscription matches nothing."""
    return subscription.boxes if subscription.outer is None else subscription.outer


@lru_cache(maxsize=4096)
def list_bits(mask: int) -> tuple[int, ...]:
    """Return the bit numbers of a mask, ascending."""
    bits = []
    while mask:  # by set bits, not by length: masks may be long and sparse
        bits.append((mask & -mask).bit_length() - 1)
        mask &= mask - 1
    return tuple(bits)


def list_rows(boxes: Iterable[Box], mask: int, domains: Domains) -> list[Row]:
    """Return boxes over a mask that has all of their attributes, clipped to the domains.

    A box that lies outside a domain matches nothing and is left out, as are repetitions.
    """
    rows = []
    for box in boxes:
        row: list[int] = []
        for bit in list_bits(mask):
            least, most = domains.of(bit)
            low, high = box.get(bit, (least, most))
            row += (max(low, least), min(high, most))
        if all(low <= high for low, high in zip(row[::2], row[1::2], strict=True)):
            rows.append(tuple(row))
    return list(dict.fromkeys(rows))


def pack_rows(rows: Iterable[Row], mask: int) -> Rows:
    """Return boxes over a mask as an array, one row each."""
    listed = list(rows)
    return np.array(listed, dtype=np.int32).reshape(len(listed), 2 * mask.bit_count())


@lru_cache(maxsize=4096)
def find_columns(inner: int, outer: int) -> npt.NDArray[np.intp]:
    """Return where the columns of mask `inner` are among those of mask `outer`."""
    places = [index for index, bit in enumerate(list_bits(outer)) if inner >> bit & 1]
    columns = np.array([2 * place + end for place in places for end in (0, 1)], np.intp)
    columns.flags.writeable = False  # many callers share it
    return columns


def lift_rows(rows: Rows, inner: int, outer: int, domains: Domains) -> Rows:
    """Return boxes over mask `inner` as boxes over `outer`: any value in the attributes added."""
    lifted = np.empty((len(rows), 2 * outer.bit_count()), np.int32)
    lifted[:] = domains.span(outer)
    lifted[:, find_columns(inner, outer)] = rows
    return lifted


def subtract_row(row: Row, cut: Row) -> list[Row]:
    """Return what is left of a box outside another, as disjoint boxes (Subsumption, Fig. 4)."""
    pairs = range(0, len(row), 2)
    if any(row[i] > cut[i + 1] or row[i + 1] < cut[i] for i in pairs):
        return [row]
    pieces, rest = [], list(row)
    for i in pairs:
        if rest[i] < cut[i]:
            pieces.append((*rest[: i + 1], cut[i] - 1, *rest[i + 2 :]))
            rest[i] = cut[i]
        if rest[i + 1] > cut[i + 1]:
            pieces.append((*rest[:i], cut[i + 1] + 1, *rest[i + 1 :]))
            rest[i + 1] = cut[i + 1]
    return pieces


def cover_rows(rows: Iterable[Row], by: Iterable[Row]) -> bool:
    """Say whether the boxes `by` together cover all of the boxes `rows`."""
    left = list(rows)
    for cut in by:
        left = [piece for row in left for piece in subtract_row(row, cut)]
        if not left:
            break
    return not left


def covers(first: BoxedSubscription, second: BoxedSubscription, domains: Domains) -> bool:
    """Say whether every notification that can match the second subscription matches the first."""
    rows = list_rows(find_outer(second), second.mask, domains)
    if first.mask & ~second.mask:
        return not rows  # what matches nothing is covered by anything
    return cover_rows(rows, list_rows(first.boxes, second.mask, domains))


class Metric(Enum):
    """Which negative rectangles deserve to be cut first when not all of them can be."""

    RATIO = "benefit/cost"  # volume removed for each piece left behind
    BENEFIT = "benefit"  # volume removed
    COST = "cost"  # fewest pieces left behind


@dataclass(frozen=True, slots=True)
class PairWise:
    """A subscription is passive if one active subscription covers it alone."""


@dataclass(frozen=True, slots=True)
class Exact:
    """A subscription is passive if and only if the active ones together cover it.

    The negative space can grow with the number of subscriptions to the power of the dimensions:
    meant for few attributes, or as the judge of the approximate form.
    """

    merging: bool = False  # join what a cut leaves with adjacent negative rectangles
    pairs: bool = True  # look first for one active subscription that covers it alone


@dataclass(frozen=True, slots=True)
class Approximate:
    """Like `Exact`, but a new subscription leaves at most a budget of pieces behind.

    It may take a covered subscription for active, never the reverse. The budget is `k`, or, when
    `dynamic`, what is left of `k` for each active subscription: k * i minus the rectangles there
    are before the i-th.
    """

    k: int = 50
    dynamic: bool = False
    metric: Metric = Metric.RATIO
    merging: bool = False
    pairs: bool = True
    handover: bool = True  # on unsubscription, give sections to others that cover them too

    def __post_init__(self) -> None:
        if self.k < 0:
            raise ValueError(f"k must not be negative, but is {self.k}")


Policy = PairWise | Exact | Approximate


ATTRIBUTES_PER_EVENT = 16
# More boxes than this cost more than they save: the vector then covers nothing.
MAX_BOXES = 64


# Under doubt boxes have two more dimensions, after all attributes: how possible a reading is where
# it meets the box, and, for those who ask for certainty, how certain it is to be within.
LEVEL = 64 * ATTRIBUTES_PER_EVENT
CERTAINTY = LEVEL + 1
# An attribute with a temporal restrictor is another attribute, its last reading, and has an age.
# One without is no part of a mask that has it with: who asks for a reading of now does not cover
# who is content with one of earlier.
OLD = CERTAINTY + 1
AGE = OLD + 64 * ATTRIBUTES_PER_EVENT
_LEVEL = ATTRIBUTES_PER_EVENT  # either of them, while boxes are made of an event's 16 attributes


class _TooMany(Exception):
    """The formula has more boxes than it is worth."""


class _BoxSide(Enum):
    """What boxes say of the values that match; the last four of uncertain readings too."""

    INNER = "all in them match"
    OUTER = "all that match are in one"
    SENT = "every reading that may be a code in them matches"
    MEETING = "every reading that matches may be a code in one"
    HELD = "every reading that is certain to match lies in them"
    SURE = "every reading that lies within one is certain to match"


_INNER_SIDES = (_BoxSide.INNER, _BoxSide.SENT, _BoxSide.SURE)


def box_vector(vector: SubscriptionVector) -> BoxedSubscription:
    """Return a vector's boxes over global attribute bits: 16 * event + attribute."""
    base = ATTRIBUTES_PER_EVENT * vector.event
    mask = vector.features << base
    least = max(vector.threshold, vector.certain)
    try:
        outer = _list_boxes(vector, least, _BoxSide.OUTER)
        inner = _list_boxes(vector, least, _BoxSide.INNER)
    except _TooMany:
        return _restrict(vector, BoxedSubscription(mask, (), ({},)))
    if vector.recent or vector.significance:
        inner = []  # it is silent at times when those that it would cover are not
    return _restrict(vector, BoxedSubscription(mask, _shift(inner, base), _shift(outer, base)))


def box_doubtful(vector: SubscriptionVector) -> BoxedSubscription:
    """Return a vector's boxes as they hold for uncertain readings, see "Doubt" in README.md.

    Whoever asks for certainty has one feature more, so that it covers only its like.
    """
    base = ATTRIBUTES_PER_EVENT * vector.event
    mask = vector.features << base | 1 << LEVEL
    is_certain = vector.certain > 0
    if is_certain:
        mask |= 1 << CERTAINTY
    try:
        if is_certain:
            outer = _list_boxes(vector, vector.certain, _BoxSide.HELD)
        else:
            outer = _list_boxes(vector, vector.threshold, _BoxSide.MEETING)
        side = _BoxSide.SURE if is_certain else _BoxSide.SENT
        inner = _list_boxes(vector, max(vector.threshold, vector.certain), side)
    except _TooMany:
        inner, outer = [], [{}]
    if vector.recent or vector.significance:
        inner = []  # it is silent at times when those that it would cover are not
    if len(inner) > 1 if is_certain else any(p.certain for p in vector.predicates):
        inner = []  # a reading within a union need not be within one of its boxes
    dimension = CERTAINTY if is_certain else LEVEL
    asked, given = [], []
    for box, place in zip(outer, _shift(outer, base), strict=True):
        level = box.get(_LEVEL, (0, 255))[1]
        asked.append({**place, LEVEL: (255, 255), dimension: (level, level)})
    for box, place in zip(inner, _shift(inner, base), strict=True):
        level = box.get(_LEVEL, (0, 255))[0]
        if is_certain:  # within the box it is possible enough; certain it need be only to this
            sure = _list_boxes(vector, vector.certain, _BoxSide.SURE, is_certain=True)
            level = max(one.get(_LEVEL, (0, 255))[0] for one in sure)
        given.append({**place, dimension: (level, 255)})
    return _restrict(vector, BoxedSubscription(mask, tuple(given), tuple(asked), is_certain))


def _restrict(vector: SubscriptionVector, boxed: BoxedSubscription) -> BoxedSubscription:
    """Return boxes in which attributes with restrictors are last readings with an age.

    One of a subscription's readings must be new. If all have restrictors, that need not be one of
    those that it shares with whom it would cover: then it covers nobody.
    """
    if not vector.restrictors:
        return boxed
    base = ATTRIBUTES_PER_EVENT * vector.event
    codes = dict(zip(list_bits(vector.features << base), vector.restrictors, strict=True))
    limits = {bit: code for bit, code in codes.items() if code}
    mask = boxed.mask
    for bit in limits:
        mask = mask & ~(1 << bit) | 1 << OLD + bit | 1 << AGE + bit
    ages = {AGE + bit: (0, code) for bit, code in limits.items()}

    def move(boxes: tuple[Box, ...]) -> tuple[Box, ...]:
        return tuple(
            {**{OLD + bit if bit in limits else bit: ends for bit, ends in box.items()}, **ages}
            for box in boxes
        )

    inner = move(boxed.boxes) if len(limits) < len(codes) else ()
    return BoxedSubscription(mask, inner, move(find_outer(boxed)), boxed.is_loner)


def _shift(boxes: list[Box], base: int) -> tuple[Box, ...]:
    return tuple(
        {base + bit: interval for bit, interval in box.items() if bit != _LEVEL} for box in boxes
    )


def _list_boxes(
    vector: SubscriptionVector, least: int, side: _BoxSide, *, is_certain: bool = False
) -> list[Box]:
    """Return boxes inside or around the values whose degree is at least `least`.

    `is_certain`: only what is asked of certainty counts.
    """
    is_certain = is_certain or side is _BoxSide.HELD
    is_inner = side in _INNER_SIDES
    tokens = list(vector.pattern)
    kind = vector.aggregator
    if kind == SUGENO:
        boxes: list[Box] = [] if is_inner else [{}]
    elif not tokens:
        boxes = _combine(vector, list(range(len(vector.predicates))), kind, least, side)
    elif kind != MIN and NOT in tokens:
        # An upper bound of a mean says little about its parts.
        boxes = [] if is_inner else [{}]
    else:
        boxes = _walk(vector, tokens, least, True, side)
    for p in vector.predicates:
        if side is _BoxSide.MEETING:
            if p.possible:
                boxes = _intersect(boxes, _list_cuts(p, p.possible, side), side)
            if p.certain:  # the core is within it: the reading meets it at every level
                sure: list[Box] = [{p.attribute: i} for i in _cut(p, p.certain, side)]
                boxes = _intersect(boxes, sure, side)
            continue
        theta = p.certain if is_certain else max(p.possible, p.certain)
        if theta:
            boxes = _intersect(boxes, _list_cuts(p, theta, side), side)
    return boxes


def _combine(
    vector: SubscriptionVector, leaves: list[int], kind: int, least: int, side: _BoxSide
) -> list[Box]:
    """Return the boxes of one aggregation of predicates."""
    weights = bytes(vector.predicates[leaf].weight for leaf in leaves)
    levels = _find_levels(kind, len(leaves), least, weights, side)
    parts = [_list_cuts(vector.predicates[i], t, side) for i, t in zip(leaves, levels, strict=True)]
    if kind == MAX:
        return _limit([box for part in parts for box in part])
    boxes: list[Box] = [{}]
    for part in parts:
        boxes = _intersect(boxes, part, side)
    return boxes


def _find_levels(kind: int, count: int, least: int, weights: bytes, side: _BoxSide) -> list[int]:
    """Return what each operand must reach: enough for the aggregate, or needed for it."""
    if kind in (MIN, MAX):
        return [least] * count
    if side not in _INNER_SIDES:
        return [cuts.find_level(kind, count, least, weights, i) for i in range(count)]
    for level in range(least, 256):  # all operands at one level: the lowest that is enough
        if aggregate(kind, bytearray([level] * count), 0, count, weights, 0) >= least:
            return [level] * count
    return [256] * count


def _walk(
    vector: SubscriptionVector, tokens: list[int], t: int, up: bool, side: _BoxSide
) -> list[Box]:
    """Take one formula off the end of a postfix pattern; return its boxes.

    They hold where its degree is at least t, or, if not `up`, where it is at most 255 - t.
    """
    op = tokens.pop()
    if op == NOT:
        return _walk(vector, tokens, t, not up, side)
    if op < len(vector.predicates):
        p = vector.predicates[op]
        return _list_cuts(p if up else _negate(p), t, side)
    is_or = op & 0xF0 == OR
    count = op & 15
    if is_or or vector.aggregator == MIN:
        levels = [t] * count
    else:
        levels = _find_levels(vector.aggregator, count, t, b"", side)
    parts = [_walk(vector, tokens, level, up, side) for level in reversed(levels)]
    if is_or == up:
        return _limit([box for part in parts for box in part])
    boxes: list[Box] = [{}]
    for part in parts:
        boxes = _intersect(boxes, part, side)
    return boxes


def _negate(p: Predicate) -> Predicate:
    fields = dict(zip(p.FIELDS, p.fields(), strict=True))
    fields["negated"] = not p.negated
    return Predicate(**fields)  # type: ignore[arg-type]  # the fields of a Predicate


def _list_cuts(p: Predicate, t: int, side: _BoxSide) -> list[Box]:
    """Return where a predicate reaches t, and the levels of a reading at which that counts.

    A reading that is possible to any of (t, 255) there reaches t; one that reaches t is possible to
    t there. Every reading reaches 0, with its core.
    """
    levels = (t, 255) if side in _INNER_SIDES else (0, t or 255)
    return [{p.attribute: interval, _LEVEL: levels} for interval in _cut(p, min(t, 256), side)]


def _cut(p: Predicate, t: int, side: _BoxSide) -> list[Interval]:
    """Return the codes where a predicate reaches t.

    Cuts of uncertain readings end between codes, and hedges round otherwise there: a cut is rounded
    inwards or outwards, and holds for exact readings as well. A reading that is certain of a crisp
    set may reach beyond it, up to the next code: a set that falls off does not contain it there.
    """
    codes = cuts.cut(p, t)
    if side in (_BoxSide.INNER, _BoxSide.OUTER) or not 0 < t < 256:
        return codes
    unit = 16 if p.wide else 256
    low, high = cuts.cut_finely(p, 256 - t if p.negated else t)
    if p.negated:
        start, stop = cuts.cut(_negate(p), 256 - t)[0]  # of what is not meant
        low -= unit if p.left == CRISP else 1
        high += unit if p.right == CRISP else 1
        if side in _INNER_SIDES:
            intervals = [
                (0, min(start - 1, low // unit)),
                (max(stop + 1, -(-high // unit)), p.last),
            ]
        else:
            intervals = [
                (0, max(start - 1, -(-low // unit))),
                (min(stop + 1, high // unit), p.last),
            ]
    elif side in _INNER_SIDES:
        start, stop = codes[0]
        intervals = [(max(start, -(-low // unit)), min(stop, high // unit))]
    else:
        start, stop = codes[0]
        intervals = [(min(start, low // unit), max(stop, -(-high // unit)))]
    if side is _BoxSide.SURE:  # an end at the domain's is none
        left, right = int(p.left != CRISP), int(p.right != CRISP)
        if p.negated:
            (low, high), (start, stop) = intervals
            intervals = [(low, high - left), (start + right, stop)]
        else:
            low, high = intervals[0]
            intervals = [(low + left if low > 0 else low, high - right if high < p.last else high)]
    clipped = [(max(low, 0), min(high, p.last)) for low, high in intervals]
    return [(low, high) for low, high in clipped if low <= high]


def _intersect(boxes: list[Box], others: list[Box], side: _BoxSide) -> list[Box]:
    """Return the boxes that lie in one of each side, without the empty ones.

    An uncertain reading can meet two intervals that have nothing in common; then it meets the
    first. If they do have, it meets what they share: of three intervals that meet each other, all
    share a point.
    """
    joined: list[Box] = []
    for box in boxes:
        for other in others:
            both = dict(box)
            for bit, (low, high) in other.items():
                start, stop = both.get(bit, (low, high))
                if side is not _BoxSide.MEETING or (start <= high and low <= stop):
                    both[bit] = (max(start, low), min(stop, high))
            if all(low <= high for low, high in both.values()):
                joined.append(both)
    return _limit(joined)


def _limit(boxes: list[Box]) -> list[Box]:
    if len(boxes) > MAX_BOXES:
        raise _TooMany
    return boxes
