"""An MQTT 3.1.1 client without sockets, for the nodes of `durability_world`.

The only file here that knows packets. It connects again when its link is gone; what is said, and
said again, its kinds decide.
"""

from __future__ import annotations

from benchmarks.durability_world import Host

PATIENCE = 6  # rounds before something is said again


class Client:
    """An MQTT 3.1.1 client: packets out, packets in."""

    def __init__(self, host: Host, user: str, topics: tuple[str, ...], is_clean: bool) -> None:
        self.host = host
        self.user = user
        self.topics = topics
        self.is_clean = is_clean
        self.is_away = False
        self.is_ready = False  # connected and subscribed
        self._link = 0
        self._mid = 0
        self._buffer = b""
        self._waits = 0

    def act(self) -> None:
        """Do what this round asks for."""
        if self._link not in self.host.links:
            if self.is_ready:
                self.fall()
            self.is_ready = False
            self._link = 0
        if self._link == 0:
            if self.host.is_up and not self.is_away:
                self._connect()
        elif self.is_away:
            self.host.drop(self._link)
        elif self.is_ready:
            self._waits += 1
            self.speak(is_late=self._waits % PATIENCE == 0)

    def note_progress(self) -> None:
        """Let the next thing be said at once."""
        self._waits = -1

    def speak(self, is_late: bool) -> None:
        """Say what is to be said; `is_late`: also what was said before and not acknowledged."""

    def rise(self) -> None:
        """The connection is there."""

    def fall(self) -> None:
        """The connection is gone."""

    def receive(self, topic: str, payload: bytes, mid: int) -> None:
        """Take a message."""

    def published(self, mid: int) -> None:
        """Note a PUBACK."""

    def publish(self, topic: str, payload: bytes) -> int:
        """Publish with QoS 1; return the message's number."""
        self._mid += 1
        raw = topic.encode()
        body = len(raw).to_bytes(2, "big") + raw + self._mid.to_bytes(2, "big") + payload
        self.host.send(self._link, _frame(0x32, body))
        return self._mid

    def acknowledge(self, mid: int) -> None:
        """Send a PUBACK."""
        if mid and self._link in self.host.links:
            self.host.send(self._link, b"\x40\x02" + mid.to_bytes(2, "big"))

    def _connect(self) -> None:
        self._buffer = b""
        self._waits = -1
        self._link = self.host.open(self._take)
        flags = 0x80 | (0x02 if self.is_clean else 0)
        name = f"{self.user}-client".encode()
        body = b"\x00\x04MQTT\x04" + bytes([flags, 0, 0]) + _text(name) + _text(self.user.encode())
        data = _frame(0x10, body)
        if self.topics:
            self._mid += 1
            asked = b"".join(_text(topic.encode()) + b"\x01" for topic in self.topics)
            data += _frame(0x82, self._mid.to_bytes(2, "big") + asked)
        self.host.send(self._link, data)

    def _take(self, data: bytes) -> None:
        self._buffer += data
        while (found := _find_end(self._buffer)) is not None:
            start, end = found
            first, body = self._buffer[0], self._buffer[start:end]
            self._buffer = self._buffer[end:]
            self._take_packet(first, body)

    def _take_packet(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == 2:
            assert body[1] == 0, f"{self.user} is refused: {body[1]}"
        if kind == (9 if self.topics else 2):
            self.is_ready = True
            self.rise()
        elif kind == 4:
            self.published(int.from_bytes(body[:2], "big"))
        elif kind == 3:
            size = int.from_bytes(body[:2], "big")
            topic, rest = body[2 : 2 + size].decode(), body[2 + size :]
            has_number = bool(first >> 1 & 3)
            mid = int.from_bytes(rest[:2], "big") if has_number else 0
            self.receive(topic, rest[2:] if has_number else rest, mid)


def _text(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def _frame(first: int, body: bytes) -> bytes:
    size, head = len(body), bytearray([first])
    while True:
        head.append(size & 127 | (128 if size > 127 else 0))
        size >>= 7
        if not size:
            return bytes(head) + body


def _find_end(data: bytes) -> tuple[int, int] | None:
    """Return where the body of the first packet begins and ends; None: it is not whole."""
    size = shift = 0
    for at in range(1, len(data)):
        size |= (data[at] & 127) << shift
        shift += 7
        if not data[at] & 128:
            end = at + 1 + size
            return (at + 1, end) if end <= len(data) else None
    return None
