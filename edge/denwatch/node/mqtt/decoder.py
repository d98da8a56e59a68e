"""Bytes from a client in, packets out; with properties.py the only file that reads MQTT's bytes.

MQTT 3.1.1 and MQTT 5 share the port: CONNECT says which one a link speaks (`level`). Topic aliases
are resolved here, so that nobody behind the decoder knows of them.

`take` returns None while a packet is not complete: that is a value, not an error. Bytes that break
the protocol or a limit raise MalformedError with their place, and the link must be closed. A packet
that is too long is refused by its header, so a link never keeps more than one packet and the bytes
that arrived with it.
"""

from __future__ import annotations

from denwatch.node.mqtt import properties as props
from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.packets import (
    BAD_ALIAS,
    BAD_FILTER,
    BAD_TOPIC,
    NO_EXPIRY,
    PROTOCOL_ERROR,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    TOO_LARGE,
    ClientTerms,
    ConnectPacket,
    DisconnectPacket,
    MalformedError,
    Packet,
    PingreqPacket,
    PubackPacket,
    PubcompPacket,
    PublishPacket,
    PubrecPacket,
    PubrelPacket,
    SubscribePacket,
    UnsubscribePacket,
    Will,
)
from denwatch.node.mqtt.properties import PacketBody, read_properties, read_text
from denwatch.node.mqtt.topics import find_filter_fault, split_shared

_PINGREQ = PingreqPacket()
_DISCONNECT = DisconnectPacket()
_ACKNOWLEDGEMENTS: dict[int, type[PubackPacket | PubrecPacket | PubrelPacket | PubcompPacket]] = {
    PUBACK: PubackPacket,
    PUBREC: PubrecPacket,
    PUBREL: PubrelPacket,
    PUBCOMP: PubcompPacket,
}
_NAMES = {1: "CONNECT", 8: "SUBSCRIBE", 10: "UNSUBSCRIBE", 12: "PINGREQ", 14: "DISCONNECT"}
_FLAGS = {1: 0, 4: 0, 5: 0, 6: 2, 7: 0, 8: 2, 10: 2, 12: 0, 14: 0}


class Decoder:
    """The decoder of one link; `limit` is the longest packet that is accepted now."""

    __slots__ = (
        "_aliases",
        "_at",
        "_data",
        "_limits",
        "_need",
        "_part",
        "_raw_topic",
        "_topic",
        "level",
        "limit",
    )

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.connect_bytes
        self.level = 0  # of the protocol, once CONNECT has said it
        self._aliases: dict[int, str] = {}  # topics by the numbers that a client gave them
        self._limits = limits
        self._data = b""  # what is being read
        self._at = 0
        self._part = bytearray()  # a packet that is not complete
        self._need = 0  # bytes that it needs before we look at it again
        self._raw_topic = b""
        self._topic = ""

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived; `take` must have returned None before."""
        if self._part:
            part = self._part
            part += data
            if len(part) < self._need:
                return
            data = bytes(part)
            self._part = bytearray()
        self._data = data
        self._at = 0

    def take(self) -> Packet | None:
        """Return the next packet; None: more bytes are needed."""
        data = self._data
        start = self._at
        total = len(data)
        if start + 2 > total:
            return self._keep(start, 2)
        first = data[start]
        size = data[start + 1]
        body = start + 2
        if size > 127:
            size &= 127
            shift = 7
            while True:
                if body == total:
                    return self._keep(start, body - start + 1)
                byte = data[body]
                body += 1
                size |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
                if shift > 21:
                    raise MalformedError("a length of more than four bytes", 4)
        end = body + size
        if end - start > self.limit:
            what = f"a packet of {end - start} bytes, the limit is {self.limit}"
            raise MalformedError(what, 1, TOO_LARGE)
        if end > total:
            return self._keep(start, end - start)
        self._at = end
        if first >> 4 == 3:
            return self._read_publish(data, start, body, end)
        kind = _ACKNOWLEDGEMENTS.get(first)
        if kind is not None:
            if size != 2:
                if self.level == 5 and size > 2:
                    return _read_answer(PacketBody(data, start, body, end), kind)
                name = kind.__name__.removesuffix("Packet").upper()
                raise MalformedError(f"{name} of {size} bytes", 1)
            number = data[body] << 8 | data[body + 1]
            if not number:
                raise MalformedError("a packet id of zero", body - start)
            return kind(number)
        return self._read_other(PacketBody(data, start, body, end), first)

    def _keep(self, start: int, need: int) -> Packet | None:
        """Put an incomplete packet aside until it has so many bytes."""
        if start < len(self._data):
            self._part = bytearray(self._data[start:])
            self._need = need
        self._data = b""
        self._at = 0
        return None

    def _read_publish(self, data: bytes, start: int, at: int, end: int) -> PublishPacket:
        first = data[start]
        qos = first >> 1 & 3
        stop = at + 2
        if stop > end:
            raise MalformedError("ends inside the topic", end - start)
        stop += data[at] << 8 | data[at + 1]
        if stop > end:
            raise MalformedError("a topic beyond the end", at - start)
        raw = data[at + 2 : stop]
        if (raw != self._raw_topic or not raw) and (raw or self.level != 5):
            self._topic = self._read_topic(raw, at + 2 - start)
            self._raw_topic = raw
        number = 0
        if qos:
            if qos == 3:
                raise MalformedError("QoS 3", 0)
            if stop + 2 > end:
                raise MalformedError("ends inside the packet id", end - start)
            number = data[stop] << 8 | data[stop + 1]
            if not number:
                raise MalformedError("a packet id of zero", stop - start)
            stop += 2
        elif first & 8:
            raise MalformedError("a duplicate with QoS 0", 0)
        if self.level == 5:
            return self._read_publish_v5(PacketBody(data, start, stop, end), first, raw, number)
        return PublishPacket(
            self._topic, data[stop:end], qos, first & 1 == 1, first & 8 == 8, number
        )

    def _read_publish_v5(
        self, body: PacketBody, first: int, raw: bytes, number: int
    ) -> PublishPacket:
        at = body.place
        found = read_properties(body, props.OF_PUBLISH)
        alias = found.numbers.get(props.TOPIC_ALIAS)
        if alias is not None and alias > self._limits.topic_aliases:
            raise MalformedError(f"topic alias {alias}", at, BAD_ALIAS)
        if raw:
            topic = self._topic
            if alias is not None:
                self._aliases[alias] = topic
        elif alias is None:
            raise MalformedError("neither a topic nor a topic alias", at, PROTOCOL_ERROR)
        elif alias not in self._aliases:
            raise MalformedError(f"topic alias {alias} stands for nothing", at, PROTOCOL_ERROR)
        else:
            topic = self._aliases[alias]
        return PublishPacket(
            topic,
            body.data[body.at : body.end],
            first >> 1 & 3,
            first & 1 == 1,
            first & 8 == 8,
            number,
            found.numbers.get(props.MESSAGE_EXPIRY, NO_EXPIRY),
            found.forwarded,
            found.fields.get(props.RESPONSE_TOPIC, b"").decode(),
            found.fields.get(props.CORRELATION, b""),
        )

    def _read_topic(self, raw: bytes, at: int) -> str:
        topic = read_text(raw, at)
        if "+" in topic or "#" in topic:
            raise MalformedError("a wildcard in a topic name", at, BAD_TOPIC)
        self._check_length(topic, len(raw), at)
        return topic

    def _read_other(self, body: PacketBody, first: int) -> Packet:
        kind = first >> 4
        flags = _FLAGS.get(kind)
        if flags is None:
            raise MalformedError(f"a server gets no packet of kind {kind}", 0, PROTOCOL_ERROR)
        if first & 15 != flags:
            raise MalformedError(f"flags {first & 15} of a packet of kind {kind}", 0)
        packet: Packet
        if kind == 12:
            packet = _PINGREQ
        elif kind == 14:
            packet = self._read_disconnect(body) if body.at < body.end else _DISCONNECT
        elif kind == 8:
            packet = self._read_subscribe(body)
        elif kind == 10:
            packet = self._read_unsubscribe(body)
        else:
            packet = self._read_connect(body)
            if packet.level not in (4, 5):
                return packet
        if body.at != body.end:
            raise MalformedError(f"bytes after the end of {_NAMES[kind]}", body.place)
        return packet

    def _read_connect(self, body: PacketBody) -> ConnectPacket:
        name = body.take_field("the protocol's name")
        if name not in (b"MQTT", b"MQIsdp"):  # the second one is MQTT 3.1's, of level 3
            raise MalformedError(f"protocol {bytes(name[:16])!r} instead of MQTT", body.place)
        level = body.take_byte("the protocol's level")
        if level not in (4, 5) or name != b"MQTT":
            other = level if name == b"MQTT" else 3
            return ConnectPacket(other, "", True, 0, None, "", None)
        if not self.level:  # a second CONNECT is refused, and changes nothing
            self.level = level
        at = body.place
        flags = body.take_byte("the flags")
        if flags & 1:
            raise MalformedError("reserved flag of CONNECT", at)
        has_will = flags & 4
        will_qos = flags >> 3 & 3
        if will_qos == 3 or (not has_will and flags & 0x38):
            raise MalformedError("flags of the will", at)
        if level == 4 and flags & 0xC0 == 0x40:
            raise MalformedError("a password without a user name", at)
        keep_alive = body.take_number("the keep-alive")
        terms = _read_terms(body) if level == 5 else None
        at = body.place
        raw = body.take_field("the client id")
        if len(raw) > self._limits.client_bytes:
            raise MalformedError(f"a client id of {len(raw)} bytes", at)
        client = read_text(raw, at + 2)
        will = None
        if has_will:
            found = read_properties(body, props.OF_WILL) if level == 5 else props.NO_PROPERTIES
            at = body.place + 2
            topic = self._read_topic(body.take_field("the will's topic"), at)
            will = Will(
                topic,
                body.take_field("the will"),
                will_qos,
                flags & 0x20 > 0,
                found.numbers.get(props.WILL_DELAY, 0),
                found.numbers.get(props.MESSAGE_EXPIRY, NO_EXPIRY),
                found.forwarded,
            )
        user = ""
        if flags & 0x80:
            at = body.place
            raw = body.take_field("the user name")
            if len(raw) > self._limits.client_bytes:
                raise MalformedError(f"a user name of {len(raw)} bytes", at)
            user = read_text(raw, at + 2)
        password = body.take_field("the password") if flags & 0x40 else None
        return ConnectPacket(level, client, flags & 2 > 0, keep_alive, will, user, password, terms)

    def _read_disconnect(self, body: PacketBody) -> DisconnectPacket:
        if self.level != 5:
            raise MalformedError("bytes after the end of DISCONNECT", body.place)
        code = body.take_byte("the reason")
        if body.at == body.end:
            return DisconnectPacket(code)
        found = read_properties(body, props.OF_DISCONNECT)
        return DisconnectPacket(code, found.numbers.get(props.SESSION_EXPIRY, NO_EXPIRY))

    def _read_subscribe(self, body: PacketBody) -> SubscribePacket:
        number = body.take_id()
        name_number, most = 0, 2
        if self.level == 5:
            found = read_properties(body, props.OF_SUBSCRIBE)
            name_number, most = found.numbers.get(props.SUBSCRIPTION_ID, 0), 0x2F
        filters: list[tuple[str, int]] = []
        while body.at < body.end or not filters:
            name = self._read_filter(body)
            at = body.place
            options = body.take_byte("the QoS")
            if options > most or options & 3 == 3:
                raise MalformedError(f"QoS {options}" if most == 2 else f"options {options}", at)
            if options & 4 and split_shared(name)[0]:
                raise MalformedError("no local in a shared subscription", at, PROTOCOL_ERROR)
            filters.append((name, options))
        return SubscribePacket(number, filters, name_number)

    def _read_unsubscribe(self, body: PacketBody) -> UnsubscribePacket:
        number = body.take_id()
        if self.level == 5:
            read_properties(body, props.OF_UNSUBSCRIBE)
        filters: list[str] = []
        while body.at < body.end or not filters:
            filters.append(self._read_filter(body))
        return UnsubscribePacket(number, filters)

    def _read_filter(self, body: PacketBody) -> str:
        at = body.place + 2
        raw = body.take_field("the filter")
        name = read_text(raw, at)
        self._check_length(name, len(raw), at)
        fault = find_filter_fault(name)
        if fault:
            raise MalformedError(fault, at, BAD_FILTER)
        return name

    def _check_length(self, topic: str, size: int, at: int) -> None:
        if not topic:
            raise MalformedError("an empty topic", at, BAD_TOPIC)
        if size > self._limits.topic_bytes:
            raise MalformedError(f"a topic of {size} bytes", at, BAD_TOPIC)
        if topic.count("/") >= self._limits.topic_levels:
            raise MalformedError(f"a topic of {topic.count('/') + 1} levels", at, BAD_TOPIC)


def _read_terms(body: PacketBody) -> ClientTerms:
    """Return what a client of MQTT 5 asks for."""
    at = body.place
    found = read_properties(body, props.OF_CONNECT)
    if props.AUTH_DATA in found.fields and props.AUTH_METHOD not in found.fields:
        raise MalformedError("authentication data without a method", at, PROTOCOL_ERROR)
    numbers = found.numbers
    return ClientTerms(
        numbers.get(props.SESSION_EXPIRY, 0),
        numbers.get(props.RECEIVE_MAXIMUM, 65_535),
        numbers.get(props.PACKET_MAXIMUM, 0),
        numbers.get(props.ALIAS_MAXIMUM, 0),
        bool(numbers.get(props.PROBLEM_INFORMATION, 1)),
        bool(numbers.get(props.RESPONSE_WANTED, 0)),
        props.AUTH_METHOD in found.fields,
    )


def _read_answer(
    body: PacketBody, kind: type[PubackPacket | PubrecPacket | PubrelPacket | PubcompPacket]
) -> Packet:
    """Return an acknowledgement of MQTT 5, with its reason."""
    number = body.take_id()
    code = body.take_byte("the reason")
    if body.at < body.end:
        read_properties(body, props.OF_ANSWER)
        if body.at < body.end:
            raise MalformedError("bytes after the end of an acknowledgement", body.place)
    return kind(number, code)
