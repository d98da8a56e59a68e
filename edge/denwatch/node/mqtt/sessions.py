"""Sessions of MQTT clients: subscriptions, who receives a message, queues, what a restart restores.

THEORY. A session belongs to one client id of one user. It has subscriptions, messages *in flight*
(sent, not acknowledged, at most `limits.window` of them), a *queue* of messages that wait for the
window or for the client to come back, and the ids of QoS 2 messages that the client has not
released. A message that goes to several sessions exists once (`SharedMessage`); each session has
its own `OutgoingMessage` that refers to it.

INVARIANTS
  1. A client's message of QoS 1 or 2 goes to every subscriber that keeps up. While one has no room
     but reads, `route` changes nothing and returns that session, so that the publisher can wait,
     for `patience_ms` at most. One that is away, does not read or was full for longer is expelled
     or misses the message, which is counted and reported (`Limits.full_queue`): nobody stops
     others. With `WAIT` the message goes to every subscriber or to none.
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

from collections.abc import Iterable, Mapping

from denwatch.node.core.events import Acknowledged, Listening, Reader, Write
from denwatch.node.mqtt import records
from denwatch.node.mqtt.interface import DROP, WAIT, Limits, Outputs, ServerRefusal
from denwatch.node.mqtt.packets import (
    PUBREL,
    UNKNOWN_ID,
    ClientTerms,
    MqttSession,
    OutgoingMessage,
    SharedMessage,
    write_answer,
    write_reason,
)
from denwatch.node.mqtt.properties import (
    MESSAGE_EXPIRY,
    SUBSCRIPTION_ID,
    TOPIC_ALIAS,
    write_number,
)
from denwatch.node.mqtt.retained import RetainedMessages
from denwatch.node.mqtt.shared_groups import Share, SharedGroup, SharedGroups
from denwatch.node.mqtt.topics import (
    QOS,
    FilterIndex,
    Grants,
    combine_grants,
    is_directed,
    is_listened,
    split_shared,
)


class Sessions:
    """All sessions of a server."""

    def __init__(self, limits: Limits, outputs: Outputs, counts: dict[str, int]) -> None:
        self.all: dict[tuple[str, str], MqttSession] = {}  # by user and client id
        self.retained = RetainedMessages(limits, outputs)
        self.index: FilterIndex[MqttSession | SharedGroup] = FilterIndex()
        self.groups = SharedGroups(self.index, self.has_room)
        self.now = 0  # of the server's call
        self.slow: list[MqttSession] = []  # sessions whose client must be disconnected
        # Sessions that do not keep up and have to end.
        self.expelled: dict[MqttSession, None] = {}
        self.was_freed = False  # a queue has got room since the server last looked
        self.bytes = 0  # in flight and queued, of all sessions
        self._last_number = 0  # of a stored message
        # The message that was stored last, how (QoS and so on), and its row.
        self._last_stored: tuple[SharedMessage, tuple[object, ...], bytes] | None = None
        self._listeners: dict[str, int] = {}  # connected sessions by exact topic
        self._limits = limits
        self._outputs = outputs
        self._counts = counts

    # Start and end of sessions -------------------------------------------------------------

    def create(
        self, user: str, client: str, is_persistent: bool, expiry_ms: int | None = None
    ) -> MqttSession:
        """Start a session."""
        session = MqttSession(user, client, is_persistent)
        session.expiry_ms = expiry_ms
        self.all[user, client] = session
        if is_persistent:
            self._store_session(session, 0)
        return session

    def set_expiry(self, session: MqttSession, expiry_ms: int | None) -> None:
        """Change how long a session stays without its client."""
        if session.expiry_ms != expiry_ms:
            session.expiry_ms = expiry_ms
            if session.is_persistent:
                self._store_session(session, 0)

    def is_over(self, session: MqttSession) -> bool:
        """Return whether a session that is away has been so for too long."""
        expiry = self._limits.session_ms if session.expiry_ms is None else session.expiry_ms
        return not expiry or self.now - session.away_since > expiry

    def _store_session(self, session: MqttSession, away_since: int) -> None:
        value = records.write_session(records.SessionRecord(session.expiry_ms, away_since))
        self._outputs.add(Write(records.SESSIONS, session.key, value))

    def remove(self, session: MqttSession) -> int:
        """End a session that is away; return how many messages waited for it."""
        del self.all[session.user, session.client]
        for name in session.subscriptions:
            self._remove_from_index(session, name)
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
        for outgoing in waiting:
            self._pass_on(outgoing)
        return len(waiting)

    def attach(self, session: MqttSession, link: int, terms: ClientTerms | None = None) -> None:
        """Connect a session: send again what was not acknowledged, then what waited."""
        session.link = link
        session.is_blocked = False
        session.terms = terms
        session.aliases.clear()
        session.window = min(self._limits.window, terms.window) if terms else self._limits.window
        if session.is_persistent and session.expiry_ms is not None:
            self._store_session(session, 0)
        session.resent.extend(session.in_flight.values())
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
        session.resent.clear()
        orphans = self._withdraw_directed(session)
        if not session.is_persistent or session.expiry_ms == 0:
            self.remove(session)
        elif session.expiry_ms is not None:
            self._store_session(session, now)
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

    def subscribe(self, session: MqttSession, name: str, grant: int) -> bool:
        """Add a subscription or change its grant; False: the session has too many."""
        is_new = name not in session.subscriptions
        if is_new and len(session.subscriptions) >= self._limits.subscriptions:
            return False
        if session.subscriptions.get(name) == grant:
            return True
        session.subscriptions[name] = grant
        self._add_to_index(session, name, grant)
        if session.is_persistent:
            key = records.make_subscription_key(session.key, name)
            self._outputs.add(Write(records.SUBSCRIPTIONS, key, records.write_grant(grant)))
        if is_new:
            self._count_listener(name, 1)
        return True

    def unsubscribe(self, session: MqttSession, name: str) -> bool:
        """Remove a subscription, if there is one; what was queued through it still goes out."""
        if session.subscriptions.pop(name, None) is None:
            return False
        self._remove_from_index(session, name)
        if session.is_persistent:
            self._outputs.add(
                Write(records.SUBSCRIPTIONS, records.make_subscription_key(session.key, name), None)
            )
        self._count_listener(name, -1)
        return True

    def _add_to_index(self, session: MqttSession, name: str, grant: int) -> None:
        if split_shared(name)[0]:
            self.groups.add(session, name, grant)
        else:
            self.index.add(name, session, grant)

    def _remove_from_index(self, session: MqttSession, name: str) -> None:
        if split_shared(name)[0]:
            self.groups.remove(session, name)
        else:
            self.index.remove(name, session)

    def deliver_retained(self, session: MqttSession, filters: Iterable[tuple[str, int]]) -> None:
        """Send what is retained below some filters, each message once, with the best QoS."""
        found: dict[SharedMessage, tuple[int, ...]] = {}
        for name, grant in filters:
            for message in self.retained.find_all(name):
                if not self._is_late(message):
                    found[message] = (*found.get(message, ()), grant)
        for message, grants in found.items():
            how = combine_grants(grants, message.qos, True, False)
            assert how is not None, "only a publisher's own message has no way"
            self.deliver(session, message, how.qos, True, False, False, _write_own(how.numbers))

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
        return (
            not self._fills_itself(session, size)
            and self.bytes + size <= self._limits.total_queue_bytes
        )

    def route(
        self, message: SharedMessage, publisher: MqttSession | None = None
    ) -> MqttSession | None:
        """Deliver to every subscriber; or to none, and return one that has no room."""
        directed = is_directed(message.topic)
        sessions, shares = self._choose(message, directed)
        if message.qos and not directed:
            size = message.size
            full: list[MqttSession] = []
            for session, grants in sessions.items():
                if grants and session.bytes and not self.has_room(session, size):
                    full.append(session)
            full += [share.session for share in shares if not self.has_room(share.session, size)]
            if full:
                for session in full:
                    if self._keeps_waiting(session):
                        return session
                lost = [session for session in full if not self._make_room(session, message)]
                sessions = {s: grants for s, grants in sessions.items() if s not in lost}
                shares = [share for share in shares if share.session not in lost]
        self._deliver_all(message, sessions, directed, publisher)
        self._deliver_shares(message, shares, directed)
        return None

    def _keeps_waiting(self, session: MqttSession) -> bool:
        """Return whether a publisher waits for a receiver that has no room."""
        if session.full_since < 0:
            session.full_since = self.now
        if self._limits.full_queue == WAIT:
            return True
        is_reading = session.link and not session.is_blocked
        return bool(is_reading) and self.now - session.full_since <= self._limits.patience_ms

    def _make_room(self, session: MqttSession, message: SharedMessage) -> bool:
        """Expel the receiver that is in the way, or let this one miss a message; return whether
        it has room now."""
        if self._limits.full_queue == DROP:
            self._counts["dropped_full"] += 1
            what = f"publishing to {message.topic}"
            self._outputs.add(ServerRefusal(0, session.user, what, "its queue is full"))
            return False
        if self._fills_itself(session, message.size):
            self.expelled[session] = None
            return False
        # All queues together are too large: whoever has most of it goes, and that is not this one.
        largest = max(self.all.values(), key=lambda each: each.bytes * (each not in self.expelled))
        self.expelled[largest] = None
        return largest is not session

    def _fills_itself(self, session: MqttSession, size: int) -> bool:
        limits = self._limits
        return len(session.queue) >= limits.queue or session.bytes + size > limits.queue_bytes

    def route_own(self, message: SharedMessage) -> list[MqttSession]:
        """Deliver the node's own message to all who have room; return those who have none."""
        directed = is_directed(message.topic)
        sessions, shares = self._choose(message, directed)
        full: list[MqttSession] = []
        if message.qos and not directed:
            size = message.size
            full = [s for s, grants in sessions.items() if grants and not self.has_room(s, size)]
            if full:
                sessions = {s: grants for s, grants in sessions.items() if s not in full}
            late = [share[0] for share in shares if not self.has_room(share[0], size)]
            shares = [share for share in shares if share[0] not in late]
            full += late
        self._deliver_all(message, sessions, directed, None)
        self._deliver_shares(message, shares, directed)
        return full

    def _choose(
        self, message: SharedMessage, directed: bool
    ) -> tuple[Mapping[MqttSession, Grants], list[Share]]:
        """Return the subscribers of a topic, and those who receive it for a shared subscription."""
        targets = self.index.find_all(message.topic)
        if self.groups:
            return self.groups.choose(targets, message, directed)
        return targets, []  # type: ignore[return-value] # there are only sessions

    def _deliver_all(
        self,
        message: SharedMessage,
        targets: Mapping[MqttSession, Grants],
        directed: bool,
        publisher: MqttSession | None,
    ) -> None:
        exact = self.index.get_exact(message.topic) if message.token else None
        qos = message.qos
        for session, grants in targets.items():
            acknowledges = exact is not None and session in exact
            if type(grants) is int and grants <= QOS:
                self.deliver(
                    session, message, qos if qos < grants else grants, False, directed, acknowledges
                )
                continue
            how = combine_grants(grants, qos, message.retain, session is publisher)
            if how is not None:
                own = _write_own(how.numbers)
                self.deliver(session, message, how.qos, how.retain, directed, acknowledges, own)

    def _deliver_shares(self, message: SharedMessage, shares: list[Share], directed: bool) -> None:
        for session, grant, group in shares:
            how = combine_grants(grant, message.qos, message.retain, False)
            assert how is not None, "only a publisher's own message has no way"
            own = _write_own(how.numbers)
            self.deliver(session, message, how.qos, how.retain, directed, False, own, group)

    def _pass_on(self, outgoing: OutgoingMessage) -> None:
        """Give what an ended session got through a shared subscription to another member.

        Not if the session may have received it and its QoS is 2, which is at most once.
        """
        if outgoing.group and outgoing.qos and not (outgoing.qos == 2 and outgoing.id):
            message, directed = outgoing.message, outgoing.is_directed
            share = self.groups.choose_again(outgoing.group, message, directed)
            if share is not None:
                self._deliver_shares(message, [share], directed)

    def _hand_over(self, outgoing: OutgoingMessage) -> None:
        """Give what a lost session did not acknowledge to another listener of the same topic.

        If there is none, the node is told that nobody listens, and sends it again itself later.
        """
        message = outgoing.message
        if not outgoing.acknowledges or not message.token or message.holders:
            return
        listeners = [
            (session, grant)
            for session, grant in (self.index.get_exact(message.topic) or {}).items()
            if isinstance(session, MqttSession) and session.link
        ]
        for session, grant in listeners:
            if self.has_room(session, message.size):
                self._deliver_all(message, {session: grant}, True, None)
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
        own: bytes = b"",
        group: str = "",
    ) -> None:
        """Send a message to one session, or queue it."""
        if not session.link and (directed or not qos):
            return
        is_ready = session.link and not session.is_blocked
        outgoing = OutgoingMessage(message, qos, retain, directed, acknowledges)
        outgoing.own = own
        outgoing.group = group
        if not qos:
            if is_ready:
                if self._send(session, outgoing) and acknowledges:
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
        if is_ready and not session.queue and len(session.in_flight) < session.window:
            if self._transmit(session, outgoing) and outgoing.number and qos == 1:
                self._store(session, outgoing)
        else:
            session.queue.append(outgoing)
            if outgoing.number:
                self._store(session, outgoing)

    def send_queued(self, session: MqttSession) -> None:
        """Send again what a client may not have got, then from the queue what the window allows."""
        resent = session.resent
        while resent and session.link and not session.is_blocked:
            if len(session.in_flight) - len(resent) >= session.window:
                return
            outgoing = resent.popleft()
            if session.in_flight.get(outgoing.id) is not outgoing:
                continue  # acknowledged meanwhile
            if outgoing.is_released:
                self._outputs.send(session.link, write_answer(PUBREL, outgoing.id))
            elif not self._send(session, outgoing):
                self._drop(session, outgoing)
        queue = session.queue
        while queue and session.link and not session.is_blocked:
            if queue[0].qos and len(session.in_flight) >= session.window:
                break
            outgoing = queue.popleft()
            if self._is_late(outgoing.message):
                self._counts["expired"] += 1
                self._drop(session, outgoing)
            elif outgoing.qos:
                self._transmit(session, outgoing, is_stored=True)
            elif self._send(session, outgoing):
                self._finish(session, outgoing)
            else:
                self._drop(session, outgoing)

    def _transmit(
        self, session: MqttSession, outgoing: OutgoingMessage, is_stored: bool = False
    ) -> bool:
        """Send a message of QoS 1 or 2 for the first time; False: its client does not accept it."""
        outgoing.id = session.allocate_id()
        session.in_flight[outgoing.id] = outgoing
        if not self._send(session, outgoing):
            if not is_stored:
                outgoing.number = 0
            self._drop(session, outgoing)
            return False
        if outgoing.qos == 2 and outgoing.number:
            self._store(session, outgoing)  # with its packet id, which the client knows it by
        return True

    def _send(self, session: MqttSession, outgoing: OutgoingMessage) -> bool:
        """Send PUBLISH; False: it is larger than the client accepts, which is reported."""
        first = 0x30 | outgoing.qos << 1
        if outgoing.retain:
            first |= 1
        if outgoing.is_repeated:
            first |= 8
        message = outgoing.message
        if session.terms is None:
            data = message.write(first, outgoing.id)
        else:
            data = self._write_v5(session, session.terms, outgoing, first)
            if not data:
                self._counts["dropped_large"] += 1
                why = f"larger than the {session.terms.packet_bytes} bytes that it accepts"
                what = f"sending {message.topic}"
                self._outputs.add(ServerRefusal(session.link, session.user, what, why))
                return False
        self._counts["messages_sent"] += 1
        self._outputs.send(session.link, data)
        return True

    def _write_v5(
        self, session: MqttSession, terms: ClientTerms, outgoing: OutgoingMessage, first: int
    ) -> bytes:
        """Return PUBLISH with an alias for its topic if the client has room for one."""
        message, own, aliases = outgoing.message, outgoing.own, session.aliases
        if message.expires:
            left = max(0, message.expires - self.now)
            own += write_number(MESSAGE_EXPIRY, -(-left // 1000))
        alias = aliases.get(message.topic)
        most = terms.packet_bytes or 1 << 30
        topic = b"" if alias else message.topic.encode()
        if alias or len(aliases) < min(terms.aliases, self._limits.topic_aliases):
            number = alias or len(aliases) + 1
            with_alias = own + write_number(TOPIC_ALIAS, number)
            data = message.write_v5(first, outgoing.id, topic, with_alias)
            if len(data) <= most:
                aliases[message.topic] = number
                return data
        data = message.write_v5(first, outgoing.id, message.topic.encode(), own)
        return data if len(data) <= most else b""

    def _is_late(self, message: SharedMessage) -> bool:
        return 0 < message.expires < self.now

    def _drop(self, session: MqttSession, outgoing: OutgoingMessage) -> None:
        """Forget a message that its client is not to get; nobody has acknowledged it."""
        session.in_flight.pop(outgoing.id, None)
        self._free(session, outgoing.message.size)
        if outgoing.number:
            self._delete(session, outgoing)
        outgoing.message.holders -= outgoing.acknowledges

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
            if session.queue or session.resent:
                self.send_queued(session)

    def receive_pubrec(self, session: MqttSession, number: int, code: int = 0) -> None:
        """Release a QoS 2 message: the client has it, from now on only PUBREL is sent again."""
        outgoing = session.in_flight.get(number)
        is_known = outgoing is not None and outgoing.qos == 2
        if code >= 0x80:  # of MQTT 5: the client has it and will not release it
            if outgoing is not None and is_known:
                del session.in_flight[number]
                self._finish(session, outgoing)
                self.send_queued(session)
            return
        if outgoing is not None and is_known and not outgoing.is_released:
            outgoing.is_released = True
            if outgoing.number:
                self._store(session, outgoing)
        # An unknown id is answered too: the client would keep it for ever.
        answer = write_answer(PUBREL, number)
        if session.terms is not None and not is_known:
            answer = write_reason(PUBREL, number, UNKNOWN_ID, b"\0")
        self._outputs.send(session.link, answer)

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

    def receive_pubrel(self, session: MqttSession, number: int) -> bool:
        """Forget the id of a QoS 2 message: it is free for another. False: it is not known."""
        if session.inbound.pop(number, 0) is not None:
            return False
        if session.is_persistent:
            self._outputs.add(
                Write(records.INBOUND, records.make_inbound_key(session.key, number), None)
            )
        return True

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
        if session.full_since >= 0 and 2 * len(session.queue) <= self._limits.queue:
            session.full_since = -1

    # The stored queue, and what a restart restores ------------------------------------------

    def _store(self, session: MqttSession, outgoing: OutgoingMessage) -> None:
        message = outgoing.message
        kind = outgoing.qos, outgoing.retain, outgoing.own, outgoing.group
        last = self._last_stored
        if last is not None and last[0] is message and last[1] == kind:
            value = last[2]  # the copy of another session, which differs in nothing
        else:
            record = records.QueueRecord(
                message.topic,
                message.payload,
                outgoing.qos,
                outgoing.retain,
                outgoing.is_released,
                outgoing.id if outgoing.qos == 2 else 0,
                message.expires,
                outgoing.own + message.properties,
                outgoing.group,
            )
            value = records.write_queue_value(record)
            # QoS 2 has a packet id and a state, which are one session's.
            self._last_stored = (message, kind, value) if outgoing.qos == 1 else None
        key = records.make_queue_key(session.key, outgoing.number)
        self._outputs.add(Write(records.QUEUE, key, value))

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
            record = records.read_session(key, value)
            session = find(key)
            session.expiry_ms = record.expiry_ms
            session.away_since = record.away_since or now
        for key, value in reader.scan(records.SUBSCRIPTIONS):
            session_key, name, grant = records.read_subscription(key, value)
            session = find(session_key)
            session.subscriptions[name] = grant
            self._add_to_index(session, name, grant)
        for key, _ in reader.scan(records.INBOUND):
            session_key, number = records.read_inbound_key(key)
            find(session_key).inbound[number] = None
        for key, value in reader.scan(records.QUEUE):
            session_key, number = records.read_queue_key(key)
            queued = records.read_queue_value(key, value)
            self._restore_queued(find(session_key), number, queued)

    def _restore_queued(
        self, session: MqttSession, number: int, record: records.QueueRecord
    ) -> None:
        message = SharedMessage(
            record.topic, record.payload, record.qos, 0, record.expires, record.properties
        )
        outgoing = OutgoingMessage(message, record.qos, record.retain, False, False)
        outgoing.number = number
        outgoing.group = record.group
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


def _write_own(numbers: tuple[int, ...]) -> bytes:
    """Return the numbers of the subscriptions through which a message came, as properties."""
    return b"".join(write_number(SUBSCRIPTION_ID, number) for number in numbers)
