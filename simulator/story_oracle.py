"""The judge of stories: plain Python over a complete history, every combination tried.

A history is a list of `Happened`: what was read when and where, and how well it fits each part of a
story (possible, certain, 0 to 255). `judge` returns, for each reading that closes the story, the
best degrees over all ways to choose the other parts. It shares no code with `denwatch`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import hypot


@dataclass(frozen=True)
class Happened:
    """One reading. `fits` is (possible, certain) by part; `place` is east, north, doubt, in m."""

    id: int
    time: int  # ms
    doubt: int  # ms
    device: str
    fits: dict[int, tuple[int, int]] = field(hash=False)
    place: tuple[float, float, float] | None = None
    said: int | None = None  # ms, by the clock of the node that took it; None: the same

    @property
    def order(self) -> tuple[int, int]:
        """By which all nodes agree which is the last."""
        return self.time if self.said is None else self.said, self.id


@dataclass(frozen=True)
class Tale:
    """A story as the oracle knows it. Windows are (full, zero) in ms, `near` in m."""

    kind: str  # sequence, together, absence, count
    parts: int
    windows: tuple[tuple[int, int], ...]
    near: tuple[float, float] | None = None
    count: int = 0
    threshold: int = 128
    since: int = 0  # absence counts from then on


def fall(x: float, full: float, zero: float) -> int:
    if x <= full:
        return 255
    if x >= zero:
        return 0
    return int(255 * (zero - x) / (zero - full))


def rise(x: float, full: float, zero: float) -> int:
    if x >= full:
        return 255
    if x <= zero:
        return 0
    return int(255 * (x - zero) / (full - zero))


def rate_time(
    first: Happened, last: Happened, window: tuple[int, int], ordered: bool
) -> tuple[int, int]:
    gap, doubt = last.time - first.time, first.doubt + last.doubt
    low, high = gap - doubt, gap + doubt
    if ordered:
        return (fall(max(low, 0), *window) if high >= 0 else 0), (
            fall(high, *window) if low >= 0 else 0
        )
    low, high = abs(gap) - doubt, abs(gap) + doubt
    return fall(max(low, 0), *window), fall(high, *window)


def rate_place(one: Happened, other: Happened, near: tuple[float, float] | None) -> tuple[int, int]:
    if near is None:
        return 255, 255
    if one.place is None or other.place is None:
        return 0, 0
    distance = hypot(one.place[0] - other.place[0], one.place[1] - other.place[1])
    doubt = one.place[2] + other.place[2]
    return fall(max(distance - doubt, 0), *near), fall(distance + doubt, *near)


def least(*degrees: tuple[int, int]) -> tuple[int, int]:
    return min(d[0] for d in degrees), min(d[1] for d in degrees)


def judge(tale: Tale, history: list[Happened], now: int) -> dict[int, tuple[int, int]]:
    """Return possible and certain by the reading that closes; by the last before a silence."""
    ordered = sorted(history, key=lambda one: (one.time, one.id))
    if tale.kind == "absence":
        return _judge_absence(tale, ordered, now)
    ordered.sort(key=lambda one: one.order)
    verdicts: dict[int, tuple[int, int]] = {}
    for last in ordered:
        found = {
            "sequence": _judge_sequence,
            "together": _judge_together,
            "count": _judge_count,
        }[tale.kind](tale, ordered, last)
        possible = max((degrees[0] for degrees in found), default=0)
        if possible >= tale.threshold:
            verdicts[last.id] = possible, max(degrees[1] for degrees in found)
    return verdicts


def _judge_sequence(tale: Tale, ordered: list[Happened], last: Happened) -> list[tuple[int, int]]:
    if tale.parts - 1 not in last.fits:
        return []
    found = []
    others = [[one for one in ordered if part in one.fits] for part in range(tale.parts - 1)]
    for chain in itertools.product(*others):
        chosen = [*chain, last]
        if any(a.id == b.id for a, b in itertools.pairwise(chosen)):
            continue
        degrees = [one.fits[part] for part, one in enumerate(chosen)]
        for (a, b), window in zip(itertools.pairwise(chosen), tale.windows, strict=True):
            degrees += [rate_time(a, b, window, True), rate_place(a, b, tale.near)]
        found.append(least(*degrees))
    return found


def _judge_together(tale: Tale, ordered: list[Happened], last: Happened) -> list[tuple[int, int]]:
    before = ordered[: ordered.index(last) + 1]
    choices = [[one for one in before if part in one.fits] for part in range(tale.parts)]
    found = []
    for chosen in itertools.product(*choices):
        if last not in chosen:
            continue
        degrees = [one.fits[part] for part, one in enumerate(chosen)]
        for one in chosen:
            if one is not last:
                degrees += [
                    rate_time(one, last, tale.windows[0], False),
                    rate_place(one, last, tale.near),
                ]
        found.append(least(*degrees))
    return found


def _judge_count(tale: Tale, ordered: list[Happened], last: Happened) -> list[tuple[int, int]]:
    if 0 not in last.fits:
        return []
    before = [
        one for one in ordered[: ordered.index(last)] if 0 in one.fits and one.device != last.device
    ]
    found = []
    for chosen in itertools.combinations(before, tale.count - 1):
        if len({one.device for one in chosen}) == tale.count - 1:
            degrees = [last.fits[0]]
            for one in chosen:
                degrees += [
                    one.fits[0],
                    rate_time(one, last, tale.windows[0], False),
                    rate_place(one, last, tale.near),
                ]
            found.append(least(*degrees))
    return found


def _judge_absence(tale: Tale, ordered: list[Happened], now: int) -> dict[int, tuple[int, int]]:
    """The key of a silence from the beginning is 0."""
    full, zero = tale.windows[0]
    heard = [(0, tale.since, 0)]
    heard += [(one.id, one.time, one.doubt) for one in ordered if 0 in one.fits]
    heard.sort(key=lambda row: (row[1], row[0]))
    verdicts = {}
    for (id, time, doubt), (_, after, more) in itertools.pairwise(heard):
        degree = rise(after - time + doubt + more, full, zero)
        if degree >= tale.threshold:
            verdicts[id] = degree, 0
    id, time, _ = heard[-1]
    if now - time >= full:
        verdicts[id] = 255, 0
    return verdicts
