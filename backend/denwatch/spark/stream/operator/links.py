"""MQTT connections of an operator to nodes: who is there, and messages that are acknowledged.

A node's acknowledgement is its commit, so what `send` says is there, is there. Nobody waits here
for a node that is not: a link that fails is tried again the next time that there is something.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

from denwatch.client.subscriber.errors import SubscriberError
from denwatch.client.subscriber.link import (
    Arrived,
    Failed,
    Identity,
    Link,
    Listened,
    Opened,
    Sent,
    Waker,
)
from denwatch.client.subscriber.servers import Server
from denwatch.node.core.interface import OPERATORS, STATUS

_PATIENCE = 5.0  # s for an answer
_QUIET = 1.0  # s after which no more nodes are behind a server


class NodeLink:
    """One connection, from `open` to `close`; `nodes` are those whose status is there."""

    def __init__(self, server: Server, identity: Identity) -> None:
        self.server = server
        self.nodes: list[str] = []
        self._identity = identity
        self._link: Link | None = None
        self._waker = Waker()
        self._happened: list[object] = []

    def open(self) -> None:
        """Connect, and find out which nodes are there; SubscriberError if that is nobody."""
        client = f"operator-{self._identity.name}-{time.time_ns() % 1_000_000}"
        link = self._link = Link(
            self.server, self._identity, client, is_passing=True, timeout=_PATIENCE
        )
        link.open()
        self._wait(Opened)
        link.listen((f"{STATUS}+",))
        self._wait(Listened)
        found: dict[str, None] = {}
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and not (found and self._is_quiet()):
            for event in self._take():
                if isinstance(event, Arrived):
                    link.acknowledge(event.mid)
                    name = event.topic.removeprefix(STATUS)
                    found |= {name: None} if event.payload else {}
        self.nodes = sorted(found)
        if not found:
            raise SubscriberError(f"{self.server.url}: connected, but no node says its name there")

    def send(self, node: str, payloads: Iterable[bytes]) -> int:
        """Send frames to a node, one after the other; return how many it has on its disk."""
        assert self._link is not None, "a link is opened first"
        done = 0
        for number, payload in enumerate(payloads, 1):
            self._link.send(OPERATORS + node, payload, number)
            try:
                self._wait(Sent)
            except SubscriberError:
                return done
            done += 1
        return done

    def close(self) -> None:
        """Hang up."""
        if self._link is not None:
            with suppress(OSError):
                self._link.close()
            self._link = None
        self._waker.close()

    def _is_quiet(self) -> bool:
        assert self._link is not None, "a link is opened first"
        self._happened += self._link.poll(_QUIET, self._waker)
        return not self._happened

    def _take(self) -> list[object]:
        assert self._link is not None, "a link is opened first"
        if not self._happened:
            self._happened += self._link.poll(0.2, self._waker)
        found, self._happened = self._happened, []
        return found

    def _wait(self, kind: type) -> None:
        """Wait for something to happen; SubscriberError if it does not."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            for event in self._take():
                if isinstance(event, Failed):
                    raise SubscriberError(f"{self.server.url}: {event.reason}")
                if isinstance(event, kind):
                    return
        raise SubscriberError(f"{self.server.url}: no answer")
