"""What a node decides about serving subscribers, and what it needs from others to do so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from denwatch.node.core.items import Dot


@dataclass(frozen=True)
class SubscriberSettings:
    """Limits and habits. Times are in ms."""

    max_payload: int = 16_384  # bytes of a request
    max_subscriptions: int = 1_000  # of one subscriber
    window: int = 32  # notifications on their way to one subscriber, unacknowledged
    kept_replies: int = 16  # for one subscriber whom nobody listens for
    held_limit: int = 1_000_000  # notifications; beyond, the least worth are dropped
    mark_batch: int = 64  # deliveries to one subscriber, told to other nodes in one item
    mark_interval: int = 5_000  # how long fewer wait to be told, unless a node is met
    catch_up: int = 5_000  # held notifications matched with late subscriptions in one tick
    # A dead band holds for this long after the last sending. Whether a match ended in between is
    # known to the device alone; after so long a repeated value is told as a new match.
    episode: int = 600_000
    # Notifications that all known subscribers have are let go this long after they were read;
    # None keeps them until they expire, for those whose subscription is not known here yet.
    purge_after: int | None = None
    ended_life: int = 7 * 86_400_000  # how long matches of an expired subscription may wait
    place_life: int = 7 * 86_400_000  # how long others remember where somebody went
    organisation: str | None = None  # whose synonyms go first where a word means two things
    is_announcing: bool = True  # make an item of the node's own vocabulary
    # Log the signature of every notification; else of those that somebody waits for who is not
    # here, which are signed sooner or later anyway.
    signs_all: bool = False


class Roles(Protocol):
    """Who may see what; `denwatch.node.security` has the real one."""

    def role_of(self, owner: str) -> str:
        """Return the role of a subscriber."""

    def check(self, role: str, event: str, attributes: Iterable[str]) -> object | None:
        """Return why a role may not see attributes of an event (its text is told), or None."""


class Clock(Protocol):
    """What is known of clocks; `denwatch.node.replication.clock` has the real one."""

    def localise(self, dot: Dot, time: int) -> int:
        """Return a time of an item's origin in this node's timeline, rather too late."""

    def doubt(self, origin: str, epoch: int, now: int) -> int:
        """Return by how much a time of a run may be wrong here: localised, twice this too late."""

    def show(self, dot: Dot, time: int) -> int:
        """Return a time of an item's origin as people have it."""

    def date(self, time: int) -> int:
        """Return a time of this node's timeline as people have it."""


class OpenRoles:
    """Everybody may see everything: for a node without roles."""

    def role_of(self, owner: str) -> str:  # noqa: ARG002
        """Return the one role there is."""
        return "open"

    def check(
        self,
        role: str,  # noqa: ARG002
        event: str,  # noqa: ARG002
        attributes: Iterable[str],  # noqa: ARG002
    ) -> object | None:
        """Refuse nothing."""
        return None


class OneClock:
    """Everybody's clock is ours: for a node alone."""

    def localise(self, dot: Dot, time: int) -> int:  # noqa: ARG002
        """Return the time as it is."""
        return time

    def doubt(self, origin: str, epoch: int, now: int) -> int:  # noqa: ARG002
        """Return no doubt."""
        return 0

    def show(self, dot: Dot, time: int) -> int:  # noqa: ARG002
        """Return the time as it is."""
        return time

    def date(self, time: int) -> int:
        """Return the time as it is."""
        return time
