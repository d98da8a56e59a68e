"""What each packet of a client does: CONNECT, PUBLISH, SUBSCRIBE and the rest, and who may.

A packet that cannot be taken now changes nothing, and `process` says so; it will be offered again.
"""

from __future__ import annotations

from denwatch.node.core.interface import Message
from denwatch.node.mqtt import packets
from denwatch.node.mqtt.exchange import Exchange
from denwatch.node.mqtt.interface import Pace, Refused, Rules
from denwatch.node.mqtt.limits import Limits
from denwatch.node.mqtt.links import Link, Links
from denwatch.node.mqtt.session import Parcel, Session
from denwatch.node.mqtt.step import Step

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
        exchange: Exchange,
        rules: Rules,
        pace: Pace | None,
        limits: Limits,
        step: Step,
        counts: dict[str, int],
    ) -> None:
        self._links = links
        self._exchange = exchange
        self._rules = rules
        self._pace = pace
        self._limits = limits
        self._step = step
        self._counts = counts

    def process(self, link: Link, packet: packets.Packet, now: int) -> bool:
        """Take a packet; False: it must wait, and nothing has changed."""
        session = link.session
        if session is None:
            if isinstance(packet, packets.Connect):
                self._connect(link, packet, now)
            else:
                self._counts["malformed"] += 1
                self._links.drop(link, "a packet before CONNECT", now)
            return True
        if type(packet) is packets.Publish:
            return self._publish(link, session, packet, now)
        if type(packet) is packets.Puback:
            self._exchange.outbound.acknowledge(session, packet.id)
            return True
        return self._take_other(link, session, packet, now)

    def _take_other(self, link: Link, session: Session, packet: packets.Packet, now: int) -> bool:
        send = self._step.send
        if isinstance(packet, packets.Pubrec):
            self._exchange.outbound.record(session, packet.id)
        elif isinstance(packet, packets.Pubrel):
            self._exchange.release_inbound(session, packet.id)
            send(link.number, packets.write_pubcomp(packet.id))
        elif isinstance(packet, packets.Pubcomp):
            self._exchange.outbound.complete(session, packet.id)
        elif isinstance(packet, packets.Subscribe):
            return self._subscribe(link, session, packet)
        elif isinstance(packet, packets.Unsubscribe):
            for name in packet.filters:
                self._exchange.unsubscribe(session, name)
            send(link.number, packets.write_unsuback(packet.id))
        elif isinstance(packet, packets.Pingreq):
            send(link.number, packets.PINGRESP)
        elif isinstance(packet, packets.Disconnect):
            link.will = None
            self._links.drop(link, "", now)
        else:
            self._counts["malformed"] += 1
            self._links.drop(link, "a second CONNECT", now)
        return True

    # PUBLISH ---------------------------------------------------------------------------------

    def _publish(self, link: Link, session: Session, packet: packets.Publish, now: int) -> bool:
        topic, payload, qos, retain, _, number = packet
        exchange = self._exchange
        if qos == 2 and number in session.inbound:  # it came before
            self._step.send(link.number, packets.write_pubrec(number))
            return True
        parcel = Parcel(topic, payload, qos)
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

    def _find_fault(self, session: Session, parcel: Parcel, retain: bool) -> str:
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

    def _subscribe(self, link: Link, session: Session, packet: packets.Subscribe) -> bool:
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

    def _connect(self, link: Link, packet: packets.Connect, now: int) -> None:
        code = self._judge(packet)
        if code:
            self._counts["connects_refused"] += 1
            why = _ANSWERS.get(code, f"reason {code}")
            what = f"client {packet.client}" if packet.client else "a client without an id"
            self._step.add(Refused(link.number, packet.user, what, why))
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

    def _judge(self, packet: packets.Connect) -> int:
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
