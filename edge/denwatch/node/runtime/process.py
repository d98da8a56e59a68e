"""A running node: opening it, its listener, connections, log and clock, and how it ends.

Everything that changes the node happens in one thread, in `_receive_inputs`, `_receive_events` and
`_tick`; each ends with one commit for all that came together, or leaves it to the turn that follows
at once, and only after the commit sends what follows.
`serve_node` is what `denwatch node` runs once it has a configuration. The only file of a node that
asks the machine for the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import resource
import signal
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import randbelow

from denwatch.node.config import NodeConfig, ServerAddress
from denwatch.node.config.loading import is_loopback
from denwatch.node.core.events import PEERS, REPLIES, STATUS, Count, Event, Message, Publish
from denwatch.node.core.items import EARLIEST, LATEST, SUBSCRIPTION
from denwatch.node.core.mending import list_damage, mend_damage
from denwatch.node.core.request_handler import encode_question
from denwatch.node.log import DiskFiles, Writer, encode_record, read_header, read_segment
from denwatch.node.log.segments import CLOSED, read_name
from denwatch.node.mqtt.interface import Input
from denwatch.node.mqtt.listener import Door, Listener
from denwatch.node.mqtt.websocket import LOCAL_PAGES, Origins
from denwatch.node.replication.clock import Clocks
from denwatch.node.runtime.build import (
    BuiltNode,
    MachineResources,
    build_node,
    load_vocabularies,
)
from denwatch.node.runtime.durable_node import Effects, find_sender
from denwatch.node.runtime.kernel_loader import KernelLoader
from denwatch.node.runtime.links import (
    BrokerConnection,
    Connection,
    Discovery,
    PeerConnection,
    ServerLogin,
    list_addresses,
)
from denwatch.node.runtime.rollouts import RolloutFolder
from denwatch.node.security import open_keyring
from denwatch.node.security.site import end_forgetting, list_forgotten
from denwatch.node.store import Storage, Store, StoreDecayed, StoreError, StoreFull
from denwatch.node.store.damage import check_store
from denwatch.node.store.sqlite import SHORTAGES, Lock

_log = logging.getLogger("denwatch.node")
DATABASE = "node.db"
TICK = 0.25  # s
TOLERANCE = 2_000  # ms between the two clocks that count as drift, not as a correction
_PRUNE_EVERY = 3_600_000  # ms between two looks for old segments
_ENOUGH_FILES = 1 << 20
_HINTS = 1_000  # announced names that are kept
_LOG_BATCH = 20_000  # records moved to the segments at a time
_COLLECTED = (10_000, 20, 50)  # what a turn makes is mostly gone after it, without a collection
_PAUSE = 5.0  # s before a node without room tries again
_NAMED = 20  # damaged values that are named one by one
_REFUSED_CLOCK = "the machine's clock shows no time between 2020 and 2100, and is not used"
_DEFECTS, _PERIOD = 5, 60.0  # so many within so many seconds end the process
_DAY = 86_400_000  # ms
_LEAP = 4096  # epochs; a million starts before they are used up
_SEGMENT_HEAD = 1024  # bytes that hold a segment's header


@dataclass(frozen=True)
class OpenedNode:
    """A node with its store and its clock, ready to run."""

    config: NodeConfig
    built: BuiltNode
    store: Store
    clock: SteadyClock


def open_node(config: NodeConfig) -> OpenedNode:
    """Open store and keys, and restore the node; StoreError, SecurityError or ValueError."""
    keyring = open_keyring(config.folder)
    if keyring.name != config.name:
        raise ValueError(f"node.toml is of {config.name}, the keys beside it are of {keyring.name}")
    vocabulary = load_vocabularies(config.vocabulary)
    config.data.mkdir(parents=True, exist_ok=True)
    (config.data / "log").mkdir(exist_ok=True)
    wall = find_plausible(int(read_wall() * 1000))
    # A store that was lost and made anew must not number its items as the lost one did. Nor may a
    # run whose start the disk forgot: a machine without a clock shows the same time again.
    first_epoch = 1 if wall == EARLIEST else wall // 1000
    leap = randbelow(_LEAP)
    store = Store(config.data / DATABASE, config.name, first_epoch=first_epoch, leap=leap)
    try:
        clocks = Clocks(config.name, store.epoch)
        clock = SteadyClock(clocks.restore(store, wall))
        mend_store(store, clock.read())
        machine = MachineResources(read_file_limit(), read_cpu)
        built = build_node(config, keyring, vocabulary, store, clocks, machine)
        for each in list_damage(store):
            built.status.metrics.count(Count("values_damaged", 1, each.space))
        gc.collect()  # what an earlier run left
        gc.disable()  # all that is built now stays: there is nothing to collect
        built.durable_node.restore(clock.read())
    except BaseException:
        store.close()
        raise
    finally:
        gc.enable()
    return OpenedNode(config, built, store, clock)


def mend_store(store: Storage, now: int) -> None:
    """Let the core go on without the values that were damaged, and name them in both logs."""
    damage = list(list_damage(store, is_fresh=True))
    for each in damage[:_NAMED]:
        _log.warning("damaged on the disk and not used: %s", each)
    if len(damage) > _NAMED:
        _log.warning("and %d more values: denwatch node --check", len(damage) - _NAMED)
    records = [
        encode_record("trouble", {"what": "damaged value", "detail": str(each)}, now)
        for each in damage
    ]
    store.apply(mend_damage(store, now), records)
    store.commit()


class BrokerRefused(ValueError):
    """An external broker does not accept the node's name, password or topics."""


class Process:
    """One node between start and stop; `run` raises what the store raises."""

    def __init__(self, opened: OpenedNode) -> None:
        config = self.config = opened.config
        self.clock = opened.clock
        self.durable_node = opened.built.durable_node
        self.ports: list[int] = []
        self._built = opened.built
        self._started = opened.clock.read()
        server = opened.built.durable_node.server
        self._listener = Listener(self._receive_inputs, server.budget if server else None)
        self._connections: dict[str, Connection] = {}
        self._hints: dict[str, ServerAddress] = {}  # where peers are by their announcements
        self._broker: BrokerConnection | None = None
        self._report_ready: Callable[[], None] | None = None  # until the broker has accepted us
        self._arrived: list[tuple[Event, Callable[[], None] | None]] = []
        self._is_turn_due = False
        self._failure: BaseException | None = None
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._status_at = 0  # when the next status is due
        self._discovery = Discovery(config.name, self._found)
        self._kernels = KernelLoader()
        self._log_folder = config.data / "log"
        self._prune_at = 0
        self._writer = Writer(
            opened.store,
            DiskFiles(str(self._log_folder)),
            segment_bytes=config.log.segment_bytes,
            segment_age=config.log.rotate_seconds * 1000,
        )
        self._generation = opened.built.keyring.generation
        keyring = opened.built.keyring
        self._rollouts = RolloutFolder(
            config.folder, opened.built.updates, lambda: keyring.registrations.site
        )

    # Life -----------------------------------------------------------------------------------

    async def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop` is called or the store fails."""
        self._log_start(self.clock.read())
        self._commit()
        try:
            self._report_ready = started
            await self._open()
            if self._broker is None:
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
        self.durable_node.log("start", self._built.status.describe_start(), now)
        wall = self._built.clocks.wall
        if wall:  # the sum of a run's records is what the machine's clock is ahead of their times
            self.durable_node.log("clock", {"offset": wall, "source": "start"}, now)

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
                ServerLogin(
                    where.host, where.port, config.broker.user, config.broker.password, context
                ),
                self._deliver,
                self._reconnect,
                self._refuse,
                (f"{config.home_assistant.prefix}/status",) if config.home_assistant else (),
            )
            self._broker.start()
        else:
            for address in config.listen:
                server = make_server_context(config) if address.has_tls else None
                door = Door(server, address.is_websocket, find_origins(config))
                self.ports.append(await self._listener.start(address.host, address.port, door))
        for peer in config.peers:
            self._connect(peer.name, peer.address)
        if config.metrics is not None:
            self._built.status.metrics.serve(
                config.metrics.host,
                config.metrics.port,
                lambda: self._built.status.read_gauges(self.clock.read()),
            )
        if config.has_zeroconf and config.broker is None:
            await asyncio.to_thread(self._announce)

    async def _close(self) -> None:
        await asyncio.to_thread(self._close_connections)
        if self._failure is None:
            self._guard(self._report_stop)
        await self._listener.stop()
        if self._failure is None:
            try:
                self._writer.close(self.clock.read())
            except (OSError, StoreError) as error:  # its records wait in the store
                _log.error("the log is not closed: %s", error)
        self._built.status.metrics.stop()

    def _close_connections(self) -> None:
        self._discovery.stop()
        self._kernels.stop()
        for connection in [*self._connections.values(), self._broker]:
            if connection is not None:
                connection.stop()

    # Input ----------------------------------------------------------------------------------

    def _receive_inputs(self, inputs: list[Input]) -> None:
        """Receive what all links of our server brought in one turn of the event loop."""

        def receive() -> None:
            now = self.clock.read()
            for event in inputs:
                self.durable_node.receive_input(event, now)
            self._perform(self.durable_node.end_turn(self.clock.read()))

        self._guard(receive)

    def _deliver(self, event: Event, committed: Callable[[], None] | None) -> None:
        """Receive an event in a connection's own thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are stopping
            self._loop.call_soon_threadsafe(self._queue_event, event, committed)

    def _queue_event(self, event: Event, committed: Callable[[], None] | None) -> None:
        self._arrived.append((event, committed))
        self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._guard, self._begin_turn)

    def _begin_turn(self) -> None:
        """Go on with what waited for a turn; the links are read between two of them."""
        self._is_turn_due = False
        now = self.clock.read()
        self.durable_node.go_on(now)
        self._receive_events(now)
        self._perform(self.durable_node.end_turn(self.clock.read()))

    def _receive_events(self, now: int) -> None:
        """Receive what our own connections brought, within the budget of each sender."""
        arrived, self._arrived = self._arrived, []
        budget = self.durable_node.budget
        late: set[str] = set()  # whose events wait, and stay in order
        for event, committed in arrived:
            who = find_sender(event)
            if who not in late and isinstance(event, Message):
                late.update([who] if budget.delay(who, len(event.payload), now) else [])
            if who in late:
                self._arrived.append((event, committed))
            else:
                self.durable_node.receive_event(event, now, committed)

    def _tick(self) -> None:
        jump = self.clock.find_jump()
        now = self.clock.read()
        if jump:
            _log.warning("the clock was set by %.3f s", jump / 1000)
            self.durable_node.set_clock(jump, now)
        forgotten: list[str] = []
        attempt = self.durable_node.attempt
        attempt("keys", lambda: self._reload_keys(now), now)
        attempt("forgotten devices", lambda: forgotten.extend(self._forget_devices(now)), now)
        attempt("roll-outs", lambda: self._rollouts.step(self._built.list_fleet, now), now)
        attempt("peers' addresses", self._follow_hints, now)
        self.durable_node.tick(now)
        self._kernels.offer(self.durable_node.node.item_store.count(SUBSCRIPTION))
        self._receive_events(now)
        if now >= self._status_at:
            self._status_at = now + self.config.status.interval_seconds * 1000
            attempt("status", lambda: self._publish_status(now), now)
        self._commit()
        for name in forgotten:
            end_forgetting(self.config.folder, name)

    def _guard(self, work: Callable[[], None]) -> None:
        """Do some work. What it raises ends the run, because memory may be ahead of the disk."""
        if self._failure is not None:
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again by `run`
            self._failure = error
            self._stopping.set()

    # Output ---------------------------------------------------------------------------------

    def _commit(self) -> None:
        self._perform(self.durable_node.commit())

    def _perform(self, effects: Effects) -> None:
        """Do what may be done now."""
        self._listener.perform(effects.outputs)
        for publish in effects.outgoing:
            self._send(publish)
        for committed in effects.committed:
            committed()
        if effects.has_more:
            self._schedule_turn()

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
            with contextlib.suppress(OSError):  # too many open files: later
                removed = await asyncio.to_thread(
                    remove_old_segments, self._log_folder, days, self.clock.read()
                )
                if removed:
                    text = "removed %d segments of the log older than %d days"
                    _log.info(text, len(removed), days)

    # Links, keys, status --------------------------------------------------------------------

    def _connect(self, name: str, address: ServerAddress) -> None:
        credentials = self._built.keyring.make_credentials(name)
        if credentials is None:
            _log.warning("peer %s is not among the known nodes yet: denwatch keys list", name)
            return
        context = make_client_context(self.config.tls.ca) if address.has_tls else None
        link = ServerLogin(address.host, address.port, *credentials, context)
        connection = PeerConnection(self.config.name, name, link, self._deliver)
        self._connections[name] = connection
        connection.start()

    def _reconnect(self) -> None:
        """Find out who listens at a broker that we (re)connected to, in its connection's thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ask_who_listens)

    def _refuse(self, why: str) -> None:
        """Hear that the broker refuses us, in its connection's thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end_refused, why)

    def _end_refused(self, why: str) -> None:
        """End a run that never had its broker; later a refusal may pass, and is only logged."""
        if self._report_ready is not None and self._failure is None:
            assert self.config.broker is not None
            where = self.config.broker.address
            self._failure = BrokerRefused(
                f"the broker {where.host}:{where.port} refuses {self.config.broker.user or 'us'}: "
                f"{why.removeprefix('refused: ')}; see [broker] in node.toml, `denwatch keys acl`"
            )
            self._stopping.set()

    def _ask_who_listens(self) -> None:
        if self._report_ready is not None:
            self._report_ready()
            self._report_ready = None
        question = encode_question(self.config.name)
        for name in self._built.subscribers.list_subscribers():
            self._send(Publish(REPLIES + name, question))

    def _announce(self) -> None:
        outside = [a for a in self.config.listen if a.host not in ("127.0.0.1", "::1", "localhost")]
        for address, port in zip(self.config.listen, self.ports, strict=True):
            if not address.is_websocket and (address in outside or not outside):
                self._discovery.start(_resolve(address.host), port, address.has_tls)
                return

    def _found(self, name: str, host: str, port: int, has_tls: bool) -> None:
        """Receive an announcement, in zeroconf's thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(
                self._add_hint, name, ServerAddress(host, port, has_tls)
            )

    def _add_hint(self, name: str, address: ServerAddress) -> None:
        if not address.has_tls and not is_loopback(address.host):
            _log.warning("ignoring %s at %s, which is announced without TLS", name, address.host)
        elif name in self._hints or len(self._hints) < _HINTS:
            self._hints[name] = address
            self._follow_hints()

    def _follow_hints(self) -> None:
        """Connect to announced nodes, at the newest address unless an older one works."""
        listed = {peer.name for peer in self.config.peers}
        for name, address in self._hints.items():
            old = self._connections.get(name)
            place = None if old is None else (old.address.host, old.address.port)
            is_new = place != (address.host, address.port)
            # Of two nodes that see each other, the first by name connects.
            if name < self.config.name or name in listed or not is_new or (old and old.is_up):
                continue
            if self._built.keyring.kind_of(name) != "node":
                continue  # unknown, or its key has not arrived yet
            if old is not None:
                self._loop.run_in_executor(None, old.stop)  # it waits for its thread
            _log.info("found %s at %s:%d", name, address.host, address.port)
            self._connect(name, address)

    def _reload_keys(self, now: int) -> None:
        keyring = self._built.keyring
        try:
            keyring.reload_if_changed()
        except (ValueError, OSError) as error:
            _log.error("the keys on the disk are not used: %s", error)
        if keyring.generation != self._generation:
            self._generation = keyring.generation
            self._built.subscribers.forget_roles()
            for peer in self.config.peers:
                if peer.name not in self._connections and keyring.kind_of(peer.name) == "node":
                    self._connect(peer.name, peer.address)
            for user in self.durable_node.list_users():
                if not self._built.access.is_welcome(user):
                    _log.warning("disconnecting %s, which has no access any more", user)
                    self.durable_node.expel(user, now)

    def _forget_devices(self, now: int) -> list[str]:
        """Forget the devices that `denwatch keys forget` names; return which."""
        names = list_forgotten(self.config.folder)
        for name in names:
            is_known = self.durable_node.forget_device(name, now)
            why = "its next hello may have any number" if is_known else "no hello of it was heard"
            _log.info("%s begins anew: %s", name, why)
        return names

    def _publish_status(self, now: int) -> None:
        payload = self._built.status.encode(now, now - self._started)
        topic = STATUS + self.config.name
        self.durable_node.publish(Publish(topic, payload, 1, retain=True), now)
        self.durable_node.report_server(now)

    def _report_stop(self) -> None:
        now = self.clock.read()
        self.durable_node.publish(Publish(STATUS + self.config.name, b"", 1, retain=True), now)
        self.durable_node.log("stop", {"reason": "asked to"}, now)
        self.durable_node.say_goodbye(now)
        self._commit()


def find_origins(config: NodeConfig) -> Origins | None:
    """Return which pages may connect by WebSocket: those listed, else all who need a password."""
    if config.origins:
        return (None, *config.origins)
    return None if config.anonymous_role is None else LOCAL_PAGES


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


# Start and end ----------------------------------------------------------------------------


def check_node(config: NodeConfig) -> list[str]:
    """Return all that is damaged in a node's store and log; raises what is wrong besides.

    If nothing is damaged, the node is opened and closed again.
    """
    path, found = config.data / DATABASE, []
    if path.exists():
        lock = Lock(path)
        try:
            found = [f"{path}: {what}" for what in check_store(path)]
        finally:
            lock.release()
    for segment in sorted((config.data / "log").glob("*")):
        if read_name(segment.name) is not None:
            is_closed = segment.name.endswith(CLOSED)
            contents = read_segment(segment.read_bytes(), is_closed=is_closed)
            found += [f"{segment}: byte {d.offset}: {d.reason}" for d in contents.damages]
            if contents.pending:
                found.append(f"{segment}: byte {contents.end}: damaged, or not written completely")
    if not found:
        open_node(config).store.close()
    return found


def serve_node(config: NodeConfig) -> None:
    """Run a node. StoreError, SecurityError, ValueError and OSError say why it cannot continue.

    After a full disk, with too many open files or with a damaged value memory may be ahead of the
    disk: the node starts again from what is there, as soon as it can. So it does after a defect of
    ours outside of events and ticks; one that comes back again and again ends the process. What
    comes from outside cannot cause that, neither when it comes nor later: see `DurableNode`.
    """
    defects: deque[float] = deque(maxlen=_DEFECTS)
    raise_file_limit()
    while True:
        opened: OpenedNode | None = None
        try:
            opened = open_node(config)
            asyncio.run(_serve(opened))
            return
        except StoreDecayed as error:
            _log.error("%s", error)
        except (StoreFull, OSError) as error:
            if isinstance(error, OSError) and error.errno not in SHORTAGES:
                raise
            _log.error("%s; nothing is acknowledged until there is room", error)
            time.sleep(_PAUSE)
        except (StoreError, BrokerRefused):
            raise
        except Exception:
            defects.append(time.monotonic())
            if opened is None or (len(defects) == _DEFECTS and defects[-1] - defects[0] < _PERIOD):
                raise
            _log.exception("a defect ended this run; the node starts again from its store")
        finally:
            if opened is not None:
                with contextlib.suppress(StoreError):  # what is committed is on the disk
                    opened.store.close()


def raise_file_limit() -> None:
    """Allow this process as many open files as its machine lets it have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def read_cpu() -> float:
    """Return the processor time of this thread, in ms."""
    return time.thread_time() * 1000


def read_file_limit() -> int:
    """Return how many files this process may have open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH_FILES if files == resource.RLIM_INFINITY else min(files, _ENOUGH_FILES)


async def _serve(opened: OpenedNode) -> None:
    process = Process(opened)
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, process.stop)
    # What was built at the start stays: the garbage collector need not visit it again.
    gc.freeze()
    gc.set_threshold(*_COLLECTED)
    await process.run(lambda: _print_ready(process))


def _print_ready(process: Process) -> None:
    config = process.config
    if config.broker is not None:
        where = f"at the broker {config.broker.address.host}:{config.broker.address.port}"
    else:
        where = "on " + ", ".join(
            f"{address.scheme}://{address.host}:{port}"
            for address, port in zip(config.listen, process.ports, strict=True)
        )
    print(f"{config.name} is ready {where}", flush=True)


# The machine's clock ----------------------------------------------------------------------


def read_wall() -> float:
    """Return what the machine's clock shows, in seconds since 1970."""
    return time.time()


def _read_elapsed() -> float:
    """Return seconds that never go back, and include sleep where the machine counts it."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def find_plausible(wall: int) -> int:
    """Return a time of a machine's clock in ms, the start of 2020 if it cannot be right."""
    return wall if EARLIEST < wall < LATEST else EARLIEST


class SteadyClock:
    """Milliseconds that start at the wall clock's, or later, and go on evenly.

    `lead` is by how much the node's own timeline is ahead of the wall clock at the start: a
    machine without a battery may wake up years ago. A wall clock that cannot be right is not used.
    """

    def __init__(
        self,
        lead: int = 0,
        wall: Callable[[], float] = read_wall,
        monotonic: Callable[[], float] = _read_elapsed,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._started = monotonic()
        self._base = find_plausible(int(wall() * 1000)) + lead
        self._difference = -lead
        self._is_refused = False

    def read(self) -> int:
        """Return the time."""
        return self._base + int((self._monotonic() - self._started) * 1000)

    def find_jump(self) -> int:
        """Return by how many ms somebody set the wall clock since the last call; usually 0."""
        now = find_plausible(int(self._wall() * 1000))
        was_refused, self._is_refused = self._is_refused, now == EARLIEST
        if self._is_refused:
            if not was_refused:
                _log.warning(_REFUSED_CLOCK)
            return 0
        difference = now - self.read()
        jump = difference - self._difference
        if abs(jump) < TOLERANCE:
            return 0
        self._difference = difference
        return jump


# The process's own log, and old segments ----------------------------------------------------


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def start_logging(node: str, style: str, level: str) -> None:
    """Send the process's own log to stderr: a line for each event, as text or as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        text = f"%(asctime)s {node} %(levelname)s %(message)s"
        handler.setFormatter(logging.Formatter(text, "%H:%M:%S"))
    logger = logging.getLogger("denwatch")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def remove_old_segments(folder: Path, keep_days: int, now: int) -> list[str]:
    """Remove closed log segments begun so many days before `now`; return their names.

    The age is that of the time in a segment's own header, which is in the node's timeline: a
    machine's clock that is corrected after years must not make everything look old at once.
    """
    if not keep_days:
        return []
    removed = []
    for path in sorted(folder.glob(f"*{CLOSED}")):
        with path.open("rb") as file:
            header = read_header(file.read(_SEGMENT_HEAD))
        if header is not None and now - header.time > keep_days * _DAY:
            path.unlink()
            removed.append(path.name)
    return removed
