"""Sessions of MQTT clients: subscriptions, who receives a message, queues, what a restart restores.

THEORY. A session belongs to one client id of one user. It has subscriptions, messages *in flight*
(sent, not acknowledged, at most `limits.window` of them), a *queue* of messages that wait for the
window or for the client to come back, and the ids of QoS 2 messages that the client has not
released. A message that goes to several sessions exists once (`SharedMessage`); each session has
its own `OutgoingMessage` that refers to it.

INVARIANTS
  1. A client's message of QoS 1 or 2 goes to every subscriber or to none. If one has no room,
     `route` changes nothing and returns that session, so that the publisher can wait.
  2. What waits for a persistent session is in the store (space `mqtt.queue`) from the transaction
     that queued it until the transaction that received the client's acknowledgement.
  3. Messages on directed topics (between the node and one client, see topics.py) are never kept for
     a session that is away: the node keeps them itself and sends them again.
  4. The node's token is acknowledged once, and only by a session that subscribed to exactly that
     topic: somebody who looks on through a wildcard does not acknowledge for the subscriber.
  5. `session.bytes` is the size of what is in flight and queued; `Sessions.bytes` is their sum.

EXAMPLE. medic7 has a persistent session with the filter `chat/#`, QoS 1, and is away. Somebody
publishes to `chat/a`: `route` finds the session, has room, and queues an `OutgoingMessage` with
number 1 and a `Write` into `mqtt.queue`. medic7 connects: `attach` sends it with packet id 1, now
in flight. PUBACK 1 arrives: it leaves the flight, and a `Write` deletes its record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from denwatch.node.core.events import Acknowledged, Listening, Reader, Write
from denwatch.node.mqtt import records
from denwatch.node.mqtt.interface import Limits, Outputs
from denwatch.node.mqtt.packets import PUBREL, write_answer, write_publish_start
from denwatch.node.mqtt.topics import FilterIndex, TopicTree, is_directed, is_listened


class SharedMessage:
    """A message, shared by all who receive it."""

    __slots__ = ("_first", "_start", "holders", "payload", "qos", "token", "topic")

    def __init__(self, topic: str, payload: bytes, qos: int, token: int = 0) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.token = token  # 0: the node did not ask, or somebody has acknowledged it
        self.holders = 0  # sessions that have it and whose acknowledgement counts
        self._first = 0  # the first byte of `_start`
        self._start = b""  # of the packet, up to the topic: the same for most receivers

    @property
    def size(self) -> int:
        """What it counts for in a queue: about its memory."""
        return len(self.payload) + len(self.topic) + 256

    def write(self, first: int, number: int) -> bytes:
        """Return PUBLISH with this first byte and, unless it is of QoS 0, this packet id."""
        if first != self._first:
            self._start = write_publish_start(first, self.topic.encode(), len(self.payload))
            self._first = first
        if number:
            return b"".join((self._start, number.to_bytes(2, "big"), self.payload))
        return self._start + self.payload


class OutgoingMessage:
    """One session's copy of a message."""

    __slots__ = (
        "acknowledges",
        "id",
        "is_directed",
        "is_released",
        "is_repeated",
        "message",
        "number",
        "qos",
        "retain",
    )

    def __init__(
        self, message: SharedMessage, qos: int, retain: bool, is_directed: bool, acknowledges: bool
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.is_directed = is_directed
        self.acknowledges = acknowledges  # its acknowledgement is the shared message's
        self.number = 0  # in the stored queue; 0: it is not stored
        self.id = 0  # the packet id, once it was sent
        self.is_released = False  # QoS 2: PUBREC has arrived
        self.is_repeated = False  # it may have been sent before


class MqttSession:
    """The session of one client id of one user. Plain data; `Sessions` decides what goes in."""

    __slots__ = (
        "away_since",
        "bytes",
        "client",
        "in_flight",
        "inbound",
        "is_blocked",
        "is_persistent",
        "key",
        "last_id",
        "link",
        "queue",
        "subscriptions",
        "user",
    )

    def __init__(self, user: str, client: str, is_persistent: bool) -> None:
        self.user = user
        self.client = client
        self.is_persistent = is_persistent
        self.key = records.make_session_key(user, client)
        self.link = 0  # 0: away
        self.is_blocked = False  # the client does not read
        self.away_since = 0
        self.subscriptions: dict[str, int] = {}
        self.in_flight: dict[int, OutgoingMessage] = {}  # in the order of sending
        self.queue: deque[OutgoingMessage] = deque()
        self.bytes = 0  # of what is in flight and queued
        self.inbound: dict[int, None] = {}  # ids of QoS 2 messages that are not released
        self.last_id = 0

    def allocate_id(self) -> int:
        """Return the next packet id that is not in flight: 1 to 65,535, then from the start."""
        in_flight = self.in_flight
        number = self.last_id
        while True:
            number = number % 65_535 + 1
            if number not in in_flight:
                self.last_id = number
                return number


class RetainedMessages:
    """The last message of each topic, bounded in number and bytes.

    Those of topics that start with `$` are in memory only: the server publishes them again.
    """

    def __init__(self, limits: Limits, outputs: Outputs) -> None:
        self._limits = limits
        self._outputs = outputs
        self._tree: TopicTree[SharedMessage] = TopicTree()
        self.count = 0
        self.bytes = 0

    def has_room(self, message: SharedMessage) -> bool:
        """Return whether a message can be retained; an empty one, which deletes, always can."""
        if not message.payload:
            return True
        before = self._tree.get(message.topic)
        count = self.count + (before is None)
        size = self.bytes + message.size - (before.size if before else 0)
        return count <= self._limits.retained and size <= self._limits.retained_bytes

    def put(self, message: SharedMessage) -> None:
        """Replace the retained message of a topic; an empty payload deletes it."""
        if message.payload:
            self._account(self._tree.put(message.topic, message), message)
            value = records.write_retained(message.qos, message.payload)
        else:
            before = self._tree.remove(message.topic)
            if before is None:
                return
            self._account(before, None)
            value = None
        if not message.topic.startswith("$"):
            self._outputs.add(Write(records.RETAINED, message.topic.encode(), value))

    def find_all(self, name: str) -> Iterator[SharedMessage]:
        """Yield the retained messages that a filter matches."""
        return self._tree.find_all(name)

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run retained."""
        for key, value in reader.scan(records.RETAINED):
            topic, qos, payload = records.read_retained(key, value)
            message = SharedMessage(topic, payload, qos)
            self._account(self._tree.put(topic, message), message)

    def _account(self, before: SharedMessage | None, after: SharedMessage | None) -> None:
        if before is not None:
            self.count -= 1
            self.bytes -= before.size
        if after is not None:
            self.count += 1
            self.bytes += after.size


class Sessions:
    """All sessions of a server."""

    def __init__(self, limits: Limits, outputs: Outputs, counts: dict[str, int]) -> None:
        self.all: dict[tuple[str, str], MqttSession] = {}  # by user and client id
        self.retained = RetainedMessages(limits, outputs)
        self.index: FilterIndex[MqttSession] = FilterIndex()
        self.slow: list[MqttSession] = []  # sessions whose client must be disconnected
        self.was_freed = False  # a queue has got room since the server last looked
        self.bytes = 0  # in flight and queued, of all sessions
        self._last_number = 0  # of a stored message
        self._listeners: dict[str, int] = {}  # connected sessions by exact topic
        self._limits = limits
        self._outputs = outputs
        self._counts = counts

    # Start and end of sessions -------------------------------------------------------------

    def create(self, user: str, client: str, is_persistent: bool) -> MqttSession:
        """Start a session."""
        session = MqttSession(user, client, is_persistent)
        self.all[user, client] = session
        if is_persistent:
            self._outputs.add(Write(records.SESSIONS, session.key, records.VERSION))
        return session

    def remove(self, session: MqttSession) -> int:
        """End a session that is away; return how many messages waited for it."""
        del self.all[session.user, session.client]
        for name in session.subscriptions:
            self.index.remove(name, session)
        waiting = (*session.in_flight.values(), *session.queue)
        self._free(session, session.bytes)
        for outgoing in waiting:
            if outgoing.number:
                self._delete(session, outgoing)
        if session.is_persistent:
            for name in session.subscriptions:
                key = records.make_subscription_key(session.key, name)
                self._outputs.add(Write(records.SUBSCRIPTIONS, key, None))
            for number in session.inbound:
                self._outputs.add(
                    Write(records.INBOUND, records.make_inbound_key(session.key, number), None)
                )
            self._outputs.add(Write(records.SESSIONS, session.key, None))
        return len(waiting)

    def attach(self, session: MqttSession, link: int) -> None:
        """Connect a session: send again what was not acknowledged, then what waited."""
        session.link = link
        session.is_blocked = False
        for outgoing in session.in_flight.values():
            if outgoing.is_released:
                self._outputs.send(link, write_answer(PUBREL, outgoing.id))
            else:
                self._send(session, outgoing)
        self.send_queued(session)
        for name in session.subscriptions:
            self._count_listener(name, 1)

    def detach(self, session: MqttSession, now: int) -> None:
        """Disconnect a session: a persistent one stays, without directed messages."""
        for name in session.subscriptions:
            self._count_listener(name, -1)
        session.link = 0
        session.is_blocked = False
        session.away_since = now
        orphans = self._withdraw_directed(session)
        if not session.is_persistent:
            self.remove(session)
        for outgoing in orphans:
            self._hand_over(outgoing)

    def block(self, session: MqttSession, is_blocked: bool) -> None:
        """Record that a client stopped reading, or reads again."""
        session.is_blocked = is_blocked
        if not is_blocked:
            self.send_queued(session)

    def count_persistent(self, user: str) -> int:
        """Return how many persistent sessions a user has."""
        return sum(1 for s in self.all.values() if s.user == user and s.is_persistent)

    # Subscriptions -------------------------------------------------------------------------

    def subscribe(self, session: MqttSession, name: str, qos: int) -> bool:
        """Add a subscription or change its QoS; False: the session has too many."""
        is_new = name not in session.subscriptions
        if is_new and len(session.subscriptions) >= self._limits.subscriptions:
            return False
        session.subscriptions[name] = qos
        self.index.add(name, session, qos)
        if session.is_persistent:
            key = records.make_subscription_key(session.key, name)
            self._outputs.add(Write(records.SUBSCRIPTIONS, key, bytes((qos,))))
        if is_new:
            self._count_listener(name, 1)
        return True

    def unsubscribe(self, session: MqttSession, name: str) -> None:
        """Remove a subscription, if there is one; what was queued through it still goes out."""
        if session.subscriptions.pop(name, None) is None:
            return
        self.index.remove(name, session)
        if session.is_persistent:
            self._outputs.add(
                Write(records.SUBSCRIPTIONS, records.make_subscription_key(session.key, name), None)
            )
        self._count_listener(name, -1)

    def deliver_retained(self, session: MqttSession, filters: list[tuple[str, int]]) -> None:
        """Send what is retained below some filters, each message once, with the best QoS."""
        found: dict[SharedMessage, int] = {}
        for name, qos in filters:
            for message in self.retained.find_all(name):
                found[message] = max(found.get(message, 0), min(qos, message.qos))
        for message, qos in found.items():
            self.deliver(session, message, qos, True, False, False)

    def _count_listener(self, name: str, change: int) -> None:
        """Report the first and the last listener of a topic to the node."""
        if not is_listened(name):
            return
        before = self._listeners.get(name, 0)
        after = before + change
        if after:
            self._listeners[name] = after
        else:
            del self._listeners[name]
        if not before or not after:
            self._outputs.add(Listening(name, after > 0))

    # Routing -------------------------------------------------------------------------------

    def has_room(self, session: MqttSession, size: int) -> bool:
        """Return whether a queue has room for one more; an empty one always has."""
        if not session.bytes:
            return True
        limits = self._limits
        return (
            len(session.queue) < limits.queue
            and session.bytes + size <= limits.queue_bytes
            and self.bytes + size <= limits.total_queue_bytes
        )

    def route(self, message: SharedMessage) -> MqttSession | None:
        """Deliver to every subscriber; or to none, and return one that has no room."""
        targets = self.index.find_all(message.topic)
        if not targets:
            return None
        directed = is_directed(message.topic)
        if message.qos and not directed:
            size = message.size
            for session, granted in targets.items():
                if granted and session.bytes and not self.has_room(session, size):
                    return session
        self._deliver_all(message, targets, directed)
        return None

    def route_own(self, message: SharedMessage) -> list[MqttSession]:
        """Deliver the node's own message to all who have room; return those who have none."""
        targets = self.index.find_all(message.topic)
        directed = is_directed(message.topic)
        full: list[MqttSession] = []
        if message.qos and not directed:
            size = message.size
            full = [s for s, granted in targets.items() if granted and not self.has_room(s, size)]
            if full:
                targets = {s: granted for s, granted in targets.items() if s not in full}
        self._deliver_all(message, targets, directed)
        return full

    def _deliver_all(
        self, message: SharedMessage, targets: dict[MqttSession, int], directed: bool
    ) -> None:
        exact = self.index.get_exact(message.topic) if message.token else None
        qos = message.qos
        for session, granted in targets.items():
            acknowledges = exact is not None and session in exact
            self.deliver(
                session, message, qos if qos < granted else granted, False, directed, acknowledges
            )

    def _hand_over(self, outgoing: OutgoingMessage) -> None:
        """Give what a lost session did not acknowledge to another listener of the same topic.

        If there is none, the node is told that nobody listens, and sends it again itself later.
        """
        message = outgoing.message
        if not outgoing.acknowledges or not message.token or message.holders:
            return
        listeners = [
            (session, granted)
            for session, granted in (self.index.get_exact(message.topic) or {}).items()
            if session.link
        ]
        for session, granted in listeners:
            if self.has_room(session, message.size):
                self.deliver(session, message, min(message.qos, granted), False, True, True)
                return
        self.slow += [session for session, _ in listeners]

    # Sending -------------------------------------------------------------------------------

    def deliver(
        self,
        session: MqttSession,
        message: SharedMessage,
        qos: int,
        retain: bool,
        directed: bool,
        acknowledges: bool,
    ) -> None:
        """Send a message to one session, or queue it."""
        if not session.link and (directed or not qos):
            return
        is_ready = session.link and not session.is_blocked
        outgoing = OutgoingMessage(message, qos, retain, directed, acknowledges)
        if not qos:
            if is_ready:
                self._send(session, outgoing)
                if acknowledges:
                    self._acknowledge_token(message)
                return
            if not (acknowledges and directed):
                self._counts["dropped_qos0"] += 1
                return
        if directed and not self.has_room(session, message.size):
            self.slow.append(session)
            return
        if acknowledges:
            message.holders += 1
        size = message.size
        session.bytes += size
        self.bytes += size
        if session.is_persistent and not directed:
            self._last_number += 1
            outgoing.number = self._last_number
        if is_ready and not session.queue and len(session.in_flight) < self._limits.window:
            self._transmit(session, outgoing)
            if outgoing.number and qos == 1:
                self._store(session, outgoing)
        else:
            session.queue.append(outgoing)
            if outgoing.number:
                self._store(session, outgoing)

    def send_queued(self, session: MqttSession) -> None:
        """Send from the queue what the window allows."""
        queue = session.queue
        while queue and session.link and not session.is_blocked:
            if queue[0].qos and len(session.in_flight) >= self._limits.window:
                break
            outgoing = queue.popleft()
            if outgoing.qos:
                self._transmit(session, outgoing)
            else:
                self._send(session, outgoing)
                self._finish(session, outgoing)

    def _transmit(self, session: MqttSession, outgoing: OutgoingMessage) -> None:
        outgoing.id = session.allocate_id()
        session.in_flight[outgoing.id] = outgoing
        self._send(session, outgoing)
        if outgoing.qos == 2 and outgoing.number:
            self._store(session, outgoing)  # with its packet id, which the client knows it by

    def _send(self, session: MqttSession, outgoing: OutgoingMessage) -> None:
        first = 0x30 | outgoing.qos << 1
        if outgoing.retain:
            first |= 1
        if outgoing.is_repeated:
            first |= 8
        self._counts["messages_sent"] += 1
        self._outputs.send(session.link, outgoing.message.write(first, outgoing.id))

    def _withdraw_directed(self, session: MqttSession) -> list[OutgoingMessage]:
        """Remove and return what is not kept for a session that is away (invariant 3).

        Everything else in flight may arrive twice from now on.
        """
        withdrawn: list[OutgoingMessage] = []
        for number, outgoing in list(session.in_flight.items()):
            outgoing.is_repeated = True
            if outgoing.is_directed:
                del session.in_flight[number]
                withdrawn.append(outgoing)
        queued = [outgoing for outgoing in session.queue if outgoing.is_directed]
        if queued:
            kept = [outgoing for outgoing in session.queue if not outgoing.is_directed]
            session.queue.clear()
            session.queue.extend(kept)
        withdrawn += queued
        for outgoing in withdrawn:
            self._free(session, outgoing.message.size)
            outgoing.message.holders -= outgoing.acknowledges
        return withdrawn

    # Acknowledgements ----------------------------------------------------------------------

    def receive_puback(self, session: MqttSession, number: int) -> None:
        """End a QoS 1 message. An unknown id is ignored: clients send those too."""
        outgoing = session.in_flight.get(number)
        if outgoing is not None and outgoing.qos == 1:
            del session.in_flight[number]
            self._finish(session, outgoing)
            if session.queue:
                self.send_queued(session)

    def receive_pubrec(self, session: MqttSession, number: int) -> None:
        """Release a QoS 2 message: the client has it, from now on only PUBREL is sent again."""
        outgoing = session.in_flight.get(number)
        # An unknown id is answered too: the client would keep it for ever.
        if outgoing is not None and outgoing.qos == 2 and not outgoing.is_released:
            outgoing.is_released = True
            if outgoing.number:
                self._store(session, outgoing)
        self._outputs.send(session.link, write_answer(PUBREL, number))

    def receive_pubcomp(self, session: MqttSession, number: int) -> None:
        """End a QoS 2 message."""
        outgoing = session.in_flight.get(number)
        if outgoing is not None and outgoing.is_released:
            del session.in_flight[number]
            self._finish(session, outgoing)
            self.send_queued(session)

    def receive_qos2(self, session: MqttSession, number: int) -> None:
        """Remember the id of a QoS 2 message of a client until the client releases it."""
        session.inbound[number] = None
        if session.is_persistent:
            self._outputs.add(
                Write(
                    records.INBOUND, records.make_inbound_key(session.key, number), records.PRESENT
                )
            )

    def receive_pubrel(self, session: MqttSession, number: int) -> None:
        """Forget the id of a QoS 2 message of a client: it is free for another message."""
        if session.inbound.pop(number, 0) is None and session.is_persistent:
            self._outputs.add(
                Write(records.INBOUND, records.make_inbound_key(session.key, number), None)
            )

    def _finish(self, session: MqttSession, outgoing: OutgoingMessage) -> None:
        self._free(session, outgoing.message.size)
        if outgoing.number:
            self._delete(session, outgoing)
        if outgoing.acknowledges:
            outgoing.message.holders -= 1
            self._acknowledge_token(outgoing.message)

    def _acknowledge_token(self, message: SharedMessage) -> None:
        if message.token:
            self._outputs.add(Acknowledged(message.topic, message.token))
            message.token = 0

    def _free(self, session: MqttSession, size: int) -> None:
        session.bytes -= size
        self.bytes -= size
        self.was_freed = True

    # The stored queue, and what a restart restores ------------------------------------------

    def _store(self, session: MqttSession, outgoing: OutgoingMessage) -> None:
        message = outgoing.message
        record = records.QueueRecord(
            message.topic,
            message.payload,
            outgoing.qos,
            outgoing.retain,
            outgoing.is_released,
            outgoing.id if outgoing.qos == 2 else 0,
        )
        key = records.make_queue_key(session.key, outgoing.number)
        self._outputs.add(Write(records.QUEUE, key, records.write_queue_value(record)))

    def _delete(self, session: MqttSession, outgoing: OutgoingMessage) -> None:
        self._outputs.add(
            Write(records.QUEUE, records.make_queue_key(session.key, outgoing.number), None)
        )

    def restore(self, reader: Reader, now: int) -> None:
        """Load persistent sessions, all of them away, and retained messages."""
        self.retained.restore(reader)
        sessions: dict[bytes, MqttSession] = {}

        def find(key: bytes) -> MqttSession:
            """Return a session; its row may be missing that was damaged on the disk."""
            session = sessions.get(key)
            if session is None:
                user, client = records.read_session_key(key)
                session = MqttSession(user, client, True)
                session.away_since = now
                sessions[key] = self.all[user, client] = session
            return session

        for key, value in reader.scan(records.SESSIONS):
            if value != records.VERSION:
                raise records.StoredRecordError(records.SESSIONS, key)
            find(key)
        for key, value in reader.scan(records.SUBSCRIPTIONS):
            session_key, name, qos = records.read_subscription(key, value)
            session = find(session_key)
            session.subscriptions[name] = qos
            self.index.add(name, session, qos)
        for key, _ in reader.scan(records.INBOUND):
            session_key, number = records.read_inbound_key(key)
            find(session_key).inbound[number] = None
        for key, value in reader.scan(records.QUEUE):
            session_key, number = records.read_queue_key(key)
            record = records.read_queue_value(key, value)
            self._restore_queued(find(session_key), number, record)

    def _restore_queued(
        self, session: MqttSession, number: int, record: records.QueueRecord
    ) -> None:
        message = SharedMessage(record.topic, record.payload, record.qos)
        outgoing = OutgoingMessage(message, record.qos, record.retain, False, False)
        outgoing.number = number
        outgoing.is_released = record.is_released
        # Whether QoS 1 was sent before is not stored; a repetition must say that it may be one.
        outgoing.is_repeated = record.qos == 1 or record.id > 0
        if record.id:
            outgoing.id = record.id
            session.in_flight[record.id] = outgoing
        else:
            session.queue.append(outgoing)
        session.bytes += message.size
        self.bytes += message.size
        self._last_number = max(self._last_number, number)
