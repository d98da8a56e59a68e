"""Paths of straight legs, and contacts between those who follow them. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from edge.field.traces import ContactEvent


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
    current = [0] * count
    before = np.zeros((count, count), bool)
    contacts: list[ContactEvent] = []
    upper = np.triu(np.ones((count, count), bool), 1)
    for time in range(0, duration + 1, step):
        x, y = np.empty(count), np.empty(count)
        for number, path in enumerate(paths):
            legs = path.legs
            while current[number] + 1 < len(legs) and legs[current[number]].end <= time:
                current[number] += 1
            leg = legs[current[number]]
            span = leg.end - leg.start
            done = min(1.0, (time - leg.start) / span) if span else 1.0
            x[number] = leg.x + (leg.to_x - leg.x) * done
            y[number] = leg.y + (leg.to_y - leg.y) * done
        near = (x[:, None] - x) ** 2 + (y[:, None] - y) ** 2 <= reach * reach
        near &= upper
        if time >= duration:
            near[:] = False  # all contacts end with the day
        for first, second in np.argwhere(near != before).tolist():
            contacts.append(ContactEvent(time, first, second, bool(near[first, second])))
        before = near
    return contacts
