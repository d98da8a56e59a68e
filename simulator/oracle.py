"""The earliest possible: when a message could be where it is wanted, had every contact carried it.

Plain sets and times over the same contacts, with no bandwidth, no delay and no protocol. Shares no
code with what it is compared with.

`find_bounded_arrivals` knows that contacts carry only so many bytes. Which messages to carry then
is a hard problem; it takes them in the order of their birth, and reserves for each the way that
arrives first over contacts that have room left. One copy of each, all contacts known beforehand,
nodes of any size: a plan that can be carried out, and that no node could make.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter

from simulator.traces import ContactEvent, Parcel


def find_arrivals(
    contacts: Sequence[ContactEvent], parcels: Iterable[Parcel], end: int
) -> dict[str, int]:
    """Return, by message, how long the fastest way takes, in ms; without those that none has."""
    waiting = sorted(parcels, key=lambda parcel: parcel.time)
    events = [event for event in contacts if event.time <= end]
    linked: dict[int, dict[int, None]] = {}
    held: dict[int, set[int]] = {}  # by node: the numbers of messages that could be there
    arrivals: dict[str, int] = {}
    live: dict[int, Parcel] = {}
    born = 0

    def spread(start: int, number: int, time: int) -> None:
        """Bring a message to all that are linked with a node, directly or through others."""
        reached = [start]
        while reached:
            node = reached.pop()
            for other in linked.get(node, ()):
                if number not in held.setdefault(other, set()):
                    held[other].add(number)
                    reached.append(other)
                    parcel = live[number]
                    if other == parcel.target:
                        arrivals[parcel.name] = time - parcel.time

    def bear(until: int) -> None:
        """Let messages begin that are older than a time."""
        nonlocal born
        while born < len(waiting) and waiting[born].time < until:
            parcel = waiting[born]
            live[born] = parcel
            held.setdefault(parcel.source, set()).add(born)
            spread(parcel.source, born, parcel.time)
            born += 1

    # A contact holds from its first moment until just before its last: of one moment, all
    # changes come first, and only then do messages move.
    for time, changes in groupby(events, key=attrgetter("time")):
        bear(time)
        for number in [n for n, p in live.items() if p.time + p.life < time]:
            del live[number]
            for numbers in held.values():
                numbers.discard(number)
        begun: list[tuple[int, int]] = []
        for _, first, second, is_up in changes:
            if is_up:
                linked.setdefault(first, {})[second] = None
                linked.setdefault(second, {})[first] = None
                begun += [(first, second), (second, first)]
            else:
                linked.get(first, {}).pop(second, None)
                linked.get(second, {}).pop(first, None)
        for one, other in begun:
            if other in linked[one]:
                for number in sorted(held.get(one, set()) - held.get(other, set())):
                    spread(one, number, time)
    bear(end + 1)
    return arrivals


class _Span:
    """A contact with the bytes that it still carries."""

    def __init__(self, start: int, end: int, nodes: tuple[int, int], room: int) -> None:
        self.start = start
        self.end = end
        self.nodes = nodes
        self.room = room


def find_bounded_arrivals(
    contacts: Sequence[ContactEvent], parcels: Iterable[Parcel], end: int, rate: int
) -> dict[str, int]:
    """Return, by message, how long its reserved way takes, in ms; `rate` is bytes a second."""
    spans: dict[int, list[_Span]] = {}
    begun: dict[tuple[int, int], int] = {}
    for time, first, second, is_up in contacts:
        pair = min(first, second), max(first, second)
        if is_up:
            begun.setdefault(pair, time)
        elif pair in begun:
            start = begun.pop(pair)
            span = _Span(start, time, pair, rate * (time - start) // 1000)
            for node in pair:
                spans.setdefault(node, []).append(span)
    for each in spans.values():
        each.sort(key=lambda span: span.end)
    arrivals: dict[str, int] = {}
    for parcel in sorted(parcels, key=lambda parcel: parcel.time):
        until = min(end, parcel.time + parcel.life)
        way = _find_way(spans, parcel, until)
        if way is not None:
            arrivals[parcel.name] = way[0] - parcel.time
            for span in way[1]:
                span.room -= parcel.size
    return arrivals


def _find_way(
    spans: dict[int, list[_Span]], parcel: Parcel, until: int
) -> tuple[int, list[_Span]] | None:
    """Return when a message arrives at the earliest, and over which contacts that have room."""
    best = {parcel.source: parcel.time}
    came: dict[int, tuple[int, _Span]] = {}
    waiting = [(parcel.time, parcel.source)]
    while waiting:
        time, node = heappop(waiting)
        if time > best[node]:
            continue
        if node == parcel.target:
            way = []
            while node != parcel.source:
                node, span = came[node]
                way.append(span)
            return time, way
        here = spans.get(node, [])
        for span in here[bisect_right(here, time, key=lambda span: span.end) :]:
            moment = max(time, span.start)
            other = span.nodes[0] if span.nodes[1] == node else span.nodes[1]
            if span.room < parcel.size or moment > until or moment >= best.get(other, until + 1):
                continue
            best[other] = moment
            came[other] = node, span
            heappush(waiting, (moment, other))
    return None
