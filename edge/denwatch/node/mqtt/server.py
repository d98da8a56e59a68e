"""The MQTT server without I/O: links, what each packet does, and time; 3.1.1 and MQTT 5.

Nothing here reads a clock, a socket or a random source; the same inputs give the same outputs.
`now` is in ms and never falls. Handle what arrived before calling `tick`, so that a node that was
busy does not blame its clients.

THEORY. A *link* is a connection; it has a session from CONNECT on (sessions.py). A packet is either
handled completely or not at all. It is not handled when a receiver has no room, or when the user
publishes faster than its pace: then it waits, with everything that follows it on the link except
acknowledgements and pings, and is tried again whenever a queue gets room. Beyond a bounded number
of packets the link is not read any more (`Pause`). A receiver that does not make room in time is
expelled or misses the message (sessions.py, invariant 1). With `WAIT` instead, after `hold_ms` the
receiver is disconnected if its session is clean; otherwise the publisher is, without an
acknowledgement, and sends again. A publisher of MQTT 5 is told so (`QUOTA_EXCEEDED`) and stays.

INVARIANTS
  1. Nothing that a client published with QoS 1 or 2 is dropped unsaid after its acknowledgement.
  2. PUBACK and PUBREC are outputs of the same call as the `Write`s and the `Message`; whoever runs
     the server commits before it sends.
  3. `_waiting` holds exactly the links whose `waiting` is not None.
  4. A will is published once, unless DISCONNECT came first (wills.py).
  5. To MQTT 5 every refusal has a reason: in the answer to the packet, else in DISCONNECT.

EXAMPLE. a publishes with QoS 1 to b, whose queue is full: no PUBACK, a waits. b sends PUBACK for an
older message, which makes room: in the same call a's packet is handled, and a gets its PUBACK.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from denwatch.node.core.events import REPORTS, REQUESTS, Message, Publish, Reader
from denwatch.node.mqtt import packets
from denwatch.node.mqtt import properties as props
from denwatch.node.mqtt.budgets import LinkBudget
from denwatch.node.mqtt.client_link import ClientLink, agree_terms, limit_expiry, name_client
from denwatch.node.mqtt.interface import (
    WAIT,
    Input,
    Limits,
    LinkBlocked,
    LinkOpened,
    LinkReceived,
    LinkRefused,
    Output,
    Outputs,
    Pace,
    Pause,
    Resume,
    Rules,
    ServerRefusal,
    describe_defect,
)
from denwatch.node.mqtt.packets import MqttSession, SharedMessage
from denwatch.node.mqtt.sessions import Sessions
from denwatch.node.mqtt.topics import is_directed, make_grant, split_shared
from denwatch.node.mqtt.wills import Wills

COUNTS = (
    "connections_refused",  # before anything was received
    "connects",
    "connects_refused",
    "takeovers",
    "timeouts",  # no CONNECT, nothing within the keep-alive, a client that stopped reading
    "malformed",
    "failed",  # links that were closed because of a defect of ours
    "messages_received",
    "messages_sent",
    "refused",  # publishes and subscriptions
    "held",  # publishes that had to wait
    "slow",  # receivers that were disconnected
    "dropped_qos0",
    "dropped_full",  # that a receiver without room missed
    "expelled",  # sessions without room that were ended
    "dropped_large",  # that a client of MQTT 5 does not accept
    "expired",  # messages of MQTT 5 that waited too long
    "sessions_expired",
)

_SYSTEM = "$SYS/"  # only the server publishes there
_BROKER = f"{_SYSTEM}broker/"
_CONNECT_REFUSALS = {
    packets.BAD_PROTOCOL: "neither MQTT 3.1.1 nor MQTT 5",
    packets.BAD_CLIENT_ID: "a persistent session needs a client id",
    packets.UNAVAILABLE: "too many sessions or links",
    packets.BAD_LOGIN: "wrong user name or password",
    packets.FORBIDDEN: "not allowed",
    packets.BAD_AUTHENTICATION: "enhanced authentication is not supported: use name and password",
}
_EXPIRE_EVERY = 60_000  # ms between two looks for retained messages that have expired
_REPORTED = 16  # refused filters of one SUBSCRIBE that are reported one by one
# Handled at once, even if something waits on the link: they may be what makes the room.
_PASSING = (
    packets.PubackPacket,
    packets.PubrecPacket,
    packets.PubcompPacket,
    packets.PingreqPacket,
)


class MqttServer:
    """Every method returns its outputs: perform the writes first, then commit, then the rest."""

    def __init__(
        self,
        rules: Rules,
        limits: Limits | None = None,
        pace: Pace | None = None,
        budget: LinkBudget | None = None,
    ) -> None:
        self.limits = limits = limits or Limits()
        self.budget = budget or LinkBudget(limits)
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self._outputs = Outputs()
        self.sessions = Sessions(limits, self._outputs, self.counts)
        self._rules = rules
        self._pace = pace
        self._links: dict[int, ClientLink] = {}
        self._waiting: dict[int, ClientLink] = {}  # links with packets that wait
        self._wills = Wills(
            limits, self._outputs, self._publish_will, lambda *what: self._refuse(None, *what)
        )
        self._expire_at = 0  # when to look for retained messages that have expired
        self._handlers: dict[type[packets.Packet], Callable[..., bool]] = {
            packets.PublishPacket: self._handle_publish,
            packets.PubackPacket: self._handle_puback,
            packets.PubrecPacket: self._handle_pubrec,
            packets.PubrelPacket: self._handle_pubrel,
            packets.PubcompPacket: self._handle_pubcomp,
            packets.SubscribePacket: self._handle_subscribe,
            packets.UnsubscribePacket: self._handle_unsubscribe,
            packets.PingreqPacket: self._handle_pingreq,
            packets.DisconnectPacket: self._handle_disconnect,
            packets.ConnectPacket: self._handle_second_connect,
        }

    def restore(self, reader: Reader, now: int) -> None:
        """Load what an earlier run stored; called once, before anything else."""
        self.sessions.restore(reader, now)
        self._wills.restore(reader, self.sessions.all)
        self.sessions.now = now

    # From the listener -----------------------------------------------------------------------

    def take(self, event: Input, now: int) -> list[Output]:
        """Handle whatever the listener reports."""
        if type(event) is LinkReceived:
            return self.receive(event.link, event.data, now)
        if type(event) is LinkOpened:
            return self.open(event.link, now, event.address)
        if type(event) is LinkBlocked:
            return self.block(event.link, event.is_blocked, now)
        if isinstance(event, LinkRefused):
            self.counts["connections_refused"] += 1
            return [ServerRefusal(0, "", "a connection", event.why, event.address)]
        return self.lost(event.link, now)

    def open(self, link: int, now: int, address: str = "") -> list[Output]:
        """Handle a new connection, which the listener has counted if there is one."""
        self.sessions.now = now
        self._links[link] = ClientLink(link, address, self.limits, now)
        if link not in self.budget:
            for oldest in (self.budget.admit(link, address), self.budget.hear(link)):
                if oldest in self._links:
                    self._close(self._links[oldest], "too many connections without a name", now)
        return self._finish(now)

    def resume(self, now: int) -> list[Output]:
        """Go on with those who waited for the next turn."""
        self.sessions.now = now
        self.sessions.was_freed = True
        return self._finish(now)

    def receive(self, link: int, data: bytes, now: int) -> list[Output]:
        """Handle bytes of a connection; those of one that was closed are ignored."""
        links = self._links
        here = links.get(link)
        if here is None:
            return []
        here.seen = self.sessions.now = now
        decoder = here.decoder
        decoder.feed(data)
        try:
            while link in links:
                packet = decoder.take()
                if packet is None:
                    break
                if here.waiting is not None:
                    self._queue_packet(here, packet, now)
                elif not self._process(here, packet, now):
                    here.waiting = deque((packet,))
                    here.since = now
                    self._waiting[link] = here
                    self.counts["held"] += 1
        except packets.MalformedError as error:
            self.counts["malformed"] += 1
            self._outputs.add(ServerRefusal(link, here.user, "bytes", str(error), here.address))
            self._close(here, str(error), now, error.code)
        except Exception as error:  # noqa: BLE001 - one client's bytes must not stop the others
            self._abandon(here, error, now)
        return self._finish(now)

    def lost(self, link: int, now: int) -> list[Output]:
        """Handle the end of a connection, whoever closed it."""
        here = self._links.get(link)
        if here is None:
            return []
        self.sessions.now = now
        self._remove_link(here, now)
        return self._finish(now)

    def block(self, link: int, is_blocked: bool, now: int) -> list[Output]:
        """Record that a client stopped reading what is sent to it, or reads again."""
        here = self._links.get(link)
        if here is None:
            return []
        here.seen = self.sessions.now = now
        here.blocked_since = now if is_blocked else -1
        if here.session is not None:
            self.sessions.block(here.session, is_blocked)
        return self._finish(now)

    # From the node ---------------------------------------------------------------------------

    def publish(self, message: Publish, now: int) -> list[Output]:
        """Publish for the node. A receiver that has no room misses it, which is reported."""
        topic, payload, qos, retain, token, correlation = message
        self.sessions.now = now
        own = props.write_correlation(correlation)
        shared = SharedMessage(topic, payload, qos, token, 0, own)
        if retain:
            shared.retain = True
            self._retain(shared, f"retaining {topic}")
        for session in self.sessions.route_own(shared):
            self._refuse(None, f"publishing to {topic}", f"{session.user} has no room")
        return self._finish(now)

    def report(self, now: int) -> list[Output]:
        """Publish the counts under $SYS."""
        outputs: list[Output] = []
        for topic, number in self._describe():
            outputs += self.publish(Publish(topic, b"%d" % number, 0, True), now)
        return outputs

    def _describe(self) -> Iterator[tuple[str, int]]:
        """Yield topics and numbers; the names are Mosquitto's where it has one."""
        sessions = self.sessions
        yield _BROKER + "clients/connected", sum(1 for s in sessions.all.values() if s.link)
        yield _BROKER + "clients/total", len(sessions.all)
        yield _BROKER + "connections", len(self._links)
        yield _BROKER + "messages/received", self.counts["messages_received"]
        yield _BROKER + "messages/sent", self.counts["messages_sent"]
        yield _BROKER + "retained messages/count", sessions.retained.count
        yield _BROKER + "store/bytes", sessions.bytes
        for name in COUNTS:
            yield f"{_BROKER}counts/{name}", self.counts[name]

    def list_users(self) -> list[str]:
        """Return the names of the users that are connected."""
        return sorted({link.user for link in self._links.values() if link.session is not None})

    def expel(self, user: str, now: int) -> list[Output]:
        """Close all links of a user and delete its sessions and wills: its key was revoked."""
        self.sessions.now = now
        for link in list(self._links.values()):
            if link.session is not None and link.user == user:
                link.will = None
                self._close(link, "the user was revoked", now, packets.ADMINISTRATIVE)
        for session in list(self.sessions.all.values()):
            if session.user == user:
                self._wills.cancel(session)
                self.sessions.remove(session)
        return self._finish(now)

    def say_goodbye(self) -> list[Output]:
        """Tell clients of MQTT 5 that the node stops; nothing else changes."""
        for link in self._links.values():
            if link.session is not None:
                data = link.write_end(packets.SHUTTING_DOWN, "the node stops")
                if data:
                    self._outputs.send(link.number, data)
                    self._outputs.close(link.number, "the node stops")
        return self._outputs.finish()

    # Time ------------------------------------------------------------------------------------

    def tick(self, now: int) -> list[Output]:
        """Do what is due; to be called about once a second."""
        self.sessions.now = now
        for link in list(self._links.values()):
            reason, code = link.find_fault(self.limits, now)
            if reason:
                self.counts["timeouts"] += 1
                if link.session is None:
                    self._outputs.add(ServerRefusal(0, "", "a connection", reason, link.address))
                self._close(link, reason, now, code)
        for link in list(self._waiting.values()):
            if link.number in self._waiting:  # not closed meanwhile as another's receiver
                self._give_up(link, now)
        self._wills.tick(now)
        self._expire_sessions()
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRE_EVERY
            self.sessions.retained.expire(now)
        self.sessions.was_freed = True  # a pace may have room again
        return self._finish(now)

    def _expire_sessions(self) -> None:
        for session in list(self.sessions.all.values()):
            if not session.link and self.sessions.is_over(session):
                waiting = self.sessions.remove(session)
                self._wills.end_session(session)
                self.counts["sessions_expired"] += 1
                if waiting or session.expiry_ms is None:
                    why = f"away for too long; {waiting} messages were waiting"
                    what = f"session {session.client}"
                    self._outputs.add(ServerRefusal(0, session.user, what, why))

    def _finish(self, now: int) -> list[Output]:
        """Go on with those who waited for room, disconnect slow listeners, return the outputs."""
        sessions = self.sessions
        while (
            sessions.slow
            or sessions.expelled
            or (sessions.was_freed and (self._waiting or self._wills.is_waiting))
        ):
            if sessions.expelled:
                self._expel_slow(sessions.expelled.popitem()[0], now)
                continue
            if sessions.slow:
                self._close_slow(sessions.slow.pop(), now)
                continue
            sessions.was_freed = False
            self._wills.retry()
            for link in list(self._waiting.values()):
                try:
                    self._go_on(link, now)
                except Exception as error:  # noqa: BLE001 - as above
                    self._abandon(link, error, now)
        return self._outputs.finish()

    # Waiting for room ------------------------------------------------------------------------

    def _queue_packet(self, link: ClientLink, packet: packets.Packet, now: int) -> None:
        """Put a packet behind one that waits, unless it may pass."""
        if type(packet) in _PASSING or link.waiting is None:
            self._process(link, packet, now)
            return
        link.waiting.append(packet)
        if type(packet) is packets.PublishPacket:
            link.waiting_bytes += len(packet.payload)
        is_full = (
            len(link.waiting) >= self.limits.waiting
            or link.waiting_bytes >= self.limits.waiting_bytes
        )
        if is_full and not link.is_paused:
            link.is_paused = True
            self._outputs.add(Pause(link.number))

    def _go_on(self, link: ClientLink, now: int) -> None:
        """Handle what waits, as far as there is room."""
        waiting = link.waiting
        while waiting and link.number in self._waiting:
            if not self._process(link, waiting[0], now):
                return
            waiting.popleft()
            link.since = now
        if self._waiting.pop(link.number, None) is None:
            return  # the link was closed meanwhile
        link.waiting = None
        link.waiting_bytes = 0
        link.seen = now
        if link.is_paused:
            link.is_paused = False
            self._outputs.add(Resume(link.number))

    def _give_up(self, link: ClientLink, now: int) -> None:
        """End a wait for room that took too long."""
        blocker = link.blocker
        if blocker is None or now - link.since <= self.limits.hold_ms:
            return
        first = link.waiting[0] if link.waiting else None
        if self.limits.full_queue != WAIT and isinstance(first, packets.PublishPacket):
            return  # it is tried again below, and goes to all others
        if not blocker.is_persistent:
            self._close_slow(blocker, now)
            return
        why = f"a receiver has no room: {blocker.user}"
        self._refuse(link, "publishing", f"{blocker.user} has no room")
        if link.terms is None or not isinstance(first, packets.PublishPacket) or not first.qos:
            self._close(link, why, now, packets.QUOTA_EXCEEDED)
        elif link.waiting is not None:
            link.waiting.popleft()
            link.since = now
            link.is_paid = False
            self._answer_publish(link, first, packets.QUOTA_EXCEEDED, why)

    # Links and wills -------------------------------------------------------------------------

    def _close(self, link: ClientLink, reason: str, now: int, code: int = 0) -> None:
        """Close a link from our side; its will is published, and MQTT 5 is told why."""
        farewell = link.write_end(code, reason)
        if farewell:
            self._outputs.send(link.number, farewell)
        self._outputs.close(link.number, reason)
        self._remove_link(link, now)

    def _abandon(self, link: ClientLink, error: Exception, now: int) -> None:
        """Close a link at whose packet we failed; what came before it is done, it is not."""
        self.counts["failed"] += 1
        why = describe_defect(error)
        self._outputs.add(ServerRefusal(link.number, link.user, "bytes", why, link.address))
        if link.number in self._links:
            link.will = None
            self._close(link, "the node failed at a packet", now, packets.OWN_FAILURE)

    def _close_slow(self, session: MqttSession, now: int) -> None:
        """Disconnect the client of a session that does not keep up."""
        if session.link:
            self.counts["slow"] += 1
            link = self._links[session.link]
            self._close(link, "the client does not keep up", now, packets.QUOTA_EXCEEDED)

    def _expel_slow(self, session: MqttSession, now: int) -> None:
        """End a session that keeps others waiting; what waits in it is lost, and reported."""
        key, waiting = (session.user, session.client), len(session.in_flight) + len(session.queue)
        self.counts["expelled"] += 1
        why = f"it does not keep up; {waiting} messages were waiting"
        self._outputs.add(ServerRefusal(0, session.user, f"session {session.client}", why))
        self._close_slow(session, now)
        if self.sessions.all.get(key) is session:
            self.sessions.remove(session)
            self._wills.end_session(session)

    def _remove_link(self, link: ClientLink, now: int) -> None:
        """Forget a link that is gone; its will is published, now or later."""
        del self._links[link.number]
        self.budget.release(link.number)
        self._waiting.pop(link.number, None)
        session, will = link.session, link.will
        if session is None:
            return
        self.sessions.detach(session, now)
        if will is not None:
            is_over = self.sessions.all.get((session.user, session.client)) is not session
            self._wills.leave(session, will, is_over, now)

    def _publish_will(self, user: str, will: packets.Will) -> bool:
        expires = self._find_expiry(will.expiry)
        message = SharedMessage(will.topic, will.payload, will.qos, 0, expires, will.properties)
        message.retain = will.retain
        if self.sessions.route(message) is not None:
            return False
        if will.retain:
            self._retain(message, f"retaining the will of {user}")
        self._outputs.add(Message(user, will.topic, will.payload))
        return True

    def _find_expiry(self, seconds: int) -> int:
        """Return when a message expires; 0: never."""
        return 0 if seconds == packets.NO_EXPIRY else self.sessions.now + seconds * 1000

    def _retain(self, message: SharedMessage, what: str) -> None:
        if self.sessions.retained.has_room(message):
            self.sessions.retained.put(message)
        else:
            self._refuse(None, what, "too many retained messages")

    def _refuse(self, link: ClientLink | None, what: str, why: str) -> None:
        """Count and report what was not done."""
        self.counts["refused"] += 1
        number, user, address = (link.number, link.user, link.address) if link else (0, "", "")
        self._outputs.add(ServerRefusal(number, user, what, why, address))

    # Packets: every handler returns False if the packet must wait; then nothing has changed ---

    def _process(self, link: ClientLink, packet: packets.Packet, now: int) -> bool:
        session = link.session
        if session is not None:
            return self._handlers[type(packet)](link, session, packet, now)
        if isinstance(packet, packets.ConnectPacket):
            return self._connect(link, packet, now)
        self.counts["malformed"] += 1
        self._close(link, "a packet before CONNECT", now)
        return True

    def _answer_publish(
        self, link: ClientLink, packet: packets.PublishPacket, code: int = 0, why: str = ""
    ) -> None:
        if packet.qos:
            kind = packets.PUBACK if packet.qos == 1 else packets.PUBREC
            self._outputs.send(link.number, link.write_answer(kind, packet.id, code, why))

    def _handle_publish(
        self, link: ClientLink, session: MqttSession, packet: packets.PublishPacket, now: int
    ) -> bool:
        topic, payload, qos, number = packet.topic, packet.payload, packet.qos, packet.id
        sessions = self.sessions
        if qos == 2 and number in session.inbound:  # a repetition
            self._answer_publish(link, packet)
            return True
        expires = self._find_expiry(packet.expiry)
        message = SharedMessage(topic, payload, qos, 0, expires, packet.properties)
        message.retain = packet.retain
        code, fault = self._find_fault(session, packet, message)
        if code:
            self._refuse(link, f"publishing to {topic}", fault)
            if link.terms is None or not qos or code == packets.TOO_MANY_RECEIVED:
                self._close(link, f"publishing to {topic}: {fault}", now, code)
            else:
                self._answer_publish(link, packet, code, fault)
            return True
        if self._pace is not None and not link.is_paid:
            if self._pace.delay(session.user, len(payload), now) > 0:
                link.blocker = None
                return False
            link.is_paid = True
        blocker = sessions.route(message, session)
        if blocker is not None:
            link.blocker = blocker
            return False
        link.is_paid = False
        if packet.retain:
            sessions.retained.put(message)
        self.counts["messages_received"] += 1
        self._outputs.add(
            Message(session.user, topic, payload, packet.response, packet.correlation)
        )
        if qos == 2:
            sessions.receive_qos2(session, number)
        self._answer_publish(link, packet)
        return True

    def _find_fault(
        self, session: MqttSession, packet: packets.PublishPacket, message: SharedMessage
    ) -> tuple[int, str]:
        """Return the reason why a message is refused, now and later, and words; 0 if it is not."""
        if not self._may_publish(session.user, message.topic):
            return packets.NOT_AUTHORISED, "not allowed"
        # The node answers where it is asked to: only where its user could have listened.
        is_request = bool(packet.response) and packet.topic.startswith((REQUESTS, REPORTS))
        if is_request and not self._rules.may_subscribe(session.user, packet.response):
            return packets.NOT_AUTHORISED, f"the response topic {packet.response}: not allowed"
        if message.qos == 2 and len(session.inbound) >= self.limits.inbound:
            return packets.TOO_MANY_RECEIVED, "too many QoS 2 messages not released"
        if packet.retain and not self.sessions.retained.has_room(message):
            return packets.QUOTA_EXCEEDED, "too many retained messages"
        return 0, ""

    def _may_publish(self, user: str, topic: str) -> bool:
        return not topic.startswith(_SYSTEM) and self._rules.may_publish(user, topic)

    def _handle_puback(
        self, _link: ClientLink, session: MqttSession, packet: packets.PubackPacket, _now: int
    ) -> bool:
        self.sessions.receive_puback(session, packet.id)
        return True

    def _handle_pubrec(
        self, _link: ClientLink, session: MqttSession, packet: packets.PubrecPacket, _now: int
    ) -> bool:
        self.sessions.receive_pubrec(session, packet.id, packet.code)
        return True

    def _handle_pubrel(
        self, link: ClientLink, session: MqttSession, packet: packets.PubrelPacket, _now: int
    ) -> bool:
        is_known = self.sessions.receive_pubrel(session, packet.id)
        code = 0 if is_known else packets.UNKNOWN_ID
        self._outputs.send(link.number, link.write_answer(packets.PUBCOMP, packet.id, code))
        return True

    def _handle_pubcomp(
        self, _link: ClientLink, session: MqttSession, packet: packets.PubcompPacket, _now: int
    ) -> bool:
        self.sessions.receive_pubcomp(session, packet.id)
        return True

    def _handle_subscribe(
        self, link: ClientLink, session: MqttSession, packet: packets.SubscribePacket, _now: int
    ) -> bool:
        if len(session.queue) >= self.limits.queue:  # retained messages would come on top
            link.blocker = session
            return False
        codes: dict[str, int] = {}
        new: list[tuple[str, int]] = []
        faults: list[str] = []
        for name, options in dict(packet.filters).items():  # of a filter that comes twice the last
            is_known = name in session.subscriptions
            grant = make_grant(options, packet.number)
            code, fault = self._subscribe(session, name, grant)
            codes[name] = code if fault else 0
            if fault:
                faults.append(f"{name}: {fault}")
                if len(faults) <= _REPORTED:
                    self._refuse(link, f"subscribing to {name}", fault)
            # Retained messages: always, only if the subscription is new, or never.
            elif not split_shared(name)[0] and (options < 16 or (options < 32 and not is_known)):
                new.append((name, grant))
        if len(faults) > _REPORTED:
            self._refuse(link, f"subscribing to {len(faults) - _REPORTED} more filters", fault)
        answers = [max(codes[name], options & 3) for name, options in packet.filters]
        why = "; ".join(faults[:3])
        self._outputs.send(link.number, link.write_codes(packets.SUBACK, packet.id, answers, why))
        self.sessions.deliver_retained(session, new)
        return True

    def _subscribe(self, session: MqttSession, name: str, grant: int) -> tuple[int, str]:
        """Return SUBACK's answer to one filter, and why it is refused if it is."""
        group, inner = split_shared(name)
        if not self._rules.may_subscribe(session.user, inner):
            return packets.REFUSED, "not allowed"  # nobody learns which topics there are
        if group and is_directed(inner):
            return packets.NOT_SHARED, "the node's own topics cannot be shared"
        if not self.sessions.subscribe(session, name, grant):
            return packets.QUOTA_EXCEEDED, "too many subscriptions"
        return grant & 3, ""

    def _handle_unsubscribe(
        self, link: ClientLink, session: MqttSession, packet: packets.UnsubscribePacket, _now: int
    ) -> bool:
        codes = [
            0 if self.sessions.unsubscribe(session, name) else packets.NO_SUBSCRIPTION
            for name in packet.filters
        ]
        self._outputs.send(link.number, link.write_codes(packets.UNSUBACK, packet.id, codes))
        return True

    def _handle_pingreq(
        self, link: ClientLink, _session: MqttSession, _packet: packets.PingreqPacket, _now: int
    ) -> bool:
        self._outputs.send(link.number, packets.PINGRESP)
        return True

    def _handle_disconnect(
        self, link: ClientLink, session: MqttSession, packet: packets.DisconnectPacket, now: int
    ) -> bool:
        expiry = packet.session_expiry
        if expiry not in (packets.NO_EXPIRY, 0) and not session.is_persistent:
            why = "a session that was to end cannot be kept"
            self._close(link, why, now, packets.PROTOCOL_ERROR)
            return True
        if expiry != packets.NO_EXPIRY and session.is_persistent:
            self.sessions.set_expiry(session, limit_expiry(expiry, self.limits))
        if not packet.code:
            link.will = None
        self._close(link, "", now)
        return True

    def _handle_second_connect(
        self, link: ClientLink, _session: MqttSession, _packet: packets.ConnectPacket, now: int
    ) -> bool:
        self.counts["malformed"] += 1
        self._close(link, "a second CONNECT", now, packets.PROTOCOL_ERROR)
        return True

    def _connect(self, link: ClientLink, packet: packets.ConnectPacket, now: int) -> bool:
        budget = self.budget
        if not self._rules.recognises(packet.user, packet.password):
            fault = budget.delay_login(link.number, packet.user, now)
            if fault is not None:
                if fault:
                    self._refuse_connect(link, packet, packets.UNAVAILABLE, fault, now)
                return bool(fault)
        began = budget.read_cpu()
        code = self._check_connect(packet)
        is_right = code != packets.BAD_LOGIN
        budget.charge_login(link.number, packet.user, budget.read_cpu() - began, is_right, now)
        if code:
            why = _CONNECT_REFUSALS.get(code, f"reason {code}")
            self._refuse_connect(link, packet, code, why, now)
            return True
        sessions = self.sessions
        # A session is its user's: nobody else can take it over by its client id.
        key = (packet.user, packet.client or name_client(packet, link.number, now))
        session = sessions.all.get(key)
        if session is not None and session.link:
            self.counts["takeovers"] += 1
            why = "its client id connected again"
            self._close(self._links[session.link], why, now, packets.TAKEN_OVER)
            session = sessions.all.get(key)
        fault = budget.name(link.number, packet.user)
        if fault:
            self._refuse_connect(link, packet, packets.UNAVAILABLE, fault, now)
            return True
        if session is not None and (packet.is_clean or sessions.is_over(session)):
            sessions.remove(session)
            self._wills.end_session(session)
            session = None
        expiry = limit_expiry(packet.terms.session_expiry, self.limits) if packet.terms else None
        is_present = session is not None
        if session is None:
            is_persistent = not packet.is_clean if expiry is None else expiry > 0
            session = sessions.create(*key, is_persistent, expiry)
        else:
            self._wills.cancel(session)
            sessions.set_expiry(session, expiry)
        self.counts["connects"] += 1
        link.session = session
        link.will = packet.will
        link.terms = packet.terms
        link.decoder.limit = self.limits.packet_bytes
        keep_alive, properties = agree_terms(packet, key[1], self.limits)
        link.keep_ms = keep_alive * 1500
        answer = packets.write_connack(packets.ACCEPTED, is_present, properties)
        self._outputs.send(link.number, answer)
        sessions.attach(session, link.number, packet.terms)
        return True

    def _refuse_connect(
        self, link: ClientLink, packet: packets.ConnectPacket, code: int, why: str, now: int
    ) -> None:
        self.counts["connects_refused"] += 1
        what = f"client {packet.client}" if packet.client else "a client without an id"
        self._outputs.add(ServerRefusal(link.number, packet.user, what, why, link.address))
        properties = props.write_properties([(props.REASON, why)]) if packet.terms else None
        self._outputs.send(link.number, packets.write_connack(code, False, properties))
        self._close(link, why, now)

    def _check_connect(self, packet: packets.ConnectPacket) -> int:
        """Return CONNACK's code."""
        terms = packet.terms
        if packet.level not in (4, 5):
            return packets.BAD_PROTOCOL
        if terms is None and not packet.client and not packet.is_clean:
            return packets.BAD_CLIENT_ID
        if terms is not None and terms.has_authentication:
            return packets.BAD_AUTHENTICATION
        code = self._rules.authenticate(packet.user, packet.password, packet.client)
        if code:
            return code
        if packet.will and not self._may_publish(packet.user, packet.will.topic):
            return packets.FORBIDDEN
        if (packet.user, packet.client) in self.sessions.all:
            return packets.ACCEPTED
        is_full = len(self.sessions.all) >= self.limits.sessions
        if not packet.is_clean if terms is None else terms.session_expiry:
            kept = self.sessions.count_persistent(packet.user)
            is_full = is_full or kept >= self.limits.user_sessions
        return packets.UNAVAILABLE if is_full else packets.ACCEPTED
