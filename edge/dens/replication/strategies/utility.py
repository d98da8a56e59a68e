"""A few copies at once, then only to better carriers: delegation, with marks flooded as in MaxProp.

A notification begins with L copies, sprayed by halves so that it leaves its corner. A copy that is
alone goes on only to a node that is more likely to reach a destination than any carrier this copy
has met (its level): with N nodes about √N carriers instead of N. The marks that say "delivered"
go to everybody first and purge what is left, which is MaxProp's acknowledgement. How likely a
node is comes from encounters, passed on by question and answer: one byte for each destination.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.dens.replication.encounters import Encounters
from edge.dens.replication.strategies.interface import Candidate, Choice, Peer, rank


class Utility:
    """Spray `copies`, then delegate."""

    is_asking = True

    def __init__(self, copies: int = 4) -> None:
        self._copies = copies

    @property
    def copies(self) -> int:
        """How many copies a new notification begins with."""
        return self._copies

    def choose(
        self, candidates: Sequence[Candidate], peer: Peer, encounters: Encounters, now: int
    ) -> list[Choice]:
        """Return what is for the peer, what is still sprayed, and what it carries better."""
        choices = []
        for each in rank(candidates, peer):
            copy = each.copy
            if peer.name in each.destinations:
                choices.append(Choice(each.dot, 1, copy))
                continue
            theirs = max((peer.likely.get(node, 0) for node in each.destinations), default=0)
            ours = max((encounters.judge(node, now) for node in each.destinations), default=0)
            level = max(copy.level, ours)
            have = copy.copies or self._copies
            if have > 1:
                kept = copy._replace(copies=have - have // 2, level=max(level, theirs))
                choices.append(Choice(each.dot, have // 2, kept))
            elif theirs > level:
                choices.append(Choice(each.dot, 1, copy._replace(copies=1, level=theirs)))
        return choices
