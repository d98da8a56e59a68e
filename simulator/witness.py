"""Whoever stands in the field and looks: what is said to nodes, what they say, what they hold.

The only knowledge that `verdict.py` has of a day. Nothing is read from logs: links are up and down
when nodes are told so, people are where they listen, a reading is what its device measured, and a
delivery is an acknowledgement that reached the node.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from denwatch.client.vocabulary import Vocabulary
from denwatch.node.core.events import (
    NOTES,
    REPLIES,
    REQUESTS,
    Acknowledged,
    Event,
    Listening,
    Message,
    PeerDown,
    PeerUp,
    Publish,
)
from denwatch.node.core.item_store import Added, Removed
from denwatch.node.core.items import NOTIFICATION, Item, NotificationBody, decode_body

from simulator.hosted_node import HostedNode, HostSettings, Watch
from simulator.network import WorldSettings
from simulator.world import World


class Span(NamedTuple):
    """Two nodes in contact, or a person at a node: from `begin` until just before `end`; ms."""

    one: str
    other: str
    begin: int
    end: int


@dataclass
class Asked:
    """A subscription as its owner knows it."""

    id: int
    owner: str
    node: str  # that was asked
    name: str
    words: str
    begin: int
    end: int | None = None  # when it was taken back


class Taken(NamedTuple):
    """A notification: which reading of which device, which node took it, and when."""

    id: int
    device: str
    epoch: int
    sequence: int
    node: str
    time: int
    expires: int


@dataclass
class Witness:
    """All that was seen."""

    asked: dict[int, Asked] = field(default_factory=dict)
    taken: dict[int, Taken] = field(default_factory=dict)
    delivered: dict[tuple[int, str], tuple[int, str]] = field(default_factory=dict)  # when, where
    repeated: list[tuple[int, str, int]] = field(default_factory=list)
    contacts: list[Span] = field(default_factory=list)
    stays: list[Span] = field(default_factory=list)
    carried: dict[tuple[str, int], int] = field(default_factory=dict)  # node, note: since when
    handed: set[tuple[int, str]] = field(default_factory=set)  # to a session, whatever came of it
    _up: dict[tuple[str, str], int] = field(default_factory=dict)
    _here: dict[tuple[str, str], int] = field(default_factory=dict)
    _requests: dict[str, tuple[dict[str, Any], int]] = field(default_factory=dict)
    _tokens: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def see(self, node: str, event: Event, now: int) -> None:
        """See what a node is told."""
        match event:
            case PeerUp(peer):
                self._up.setdefault((min(node, peer), max(node, peer)), now)
            case PeerDown(peer):
                pair = min(node, peer), max(node, peer)
                if pair in self._up:
                    self.contacts.append(Span(*pair, self._up.pop(pair), now))
            case Listening(topic, is_up) if topic.startswith(NOTES):
                key = topic.removeprefix(NOTES), node
                if is_up:
                    self._here.setdefault(key, now)
                elif key in self._here:
                    self.stays.append(Span(*key, self._here.pop(key), now))
            case Message(_, topic, payload) if topic.startswith(REQUESTS):
                body = json.loads(payload)
                if "request" in body:  # a report of what was received elsewhere has no answer
                    self._requests.setdefault(body["request"], (body, now))
            case Acknowledged(topic, token, others) if topic.startswith(NOTES):
                for each in (token, *others):
                    self._note_delivery(node, topic, each, now)

    def _note_delivery(self, node: str, topic: str, token: int, now: int) -> None:
        key = self._tokens[node, topic, token], topic.removeprefix(NOTES)
        if key in self.delivered:
            self.repeated.append((*key, now))
        else:
            self.delivered[key] = now, node

    def hear(self, node: str, publish: Publish) -> None:
        """Hear what a node says to a person."""
        topic = publish.topic
        if topic.startswith(REPLIES):
            answer = json.loads(publish.payload)
            body, time = self._requests.get(answer.get("request"), ({}, 0))
            owner = topic.removeprefix(REPLIES)
            if "subscribe" in body and answer["ok"]:
                id = int(answer["id"], 16)
                words = body["subscribe"]
                self.asked.setdefault(id, Asked(id, owner, node, body["name"], words, time))
            elif "unsubscribe" in body and answer["ok"]:
                for asked in self.asked.values():
                    if (asked.owner, asked.name) == (owner, body["unsubscribe"]):
                        asked.end = time if asked.end is None else asked.end
        elif topic.startswith(NOTES):
            id = int(json.loads(publish.payload)["id"], 16)
            self._tokens[node, topic, publish.token] = id
            self.handed.add((id, topic.removeprefix(NOTES)))

    def close(self, now: int) -> None:
        """The day is over: what lasts until then has its end there."""
        self.contacts += [Span(*pair, begin, now) for pair, begin in self._up.items()]
        self.stays += [Span(*key, begin, now) for key, begin in self._here.items()]


class _Listener:
    """Sees which notifications come to a node."""

    def __init__(self, world: WatchedWorld, node: str) -> None:
        self._world = world
        self._node = node

    def __call__(self, change: Added | Removed) -> None:
        """Note new notifications."""
        if isinstance(change, Added) and change.items[0].kind == NOTIFICATION:
            for item in change.items:
                self._note(item, change.source)

    def _note(self, item: Item, source: str) -> None:
        witness, now = self._world.witness, self._world.now
        witness.carried.setdefault((self._node, item.id), now)
        if not source:
            body = decode_body(NotificationBody, item.body)
            number = body.device, body.device_epoch, body.device_sequence
            witness.taken[item.id] = Taken(item.id, *number, self._node, now, item.expires)


class WatchedWorld(World):
    """The world, with somebody who looks."""

    def __init__(
        self,
        seed: int,
        vocabulary: Vocabulary,
        settings: WorldSettings | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(seed, vocabulary, settings, watch)
        self.witness = Witness()

    def add_node(self, name: str, settings: HostSettings | None = None) -> HostedNode:
        """Put up a node, and look at what it holds."""
        host = super().add_node(name, settings)
        host.node.watch = _Listener(self, name)
        return host

    def give(self, name: str, event: Event) -> None:
        """Let a node take an event."""
        self.witness.see(name, event, self.now)
        super().give(name, event)

    def _bring(self, name: str, publish: Publish) -> None:
        self.witness.hear(name, publish)
        super()._bring(name, publish)
