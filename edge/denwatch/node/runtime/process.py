"""A running node: listener, connections, store, log and clock around one station.

Everything that changes the node happens in one thread, in `_take`, `_flush` and `_tick`; each ends
with one commit for all that came together, and only then with what is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from denwatch.node.config import NodeConfig, ServerAddress
from denwatch.node.config.loading import is_loopback
from denwatch.node.core.interface import PEERS, REPLIES, STATUS, Event, Publish
from denwatch.node.core.subscribers.replies import encode_question
from denwatch.node.log import DiskFiles, Writer
from denwatch.node.mqtt.interface import Input
from denwatch.node.mqtt.listener import Listener
from denwatch.node.runtime.build import Assembly
from denwatch.node.runtime.clock import SteadyClock
from denwatch.node.runtime.discovery import Discovery, list_addresses
from denwatch.node.runtime.links import Address as LinkAddress
from denwatch.node.runtime.links import BrokerConnection, Connection, PeerConnection
from denwatch.node.runtime.metrics import Metrics
from denwatch.node.runtime.segments import remove_old_segments
from denwatch.node.runtime.status import encode_status
from denwatch.node.store import Store

_log = logging.getLogger("denwatch.node")
TICK = 0.25  # s
_PRUNE_EVERY = 3_600_000  # ms
_HINTS = 1_000  # announced names that are kept
_LOG_BATCH = 20_000  # records moved to the segments at a time


class Process:
    """One node between start and stop. Raises what the store raises: see `denwatch.cli.node`."""

    def __init__(
        self, config: NodeConfig, assembly: Assembly, store: Store, clock: SteadyClock
    ) -> None:
        self.config = config
        self.assembly = assembly
        self.station = assembly.station
        self.clock = clock
        self.ports: list[int] = []
        self.metrics_port = 0
        self._store = store
        self._started = clock.read()
        self._listener = Listener(self._take, assembly.limits)
        self._connections: dict[str, Connection] = {}
        self._hints: dict[str, ServerAddress] = {}  # where peers are by their announcements
        self._broker: BrokerConnection | None = None
        self._arrived: list[tuple[Event, Callable[[], None] | None]] = []
        self._failure: BaseException | None = None
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._metrics = Metrics(config.name, self._read_gauges)
        assembly.counter.target = self._metrics.count
        self._discovery = Discovery(config.name, self._found)
        self._log_folder = config.data / "log"
        self._prune_at = 0
        self._writer = Writer(
            store,
            DiskFiles(str(self._log_folder)),
            segment_bytes=config.log.segment_bytes,
            segment_age=config.log.rotate_seconds * 1000,
        )
        self._generation = assembly.keyring.generation

    # Life -----------------------------------------------------------------------------------

    async def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop` is called or the store fails."""
        self._log_start(self.clock.read())
        self._commit()
        try:
            await self._open()
            started()
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), TICK)
                if self._failure is None:
                    self._guard(self._tick)
                    await self._move_log()
            if self._failure is not None:
                raise self._failure
        finally:
            await self._close()

    def _log_start(self, now: int) -> None:
        self.station.log("start", self.assembly.describe_start(), now)
        wall = self.assembly.clocks.wall
        if wall:  # the sum of a run's records is what the machine's clock is ahead of their times
            self.station.log("clock", {"offset": wall, "source": "start"}, now)

    def stop(self) -> None:
        """Ask for the end; `run` returns after it."""
        self._stopping.set()

    async def _open(self) -> None:
        config = self.config
        if config.broker is not None:
            context = (
                make_client_context(config.broker.ca) if config.broker.address.has_tls else None
            )
            where = config.broker.address
            self._broker = BrokerConnection(
                config.name,
                LinkAddress(
                    where.host, where.port, config.broker.user, config.broker.password, context
                ),
                self._deliver,
                self._rejoin,
            )
            self._broker.start()
        else:
            for address in config.listen:
                server = make_server_context(config) if address.has_tls else None
                self.ports.append(await self._listener.start(address.host, address.port, server))
        for peer in config.peers:
            self._connect(peer.name, peer.address)
        if config.metrics is not None:
            self.metrics_port = self._metrics.serve(config.metrics.host, config.metrics.port)
        if config.has_zeroconf and config.broker is None:
            await asyncio.to_thread(self._announce)

    async def _close(self) -> None:
        await asyncio.to_thread(self._close_connections)
        if self._failure is None:
            self._guard(self._say_goodbye)
        await self._listener.stop()
        if self._failure is None:
            self._writer.close(self.clock.read())
        self._metrics.stop()

    def _close_connections(self) -> None:
        self._discovery.stop()
        for connection in [*self._connections.values(), self._broker]:
            if connection is not None:
                connection.stop()

    # Input ----------------------------------------------------------------------------------

    def _take(self, inputs: list[Input]) -> None:
        """Take what all links brought in one turn of the loop."""
        self._guard(lambda: self._take_all(inputs))

    def _take_all(self, inputs: list[Input]) -> None:
        now = self.clock.read()
        for event in inputs:
            self.station.take(event, now)
        self._commit()

    def _deliver(self, event: Event, committed: Callable[[], None] | None) -> None:
        """Take an event in a connection's own thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are leaving
            self._loop.call_soon_threadsafe(self._arrive, event, committed)

    def _arrive(self, event: Event, committed: Callable[[], None] | None) -> None:
        if not self._arrived:
            self._loop.call_soon(self._guard, self._flush)
        self._arrived.append((event, committed))

    def _flush(self) -> None:
        arrived, self._arrived = self._arrived, []
        now = self.clock.read()
        for event, committed in arrived:
            self.station.deliver(event, now, committed)
        self._commit()

    def _tick(self) -> None:
        jump = self.clock.find_jump()
        now = self.clock.read()
        if jump:
            _log.warning("the clock was set by %.3f s", jump / 1000)
            self.station.set_clock(jump, now)
        self._reload_keys(now)
        self._follow_hints()
        self.station.tick(now)
        if self.assembly.status.is_due(now):
            self._publish_status(now)
        self._commit()

    def _guard(self, work: Callable[[], None]) -> None:
        """Do some work; a failure ends the run, because memory may be ahead of the disk."""
        if self._failure is not None:
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again by `run`
            self._failure = error
            self._stopping.set()

    # Output ---------------------------------------------------------------------------------

    def _commit(self) -> None:
        effects = self.station.commit()
        self._listener.perform(effects.outputs)
        for publish in effects.outgoing:
            self._send(publish)
        for committed in effects.committed:
            committed()

    def _send(self, publish: Publish) -> None:
        # A node at a broker may have peers with servers of their own, too.
        connection = self._connections.get(publish.topic.removeprefix(PEERS))
        if connection is not None and (connection.is_up or self._broker is None):
            connection.send(publish)
        elif self._broker is not None:
            self._broker.send(publish)

    async def _move_log(self) -> None:
        """Move log records to the segments; the disk's work is done in another thread."""
        if self._failure is not None:
            return
        batch = self._writer.take(_LOG_BATCH)
        try:
            await asyncio.to_thread(self._writer.write, batch, self.clock.read())
        except OSError as error:
            _log.error("the log cannot be written: %s; its records wait in the store", error)
            return
        self._guard(self._writer.settle)
        if self.clock.read() >= self._prune_at:
            self._prune_at = self.clock.read() + _PRUNE_EVERY
            days = self.config.log.keep_days
            removed = await asyncio.to_thread(
                remove_old_segments, self._log_folder, days, self.clock.read()
            )
            if removed:
                _log.info("removed %d segments of the log older than %d days", len(removed), days)

    # Around ---------------------------------------------------------------------------------

    def _connect(self, name: str, address: ServerAddress) -> None:
        credentials = self.assembly.keyring.make_credentials(name)
        if credentials is None:
            _log.warning("peer %s is not among the known nodes yet: denwatch keys list", name)
            return
        context = make_client_context(self.config.tls.ca) if address.has_tls else None
        link = LinkAddress(address.host, address.port, *credentials, context)
        connection = PeerConnection(self.config.name, name, link, self._deliver)
        self._connections[name] = connection
        connection.start()

    def _rejoin(self) -> None:
        """Find out who listens at a broker that we came (back) to, in its connection's thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ask_who_listens)

    def _ask_who_listens(self) -> None:
        question = encode_question(self.config.name)
        for name in self.assembly.subscribers.list_owners():
            self._send(Publish(REPLIES + name, question))

    def _announce(self) -> None:
        outside = [a for a in self.config.listen if a.host not in ("127.0.0.1", "::1", "localhost")]
        for address, port in zip(self.config.listen, self.ports, strict=True):
            if address in outside or not outside:
                self._discovery.start(_resolve(address.host), port, address.has_tls)
                return

    def _found(self, name: str, host: str, port: int, has_tls: bool) -> None:
        """Take somebody's announcement, in zeroconf's thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._meet, name, ServerAddress(host, port, has_tls))

    def _meet(self, name: str, address: ServerAddress) -> None:
        if not address.has_tls and not is_loopback(address.host):
            _log.warning("%s is said to be at %s without TLS: passed over", name, address.host)
        elif name in self._hints or len(self._hints) < _HINTS:
            self._hints[name] = address
            self._follow_hints()

    def _follow_hints(self) -> None:
        """Call nodes that were announced, at the newest address unless an older one works."""
        listed = {peer.name for peer in self.config.peers}
        for name, address in self._hints.items():
            old = self._connections.get(name)
            place = None if old is None else (old.address.host, old.address.port)
            is_new = place != (address.host, address.port)
            # Of two nodes that see each other, the first by name calls.
            if name < self.config.name or name in listed or not is_new or (old and old.is_up):
                continue
            if self.assembly.keyring.kind_of(name) != "node":
                continue  # not yet, or a stranger
            if old is not None:
                self._loop.run_in_executor(None, old.stop)  # it waits for its thread
            _log.info("found %s at %s:%d", name, address.host, address.port)
            self._connect(name, address)

    def _reload_keys(self, now: int) -> None:
        keyring = self.assembly.keyring
        try:
            keyring.reload_if_changed()
        except ValueError as error:
            _log.error("the keys on the disk are not used: %s", error)
        self.assembly.access.note_time(now)
        if keyring.generation != self._generation:
            self._generation = keyring.generation
            self.assembly.subscribers.forget_roles()
            for peer in self.config.peers:
                if peer.name not in self._connections and keyring.kind_of(peer.name) == "node":
                    self._connect(peer.name, peer.address)
            for user in self.station.list_users():
                if not self.assembly.access.is_welcome(user):
                    _log.warning("%s is no longer welcome", user)
                    self.station.expel(user, now)

    def _publish_status(self, now: int) -> None:
        described = self.assembly.describe(now, now - self._started, self._metrics.read_totals())
        topic = STATUS + self.config.name
        self.station.publish(Publish(topic, encode_status(described), 1, retain=True), now)
        self.station.report_server(now)

    def _say_goodbye(self) -> None:
        now = self.clock.read()
        self.station.publish(Publish(STATUS + self.config.name, b"", 1, retain=True), now)
        self.station.log("stop", {"reason": "asked to"}, now)
        self._commit()

    def _read_gauges(self) -> dict[str, float]:
        return self.assembly.read_gauges(self.clock.read())


def make_server_context(config: NodeConfig) -> ssl.SSLContext:
    """Return TLS for our server, with the node's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(config.tls.certificate, config.tls.key)
    return context


def make_client_context(ca: Path | None) -> ssl.SSLContext:
    """Return TLS that verifies the other end: by a site's authority, or by the system's."""
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _resolve(host: str) -> list[str]:
    """Return the addresses that stand for where a server listens."""
    if host in ("0.0.0.0", "::"):
        return list_addresses()
    return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(host, None)))
