"""A subscriber's core: events in, actions out; no I/O, no clock, no random source of its own.

A note is acknowledged when it is on our disk, a request sent when it would survive us: that is the
rule at the head of `actions.py`, which whoever runs this keeps.

Life of a link: idle -> (probing each node in range, if there are several) -> opening -> listening
-> online; a failure anywhere leads back to idle, and the failed node rests for a while.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from denwatch.client.subscriber.actions import (
    Acknowledge,
    Action,
    Answer,
    Close,
    KeepAnswer,
    KeepNote,
    KeepReported,
    Listen,
    Open,
    Request,
    Send,
    State,
    Tell,
)
from denwatch.client.subscriber.messages import (
    Reply,
    Topics,
    read_note,
    read_reply,
    write_probe,
    write_received,
)
from denwatch.client.subscriber.servers import BackOff, Server, Servers, choose, read_offer
from denwatch.node.ranking.forwarder import ServerOffer

_MAX_PROBE = 12_000  # bytes: a node takes no request of any length


@dataclass(frozen=True)
class Settings:
    """Times in ms."""

    back_off: BackOff = field(default_factory=BackOff)
    patience: int = 5_000  # for a connection, a reply; a request is repeated after it
    longest_patience: int = 60_000
    probe_patience: int = 2_000
    report_delay: int = 1_000
    report_size: int = 200


@dataclass
class _Waiting:
    request: Request
    due: int = 0
    patience: int = 0


class Core:
    """The decisions of one subscriber. Each method takes an event and returns actions."""

    def __init__(
        self, name: str, servers: Iterable[Server], rng: random.Random, settings: Settings
    ) -> None:
        self.topics = Topics.of(name)
        self.servers = Servers(servers, settings.back_off, rng)
        self.state = State.IDLE
        self.server: Server | None = None  # the one that we are dealing with
        self._rng = rng
        self._settings = settings
        self._requests: dict[str, _Waiting] = {}
        self._wanted: dict[str, str] = {}  # name -> text
        self._confirmed: dict[str, set[str]] = {}  # name -> the servers that know it
        self._rejected: set[tuple[str, str]] = set()  # server, name: known elsewhere, not there
        self._ended: dict[str, set[str]] = {}  # name -> the servers that may still think of it
        self._unreported: dict[str, None] = {}
        self._reporting: dict[int, tuple[str, ...]] = {}
        self._report_due = 0
        self._deadline = 0  # of the step that the link is in
        self._to_probe: list[Server] = []
        self._offers: dict[Server, ServerOffer] = {}
        self._probe = ""
        self._tokens = 0

    def restore(
        self,
        wanted: Iterable[tuple[str, str, Iterable[str]]],
        ended: Iterable[tuple[str, Iterable[str]]],
        requests: Iterable[Request],
        unreported: Iterable[str],
    ) -> None:
        """Take up what an earlier run left."""
        self._ended = {name: set(servers) for name, servers in ended}
        for name, text, servers in wanted:
            self._wanted[name] = text
            self._confirmed[name] = set(servers)
        for request in requests:
            self._requests[request.id] = _Waiting(request)
        self._unreported.update(dict.fromkeys(unreported))

    # What the app asks -----------------------------------------------------------------------

    def ask(self, request: Request, now: int) -> list[Action]:
        """Take a request that is already on the disk; it replaces an older one for the name."""
        if request.kind != "list":
            self.drop(
                w.request.id
                for w in list(self._requests.values())
                if w.request.kind != "list" and w.request.name == request.name
            )
            servers = self._confirmed.pop(request.name, set())
            self._rejected = {pair for pair in self._rejected if pair[1] != request.name}
            if request.kind == "subscribe":
                self._wanted[request.name] = request.text
                self._ended.pop(request.name, None)
            else:
                self._wanted.pop(request.name, None)
                self._ended.setdefault(request.name, set()).update(servers)
        waiting = self._requests[request.id] = _Waiting(request)
        return self._send_request(waiting, now) if self.state is State.ONLINE else []

    def drop(self, requests: Iterable[str]) -> None:
        """Forget requests for which nobody waits any more."""
        for request in requests:
            self._requests.pop(request, None)

    def use_servers(self, servers: Iterable[Server], now: int) -> list[Action]:
        """Take other servers; the link stays if it is to one of them."""
        self.servers.replace(servers)
        if self.server is not None and self.server not in self.servers:
            return [Close(), *self._rest("no longer in the list"), *self.tick(now)]
        return self.tick(now)

    # What the link says ----------------------------------------------------------------------

    def opened(self, now: int) -> list[Action]:
        """Note that the server took our name and password."""
        if self.state is State.PROBING:
            return [Listen((self.topics.replies,))]
        self.state = State.LISTENING
        self._deadline = now + self._settings.patience
        return [Listen((self.topics.replies, self.topics.notes))]

    def listened(self, now: int) -> list[Action]:
        """Note that the server took our MQTT subscriptions: what is said now is heard."""
        if self.server is None:
            return []
        if self.state is State.PROBING:
            self._probe = self._new_id()
            texts = self._wanted.values()
            return [Send(self.topics.requests, write_probe(self._probe, texts, _MAX_PROBE))]
        self.state = State.ONLINE
        self.servers.note_success(self.server)
        self._unreported = {
            **dict.fromkeys(key for keys in self._reporting.values() for key in keys),
            **self._unreported,
        }
        self._reporting.clear()
        self._report_due = now
        actions: list[Action] = [Tell(self.state, self.server.url)]
        actions += self._report(now) or [self._report_nothing()]
        self._renew(self.server.url)
        for waiting in self._requests.values():
            waiting.patience = 0
            actions += self._send_request(waiting, now)
        return actions

    def failed(self, reason: str, now: int) -> list[Action]:
        """Note that the server cannot be reached, refused us, or that the link broke."""
        if self.server is None:
            return []
        self.servers.note_failure(self.server, now, reason)
        if self.state is State.PROBING:
            return [Tell(State.IDLE, self.server.url, reason), *self._probe_next(now)]
        return [*self._rest(reason), *self.tick(now)]

    def receive(self, topic: str, payload: bytes, mid: int, now: int) -> list[Action]:
        """Take a message; `mid` is 0 where nothing is to be acknowledged."""
        actions: list[Action] = []
        if topic == self.topics.notes:
            note = read_note(payload)
            if note is not None:
                actions.append(KeepNote(note, payload, now))
                if not self._unreported:
                    self._report_due = now + self._settings.report_delay
                self._unreported[note.key] = None
        elif topic == self.topics.replies:
            reply = read_reply(payload)
            if reply is not None:
                actions += self._take_reply(reply, now)
        if mid:  # also of what we cannot read: it will not get better
            actions.append(Acknowledge(mid))
        return actions

    def sent(self, token: int) -> list[Action]:
        """Note that the server has a message that we sent."""
        keys = self._reporting.pop(token, None)
        return [] if keys is None else [KeepReported(keys)]

    def tick(self, now: int) -> list[Action]:
        """Do what is due."""
        if self.state is State.ONLINE:
            actions: list[Action] = []
            for waiting in self._requests.values():
                if waiting.due <= now:
                    actions += self._send_request(waiting, now)
            return actions + self._report(now)
        if self.state is State.IDLE:
            return self._start(now)
        if self._deadline > now:
            return []
        if self.state is State.PROBING and self._probe and self.server is not None:
            return self._take_offer(None, now)  # it lives, and does not say
        return [Close(), *self.failed("no answer", now)]

    def leave(self, now: int) -> list[Action]:
        """Say what is still to be said, because nobody will be here any more."""
        self._report_due = now
        return [*self._report(now), Close()] if self.state is State.ONLINE else []

    def find_next_time(self) -> int:
        """Return when `tick` has something to do."""
        if self.state is State.IDLE:
            return self.servers.find_next_time()
        if self.state is not State.ONLINE:
            return self._deadline
        times = [waiting.due for waiting in self._requests.values()]
        if self._unreported:
            times.append(self._report_due)
        return min(times, default=1 << 62)

    # Which server ----------------------------------------------------------------------------

    def _start(self, now: int) -> list[Action]:
        due = self.servers.list_due(now)
        if not due:
            return []
        if len(due) == 1:
            return self._open(due[0], now)
        self._to_probe = due
        self._offers = {}
        return self._probe_next(now)

    def _probe_next(self, now: int) -> list[Action]:
        self._probe = ""
        if self._to_probe:
            self.state = State.PROBING
            self.server = self._to_probe.pop(0)
            self._deadline = now + self._settings.probe_patience
            return [Tell(self.state, self.server.url), Open(self.server, True)]
        if self._offers:
            return self._open(choose(self._offers), now)
        return self._rest("no node answers")

    def _take_offer(self, reply: Reply | None, now: int) -> list[Action]:
        assert self.server is not None, "only a server that we talk to offers something"
        fields = reply.fields if reply is not None and reply.is_ok else None
        self._offers[self.server] = read_offer(self.server, fields)
        return [Close(), *self._probe_next(now)]

    def _open(self, server: Server, now: int) -> list[Action]:
        self.state = State.OPENING
        self.server = server
        self._deadline = now + self._settings.patience
        return [Tell(self.state, server.url), Open(server, False)]

    def _rest(self, reason: str) -> list[Action]:
        url = self.server.url if self.server is not None else ""
        self.state = State.IDLE
        self.server = None
        return [Tell(self.state, url, reason)]

    # Requests, replies, reports --------------------------------------------------------------

    def _renew(self, server: str) -> None:
        """Ask for what this server has not confirmed, end what it confirmed: we may have walked."""
        pending = {w.request.name for w in self._requests.values() if w.request.kind != "list"}
        for name, text in self._wanted.items():
            known = server in self._confirmed.get(name, ()) or (server, name) in self._rejected
            if name not in pending and not known:
                request = Request(self._new_id(), "subscribe", name, text)
                self._requests[request.id] = _Waiting(request)
        for name, servers in self._ended.items():
            if name not in pending and server in servers:
                request = Request(self._new_id(), "unsubscribe", name)
                self._requests[request.id] = _Waiting(request)

    def _send_request(self, waiting: _Waiting, now: int) -> list[Action]:
        settings = self._settings
        waiting.patience = min(settings.longest_patience, waiting.patience * 2 or settings.patience)
        waiting.due = now + waiting.patience
        return [Send(self.topics.requests, waiting.request.write())]

    def _take_reply(self, reply: Reply, now: int) -> list[Action]:
        if self.state is State.PROBING:
            if not self._probe or reply.request != self._probe:
                return []
            return self._take_offer(reply, now)
        if self.state is State.ONLINE and reply.is_question:
            return [self._report_nothing()]
        if self.server is None or reply.request not in self._requests:
            return []
        request = self._requests.pop(reply.request).request
        if request.kind == "list":
            return [Answer(request.id, reply)]
        server = self.server.url
        if request.kind == "subscribe" and reply.is_ok:
            self._confirmed.setdefault(request.name, set()).add(server)
        elif request.kind == "subscribe" and self._confirmed.get(request.name):
            # One node's no does not take away what another node's yes gave.
            self._rejected.add((server, request.name))
            why = f'"{request.name}" is refused here: {reply.build_error()}'
            return [Tell(self.state, server, why)]
        elif request.kind == "subscribe":
            self._wanted.pop(request.name, None)
        else:
            left = self._ended.get(request.name, set())
            left.discard(server)
            if not left:
                self._ended.pop(request.name, None)
        return [KeepAnswer(request, reply, server), Answer(request.id, reply)]

    def _report(self, now: int) -> list[Action]:
        actions: list[Action] = []
        size = self._settings.report_size
        while self._unreported and (self._report_due <= now or len(self._unreported) >= size):
            keys = tuple(islice(self._unreported, size))
            for key in keys:
                del self._unreported[key]
            self._tokens += 1
            self._reporting[self._tokens] = keys
            actions.append(Send(self.topics.requests, write_received(keys), self._tokens))
        return actions

    def _report_nothing(self) -> Action:
        """Say that we listen, and report what we have: a broker does not tell a node so."""
        return Send(self.topics.requests, write_received(()))

    def _new_id(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"
