"""The MQTT 3.1.1 server without I/O: what arrives, what the node publishes, and time.

Nothing here reads a clock, a socket or a random source; the same inputs give the same outputs.
`now` is in ms and never falls; take what arrived before calling `tick`, so that a node that was
busy does not blame its clients.

A publisher waits when a receiver has no room (or when its pace says so): the packet is put aside
with what follows it, acknowledgements and pings excepted, and is taken again when there is room.
Beyond a bounded number of packets the link is not read any more. After `hold_ms` the receiver is
sent away if it has a clean session, and otherwise the publisher, without an acknowledgement: it
sends the message again. Nothing that a client published with QoS 1 or 2 is ever dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from denwatch.node.core.interface import Message, Publish, Reader
from denwatch.node.mqtt import packets
from denwatch.node.mqtt.decoder import Decoder
from denwatch.node.mqtt.interface import (
    Input,
    Limits,
    LinkBlocked,
    LinkOpened,
    LinkReceived,
    Output,
    Outputs,
    Pace,
    Pause,
    Resume,
    Rules,
    ServerRefusal,
)
from denwatch.node.mqtt.packets import MalformedError, Packet, Will
from denwatch.node.mqtt.sessions import MqttSession, Sessions, SharedMessage, restore_exchange

if TYPE_CHECKING:
    from denwatch.node.mqtt.sessions import Sessions

# Do not wait behind what waits.
_PASSING = (
    packets.PubackPacket,
    packets.PubrecPacket,
    packets.PubcompPacket,
    packets.PingreqPacket,
)


class MqttServer:
    """Every method returns its outputs: perform the writes first, then commit, then the rest."""

    def __init__(
        self, rules: Rules, limits: Limits | None = None, pace: Pace | None = None
    ) -> None:
        self.limits = limits = limits or Limits()
        self.counts: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self._step = step = Outputs()
        self.exchange = Sessions(limits, step, self.counts)
        self._links = Links(self.exchange, limits, step, self.counts)
        reception = Reception(self._links, self.exchange, rules, pace, limits, step, self.counts)
        self._process = reception.process

    def restore(self, reader: Reader, now: int) -> None:
        """Take up what an earlier run left; called once, before anything else."""
        restore_exchange(self.exchange, reader, now)

    # From the listener -----------------------------------------------------------------------

    def take(self, event: Input, now: int) -> list[Output]:
        """Take whatever the listener reports."""
        if type(event) is LinkReceived:
            return self.receive(event.link, event.data, now)
        if type(event) is LinkOpened:
            return self.open(event.link, now)
        if type(event) is LinkBlocked:
            return self.block(event.link, event.is_blocked, now)
        return self.lost(event.link, now)

    def open(self, link: int, now: int) -> list[Output]:
        """Take a new connection."""
        self._links.all[link] = ClientLink(link, self.limits, now)
        return []

    def receive(self, link: int, data: bytes, now: int) -> list[Output]:
        """Take bytes of a connection; those of one that was closed are passed over."""
        links = self._links.all
        here = links.get(link)
        if here is None:
            return []
        here.seen = now
        decoder = here.decoder
        decoder.feed(data)
        try:
            while link in links:
                packet = decoder.take()
                if packet is None:
                    break
                if here.waiting is not None:
                    self._wait(here, packet, now)
                elif not self._process(here, packet, now):
                    self._hold(here, packet, now)
        except MalformedError as error:
            self.counts["malformed"] += 1
            self._step.add(ServerRefusal(link, here.user, "bytes", str(error)))
            self._links.drop(here, str(error), now)
        return self._finish(now)

    def lost(self, link: int, now: int) -> list[Output]:
        """Take the end of a connection, with or without our doing."""
        here = self._links.all.get(link)
        if here is None:
            return []
        self._links.leave(here, now)
        return self._finish(now)

    def block(self, link: int, is_blocked: bool, now: int) -> list[Output]:
        """Note that a client does not read what is sent to it, or does so again."""
        here = self._links.all.get(link)
        if here is None:
            return []
        here.seen = now
        here.blocked_since = now if is_blocked else -1
        if here.session is not None:
            self.exchange.block(here.session, is_blocked)
        return self._finish(now)

    # From the node ---------------------------------------------------------------------------

    def publish(self, message: Publish, now: int) -> list[Output]:
        """Publish for the node. A receiver that has no room misses it, and that is reported."""
        topic, payload, qos, retain, token = message
        parcel = SharedMessage(topic, payload, qos, token)
        if retain:
            if self.exchange.retained.has_room(parcel):
                self.exchange.retained.put(parcel)
            else:
                self._links.refuse(None, f"retaining {topic}", "too many retained messages")
        for session in self.exchange.route_own(parcel):
            self._links.refuse(None, f"publishing to {topic}", f"{session.user} has no room")
        return self._finish(now)

    def report(self, now: int) -> list[Output]:
        """Publish the counts under $SYS."""
        outputs: list[Output] = []
        for topic, number in describe_server(self.counts, len(self._links.all), self.exchange):
            outputs += self.publish(Publish(topic, b"%d" % number, 0, True), now)
        return outputs

    def list_users(self) -> list[str]:
        """Return the names of those who are connected."""
        links = self._links.all.values()
        return sorted({link.user for link in links if link.session is not None})

    def expel(self, user: str, now: int) -> list[Output]:
        """Close all links of a user and forget its sessions and wills: its key was revoked."""
        for link in list(self._links.all.values()):
            if link.session is not None and link.user == user:
                link.will = None
                self._links.drop(link, "the user was revoked", now)
        for session in list(self.exchange.sessions.values()):
            if session.user == user:
                self.exchange.remove(session)
        return self._finish(now)

    # Time ------------------------------------------------------------------------------------

    def tick(self, now: int) -> list[Output]:
        """Do what is due; to be called about once a second."""
        for link in list(self._links.all.values()):
            reason = link.find_fault(self.limits, now)
            if reason:
                self.counts["timeouts"] += 1
                self._links.drop(link, reason, now)
        for link in list(self._links.held.values()):
            if link.number in self._links.held:  # not sent away as another's receiver
                self._give_up(link, now)
        self._expire_sessions(now)
        self.exchange.outbound.was_freed = True  # a pace may have room again
        return self._finish(now)

    def _expire_sessions(self, now: int) -> None:
        for session in list(self.exchange.sessions.values()):
            if not session.link and now - session.away_since > self.limits.session_ms:
                waiting = self.exchange.remove(session)
                self.counts["sessions_expired"] += 1
                why = f"away for too long; {waiting} messages waited"
                self._step.add(ServerRefusal(0, session.user, f"session {session.client}", why))

    def _finish(self, now: int) -> list[Output]:
        """Let those go on who waited for room, send slow listeners away, return the outputs."""
        exchange, links = self.exchange, self._links
        while exchange.outbound.slow or (
            exchange.outbound.was_freed and (links.held or links.wills)
        ):
            if exchange.outbound.slow:
                links.drop_slow(exchange.outbound.slow.pop(), now)
                continue
            exchange.outbound.was_freed = False
            links.retry_wills()
            for link in list(links.held.values()):
                self._go_on(link, now)
        return self._step.finish()

    # Waiting ---------------------------------------------------------------------------------

    def _hold(self, link: ClientLink, packet: Packet, now: int) -> None:
        """Put a packet aside that cannot be taken now."""
        link.waiting = deque((packet,))
        link.since = now
        self._links.held[link.number] = link
        self.counts["held"] += 1

    def _wait(self, link: ClientLink, packet: Packet, now: int) -> None:
        """Put a packet behind one that waits; acknowledgements may be what makes the room."""
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
            self._step.add(Pause(link.number))

    def _go_on(self, link: ClientLink, now: int) -> None:
        """Take what waits, as far as there is room."""
        waiting = link.waiting
        while waiting and link.number in self._links.held:
            if not self._process(link, waiting[0], now):
                return
            waiting.popleft()
            link.since = now
        if self._links.held.pop(link.number, None) is None:
            return  # the link has gone meanwhile
        link.waiting = None
        link.waiting_bytes = 0
        link.seen = now
        if link.is_paused:
            link.is_paused = False
            self._step.add(Resume(link.number))

    def _give_up(self, link: ClientLink, now: int) -> None:
        """End a wait for room that took too long."""
        blocker = link.blocker
        if blocker is None or now - link.since <= self.limits.hold_ms:
            return
        if not blocker.is_persistent:
            self._links.drop_slow(blocker, now)
        else:
            self._links.refuse(link, "publishing", f"{blocker.user} has no room")
            self._links.drop(link, f"a receiver has no room: {blocker.user}", now)


# The links of a server: who is connected, when a link must go, and the will that it leaves.


class ClientLink:
    """A connection; it has a session from CONNECT on."""

    __slots__ = (
        "blocked_since",
        "blocker",
        "decoder",
        "is_paid",
        "is_paused",
        "keep_ms",
        "number",
        "seen",
        "session",
        "since",
        "waiting",
        "waiting_bytes",
        "will",
    )

    def __init__(self, number: int, limits: Limits, now: int) -> None:
        self.number = number
        self.decoder = Decoder(limits)
        self.session: MqttSession | None = None
        self.keep_ms = 0
        self.seen = now
        self.will: Will | None = None
        self.waiting: deque[Packet] | None = None  # packets that cannot be taken yet
        self.waiting_bytes = 0  # since the first of them
        self.since = now  # when it began to wait; before CONNECT, when it was opened
        self.blocker: MqttSession | None = None  # who has no room; None: it is the pace
        self.is_paid = False  # the pace has counted the packet that waits
        self.is_paused = False  # it is not read
        self.blocked_since = -1  # it does not read

    @property
    def user(self) -> str:
        """The name that it was let in with."""
        return self.session.user if self.session else ""

    def find_fault(self, limits: Limits, now: int) -> str:
        """Return why the link must go now; "" if it may stay."""
        if self.session is None:
            return "no CONNECT in time" if now - self.since > limits.connect_ms else ""
        if self.blocked_since >= 0:
            return "it does not read" if now - self.blocked_since > limits.slow_ms else ""
        if self.keep_ms and now - self.seen > self.keep_ms and not self.is_paused:
            return "silent beyond its keep-alive"
        return ""


class Links:
    """All links; `held` are those with packets that wait."""

    def __init__(
        self, exchange: Sessions, limits: Limits, step: Outputs, counts: dict[str, int]
    ) -> None:
        self.all: dict[int, ClientLink] = {}
        self.held: dict[int, ClientLink] = {}
        self.wills: deque[tuple[str, Will]] = deque()  # that wait for room
        self._exchange = exchange
        self._limits = limits
        self._step = step
        self._counts = counts

    def drop(self, link: ClientLink, reason: str, now: int) -> None:
        """Close a link from our side; its will is published."""
        self._step.close(link.number, reason)
        self.leave(link, now)

    def drop_slow(self, session: MqttSession, now: int) -> None:
        """Send a session's client away that does not keep up."""
        if session.link:
            self._counts["slow"] += 1
            self.drop(self.all[session.link], "it does not keep up", now)

    def leave(self, link: ClientLink, now: int) -> None:
        """Take a link away that is gone; its will is published, or waits for room."""
        del self.all[link.number]
        self.held.pop(link.number, None)
        session, will = link.session, link.will
        if session is None:
            return
        self._exchange.detach(session, now)
        if will is None or self._publish_will(session.user, will):
            return
        if len(self.wills) < self._limits.wills:
            self.wills.append((session.user, will))
        else:
            self.refuse(None, f"the will of {session.user}", "too many wills wait")

    def retry_wills(self) -> None:
        """Publish the wills that there is room for by now."""
        for _ in range(len(self.wills)):
            user, will = self.wills.popleft()
            if not self._publish_will(user, will):
                self.wills.append((user, will))

    def refuse(self, link: ClientLink | None, what: str, why: str) -> None:
        """Count and report what was not done."""
        self._counts["refused"] += 1
        number, user = (link.number, link.user) if link else (0, "")
        self._step.add(ServerRefusal(number, user, what, why))

    def _publish_will(self, user: str, will: Will) -> bool:
        parcel = SharedMessage(will.topic, will.payload, will.qos)
        if self._exchange.route(parcel) is not None:
            return False
        if will.retain:
            if self._exchange.retained.has_room(parcel):
                self._exchange.retained.put(parcel)
            else:
                self.refuse(None, f"retaining the will of {user}", "too many retained messages")
        self._step.add(Message(user, will.topic, will.payload))
        return True


# What each packet of a client does: CONNECT, PUBLISH, SUBSCRIBE and the rest, and who may.
#
# A packet that cannot be taken now changes nothing, and `process` says so; it will be offered
# again.

_SYSTEM = "$SYS/"  # only the server speaks there

_ANSWERS = {
    packets.BAD_PROTOCOL: "not MQTT 3.1.1",
    packets.BAD_CLIENT_ID: "a session to keep needs a client id",
    packets.UNAVAILABLE: "too many sessions",
    packets.BAD_LOGIN: "wrong user name or password",
    packets.FORBIDDEN: "not allowed",
}


class Reception:
    """Takes packets one by one."""

    def __init__(
        self,
        links: Links,
        exchange: Sessions,
        rules: Rules,
        pace: Pace | None,
        limits: Limits,
        step: Outputs,
        counts: dict[str, int],
    ) -> None:
        self._links = links
        self._exchange = exchange
        self._rules = rules
        self._pace = pace
        self._limits = limits
        self._step = step
        self._counts = counts

    def process(self, link: ClientLink, packet: packets.Packet, now: int) -> bool:
        """Take a packet; False: it must wait, and nothing has changed."""
        session = link.session
        if session is None:
            if isinstance(packet, packets.ConnectPacket):
                self._connect(link, packet, now)
            else:
                self._counts["malformed"] += 1
                self._links.drop(link, "a packet before CONNECT", now)
            return True
        if type(packet) is packets.PublishPacket:
            return self._publish(link, session, packet, now)
        if type(packet) is packets.PubackPacket:
            self._exchange.outbound.acknowledge(session, packet.id)
            return True
        return self._take_other(link, session, packet, now)

    def _take_other(
        self, link: ClientLink, session: MqttSession, packet: packets.Packet, now: int
    ) -> bool:
        send = self._step.send
        if isinstance(packet, packets.PubrecPacket):
            self._exchange.outbound.record(session, packet.id)
        elif isinstance(packet, packets.PubrelPacket):
            self._exchange.release_inbound(session, packet.id)
            send(link.number, packets.write_pubcomp(packet.id))
        elif isinstance(packet, packets.PubcompPacket):
            self._exchange.outbound.complete(session, packet.id)
        elif isinstance(packet, packets.SubscribePacket):
            return self._subscribe(link, session, packet)
        elif isinstance(packet, packets.UnsubscribePacket):
            for name in packet.filters:
                self._exchange.unsubscribe(session, name)
            send(link.number, packets.write_unsuback(packet.id))
        elif isinstance(packet, packets.PingreqPacket):
            send(link.number, packets.PINGRESP)
        elif isinstance(packet, packets.DisconnectPacket):
            link.will = None
            self._links.drop(link, "", now)
        else:
            self._counts["malformed"] += 1
            self._links.drop(link, "a second CONNECT", now)
        return True

    # PUBLISH ---------------------------------------------------------------------------------

    def _publish(
        self, link: ClientLink, session: MqttSession, packet: packets.PublishPacket, now: int
    ) -> bool:
        topic, payload, qos, retain, _, number = packet
        exchange = self._exchange
        if qos == 2 and number in session.inbound:  # it came before
            self._step.send(link.number, packets.write_pubrec(number))
            return True
        parcel = SharedMessage(topic, payload, qos)
        fault = self._find_fault(session, parcel, retain)
        if fault:
            self._links.refuse(link, f"publishing to {topic}", fault)
            self._links.drop(link, f"publishing to {topic}: {fault}", now)
            return True
        if self._pace is not None and not link.is_paid:
            if self._pace.delay(session.user, len(payload), now) > 0:
                link.blocker = None
                return False
            link.is_paid = True
        blocker = exchange.route(parcel)
        if blocker is not None:
            link.blocker = blocker
            return False
        link.is_paid = False
        if retain:
            exchange.retained.put(parcel)
        self._counts["messages_received"] += 1
        self._step.add(Message(session.user, topic, payload))
        if qos == 1:
            self._step.send(link.number, packets.write_puback(number))
        elif qos == 2:
            exchange.accept_inbound(session, number)
            self._step.send(link.number, packets.write_pubrec(number))
        return True

    def _find_fault(self, session: MqttSession, parcel: SharedMessage, retain: bool) -> str:
        """Return why a message cannot be taken, now or later; "" if it can."""
        if not self._may_publish(session.user, parcel.topic):
            return "not allowed"
        if parcel.qos == 2 and len(session.inbound) >= self._limits.inbound:
            return "too many QoS 2 messages not released"
        if retain and not self._exchange.retained.has_room(parcel):
            return "too many retained messages"
        return ""

    def _may_publish(self, user: str, topic: str) -> bool:
        return not topic.startswith(_SYSTEM) and self._rules.may_publish(user, topic)

    # SUBSCRIBE -------------------------------------------------------------------------------

    def _subscribe(
        self, link: ClientLink, session: MqttSession, packet: packets.SubscribePacket
    ) -> bool:
        if len(session.queue) >= self._limits.queue:  # what is retained would come on top
            link.blocker = session
            return False
        codes: list[int] = []
        for name, qos in packet.filters:
            fault = ""
            if not self._rules.may_subscribe(session.user, name):
                fault = "not allowed"
            elif not self._exchange.subscribe(session, name, qos):
                fault = "too many subscriptions"
            if fault:
                self._links.refuse(link, f"subscribing to {name}", fault)
            codes.append(packets.REFUSED if fault else qos)
        self._step.send(link.number, packets.write_suback(packet.id, codes))
        granted = zip(packet.filters, codes, strict=True)
        new = [wanted for wanted, code in granted if code != packets.REFUSED]
        self._exchange.deliver_retained(session, new)
        return True

    # CONNECT ---------------------------------------------------------------------------------

    def _connect(self, link: ClientLink, packet: packets.ConnectPacket, now: int) -> None:
        code = self._judge(packet)
        if code:
            self._counts["connects_refused"] += 1
            why = _ANSWERS.get(code, f"reason {code}")
            what = f"client {packet.client}" if packet.client else "a client without an id"
            self._step.add(ServerRefusal(link.number, packet.user, what, why))
            self._step.send(link.number, packets.write_connack(code))
            self._links.drop(link, why, now)
            return
        exchange = self._exchange
        # A session is its user's: nobody else can take it over by its client id. No client can
        # send U+0000, so the names of those without an id are nobody's.
        key = (packet.user, packet.client or f"\0{link.number}")
        session = exchange.sessions.get(key)
        if session is not None and session.link:
            self._counts["takeovers"] += 1
            self._links.drop(self._links.all[session.link], "its client id connected again", now)
            session = exchange.sessions.get(key)
        if session is not None and packet.is_clean:
            exchange.remove(session)
            session = None
        is_present = session is not None
        if session is None:
            session = exchange.create(*key, not packet.is_clean)
        self._counts["connects"] += 1
        link.session = session
        link.will = packet.will
        link.keep_ms = packet.keep_alive * 1500
        link.decoder.limit = self._limits.packet_bytes
        self._step.send(link.number, packets.write_connack(packets.ACCEPTED, is_present))
        exchange.attach(session, link.number)

    def _judge(self, packet: packets.ConnectPacket) -> int:
        """Return CONNACK's code."""
        if packet.level != 4:
            return packets.BAD_PROTOCOL
        if not packet.client and not packet.is_clean:
            return packets.BAD_CLIENT_ID
        code = self._rules.authenticate(packet.user, packet.password, packet.client)
        if code:
            return code
        if packet.will and not self._may_publish(packet.user, packet.will.topic):
            return packets.FORBIDDEN
        exchange, limits = self._exchange, self._limits
        if (packet.user, packet.client) in exchange.sessions:
            return packets.ACCEPTED
        is_full = len(exchange.sessions) >= limits.sessions
        if not packet.is_clean:
            is_full = is_full or exchange.count_kept(packet.user) >= limits.user_sessions
        return packets.UNAVAILABLE if is_full else packets.ACCEPTED


# What the server says of itself: counts, and the `$SYS` topics under which brokers state them.

COUNTS = (
    "connects",
    "connects_refused",
    "takeovers",
    "timeouts",  # no CONNECT, silence beyond the keep-alive, a reader that stopped
    "malformed",
    "messages_received",
    "messages_sent",
    "refused",  # publishes and subscriptions
    "held",  # publishes that had to wait
    "slow",  # receivers that were sent away
    "dropped_qos0",
    "sessions_expired",
)

_ROOT = "$SYS/broker/"


def describe_server(
    counts: dict[str, int], links: int, exchange: Sessions
) -> Iterator[tuple[str, int]]:
    """Yield topics and numbers; the names are Mosquitto's where it has one."""
    yield _ROOT + "clients/connected", sum(1 for s in exchange.sessions.values() if s.link)
    yield _ROOT + "clients/total", len(exchange.sessions)
    yield _ROOT + "connections", links
    yield _ROOT + "messages/received", counts["messages_received"]
    yield _ROOT + "messages/sent", counts["messages_sent"]
    yield _ROOT + "retained messages/count", exchange.retained.count
    yield _ROOT + "store/bytes", exchange.outbound.bytes
    for name in COUNTS:
        yield f"{_ROOT}counts/{name}", counts[name]
