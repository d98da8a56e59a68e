"""Which notifications go to which node, in which order, in how many copies; and what was met.

    strategy = build_strategy("spray:8")
    choices = strategy.choose(candidates, peer, encounters, now)

Receipts, subscriptions, vocabularies and revocations always go to everybody: they are small, they
steer everything else, and a receipt that arrives frees room. A strategy is a pure decision about
notifications. Small and deterministic: `now` is an argument, nothing is random.

THEORY of `utility`, the strategy of large sites. Where everybody meets everybody, a few copies find
any destination, and the rest is waste. Where two groups seldom meet, the same few copies stay in
one group until they expire. A node cannot see which of the two it lives in, but it can measure.

KEPT, for a node (`Encounters`)
  contacts    with each node: since when counted, how many, the last one
  ways        to each node, up to three, over different peers: a delay is the time between
              contacts with the next node, plus what that node tells (a distance vector: one byte a
              node, exchanged once in a contact). The second best is believed, so that it takes two
              to lie. A way through the asker is not told to it.
  reach       how many nodes are met in a hundred hours, and what is usual among those met
  usual age   that 95 of 100 notifications had when a receipt removed them here, or they expired
KEPT, for a copy (`Copy`)
  copies      how many may still be made of it; with when that was right, and the nearest node
              that it was given to

RULE, for a peer that is not a destination; the first that applies:
  1 late      Even the nearest way to a destination takes most of the remaining life, and
              what is usual here is not much less than that life: give a copy for nothing, to any
              peer that is not farther away.
  2 spread    There are copies left: share them in proportion to reach. Refused are peers who get
              around clearly less than we or than is usual, and, once contacts suffice to know ways
              (16, so that a rate is known to a quarter), peers who never met a destination.
  3 blind     Neither side knows any way: give a copy for nothing.
  4 gradient  The peer is as near to a destination as the next node of our own way, and nearer than
              any that this copy was given to: give a copy for nothing. If we meet the destination
              ourselves, only to a peer that is linked with it now.
OVERDUE       A period is the usual age, and at most a third of a life. After each period without a
              receipt, every holder has twice the copies, forgets the nearest node, and shares with
              peers of any reach; after two, also with peers who never met a destination.

INVARIANT     Copies are made by halving, by doubling at each period, and by gifts (1, 3, 4). A peer
              that saw a notification never gets it again, so that no notification is relayed more
              often than there are nodes.
WHY ENOUGH    Well mixed, c copies are delivered after N/(c x meeting rate); 9 are within twice the
              best median for 100 nodes. Elsewhere each gift shortens the expected delay by at least
              one wait, so that a copy descends to the destination without going in circles. What
              the ways get wrong (strangers, a cold start, a member that lies) is late, blind or
              overdue, and then copies grow until everybody has one.
A LIAR        that claims to be next to everybody gets one copy of everything, and its share of
              copies: they are wasted. It shortens nobody's ways but where it is the only one who
              ever told of a node. There, and against several liars, rules 2 and 4 wait in vain for
              two periods, at most two thirds of a life; then copies double, and go to everybody. In
              a chain of villages one such black hole cost 4 to 5 of 60 deliveries. Who hands out
              65,535 copies, or says that it never meets anybody, wastes room or gets less to carry.
              Nobody can make or hide a receipt of another.
EXAMPLE       Nodes a, b on an island, c on the ferry, d on the mainland; c comes every hour. b has
              met a 30 times in 5 hours and c 5 times: d is 60 min + what c told (60) away, a's way
              goes through b: 10 + 120. a has a notification for d. It gives half of its copies to b
              while it knows too little; later nothing, since b never met d, but for rule 4: b's
              way takes 120 min, and that is what a's own way needs from b on. b gives it to c.
COST          one byte a node and contact in each direction, 12 bytes beside it, and about 30 bytes
              of state a node met. `python -m benchmarks.replication` counts them; what each rule is
              worth is in results/replication.md.

What is heard of ways is not saved: after a restart it comes with the next contacts.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from denwatch.node.core.items import Dot
from denwatch.node.replication.clock import Save, SavedRows

SPACE = "contact"
NEVER = 1 << 60  # ms: no way is known
LINKED = 127  # the grade of a node that is linked now
MET = 0x80  # in a told byte: the teller has met the node itself
MAX_COPIES = 1_024
_OWN = b""  # the key of what is known of ourselves
_OLDEST = 30 * 24 * 3_600_000  # ms; longer than this is as good as never
_GRAIN = 1_000  # ms; shorter than this is now
_HOP = 30_000  # ms that a further node on the way costs beside its wait
_SAME = 60_000  # ms; a link that is back within this time is the same contact
_FADE = 24 * 3_600_000  # ms; contacts longer ago count less
_WAYS = 3  # to a node, over different peers
_SURE = 16  # contacts, from which on ways are believed
_APART = 7_200_000  # ms; who is met again within this time is no news for the reach
_SPAN = 100 * 3_600_000  # ms; reach is meetings in a hundred hours
_EARLY = 300_000  # ms; before that long, a few meetings say little
_KEPT = 0.99  # of the weight of those met before, at each meeting
_QUANTILE = 0.95  # of ages
_LEAST_STEP = 0.1  # of the logarithm of the usual age, at each age
# Of the strategy `utility`.
_LEAST_OF_MANY = 0.65  # of our own reach: a node with less gets nothing while copies are many ...
_LEAST_OF_FEW = 0.91  # ... and when less than half of them are left
_USUAL = 0.75  # of the reach that is usual: a node with less carries nothing
_LATE_WAY = 0.75  # of the remaining life
_LATE_USUAL = 0.7
_PERIODS = 3  # in a life, at least
_SHORTEST = 60_000  # ms of a period
_LIFE = 7 * 24 * 3_600_000  # ms, of what never expires

_RATIO = math.log(_OLDEST / _GRAIN) / (LINKED - 1)
# The delay of each grade: 0 says nothing, 1 is a month, 126 a second, each step is 1.12 times less.
_DELAYS = [NEVER, *(round(_GRAIN * math.exp((126 - g) * _RATIO)) for g in range(1, LINKED)), 0]
_RISING = _DELAYS[LINKED - 1 : 0 : -1]


def grade(delay: int) -> int:
    """Return the grade of a delay in ms, 1..126; 0 for one that says nothing."""
    if delay >= _OLDEST:
        return 0
    return LINKED - (bisect_right(_RISING, delay) or 1)


def read_grade(byte: int) -> int:
    """Return the delay, in ms, that a told byte stands for; NEVER for none."""
    return _DELAYS[byte & LINKED]


class Encounter(NamedTuple):
    """Contacts with one node, in our timeline."""

    met: int  # when a link to it last was there
    since: int  # when counting began
    contacts: int  # since then; never 0


class Delay(NamedTuple):
    """How soon a notification may be at a node."""

    whole: int  # ms; NEVER if no way is known
    beyond: int  # how much of that is left at the next node; 0 if we meet it ourselves
    is_met: bool  # whether we ever met it


class _Way(NamedTuple):
    """What a peer told of a node."""

    peer: str
    beyond: int  # ms


class Encounters:
    """What a node knows of its contacts, and of the ways to others."""

    def __init__(self) -> None:
        self._nodes: dict[str, Encounter] = {}
        self._ways: dict[str, tuple[_Way, ...]] = {}
        self._linked: set[str] = set()
        self._gaps: tuple[int, dict[str, int]] = (-1, {})  # as of when, by node
        self._contacts = 0  # of all nodes
        self._meetings = 0  # with nodes that were not met for a while
        self._first = self._last = 0  # when any node was first and last met
        self._others = (0.0, 0.0)  # the reach of nodes met, summed, and how many; both fading
        self._ages = 0  # how many are known
        self.usual_age = 0  # ms; 0 before any is known

    def restore(self, saved: SavedRows) -> None:
        """Load what an earlier run saved."""
        for key, value in saved.scan(SPACE):
            row = [int.from_bytes(value[at : at + 8], "big") for at in range(0, len(value), 8)]
            if key == _OWN:
                self._meetings, self._first, self._last, self.usual_age, self._ages = (*row, 0, 0)[
                    :5
                ]
            elif row[2]:
                self._nodes[key.decode()] = Encounter(*row[:3])
                self._contacts += row[2]

    # Contacts -------------------------------------------------------------------------------

    def meet(self, save: Save, node: str, now: int, is_up: bool) -> None:
        """Record that a link came or went."""
        known = self._nodes.get(node)
        if not is_up:
            self._linked.discard(node)
            if known is not None:
                self._keep(save, node, known._replace(met=now))
            return
        self._linked.add(node)
        is_news = known is None or now - known.met > _APART
        self._count_meeting(save, now, is_news=is_news)
        if known is None:
            self._contacts += 1
            known = Encounter(now, self._first, 1)
        elif now - known.met > _SAME:
            self._contacts += 1
            since, count = known.since, known.contacts + 1
            if now - since > _FADE:  # as often as before, in half the time
                since, count = (since + now) // 2, (count + 1) // 2
            known = Encounter(now, since, count)
        self._keep(save, node, known._replace(met=now))

    def _count_meeting(self, save: Save, now: int, *, is_news: bool) -> None:
        self._first = self._first or now
        self._last = max(self._last, now)
        if is_news:
            self._meetings += 1
            own = (self._meetings, self._first, self._last, self.usual_age, self._ages)
            save(SPACE, _OWN, _encode(own))

    def _keep(self, save: Save, node: str, encounter: Encounter) -> None:
        self._nodes[node] = encounter
        self._gaps = (-1, {})
        save(SPACE, node.encode(), _encode(encounter))

    # Reach ----------------------------------------------------------------------------------

    @property
    def reach(self) -> int:
        """How many nodes are met in a hundred hours: who gets around meets many."""
        if not self._meetings:
            return 0
        return (self._meetings + 2) * _SPAN // (self._last - self._first + _EARLY)

    @property
    def noise(self) -> float:
        """By which share a reach may be wrong that so many meetings gave."""
        return 1 / math.sqrt(self._meetings + 1)

    def compare(self, reach: int) -> float:
        """Record the reach of a node that is met; return it as a multiple of the usual one."""
        total, count = self._others
        self._others = (total * _KEPT + reach, count * _KEPT + 1)
        usual = self._others[0] / self._others[1]
        return reach / usual if usual else 1.0

    # Ways -----------------------------------------------------------------------------------

    @property
    def is_sure(self) -> bool:
        """Whether there were enough contacts to believe in ways."""
        return self._contacts >= _SURE

    def list_known(self) -> list[str]:
        """Return all nodes to which a way is known, in the order of names."""
        return sorted({*self._nodes, *self._ways})

    def find_delay(self, node: str, now: int) -> Delay:
        """Return how soon a node may be met: by us, or by whoever is next on the way to it."""
        if node in self._linked:
            return Delay(0, 0, True)
        gaps = self._list_gaps(now)
        own = gaps.get(node, NEVER)
        whole, beyond = self._believe(self._ways.get(node, ()), gaps)
        if whole < own:
            return Delay(whole, beyond, own < NEVER)
        return Delay(own, 0, own < NEVER)

    def tell(self, nodes: Sequence[str], peer: str, now: int) -> bytes:
        """Return, for a peer, one byte for each node: `MET`, and the grade of its delay."""
        told = bytearray(len(nodes))
        linked, ways, gaps = self._linked, self._ways, self._list_gaps(now)
        for place, node in enumerate(nodes):
            if node in linked:
                told[place] = MET | LINKED
                continue
            own = delay = gaps.get(node, NEVER)
            known = ways.get(node)
            if known is not None:
                delay = min(delay, self._believe(known, gaps, peer)[0])
            if delay < NEVER:
                told[place] = grade(delay) | (MET if own < NEVER else 0)
        return bytes(told)

    def hear(self, peer: str, nodes: Sequence[str], told: bytes, now: int) -> None:
        """Record what a peer that is linked told of nodes; not of itself, nor of us."""
        ways, gaps = self._ways, self._list_gaps(now)
        for node, byte in zip(nodes, told, strict=True):
            beyond = _DELAYS[byte & LINKED]
            if beyond == NEVER or node == peer:
                continue
            before = ways.get(node)
            if before is None:
                ways[node] = (_Way(peer, beyond),)
                continue
            known = [way for way in before if way.peer != peer]
            known.append(_Way(peer, beyond))
            if len(known) > _WAYS:
                known.remove(max(known, key=lambda way: gaps.get(way.peer, _OLDEST) + way.beyond))
            ways[node] = tuple(known)

    def _believe(
        self, ways: Sequence[_Way], gaps: Mapping[str, int], peer: str = ""
    ) -> tuple[int, int]:
        """Return the delay of the second best way, and what is left of it at its next node.

        Of the only one if there is no other. So no single member makes a way look shorter than it
        is. For a peer, ways through it are left out; what one alone then says is not told.
        """
        best = second = (NEVER, 0)
        count = 0
        for node, beyond in ways:
            if node == peer:
                continue
            count += 1
            wait = 0 if node in self._linked else gaps.get(node, _OLDEST)
            found = (wait + beyond + _HOP, beyond)
            if found < best:
                best, second = found, best
            elif found < second:
                second = found
        return second if count != 1 else best if len(ways) == 1 else (NEVER, 0)

    def _list_gaps(self, now: int) -> dict[str, int]:
        """Return how long the next contact takes, by node: as usual, or longer if overdue."""
        moment, gaps = self._gaps
        if moment != now:
            gaps = {}
            for node, (met, since, count) in self._nodes.items():
                gap = (now - since) // count
                if now - met > gap and node not in self._linked:
                    gap = now - met
                gaps[node] = gap + _GRAIN
            self._gaps = now, gaps
        return gaps

    # Ages -----------------------------------------------------------------------------------

    def learn_age(self, age: int) -> None:
        """Record how old a notification was when a receipt, or its end, removed it here.

        Moves the usual age up by 19 steps or down by one, so that it settles where one in 20 is
        older.
        """
        age = max(age, _SHORTEST)
        if not self._ages:
            self.usual_age = age
        else:
            step = max(_LEAST_STEP, 1 / (1 + self._ages))
            up = _QUANTILE if age > self.usual_age else _QUANTILE - 1
            self.usual_age = min(round(self.usual_age * math.exp(step * up)), _OLDEST)
        self._ages += 1


def _encode(numbers: Sequence[int]) -> bytes:
    return b"".join(max(number, 0).to_bytes(8, "big") for number in numbers)


# What a strategy is asked and what it answers -----------------------------------------------


class Copy(NamedTuple):
    """What a node remembers of its copy of a notification; local, not signed."""

    copies: int  # how many it may still pass on, its own included; 0 for no limit
    hops: int  # how far it came
    level: int = 0  # the grade of the nearest node that it was given to
    at: int = 0  # when `copies` was right, ms by the clock here; 0 for when it was made


@dataclass(frozen=True)
class Candidate:
    """A notification that is held here and that the peer has not seen."""

    dot: Dot
    copy: Copy
    expires: int  # ms by the clock here; 0 for never
    wanted: Mapping[str, int]  # degree by subscriber who still waits for it
    destinations: tuple[str, ...]  # the nodes where those were last known
    made: int = 0  # ms by the clock here


@dataclass(frozen=True)
class MetPeer:
    """The node that is met."""

    name: str
    likely: Mapping[str, int]  # what it told of destinations, as `Encounters.tell`
    reach: int  # its `Encounters.reach`


class CopyChoice(NamedTuple):
    """One notification to send: how many copies go, and what stays."""

    dot: Dot
    given: int  # 0 for no limit
    kept: Copy


class Strategy(Protocol):
    """Decides what goes to a peer that was met."""

    @property
    def copies(self) -> int:
        """How many copies a new notification begins with; 0 for no limit."""

    @property
    def is_asking(self) -> bool:
        """Whether it wants `MetPeer.likely`, which costs a question and an answer on the link."""

    def choose(
        self, candidates: Sequence[Candidate], peer: MetPeer, encounters: Encounters, now: int
    ) -> list[CopyChoice]:
        """Return what goes to the peer, first things first."""


def rank(candidates: Sequence[Candidate], peer: MetPeer) -> list[Candidate]:
    """Order by: is it for somebody there, its best degree, how long it still lives."""

    def key(candidate: Candidate) -> tuple[bool, int, float, Dot]:
        return (
            peer.name not in candidate.destinations,
            -max(candidate.wanted.values(), default=0),
            -(candidate.expires or float("inf")),
            candidate.dot,
        )

    return sorted(candidates, key=key)


# The strategies ------------------------------------------------------------------------------


class Epidemic:
    """Send everything the peer has not seen: the fastest and most expensive.

    The right choice where links are cheap.
    """

    copies = 0
    is_asking = False

    def choose(
        self,
        candidates: Sequence[Candidate],
        peer: MetPeer,
        encounters: Encounters,  # noqa: ARG002 — the interface of all strategies
        now: int,  # noqa: ARG002
    ) -> list[CopyChoice]:
        """Return everything, first things first."""
        return [CopyChoice(each.dot, 0, each.copy) for each in rank(candidates, peer)]


class SprayAndWait:
    """Binary spray and wait: at most `copies` carriers of each notification.

    A node gives half of its copies to each node it meets. With one copy left it keeps it for a
    destination; giving to a destination costs no copy. After Spyropoulos, Psounis and Raghavendra
    (2005).
    """

    is_asking = False

    def __init__(self, copies: int = 8) -> None:
        self._copies = copies

    @property
    def copies(self) -> int:
        """How many copies a new notification begins with."""
        return self._copies

    def choose(
        self,
        candidates: Sequence[Candidate],
        peer: MetPeer,
        encounters: Encounters,  # noqa: ARG002 — the interface of all strategies
        now: int,  # noqa: ARG002
    ) -> list[CopyChoice]:
        """Return what is for the peer, and half of what can be shared."""
        choices = []
        for each in rank(candidates, peer):
            have = each.copy.copies or self._copies
            if peer.name in each.destinations:
                choices.append(CopyChoice(each.dot, 1, each.copy))
            elif have > 1:
                choices.append(
                    CopyChoice(each.dot, have // 2, each.copy._replace(copies=have - have // 2))
                )
        return choices


_Told = tuple[Delay, int]  # our delay to a destination, and the byte that the peer told of it


class UtilityOffer:
    """The rule of `utility` for one peer at one moment."""

    def __init__(self, copies: int, peer: MetPeer, encounters: Encounters, now: int) -> None:
        self._copies = copies
        self._peer = peer
        self._encounters = encounters
        self._now = now
        self._ours, self._theirs = encounters.reach + 1, peer.reach + 1
        self._noise = encounters.noise
        self._is_usual = encounters.compare(peer.reach) >= _USUAL - self._noise
        self._delays: dict[str, Delay] = {}

    def decide(self, candidate: Candidate) -> CopyChoice | None:
        """Return what goes of a notification to a peer that is no destination of it."""
        copy = candidate.copy
        overdue, doubled = self.count_periods(candidate)
        have = min((copy.copies or self._copies) << min(doubled, 10), MAX_COPIES)
        kept = Copy(have, copy.hops, 0 if doubled else copy.level, self._now)
        told = [(self._find_delay(node), self._read(node)) for node in candidate.destinations]
        if self.is_late(candidate, told):
            return CopyChoice(candidate.dot, 1, kept)
        if have > 1 and self.may_share(have, overdue, told):
            # The peer's share of both reaches, rounded; each side has at least one copy.
            share = (2 * have * self._theirs // (self._ours + self._theirs) + 1) // 2
            given = min(have - 1, max(1, share))
            return CopyChoice(candidate.dot, given, kept._replace(copies=have - given))
        if self.is_blind(told):
            return CopyChoice(candidate.dot, 1, kept)
        nearest = max((self.find_nearness(*each) for each in told), default=0)
        if nearest > kept.level:
            return CopyChoice(candidate.dot, 1, kept._replace(level=nearest))
        return None

    def count_periods(self, candidate: Candidate) -> tuple[int, int]:
        """Return for how many periods it is overdue, and how many of them are new to this copy."""
        made = candidate.made or self._now
        period = max(_SHORTEST, ((candidate.expires or made + _LIFE) - made) // _PERIODS)
        period = min(period, self._encounters.usual_age or period)
        overdue = max(0, self._now - made) // period
        return overdue, max(0, overdue - max(0, (candidate.copy.at or made) - made) // period)

    def is_late(self, candidate: Candidate, told: Sequence[_Told]) -> bool:
        """Whether even the nearest way is too long, and the peer's is no longer than ours."""
        left = candidate.expires - self._now if candidate.expires else _LIFE
        if self._encounters.usual_age <= _LATE_USUAL * left:
            return False
        ours = min((delay.whole for delay, _ in told), default=NEVER)
        theirs = min((read_grade(byte) for _, byte in told), default=NEVER)
        if not _LATE_WAY * left < min(ours, theirs) < NEVER:
            return False
        return theirs <= ours or not self._encounters.is_sure

    def may_share(self, have: int, overdue: int, told: Sequence[_Told]) -> bool:
        """Whether the peer gets some of several copies."""
        least = _LEAST_OF_MANY if 2 * have >= self._copies else _LEAST_OF_FEW
        gets_around = self._is_usual and self._theirs >= (least - self._noise) * self._ours
        if not gets_around and not overdue:
            return False
        if overdue > 1 or not self._encounters.is_sure or not told:
            return True
        return any(byte & MET for _, byte in told)

    def is_blind(self, told: Sequence[_Told]) -> bool:
        """Whether neither side knows a way to anybody who waits."""
        return bool(told) and all(delay.whole == NEVER and not byte for delay, byte in told)

    def find_nearness(self, delay: Delay, byte: int) -> int:
        """Return the grade that the peer told of a node, if it is nearer by a wait; else 0."""
        theirs = read_grade(byte)
        if theirs >= delay.whole:
            return 0
        most = 0 if delay.is_met else delay.beyond
        return byte & LINKED if theirs <= most or delay.whole == NEVER else 0

    def _find_delay(self, node: str) -> Delay:
        found = self._delays.get(node)
        if found is None:
            found = self._delays[node] = self._encounters.find_delay(node, self._now)
        return found

    def _read(self, node: str) -> int:
        return self._peer.likely.get(node, 0)


class Utility:
    """Few copies where nodes mix, more where sites seldom meet: the theory is at the head."""

    is_asking = True
    offer = UtilityOffer

    def __init__(self, copies: int = 9) -> None:
        self._copies = copies

    @property
    def copies(self) -> int:
        """How many copies a new notification begins with."""
        return self._copies

    def choose(
        self, candidates: Sequence[Candidate], peer: MetPeer, encounters: Encounters, now: int
    ) -> list[CopyChoice]:
        """Return what is for the peer, and what it should carry."""
        offer = self.offer(self._copies, peer, encounters, now)
        chosen = []
        for each in rank(candidates, peer):
            if peer.name in each.destinations:
                chosen.append(CopyChoice(each.dot, 1, each.copy))
                continue
            choice = offer.decide(each)
            if choice is not None:
                chosen.append(choice)
        return chosen


def build_strategy(text: str) -> Strategy:
    """Return the strategy that a word names: `epidemic`, `spray:8`, `utility` or `utility:9`."""
    name, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdigit() and 0 < int(number) < 1 << 16):
        raise ValueError(f'strategy "{text}": a number of copies follows the colon')
    if name == "epidemic" and not colon:
        return Epidemic()
    if name == "spray":
        return SprayAndWait(int(number)) if colon else SprayAndWait()
    if name == "utility":
        return Utility(int(number)) if colon else Utility()
    raise ValueError(f'strategy "{text}": there are epidemic, spray:L and utility[:L]')
