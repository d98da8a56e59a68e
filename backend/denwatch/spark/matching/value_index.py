"""A shorter way into the index, for very many small masks: from a value to who may want it.

A node must take a subscription at any moment; here all are known before the first notification
comes, and there are millions of those. So every plain subscription (the min of 8-bit sets) is filed
under each value of its most selective interval, with its mask and its second interval beside it: a
notification looks up its few values, runs along their lists dropping those whose mask it lacks or
whose second interval it misses, and evaluates the few that are left by the index's own records.
Where masks are few and lists would be long, the index's bit rows are better: `build_stabs` decides.
Readings in doubt or of 16 bits, and subscriptions that are not plain, always go to the index.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from denwatch.node.matching.batch import EVENT_ATTRIBUTES, MatchBatch, NotificationBatch
from denwatch.node.matching.compiling import Array, compiled, int64, prefetch
from denwatch.node.matching.evaluation import NO_MATCH, cut_set, evaluate_plain
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.masks import COUNT_GROUPS, grow
from denwatch.node.matching.records import (
    HEADER,
    PLAIN,
    gather_records,
    get_attribute,
    get_certain,
    get_count,
    get_flags,
    get_threshold,
)
from numpy.typing import NDArray

VALUES = 256
MAX_LIST = 256  # subscriptions under a value, on average: a bound for the memory
# The bit rows take as long for a reading as so many entries of a list, and for each mask of its
# event as so many more; seen with 8 to 18,000 masks, 20,000 and 100,000 subscriptions.
_ROWS, _MASK_ROWS = 20, 2
_MASK, _SECOND, _FIRST, _LAST = 48, 44, 36, 28  # where the parts of an entry begin
_PLACE = (1 << _LAST) - 1
_AHEAD = 8  # readings, or candidates, from asking for memory to using it
_LINE = 8  # numbers in a line of the cache


@dataclass(frozen=True)
class Stabs:
    """Plain subscriptions by (attribute, value): entries[starts[key] : starts[key + 1]].

    An entry is, from the top: the mask within the event 16 bits, the attribute of the second
    interval 4, its first and last value 8 each, the place of the record 28.
    """

    starts: NDArray[np.int64]
    entries: NDArray[np.int64]
    recs: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write all arrays into one file."""
        np.save(path, np.concatenate(([len(self.starts), len(self.entries)], *self._arrays())))

    def _arrays(self) -> tuple[NDArray[np.int64], ...]:
        return self.starts, self.entries, self.recs


class Built(NamedTuple):
    """The lists, and the ids of the subscriptions that are not in them."""

    stabs: Stabs
    rest: NDArray[np.int64]


def load_stabs(path: Path) -> Stabs:
    """Return what was saved, mapped."""
    flat = np.asarray(np.load(path, mmap_mode="c"))
    first, second = 2 + int(flat[0]), 2 + int(flat[0]) + int(flat[1])
    return Stabs(flat[2:first], flat[first:second], flat[second:])


@compiled
def find_narrowest(recs: Array, r: int, other: int) -> tuple[int, int, int]:
    """Return the place and the interval of the predicate that fewest values meet.

    The one at `other` is left out; -1 as a place: there is none.
    """
    head = recs[r + 1]
    level = max(get_threshold(head), get_certain(head))
    best = int64(-1)
    low = int64(0)
    high = int64(255)
    for at in range(r + HEADER, r + HEADER + get_count(head)):
        word = recs[at]
        if at == other or (word >> 52) & 1:  # negated: two intervals
            continue
        first, last = cut_set(
            word & 0xFFFF, (word >> 16) & 0xFFFF, (word >> 32) & 255, (word >> 40) & 255,
            (word >> 48) & 15, 0, level,
        )  # fmt: skip
        if last - first < high - low:
            best, low, high = at, first, last
    return best, low, high


@compiled
def file_records(
    recs: Array, places: Array, counts: Array, entries: Array, is_counting: bool
) -> int:
    """Count the entries of each key, or write them where `counts` says; return how many."""
    total = 0
    for i in range(places.size):
        r = places[i]
        mask = int64(0)
        for at in range(r + HEADER, r + HEADER + get_count(recs[r + 1])):
            mask |= int64(1) << (get_attribute(recs[at]) & 15)
        at, low, high = find_narrowest(recs, r, -1)
        attribute = get_attribute(recs[max(at, r + HEADER)])
        second, first, last = find_narrowest(recs, r, at)
        other = get_attribute(recs[second]) & 15 if second >= 0 else attribute & 15
        entry = mask << _MASK | other << _SECOND | first << _FIRST | last << _LAST | r
        for key in range(attribute * VALUES + low, attribute * VALUES + high + 1):
            if not is_counting:
                entries[counts[key]] = entry
            counts[key] += 1
            total += 1
    return total


def build_stabs(index: FuzzyIndex, max_list: int | None = None) -> Built | None:
    """Return the lists of an index's plain subscriptions; None where they are not worth it.

    That is where more than `max_list` are under a value on average, if it is given.
    """
    columns = index.columns
    recs, found = gather_records(columns["recs"].data, columns["id_heads"].data, index.id_shape)
    places = found[:-1]
    is_plain = find_plain(recs, places)
    rest = recs[places[~is_plain]]
    places = places[is_plain]
    if max_list == 0 or len(rest) > len(places) or len(recs) > _PLACE:
        return None
    counts = np.zeros(index.attributes * VALUES, np.int64)
    nothing = np.zeros(0, np.int64)
    total = int(file_records(recs, places, counts, nothing, True))
    if max_list is None:
        max_list = find_max_list(counts, int(index.counts[COUNT_GROUPS]))
    if total > max_list * int(np.count_nonzero(counts)):
        return None
    starts = np.concatenate(([0], np.cumsum(counts)))
    entries = np.empty(total, np.int64)
    file_records(recs, places, starts[:-1].copy(), entries, False)
    return Built(Stabs(starts, entries, recs), rest)


def find_max_list(counts: NDArray[np.int64], masks: int) -> int:
    """Return how long lists may be on average before the bit rows are faster."""
    events = len(np.unique(np.flatnonzero(counts) // (EVENT_ATTRIBUTES * VALUES)))
    return min(MAX_LIST, _ROWS + _MASK_ROWS * masks // max(1, events))


@compiled
def find_plain(recs: Array, places: Array) -> Array:
    """Return which records are the min of 8-bit sets."""
    plain = np.empty(places.size, np.bool_)
    for i in range(places.size):
        plain[i] = get_flags(recs[places[i] + 1]) & PLAIN != 0
    return plain


@compiled
def find_exact(starts: Array, points: Array, wides: Array) -> Array:
    """Return which notifications have exact 8-bit values only."""
    exact = np.ones(starts.size - 1, np.bool_)
    for n in range(starts.size - 1):
        for at in range(starts[n], starts[n + 1]):
            if points[at, 0] != points[at, 3] or wides[at]:
                exact[n] = False
    return exact


@compiled
def find_candidates(
    starts: Array, attributes: Array, points: Array, exact: Array, lists: Array, entries: Array
) -> tuple[Array, Array, int]:
    """Return (ends, places of records, how many were looked at) of the exact notifications.

    Lists lie anywhere in memory, and would be waited for: each is asked for some readings ahead.
    """
    width = (lists.size - 1) // VALUES
    values = np.zeros(16, np.int64)
    ends = np.zeros(starts.size, np.int64)
    places = np.empty(1024, np.int32)
    total = 0
    looked = 0
    for n in range(starts.size - 1):
        stop = starts[n + 1] if exact[n] else starts[n]
        present = int64(0)
        for at in range(starts[n], stop):
            values[attributes[at] & 15] = points[at, 0]
            present |= int64(1) << (attributes[at] & 15)
        lacking = (~present & 0xFFFF) << _MASK
        for at in range(starts[n], stop):
            if at + 2 * _AHEAD < attributes.size:
                prefetch(lists, find_key(attributes, points, at + 2 * _AHEAD, width))
                near = lists[find_key(attributes, points, at + _AHEAD, width)]
                for line in range(0, 3 * _LINE, _LINE):
                    prefetch(entries, near + line)
            if attributes[at] >= width:
                continue
            key = find_key(attributes, points, at, width)
            first = lists[key]
            last = lists[key + 1]
            looked += last - first
            if total + last - first > places.size:
                places = grow(places, total + last - first)
            for e in range(first, last):
                entry = entries[e]
                if entry & lacking:
                    continue
                x = values[(entry >> _SECOND) & 15]
                places[total] = entry & _PLACE
                # Without a branch, which would be foretold wrongly every other time.
                is_in = int64(x >= (entry >> _FIRST) & 255) & int64(x <= (entry >> _LAST) & 255)
                total += is_in
        ends[n + 1] = total
    return ends, places[:total], looked


@compiled
def find_key(attributes: Array, points: Array, at: int, width: int) -> int:
    """Return the list that a reading looks up; any, if it has an attribute that nobody asks for."""
    return int64(min(attributes[at], width - 1)) * VALUES + min(points[at, 0], VALUES - 1)


@compiled
def evaluate_candidates(
    starts: Array, attributes: Array, points: Array, width: int, ends: Array, places: Array,
    recs: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Return (ids, answers) of the candidates that match; `ends` becomes theirs."""
    values = np.full(width, -1, np.int32)
    ids = np.empty(places.size, np.int64)
    answers = np.empty(places.size, np.int32)
    total = 0
    first = int64(0)
    for n in range(starts.size - 1):
        last = ends[n + 1]
        if first < last:
            for at in range(starts[n], starts[n + 1]):
                if attributes[at] < width:
                    values[attributes[at]] = points[at, 0]
        for c in range(first, last):
            if c + _AHEAD < places.size:
                prefetch(recs, int64(places[c + _AHEAD]))
            r = int64(places[c])
            answer = evaluate_plain(recs, r, recs[r + 1], values)
            ids[total] = recs[r]
            answers[total] = answer
            total += answer != NO_MATCH
        first = last
        ends[n + 1] = total
    return ids[:total], answers[:total]


def match_stabs(readings: NotificationBatch, stabs: Stabs, exact: NDArray[np.bool_]) -> MatchBatch:
    """Return the hits of the exact notifications; the others have none here."""
    r = readings
    columns = r.starts, r.attributes, r.points
    ends, places, looked = find_candidates(*columns, exact, stabs.starts, stabs.entries)
    width = (len(stabs.starts) - 1) // VALUES
    ids, answers = evaluate_candidates(*columns, width, ends, places, stabs.recs)
    possible = (answers & 255).astype(np.uint8)
    certain = (answers >> 8 & 255).astype(np.uint8)
    return MatchBatch(ends, ids.view(np.uint64), possible, certain, answers >> 16, int(looked))
