"""Ranges of record numbers: what was read of a run, and what is left. Pure.

A set of numbers is a list of half-open (start, stop), rising and apart; as text "1-411,500-900",
inclusive, which is how a stream's offsets keep it.
"""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]


def join_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges in any order and overlap as a set."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if stop <= start:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], stop)
        else:
            joined.append((start, stop))
    return joined


def subtract_ranges(whole: list[Range], part: list[Range]) -> list[Range]:
    """Return what is in the first set and not in the second."""
    left: list[Range] = []
    for start, stop in whole:
        for begin, end in part:
            if end <= start or begin >= stop:
                continue
            if begin > start:
                left.append((start, begin))
            start = end
            if start >= stop:
                break
        if start < stop:
            left.append((start, stop))
    return left


def count_numbers(ranges: Iterable[Range]) -> int:
    """Return how many numbers a set has."""
    return sum(stop - start for start, stop in ranges)


def take_first(ranges: list[Range], count: int) -> list[Range]:
    """Return the lowest numbers of a set, so many or all."""
    taken: list[Range] = []
    for start, stop in ranges:
        if count <= 0:
            break
        taken.append((start, min(stop, start + count)))
        count -= stop - start
    return taken


def write_ranges(ranges: list[Range]) -> str:
    """Return a set as text."""
    return ",".join(f"{start}-{stop - 1}" for start, stop in ranges)


def read_ranges(text: str) -> list[Range]:
    """Return the set of a text."""
    pairs = [part.split("-") for part in text.split(",") if part]
    return [(int(start), int(last) + 1) for start, last in pairs]
