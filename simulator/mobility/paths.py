"""Paths of straight legs, and contacts between those who follow them. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.traces import ContactEvent

_CHUNK = 512  # moments that are worked on together
_NOBODY = np.empty(0, np.int64)


class Leg(NamedTuple):
    """From one place to another between two times; the same place for a rest. ms and m."""

    start: int
    end: int
    x: float
    y: float
    to_x: float
    to_y: float


@dataclass
class Path:
    """What one host does; legs follow each other without gaps."""

    group: str
    legs: list[Leg] = field(default_factory=list)

    def rest(self, until: int) -> None:
        """Stay until a time."""
        last = self.legs[-1]
        if until > last.end:
            self.legs.append(Leg(last.end, until, last.to_x, last.to_y, last.to_x, last.to_y))

    def go(self, x: float, y: float, speed: float) -> None:
        """Go to a place in a straight line, in m/s."""
        last = self.legs[-1]
        distance = math.sqrt((x - last.to_x) ** 2 + (y - last.to_y) ** 2)
        end = last.end + max(1, round(1000 * distance / speed))
        self.legs.append(Leg(last.end, end, last.to_x, last.to_y, x, y))

    @property
    def end(self) -> int:
        """When the path ends."""
        return self.legs[-1].end


def begin_path(group: str, x: float, y: float) -> Path:
    """Return a path that begins at a place."""
    return Path(group, [Leg(0, 0, x, y, x, y)])


def find_place(path: Path, time: int) -> tuple[float, float]:
    """Return where somebody is at a time."""
    number = bisect_right(path.legs, time, key=lambda leg: leg.start) - 1
    leg = path.legs[max(0, number)]
    if time >= leg.end:
        return leg.to_x, leg.to_y
    done = (time - leg.start) / (leg.end - leg.start)
    return leg.x + (leg.to_x - leg.x) * done, leg.y + (leg.to_y - leg.y) * done


def find_contacts(
    paths: Sequence[Path], duration: int, reach: float, step: int = 1_000
) -> list[ContactEvent]:
    """Return who comes into whose range and leaves it, looked at every `step` ms."""
    count = len(paths)
    contacts: list[ContactEvent] = []
    before = np.empty(0, np.int64)
    for start in range(0, duration + 1, step * _CHUNK):
        times = np.arange(start, min(start + step * _CHUNK, duration + 1), step)
        xs, ys = _place_all(paths, times)
        for number, time in enumerate(times.tolist()):
            # All contacts end with the day.
            near = _find_near(xs[:, number], ys[:, number], reach) if time < duration else _NOBODY
            changed = np.setxor1d(before, near, assume_unique=True)
            is_up = np.isin(changed, near, assume_unique=True)
            for pair, up in zip(changed.tolist(), is_up.tolist(), strict=True):
                contacts.append(ContactEvent(time, pair // count, pair % count, up))
            before = near
    for pair in before.tolist():  # the day did not end with a step
        contacts.append(ContactEvent(duration, pair // count, pair % count, False))
    return contacts


def _place_all(
    paths: Sequence[Path], times: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return where everybody is at some times, by host and time."""
    xs, ys = np.empty((len(paths), len(times))), np.empty((len(paths), len(times)))
    for number, path in enumerate(paths):
        # Only the legs that these times touch.
        first = bisect_right(path.legs, int(times[0]), key=lambda leg: leg.end)
        last = bisect_right(path.legs, int(times[-1]), key=lambda leg: leg.end)
        legs = np.array(path.legs[min(first, len(path.legs) - 1) : last + 1], np.float64)
        place = np.minimum(np.searchsorted(legs[:, 1], times, side="right"), len(legs) - 1)
        start, end, x, y, to_x, to_y = legs[place].T
        span = end - start
        done = np.where(span > 0, np.minimum(1.0, (times - start) / np.maximum(span, 1.0)), 1.0)
        xs[number] = x + (to_x - x) * done
        ys[number] = y + (to_y - y) * done
    return xs, ys


def _find_near(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], reach: float
) -> npt.NDArray[np.int64]:
    """Return the pairs in range, as first * count + second, rising; first < second.

    Only hosts in the same or neighbouring cells of a grid are compared."""
    count = len(x)
    column = np.floor(x / reach).astype(np.int64)
    row = np.floor(y / reach).astype(np.int64)
    width = int(row.max() - row.min()) + 3
    cell = (column - column.min() + 1) * width + row - row.min() + 1
    order = np.argsort(cell, kind="stable")
    cells = cell[order]
    found = []
    for step in (0, 1, width - 1, width, width + 1):  # half of the neighbours: each pair once
        low = np.searchsorted(cells, cells + step, side="left")
        high = np.searchsorted(cells, cells + step, side="right")
        if step == 0:
            low = np.arange(1, count + 1)  # within a cell: those behind in the order
        sizes = high - low
        one = np.repeat(np.arange(count), sizes)
        other = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found.append((order[one], order[other + np.repeat(low, sizes)]))
    one = np.concatenate([pair[0] for pair in found])
    other = np.concatenate([pair[1] for pair in found])
    is_near = (x[one] - x[other]) ** 2 + (y[one] - y[other]) ** 2 <= reach * reach
    one, other = one[is_near], other[is_near]
    return np.sort(np.minimum(one, other) * count + np.maximum(one, other))
