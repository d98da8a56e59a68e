"""An index from a value to the subscriptions that may match it, for very many small masks.

THEORY. A node must accept a subscription at any moment; here all are known before the first of
millions of notifications, so they can be laid out for reading. A *plain* subscription is the
minimum of 8-bit sets without negation: at its threshold, one interval for each attribute.
  build    file each plain subscription under every value of its narrowest interval. An entry has,
           in 64 bits, its mask, its second narrowest interval and the place of its record.
  match    for each reading take the list of its value; drop the entries whose mask has an attribute
           that the notification lacks, or whose second interval its value misses; evaluate the rest
           by the node's own records and code (`evaluate_plain`).
INVARIANT  a plain subscription is in exactly one list of each value of its narrowest interval, and
           in no other list.
WHY ENOUGH a notification that matches has, for the narrowest interval's attribute, a value in that
           interval, so its list contains the subscription, once: none is missed or found twice.
EXAMPLE    s: temperature 200..210 and pulse 90..255. Filed under temperature 200, 201 … 210 with
           second interval pulse 90..255. Reading (temperature 205, pulse 80): found under 205,
           dropped because 80 < 90, without a look at the record.
COST       a list may be long where masks are few; the node's bit rows are faster there, and
           `build_value_index` returns None. Readings that are uncertain or have 16 bits, and
           subscriptions that are not plain, always go to the node's index.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from denwatch.node.matching.compiling import Array, compiled, int64, prefetch
from denwatch.node.matching.evaluation import NO_MATCH, cut_set, evaluate_plain
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.masks import COUNT_GROUPS, grow
from denwatch.node.matching.records import (
    EVENT_ATTRIBUTES,
    HEADER,
    PLAIN,
    gather_records,
    get_attribute,
    get_certain,
    get_count,
    get_flags,
    get_threshold,
)
from denwatch.node.matching.search import MatchBatch, NotificationBatch
from numpy.typing import NDArray

VALUES = 256
MAX_LIST = 256  # subscriptions under a value, on average: a bound for the memory
# The node's bit rows take as long for a reading as so many entries of a list, plus so many for each
# mask of its event; measured with 8 to 18,000 masks, 20,000 and 100,000 subscriptions.
_ROWS, _MASK_ROWS = 20, 2
_MASK, _SECOND, _FIRST, _LAST = 48, 44, 36, 28  # where the parts of an entry begin
_PLACE = (1 << _LAST) - 1
_AHEAD = 8  # readings, or candidates, from asking for memory to using it
_LINE = 8  # numbers in a line of the cache


@dataclass(frozen=True)
class ValueIndex:
    """Plain subscriptions by (attribute, value): entries[starts[key] : starts[key + 1]].

    An entry is, from the top: the mask within the event 16 bits, the attribute of the second
    interval 4, its first and last value 8 each, the place of the record 28.
    """

    starts: NDArray[np.int64]
    entries: NDArray[np.int64]
    recs: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write all arrays into one file."""
        lengths = [len(self.starts), len(self.entries)]
        np.save(path, np.concatenate((lengths, self.starts, self.entries, self.recs)))


class BuiltValueIndex(NamedTuple):
    """The lists, and the ids of the subscriptions that are not in them."""

    lists: ValueIndex
    rest: NDArray[np.int64]


def load_value_index(path: Path) -> ValueIndex:
    """Return a saved index, mapped into memory."""
    flat = np.asarray(np.load(path, mmap_mode="c"))
    first, second = 2 + int(flat[0]), 2 + int(flat[0]) + int(flat[1])
    return ValueIndex(flat[2:first], flat[first:second], flat[second:])


@compiled
def find_narrowest(recs: Array, r: int, other: int) -> tuple[int, int, int]:
    """Return the place and the interval of the predicate that the fewest values meet.

    Kernel: one pass over the predicates of the record at `r`, each cut at the record's threshold.
    The predicate at `other` is left out; the place is -1 if there is no other.
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
    """Count the entries of each key, or write them where `counts` points; return how many.

    Kernel, run twice over the same records: first `counts` collects the length of every list, then,
    summed up, it is the next free place of every list.
    """
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


def build_value_index(index: FuzzyIndex, max_list: int | None = None) -> BuiltValueIndex | None:
    """Return the value index of a node index's plain subscriptions; None if it would be slower.

    That is if lists have more than `max_list` entries on average, where it is given.
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
    return BuiltValueIndex(ValueIndex(starts, entries, recs), rest)


def find_max_list(counts: NDArray[np.int64], masks: int) -> int:
    """Return how long lists may be on average before the bit rows are faster."""
    events = len(np.unique(np.flatnonzero(counts) // (EVENT_ATTRIBUTES * VALUES)))
    return min(MAX_LIST, _ROWS + _MASK_ROWS * masks // max(1, events))


@compiled
def find_plain(recs: Array, places: Array) -> Array:
    """Return which records are plain; kernel, one look at the flags of each."""
    plain = np.empty(places.size, np.bool_)
    for i in range(places.size):
        plain[i] = get_flags(recs[places[i] + 1]) & PLAIN != 0
    return plain


@compiled
def find_exact(starts: Array, points: Array, wides: Array) -> Array:
    """Return which notifications have only exact 8-bit values; kernel, one look at each reading."""
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
    """Return (ends, places of records, entries examined) of the exact notifications.

    Kernel: for each notification set up its values and mask, then scan the list of each reading.
    Lists lie anywhere in memory, so the list of a later reading is prefetched meanwhile. A dropped
    entry is overwritten by the next one: the place is written always, and counted if it is kept.
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
                # Without a branch, which the processor would predict wrongly every other time.
                is_in = int64(x >= (entry >> _FIRST) & 255) & int64(x <= (entry >> _LAST) & 255)
                total += is_in
        ends[n + 1] = total
    return ends, places[:total], looked


@compiled
def find_key(attributes: Array, points: Array, at: int, width: int) -> int:
    """Return the key of a reading's list; any key for an attribute without subscriptions."""
    return int64(min(attributes[at], width - 1)) * VALUES + min(points[at, 0], VALUES - 1)


@compiled
def evaluate_candidates(
    starts: Array, attributes: Array, points: Array, width: int, ends: Array, places: Array,
    recs: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Return (ids, answers) of the candidates that match; `ends` is rewritten for them.

    Kernel: evaluates each candidate's record against the values of its notification, with the
    records of later candidates prefetched.
    """
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


def match_values(
    readings: NotificationBatch, lists: ValueIndex, exact: NDArray[np.bool_]
) -> MatchBatch:
    """Return the matches of the exact notifications; the others have none here."""
    r = readings
    columns = r.starts, r.attributes, r.points
    ends, places, looked = find_candidates(*columns, exact, lists.starts, lists.entries)
    width = (len(lists.starts) - 1) // VALUES
    ids, answers = evaluate_candidates(*columns, width, ends, places, lists.recs)
    possible = (answers & 255).astype(np.uint8)
    certain = (answers >> 8 & 255).astype(np.uint8)
    return MatchBatch(ends, ids.view(np.uint64), possible, certain, answers >> 16, int(looked))
