"""A durable node: core, MQTT server and store; what comes in, commit, what goes out.

THE RULE OF DURABILITY. Inputs are fed one by one; their writes and log records go to the store at
once, in the open group. Everything that would leave the node waits in `Effects` until `commit` has
returned. So nothing is acknowledged, answered or sent before it is on the disk.

    listener ── receive_input ──► server ──► core ──► store.apply
    connections ── receive_event ──────────►  │
    commit ──► store.commit ──► Effects: outputs (listener), outgoing (connections), committed

No sockets and no clock here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from denwatch.node.core import events
from denwatch.node.core.node import Node
from denwatch.node.log import encode_record
from denwatch.node.mqtt.interface import Input, Output, ServerRefusal
from denwatch.node.mqtt.server import MqttServer
from denwatch.node.store import Storage

_REFUSALS = 20  # records of the server's refusals in a second: strangers must not fill the disk


@dataclass
class Effects:
    """What to do after the commit: outputs of our server, messages for connections, callbacks."""

    outputs: list[Output] = field(default_factory=list)
    outgoing: list[events.Publish] = field(default_factory=list)
    committed: list[Callable[[], None]] = field(default_factory=list)


class DurableNode:
    """One node between its links and its disk. Without a server it uses somebody else's broker."""

    def __init__(
        self,
        node: Node,
        store: Storage,
        server: MqttServer | None,
        count: Callable[[events.Count], None],
        stamp: Callable[[int], int] = lambda now: now,
    ) -> None:
        self.node = node
        self.store = store
        self.server = server
        self.peers: dict[str, int] = {}  # links to each peer, whoever opened them
        self._connected: set[str] = set()  # peers whose link we opened
        self._count = count
        self._stamp = stamp
        self._effects = Effects()
        self._refusals = (0, 0)  # the second, and how many in it

    def restore(self, now: int) -> None:
        """Load what an earlier run saved."""
        if self.server is not None:
            self.server.restore(self.store, now)
        self.node.restore()

    # In -------------------------------------------------------------------------------------

    def receive_input(self, event: Input, now: int) -> None:
        """Receive what the listener of our server reports."""
        assert self.server is not None, "there is no listener without a server"
        self._pass_on(self.server.take(event, now), now)

    def receive_event(
        self, event: events.Event, now: int, committed: Callable[[], None] | None = None
    ) -> None:
        """Receive an event of a connection that we opened; call `committed` after the commit."""
        if isinstance(event, events.PeerUp):
            self._connected.add(event.name)
        elif isinstance(event, events.PeerDown):
            self._connected.discard(event.name)
        self._feed(event, now)
        if committed is not None:
            self._effects.committed.append(committed)

    def tick(self, now: int) -> None:
        """Do what is due."""
        if self.server is not None:
            self._pass_on(self.server.tick(now), now)
        self._feed(events.Tick(), now)

    def set_clock(self, offset: int, now: int) -> None:
        """Tell the core that somebody set the machine's clock."""
        self._feed(events.ClockSet(offset), now)

    def publish(self, message: events.Publish, now: int) -> None:
        """Publish a message of the process itself: its status."""
        self._route(deque(), message, now)

    def log(self, kind: str, fields: Mapping[str, object], now: int) -> None:
        """Write a record of the process itself: its start, its end."""
        self.store.apply((), [encode_record(kind, fields, now, self._stamp(now))])

    def report_server(self, now: int) -> None:
        """Publish the server's counts under $SYS."""
        if self.server is not None:
            self._pass_on(self.server.report(now), now)

    def list_users(self) -> list[str]:
        """Return the names of those who are connected."""
        return [] if self.server is None else self.server.list_users()

    def expel(self, user: str, now: int) -> None:
        """Close the links of somebody whose key was revoked."""
        if self.server is not None:
            self._pass_on(self.server.expel(user, now), now)

    # Out ------------------------------------------------------------------------------------

    def commit(self) -> Effects:
        """Make everything durable; return what is to be done now."""
        self.store.commit()
        effects, self._effects = self._effects, Effects()
        return effects

    # Inside ---------------------------------------------------------------------------------

    def _pass_on(self, outputs: list[Output], now: int) -> None:
        """Keep what is for the listener, and pass the rest to the core."""
        arrived: deque[events.Event] = deque()
        self._sort_out(outputs, arrived, now)
        while arrived:
            self._feed(arrived.popleft(), now)

    def _sort_out(self, outputs: list[Output], arrived: deque[events.Event], now: int) -> None:
        writes: list[events.Write] = []
        logs: list[bytes] = []
        for output in outputs:
            kind = type(output)
            if kind is events.Message or kind is events.Listening or kind is events.Acknowledged:
                arrived.append(output)  # type: ignore[arg-type]
            elif kind is events.Write:
                writes.append(output)  # type: ignore[arg-type]
            elif isinstance(output, ServerRefusal):
                self._count(events.Count("refused_by_server"))
                if self._may_log_refusal(now):
                    fields = {"what": output.what, "why": output.why, "who": output.user}
                    logs.append(encode_record("refuse", fields, now, self._stamp(now)))
            else:
                self._effects.outputs.append(output)
        if writes or logs:
            self.store.apply(writes, logs)

    def _may_log_refusal(self, now: int) -> bool:
        second = now // 1000
        if second != self._refusals[0]:
            self._refusals = (second, 0)
        self._refusals = (second, self._refusals[1] + 1)
        return self._refusals[1] <= _REFUSALS

    def _feed(self, event: events.Event, now: int) -> None:
        """Let the core handle an event, and everything that follows from it at once."""
        arrived: deque[events.Event] = deque([event])
        while arrived:
            found = self._translate(arrived.popleft())
            if found is None:
                continue
            writes: list[events.Write] = []
            logs: list[bytes] = []
            publishes: list[events.Publish] = []
            for action in self.node.handle(found, now):
                kind = type(action)
                if kind is events.Write:
                    writes.append(action)  # type: ignore[arg-type]
                elif kind is events.Publish:
                    publishes.append(action)  # type: ignore[arg-type]
                elif isinstance(action, events.Log):
                    logs.append(encode_record(action.kind, action.fields, now, self._stamp(now)))
                else:
                    self._count(action)  # type: ignore[arg-type]
            if writes or logs:
                self.store.apply(writes, logs)
            for publish in publishes:
                self._route(arrived, publish, now)

    def _route(self, arrived: deque[events.Event], publish: events.Publish, now: int) -> None:
        topic = publish.topic
        is_outgoing = self.server is None or (
            topic.startswith(events.PEERS) and topic.removeprefix(events.PEERS) in self._connected
        )
        if is_outgoing:
            self._effects.outgoing.append(publish)
        elif self.server is not None:
            self._sort_out(self.server.publish(publish, now), arrived, now)

    def _translate(self, event: events.Event) -> events.Event | None:
        """Return a peer's coming and going once, however many links there are to it."""
        if type(event) is events.Acknowledged or type(event) is events.Message:
            return event
        if isinstance(event, events.Listening) and event.topic.startswith(events.PEERS):
            name = event.topic.removeprefix(events.PEERS)
            event = events.PeerUp(name) if event.is_up else events.PeerDown(name)
        if isinstance(event, events.PeerUp):
            self.peers[event.name] = self.peers.get(event.name, 0) + 1
            return event if self.peers[event.name] == 1 else None
        if isinstance(event, events.PeerDown):
            left = self.peers.get(event.name, 0) - 1
            if left > 0:
                self.peers[event.name] = left
                return None
            return event if self.peers.pop(event.name, 0) else None
        return event
