"""Replays a list of messages over contacts with the nodes' own strategies and nothing else.

The strategies and the tables of encounters are the real ones; frames, disks, delays and limits of
links are left out, and receipts reach every linked node at once. Some hundred times faster than
real cores, for long traces and for comparing strategies; `workload.py` does the same with real
cores, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge

from denwatch.node.core.items import Dot
from denwatch.node.replication.strategies import (
    Candidate,
    Copy,
    CopyChoice,
    Encounters,
    MetPeer,
    Strategy,
)

from simulator.calendar import START
from simulator.traces import ContactEvent, Parcel
from simulator.workload import Score


def _forget(space: str, key: bytes, value: bytes | None) -> None:
    """Save nothing: there is no disk."""


class _Place:
    """One node: what it holds and knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: dict[int, Copy] = {}
        self.seen: set[int] = set()
        self.marks: set[int] = set()
        self.encounters = Encounters()
        self.links: dict[int, None] = {}


class Direct:
    """Nothing to anybody but those it is for: what every other strategy is measured against."""

    copies = 1
    is_asking = False

    def choose(
        self,
        candidates: Sequence[Candidate],
        peer: MetPeer,
        encounters: Encounters,  # noqa: ARG002 - the interface of all strategies
        now: int,  # noqa: ARG002
    ) -> list[CopyChoice]:
        """Return what is for the peer itself."""
        return [CopyChoice(c.dot, 1, c.copy) for c in candidates if peer.name in c.destinations]


class Replay:
    """One run of one strategy. `has_marks` False: nobody learns what was delivered."""

    def __init__(
        self, strategy: Strategy, parcels: Sequence[Parcel], count: int, *, has_marks: bool = True
    ) -> None:
        self.score = Score(len(parcels))
        self._strategy = strategy
        self._parcels = sorted(parcels, key=lambda parcel: parcel.time)
        self._places = [_Place(f"n{number:03d}") for number in range(count)]
        self._dots = [Dot("post", 1, number + 1) for number in range(len(self._parcels))]
        self._has_marks = has_marks

    def run(self, contacts: Iterable[ContactEvent]) -> Score:
        """Let all contacts and messages happen, in the order of time."""
        # Of one moment: first contacts end, then messages begin, then contacts begin.
        births = ((parcel.time, 1, number, 0) for number, parcel in enumerate(self._parcels))
        meetings = sorted((e.time, 2 if e.is_up else 0, e.first, e.second) for e in contacts)
        for time, kind, first, second in merge(births, meetings):
            now = START + time
            if kind == 1:
                self._bear(first, now)
                continue
            one, other = self._places[first], self._places[second]
            one.encounters.meet(_forget, other.name, now, kind == 2)
            other.encounters.meet(_forget, one.name, now, kind == 2)
            if kind == 2:
                one.links[second] = other.links[first] = None
                self._settle([(first, second)], now)
            else:
                one.links.pop(second, None)
                other.links.pop(first, None)
        return self.score

    def _bear(self, number: int, now: int) -> None:
        source = self._parcels[number].source
        place = self._places[source]
        place.seen.add(number)
        place.held[number] = Copy(self._strategy.copies, 0, 0)
        self._settle([(source, other) for other in place.links], now)

    def _settle(self, pairs: list[tuple[int, int]], now: int) -> None:
        """Let linked nodes exchange until nobody has anything new."""
        while pairs:
            first, second = pairs.pop()
            for one, other in ((first, second), (second, first)):
                if self._has_marks and self._mark(one, other):
                    pairs += [(other, third) for third in self._places[other].links if third != one]
            for one, other in ((first, second), (second, first)):
                changed = self._hand_over(one, other, now)
                for node in changed:
                    others = self._places[node].links
                    pairs += [(node, third) for third in others if third not in (one, other)]

    def _mark(self, one: int, other: int) -> bool:
        """Tell what was delivered; return whether that was news."""
        giver, taker = self._places[one], self._places[other]
        news = giver.marks - taker.marks
        taker.marks |= news
        for number in news:
            taker.held.pop(number, None)
        return bool(news)

    def _hand_over(self, one: int, other: int, now: int) -> list[int]:
        """Let one node hand over what its strategy says; return the nodes where that is news."""
        giver, taker = self._places[one], self._places[other]
        lacking = [number for number in giver.held if number not in taker.seen]
        candidates = []
        for number in lacking:
            parcel = self._parcels[number]
            expires = START + parcel.time + parcel.life
            if expires <= now:
                del giver.held[number]
                continue
            target = self._places[parcel.target].name
            candidates.append(
                Candidate(self._dots[number], giver.held[number], expires, {target: 255}, (target,))
            )
        if not candidates:
            return []
        changed: list[int] = []
        for choice in self._strategy.choose(
            candidates, self._ask(giver, taker, candidates, now), giver.encounters, now
        ):
            number = choice.dot.sequence - 1
            parcel = self._parcels[number]
            self.score.relays += 1
            self.score.payload += parcel.size
            taker.seen.add(number)
            giver.held[number] = choice.kept
            if parcel.target == other:
                self.score.latencies[parcel.name] = now - START - parcel.time
                taker.marks.add(number)
                if self._has_marks:
                    giver.marks.add(number)
                    del giver.held[number]
                    changed += [one, other]
            else:
                taker.held[number] = Copy(choice.given, choice.kept.hops + 1, 0)
                changed.append(other)
        return list(dict.fromkeys(changed))

    def _ask(
        self, giver: _Place, taker: _Place, candidates: Sequence[Candidate], now: int
    ) -> MetPeer:
        """Return what the strategy wants to know of a peer, as question and answer tell it."""
        if not self._strategy.is_asking:
            return MetPeer(taker.name, {}, 0)
        named = {node for each in candidates for node in each.destinations}
        likely = {}
        for node in sorted(named - {giver.name, taker.name}):
            likely[node] = byte = taker.encounters.judge(node, now)
            giver.encounters.hear(_forget, node, byte, now)
        return MetPeer(taker.name, likely, taker.encounters.reach)
