"""A client's session: subscriptions, messages in flight and queued, inbound QoS 2 ids.

Pure data with its own bookkeeping; `exchange.py` decides what goes in and what is made durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from denwatch.node.core.interface import Acknowledged, Listening, Reader, Write
from denwatch.node.mqtt.interface import Limits, Outputs
from denwatch.node.mqtt.packets import write_publish_start, write_pubrel
from denwatch.node.mqtt.records import (
    INBOUND,
    PRESENT,
    QUEUE,
    RETAINED,
    SESSIONS,
    SUBSCRIPTIONS,
    VERSION,
    QueueRecord,
    StoredRecordError,
    make_inbound_key,
    make_queue_key,
    make_session_key,
    make_subscription_key,
    read_inbound_key,
    read_queue_key,
    read_queue_value,
    read_retained,
    read_session_key,
    read_subscription,
    write_queue_value,
    write_retained,
)
from denwatch.node.mqtt.topics import FilterIndex, TopicTree, is_directed, is_listened


class SharedMessage:
    """A message, shared by all who receive it."""

    __slots__ = ("_first", "_start", "carriers", "payload", "qos", "token", "topic")

    def __init__(self, topic: str, payload: bytes, qos: int, token: int = 0) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.token = token  # 0: nobody asked, or somebody has acknowledged it
        self.carriers = 0  # sessions that have it and whose acknowledgement counts
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
    """One session's copy of a parcel."""

    __slots__ = (
        "counts",
        "id",
        "is_directed",
        "is_released",
        "is_repeated",
        "number",
        "parcel",
        "qos",
        "retain",
    )

    def __init__(
        self, parcel: SharedMessage, qos: int, retain: bool, is_directed: bool, counts: bool
    ) -> None:
        self.parcel = parcel
        self.qos = qos
        self.retain = retain
        self.is_directed = is_directed
        self.counts = counts  # its acknowledgement is the parcel's
        self.number = 0  # in the durable queue; 0: it is not there
        self.id = 0
        self.is_released = False  # QoS 2: PUBREC came
        self.is_repeated = False  # it may have been sent before


class MqttSession:
    """Of one client id of one user."""

    __slots__ = (
        "away_since",
        "bytes",
        "client",
        "flight",
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
        self.key = make_session_key(user, client)
        self.link = 0  # 0: away
        self.is_blocked = False  # the client does not read
        self.away_since = 0
        self.subscriptions: dict[str, int] = {}
        self.flight: dict[int, OutgoingMessage] = {}  # in the order of sending
        self.queue: deque[OutgoingMessage] = deque()
        self.bytes = 0  # of flight and queue
        self.inbound: dict[int, None] = {}
        self.last_id = 0

    def take_id(self) -> int:
        """Return the next packet id that is not in flight: 1 to 65,535, and from the start."""
        flight = self.flight
        number = self.last_id
        while True:
            number = number % 65_535 + 1
            if number not in flight:
                self.last_id = number
                return number


# Sessions and their subscriptions: who gets a message, who listens, what a lost session leaves.
#
# The rules that hold here:
# - A message of QoS 1 or 2 is routed to everybody at once or to nobody: if one receiver has no
# room, `route` changes nothing and names that receiver, so that the publisher can be made to
# wait.
# - Only a session that subscribed to exactly a topic acknowledges the node's messages there;
# somebody who looks on through a wildcard does not.


class Sessions:
    """All sessions of a server."""

    def __init__(self, limits: Limits, step: Outputs, counts: dict[str, int]) -> None:
        self.sessions: dict[tuple[str, str], MqttSession] = {}
        self.retained = RetainedMessages(limits, step)
        self.index: FilterIndex[MqttSession] = FilterIndex()
        self.outbound = Outbound(limits, step, counts)
        self._limits = limits
        self._step = step
        self._listeners: dict[str, int] = {}

    # Sessions ------------------------------------------------------------------------------

    def create(self, user: str, client: str, is_persistent: bool) -> MqttSession:
        """Start a session."""
        session = MqttSession(user, client, is_persistent)
        self.sessions[user, client] = session
        if is_persistent:
            self._step.add(Write(SESSIONS, session.key, VERSION))
        return session

    def remove(self, session: MqttSession) -> int:
        """End a session that is away; return how many messages waited for it."""
        del self.sessions[session.user, session.client]
        for name in session.subscriptions:
            self.index.remove(name, session)
        waiting = self.outbound.discard(session)
        if session.is_persistent:
            for name in session.subscriptions:
                key = make_subscription_key(session.key, name)
                self._step.add(Write(SUBSCRIPTIONS, key, None))
            for number in session.inbound:
                self._step.add(Write(INBOUND, make_inbound_key(session.key, number), None))
            self._step.add(Write(SESSIONS, session.key, None))
        return waiting

    def attach(self, session: MqttSession, link: int) -> None:
        """Connect a session: what was sent and not acknowledged goes again, then what waited."""
        session.link = link
        session.is_blocked = False
        self.outbound.resume(session)
        for name in session.subscriptions:
            self._count_listener(name, 1)

    def detach(self, session: MqttSession, now: int) -> None:
        """Disconnect a session: a persistent one stays, without directed messages."""
        for name in session.subscriptions:
            self._count_listener(name, -1)
        session.link = 0
        session.is_blocked = False
        session.away_since = now
        orphans = self.outbound.take_directed(session)
        if not session.is_persistent:
            self.remove(session)
        for delivery in orphans:
            self._hand_over(delivery)

    def block(self, session: MqttSession, is_blocked: bool) -> None:
        """Note that a client stopped reading, or reads again."""
        session.is_blocked = is_blocked
        if not is_blocked:
            self.outbound.pump(session)

    # Subscriptions -------------------------------------------------------------------------

    def subscribe(self, session: MqttSession, name: str, qos: int) -> bool:
        """Add a subscription or change its QoS; False: the session has too many."""
        is_new = name not in session.subscriptions
        if is_new and len(session.subscriptions) >= self._limits.subscriptions:
            return False
        session.subscriptions[name] = qos
        self.index.add(name, session, qos)
        if session.is_persistent:
            key = make_subscription_key(session.key, name)
            self._step.add(Write(SUBSCRIPTIONS, key, bytes((qos,))))
        if is_new:
            self._count_listener(name, 1)
        return True

    def unsubscribe(self, session: MqttSession, name: str) -> None:
        """Remove a subscription, if there is one; what was queued through it still goes out."""
        if session.subscriptions.pop(name, None) is None:
            return
        self.index.remove(name, session)
        if session.is_persistent:
            self._step.add(Write(SUBSCRIPTIONS, make_subscription_key(session.key, name), None))
        self._count_listener(name, -1)

    def deliver_retained(self, session: MqttSession, filters: list[tuple[str, int]]) -> None:
        """Send what is retained below some filters, each message once, with the best QoS."""
        found: dict[SharedMessage, int] = {}
        for name, qos in filters:
            for parcel in self.retained.find_all(name):
                found[parcel] = max(found.get(parcel, 0), min(qos, parcel.qos))
        for parcel, qos in found.items():
            self.outbound.deliver(session, parcel, qos, True, False, False)

    def count_kept(self, user: str) -> int:
        """Return how many persistent sessions a user has."""
        return sum(1 for s in self.sessions.values() if s.user == user and s.is_persistent)

    # Routing -------------------------------------------------------------------------------

    def route(self, parcel: SharedMessage) -> MqttSession | None:
        """Hand a message to everybody who subscribed; or to nobody, and return who has no room."""
        targets = self.index.find_all(parcel.topic)
        if not targets:
            return None
        directed = is_directed(parcel.topic)
        if parcel.qos and not directed:
            size = parcel.size
            for session, granted in targets.items():
                if granted and session.bytes and not self.outbound.has_room(session, size):
                    return session
        self._deliver_all(parcel, targets, directed)
        return None

    def route_own(self, parcel: SharedMessage) -> list[MqttSession]:
        """Hand the node's own message to everybody who has room; return those who have none."""
        targets = self.index.find_all(parcel.topic)
        directed = is_directed(parcel.topic)
        full: list[MqttSession] = []
        if parcel.qos and not directed:
            size = parcel.size
            full = [
                s
                for s, granted in targets.items()
                if granted and not self.outbound.has_room(s, size)
            ]
            if full:
                targets = {s: granted for s, granted in targets.items() if s not in full}
        self._deliver_all(parcel, targets, directed)
        return full

    def _deliver_all(
        self, parcel: SharedMessage, targets: dict[MqttSession, int], directed: bool
    ) -> None:
        exact = self.index.get_exact(parcel.topic) if parcel.token else None
        qos = parcel.qos
        for session, granted in targets.items():
            counts = exact is not None and session in exact
            self.outbound.deliver(
                session, parcel, qos if qos < granted else granted, False, directed, counts
            )

    def _hand_over(self, delivery: OutgoingMessage) -> None:
        """Give what a lost session did not acknowledge to another listener of the same topic.

        When there is none the node hears that nobody listens, and sends it again itself.
        """
        parcel = delivery.parcel
        if not delivery.counts or not parcel.token or parcel.carriers:
            return
        listeners = [
            (session, granted)
            for session, granted in (self.index.get_exact(parcel.topic) or {}).items()
            if session.link
        ]
        for session, granted in listeners:
            if self.outbound.has_room(session, parcel.size):
                self.outbound.deliver(session, parcel, min(parcel.qos, granted), False, True, True)
                return
        self.outbound.slow += [session for session, _ in listeners]

    def _count_listener(self, name: str, change: int) -> None:
        if not is_listened(name):
            return
        before = self._listeners.get(name, 0)
        after = before + change
        if after:
            self._listeners[name] = after
        else:
            del self._listeners[name]
        if not before or not after:
            self._step.add(Listening(name, after > 0))

    # QoS 2 inbound -------------------------------------------------------------------------

    def accept_inbound(self, session: MqttSession, number: int) -> None:
        """Note a QoS 2 message of a client until the client releases it."""
        session.inbound[number] = None
        if session.is_persistent:
            self._step.add(Write(INBOUND, make_inbound_key(session.key, number), PRESENT))

    def release_inbound(self, session: MqttSession, number: int) -> None:
        """Take PUBREL: the packet id is free for another message."""
        if session.inbound.pop(number, 0) is None and session.is_persistent:
            self._step.add(Write(INBOUND, make_inbound_key(session.key, number), None))


# Messages on their way to clients: windows, queues, acknowledgements, and their durable copies.
#
# The rules that hold here:
# - What waits for a persistent session is written when it is handed over, and taken away when the
#   client has acknowledged it.
# - Messages on directed topics are never kept for a session that is away: the node keeps them.
# - A parcel's token is answered once, by the first delivery that counts.


class Outbound:
    """Hands parcels to sessions."""

    def __init__(self, limits: Limits, step: Outputs, counts: dict[str, int]) -> None:
        self.slow: list[MqttSession] = []  # listeners that must be sent away: they do not keep up
        self.was_freed = False  # room was made in a queue since somebody last looked
        self.bytes = 0  # in all queues and flights
        self.last_number = 0  # of a durable message
        self._limits = limits
        self._step = step
        self._counts = counts

    def has_room(self, session: MqttSession, size: int) -> bool:
        """Tell whether a queue can take one more; an empty one always can."""
        if not session.bytes:
            return True
        limits = self._limits
        return (
            len(session.queue) < limits.queue
            and session.bytes + size <= limits.queue_bytes
            and self.bytes + size <= limits.total_queue_bytes
        )

    def deliver(
        self,
        session: MqttSession,
        parcel: SharedMessage,
        qos: int,
        retain: bool,
        directed: bool,
        counts: bool,
    ) -> None:
        """Send a parcel or queue it. `counts`: this copy's acknowledgement is the parcel's."""
        if not session.link and (directed or not qos):
            return
        is_ready = session.link and not session.is_blocked
        delivery = OutgoingMessage(parcel, qos, retain, directed, counts)
        if not qos:
            if is_ready:
                self._send(session, delivery)
                if counts:
                    self._acknowledge_parcel(parcel)
                return
            if not (counts and directed):
                self._counts["dropped_qos0"] += 1
                return
        if directed and not self.has_room(session, parcel.size):
            self.slow.append(session)
            return
        if counts:
            parcel.carriers += 1
        size = parcel.size
        session.bytes += size
        self.bytes += size
        if session.is_persistent and not directed:
            self.last_number += 1
            delivery.number = self.last_number
        if is_ready and not session.queue and len(session.flight) < self._limits.window:
            self._transmit(session, delivery)
            if delivery.number and qos == 1:
                self._keep(session, delivery)
        else:
            session.queue.append(delivery)
            if delivery.number:
                self._keep(session, delivery)

    def pump(self, session: MqttSession) -> None:
        """Send from the queue what the window allows."""
        queue = session.queue
        while queue and session.link and not session.is_blocked:
            if queue[0].qos and len(session.flight) >= self._limits.window:
                break
            delivery = queue.popleft()
            if delivery.qos:
                self._transmit(session, delivery)
            else:
                self._send(session, delivery)
                self._settle(session, delivery)

    def _transmit(self, session: MqttSession, delivery: OutgoingMessage) -> None:
        delivery.id = session.take_id()
        session.flight[delivery.id] = delivery
        self._send(session, delivery)
        if delivery.qos == 2 and delivery.number:
            self._keep(session, delivery)  # with its id, which the client knows it by

    def _send(self, session: MqttSession, delivery: OutgoingMessage) -> None:
        first = 0x30 | delivery.qos << 1
        if delivery.retain:
            first |= 1
        if delivery.is_repeated:
            first |= 8
        self._counts["messages_sent"] += 1
        self._step.send(session.link, delivery.parcel.write(first, delivery.id))

    # Coming and going ----------------------------------------------------------------------

    def resume(self, session: MqttSession) -> None:
        """Send again what was not acknowledged, then what waited: the session is connected."""
        for delivery in session.flight.values():
            if delivery.is_released:
                self._step.send(session.link, write_pubrel(delivery.id))
            else:
                self._send(session, delivery)
        self.pump(session)

    def take_directed(self, session: MqttSession) -> list[OutgoingMessage]:
        """Take back what is not kept for a session that is away; the rest will go again."""
        taken: list[OutgoingMessage] = []
        for number, delivery in list(session.flight.items()):
            delivery.is_repeated = True
            if delivery.is_directed:
                del session.flight[number]
                taken.append(delivery)
        queued = [delivery for delivery in session.queue if delivery.is_directed]
        if queued:
            kept = [delivery for delivery in session.queue if not delivery.is_directed]
            session.queue.clear()
            session.queue.extend(kept)
        taken += queued
        for delivery in taken:
            self._free(session, delivery.parcel.size)
            delivery.parcel.carriers -= delivery.counts
        return taken

    def discard(self, session: MqttSession) -> int:
        """Drop everything of a session that ends; return how many messages waited for it."""
        self._free(session, session.bytes)
        waiting = (*session.flight.values(), *session.queue)
        for delivery in waiting:
            if delivery.number:
                self._forget(session, delivery)
        return len(waiting)

    # Acknowledgements ----------------------------------------------------------------------

    def acknowledge(self, session: MqttSession, number: int) -> None:
        """Take PUBACK; one that fits nothing is passed over, as clients send those too."""
        delivery = session.flight.get(number)
        if delivery is not None and delivery.qos == 1:
            del session.flight[number]
            self._settle(session, delivery)
            if session.queue:
                self.pump(session)

    def record(self, session: MqttSession, number: int) -> None:
        """Take PUBREC: the client has the message; from now on only PUBREL goes again."""
        delivery = session.flight.get(number)
        # An unknown id is answered too: the client would keep it for ever.
        if delivery is not None and delivery.qos == 2 and not delivery.is_released:
            delivery.is_released = True
            if delivery.number:
                self._keep(session, delivery)
        self._step.send(session.link, write_pubrel(number))

    def complete(self, session: MqttSession, number: int) -> None:
        """Take PUBCOMP."""
        delivery = session.flight.get(number)
        if delivery is not None and delivery.is_released:
            del session.flight[number]
            self._settle(session, delivery)
            self.pump(session)

    def _settle(self, session: MqttSession, delivery: OutgoingMessage) -> None:
        self._free(session, delivery.parcel.size)
        if delivery.number:
            self._forget(session, delivery)
        if delivery.counts:
            delivery.parcel.carriers -= 1
            self._acknowledge_parcel(delivery.parcel)

    def _acknowledge_parcel(self, parcel: SharedMessage) -> None:
        if parcel.token:
            self._step.add(Acknowledged(parcel.topic, parcel.token))
            parcel.token = 0

    # Bookkeeping ---------------------------------------------------------------------------

    def _keep(self, session: MqttSession, delivery: OutgoingMessage) -> None:
        parcel = delivery.parcel
        record = QueueRecord(
            parcel.topic,
            parcel.payload,
            delivery.qos,
            delivery.retain,
            delivery.is_released,
            delivery.id if delivery.qos == 2 else 0,
        )
        key = make_queue_key(session.key, delivery.number)
        self._step.add(Write(QUEUE, key, write_queue_value(record)))

    def _forget(self, session: MqttSession, delivery: OutgoingMessage) -> None:
        self._step.add(Write(QUEUE, make_queue_key(session.key, delivery.number), None))

    def _free(self, session: MqttSession, size: int) -> None:
        session.bytes -= size
        self.bytes -= size
        self.was_freed = True


# Retained messages: the last one of each topic, bounded in number and bytes.
#
# Those of topics that start with `$` live in memory only: the server states them anew.


class RetainedMessages:
    """Gives out a `Write` for every change."""

    def __init__(self, limits: Limits, step: Outputs) -> None:
        self._limits = limits
        self._step = step
        self._tree: TopicTree[SharedMessage] = TopicTree()
        self.count = 0
        self.bytes = 0

    def has_room(self, parcel: SharedMessage) -> bool:
        """Tell whether a message can be retained; taking one away always can."""
        if not parcel.payload:
            return True
        before = self._tree.get(parcel.topic)
        count = self.count + (before is None)
        size = self.bytes + parcel.size - (before.size if before else 0)
        return count <= self._limits.retained and size <= self._limits.retained_bytes

    def put(self, parcel: SharedMessage) -> None:
        """Keep a message in place of its topic's last one; an empty one takes that away."""
        if parcel.payload:
            self._account(self._tree.put(parcel.topic, parcel), parcel)
            value = write_retained(parcel.qos, parcel.payload)
        else:
            before = self._tree.remove(parcel.topic)
            if before is None:
                return
            self._account(before, None)
            value = None
        if not parcel.topic.startswith("$"):
            self._step.add(Write(RETAINED, parcel.topic.encode(), value))

    def find_all(self, name: str) -> Iterator[SharedMessage]:
        """Yield the retained messages that a filter matches."""
        return self._tree.find_all(name)

    def restore(self, reader: Reader) -> None:
        """Take up what an earlier run retained."""
        for key, value in reader.scan(RETAINED):
            topic, qos, payload = read_retained(key, value)
            parcel = SharedMessage(topic, payload, qos)
            self._account(self._tree.put(topic, parcel), parcel)

    def _account(self, before: SharedMessage | None, after: SharedMessage | None) -> None:
        if before is not None:
            self.count -= 1
            self.bytes -= before.size
        if after is not None:
            self.count += 1
            self.bytes += after.size


# Takes up at start what an earlier run of the server left in the store.


def restore_exchange(exchange: Sessions, reader: Reader, now: int) -> None:
    """Bring back persistent sessions, all of them away, and retained messages."""
    exchange.retained.restore(reader)
    sessions: dict[bytes, MqttSession] = {}
    for key, value in reader.scan(SESSIONS):
        if value != VERSION:
            raise StoredRecordError(SESSIONS, key)
        user, client = read_session_key(key)
        session = MqttSession(user, client, True)
        session.away_since = now
        sessions[key] = exchange.sessions[user, client] = session
    for key, value in reader.scan(SUBSCRIPTIONS):
        owner, name, qos = read_subscription(key, value)
        session = _find_session(sessions, owner, SUBSCRIPTIONS, key)
        session.subscriptions[name] = qos
        exchange.index.add(name, session, qos)
    for key, _ in reader.scan(INBOUND):
        owner, number = read_inbound_key(key)
        _find_session(sessions, owner, INBOUND, key).inbound[number] = None
    for key, value in reader.scan(QUEUE):
        owner, number = read_queue_key(key)
        session = _find_session(sessions, owner, QUEUE, key)
        _restore_delivery(exchange, session, number, key, value)


def _restore_delivery(
    exchange: Sessions, session: MqttSession, number: int, key: bytes, value: bytes
) -> None:
    record = read_queue_value(key, value)
    parcel = SharedMessage(record.topic, record.payload, record.qos)
    delivery = OutgoingMessage(parcel, record.qos, record.retain, False, False)
    delivery.number = number
    delivery.is_released = record.is_released
    # Whether QoS 1 was sent before is not written down; a repetition must say that it may be one.
    delivery.is_repeated = record.qos == 1 or record.id > 0
    if record.id:
        delivery.id = record.id
        session.flight[record.id] = delivery
    else:
        session.queue.append(delivery)
    session.bytes += parcel.size
    exchange.outbound.bytes += parcel.size
    exchange.outbound.last_number = max(exchange.outbound.last_number, number)


def _find_session(
    sessions: dict[bytes, MqttSession], owner: bytes, space: str, key: bytes
) -> MqttSession:
    session = sessions.get(owner)
    if session is None:
        raise StoredRecordError(space, key)
    return session
