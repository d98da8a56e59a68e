"""Bytes from a client in, packets out; the only file that reads MQTT's bytes.

`take` returns None while a packet is not complete: that is a value, not an error. Bytes that break
the protocol or a limit raise MalformedError with their place, and the link must be closed. A packet
that is too long is refused by its header, so a link never keeps more than one packet and the bytes
that arrived with it.
"""

from __future__ import annotations

from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
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
from denwatch.node.mqtt.topics import find_filter_fault

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

    __slots__ = ("_at", "_data", "_limits", "_need", "_part", "_raw_topic", "_topic", "limit")

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.connect_bytes
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
            raise MalformedError(f"a packet of {end - start} bytes, the limit is {self.limit}", 1)
        if end > total:
            return self._keep(start, end - start)
        self._at = end
        if first >> 4 == 3:
            return self._read_publish(data, start, body, end)
        kind = _ACKNOWLEDGEMENTS.get(first)
        if kind is not None:
            if size != 2:
                name = kind.__name__.removesuffix("Packet").upper()
                raise MalformedError(f"{name} of {size} bytes", 1)
            number = data[body] << 8 | data[body + 1]
            if not number:
                raise MalformedError("a packet id of zero", body - start)
            return kind(number)
        return self._read_other(_Body(data, start, body, end), first)

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
        if raw != self._raw_topic or not raw:
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
        return PublishPacket(
            self._topic, data[stop:end], qos, first & 1 == 1, first & 8 == 8, number
        )

    def _read_topic(self, raw: bytes, at: int) -> str:
        topic = _read_text(raw, at)
        if "+" in topic or "#" in topic:
            raise MalformedError("a wildcard in a topic name", at)
        self._check_length(topic, len(raw), at)
        return topic

    def _read_other(self, body: _Body, first: int) -> Packet:
        kind = first >> 4
        flags = _FLAGS.get(kind)
        if flags is None:
            raise MalformedError(f"a server gets no packet of kind {kind}", 0)
        if first & 15 != flags:
            raise MalformedError(f"flags {first & 15} of a packet of kind {kind}", 0)
        packet: Packet
        if kind == 12:
            packet = _PINGREQ
        elif kind == 14:
            packet = _DISCONNECT
        elif kind == 8:
            packet = self._read_subscribe(body)
        elif kind == 10:
            packet = self._read_unsubscribe(body)
        else:
            packet = self._read_connect(body)
            if packet.level != 4:
                return packet
        if body.at != body.end:
            raise MalformedError(f"bytes after the end of {_NAMES[kind]}", body.place)
        return packet

    def _read_connect(self, body: _Body) -> ConnectPacket:
        name = body.take_field("the protocol's name")
        if name != b"MQTT":
            raise MalformedError(f"protocol {bytes(name[:16])!r} instead of MQTT", body.place)
        level = body.take_byte("the protocol's level")
        if level != 4:
            return ConnectPacket(level, "", True, 0, None, "", None)
        at = body.place
        flags = body.take_byte("the flags")
        if flags & 1:
            raise MalformedError("reserved flag of CONNECT", at)
        has_will = flags & 4
        will_qos = flags >> 3 & 3
        if will_qos == 3 or (not has_will and flags & 0x38):
            raise MalformedError("flags of the will", at)
        if flags & 0xC0 == 0x40:
            raise MalformedError("a password without a user name", at)
        keep_alive = body.take_number("the keep-alive")
        at = body.place
        raw = body.take_field("the client id")
        if len(raw) > self._limits.client_bytes:
            raise MalformedError(f"a client id of {len(raw)} bytes", at)
        client = _read_text(raw, at + 2)
        will = None
        if has_will:
            at = body.place + 2
            topic = self._read_topic(body.take_field("the will's topic"), at)
            will = Will(topic, body.take_field("the will"), will_qos, flags & 0x20 > 0)
        user = ""
        if flags & 0x80:
            at = body.place
            raw = body.take_field("the user name")
            if len(raw) > self._limits.client_bytes:
                raise MalformedError(f"a user name of {len(raw)} bytes", at)
            user = _read_text(raw, at + 2)
        password = body.take_field("the password") if flags & 0x40 else None
        return ConnectPacket(level, client, flags & 2 > 0, keep_alive, will, user, password)

    def _read_subscribe(self, body: _Body) -> SubscribePacket:
        number = body.take_id()
        filters: list[tuple[str, int]] = []
        while body.at < body.end or not filters:
            name = self._read_filter(body, len(filters))
            at = body.place
            qos = body.take_byte("the QoS")
            if qos > 2:
                raise MalformedError(f"QoS {qos}", at)
            filters.append((name, qos))
        return SubscribePacket(number, filters)

    def _read_unsubscribe(self, body: _Body) -> UnsubscribePacket:
        number = body.take_id()
        filters: list[str] = []
        while body.at < body.end or not filters:
            filters.append(self._read_filter(body, len(filters)))
        return UnsubscribePacket(number, filters)

    def _read_filter(self, body: _Body, before: int) -> str:
        if before == self._limits.filters:
            raise MalformedError(f"more than {before} filters", body.place)
        at = body.place + 2
        raw = body.take_field("the filter")
        name = _read_text(raw, at)
        self._check_length(name, len(raw), at)
        fault = find_filter_fault(name)
        if fault:
            raise MalformedError(fault, at)
        return name

    def _check_length(self, topic: str, size: int, at: int) -> None:
        if not topic:
            raise MalformedError("an empty topic", at)
        if size > self._limits.topic_bytes:
            raise MalformedError(f"a topic of {size} bytes", at)
        if topic.count("/") >= self._limits.topic_levels:
            raise MalformedError(f"a topic of {topic.count('/') + 1} levels", at)


class _Body:
    """The rest of a packet after its fixed header, read piece by piece."""

    __slots__ = ("at", "data", "end", "start")

    def __init__(self, data: bytes, start: int, at: int, end: int) -> None:
        self.data = data
        self.start = start
        self.at = at
        self.end = end

    @property
    def place(self) -> int:
        """The offset of the next byte from the start of the packet."""
        return self.at - self.start

    def take_byte(self, what: str) -> int:
        if self.at >= self.end:
            raise MalformedError(f"ends before {what}", self.place)
        self.at += 1
        return self.data[self.at - 1]

    def take_number(self, what: str) -> int:
        high = self.take_byte(what)
        return high << 8 | self.take_byte(what)

    def take_id(self) -> int:
        at = self.place
        number = self.take_number("the packet id")
        if not number:
            raise MalformedError("a packet id of zero", at)
        return number

    def take_field(self, what: str) -> bytes:
        at = self.place
        stop = self.take_number(what) + self.at
        if stop > self.end:
            raise MalformedError(f"{what} goes beyond the end", at)
        field = self.data[self.at : stop]
        self.at = stop
        return field


def _read_text(raw: bytes, at: int) -> str:
    """Return UTF-8 text as MQTT allows it: no surrogates, no U+0000."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedError("not UTF-8", at + error.start) from None
    if "\0" in text:
        raise MalformedError("U+0000 in a text", at + raw.index(0))
    return text
