"""What really happened in a scenario, seen from outside: for the checks, which nobody else is.

Sees nodes only by what they have committed to the log, people by what they were told and shown,
devices by what went into their spools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import cbor2
from denwatch.node.core.events import Log
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    NotificationBody,
    SubscriptionBody,
    decode_body,
    read_dot,
)

from simulator.hosted_node import HostedNode
from simulator.world import World


class Seen(NamedTuple):
    """A notification that some node took."""

    device: str
    device_epoch: int
    device_sequence: int
    vector: bytes
    doubt: int
    origin: str

    @property
    def number(self) -> tuple[str, int, int]:
        """What its device calls it."""
        return self[:3]


def _read_note(fields: Mapping[str, Any]) -> Seen:
    return Seen(*(fields[name] for name in Seen._fields))


class Truth:
    """The observer."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.sent_after: list[tuple[str, str, int]] = []  # node, owner, note: after its delivery
        self.notes: dict[int, Seen] = {}  # by id
        self.dropped: set[int] = set()  # notes given up for want of room
        self.most_held = 0
        self.lies: set[int] = set()  # items that somebody made up
        self.liars: set[str] = set()  # nodes that hand them on
        self.sent: set[tuple[str, int]] = set()  # owner and note: offered more than once
        self._delivered: set[tuple[str, str, int]] = set()

    def find_forgetful(self) -> set[str]:
        """Return the nodes whose disks lied: they promised what was not written."""
        assert self.world is not None
        return {name for name, host in self.world.hosts.items() if host.medium.losses}

    def find_lost(self) -> set[int]:
        """Return the items that such disks forgot, by id; others may still have them."""
        assert self.world is not None
        lost = (each for host in self.world.hosts.values() for each in host.medium.lost)
        return {read_dot(key).id for space, key in lost if space.startswith("item.")}

    def watch(self, host: HostedNode, log: Log, time: int) -> None:  # noqa: ARG002 - a Watch
        """See one record of a node, once it is on the disk."""
        fields = log.fields
        if log.kind == "deliver":
            self._delivered.add((host.name, str(fields["owner"]), int(str(fields["note"]))))
        elif log.kind == "send":
            key = (host.name, str(fields["owner"]), int(str(fields["note"])))
            if int(str(fields["attempt"])) > 1:
                self.sent.add(key[1:])
            if key in self._delivered:
                self.sent_after.append(key)
        elif log.kind == "drop" and fields.get("item") is not None:
            self.dropped.add(int(str(fields["item"])))
        elif log.kind == "note":
            self.notes[int(str(fields["item"]))] = _read_note(fields)
            self.most_held = max(self.most_held, host.item_store.count(NOTIFICATION))


def iterate_notes(host: HostedNode) -> Iterator[tuple[int, NotificationBody]]:
    """Yield the notifications on a node's disk, with their ids."""
    for key, value in sorted(host.medium.spaces.get("item.notification", {}).items()):
        yield read_dot(key).id, decode_body(NotificationBody, cbor2.loads(value)[2])


def iterate_subscriptions(host: HostedNode) -> Iterator[tuple[int, SubscriptionBody]]:
    """Yield the subscriptions on a node's disk, with their ids."""
    for key, value in sorted(host.medium.spaces.get("item.subscription", {}).items()):
        yield read_dot(key).id, decode_body(SubscriptionBody, cbor2.loads(value)[2])


def list_live(host: HostedNode, kind: int = SUBSCRIPTION) -> set[tuple[str, int, int]]:
    """Return the dots that a node holds in memory."""
    return {
        (*run, sequence) for run, held in host.item_store.live[kind].items() for sequence in held
    }
