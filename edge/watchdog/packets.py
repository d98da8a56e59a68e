"""MQTT 3.1.1 packets without I/O: bytes in, packets out. What a client needs, QoS 0 and 1.

Ours, because micropython-lib's umqtt writes a packet in pieces (23 QoS 1 messages a second, where
Nagle's algorithm meets delayed acknowledgements), never lets packet ids wrap, waits for ever on a
dead server and forgets its subscriptions; mqtt_as takes 23 KB of heap.

`Parser.take` returns None while a packet is not complete; what breaks the protocol is a PacketError
that names the byte. A packet that is longer than the limit is not an error: it is passed over as it
arrives and comes out as TOO_LONG, so that a server cannot fill the memory, and a message that is
too long can be acknowledged and does not come back for ever.
"""

from protocol.degrees import const

CONNACK = const(2)
PUBLISH = const(3)
PUBACK = const(4)
SUBACK = const(9)
PINGRESP = const(13)
TOO_LONG = const(16)  # not one of MQTT's

_FLAGS = {CONNACK: 0, PUBACK: 0, SUBACK: 0, PINGRESP: 0}
_REFUSALS = (
    "",
    "it does not speak MQTT 3.1.1",
    "the client id is not allowed",
    "it is not available",
    "the user name or password is wrong",
    "this client is not allowed",
)

PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"


class PacketError(Exception):
    """A server that breaks the protocol: what, and at which byte of the packet."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"byte {at}: {what}")
        self.at = at


class Packet:
    """One packet from the server; which fields mean something depends on its kind."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.id = 0
        self.topic = ""
        self.payload = b""
        self.code = 0  # of CONNACK; of SUBACK the worst
        self.flag = False  # CONNACK: the session was present; PUBLISH: duplicate

    def describe_refusal(self) -> str:
        """Return why the server refuses the connection."""
        if self.code < len(_REFUSALS):
            return _REFUSALS[self.code]
        return f"reason {self.code}"


def write_connect(
    client: str,
    keep_alive: int,
    is_clean: bool,
    will: "tuple[str, bytes] | None" = None,
    user: "str | None" = None,
    password: "str | None" = None,
) -> bytes:
    """Return CONNECT; the will is sent with QoS 1."""
    flags = (0x02 if is_clean else 0) | (0x0C if will else 0)
    flags |= (0x80 if user is not None else 0) | (0x40 if password is not None else 0)
    body = b"\x00\x04MQTT\x04" + bytes([flags, keep_alive >> 8, keep_alive & 255])
    body += _field(client.encode())
    if will:
        body += _field(will[0].encode()) + _field(will[1])
    if user is not None:
        body += _field(user.encode())
    if password is not None:
        body += _field(password.encode())
    return _packet(0x10, body)


def write_publish(topic: str, payload: bytes, number: int = 0, is_duplicate: bool = False) -> bytes:
    """Return PUBLISH, with QoS 1 if it has a number."""
    name = _field(topic.encode())
    if not number:
        return _packet(0x30, name + payload)
    head = bytes([number >> 8, number & 255])
    return _packet(0x3A if is_duplicate else 0x32, name + head + payload)


def write_subscribe(number: int, topics: list[str]) -> bytes:
    """Return SUBSCRIBE to topics with QoS 1."""
    body = bytes([number >> 8, number & 255])
    for topic in topics:
        body += _field(topic.encode()) + b"\x01"
    return _packet(0x82, body)


def write_puback(number: int) -> bytes:
    """Return PUBACK."""
    return bytes([0x40, 2, number >> 8, number & 255])


def _field(data: bytes) -> bytes:
    return bytes([len(data) >> 8, len(data) & 255]) + data


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
        raise PacketError("a length of more than four bytes", 4)

    def _take_long(self, at: int, size: int) -> "Packet | None":
        """Pass over a packet; of a message that is to be acknowledged the id is kept."""
        data = self._data
        if data[0] >> 4 != PUBLISH:
            raise PacketError(f"a packet of kind {data[0] >> 4} has {size} bytes", 1)
        need = at
        if data[0] & 6:
            if len(data) < at + 2:
                return None
            need = at + 4 + (data[at] << 8 | data[at + 1])
            if need > at + size:
                raise PacketError("a topic beyond the end", at)
            if need > self._limit:
                raise PacketError("a topic beyond all limits", at)
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
    if kind not in _FLAGS:
        raise PacketError(f"a client gets no packet of kind {kind}", 0)
    if data[0] & 15:
        raise PacketError(f"reserved flags {data[0] & 15}", 0)
    if kind == PINGRESP:
        if size:
            raise PacketError("bytes that follow the end", at)
        return packet
    if size < 2 + (kind == SUBACK) or (kind != SUBACK and size > 2):
        raise PacketError(f"a packet of kind {kind} does not have {size} bytes", at)
    if kind == CONNACK:
        if data[at] > 1:
            raise PacketError("reserved flags", at)
        packet.flag = bool(data[at])
        packet.code = data[at + 1]
        return packet
    packet.id = _read_id(data, at)
    if kind == SUBACK:
        packet.code = max(data[at + 2 :])
        if packet.code not in (0, 1, 2, 128):
            raise PacketError(f"return code {packet.code}", at + 2)
    return packet


def _read_publish(packet: Packet, data: bytes, at: int) -> Packet:
    qos = data[0] >> 1 & 3
    if qos > 1:
        raise PacketError(f"QoS {qos}, and 1 was asked for", 0)
    if len(data) < at + 2:
        raise PacketError("ends inside the topic", len(data))
    stop = at + 2 + (data[at] << 8 | data[at + 1])
    if stop + 2 * qos > len(data):
        raise PacketError("ends inside the topic or the id", len(data))
    try:
        packet.topic = str(data[at + 2 : stop], "utf-8")
    except ValueError:  # CPython's UnicodeDecodeError is one
        raise PacketError("the topic is not UTF-8", at + 2) from None
    if qos:
        packet.id = _read_id(data, stop)
        stop += 2
    packet.payload = data[stop:]
    packet.flag = bool(data[0] & 8)
    return packet


def _read_id(data: bytes, at: int) -> int:
    number = data[at] << 8 | data[at + 1]
    if not number:
        raise PacketError("a packet id of zero", at)
    return number
