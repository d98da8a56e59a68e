"""The asyncio side of the MQTT server: TCP and TLS; the only file with its sockets.

It collects what all links receive in one iteration of the event loop and passes it on as one batch,
so that one commit serves many publishers. It sends nothing by itself: whoever commits calls
`perform` afterwards. Memory is bounded: we stop reading from a link whose client does not read, and
abort it when too many bytes wait for it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable

from denwatch.node.mqtt.interface import (
    Close,
    Input,
    Limits,
    LinkBlocked,
    LinkLost,
    LinkOpened,
    LinkReceived,
    Output,
    Pause,
    Resume,
    Send,
)


class Listener:
    """Accepts connections on any number of addresses and numbers them.

    `on_input` must not raise: asyncio would log that and go on, and the batch would never be
    answered.
    """

    def __init__(self, on_input: Callable[[list[Input]], None], limits: Limits | None = None):
        self._on_input = on_input
        self.limits = limits or Limits()
        self.links: dict[int, _Connection] = {}
        self._last = 0
        self._inputs: list[Input] = []
        self._servers: list[asyncio.Server] = []

    async def start(self, host: str, port: int, context: ssl.SSLContext | None = None) -> int:
        """Listen on one more address, with TLS if there is a context; return the port."""
        timeout = self.limits.connect_ms / 1000 if context else None
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), host, port, ssl=context, ssl_handshake_timeout=timeout
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and close all links, without reporting them as lost."""
        for server in self._servers:
            server.close()
        for connection in list(self.links.values()):
            connection.transport.abort()
        self.links.clear()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

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

    def admit(self, connection: _Connection) -> int:
        """Return the number of a new connection; 0: there are too many."""
        if len(self.links) >= self.limits.links:
            return 0
        self._last += 1
        self.links[self._last] = connection
        return self._last

    def report(self, event: Input) -> None:
        """Add an input to the batch that is passed on when all ready sockets were read."""
        if not self._inputs:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._inputs.append(event)

    def _hand_over(self) -> None:
        inputs, self._inputs = self._inputs, []
        self._on_input(inputs)


class _Connection(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._link = 0
        self._is_blocked = False  # by a client that does not read
        self._is_held = False  # by the server
        self._is_closed = False
        self._farewell: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._link = self._listener.admit(self)
        if not self._link:
            self._is_closed = True
            transport.abort()
            return
        transport.set_write_buffer_limits(high=self._listener.limits.buffer_bytes)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._listener.report(LinkOpened(self._link))

    def data_received(self, data: bytes) -> None:
        if not self._is_closed:
            self._listener.report(LinkReceived(self._link, data))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._is_closed = True
        if self._farewell is not None:
            self._farewell.cancel()
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
            self._is_closed = True
            transport.abort()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.transport.close()
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
