"""A bounded number of copies, most of them to nodes that get around; marks flooded as in MaxProp.

A notification begins with L copies. A node that has several gives some to each node it meets, in
proportion to how much each of the two gets around (their reach), and none to one that gets around
clearly less than itself or than is usual: a copy with a node that sits still is a copy lost. With
many copies left it is quick rather than choosy, with few it waits for the best. A copy that is
alone waits for a destination, or goes on to a node that is linked with one. The marks that say
"delivered" go to everybody first and purge what is left, which is MaxProp's acknowledgement. Reach
and likelihood come by question and answer: two bytes, and one for each destination.

`python -m benchmarks.replication` has the figures, and results/replication.md those on a trace.
"""

from __future__ import annotations

from collections.abc import Sequence

from denwatch.node.replication.encounters import Encounters
from denwatch.node.replication.strategies.interface import Candidate, Choice, Peer, rank

_LEAST_OF_MANY = 0.65  # of our own reach: a node with less gets nothing while copies are many ...
_LEAST_OF_FEW = 0.91  # ... and when less than half of them are left
_USUAL = 0.75  # of the reach that is usual: a node with less carries nothing
_SOON = 255  # a link to the destination is up


class Utility:
    """Share `copies` by reach."""

    is_asking = True

    def __init__(self, copies: int = 12) -> None:
        self._copies = copies

    @property
    def copies(self) -> int:
        """How many copies a new notification begins with."""
        return self._copies

    def choose(
        self, candidates: Sequence[Candidate], peer: Peer, encounters: Encounters, now: int
    ) -> list[Choice]:
        """Return what is for the peer, what it should carry, and what it carries better."""
        ours, theirs = encounters.reach + 1, peer.reach + 1
        is_usual = encounters.compare(peer.reach) >= _USUAL
        choices = []
        for each in rank(candidates, peer):
            copy = each.copy
            if peer.name in each.destinations:
                choices.append(Choice(each.dot, 1, copy))
                continue
            have = copy.copies or self._copies
            least = _LEAST_OF_MANY if 2 * have >= self._copies else _LEAST_OF_FEW
            if have > 1 and is_usual and theirs >= least * ours:
                given = min(have - 1, max(1, (2 * have * theirs // (ours + theirs) + 1) // 2))
                choices.append(Choice(each.dot, given, copy._replace(copies=have - given)))
                continue
            likely = max((peer.likely.get(node, 0) for node in each.destinations), default=0)
            own = max((encounters.judge(node, now) for node in each.destinations), default=0)
            if likely >= _SOON and likely > max(copy.level, own):
                choices.append(Choice(each.dot, 1, copy._replace(level=likely)))
        return choices
