"""What another strategy would have done: notifications replayed over the contacts that were. Pure.

The strategies are the node's own (`node.replication.strategies`), asked as a node asks them.
What is idealised, for all of them alike: a contact hands over everything at once, nothing is
dropped for want of room, subscriptions travel as fast as contacts allow (as they do: they go to
everybody), and where a subscriber is, or that it has something, is known everywhere at once.
Under these rules notifications do not touch each other, so any part of them can be replayed alone.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations
from typing import Any, NamedTuple

import pandas as pd
from denwatch.node.core.items import Dot
from denwatch.node.replication import strategies
from denwatch.node.replication.strategies import Candidate, Copy, Encounters, Strategy
from denwatch.spark.analytics.contacts import ContactGraph, ContactSpan, Stay, limit_time
from denwatch.spark.analytics.outcomes import measure_latency
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_UP, _NOTE, _PLACE, _MEET, _DOWN = range(5)  # what happens first of what happens at one time


class Direct:
    """Nothing is carried: only who made a notification hands it to where it is wanted."""

    copies = 1
    is_asking = False

    def choose(
        self,
        candidates: Sequence[Candidate],
        peer: strategies.MetPeer,
        encounters: Encounters,  # noqa: ARG002 — the interface of all strategies
        now: int,  # noqa: ARG002
    ) -> list[strategies.CopyChoice]:
        """Return what is for somebody there, of what is first-hand."""
        return [
            strategies.CopyChoice(each.dot, 1, each.copy)
            for each in candidates
            if peer.name in each.destinations and not each.copy.hops
        ]


def make_strategy(text: str) -> Strategy:
    """Return the strategy of a word: those of a node, and `direct`."""
    return Direct() if text == "direct" else strategies.build_strategy(text)


@dataclass(frozen=True)
class Carried:
    """A notification to be replayed; `wanted` has, by subscriber, degree and where to get it."""

    id: int
    origin: str
    time: int
    until: int
    wanted: Mapping[str, tuple[int, Sequence[Stay]]]


@dataclass(frozen=True)
class World:
    """What there was: contacts, and where each subscriber was since when, in order."""

    contacts: Sequence[ContactSpan]
    places: Mapping[str, Sequence[tuple[int, str]]]


@dataclass
class Replayed:
    """What became of one notification."""

    id: int
    relays: int = 0  # times that it was handed from node to node
    delivered: dict[str, tuple[int, str]] = field(default_factory=dict)  # when and where


class _Event(NamedTuple):
    time: int
    order: int
    first: str
    second: str
    number: int  # of the notification


def replay(world: World, notes: Sequence[Carried], strategy: Strategy) -> list[Replayed]:
    """Return what becomes of each notification under a strategy."""
    run = _Run(world, notes, strategy)
    for event in run.list_events():
        run.take(event)
    return run.results


class _Run:
    """The state of one replay; sets of notifications are the bits of an integer."""

    def __init__(self, world: World, notes: Sequence[Carried], strategy: Strategy) -> None:
        self.results = [Replayed(note.id) for note in notes]
        self._world = world
        self._notes = notes
        self._strategy = strategy
        self._links: dict[str, dict[str, int]] = {}  # how many contacts hold a link up
        self._seen: dict[str, int] = {}
        self._copies: dict[tuple[str, int], Copy] = {}
        self._encounters: defaultdict[str, Encounters] = defaultdict(Encounters)
        self._told: set[frozenset[str]] = set()  # who told each other all ways in this contact
        self._place: dict[str, str] = {}
        self._alive = 0
        self._ends: list[tuple[int, int]] = []
        self._meetings: list[_Event] = []  # notification and subscriber at one node, to come

    def list_events(self) -> Iterator[_Event]:
        """Yield all that happens, in order; meetings come up on the way."""
        if not self._notes:
            return
        last = max(note.until for note in self._notes)
        known: list[_Event] = []
        for first, second, begin, end in self._world.contacts:
            if begin <= last:
                known.append(_Event(begin, _UP, first, second, -1))
                known.append(_Event(end, _DOWN, first, second, -1))
        for owner, places in self._world.places.items():
            known += [_Event(time, _PLACE, owner, node, -1) for time, node in places]
        for number, note in enumerate(self._notes):
            known.append(_Event(note.time, _NOTE, note.origin, "", number))
        for event in sorted(known):
            while self._meetings and self._meetings[0] < event:
                yield heapq.heappop(self._meetings)
            yield event
        while self._meetings:
            yield heapq.heappop(self._meetings)

    def take(self, event: _Event) -> None:
        """Let one thing happen."""
        self._expire(event.time)
        if event.order == _UP:
            self._link(event)
        elif event.order == _DOWN:
            self._cut(event)
        elif event.order == _PLACE:
            self._place[event.first] = event.second
            for other in list(self._links.get(event.second, ())):
                self._exchange(event.second, other, event.time)
        elif event.order == _MEET:
            self._deliver(event.number, event.second, event.first, event.time)
        else:
            self._alive |= 1 << event.number
            heapq.heappush(self._ends, (self._notes[event.number].until, event.number))
            self._copies[event.first, event.number] = Copy(self._strategy.copies, 0)
            self._arrive(event.first, 1 << event.number, event.time)
            self._spread([(event.first, 1 << event.number)], event.time)

    def _expire(self, time: int) -> None:
        while self._ends and self._ends[0][0] < time:
            self._alive &= ~(1 << heapq.heappop(self._ends)[1])

    def _link(self, event: _Event) -> None:
        for here, there in permutations((event.first, event.second)):
            links = self._links.setdefault(here, {})
            links[there] = links.get(there, 0) + 1
            if links[there] == 1:
                self._encounters[here].meet(_forget, there, event.time, True)
        self._exchange(event.first, event.second, event.time)

    def _cut(self, event: _Event) -> None:
        for here, there in permutations((event.first, event.second)):
            self._links[here][there] -= 1
            if not self._links[here][there]:
                del self._links[here][there]
                self._encounters[here].meet(_forget, there, event.time, False)
                self._told.discard(frozenset((here, there)))

    def _exchange(self, one: str, other: str, time: int) -> None:
        pairs = permutations((one, other))
        self._spread([(there, self._offer(here, there, -1, time)) for here, there in pairs], time)

    def _spread(self, queue: list[tuple[str, int]], time: int) -> None:
        """Let what nodes have got go on over the links that are up, until nothing moves."""
        while queue:
            node, bits = queue.pop(0)
            for other in list(self._links.get(node, ())):
                moved = self._offer(node, other, bits, time)
                if moved:
                    queue.append((other, moved))

    def _offer(self, here: str, there: str, among: int, time: int) -> int:
        """Let one node hand over what the strategy chooses; return it as bits."""
        bits = self._seen.get(here, 0) & ~self._seen.get(there, 0) & self._alive & among
        if not bits:
            return 0
        candidates = [self._describe(here, number) for number in _list_bits(bits)]
        own, theirs = self._encounters[here], self._encounters[there]
        likely = self._ask(here, there, candidates, time) if self._strategy.is_asking else {}
        peer = strategies.MetPeer(there, likely, theirs.reach)
        moved = 0
        for choice in self._strategy.choose(candidates, peer, own, time):
            number = choice.dot.sequence
            self._copies[here, number] = choice.kept
            self._copies[there, number] = Copy(choice.given, choice.kept.hops + 1, 0, time)
            self.results[number].relays += 1
            moved |= 1 << number
        if moved:
            self._arrive(there, moved, time)
        return moved

    def _ask(
        self, here: str, there: str, candidates: Sequence[Candidate], time: int
    ) -> dict[str, int]:
        """Return what a node tells of destinations; once in a contact both tell of all nodes."""
        if frozenset((here, there)) not in self._told:
            self._told.add(frozenset((here, there)))
            nodes = sorted({*self._place.values()})
            for one, other in ((here, there), (there, here)):
                told = self._encounters[other].tell(nodes, one, time)
                self._encounters[one].hear(other, nodes, told, time)
        asked = sorted({node for each in candidates for node in each.destinations})
        return dict(zip(asked, self._encounters[there].tell(asked, here, time), strict=True))

    def _describe(self, node: str, number: int) -> Candidate:
        note = self._notes[number]
        delivered = self.results[number].delivered
        left = {owner: want[0] for owner, want in note.wanted.items() if owner not in delivered}
        places = dict.fromkeys(self._place[owner] for owner in left if owner in self._place)
        return Candidate(
            Dot("", 0, number),
            self._copies[node, number],
            note.until,
            left,
            tuple(places),
            note.time,
        )

    def _arrive(self, node: str, bits: int, time: int) -> None:
        """Note what a node has now, and when it will meet those who want it."""
        self._seen[node] = self._seen.get(node, 0) | bits
        for number in _list_bits(bits):
            note = self._notes[number]
            for owner, (_, stays) in note.wanted.items():
                for stay in stays:
                    moment = max(time, stay.begin)
                    if stay.node != node or moment > min(stay.end, note.until):
                        continue
                    if moment == time:
                        self._deliver(number, owner, node, time)
                    else:
                        event = _Event(moment, _MEET, node, owner, number)
                        heapq.heappush(self._meetings, event)
                    break

    def _deliver(self, number: int, owner: str, node: str, time: int) -> None:
        if owner not in self.results[number].delivered:
            self.results[number].delivered[owner] = time, node
            self._encounters[node].learn_age(time - self._notes[number].time)


def _list_bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _forget(space: str, key: bytes, value: bytes | None) -> None:
    """What a replay remembers goes to no disk."""


def list_places(
    stays: Mapping[str, Iterable[Stay]], homes: Mapping[str, tuple[int, str]]
) -> dict[str, list[tuple[int, str]]]:
    """Return where each subscriber was since when: where it asked, then where it came to."""
    places: dict[str, list[tuple[int, str]]] = {}
    for owner in sorted({*stays, *homes}):
        moves = [(stay.begin, stay.node) for stay in stays.get(owner, ())]
        if owner in homes:
            moves.append(homes[owner])
        places[owner] = sorted(moves)
    return places


# On Spark -------------------------------------------------------------------------------
# Notifications are split into groups that are replayed separately (`replay`), all over the same
# contacts; then strategies and copy budgets are compared, and one is recommended.

STRATEGIES = (
    *("direct", "spray:2", "spray:4", "spray:8", "spray:16"),
    *("utility:4", "utility:8", "utility:11", "utility:16", "epidemic"),
)
REPLAYED = (
    "strategy string, note_id bigint, relays int, owner string, at bigint, delivered bigint, "
    "is_remote boolean"
)
_PART = 2_000  # notifications replayed together
_ENOUGH = 0.99  # of what the best delivers
_SOON = 1.25  # times the latency (p90) of the fastest of those

NEEDED = ("note_id", "owner", "origin", "born", "at", "until", "degree", "asked")


def replay_strategies(
    pairs: DataFrame,
    contacts: Sequence[ContactSpan],
    stays: Mapping[str, Sequence[Stay]],
    homes: Mapping[str, tuple[int, str]],
    end: int,
    strategies: Sequence[str] = STRATEGIES,
) -> DataFrame:
    """Return what each strategy does with each pair of `describe_pairs`.

    `homes` says where and since when each subscriber is known to be before it comes anywhere: where
    it subscribed first.
    """
    notes = pairs.groupBy("note_id", "origin", "born", "at").agg(
        F.collect_list(F.struct("owner", "degree", "asked", "until")).alias("wanted")
    )
    size = F.greatest(F.lit(1), F.ceil(F.lit(notes.count()) / _PART))
    parts = notes.withColumn("part", F.pmod(F.xxhash64("note_id"), size))
    names = notes.sparkSession.createDataFrame([(name,) for name in strategies], "strategy string")
    world = World(list(contacts), list_places(stays, homes))
    graph = ContactGraph(contacts, {stay.node for kept in stays.values() for stay in kept})

    def work(frame: pd.DataFrame) -> pd.DataFrame:
        name = str(frame["strategy"].iloc[0])
        frame = frame.sort_values("note_id")
        find = lru_cache(maxsize=4_096)(graph.find_arrivals)

        def find_places(want: dict[str, Any], limit: int) -> list[Stay]:
            """Return where a subscriber can be served: there, with the subscription, in time."""
            known = [find(each["origin"], int(each["begins"])) for each in want["asked"]]
            places = []
            for stay in stays.get(want["owner"], ()):
                ready = min((graph.read(times, stay.node) for times in known), default=limit + 1)
                begin, until = max(stay.begin, ready), min(stay.end, limit)
                if begin <= until:
                    places.append(Stay(stay.node, begin, until))
            return sorted(places, key=lambda stay: stay.begin)

        notes = []
        for row in frame.itertuples(index=False):
            limits = [limit_time(want["until"], end) for want in row.wanted]
            wanted = {
                want["owner"]: (int(want["degree"]), find_places(want, limit))
                for want, limit in zip(row.wanted, limits, strict=True)
            }
            notes.append(Carried(int(row.note_id), row.origin, int(row.born), max(limits), wanted))
        done = replay(world, notes, make_strategy(name))
        rows = []
        for note, result, at in zip(notes, done, frame["at"], strict=True):
            for owner in note.wanted:
                time, node = result.delivered.get(owner, (None, None))
                is_remote = None if node is None else node != note.origin
                rows.append((name, note.id, result.relays, owner, int(at), time, is_remote))
        columns = [column.split()[0] for column in REPLAYED.split(", ")]
        return pd.DataFrame(rows, columns=columns).astype({"delivered": "Int64"})

    return parts.crossJoin(names).groupBy("strategy", "part").applyInPandas(work, REPLAYED)


def compare_strategies(replayed: DataFrame, note_bytes: float) -> DataFrame:
    """Return one row a strategy: delivered of wanted, latency, copies and bytes a delivery.

    `note_bytes` is what a notification weighs on a link. `overhead` as in `measure_costs`.
    """
    delivered = F.col("delivered").isNotNull()
    pairs = replayed.withColumn("latency", F.col("delivered") - F.col("at"))
    told = pairs.groupBy("strategy").agg(
        F.count("*").alias("wanted"),
        F.count_if(delivered).alias("delivered"),
        F.count_if(F.col("is_remote")).alias("remote"),
        *measure_latency("latency"),
    )
    relays = (
        replayed.select("strategy", "note_id", "relays")
        .distinct()
        .groupBy("strategy")
        .agg(F.sum("relays").alias("relays"))
    )
    return (
        told.join(relays, "strategy")
        .withColumn("ratio", F.try_divide("delivered", "wanted"))
        .withColumn("copies_per_delivery", F.try_divide("relays", "delivered"))
        .withColumn("overhead", F.try_divide(F.col("relays") - F.col("remote"), "delivered"))
        .withColumn("bytes_per_delivery", F.col("copies_per_delivery") * F.lit(note_bytes))
        .orderBy("strategy")
    )


def recommend(table: pd.DataFrame, used: str = "") -> tuple[str, str]:
    """Return the strategy to take and why, from `compare_strategies`.

    Enough is 99 % of what the best delivers; of those that deliver enough and take at most a
    quarter longer than the fastest of them (nine tenths of the deliveries), the one that copies
    least.
    """
    if table.empty or not table["delivered"].sum():
        return "", "Nothing could have been delivered by any strategy: there is nothing to compare."
    enough = table[table["ratio"] >= _ENOUGH * table["ratio"].max()]
    fastest = enough["p90_ms"].min()
    quick = enough[enough["p90_ms"] <= max(_SOON * fastest, fastest + 1_000)]
    best = quick.sort_values(["relays", "p90_ms", "strategy"]).iloc[0]
    most = table.sort_values(["relays", "strategy"]).iloc[-1]
    text = (
        f"{best['strategy']} delivers {best['ratio']:.1%} of what was wanted, "
        f"nine tenths of it within {best['p90_ms'] / 1000:,.0f} s, with "
        f"{best['copies_per_delivery']:.2f} copies a delivery"
    )
    if most["strategy"] != best["strategy"] and most["relays"]:
        text += f"; {most['strategy']} takes {most['copies_per_delivery']:.2f}"
        text += f" for {most['ratio']:.1%}"
    if used and used == best["strategy"]:
        text += ". It is what the nodes use"
    return str(best["strategy"]), text + "."


def find_homes(windows: DataFrame) -> dict[str, tuple[int, str]]:
    """Return where and when each subscriber subscribed first."""
    rows = (
        windows.groupBy("owner")
        .agg(F.min("begins").alias("begins"), F.min_by("origin", "begins").alias("origin"))
        .collect()
    )
    return {row["owner"]: (row["begins"], row["origin"]) for row in rows}
