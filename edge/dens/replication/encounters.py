"""Whom this node has met, and how soon it may meet them again. Pure, small, deterministic.

For each node: when it was last met, directly or through others (each hop makes a report older by
`PENALTY`), and the smoothed time between meetings. `judge` makes one byte of it, which travels:
255 is a link that is up now, and each step down is a 1.09 times older report, to a month.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from edge.dens.core.interface import Reader
from edge.dens.replication.clock import Save

SPACE = "encounter"
PENALTY = 30_000  # ms a hop
_STEPS = 254
_OLDEST = 30 * 24 * 3_600_000  # ms; older than this is as good as never
_GRAIN = 1_000  # ms; younger than this is now
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

    def restore(self, reader: Reader) -> None:
        """Take up what an earlier run knew."""
        for key, value in reader.scan(SPACE):
            met, heard, gap = (
                int.from_bytes(value[i : i + 8], "big", signed=True) for i in (0, 8, 16)
            )
            self._nodes[key.decode()] = Encounter(met, heard, gap)

    def meet(self, save: Save, node: str, now: int, is_up: bool) -> None:
        """Note that a link came or went."""
        known = self._nodes.get(node, _NOBODY)
        gap = known.gap
        if is_up:
            self._linked.add(node)
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
        """How many nodes were ever met: who gets around has many."""
        return sum(1 for known in self._nodes.values() if known.met)

    def list_known(self) -> Iterable[str]:
        """Return all nodes of which something is known, in the order of names."""
        return sorted(self._nodes)

    def _keep(self, save: Save, node: str, encounter: Encounter) -> None:
        self._nodes[node] = encounter
        save(SPACE, node.encode(), encounter.encode())
