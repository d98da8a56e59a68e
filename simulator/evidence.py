"""What the checks go by: what people were told is in force, what devices said, who was shown what.

Answers questions about a scenario that was played; judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from denwatch.protocol.matching import match
from denwatch.protocol.notification import decode as decode_notification
from denwatch.protocol.subscription import decode as decode_subscription
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector

from simulator.device import Told
from simulator.faults import Play
from simulator.hosted_node import HostedNode
from simulator.person import Person, Shown
from simulator.setup import TERMS
from simulator.truth import Seen, iterate_subscriptions

SLACK = 4_000  # ms: ticks and links take time


@dataclass(frozen=True)
class Wish:
    """A subscription that a person was told is in force."""

    person: Person
    id: str
    vector: SubscriptionVector
    made: int  # ms, when it was asked for
    told: int  # ms, when it was confirmed
    request: dict[str, Any]

    @property
    def is_plain(self) -> bool:
        """Whether every match of it is to be shown."""
        return self.request["subscribe"] not in TERMS

    @property
    def terms(self) -> tuple[int, int]:
        """How many are shown at a time, and for how many ms each counts; 0 for no limit."""
        return TERMS.get(self.request["subscribe"], (0, 0))


def list_wishes(person: Person) -> list[Wish]:
    """Return the subscriptions of a person that a node confirmed."""
    return [
        Wish(
            person,
            request.answer["id"],
            decode_subscription(bytes.fromhex(request.answer["vector"])),
            request.made,
            request.answered,
            request.body,
        )
        for request in person.requests.values()
        if request.answer and request.answer.get("ok") and "vector" in request.answer
    ]


def list_honest(play: Play) -> list[HostedNode]:
    """Return the nodes that never lied."""
    return [host for name, host in play.world.hosts.items() if name not in play.truth.liars]


def find_told(play: Play, seen: Seen) -> Told | None:
    """Return what a device said when it made a reading."""
    device = play.world.devices.get(seen.device)
    return device.told.get((seen.device_epoch, seen.device_sequence)) if device else None


def has_equal(host: HostedNode, wish: Wish) -> bool:
    """Return whether the same wish of the same person is there under another id."""
    name = wish.person.name
    owned = [body.vector for _, body in iterate_subscriptions(host) if body.owner == name]
    return wish.vector in map(decode_subscription, owned)


def matches(wish: SubscriptionVector, note: NotificationVector) -> bool:
    """Return whether a note is what a subscription asks for, by the protocol's own definition."""
    found = match(wish, note)
    return found is not None and bool(found.matched)


def has_seen(person: Person, notes: dict[int, Seen], wanted: Seen) -> bool:
    """Return whether a person was shown a reading, by whichever id."""
    shown = (notes.get(int(id, 16)) for id in person.notes)
    return any(seen is not None and seen.number == wanted.number for seen in shown)


def grade(wish: SubscriptionVector, body: Seen) -> int:
    """Return how well a note meets a wish; -1: not at all."""
    found = match(wish, decode_notification(body.vector))
    return found.possible if found is not None and found.matched else -1


def count_rivals(play: Play, wish: Wish, told: Told, degree: int, life: int) -> int:
    """Return how many as good ones, still valid then, the person was shown."""
    count = 0
    for shown in wish.person.notes.values():
        body = play.truth.notes.get(int(shown.id, 16))
        other = find_told(play, body) if body else None
        if body is None or other is None or grade(wish.vector, body) < degree:
            continue
        count += -life - 2 * SLACK < other.time - told.time < 4 * SLACK
    return count


def find_age(play: Play, shown: Shown) -> int:
    """Return how many ms after it was read a note was shown."""
    body = play.truth.notes.get(int(shown.id, 16))
    told = find_told(play, body) if body else None
    return shown.time - told.time if told else 0
