"""Listens to the nodes' retained statuses, at every server at once, on a thread of its own.

It has its own connections: a subscriber's link goes to one node, and the map wants all of them.
Lost ones are tried again. Nothing is sent, and nothing but statuses is asked for.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable

from denwatch.client.console.network import Memory
from denwatch.client.subscriber.link import (
    Identity,
    LinkConnected,
    LinkEvent,
    LinkFailed,
    MessageArrived,
    MqttLink,
    TopicsSubscribed,
    Waker,
)
from denwatch.client.subscriber.messages import STATUS, SubscriberError, read_object
from denwatch.client.subscriber.servers import NodeUrl, parse_server

_PAUSE = 2.0  # s between two attempts at a server
_TURN = 0.5  # s


class Watch:
    """What the nodes say of themselves. `memory` and `served` are read from other threads."""

    def __init__(self, identity: Identity, servers: Iterable[str], now: Callable[[], int]) -> None:
        self.memory = Memory()
        self.served: dict[str, str] = {}  # by server: the node that speaks there for itself
        self.lock = threading.Lock()
        self._identity = identity
        self._servers = [parse_server(server) for server in servers]
        self._now = now
        self._links: dict[NodeUrl, MqttLink] = {}
        self._not_before: dict[NodeUrl, float] = {}
        self._waker = Waker()
        self._client_id = f"console-{secrets.token_hex(6)}-"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="denwatch-statuses", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._stopping.set()
        self._waker.wake()
        if self._thread.is_alive():
            self._thread.join()
        for link in self._links.values():
            link.close()
        self._waker.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            share = _TURN / max(1, len(self._servers))
            for number, server in enumerate(self._servers):
                link = self._links.get(server) or self._open(server, number)
                if link is None:
                    self._stopping.wait(share)
                    continue
                for happening in link.poll(share, self._waker):
                    self._take(link, happening)

    def _open(self, server: NodeUrl, number: int) -> MqttLink | None:
        if time.monotonic() < self._not_before.get(server, 0.0):
            return None
        self._not_before[server] = time.monotonic() + _PAUSE
        try:
            link = MqttLink(server, self._identity, f"{self._client_id}{number}", is_temporary=True)
        except SubscriberError:
            return None
        self._links[server] = link
        link.open()
        return link

    def _take(self, link: MqttLink, happening: LinkEvent) -> None:
        if isinstance(happening, LinkConnected):
            link.listen((f"{STATUS}+",))
        elif isinstance(happening, LinkFailed):
            link.close()
            self._links.pop(link.server, None)
        elif isinstance(happening, MessageArrived):
            if happening.mid:
                link.acknowledge(happening.mid)
            self._note(link.server, happening.topic.removeprefix(STATUS), happening.payload)
        else:
            assert not isinstance(happening, TopicsSubscribed) or link.server in self._links

    def _note(self, server: NodeUrl, node: str, payload: bytes) -> None:
        fields = read_object(payload)
        with self.lock:
            if fields is not None:
                self.memory.learn(node, fields, self._now())
                self.served[server.url] = node
            elif not payload:
                self.memory.forget(node, self._now())
