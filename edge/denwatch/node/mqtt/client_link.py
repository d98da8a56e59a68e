"""A connection of the server: what it has received and waits for, and how it is answered.

MQTT 3.1.1 has one answer to a packet, MQTT 5 has reasons: only this file knows the difference in
what a link is told.
"""

from __future__ import annotations

from collections import deque

from denwatch.node.core.events import REPLIES
from denwatch.node.mqtt import packets
from denwatch.node.mqtt import properties as props
from denwatch.node.mqtt.decoder import Decoder
from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.packets import ClientTerms, MqttSession
from denwatch.node.mqtt.properties import REASON, write_properties

_SHOWN = 200  # characters of a reason


class ClientLink:
    """A connection; it has a session from CONNECT on."""

    __slots__ = (
        "address",
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
        "terms",
        "waiting",
        "waiting_bytes",
        "will",
    )

    def __init__(self, number: int, address: str, limits: Limits, now: int) -> None:
        self.number = number
        self.address = address
        self.decoder = Decoder(limits)
        self.session: MqttSession | None = None
        self.terms: ClientTerms | None = None  # of a client of MQTT 5
        self.keep_ms = 0
        self.seen = now
        self.will: packets.Will | None = None
        self.waiting: deque[packets.Packet] | None = None  # packets that cannot be handled yet
        self.waiting_bytes = 0  # of their payloads, without the first
        self.since = now  # when it began to wait; before CONNECT, when it was opened
        self.blocker: MqttSession | None = None  # who has no room; None: it is the pace
        self.is_paid = False  # the pace has counted the packet that waits
        self.is_paused = False  # we do not read from it
        self.blocked_since = -1  # since when it does not read; -1: it reads

    @property
    def user(self) -> str:
        """The user name that was accepted at CONNECT."""
        return self.session.user if self.session else ""

    def find_fault(self, limits: Limits, now: int) -> tuple[str, int]:
        """Return why the link must be closed now, with MQTT 5's reason; "" if it may stay."""
        if self.session is None:
            if self.waiting is not None:
                late = now - self.since > limits.hold_ms
                return "too many wrong passwords came before it" if late else "", 0
            return "no CONNECT in time" if now - self.since > limits.connect_ms else "", 0
        if self.blocked_since >= 0:
            late = now - self.blocked_since > limits.slow_ms
            return "the client does not read" if late else "", packets.QUOTA_EXCEEDED
        if self.keep_ms and now - self.seen > self.keep_ms and not self.is_paused:
            return "nothing received within its keep-alive", packets.SILENT_TOO_LONG
        return "", 0

    # Answers ---------------------------------------------------------------------------------

    def write_answer(self, kind: int, number: int, code: int = 0, why: str = "") -> bytes:
        """Return PUBACK, PUBREC or PUBCOMP, with a reason for a client of MQTT 5."""
        if self.terms is None or not code:
            return packets.write_answer(kind, number)
        return self._fit(
            packets.write_reason(kind, number, code, self._explain(why)),
            packets.write_reason(kind, number, code, b"\0"),
        )

    def write_codes(self, kind: int, number: int, codes: list[int], why: str = "") -> bytes:
        """Return SUBACK or UNSUBACK."""
        if self.terms is not None:
            return self._fit(
                packets.write_codes(kind, number, codes, self._explain(why)),
                packets.write_codes(kind, number, codes, b"\0"),
            )
        if kind == packets.UNSUBACK:
            return packets.write_answer(kind, number)
        refused = packets.REFUSED
        return packets.write_codes(kind, number, [min(code, refused) for code in codes])

    def write_end(self, code: int, why: str) -> bytes:
        """Return what a client is told before its link is closed; b"" if it cannot be told."""
        if not code or self.decoder.level != 5:
            return b""
        explained = write_properties([(REASON, why[:_SHOWN])])
        if self.session is None:  # CONNACK is the first packet
            return packets.write_connack(code, False, explained)
        return self._fit(
            packets.write_disconnect(code, explained), packets.write_disconnect(code, b"\0")
        )

    def _explain(self, why: str) -> bytes:
        wanted = self.terms is not None and self.terms.wants_reasons
        return write_properties([(REASON, why[:_SHOWN] if wanted else "")])

    def _fit(self, long: bytes, short: bytes) -> bytes:
        """Return the longer one unless the client does not accept it."""
        most = self.terms.packet_bytes if self.terms else 0
        return short if most and len(long) > most else long


# What CONNACK says ---------------------------------------------------------------------------


def limit_expiry(seconds: int, limits: Limits) -> int:
    """Return the ms that a session stays without its client, of what a client asks for."""
    return min(seconds * 1000, limits.session_ms)


def name_client(packet: packets.ConnectPacket, link: int, now: int) -> str:
    """Return an id for a client that has none; MQTT 5 is told, and may come back with it."""
    if packet.terms is None:
        return f"\0{link}"  # no client can send U+0000, so it is nobody's
    return f"denwatch-{now:x}-{link:x}"  # neither of the two numbers comes again


def agree_terms(
    packet: packets.ConnectPacket, client: str, limits: Limits
) -> tuple[int, bytes | None]:
    """Return the keep-alive in seconds, and the properties for a client of MQTT 5."""
    terms = packet.terms
    if terms is None:
        return packet.keep_alive, None
    found: list[tuple[int, int | str]] = [
        (props.RECEIVE_MAXIMUM, limits.inbound),
        (props.PACKET_MAXIMUM, limits.packet_bytes),
        (props.ALIAS_MAXIMUM, limits.topic_aliases),
    ]
    if limit_expiry(terms.session_expiry, limits) != terms.session_expiry * 1000:
        found.append((props.SESSION_EXPIRY, limits.session_ms // 1000))
    keep_alive = packet.keep_alive
    if not 0 < keep_alive <= limits.keep_alive_s:
        keep_alive = limits.keep_alive_s
        found.append((props.SERVER_KEEP_ALIVE, keep_alive))
    if not packet.client:
        found.append((props.ASSIGNED_CLIENT, client))
    if terms.wants_response and packet.user:
        found.append((props.RESPONSE_INFORMATION, REPLIES + packet.user))
    return keep_alive, write_properties(found)
