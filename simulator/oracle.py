"""The earliest possible: when a message could be where it is wanted, had every contact carried it.

Plain sets and times over the same contacts, with no bandwidth, no delay and no protocol. Shares no
code with what it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
