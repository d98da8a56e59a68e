"""Binary spray and wait: L copies in all, half of what one has to each node met, then wait.

After Spyropoulos, Psounis and Raghavendra (2005). A node with one copy left keeps it for somebody
who is a destination; giving to a destination costs no copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from denwatch.node.replication.encounters import Encounters
from denwatch.node.replication.strategies.interface import Candidate, Choice, Peer, rank


class SprayAndWait:
    """At most `copies` carriers of each notification."""

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
        peer: Peer,
        encounters: Encounters,  # noqa: ARG002 — the interface of all strategies
        now: int,  # noqa: ARG002
    ) -> list[Choice]:
        """Return what is for the peer, and half of what can be shared."""
        choices = []
        for each in rank(candidates, peer):
            have = each.copy.copies or self._copies
            if peer.name in each.destinations:
                choices.append(Choice(each.dot, 1, each.copy))
            elif have > 1:
                choices.append(
                    Choice(each.dot, have // 2, each.copy._replace(copies=have - have // 2))
                )
        return choices
