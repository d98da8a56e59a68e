"""The compiled loops over bit planes; the only file of services that needs numba.

    plus, minus   one row an item: the attributes that are 1, and those that are -1, 64 to a word;
                  in `judge_block` and `find_nearest` transposed, one row a word, so that
                  neighbouring items are neighbours in memory
    masks         the seven rows of `request.Masks.rows`: must be 1, must be -1, must not be 1, must
                  not be -1, counted, the request's ones, the request's minus ones

Kernels keep no state and allocate only scratch. Example, two attributes: the need (1, 0) under
POSITIVE has must-be-1 = 0b01 and must-not-be-(-1) = 0b11; a service (1, 1) breaks nothing, and
its squared distance is 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from denwatch.node.matching.compiling import compiled
from denwatch.node.services.request import Plane

Slots = npt.NDArray[np.int64]
Keys = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_ONE = np.uint64(1)
_TWO = np.uint64(2)
_FOUR = np.uint64(4)
_TOP_BYTE = np.uint64(56)
_PAIRS = np.uint64(0x5555555555555555)
_NIBBLES = np.uint64(0x3333333333333333)
_BYTES = np.uint64(0x0F0F0F0F0F0F0F0F)
_SUM = np.uint64(0x0101010101010101)
_NONE = np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)

_BLOCK = 256  # items judged at once by the exact search: its scratch stays in the first cache


@compiled
def count_bits(word: np.uint64) -> int:
    """Return the number of ones in `word`; LLVM turns this into one popcount instruction."""
    word = word - ((word >> _ONE) & _PAIRS)
    word = (word & _NIBBLES) + ((word >> _TWO) & _NIBBLES)
    word = (word + (word >> _FOUR)) & _BYTES
    return np.int64((word * _SUM) >> _TOP_BYTE)  # type: ignore[return-value]  # numba's int


@compiled
def is_feasible(plus: Plane, minus: Plane, row: int, masks: Plane) -> bool:
    """Tell whether item `row` breaks none of the request's four conditions."""
    for word in range(masks.shape[1]):
        ones = plus[row, word]
        against = minus[row, word]
        if (
            (masks[0, word] & ~ones)
            | (masks[1, word] & ~against)
            | (masks[2, word] & ones)
            | (masks[3, word] & against)
        ):
            return False
    return True


@compiled
def measure_item(plus: Plane, minus: Plane, row: int, masks: Plane, item_cares: bool) -> int:
    """Return the squared distance: 1 for each step apart, 4 for each pair of opposites.

    Opposites differ in both planes, all other different values in one.
    """
    total = 0
    for word in range(masks.shape[1]):
        ones = plus[row, word]
        against = minus[row, word]
        counted = masks[4, word]
        if item_cares:
            counted |= ones | against
        first = (ones ^ masks[5, word]) & counted
        second = (against ^ masks[6, word]) & counted
        total += count_bits(first) + count_bits(second) + 2 * count_bits(first & second)
    return total


@compiled
def measure_items(
    plus: Plane, minus: Plane, rows: Slots, masks: Plane, item_cares: bool
) -> npt.NDArray[np.int64]:
    """Return the squared distance of each of `rows`."""
    squared = np.empty(len(rows), np.int64)
    for at in range(len(rows)):
        squared[at] = measure_item(plus, minus, rows[at], masks, item_cares)
    return squared


@compiled
def judge_block(
    plus: Plane,
    minus: Plane,
    start: int,
    size: int,
    masks: Plane,
    item_cares: bool,
    broken: Plane,
    squared: Plane,
) -> None:
    """Judge `size` items from column `start` of planes that lie word by word (transposed).

    Writes each item's broken conditions (0: feasible) and its squared distance. `masks` is
    transposed too, one row a word. There is no branch in the inner loop, so that it compiles to
    vector instructions: four to eight items at a time.
    """
    broken[:size] = 0
    squared[:size] = 0
    own = _ALL if item_cares else _NONE
    for word in range(masks.shape[0]):
        must_plus, must_minus = masks[word, 0], masks[word, 1]
        not_plus, not_minus = masks[word, 2], masks[word, 3]
        care, asked_plus, asked_minus = masks[word, 4], masks[word, 5], masks[word, 6]
        for at in range(size):
            ones = plus[word, start + at]
            against = minus[word, start + at]
            broken[at] |= (
                (must_plus & ~ones)
                | (must_minus & ~against)
                | (not_plus & ones)
                | (not_minus & against)
            )
            counted = care | (own & (ones | against))
            first = (ones ^ asked_plus) & counted
            second = (against ^ asked_minus) & counted
            apart = count_bits(first) + count_bits(second) + 2 * count_bits(first & second)
            squared[at] += np.uint64(apart)


@compiled
def find_nearest(
    plus: Plane,
    minus: Plane,
    alive: Flags,
    age: Slots,
    starts: Slots,
    masks: Plane,
    item_cares: bool,
    centre: int,
    up: int,
    down: int,
    low: int,
    high: int,
) -> tuple[int, int, int]:
    """Return (place, squared distance, items read) of the nearest feasible item, -1 if none.

    Places starts[z] to starts[z+1] are the items with z non-zero attributes, oldest first. The
    buckets are read outwards from `centre` in order of the least distance that they allow, so the
    search stops as soon as no bucket left can hold anything nearer, or as near and older.
    """
    by_word = masks.T.copy()
    broken = np.empty(_BLOCK, np.uint64)
    squared = np.empty(_BLOCK, np.uint64)
    best_place, best, best_age, read = -1, 1 << 62, 0, 0
    left = min(centre, high)
    right = max(centre + 1, low)
    while left >= low or right <= high:
        left_bound = down * (centre - left)
        right_bound = up * (right - centre)
        if left >= low and (right > high or left_bound <= right_bound):
            bucket, bound = left, left_bound
            left -= 1
        else:
            bucket, bound = right, right_bound
            right += 1
        if bound > best:
            break
        for start in range(starts[bucket], starts[bucket + 1], _BLOCK):
            if bound == best and age[start] > best_age:
                break
            size = min(_BLOCK, starts[bucket + 1] - start)
            judge_block(plus, minus, start, size, by_word, item_cares, broken, squared)
            read += size
            for at in range(size):
                apart = np.int64(squared[at])
                if broken[at] or apart > best:
                    continue
                place = start + at
                if (apart < best or age[place] < best_age) and alive[place]:
                    best_place, best, best_age = place, int(apart), age[place]
    return best_place, best, read


@compiled
def collect_feasible(
    plus: Plane, minus: Plane, rows: Slots, masks: Plane, limit: int, found: Slots
) -> tuple[int, int]:
    """Write the first `limit` feasible of `rows` to `found`; return (how many, rows read).

    `found` has room for `limit`; rows are looked at in the given order.
    """
    count = 0
    for at in range(len(rows)):
        if is_feasible(plus, minus, rows[at], masks):
            found[count] = rows[at]
            count += 1
            if count == limit:
                return count, at + 1
    return count, len(rows)


@compiled
def walk_lists(
    keys: Keys,
    slots: Slots,
    length: int,
    target: Keys,
    leftwards: bool,
    rightwards: bool,
    plus: Plane,
    minus: Plane,
    masks: Plane,
    limit: int,
    found: Slots,
) -> tuple[int, int, int]:
    """Walk ranked lists outwards from the target; return (found, probes, checks).

    All lists take one step in turn, each to its next closest key. An item is checked when it has
    been met on every list. Probes are the steps of the binary searches and of the walks.
    """
    lists = keys.shape[0]
    left = np.empty(lists, np.int64)
    right = np.empty(lists, np.int64)
    met = np.zeros(plus.shape[0] if lists > 1 else 0, np.uint8)
    probes, checks, count = 0, 0, 0
    for at in range(lists):
        first, last = 0, length
        while first < last:
            probes += 1
            middle = (first + last) >> 1
            if keys[at, middle] < target[at]:
                first = middle + 1
            else:
                last = middle
        left[at], right[at] = first - 1, first
    for _ in range(length):
        moved = False
        for at in range(lists):
            can_left = leftwards and left[at] >= 0
            can_right = rightwards and right[at] < length
            if not can_left and not can_right:
                continue
            if can_left and can_right:
                back = target[at] - keys[at, left[at]]
                can_right = keys[at, right[at]] - target[at] <= back
            if can_right:
                slot = slots[at, right[at]]
                right[at] += 1
            else:
                slot = slots[at, left[at]]
                left[at] -= 1
            moved = True
            probes += 1
            if lists > 1:
                met[slot] += 1
                if met[slot] < lists:
                    continue
            checks += 1
            if is_feasible(plus, minus, slot, masks):
                found[count] = slot
                count += 1
                if count == limit:
                    return count, probes, checks
        if not moved:
            break
    return count, probes, checks
