"""The client of the node's benchmark: raw MQTT 3.1.1 on asyncio, the same for every server.

It costs a few microseconds a message, so that servers are compared and not clients. A publisher
keeps a window of unacknowledged messages under way; a receiver acknowledges whatever comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import cast

_PATIENCE = 120.0  # s without any progress


class Login:
    """Who connects: empty for a server that lets everybody in."""

    def __init__(self, client: str, user: str = "", password: str = "") -> None:
        self.client = client
        self.user = user
        self.password = password


def write_connect(login: Login, is_clean: bool) -> bytes:
    """Return CONNECT, without keep-alive."""
    flags = (2 if is_clean else 0) | (0xC0 if login.user else 0)
    body = _field("MQTT") + bytes((4, flags, 0, 0)) + _field(login.client)
    if login.user:
        body += _field(login.user) + _field(login.password)
    return b"\x10" + _length(len(body)) + body


def write_subscribe(topics: Sequence[str]) -> bytes:
    """Return SUBSCRIBE with QoS 1."""
    body = b"\0\1" + b"".join(_field(topic) + b"\1" for topic in topics)
    return b"\x82" + _length(len(body)) + body


def write_publish(topic: str, payload: bytes) -> tuple[bytes, bytes]:
    """Return PUBLISH with QoS 1, as what comes before its packet id and what comes after."""
    name = _field(topic)
    return b"\x32" + _length(len(name) + 2 + len(payload)) + name, payload


def _field(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def _length(size: int) -> bytes:
    out = bytearray()
    while True:
        size, low = size >> 7, size & 127
        out.append(low | (128 if size else 0))
        if not size:
            return bytes(out)


class Client(asyncio.Protocol):
    """One connection: `on_note(payload)` is called for every message."""

    transport: asyncio.Transport

    def __init__(self, on_note: Callable[[bytes], None] | None = None) -> None:
        self.acknowledged = 0
        self.received = 0
        self.on_puback: Callable[[int], None] | None = None
        self._on_note = on_note
        self._part = bytearray()
        self._needed = 0  # bytes of the part before it is looked at again
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._answers.put_nowait(b"")

    def data_received(self, data: bytes) -> None:
        if self._part:
            self._part += data
            if len(self._part) < self._needed:
                return
            data = bytes(self._part)
        at, total = 0, len(data)
        acks: list[bytes] = []
        pubacks = 0
        while at + 2 <= total:
            first, size, body, shift = data[at], data[at + 1] & 127, at + 2, 7
            while data[body - 1] > 127 and body < total:
                size |= (data[body] & 127) << shift
                body, shift = body + 1, shift + 7
            end = body + size
            if end > total or data[body - 1] > 127:
                break
            if first == 0x40:
                pubacks += 1
            elif first >> 4 == 3:
                start = body + 2 + (data[body] << 8 | data[body + 1])
                if first & 6:
                    acks.append(b"\x40\x02" + data[start : start + 2])
                    start += 2
                self.received += 1
                if self._on_note is not None:
                    self._on_note(data[start:end])
            else:
                self._answers.put_nowait(data[at:end])
            at = end
        self._part = bytearray(data[at:])
        self._needed = _find_end(self._part)
        if acks:
            self.transport.write(b"".join(acks))
        if pubacks:
            self.acknowledged += pubacks
            if self.on_puback is not None:
                self.on_puback(pubacks)

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe with QoS 1 to all of them in one packet."""
        self.transport.write(write_subscribe(topics))
        await self.answer()

    async def answer(self) -> bytes:
        """Return the next CONNACK or SUBACK."""
        found = await asyncio.wait_for(self._answers.get(), _PATIENCE)
        if not found or (found[0] == 0x20 and found[3]) or (found[0] == 0x90 and 0x80 in found[4:]):
            raise ConnectionError(f"the server refused: {found.hex() or 'closed'}")
        return found


async def connect(
    port: int,
    login: Login,
    topics: Sequence[str] = (),
    *,
    is_clean: bool = True,
    on_note: Callable[[bytes], None] | None = None,
) -> Client:
    """Return a client that is connected, and subscribed."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Client(on_note), "127.0.0.1", port)
    client.transport.write(write_connect(login, is_clean))
    await client.answer()
    if topics:
        await client.subscribe(topics)
    return client


def _find_end(part: bytes | bytearray) -> int:
    """Return how long a packet is that has begun; 0 if its length is not there yet."""
    size = 0
    for place, byte in enumerate(part[1:5]):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            return 2 + place + size
    return 0


class Publisher:
    """Publishes messages of one client with a window; `sent_at` has the time of each."""

    def __init__(self, client: Client, topic: str, payloads: Sequence[bytes], window: int) -> None:
        self.sent_at: list[float] = []
        self._client = client
        self._packets = [write_publish(topic, payload) for payload in payloads]
        self._window = window
        self._flying = 0
        self._next = 0
        self._limit: int | None = None
        client.on_puback = self._take_pubacks

    @property
    def is_done(self) -> bool:
        """Whether all are acknowledged."""
        return self._next == len(self._packets) and not self._flying

    def go_on(self, limit: int | None = None) -> None:
        """Send what the window allows, up to the message with this number."""
        self._limit = limit
        last = len(self._packets) if limit is None else min(limit, len(self._packets))
        last = min(last, self._next + self._window - self._flying)
        if last <= self._next:
            return
        chunks = []
        for number in range(self._next, last):
            start, payload = self._packets[number]
            chunks.append(start + (number % 60_000 + 1).to_bytes(2, "big") + payload)
        now = time.perf_counter()
        self.sent_at += [now] * (last - self._next)
        self._flying += last - self._next
        self._next = last
        self._client.transport.write(b"".join(chunks))

    def _take_pubacks(self, count: int) -> None:
        self._flying -= count
        self.go_on(self._limit)

    async def run_paced(self, rate: float) -> None:
        """Send evenly, so many a second, whatever comes back."""
        self._client.on_puback = self._count_only
        self._window = len(self._packets)
        started = time.perf_counter()
        while self._next < len(self._packets):
            self.go_on(int((time.perf_counter() - started) * rate) + 1)
            await asyncio.sleep(0.001)

    def _count_only(self, count: int) -> None:
        self._flying -= count


async def wait_until(is_done: Callable[[], bool], progress: Callable[[], int]) -> None:
    """Wait; TimeoutError if nothing has moved for too long."""
    seen, since = progress(), time.monotonic()
    while not is_done():
        await asyncio.sleep(0.002)
        now = progress()
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > _PATIENCE:
            raise TimeoutError(f"nothing came for {_PATIENCE:.0f} s after {seen}")
