"""A bounded number of copies, most of them to nodes that get around; marks flooded as in MaxProp.

A notification begins with L copies. A node that has several gives some to each node it meets, in
proportion to how many others each of the two has ever met (their reach), and none to one that gets
around clearly less: a copy with a node that sits still is a copy lost. A copy that is alone waits
for a destination, or goes on to a node that is about to meet one (`_SOON`) and more likely to than
any carrier this copy has met. The marks that say "delivered" go to everybody first and purge what
is left, which is MaxProp's acknowledgement. Reach and likelihood come by question and answer: two
bytes, and one for each destination.

Numbers of a prototype without delays or limits, on the Helsinki trace (126 hosts; the earliest
possible is 0.979 delivered, median 749 s): 12 copies by halves 0.965, 1,263 s, overhead 10.6; 11
copies shared by reach, with `_LEAST`, 0.965, 1,189 s, overhead 9.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.dens.replication.encounters import Encounters
from edge.dens.replication.strategies.interface import Candidate, Choice, Peer, rank

_LEAST = 0.8  # of our own reach: a node with less gets nothing to carry
_SOON = 255  # a link to the destination is up


class Utility:
    """Share `copies` by reach."""

    is_asking = True

    def __init__(self, copies: int = 11) -> None:
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
        choices = []
        for each in rank(candidates, peer):
            copy = each.copy
            if peer.name in each.destinations:
                choices.append(Choice(each.dot, 1, copy))
                continue
            have = copy.copies or self._copies
            if have > 1 and theirs >= _LEAST * ours:
                given = min(have - 1, max(1, (2 * have * theirs // (ours + theirs) + 1) // 2))
                choices.append(Choice(each.dot, given, copy._replace(copies=have - given)))
                continue
            likely = max((peer.likely.get(node, 0) for node in each.destinations), default=0)
            own = max((encounters.judge(node, now) for node in each.destinations), default=0)
            if likely >= _SOON and likely > max(copy.level, own):
                choices.append(Choice(each.dot, 1, copy._replace(level=likely)))
        return choices
