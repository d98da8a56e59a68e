"""The asyncio side of the MQTT server: TCP, TLS, WebSocket; the only file with its sockets.

A connection is counted when it is accepted (`LinkBudget`), and stays a bare socket until its first
byte: only then does it get buffers, and TLS. Few are accepted at a time, so that a crowd at the
door does not stop those who are inside. If the machine has no more files, the oldest connection
without a name is closed, and the next are accepted a moment later.

It collects what all links receive in one iteration of the event loop and passes it on as one batch,
so that one commit serves many publishers. It sends nothing by itself: whoever commits calls
`perform` afterwards. Memory is bounded: we stop reading from a link whose client does not read, and
abort it when too many bytes wait for it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterable
from typing import NamedTuple

from denwatch.node.mqtt.budgets import LinkBudget
from denwatch.node.mqtt.interface import (
    Close,
    Input,
    Limits,
    LinkBlocked,
    LinkLost,
    LinkOpened,
    LinkReceived,
    LinkRefused,
    Output,
    Pause,
    Resume,
    Send,
)
from denwatch.node.mqtt.websocket import Origins, WebSocketStream

# A connection with TLS has a buffer of this size from its first byte on. asyncio's own choice is
# 256 KiB, half a gigabyte for 2,000 strangers in the middle of a handshake. A record has 16 KiB.
SSLProtocol.max_size = 32_768
_BACKLOG = 128
_ACCEPTED_AT_ONCE = 4
_NO_FILES = 0.25  # s until the next attempt to accept
_TOO_MANY = "too many connections without a name"
_LINGERING = 64  # closed links that are still read, so that their last packet arrives


class Door(NamedTuple):
    """How connections at an address begin: with TLS, as WebSocket, of which pages (None: all)."""

    context: ssl.SSLContext | None = None
    is_websocket: bool = False
    origins: Origins | None = None


_PLAIN = Door()


class Listener:
    """Accepts connections on any number of addresses and numbers them.

    `on_input` must not raise: asyncio would log that and go on, and the batch would never be
    answered.
    """

    def __init__(
        self, on_input: Callable[[list[Input]], None], budget: LinkBudget | None = None
    ) -> None:
        self._on_input = on_input
        self.budget = budget or LinkBudget(Limits())
        self.limits = self.budget.limits
        self.links: dict[int, _Connection] = {}
        self._waiting: dict[int, _Newcomer] = {}  # connections that are not links yet
        self.lingering = 0
        self._last = 0
        self._inputs: list[Input] = []
        self._sockets: list[socket.socket] = []

    async def start(self, host: str, port: int, door: Door = _PLAIN) -> int:
        """Listen on one more address; return the port."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        opened = [_listen(family, where) for family, _, _, _, where in dict.fromkeys(found)]
        for listening in opened:
            loop.add_reader(listening, self._accept, listening, door)
        self._sockets += opened
        return int(opened[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and close all links, without reporting them as lost."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for newcomer in list(self._waiting.values()):
            newcomer.close()
        for connection in list(self.links.values()):
            connection.transport.abort()
        self.links.clear()
        await asyncio.sleep(0)  # the transports close their sockets

    # New connections ------------------------------------------------------------------------

    def _accept(self, listening: socket.socket, door: Door) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, where = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no more files, or no memory for one
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(_NO_FILES, self._accept_again, listening, door)
                self._refuse(self.budget.find_oldest(), f"no file for another: {error.strerror}")
                return
            connection.setblocking(False)
            self._last += 1
            self._waiting[self._last] = _Newcomer(self, self._last, connection, where[0], door)
            self._refuse(self.budget.admit(self._last, where[0]), _TOO_MANY)

    def _accept_again(self, listening: socket.socket, door: Door) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening, door)

    def _refuse(self, link: int, why: str) -> None:
        """Close a connection that has no name yet; 0: none."""
        newcomer, connection = self._waiting.get(link), self.links.get(link)
        if newcomer is not None:
            newcomer.refuse(why)
        elif connection is not None:
            self.report(LinkRefused(connection.address, why))
            connection.abort()

    def hear(self, link: int) -> None:
        """Note that a connection said something."""
        self._refuse(self.budget.hear(link), _TOO_MANY)

    def forget(self, link: int) -> None:
        """Forget a connection that never became a link."""
        if self._waiting.pop(link, None) is not None:
            self.budget.release(link)

    def open(self, link: int, connection: _Connection) -> bool:
        """Make a link of a connection; False: it was closed meanwhile."""
        if self._waiting.pop(link, None) is None:
            return False
        self.links[link] = connection
        self.report(LinkOpened(link, connection.address))
        return True

    # Links ----------------------------------------------------------------------------------

    def perform(self, outputs: Iterable[Output]) -> None:
        """Perform the outputs for links, with one write for each; other outputs are ignored."""
        sends: dict[int, list[bytes]] = {}
        others: list[Close | Pause | Resume] = []
        for output in outputs:
            kind = type(output)
            if kind is Send:
                sends.setdefault(output[0], []).append(output[1])  # type: ignore[arg-type, misc]
            elif kind is Close or kind is Pause or kind is Resume:
                others.append(output)  # type: ignore[arg-type]
        for link, chunks in sends.items():
            self.send(link, chunks[0] if len(chunks) == 1 else b"".join(chunks))
        for other in others:
            connection = self.links.get(other.link)
            if connection is None:
                continue
            if type(other) is Close:
                connection.close()
            else:
                connection.hold(type(other) is Pause)

    def send(self, link: int, data: bytes) -> None:
        """Send now; a link that is gone or closed is ignored."""
        connection = self.links.get(link)
        if connection is not None:
            connection.send(data)

    def close(self, link: int) -> None:
        """Close a link after what was sent."""
        connection = self.links.get(link)
        if connection is not None:
            connection.close()

    def report(self, event: Input) -> None:
        """Add an input to the batch that is passed on when all ready sockets were read."""
        if not self._inputs:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._inputs.append(event)

    def _hand_over(self) -> None:
        inputs, self._inputs = self._inputs, []
        self._on_input(inputs)


def _listen(family: int, where: tuple[object, ...]) -> socket.socket:
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        door.bind(where)
        door.listen(_BACKLOG)
        door.setblocking(False)
    except BaseException:
        door.close()
        raise
    return door


class _Newcomer:
    """A connection before it is a link: a socket that said nothing, then perhaps TLS."""

    def __init__(
        self,
        listener: Listener,
        link: int,
        connection: socket.socket,
        address: str,
        door: Door,
    ) -> None:
        self._listener = listener
        self._link = link
        self._socket = connection
        self._address = address
        self._door = door
        self._opening: asyncio.Task[None] | None = None
        self._has_transport = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection, self._wake)
        delay = listener.limits.connect_ms / 1000
        self._timer = self._loop.call_later(delay, self.refuse, "no CONNECT in time")

    def _wake(self) -> None:
        """Begin, or close what was closed without a word."""
        self._loop.remove_reader(self._socket)
        try:
            is_over = not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            is_over = True
        if is_over:
            self.close()
        else:
            self._opening = self._loop.create_task(self._open())
            self._listener.hear(self._link)

    async def _open(self) -> None:
        self._has_transport = True  # or it will have one, which closes the socket
        try:
            await self._loop.connect_accepted_socket(
                self._make_connection, self._socket, ssl=self._door.context
            )
        except (OSError, asyncio.CancelledError):  # a handshake that failed, or was ended
            self.close()
        finally:
            self._timer.cancel()

    def _make_connection(self) -> _Connection:
        if not self._door.is_websocket:
            return _Connection(self._listener, self._link, self._address)
        stream = WebSocketStream(self._listener.limits, self._door.origins)
        return _WebSocketConnection(self._listener, self._link, self._address, stream)

    def refuse(self, why: str) -> None:
        """Close it, and report that."""
        self._listener.report(LinkRefused(self._address, why))
        self.close()

    def close(self) -> None:
        """Close it; nothing is reported."""
        self._timer.cancel()
        self._listener.forget(self._link)
        if self._opening is not None:
            self._opening.cancel()
        if not self._has_transport:
            self._loop.remove_reader(self._socket)
            self._socket.close()


class _Connection(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, listener: Listener, link: int, address: str) -> None:
        self.address = address
        self._listener = listener
        self._link = link
        self._is_blocked = False  # by a client that does not read
        self._is_held = False  # by the server
        self._is_closed = False
        self._is_lingering = False
        self._farewell: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if not self._listener.open(self._link, self):
            self.abort()
            return
        transport.set_write_buffer_limits(high=self._listener.limits.buffer_bytes)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _probe_silent(raw, self._listener.limits.keep_alive_s)

    def data_received(self, data: bytes) -> None:
        if not self._is_closed:
            self._listener.report(LinkReceived(self._link, data))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._is_closed = True
        if self._farewell is not None:
            self._farewell.cancel()
        self._listener.lingering -= self._is_lingering
        self._is_lingering = False
        self._listener.budget.release(self._link)
        if self._listener.links.pop(self._link, None) is not None:
            self._listener.report(LinkLost(self._link))

    def pause_writing(self) -> None:
        self._is_blocked = True
        self._apply()
        self._listener.report(LinkBlocked(self._link, True))

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._apply()
        self._listener.report(LinkBlocked(self._link, False))

    def send(self, data: bytes) -> None:
        if self._is_closed:
            return
        transport = self.transport
        transport.write(data)
        if (
            self._is_blocked
            and transport.get_write_buffer_size() > self._listener.limits.buffer_limit_bytes
        ):
            self.abort()

    def abort(self) -> None:
        self._is_closed = True
        self.transport.abort()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # A socket that is closed with something unread resets the connection: the client would lose
        # what it was told last. So it is read, and ignored, until the client closes its side.
        transport = self.transport
        if transport.can_write_eof() and self._listener.lingering < _LINGERING:
            try:
                transport.write_eof()
            except OSError:  # the client was faster
                transport.abort()
                return
            self._is_lingering = True
            self._listener.lingering += 1
            transport.resume_reading()
        else:
            transport.close()
        # A client that does not read would keep what was sent, and the socket, for ever.
        delay = self._listener.limits.farewell_ms / 1000
        loop = asyncio.get_running_loop()
        self._farewell = loop.call_later(delay, self.transport.abort)

    def hold(self, is_held: bool) -> None:
        """Stop reading, or read again, as the server asks."""
        self._is_held = is_held
        self._apply()

    def _apply(self) -> None:
        if self._is_closed or self.transport.is_closing():
            return
        if self._is_held or self._is_blocked:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()


class _WebSocketConnection(_Connection):
    """A connection whose bytes are within WebSocket."""

    def __init__(
        self, listener: Listener, link: int, address: str, stream: WebSocketStream
    ) -> None:
        super().__init__(listener, link, address)
        self._stream = stream

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        found = self._stream.receive(data)
        answer = self._stream.take_answer()
        if answer:
            super().send(answer)
        if found:
            super().data_received(found)
        if self._stream.fault:
            super().close()

    def send(self, data: bytes) -> None:
        wrapped = self._stream.wrap(data)
        if wrapped:
            super().send(wrapped)

    def close(self) -> None:
        if not self._is_closed:
            farewell = self._stream.close()
            if farewell:
                super().send(farewell)
        super().close()


def _probe_silent(raw: socket.socket, seconds: int) -> None:
    """Let the system end a connection whose other end is gone, after 1.5 times so many seconds.

    A client of 3.1.1 may ask for a keep-alive of hours, or for none: it then sends nothing, and
    only its machine can say that it is still there.
    """
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        probes = 3
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, min(seconds, 32_767))
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // (2 * probes)))
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes)
        # Probes are not sent while something is unacknowledged.
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_500 * seconds)
