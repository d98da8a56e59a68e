"""The MQTT link on asyncio: one connection at a time to the first server that answers; and the
wireless network below it, joined again when it is lost.

`packets.py` says why this client is ours. What it does that umqtt does not: one write a packet,
packet ids that wrap, a bounded window of messages in flight, subscribing again after every
connection, a limit on the time of everything, back-off with jitter, several servers in order of
preference, TLS that verifies. The only file that opens a connection; `dial`, `clock` (ms, never
back) and `rng` (an integer below its argument) are handed in.
"""

import asyncio

from ..protocol.degrees import const
from . import packets
from .packets import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, Protocol

    class MqttClient(Protocol):
        """Whose messages a link carries: on a device, its `Uplink`."""

        name: str
        topics: list[str]  # to subscribe to after every connection
        will: tuple[str, bytes] | None  # topic and payload that the server sends when it is gone

        def connect(self, node: str) -> None:
            """Start with a node: its server has accepted the connection."""

        def receive(self, topic: str, payload: bytes, now: int) -> object:
            """Process a message from the node."""


_CHUNK = 256
_JOIN = const(15_000)  # ms for one wireless network

_Timeout = asyncio.TimeoutError  # on MicroPython there is no other

# What ends a connection and not the link; a full memory is among it.
_FAILURES = (OSError, EOFError, ValueError, MemoryError, _Timeout)


class NodeAddress:
    """Where a node is to be reached; `context` is of TLS, None for a link within the machine."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        context: "Any" = None,
        user: "str | None" = None,
        password: "str | None" = None,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.context = context
        self.user = user
        self.password = password


class LinkSettings:
    """Times in seconds and sizes of a link."""

    keep_alive = 60
    timeout = 10  # of a connection, of each answer, of each write
    window = 4  # messages in flight
    limit = 2048  # bytes of a packet from the server
    first_delay = 1
    longest_delay = 60
    return_after = 600  # from a lesser server to a better one

    def __init__(self, **changes: int) -> None:
        for name in changes:
            getattr(self, name)  # an AttributeError names what there is not
            setattr(self, name, changes[name])


async def dial(server: NodeAddress) -> "tuple[Any, Any]":
    """Open a connection; with TLS the certificate is verified for the server's host name."""
    name = server.host if server.context else None
    return await asyncio.open_connection(
        server.host,
        server.port,
        ssl=server.context,
        server_hostname=name,
    )


def make_context(authority: "Any") -> "Any":
    """Return a TLS context that trusts one certificate authority (DER or PEM) and nobody else."""
    try:
        # MicroPython's; the ssl of micropython-lib verifies nothing.
        from tls import PROTOCOL_TLS_CLIENT, SSLContext
    except ImportError:  # CPython
        from ssl import PROTOCOL_TLS_CLIENT, SSLContext

        authority = None, None, str(authority, "ascii") if authority[:1] == b"-" else authority
    else:
        authority = (authority,)
    context = SSLContext(PROTOCOL_TLS_CLIENT)  # requires a certificate by default
    context.load_verify_locations(*authority)
    return context


def find_delay(attempt: int, settings: LinkSettings, rng: "Callable[[int], int]") -> int:
    """Return the ms to wait after so many failures: doubled each time, half of it by chance."""
    longest = settings.longest_delay * 1000
    delay = settings.first_delay * 1000
    while attempt > 0 and delay < longest:
        delay *= 2
        attempt -= 1
    delay = min(delay, longest)
    return delay // 2 + rng(delay // 2 + 1)


class DeviceLink:
    """Connects its client to one of the servers, and connects again when that ends."""

    def __init__(
        self,
        client: "MqttClient",
        servers: list[NodeAddress],
        clock: "Callable[[], int]",
        rng: "Callable[[int], int]",
        settings: "LinkSettings | None" = None,
        dial: "Callable[[NodeAddress], Awaitable[tuple[Any, Any]]]" = dial,
    ) -> None:
        self._client = client
        self._servers = servers
        self._clock = clock
        self._rng = rng
        self._settings = settings or LinkSettings()
        self._dial = dial
        self._flights: dict[int, asyncio.Event] = {}  # messages that wait for their PUBACK
        self._landed: set[int] = set()  # those that got it, until `publish` has seen it
        self._room = asyncio.Event()
        self._lock = asyncio.Lock()
        self._last_id = 0
        self._writer: Any = None  # asyncio's, of either runtime
        self._sent_at = 0
        self.server: NodeAddress | None = None  # the one that this link is connected to
        self.counts = {"connected": 0, "failed": 0, "lost": 0, "too_long": 0}
        self.reason = ""  # of the last failure

    async def publish(self, topic: str, payload: bytes) -> bool:
        """Send with QoS 1; return whether the server acknowledged it.

        When the connection breaks the answer is False, and the message is forgotten: it says how
        old things are, so who wants it sent again builds it anew.
        """
        while len(self._flights) >= self._settings.window:
            self._room.clear()
            await self._room.wait()
        if self.server is None:
            return False
        number = self._take_id()
        self._flights[number] = event = asyncio.Event()
        try:
            await self._write(packets.write_publish(topic, payload, number))
        except (_Timeout, OSError):
            self._hang_up()
        await event.wait()
        is_done = number in self._landed
        self._landed.discard(number)
        return is_done

    async def run(self) -> None:
        """Keep a connection, for ever: always starting with the server that is preferred."""
        attempt = 0
        while True:
            for server in self._servers:
                since = self._clock()
                if await self._serve(server):
                    if self._clock() - since > 30_000:
                        attempt = -1
                    break
            attempt += 1
            await asyncio.sleep(find_delay(attempt - 1, self._settings, self._rng) / 1000)

    async def _serve(self, server: NodeAddress) -> bool:
        """Use one server until that ends; return whether there was a connection."""
        timeout = self._settings.timeout
        was_connected = False
        try:
            reader, self._writer = await asyncio.wait_for(self._dial(server), timeout)
            parser = Parser(self._settings.limit)
            await self._greet(server, reader, parser)
            was_connected = True
            await self._listen(server, reader, parser)
            self.reason = ""
        except _FAILURES as error:
            self.reason = server.name + ": " + (str(error) or type(error).__name__)
            self.counts["lost" if was_connected else "failed"] += 1
        finally:
            self.server = None
            await self._close()
            for number in list(self._flights):
                self._land(number)
        return was_connected

    async def _greet(self, server: NodeAddress, reader: "Any", parser: Parser) -> None:
        """CONNECT and SUBSCRIBE."""
        client = self._client
        settings = self._settings
        await self._write(
            packets.write_connect(
                client.name, settings.keep_alive, client.will, server.user, server.password
            )
        )
        answer = await self._await_packet(reader, parser, packets.CONNACK)
        if answer.code:
            raise OSError("refused, " + str(answer.code))  # MQTT's return code
        client.connect(server.name)  # before SUBSCRIBE: a session that stayed sends at once
        if client.topics:
            await self._write(packets.write_subscribe(self._take_id(), client.topics))
            if (await self._await_packet(reader, parser, packets.SUBACK)).code == 128:
                raise OSError("no subscription")
        self.server = server
        self.counts["connected"] += 1

    async def _await_packet(self, reader: "Any", parser: Parser, kind: int) -> packets.Packet:
        while True:
            packet = parser.take()
            while packet is None:
                await self._receive(reader, parser, self._settings.timeout)
                packet = parser.take()
            if packet.kind == kind:
                return packet
            await self._handle(packet)

    async def _listen(self, server: NodeAddress, reader: "Any", parser: Parser) -> None:
        """Handle packets; ping when it is quiet; end when a better server may be back."""
        half = self._settings.keep_alive * 500
        is_better = server is self._servers[0]
        until = self._clock() + self._settings.return_after * 1000
        is_pinged = False
        while True:
            packet = parser.take()
            while packet is not None:
                is_pinged = False
                await self._handle(packet)
                packet = parser.take()
            now = self._clock()
            if not is_better and now >= until and not self._flights:
                await self._write(packets.DISCONNECT)
                return
            if now - self._sent_at >= half and not is_pinged:
                is_pinged = True
                await self._write(packets.PINGREQ)
            try:
                await self._receive(reader, parser, max(half / 1000, 0.5))
            except _Timeout:
                if is_pinged or self._flights:
                    raise OSError("silent") from None

    async def _receive(self, reader: "Any", parser: Parser, timeout: float) -> None:
        data = await asyncio.wait_for(reader.read(_CHUNK), timeout)
        if not data:
            raise OSError("closed")
        parser.feed(data)

    async def _handle(self, packet: packets.Packet) -> None:
        if packet.kind == packets.PUBACK:
            if packet.id in self._flights:
                self._landed.add(packet.id)
                self._land(packet.id)
            return
        if packet.kind == packets.PUBLISH:
            self._client.receive(packet.topic, packet.payload, self._clock())
        elif packet.kind == packets.TOO_LONG:
            self.counts["too_long"] += 1
        if packet.id:
            await self._write(packets.write_puback(packet.id))

    def _land(self, number: int) -> None:
        self._flights.pop(number).set()
        self._room.set()

    def _take_id(self) -> int:
        """Return the next packet id that is not in flight: 1 to 65,535, and from the start."""
        while True:
            self._last_id = self._last_id % 65535 + 1
            if self._last_id not in self._flights and self._last_id not in self._landed:
                return self._last_id

    async def _write(self, packet: bytes) -> None:
        """Write a packet as one; two tasks must not wait for the same socket."""
        await self._lock.acquire()
        try:
            writer = self._writer
            if writer is None:
                raise OSError("no connection")
            self._sent_at = self._clock()
            writer.write(packet)
            await asyncio.wait_for(writer.drain(), self._settings.timeout)
        finally:
            self._lock.release()

    def _hang_up(self) -> None:
        """Close without a word; the reading task notices."""
        if self._writer is not None:
            self._writer.close()

    async def _close(self) -> None:
        writer = self._writer
        self._writer = None
        if writer is not None:
            try:
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), self._settings.timeout)
            except (_Timeout, OSError):
                pass


class WifiTask:
    """Keeps a wireless network: `networks` is a list of {"name", "password"}, or one of them.

    They are tried in their order, each for 15 s; when none answers, the next attempt waits, longer
    each time. Which radio there is, `board.py` knows.
    """

    def __init__(
        self,
        board: "Any",
        networks: "Any",
        clock: "Callable[[], int]",
        rng: "Callable[[int], int]",
        log: "Callable[[str], None]",
    ) -> None:
        self._board = board
        self._networks = networks if isinstance(networks, list) else [networks]
        self._clock = clock
        self._rng = rng
        self._log = log
        self._settings = LinkSettings()

    async def run(self) -> None:
        """Join, watch, join again."""
        attempt = 0
        while True:
            if self._board.is_joined():
                attempt = 0
                await asyncio.sleep(1)
                continue
            count = len(self._networks)
            if await self._join(self._networks[attempt % count]):
                continue
            attempt += 1
            if attempt % count == 0:
                delay = find_delay(attempt // count - 1, self._settings, self._rng)
                await asyncio.sleep(delay / 1000)

    async def _join(self, network: "dict[str, str]") -> bool:
        self._board.join_wifi(network["name"], network["password"])
        until = self._clock() + _JOIN
        while not self._board.is_joined():
            if self._clock() >= until:
                self._log("no Wi-Fi: " + network["name"])
                return False
            await asyncio.sleep(0.1)
        return True
