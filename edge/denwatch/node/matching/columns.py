"""The index without a compiler: plain Python for a few subscriptions, numpy columns for many.

`ColumnIndex` answers what `FuzzyIndex` and `protocol.matching.match` answer. A node serves with it
from its first second on; `matcher.py` moves subscriptions to the compiled index if there is one.

THEORY     Subscriptions of one event stand in columns, one row each: the feature mask, and for each
           attribute the ends of its interval (`hulls.py`). A notification compares each column with
           its reading, all rows at once. Rows that lack nothing and meet every interval are
           candidates, and those are evaluated exactly.
UNCERTAIN  A reading's cut depends on the level that a subscription asks for. First the widest cut
           is compared, then, for the rows that are left, the cut at each row's own level.
EXACT      The min of up to four 8-bit predicates, with exact readings, is evaluated over all
           candidates at once (`_rate`). Everything else is decoded and evaluated by the protocol's
           own `match`: the definition itself, one at a time.
FEW        Up to 64 subscriptions of an event, a loop over tuples takes less time than the first
           numpy call; the tuples are made from the columns when they are needed.
MASKS      A device's readings have one feature mask. The rows that lack nothing of it, with their
           ends, are kept for the masks that came last, until a row comes or goes: of 100,000
           subscriptions over seven attributes, a device with three of them meets 3,000.
INVARIANT  Rows 0..size-1 are in use; a row that leaves is replaced by the last one. `_places` leads
           from an id to its event and row, and to no other.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from denwatch.node.matching.evaluation import HEDGE, SLOPE
from denwatch.node.matching.facts import ATTRIBUTES, WORDS, Facts, find_fact, pack_facts
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol import subscription as codec
from denwatch.protocol.matching import match as match_one
from denwatch.protocol.vectors import NotificationVector, Reading, SubscriptionVector
from numpy.typing import NDArray

FEW = 64
_FIRST = 64  # rows of a new column
_DECODED = 2048  # vectors that are remembered
_EVENT_BITS = 6
_MASKS = 8  # feature masks whose rows are kept
_NEAR = 1024  # ids that may be left out before one
_AT_ONCE = 6  # candidates from which on numpy rates them all at once

_SLOPES: list[int] = SLOPE.tolist()
_HEDGES: list[list[int]] = HEDGE.tolist()
_LEVELS = np.arange(1, 256, dtype=np.int64)

Spans = dict[int, tuple[int, int]]  # by attribute: between which 8-bit values a reading lies
_Row = tuple[int, int, int, tuple[tuple[int, int, int], ...]]  # row, features, level, bounds
Answer = tuple[int, int, int, int]  # id, possible, certain, attribute

_decode = lru_cache(maxsize=_DECODED)(codec.decode)


class _Places:
    """Where each id is: row and event, -1 if it is nowhere.

    A node counts its subscriptions from 0 on, and may have many: such ids are the places of an
    array, eight bytes each. Others are in a dict.
    """

    def __init__(self) -> None:
        self._near: array[int] = array("q")
        self._far: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, id: int) -> int:
        """Return the place of an id."""
        return self._near[id] if id < len(self._near) else self._far.get(id, -1)

    def put(self, id: int, place: int) -> None:
        """Note the place of an id."""
        self._count += self.find(id) < 0
        if len(self._near) <= id < len(self._near) + _NEAR:
            for number in range(len(self._near), id + 1):
                self._near.append(self._far.pop(number, -1))
        if id < len(self._near):
            self._near[id] = place
        else:
            self._far[id] = place

    def remove(self, id: int) -> None:
        """Forget an id that has a place."""
        self._count -= 1
        if id < len(self._near):
            self._near[id] = -1
        else:
            del self._far[id]


class ColumnIndex:
    """A set of fuzzy subscriptions that answers which of them a notification matches."""

    def __init__(self) -> None:
        self._events: dict[int, EventColumns] = {}
        self._places = _Places()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, id: int) -> bool:
        return self._places.find(id) >= 0

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        if not 0 <= id < 1 << 64:
            raise ValueError(f"id {id} is not in 0..2**64 - 1")
        data = codec.encode(subscription)
        self.add_facts([id], pack_facts([find_fact(subscription)]), [data])

    def add_facts(self, ids: Sequence[int], facts: Facts, vectors: Sequence[bytes]) -> None:
        """Add subscriptions by the facts of their vectors, or replace those with these ids.

        The ids must differ.
        """
        for id in ids:
            if self._places.find(id) >= 0:
                self.remove(id)
        numbers = np.array(ids, np.uint64)
        events = facts["event"]
        for event in np.unique(events).tolist():
            columns = self._events.get(event)
            if columns is None:
                columns = self._events[event] = EventColumns()
            mine = np.flatnonzero(events == event)
            row = columns.append(numbers[mine], facts[mine], [vectors[i] for i in mine.tolist()])
            for i in mine.tolist():
                self._places.put(ids[i], row << _EVENT_BITS | event)
                row += 1

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        place = self._places.find(id)
        if place < 0:
            raise KeyError(id)
        self._places.remove(id)
        event = place & (1 << _EVENT_BITS) - 1
        columns = self._events[event]
        moved = columns.remove(place >> _EVENT_BITS)
        if moved is not None:
            self._places.put(moved, place)
        if not columns.size:
            del self._events[event]

    def take(self, count: int) -> list[tuple[int, SubscriptionVector]]:
        """Remove up to so many subscriptions, and return them with their ids."""
        taken: list[tuple[int, SubscriptionVector]] = []
        while self._events and len(taken) < count:
            columns = next(reversed(self._events.values()))
            last = columns.size - 1
            id = int(columns.ids[last])
            taken.append((id, codec.decode(columns.vectors[last])))
            self.remove(id)
        return taken

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the matches by rising id; `age` is the notification's, in seconds."""
        rows = self.find_matches(notification, age)
        rows.sort()
        return [SubscriptionMatch(*row) for row in rows]

    def match_many(
        self, notifications: Sequence[NotificationVector], ages: Sequence[int]
    ) -> list[list[Answer]]:
        """Return the matches of each notification, in no order."""
        return [self.find_matches(n, age) for n, age in zip(notifications, ages, strict=True)]

    def find_matches(self, notification: NotificationVector, age: int) -> list[Answer]:
        """Return the matches of one notification, in no order."""
        columns = self._events.get(notification.event)
        return [] if columns is None else columns.find_matches(notification, age)


class EventColumns:
    """The subscriptions of one event."""

    def __init__(self) -> None:
        self.size = 0
        self.ids: NDArray[np.uint64] = np.empty(_FIRST, np.uint64)
        self.vectors: list[bytes] = []
        self._features: NDArray[np.uint16] = np.empty(_FIRST, np.uint16)
        self._levels: NDArray[np.uint8] = np.empty(_FIRST, np.uint8)
        self._ends: dict[int, NDArray[np.uint8]] = {}  # by attribute: the row of lows, and of highs
        self._limits: NDArray[np.uint8] = np.empty(_FIRST, np.uint8)  # what a min must reach
        self._counts: NDArray[np.uint8] = np.empty(_FIRST, np.uint8)  # predicates of a min, else 0
        self._words: NDArray[np.int64] = np.empty((_FIRST, WORDS), np.int64)
        self._met: NDArray[np.bool_] = np.empty(_FIRST, np.bool_)  # scratch
        self._tried: NDArray[np.bool_] = np.empty(_FIRST, np.bool_)
        self._few: list[_Row] | None = None
        # By feature mask: the rows that lack nothing, and their ends by attribute.
        self._possible: dict[int, tuple[NDArray[np.intp], dict[int, NDArray[np.uint8]]]] = {}

    def append(self, ids: NDArray[np.uint64], facts: Facts, vectors: Sequence[bytes]) -> int:
        """Add subscriptions that are not here yet; return the row of the first."""
        row = self.size
        self.size += len(ids)
        if self.size > len(self.ids):
            self._grow(row)
        self._forget()
        rows = slice(row, self.size)
        self.ids[rows] = ids
        self.vectors.extend(vectors)
        self._features[rows] = facts["features"]
        self._levels[rows] = facts["level"]
        self._limits[rows] = np.maximum(facts["threshold"], facts["certain"])
        self._counts[rows] = facts["count"]
        self._words[rows] = facts["words"]
        asked = (facts["lows"] > 0).any(axis=0) | (facts["highs"] < 255).any(axis=0)
        for attribute in np.flatnonzero(asked).tolist():
            if attribute not in self._ends:
                ends = self._ends[attribute] = np.zeros((2, len(self.ids)), np.uint8)
                ends[1] = 255
        for attribute, ends in self._ends.items():
            ends[0, rows] = facts["lows"][:, attribute]
            ends[1, rows] = facts["highs"][:, attribute]
        return row

    def remove(self, row: int) -> int | None:
        """Remove a row; return the id of the one that stands there now, None if none does."""
        self.size -= 1
        self._forget()
        last = self.size
        data = self.vectors.pop()
        if row == last:
            return None
        self.vectors[row] = data
        for column in (self.ids, self._features, self._levels, self._limits, self._counts):
            column[row] = column[last]
        self._words[row] = self._words[last]
        for ends in self._ends.values():
            ends[:, row] = ends[:, last]
        return int(self.ids[row])

    def _forget(self) -> None:
        """Forget what was made of the rows: they change."""
        self._few = None
        self._possible.clear()

    def _grow(self, used: int) -> None:
        rows = self.size + max(len(self.ids) // 4, _FIRST)
        self.ids = _extend(self.ids, rows)
        self._features = _extend(self._features, rows)
        self._levels = _extend(self._levels, rows)
        self._limits = _extend(self._limits, rows)
        self._counts = _extend(self._counts, rows)
        words = np.empty((rows, WORDS), np.int64)
        words[:used] = self._words[:used]
        self._words = words
        self._met = np.empty(rows, np.bool_)
        self._tried = np.empty(rows, np.bool_)
        for attribute, ends in self._ends.items():
            larger = np.empty((2, rows), np.uint8)
            larger[:, :used] = ends[:, :used]
            self._ends[attribute] = larger

    def find_matches(self, n: NotificationVector, age: int) -> list[Answer]:
        """Return the matches of one notification by its new readings, in no order.

        `joins.py` has the subscriptions that may use what was read earlier.
        """
        features = n.features & ~n.olds
        readings = [r for r in n.readings if not r.age] if n.olds else n.readings
        is_exact = all(r.points[0] == r.points[3] and not r.wide for r in readings)
        if is_exact:
            values = {r.attribute: r.points[0] for r in readings}
            if self.size <= FEW:
                rows = self._pick_exactly(features, values)
            else:
                rows = self._select(features, {a: (x, x) for a, x in values.items()}).tolist()
            return self._rate(rows, values, n, age) if rows else []
        if self.size <= FEW:
            rows = self._pick(features, readings)
        else:
            rows = self._select_uncertain(features, readings).tolist()
        return [answer for row in rows if (answer := self._evaluate(row, n, age)) is not None]

    # Candidates of a few --------------------------------------------------------------------

    def _list_few(self) -> list[_Row]:
        if self._few is None:
            self._few = []
            for row in range(self.size):
                ends = [(a, int(e[0, row]), int(e[1, row])) for a, e in self._ends.items()]
                asked = tuple(bound for bound in ends if bound[1:] != (0, 255))
                self._few.append((row, int(self._features[row]), int(self._levels[row]), asked))
        return self._few

    def _pick_exactly(self, features: int, values: dict[int, int]) -> list[int]:
        found = []
        for row, needed, _, bounds in self._list_few():
            if needed & ~features:
                continue
            for attribute, low, high in bounds:
                if not low <= values[attribute] <= high:
                    break
            else:
                found.append(row)
        return found

    def _pick(self, features: int, readings: Sequence[Reading]) -> list[int]:
        found = []
        spans: dict[int, Spans] = {}  # by level
        for row, needed, level, bounds in self._list_few():
            if needed & ~features:
                continue
            if level not in spans:
                spans[level] = {r.attribute: bound_reading(r, level) for r in readings}
            span = spans[level]
            if all(span[a][0] <= high and low <= span[a][1] for a, low, high in bounds):
                found.append(row)
        return found

    # Candidates of many ---------------------------------------------------------------------

    def _select(self, features: int, spans: Spans) -> NDArray[np.intp]:
        """Return the rows that lack nothing and meet every span."""
        rows, columns = self._find_possible(features)
        met, tried = self._met[: len(rows)], self._tried[: len(rows)]
        met.fill(True)
        for attribute, (first, last) in spans.items():
            ends = columns.get(attribute)
            if ends is not None:
                np.less_equal(ends[0], last, out=tried)
                np.logical_and(met, tried, out=met)
                np.greater_equal(ends[1], first, out=tried)
                np.logical_and(met, tried, out=met)
        return rows[met]

    def _find_possible(
        self, features: int
    ) -> tuple[NDArray[np.intp], dict[int, NDArray[np.uint8]]]:
        """Return the rows that lack nothing of a feature mask, and their ends by attribute."""
        known = self._possible.get(features)
        if known is None:
            lacks = self._features[: self.size] & np.uint16(~features & 0xFFFF)
            rows = np.flatnonzero(lacks == 0)
            ends = {a: ends[:, rows] for a, ends in self._ends.items() if features >> a & 1}
            if len(self._possible) == _MASKS:
                del self._possible[next(iter(self._possible))]
            known = self._possible[features] = rows, ends
        return known

    def _select_uncertain(self, features: int, readings: Sequence[Reading]) -> NDArray[np.intp]:
        """Return the rows that each reading meets at the row's own level."""
        rows = self._select(features, {r.attribute: bound_reading(r, 1) for r in readings})
        if not len(rows):
            return rows
        levels = self._levels[rows]
        met = np.ones(len(rows), np.bool_)
        for r in readings:
            ends = self._ends.get(r.attribute)
            if ends is not None:
                first, last = bound_reading_at_all(r)
                met &= (ends[0, rows] <= last[levels]) & (ends[1, rows] >= first[levels])
        return rows[met]

    # Exact evaluation -----------------------------------------------------------------------

    def _evaluate(self, row: int, n: NotificationVector, age: int) -> Answer | None:
        """Return the answer of a row by the definition; None if it does not match."""
        s = _decode(self.vectors[row])
        found = match_one(s, n, age)
        if found is None or not found.matched:
            return None
        attribute = s.predicates[found.predicate].attribute
        return int(self.ids[row]), found.possible, found.certain, attribute

    def _rate(
        self, rows: list[int], values: dict[int, int], n: NotificationVector, age: int
    ) -> list[Answer]:
        """Return the answers among candidates for exact 8-bit readings."""
        if len(rows) >= _AT_ONCE:
            answers, rest = self._rate_together(np.array(rows), values)
        else:
            answers, rest = [], []
            for row in rows:
                count = int(self._counts[row])
                if not count:
                    rest.append(row)
                    continue
                least, attribute = rate_words(self._words[row, :count].tolist(), values)
                if least >= self._limits[row]:
                    answers.append((int(self.ids[row]), least, least, attribute))
        for row in rest:
            answer = self._evaluate(row, n, age)
            if answer is not None:
                answers.append(answer)
        return answers

    def _rate_together(
        self, rows: NDArray[np.intp], values: dict[int, int]
    ) -> tuple[list[Answer], list[int]]:
        """Return the answers of those that are a min of words, and the other rows."""
        counts = self._counts[rows]
        rest = rows[counts == 0].tolist()
        if rest:
            rows = rows[counts > 0]
            counts = counts[counts > 0]
        if not len(rows):
            return [], rest
        known = np.zeros(ATTRIBUTES, np.int64)
        known[list(values)] = list(values.values())
        words = self._words[rows]
        least = np.full(len(rows), 256, np.int64)
        blame = np.zeros(len(rows), np.int64)
        for j in range(int(counts.max())):
            word = words[:, j]
            attribute = (word >> 54) & 15
            x = known[attribute]
            below = (word & 0xFFFF) - x
            above = x - ((word >> 16) & 0xFFFF)
            lost = np.maximum(below, 0) * SLOPE[(word >> 32) & 255]
            lost += np.maximum(above, 0) * SLOPE[(word >> 40) & 255]
            degree = np.maximum(255 - ((lost + 128) >> 8), 0)
            tone = (word >> 48) & 31
            if tone.any():
                degree = HEDGE[tone & 15, degree]
                degree = np.where(tone & 16, 255 - degree, degree)
            is_less = (degree < least) & (j < counts)
            least = np.where(is_less, degree, least)
            blame = np.where(is_less, attribute, blame)
        fits = least >= self._limits[rows]
        degrees = least[fits].tolist()
        ids = self.ids[rows[fits]].tolist()
        return list(zip(ids, degrees, degrees, blame[fits].tolist(), strict=True)), rest


def _extend(column: NDArray[Any], rows: int) -> NDArray[Any]:
    larger = np.empty(rows, column.dtype)
    larger[: len(column)] = column
    return larger


def rate_words(words: Iterable[int], values: dict[int, int]) -> tuple[int, int]:
    """Return the least degree of predicates for exact values, and the attribute that has it."""
    least, blame = 256, 0
    for word in words:
        attribute = word >> 54 & 15
        x = values[attribute]
        degree = 255
        if x < word & 0xFFFF:
            lost = ((word & 0xFFFF) - x) * _SLOPES[word >> 32 & 255]
            degree = max(255 - (lost + 128 >> 8), 0)
        elif x > word >> 16 & 0xFFFF:
            lost = (x - (word >> 16 & 0xFFFF)) * _SLOPES[word >> 40 & 255]
            degree = max(255 - (lost + 128 >> 8), 0)
        tone = word >> 48 & 31
        if tone:
            degree = _HEDGES[tone & 15][degree]
            if tone & 16:
                degree = 255 - degree
        if degree < least:
            least, blame = degree, attribute
    return least, blame


# Readings ---------------------------------------------------------------------------------------


def bound_reading(reading: Reading, t: int) -> tuple[int, int]:
    """Return the 8-bit values between which a reading's t-cut lies, as `search.bound_reading`."""
    first, last = _bound(reading, t)
    return max(first, 0), min(last, 255)


def bound_reading_at_all(reading: Reading) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the same for t = 0..255, as two columns; of t = 0 that of 1."""
    first, last = _bound(reading, _LEVELS)
    return (
        np.concatenate([first[:1], first]).clip(0, 255),
        np.concatenate([last[:1], last]).clip(0, 255),
    )


def _bound(reading: Reading, t: Any) -> tuple[Any, Any]:
    """Bounds at either resolution, which round differently; rounded outwards."""
    if reading.wide:
        fine = reading.points
        coarse = tuple(point >> 8 for point in reading.points)
    else:
        fine = tuple(257 * point for point in reading.points)  # type: ignore[assignment]
        coarse = reading.points
    first, last = _cut(fine, t, 16)
    low, high = _cut(coarse, t, 256)
    if isinstance(t, int):
        return min(first >> 12, low >> 8), max((last + 4095) >> 12, (high + 255) >> 8)
    return (
        np.minimum(first >> 12, low >> 8),
        np.maximum((last + 4095) >> 12, (high + 255) >> 8),
    )


def _cut(points: tuple[int, ...], t: Any, unit: int) -> tuple[Any, Any]:
    a, b, c, d = points
    share = (2 * t - 1) * unit
    return a * unit + (share * (b - a) + 509) // 510, d * unit - (share * (d - c) + 509) // 510
