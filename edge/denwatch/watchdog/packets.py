"""MQTT 3.1.1 packets without I/O: bytes in, packets out. What a client needs, QoS 0 and 1.

Ours, because micropython-lib's umqtt writes a packet in pieces (23 QoS 1 messages a second, where
Nagle's algorithm meets delayed acknowledgements), never lets packet ids wrap, waits for ever on a
dead server and forgets its subscriptions; mqtt_as takes 23 KB of heap.

`Parser.take` returns None while a packet is not complete; what breaks the protocol is a PacketError
that names the byte. A packet that is longer than the limit is not an error: it is passed over as it
arrives and comes out as TOO_LONG, so that a server cannot fill the memory, and a message that is
too long can be acknowledged and does not come back for ever.
"""

from ..protocol.degrees import const

CONNACK = const(2)
PUBLISH = const(3)
PUBACK = const(4)
SUBACK = const(9)
PINGRESP = const(13)
TOO_LONG = const(16)  # not one of MQTT's

PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"


class PacketError(ValueError):
    """A server that breaks the protocol, at which byte of a packet."""

    def __init__(self, at: int) -> None:
        super().__init__("not MQTT 3.1.1, byte " + str(at))
        self.at = at


class Packet:
    """One packet from the server; which fields mean something depends on its kind."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.id = 0
        self.topic = ""
        self.payload = b""
        self.code = 0  # of CONNACK; of SUBACK the worst


def write_connect(
    client: str,
    keep_alive: int,
    will: "tuple[str, bytes] | None" = None,
    user: "str | None" = None,
    password: "str | None" = None,
) -> bytes:
    """Return CONNECT, with a session that stays; the will is sent with QoS 1."""
    flags = 0
    fields = [client.encode()]
    if will:
        flags = 0x0C
        fields += [will[0].encode(), will[1]]
    if user is not None:
        flags |= 0x80
        fields.append(user.encode())
    if password is not None:
        flags |= 0x40
        fields.append(password.encode())
    body = b"\x00\x04MQTT\x04" + bytes([flags]) + _pair(keep_alive)
    return _packet(0x10, body + b"".join([_field(field) for field in fields]))


def write_publish(topic: str, payload: bytes, number: int) -> bytes:
    """Return PUBLISH with QoS 1."""
    return _packet(0x32, _field(topic.encode()) + _pair(number) + payload)


def write_subscribe(number: int, topics: list[str]) -> bytes:
    """Return SUBSCRIBE to topics with QoS 1."""
    body = _pair(number)
    for topic in topics:
        body += _field(topic.encode()) + b"\x01"
    return _packet(0x82, body)


def write_puback(number: int) -> bytes:
    """Return PUBACK."""
    return b"\x40\x02" + _pair(number)


def _pair(number: int) -> bytes:
    return number.to_bytes(2, "big")


def _field(data: bytes) -> bytes:
    return _pair(len(data)) + data


def _packet(first: int, body: bytes) -> bytes:
    """Return a packet as one object, so that it goes out in one write."""
    head = bytearray([first])
    size = len(body)
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + body


class Parser:
    """Takes bytes as they arrive and gives the packets in them; `limit` is of a whole packet."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self._skip = 0  # bytes of a packet that is too long, still to come

    def feed(self, data: bytes) -> None:
        """Add what has arrived."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        self._data += data

    def take(self) -> "Packet | None":
        """Return the next packet; None: more bytes are needed."""
        data = self._data
        at, size = self._read_size()
        if at == 0:
            return None
        if at + size > self._limit:
            return self._take_long(at, size)
        if len(data) < at + size:
            return None
        packet = _read_packet(bytes(data[: at + size]), at)
        self._data = data[at + size :]
        return packet

    def _read_size(self) -> "tuple[int, int]":
        """Return where the body starts and its size; (0, 0): not known yet."""
        data = self._data
        size = 0
        for i in range(4):
            if len(data) < i + 2:
                return 0, 0
            size |= (data[i + 1] & 127) << (7 * i)
            if data[i + 1] < 128:
                return i + 2, size
        raise PacketError(4)

    def _take_long(self, at: int, size: int) -> "Packet | None":
        """Pass over a packet; of a message that is to be acknowledged the id is kept."""
        data = self._data
        if data[0] >> 4 != PUBLISH:
            raise PacketError(1)
        need = at
        if data[0] & 6:
            if len(data) < at + 2:
                return None
            need = at + 4 + (data[at] << 8 | data[at + 1])
            if need > min(at + size, self._limit):  # a topic without an end
                raise PacketError(at)
            if len(data) < need:
                return None
        packet = Packet(TOO_LONG)
        packet.id = data[need - 2] << 8 | data[need - 1] if need > at else 0
        packet.code = size
        arrived = min(len(data), at + size)
        self._skip = at + size - arrived
        self._data = data[arrived:]
        return packet


def _read_packet(data: bytes, at: int) -> Packet:
    kind = data[0] >> 4
    size = len(data) - at
    packet = Packet(kind)
    if kind == PUBLISH:
        return _read_publish(packet, data, at)
    if kind not in (CONNACK, PUBACK, SUBACK, PINGRESP) or data[0] & 15:
        raise PacketError(0)
    least = 0 if kind == PINGRESP else 3 if kind == SUBACK else 2
    if size < least or (size > least and kind != SUBACK):
        raise PacketError(at)
    if kind == PINGRESP:
        return packet
    if kind == CONNACK:
        if data[at] > 1:
            raise PacketError(at)
        packet.code = data[at + 1]
        return packet
    packet.id = _read_id(data, at)
    if kind == SUBACK:
        packet.code = max(data[at + 2 :])
        if packet.code not in (0, 1, 2, 128):
            raise PacketError(at + 2)
    return packet


def _read_publish(packet: Packet, data: bytes, at: int) -> Packet:
    qos = data[0] >> 1 & 3
    if qos > 1:  # 1 was asked for
        raise PacketError(0)
    stop = at + 2
    if stop <= len(data):
        stop += data[at] << 8 | data[at + 1]
    if stop + 2 * qos > len(data):
        raise PacketError(len(data))
    try:
        packet.topic = str(data[at + 2 : stop], "utf-8")
    except ValueError:  # CPython's UnicodeDecodeError is one
        raise PacketError(at + 2) from None
    if qos:
        packet.id = _read_id(data, stop)
        stop += 2
    packet.payload = data[stop:]
    return packet


def _read_id(data: bytes, at: int) -> int:
    number = data[at] << 8 | data[at + 1]
    if not number:
        raise PacketError(at)
    return number
