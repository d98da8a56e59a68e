"""Replays a list of messages over contacts with the nodes' own strategies and nothing else.

The strategies and the tables of encounters are the real ones; frames, disks and delays are left
out, and receipts reach every linked node at once. Some hundred times faster than real cores, for
long traces and for comparing strategies; `workload.py` does the same with real cores, and a test
compares the two.

With `Limits` a contact carries no more bytes than its length allows, in both directions together:
messages, and what nodes tell each other of ways. Receipts are left out of that, being small. A node
that is full drops the messages of others that expire first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from typing import NamedTuple

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

Contact = tuple[int, int, int]  # when it began, and the two nodes
_QUESTION = 26  # bytes of a question or an answer beside one for each node


class Limits(NamedTuple):
    """What links and nodes can do."""

    rate: int  # bytes a second
    room: int  # bytes of messages at a node


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
        self.told: set[str] = set()  # peers that told all their ways in this contact
        self.links: dict[int, int] = {}  # by node: how many bytes the contact still carries
        self.used = 0  # bytes of messages


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
        self,
        strategy: Strategy,
        parcels: Sequence[Parcel],
        count: int,
        *,
        has_marks: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self.score = Score(len(parcels))
        self._strategy = strategy
        self._parcels = sorted(parcels, key=lambda parcel: parcel.time)
        self._places = [_Place(f"n{number:03d}") for number in range(count)]
        self._names = [place.name for place in self._places]
        self._dots = [Dot("post", 1, number + 1) for number in range(len(self._parcels))]
        self._has_marks = has_marks
        self._limits = limits

    def run(self, contacts: Iterable[ContactEvent]) -> Score:
        """Let all contacts and messages happen, in the order of time."""
        # Of one moment: first contacts end, then messages begin, then contacts begin.
        births = ((parcel.time, 1, number, 0) for number, parcel in enumerate(self._parcels))
        meetings = sorted((e.time, 2 if e.is_up else 0, e.first, e.second) for e in contacts)
        lengths = _measure_contacts(meetings)
        for time, kind, first, second in merge(births, meetings):
            now = START + time
            if kind == 1:
                self._bear(first, now)
                continue
            one, other = self._places[first], self._places[second]
            one.encounters.meet(_forget, other.name, now, kind == 2)
            other.encounters.meet(_forget, one.name, now, kind == 2)
            if kind == 2:
                length = lengths.get((time, first, second), 0)
                capacity = self._limits.rate * length // 1000 if self._limits else 0
                one.links[second] = other.links[first] = capacity
                one.told.discard(other.name)
                other.told.discard(one.name)
                self._settle([(first, second)], now)
            else:
                one.links.pop(second, None)
                other.links.pop(first, None)
        return self.score

    def _bear(self, number: int, now: int) -> None:
        source = self._parcels[number].source
        place = self._places[source]
        place.seen.add(number)
        place.held[number] = Copy(self._strategy.copies, 0)
        place.used += self._parcels[number].size
        self._settle([(source, other) for other in place.links], now)

    def _settle(self, pairs: list[tuple[int, int]], now: int) -> None:
        """Let linked nodes exchange until nobody has anything new."""
        while pairs:
            first, second = pairs.pop()
            for one, other in ((first, second), (second, first)):
                if self._has_marks and self._mark(one, other, now):
                    pairs += [(other, third) for third in self._places[other].links if third != one]
            for one, other in ((first, second), (second, first)):
                changed = self._hand_over(one, other, now)
                for node in changed:
                    others = self._places[node].links
                    pairs += [(node, third) for third in others if third not in (one, other)]

    def _mark(self, one: int, other: int, now: int) -> bool:
        """Tell what was delivered; return whether that was news."""
        giver, taker = self._places[one], self._places[other]
        news = giver.marks - taker.marks
        taker.marks |= news
        for number in news:
            if number in taker.held:
                self._drop(taker, number)
                taker.encounters.learn_age(now - START - self._parcels[number].time)
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
                self._drop(giver, number)
                giver.encounters.learn_age(parcel.life)
                continue
            target = self._places[parcel.target].name
            candidates.append(
                Candidate(
                    self._dots[number],
                    giver.held[number],
                    expires,
                    {target: 255},
                    (target,),
                    START + parcel.time,
                )
            )
        if not candidates:
            return []
        changed: list[int] = []
        for choice in self._strategy.choose(
            candidates, self._ask(giver, taker, candidates, now), giver.encounters, now
        ):
            number = choice.dot.sequence - 1
            parcel = self._parcels[number]
            if not self._admit(one, other, number):
                continue
            self.score.relays += 1
            self.score.payload += parcel.size
            taker.seen.add(number)
            giver.held[number] = choice.kept
            if parcel.target == other:
                self.score.latencies[parcel.name] = now - START - parcel.time
                taker.marks.add(number)
                if self._has_marks:
                    giver.marks.add(number)
                    self._drop(giver, number)
                    giver.encounters.learn_age(now - START - parcel.time)
                    changed += [one, other]
            else:
                taker.held[number] = Copy(choice.given, choice.kept.hops + 1, 0, now)
                taker.used += parcel.size
                changed.append(other)
        return list(dict.fromkeys(changed))

    def _drop(self, place: _Place, number: int) -> None:
        del place.held[number]
        place.used -= self._parcels[number].size

    def _admit(self, one: int, other: int, number: int) -> bool:
        """Return whether link and taker have room for a message; make it by dropping others."""
        if self._limits is None:
            return True
        size = self._parcels[number].size
        taker = self._places[other]
        if self._places[one].links.get(other, 0) < size:
            return False
        if self._parcels[number].target != other:
            while taker.used + size > self._limits.room:
                foreign = [each for each in taker.held if self._parcels[each].source != other]
                first = min([*foreign, number], key=lambda each: (self._find_end(each), each))
                if first == number:
                    return False
                self._drop(taker, first)
        self._charge(one, other, size)
        return True

    def _find_end(self, number: int) -> int:
        return self._parcels[number].time + self._parcels[number].life

    def _charge(self, one: int, other: int, size: int) -> None:
        left = max(0, self._places[one].links.get(other, 0) - size)
        self._places[one].links[other] = self._places[other].links[one] = left

    def _ask(
        self, giver: _Place, taker: _Place, candidates: Sequence[Candidate], now: int
    ) -> MetPeer:
        """Return what the strategy wants to know of a peer, as question and answer tell it."""
        if not self._strategy.is_asking:
            return MetPeer(taker.name, {}, 0)
        if taker.name not in giver.told:
            # Once in a contact, everything in both directions: the question tells it as well.
            for here, there in ((giver, taker), (taker, giver)):
                here.told.add(there.name)
                told = there.encounters.tell(self._names, here.name, now)
                here.encounters.hear(there.name, self._names, told, now)
            if self._limits is not None:
                size = 2 * (_QUESTION + len(self._names))
                self._charge(int(giver.name[1:]), int(taker.name[1:]), size)
        named = sorted({node for each in candidates for node in each.destinations})
        told = taker.encounters.tell(named, giver.name, now)
        giver.encounters.hear(taker.name, named, told, now)
        likely = dict(zip(named, told, strict=True))
        return MetPeer(taker.name, likely, taker.encounters.reach)


def _measure_contacts(meetings: Sequence[tuple[int, int, int, int]]) -> dict[Contact, int]:
    """Return the length of each contact that ends, in ms, by its beginning and its nodes."""
    lengths: dict[Contact, int] = {}
    begun: dict[tuple[int, int], int] = {}
    for time, kind, first, second in meetings:
        pair = min(first, second), max(first, second)
        if kind == 2:
            begun.setdefault(pair, time)
        elif pair in begun:
            start = begun.pop(pair)
            lengths[start, first, second] = lengths[start, second, first] = time - start
    return lengths
