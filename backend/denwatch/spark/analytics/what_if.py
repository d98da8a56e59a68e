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
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from denwatch.node.core.items import Dot
from denwatch.node.replication import strategies
from denwatch.node.replication.strategies import Candidate, Copy, Encounters, Strategy
from denwatch.spark.analytics.contacts import ContactSpan, SharedContacts, Stay, limit_time
from denwatch.spark.analytics.outcomes import measure_latency
from denwatch.spark.analytics.timeline import is_single, sort_rows
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
        for subscriber, places in self._world.places.items():
            known += [_Event(time, _PLACE, subscriber, node, -1) for time, node in places]
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
        left = {
            subscriber: want[0]
            for subscriber, want in note.wanted.items()
            if subscriber not in delivered
        }
        places = dict.fromkeys(
            self._place[subscriber] for subscriber in left if subscriber in self._place
        )
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
            for subscriber, (_, stays) in note.wanted.items():
                for stay in stays:
                    moment = max(time, stay.begin)
                    if stay.node != node or moment > min(stay.end, note.until):
                        continue
                    if moment == time:
                        self._deliver(number, subscriber, node, time)
                    else:
                        event = _Event(moment, _MEET, node, subscriber, number)
                        heapq.heappush(self._meetings, event)
                    break

    def _deliver(self, number: int, subscriber: str, node: str, time: int) -> None:
        if subscriber not in self.results[number].delivered:
            self.results[number].delivered[subscriber] = time, node
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
    for subscriber in sorted({*stays, *homes}):
        moves = [(stay.begin, stay.node) for stay in stays.get(subscriber, ())]
        if subscriber in homes:
            moves.append(homes[subscriber])
        places[subscriber] = sorted(moves)
    return places


# On Spark -------------------------------------------------------------------------------
# A sample of the notifications is replayed, in groups that do not touch each other (`replay`), all
# over the same contacts. Only what was expected is counted (withheld on purpose by no node), so
# that a strategy and the headline have one denominator.
#
# How sure a difference is: notifications are cut into blocks by a hash of their id, and blocks are
# drawn with replacement, again and again (a bootstrap); the same draw for all strategies, so that
# what is hard to deliver weighs on all of them alike. How right the replay is: what it says of the
# strategy in use, against what the logs say of it.

STRATEGIES = (
    *("direct", "spray:2", "spray:4", "spray:8", "spray:16"),
    *("utility:4", "utility:8", "utility:11", "utility:16", "epidemic"),
)
REPLAYED = (
    "strategy string, notification_id bigint, relays int, subscriber string, at bigint,"
    " delivered bigint, is_remote boolean"
)
SAMPLE = 20_000  # notifications that are replayed, at most
BLOCKS = 200
_NOTE_BYTES = 200.0  # of a notification between nodes, where no transfer tells
_PART = 2_000  # notifications replayed together
_DRAWS = 400
_ENOUGH = 0.99  # of what the best delivers
_SOON = 1.25  # times the latency (p90) of the fastest of those
_LEAST_PAIRS, _LEAST_MS = 100, 3_600_000  # less evidence is none
_FLOOR = 2  # copies: fair weather alone speaks for fewer

NEEDED = ("notification_id", "subscriber", "origin", "born", "at", "until", "degree", "asked")


def replay_strategies(
    pairs: DataFrame,
    shared: SharedContacts,
    strategies: Sequence[str] = STRATEGIES,
    *,
    sample: int = SAMPLE,
) -> DataFrame:
    """Return what each strategy does with pairs of `describe_pairs`, of so many notifications.

    The sample follows from the ids alone. `relays` stands in one row of each notification.
    """
    notes = pairs.groupBy("notification_id", "origin", "born", "at").agg(
        F.collect_list(F.struct("subscriber", "degree", "asked", "until")).alias("wanted")
    )
    chosen = notes.orderBy(F.xxhash64("notification_id"), "notification_id").limit(sample)
    parts = 1 if is_single(notes.sparkSession) else -(-sample // _PART)
    cut = chosen.withColumn("part", F.pmod(F.xxhash64("notification_id", F.lit(1)), parts))
    named = F.explode(F.array(*(F.lit(name) for name in strategies)))

    def work(frame: pd.DataFrame) -> pd.DataFrame:
        name = str(frame["strategy"].iloc[0])
        frame = frame.sort_values("notification_id")
        graph, contacts, stays, homes, end, find = shared.load()

        def find_places(want: dict[str, Any], limit: int) -> list[Stay]:
            """Return where a subscriber can be served: there, with the subscription, in time."""
            known = [find(each["origin"], int(each["begins"])) for each in want["asked"]]
            places = []
            for stay in stays.get(want["subscriber"], ()):
                ready = min((graph.read(times, stay.node) for times in known), default=limit + 1)
                begin, until = max(stay.begin, ready), min(stay.end, limit)
                if begin <= until:
                    places.append(Stay(stay.node, begin, until))
            return sorted(places, key=lambda stay: stay.begin)

        notes = []
        for row in frame.itertuples(index=False):
            limits = [limit_time(want["until"], end) for want in row.wanted]
            wanted = {
                want["subscriber"]: (int(want["degree"]), find_places(want, limit))
                for want, limit in zip(row.wanted, limits, strict=True)
            }
            notes.append(
                Carried(int(row.notification_id), row.origin, int(row.born), max(limits), wanted)
            )
        world = World(contacts, list_places(stays, homes))
        done = replay(world, notes, make_strategy(name))
        rows = []
        for note, result, at in zip(notes, done, frame["at"], strict=True):
            for place, subscriber in enumerate(note.wanted):
                time, node = result.delivered.get(subscriber, (None, None))
                is_remote = None if node is None else node != note.origin
                relays = 0 if place else result.relays
                rows.append((name, note.id, relays, subscriber, int(at), time, is_remote))
        columns = [column.split()[0] for column in REPLAYED.split(", ")]
        return pd.DataFrame(rows, columns=columns).astype({"delivered": "Int64"})

    groups = cut.withColumn("strategy", named).groupBy("strategy", "part")
    return groups.applyInPandas(work, REPLAYED)


def compare_strategies(replayed: DataFrame, costs: DataFrame) -> DataFrame:
    """Return a row for each strategy and block, and one with the block null for all of a strategy.

    Columns: wanted, delivered, remote, relays, latencies, ratio, copies and bytes a delivery.
    `costs` are those of `measure_costs`: they say what a notification weighs on a link.
    """
    weight = f"nvl(try_divide(notification_bytes, relays), {_NOTE_BYTES}D) as weight"
    block = F.pmod(F.xxhash64("notification_id", F.lit(2)), BLOCKS)
    pairs = replayed.withColumns({"latency": F.col("delivered") - F.col("at"), "block": block})
    counted = pairs.rollup("strategy", "block").agg(
        F.count("*").alias("wanted"),
        F.count("delivered").alias("delivered"),
        F.count_if(F.col("is_remote")).alias("remote"),
        F.sum("relays").alias("relays"),
        *measure_latency(replayed.sparkSession, "latency"),
    )
    compared = (
        counted.where("strategy is not null")
        .crossJoin(costs.selectExpr(weight))
        .withColumn("ratio", F.try_divide("delivered", "wanted"))
        .withColumn("copies_per_delivery", F.try_divide("relays", "delivered"))
        .withColumn("overhead", F.try_divide(F.col("relays") - F.col("remote"), "delivered"))
        .withColumn("bytes_per_delivery", F.col("copies_per_delivery") * F.col("weight"))
        .withColumn("bytes", (F.col("relays") * F.col("weight")).cast("bigint"))
        .drop("weight")
    )
    return sort_rows(compared, "strategy", "block")


# Advice ---------------------------------------------------------------------------------


class Advice(NamedTuple):
    """What to do: the strategy to take ("": nothing is advised) and why; the table behind it."""

    best: str
    text: str
    table: pd.DataFrame


class Evidence(NamedTuple):
    """What really happened, to be compared with."""

    used: str  # the strategy of all nodes, if they use one
    expected: int
    delivered: int
    span: int  # of the logs, ms


def advise(whole: pd.DataFrame, blocks: pd.DataFrame, evidence: Evidence) -> Advice:
    """Return what to do, from the rows of `compare_strategies` for all, and for blocks.

    Enough is 99 % of what the best delivers; of those that deliver enough and take at most a
    quarter longer than the fastest of them (nine tenths of the deliveries), the one that copies
    least is the candidate. It is advised if the difference is beyond chance and beyond the error of
    the replay: it delivers more, or not less for fewer bytes.
    """
    whole = whole.sort_values("strategy").reset_index(drop=True)
    if whole.empty or not whole["delivered"].sum():
        nothing = "Nothing could have been delivered by any strategy: there is nothing to compare."
        return Advice("", nothing, whole)
    base = evidence.used if evidence.used in set(whole["strategy"]) else ""
    if base:
        gains = draw_gains(blocks, base)
        low_high = np.quantile(gains, [0.025, 0.975], axis=1)  # in the order of names, too
        ours = whole.loc[whole["strategy"] == base, "delivered"].iloc[0]
        whole["gain"] = whole["delivered"] - ours
        whole["gain_low"], whole["gain_high"] = low_high
    replayed = int(whole["wanted"].max())
    scale = evidence.expected / replayed if replayed else 1.0
    sampled = "" if scale <= 1 else f" From a sample of {replayed:,} of {evidence.expected:,}."
    if evidence.expected < _LEAST_PAIRS or evidence.span < _LEAST_MS:
        return Advice(
            "",
            f"No advice: {evidence.expected:,} expected deliveries in {evidence.span / 60_000:,.0f}"
            f" min are too little to judge by; it takes {_LEAST_PAIRS} and"
            f" {_LEAST_MS // 60_000} min.",
            whole,
        )
    enough = whole[whole["ratio"] >= _ENOUGH * whole["ratio"].max()]
    fastest = enough["p90_ms"].min()
    quick = enough[enough["p90_ms"] <= max(_SOON * fastest, fastest + 1_000)]
    bold = quick[[_count_copies(name) >= _FLOOR or name == base for name in quick["strategy"]]]
    if bold.empty:
        few = f"only strategies with fewer than {_FLOOR} copies deliver as much and as soon"
        return Advice("", f"No advice: {few}, which fair weather alone may explain.", whole)
    best = bold.sort_values(["relays", "p90_ms", "strategy"]).iloc[0]
    name = str(best["strategy"])
    told = (
        f"{best['ratio']:.1%} of the expected, with {best['copies_per_delivery']:.2f} copies each"
    )
    if not base:
        return Advice(
            name, f"The nodes do not all use one strategy. {name} delivers {told}.{sampled}", whole
        )
    mine = whole[whole["strategy"] == base].iloc[0]
    error = float(mine["ratio"]) - evidence.delivered / evidence.expected
    sure = (
        f" The replay of {base} delivers {mine['ratio']:.1%}, the logs say"
        f" {evidence.delivered / evidence.expected:.1%}: it is wrong by {abs(error):.1%}.{sampled}"
    )
    if name == base:
        return Advice(name, f"You use {base}, and nothing replayed is better: {told}.{sure}", whole)
    around = max(best["gain"] - best["gain_low"], best["gain_high"] - best["gain"])
    megabytes = (best["bytes"] - mine["bytes"]) / 1e6 * scale
    text = (
        f"You use {base}; {name} would give {best['gain'] * scale:+,.0f} deliveries"
        f" (±{around * scale:,.0f}) of {evidence.expected:,} for {megabytes:+,.1f} MB, nine tenths"
        f" within {best['p90_ms'] / 1000:,.0f} s instead of {mine['p90_ms'] / 1000:,.0f} s."
    )
    is_more = best["gain_low"] > 0 and best["gain"] > abs(error) * replayed
    is_cheaper = best["gain_low"] >= -(1 - _ENOUGH) * replayed and megabytes < 0
    if is_more or is_cheaper:
        return Advice(name, text + sure, whole)
    return Advice(base, f"Stay with {base}. {text} That is within chance or error.{sure}", whole)


def draw_gains(blocks: pd.DataFrame, base: str, draws: int = _DRAWS) -> np.ndarray[Any, Any]:
    """Return what each strategy delivers beyond one of them, in draws of blocks: rows by name."""
    table = blocks.pivot_table(
        index="strategy", columns="block", values="delivered", aggfunc="sum", fill_value=0
    )
    differences = (table - table.loc[base]).to_numpy(dtype=float)
    count = differences.shape[1]
    weights = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=draws)
    drawn: np.ndarray[Any, Any] = differences @ weights.T
    return drawn


def _count_copies(name: str) -> int:
    """Return how many copies a strategy may make; one without a budget makes many."""
    return 1 if name == "direct" else int(make_strategy(name).copies) or 1 << 20
