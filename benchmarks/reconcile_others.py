"""Other ways for two nodes to find out what the other lacks, for `benchmarks.reconcile`.

Each gets the same two sets of 64-bit ids and is charged for the messages it needs until both sides
know what to send, with the same head and tag on each frame as ours (20 bytes). None of them can
tell a removed item from one that never came; they are compared on items alone.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable

from denwatch.node.replication.dot_sets import build_spans, encode_number, encode_spans

FRAME = 20  # kind 1, hint 2, number 1, tag 16
_ID = 8
_CHECK = 4


def measure_lists(one: set[int], two: set[int]) -> int:
    """One side names all its ids; the other answers by position which of them it wants."""
    ordered = sorted(one)
    wanted = build_spans(at for at, each in enumerate(ordered, 1) if each not in two)
    return FRAME + _ID * len(one) + FRAME + len(encode_spans(wanted))


def measure_bloom(one: set[int], two: set[int], share: float = 0.01) -> tuple[int, int]:
    """Each side sends a filter; return the bytes, and how many items neither side finds out."""
    sizes = 0
    missed = 0
    for mine, theirs in ((one, two), (two, one)):
        bits = max(8, math.ceil(-len(mine) * math.log(share) / math.log(2) ** 2))
        count = max(1, round(bits / len(mine) * math.log(2)))
        table = 0
        for each in mine:
            for place in _list_places(each, count, bits):
                table |= 1 << place
        sizes += FRAME + (bits + 7) // 8
        for each in theirs - mine:
            missed += all(table >> place & 1 for place in _list_places(each, count, bits))
    return sizes, missed


def _list_places(each: int, count: int, bits: int) -> Iterable[int]:
    digest = hashlib.blake2b(each.to_bytes(_ID, "big"), digest_size=16).digest()
    low, high = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big") | 1
    return ((low + n * high) % bits for n in range(count))


def measure_rateless(one: set[int], two: set[int]) -> int:
    """A rateless invertible table, after Yang, Gilad and Alizadeh (2024): ids, checksums, counts.

    Coded symbols go over until the other side can decode, which then asks for what it lacks by
    naming ids. Cells are linear, so the difference of both streams is that of the differing ids.
    """
    symbols = _count_symbols(one ^ two)
    size = sum(
        _ID + _CHECK + len(encode_number(_expect_count(len(one), at))) for at in range(symbols)
    )
    return FRAME + size + FRAME + _ID * len(one - two)


def _expect_count(items: int, at: int) -> int:
    """How many ids a cell has on average: what its count field must hold."""
    return round(items / (1 + at / 2))


def _step(state: int, at: int) -> tuple[int, int]:
    """Return the next state of an id's generator and the next cell it is in."""
    state = int.from_bytes(hashlib.blake2b(state.to_bytes(8, "big"), digest_size=8).digest(), "big")
    return state, at + math.ceil((at + 1.5) * ((1 << 32) / math.sqrt(state + 1) - 1))


def _count_symbols(differing: set[int]) -> int:
    """Return after how many symbols a set of differing ids is decoded."""
    if not differing:
        return 1
    waiting = [(0, each, each) for each in differing]
    heapq.heapify(waiting)
    members: list[set[int]] = []
    places: dict[int, list[int]] = {each: [] for each in differing}
    left = set(differing)
    while left:
        at = len(members)
        cell: set[int] = set()
        while waiting and waiting[0][0] == at:
            _, each, state = heapq.heappop(waiting)
            places[each].append(at)
            if each in left:
                cell.add(each)
            state, following = _step(state, at)
            heapq.heappush(waiting, (max(following, at + 1), each, state))
        members.append(cell)
        pure = [cell] if len(cell) == 1 else []
        while pure:
            found = pure.pop()
            if len(found) != 1:
                continue
            (each,) = found
            left.discard(each)
            for place in places[each]:
                members[place].discard(each)
                if len(members[place]) == 1:
                    pure.append(members[place])
    return len(members)


def measure_bound(one: set[int], two: set[int]) -> int:
    """What an ideal sketch of ids needs (PinSketch: 64 bits a difference), and the question."""
    return FRAME + _ID * len(one ^ two) + FRAME + _ID * len(one - two)
