"""The earliest possible: when a message could be where it is wanted, had every contact carried it.

Plain sets and times over the same contacts, with no bandwidth, no delay and no protocol. Shares no
code with what it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edge.field.traces import ContactEvent, Parcel


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

    def bear(time: int) -> None:
        nonlocal born
        while born < len(waiting) and waiting[born].time <= time:
            parcel = waiting[born]
            live[born] = parcel
            held.setdefault(parcel.source, set()).add(born)
            spread(parcel.source, born, parcel.time)
            born += 1

    for event in events:
        bear(event.time)
        for number in [n for n, p in live.items() if p.time + p.life < event.time]:
            del live[number]
            for numbers in held.values():
                numbers.discard(number)
        first, second = event.first, event.second
        if not event.is_up:
            linked.get(first, {}).pop(second, None)
            linked.get(second, {}).pop(first, None)
            continue
        linked.setdefault(first, {})[second] = None
        linked.setdefault(second, {})[first] = None
        for one, other in ((first, second), (second, first)):
            for number in sorted(held.get(one, set()) - held.get(other, set())):
                spread(one, number, event.time)
    bear(end)
    return arrivals
