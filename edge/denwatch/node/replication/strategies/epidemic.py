"""Everything to everybody: the fastest and the dearest. The one to take where links are cheap."""

from __future__ import annotations

from collections.abc import Sequence

from denwatch.node.replication.encounters import Encounters
from denwatch.node.replication.strategies.interface import Candidate, Choice, Peer, rank


class Epidemic:
    """Hand over all that the peer has not seen."""

    copies = 0
    is_asking = False

    def choose(
        self,
        candidates: Sequence[Candidate],
        peer: Peer,
        encounters: Encounters,  # noqa: ARG002 — the interface of all strategies
        now: int,  # noqa: ARG002
    ) -> list[Choice]:
        """Return everything, first things first."""
        return [Choice(each.dot, 0, each.copy) for each in rank(candidates, peer)]
