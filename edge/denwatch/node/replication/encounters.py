"""Whom this node has met, and how soon it may meet them again. Pure, small, deterministic.

For each node: when it was last met, directly or through others (each hop makes a report older by
`PENALTY`), and the smoothed time between meetings. `judge` makes one byte of it, which travels:
255 is a link that is up now, and each step down is a 1.09 times older report, to a month.

`reach` says how much a node gets around: meetings a while apart, per time. Unlike the number of
nodes ever met, it does not become the same for all in a small network after some hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from denwatch.node.core.interface import Reader
from denwatch.node.replication.clock import Save

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
    """The meetings of one node."""

    def __init__(self) -> None:
        self._nodes: dict[str, Encounter] = {}
        self._linked: set[str] = set()
        self._meetings = 0  # with nodes that were not met for a while
        self._first = self._last = 0  # when any node was first and last met
        self._others = (0.0, 0.0)  # the reach of nodes met, summed, and how many; both fading

    def restore(self, reader: Reader) -> None:
        """Take up what an earlier run knew."""
        for key, value in reader.scan(SPACE):
            one, two, three = (
                int.from_bytes(value[i : i + 8], "big", signed=True) for i in (0, 8, 16)
            )
            if key == _OWN:
                self._meetings, self._first, self._last = one, two, three
            else:
                self._nodes[key.decode()] = Encounter(one, two, three)

    def meet(self, save: Save, node: str, now: int, is_up: bool) -> None:
        """Note that a link came or went."""
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
        """Note what a peer thinks of its chance to meet a node: then ours is a hop worse."""
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
        """Note the reach of a node that is met; return it as a multiple of what is usual."""
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
