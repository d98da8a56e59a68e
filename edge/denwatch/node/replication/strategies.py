"""Which notifications go to which node, in which order, in how many copies; and what was met.

    strategy = build_strategy("spray:8")
    choices = strategy.choose(candidates, peer, encounters, now)

Receipts, subscriptions, vocabularies and revocations always go to everybody: they are small, they
steer everything else, and a receipt that arrives frees room. A strategy is a pure decision about
notifications. `encounters` is what a node knows of its own meetings:

- `judge(node)`, one byte: how soon a node may be met again. 255 is a link that is up now, 254 a
  meeting within the last second, and each step down is 1.06 times longer ago, to a month. A report
  through another node is older by `PENALTY` for each hop.
- `reach`: meetings a while apart, in a hundred hours. Unlike the number of nodes ever met, it does
  not become the same for all nodes of a small network after some hours.

Small and deterministic: `now` is an argument, nothing is random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from denwatch.node.core.items import Dot
from denwatch.node.replication.clock import Save, SavedRows

SPACE = "encounter"
PENALTY = 30_000  # ms a hop
_STEPS = 254
_OLDEST = 30 * 24 * 3_600_000  # ms; older than this is as good as never
_GRAIN = 1_000  # ms; younger than this is now
_APART = 7_200_000  # ms; who is met again within this time is no news
_SPAN = 100 * 3_600_000  # ms; reach is meetings in a hundred hours
_EARLY = 300_000  # ms; before that long, a few meetings say little
_OWN = b""  # the key of what is known of ourselves
_KEPT = 0.99  # of the weight of those met before, at each meeting
# Of the strategy `utility`.
_LEAST_OF_MANY = 0.65  # of our own reach: a node with less gets nothing while copies are many ...
_LEAST_OF_FEW = 0.91  # ... and when less than half of them are left
_USUAL = 0.75  # of the reach that is usual: a node with less carries nothing
_SOON = 255  # a link to the destination is up
_RATIO = math.log(_OLDEST / _GRAIN) / (_STEPS - 1)


class Encounter(NamedTuple):
    """What is known of one node, in our timeline."""

    met: int  # when a link to it last was there; 0 for never
    heard: int  # the freshest report of it, older by the penalty for each hop
    gap: int  # ms between meetings, smoothed; 0 if it was met once

    def encode(self) -> bytes:
        """Return it as bytes."""
        return b"".join(value.to_bytes(8, "big", signed=True) for value in self)


_NOBODY = Encounter(0, 0, 0)


def grade(age: int) -> int:
    """Return the byte of an age in ms; 0 for one that says nothing."""
    if age >= _OLDEST:
        return 0
    return _STEPS - math.floor(math.log(max(age, _GRAIN) / _GRAIN) / _RATIO)


def read_grade(byte: int) -> int:
    """Return an age, in ms, of a byte that is not 0: the oldest it may stand for."""
    return 0 if byte > _STEPS else round(_GRAIN * math.exp((_STEPS - byte + 1) * _RATIO))


class Encounters:
    """What a node knows of its meetings with others."""

    def __init__(self) -> None:
        self._nodes: dict[str, Encounter] = {}
        self._linked: set[str] = set()
        self._meetings = 0  # with nodes that were not met for a while
        self._first = self._last = 0  # when any node was first and last met
        self._others = (0.0, 0.0)  # the reach of nodes met, summed, and how many; both fading

    def restore(self, saved: SavedRows) -> None:
        """Load what an earlier run saved."""
        for key, value in saved.scan(SPACE):
            one, two, three = (
                int.from_bytes(value[i : i + 8], "big", signed=True) for i in (0, 8, 16)
            )
            if key == _OWN:
                self._meetings, self._first, self._last = one, two, three
            else:
                self._nodes[key.decode()] = Encounter(one, two, three)

    def meet(self, save: Save, node: str, now: int, is_up: bool) -> None:
        """Record that a link came or went."""
        known = self._nodes.get(node, _NOBODY)
        gap = known.gap
        if is_up:
            self._linked.add(node)
            self._count_meeting(save, now, is_news=not known.met or now - known.met > _APART)
            if known.met:
                gap = (7 * gap + 3 * (now - known.met)) // 10 if gap else now - known.met
        else:
            self._linked.discard(node)
        self._keep(save, node, Encounter(now, now, max(gap, 0)))

    def hear(self, save: Save, node: str, byte: int, now: int) -> None:
        """Record how soon a peer may meet a node: for us it is one hop later."""
        if not byte:
            return
        heard = now - read_grade(byte) - PENALTY
        known = self._nodes.get(node, _NOBODY)
        if heard > known.heard:
            self._keep(save, node, known._replace(heard=heard))

    def judge(self, node: str, now: int) -> int:
        """Return how likely a node is to be met soon, 0..255."""
        if node in self._linked:
            return 255
        known = self._nodes.get(node)
        return 0 if known is None else grade(now - known.heard)

    @property
    def reach(self) -> int:
        """How many nodes are met in a hundred hours: who gets around meets many."""
        if not self._meetings:
            return 0
        return (self._meetings + 2) * _SPAN // (self._last - self._first + _EARLY)

    def compare(self, reach: int) -> float:
        """Record the reach of a node that is met; return it as a multiple of the usual one."""
        total, count = self._others
        self._others = (total * _KEPT + reach, count * _KEPT + 1)
        usual = self._others[0] / self._others[1]
        return reach / usual if usual else 1.0

    def _count_meeting(self, save: Save, now: int, *, is_news: bool) -> None:
        self._first = self._first or now
        self._last = max(self._last, now)
        if is_news:
            self._meetings += 1
            own = Encounter(self._meetings, self._first, self._last)
            save(SPACE, _OWN, own.encode())

    def list_known(self) -> Iterable[str]:
        """Return all nodes of which something is known, in the order of names."""
        return sorted(self._nodes)

    def _keep(self, save: Save, node: str, encounter: Encounter) -> None:
        self._nodes[node] = encounter
        save(SPACE, node.encode(), encounter.encode())


# What a strategy is asked and what it answers -----------------------------------------------


class Copy(NamedTuple):
    """What a node remembers of its copy of a notification; local, not signed."""

    copies: int  # how many it may still pass on, its own included; 0 for no limit
    hops: int  # how far it came
    level: int  # the best carrier that this copy has met, 0..255


@dataclass(frozen=True)
class Candidate:
    """A notification that is held here and that the peer has not seen."""

    dot: Dot
    copy: Copy
    expires: int  # ms by the clock here; 0 for never
    wanted: Mapping[str, int]  # degree by subscriber who still waits for it
    destinations: tuple[str, ...]  # the nodes where those were last known


@dataclass(frozen=True)
class MetPeer:
    """The node that is met."""

    name: str
    likely: Mapping[str, int]  # how soon it expects to reach a destination, 0..255
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


class Utility:
    """At most `copies` carriers, most of them nodes that get around.

    A node that has several copies gives some to each node it meets, in proportion to the reach of
    the two, and none to one whose reach is clearly below its own or below what is usual: a copy
    with a node that sits still is lost. With many copies left it is quick rather than choosy, with
    few it waits for the best. A single copy waits for a destination, or moves to a node that is
    linked with one. Receipts go to everybody first and purge what is left, which is MaxProp's
    acknowledgement. Reach and likelihood come by question and answer: two bytes, and one for each
    destination.

    `python -m benchmarks.replication` has the figures, and results/replication.md those on a trace.
    """

    is_asking = True

    def __init__(self, copies: int = 12) -> None:
        self._copies = copies

    @property
    def copies(self) -> int:
        """How many copies a new notification begins with."""
        return self._copies

    def choose(
        self, candidates: Sequence[Candidate], peer: MetPeer, encounters: Encounters, now: int
    ) -> list[CopyChoice]:
        """Return what is for the peer, what it should carry, and what it carries better."""
        ours, theirs = encounters.reach + 1, peer.reach + 1
        is_usual = encounters.compare(peer.reach) >= _USUAL
        choices = []
        for each in rank(candidates, peer):
            copy = each.copy
            if peer.name in each.destinations:
                choices.append(CopyChoice(each.dot, 1, copy))
                continue
            have = copy.copies or self._copies
            least = _LEAST_OF_MANY if 2 * have >= self._copies else _LEAST_OF_FEW
            if have > 1 and is_usual and theirs >= least * ours:
                # The peer's share of both reaches, rounded; each side has at least one copy.
                given = min(have - 1, max(1, (2 * have * theirs // (ours + theirs) + 1) // 2))
                choices.append(CopyChoice(each.dot, given, copy._replace(copies=have - given)))
                continue
            likely = max((peer.likely.get(node, 0) for node in each.destinations), default=0)
            own = max((encounters.judge(node, now) for node in each.destinations), default=0)
            # A single copy moves only towards a link that is up, and never to a worse carrier.
            if likely >= _SOON and likely > max(copy.level, own):
                choices.append(CopyChoice(each.dot, 1, copy._replace(level=likely)))
        return choices


def build_strategy(text: str) -> Strategy:
    """Return the strategy that a word names: `epidemic`, `spray:8`, `utility` or `utility:12`."""
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
