"""What really happened in a scenario, seen from outside: for the checks, which nobody else is.

Sees nodes only by what they have committed to the log, people by what they were told and shown,
devices by what went into their spools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import cbor2
from denwatch.node.core.events import Log
from denwatch.node.core.home_assistant import ONLINE, name_presence
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    NotificationBody,
    SubscriptionBody,
    decode_body,
    read_dot,
)
from denwatch.node.core.notifications import REPORTED

from simulator.hosted_node import HostedNode
from simulator.world import KEPT_ALIVE, World

PRESENCE = KEPT_ALIVE + 40_000  # ms within which what is said of a device's presence is true
_LINGER = 1_000  # ms: what was on its way when a device lost its rights
_UNNOTICED = 1_000  # ms by which an age may be wrong beyond its doubt: two hops in this world


class Seen(NamedTuple):
    """A notification that some node took."""

    device: str
    device_epoch: int
    device_sequence: int
    vector: bytes
    doubt: int
    origin: str
    life: int  # of the device: how often it had lost its memory

    @property
    def number(self) -> tuple[str, int, int]:
        """What its device calls it."""
        return self[:3]

    @property
    def reading(self) -> tuple[str, int, int, int]:
        """What no other reading has: its number, and the life in which that was counted."""
        return (*self[:3], self.life)


def _read_note(fields: Mapping[str, Any], life: int) -> Seen:
    return Seen(**{name: fields[name] for name in Seen._fields[:-1]}, life=life)


class Absence(NamedTuple):
    """A device that was said to be there and was not, or the reverse."""

    node: str
    device: str
    said: str  # by whom
    is_there: bool
    seconds: int  # for how long it had been so
    has_will: bool
    was_clean: bool  # whether it had said goodbye


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
        self.demoted: dict[str, int] = {}  # people, and when
        self.reported: dict[tuple[str, int, int], int] = {}  # by number: when a node took it last
        self.revoked: dict[str, int] = {}  # devices that have no rights now, and since when
        self.stolen: list[tuple[str, str]] = []  # node and device: a note of one without rights
        self.added: dict[tuple[str, int], int] = {}  # node and subscription: when it had it first
        self.heard: dict[tuple[str, str], int] = {}  # node and device: its life at the last hello
        self.welcomes: dict[tuple[str, str], list[int]] = {}  # ... and when hellos were accepted
        self.forgotten: dict[tuple[str, str], int] = {}  # ... and when an operator had it forgotten
        self.mistaken: set[tuple[str, str, int]] = set()  # ... and life: passes for its old self
        self.absences: list[Absence] = []
        self.younger: list[tuple[str, str, int, int]] = []  # node, device, ms: true age, assumed
        self.omitting: set[str] = set()  # nodes that found no room on a device for something
        self.wills: tuple[str, int] | None = None  # the node at which apps broke off, and when
        self._started: dict[str, int] = {}  # nodes, and when
        self._delivered: set[tuple[str, str, int]] = set()

    def find_forgetful(self) -> set[str]:
        """Return the nodes whose disks lied or decayed: what they promised to keep is lost."""
        assert self.world is not None
        media = {name: host.medium for name, host in self.world.hosts.items()}
        return {name for name, medium in media.items() if medium.losses or medium.decayed}

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
        elif log.kind == "drop" and fields.get("what") == "vectors":
            self.omitting.add(host.name)
        elif log.kind == "subscribe" and self.world is not None:
            self.added.setdefault((host.name, int(str(fields["item"]))), self.world.now)
        elif log.kind == "start":
            self._started[host.name] = 0 if self.world is None else self.world.now
        elif log.kind == "device" and fields["is_up"]:
            self._hear_hello(host.name, str(fields["device"]))
        elif log.kind == "note":
            self._see_note(host, fields)
            self.most_held = max(self.most_held, host.item_store.count(NOTIFICATION))

    def _hear_hello(self, node: str, name: str) -> None:
        assert self.world is not None
        device = self.world.devices.get(name)
        if device is None:
            return
        place = (node, name)
        self.welcomes.setdefault(place, []).append(self.world.now)
        before = max(self.heard.get(place, device.life), self.forgotten.get(place, -1))
        if before < device.life and not device.uplink.counts["begun_anew"]:
            self.mistaken.add((*place, device.life))
        self.heard[place] = device.life

    def _see_note(self, host: HostedNode, fields: Mapping[str, Any]) -> None:
        assert self.world is not None
        device = self.world.devices.get(fields["device"])
        seen = _read_note(fields, device.life if device else 0)
        self.notes.setdefault(int(str(fields["item"])), seen)
        if seen.device_epoch == REPORTED:
            if seen.origin == host.name:
                self.reported[seen.number] = self.world.now
            else:  # whoever took it may have crashed right after the commit
                self.reported.setdefault(seen.number, self.world.now)
        revoked = self.revoked.get(seen.device, self.world.now)
        if seen.origin == host.name and revoked < self.world.now - _LINGER:
            self.stolen.append((host.name, seen.device))
        if seen.origin == host.name and device is not None:
            told = device.told.get((seen.device_epoch, seen.device_sequence))
            # Over a restart without a clock an age is what is certain, not what is true.
            if told is not None and told.epoch == device.spool.epoch:
                age, true = host.time - int(str(fields["at"])), self.world.now - told.time
                if true - age > seen.doubt + _UNNOTICED:
                    self.younger.append((host.name, seen.device, true, age))

    def look_at_presence(self) -> None:
        """Compare who is said to be there with who is, at every node."""
        assert self.world is not None
        world = self.world
        for host in world.hosts.values():
            if not host.is_up:
                continue
            said = {device.name: device for device in host.devices.list_devices()}
            for name, device in world.devices.items():
                known = said.get(name)
                if known is None:
                    continue
                shown = world.retained.get(name_presence(host.name, name))
                claims = {"status": known.is_present}
                if shown:
                    claims["Home Assistant"] = shown == ONLINE
                is_here = device.is_up and device.node == host.name
                if is_here and self.heard.get((host.name, name)) != device.life:
                    continue  # it was not let in, or not yet
                heard = max(device.connected_at, world.held_up.get(name, 0))
                since = heard if is_here else world.left.get((host.name, name), 0)
                for who, claim in claims.items():
                    late = world.now - max(since, self._started[host.name])
                    if claim != is_here and late > PRESENCE and name not in self.revoked:
                        self.absences.append(
                            Absence(
                                host.name,
                                name,
                                who,
                                is_here,
                                late // 1000,
                                device.has_will,
                                (host.name, name) in world.goodbyes,
                            )
                        )


def iterate_notes(host: HostedNode) -> Iterator[tuple[int, NotificationBody]]:
    """Yield the notifications on a node's disk, with their ids; a liar's own may be too long."""
    for key, value in sorted(host.medium.spaces.get("item.notification", {}).items()):
        yield read_dot(key).id, NotificationBody(*cbor2.loads(cbor2.loads(value)[2]))


def iterate_subscriptions(host: HostedNode) -> Iterator[tuple[int, SubscriptionBody]]:
    """Yield the subscriptions on a node's disk, with their ids."""
    for key, value in sorted(host.medium.spaces.get("item.subscription", {}).items()):
        yield read_dot(key).id, decode_body(SubscriptionBody, cbor2.loads(value)[2])


def list_live(host: HostedNode, kind: int = SUBSCRIPTION) -> set[tuple[str, int, int]]:
    """Return the dots that a node holds in memory."""
    return {
        (*run, sequence) for run, held in host.item_store.live[kind].items() for sequence in held
    }
