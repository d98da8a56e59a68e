"""What a strategy is asked and what it answers. Data and one protocol, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from denwatch.node.core.items import Dot
from denwatch.node.replication.encounters import Encounters


class Copy(NamedTuple):
    """What a node remembers of its copy of a notification; not signed, its own alone."""

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
class Peer:
    """The node that is met."""

    name: str
    likely: Mapping[str, int]  # how soon it expects to reach a destination, 0..255
    reach: int  # how many nodes it has ever met


class Choice(NamedTuple):
    """One notification to hand over: how many copies go, and what stays."""

    dot: Dot
    given: int  # 0 for no limit
    kept: Copy


class Strategy(Protocol):
    """A pure decision."""

    @property
    def copies(self) -> int:
        """How many copies a new notification begins with; 0 for no limit."""

    @property
    def is_asking(self) -> bool:
        """Whether it wants `Peer.likely`, which costs a question and an answer on the link."""

    def choose(
        self, candidates: Sequence[Candidate], peer: Peer, encounters: Encounters, now: int
    ) -> list[Choice]:
        """Return what goes to the peer, first things first."""


def rank(candidates: Sequence[Candidate], peer: Peer) -> list[Candidate]:
    """Order by: is it for somebody there, its best degree, how long it still lives."""

    def key(candidate: Candidate) -> tuple[bool, int, float, Dot]:
        return (
            peer.name not in candidate.destinations,
            -max(candidate.wanted.values(), default=0),
            -(candidate.expires or float("inf")),
            candidate.dot,
        )

    return sorted(candidates, key=key)
