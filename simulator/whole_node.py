"""A whole node in simulated time: the product's process around its core, and what it serves.

A `HostedNode` is a core on a store. This one is what `denwatch node` runs: `serve_node`'s loop
(`process_loop.py`), `open_node`, the process with its guard, clock, status and log, the node's own
MQTT server, keyring, access rules and limits. Only sockets, threads, files and the machine's clock
are the simulation's. Whoever is with the node is a client of its server (`clients.py`): events that
the world hands over become packets on a client's link, and packets of the server become what the
world brings to people and devices. Of two nodes the first by name connects to the other's server.

    world ── Message, Listening, Acknowledged ──► client's bytes ──► server ──► core
    world ◄── Publish ◄── packets on a link ◄── server ◄── core
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

from denwatch.client.vocabulary import Vocabulary
from denwatch.node.config import NodeConfig
from denwatch.node.core.events import (
    DEVICES,
    NOTES,
    PEERS,
    Acknowledged,
    Action,
    ClockSet,
    Event,
    Listening,
    Log,
    Message,
    PeerDown,
    PeerUp,
    Publish,
    Tick,
)
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import Dot, Item
from denwatch.node.core.node import Node
from denwatch.node.mqtt.interface import (
    Close,
    Input,
    LinkLost,
    LinkOpened,
    LinkReceived,
    Output,
    Pause,
    Resume,
    Send,
)
from denwatch.node.runtime import process
from denwatch.node.runtime.durable_node import DurableNode
from denwatch.node.runtime.process import SteadyClock
from denwatch.node.security import Keyring
from denwatch.node.security.registrations import Registrations
from denwatch.node.store import Storage

from simulator import clients
from simulator.client_packets import write_connect
from simulator.clients import Client, read_packets
from simulator.disk import FieldStore
from simulator.hosted_node import HostedNode, HostSettings, Watch, describe_defect
from simulator.keyrings import SiteFiles, make_device_password, make_password
from simulator.process_loop import (
    SILENT,
    LoopRequest,
    ProcessLoop,
    Run,
    SimulatedLoop,
    drive_module,
)
from simulator.twin_store import TwinStore

_TOKEN = 16  # bits of a packet id in a token


class _Act(NamedTuple):
    """Something of the node itself that is to happen in a transaction."""

    change: Callable[[Transaction], object]


class _Records(list[Log]):
    """Log records that wait for the disk; those from `begun` on are of the last event."""

    begun = 0


class LateDefect(Exception):
    """What a core raises at an item that it accepted, when it looks at it again."""


def _watch_core(node: Node, records: _Records, poisoned: set[Dot]) -> None:
    """Keep the log records of a core until they are on the disk, and let it perform acts.

    It fails whenever it is to end an item that is poisoned.
    """
    handle, perform, remove = node.handle, node.perform, node.item_store.remove

    def remove_item(
        transaction: Transaction, kind: int, dot: Dot, reason: str, source: str = ""
    ) -> Item | None:
        if dot in poisoned:
            raise LateDefect(dot.id)
        return remove(transaction, kind, dot, reason, source)

    node.item_store.remove = remove_item  # type: ignore[method-assign]

    def watch(event: Event | _Act, now: int) -> list[Action]:
        records.begun = len(records)
        actions = perform(event.change, now) if isinstance(event, _Act) else handle(event, now)
        records.extend(action for action in actions if isinstance(action, Log))
        return actions

    node.handle = watch  # type: ignore[method-assign]


class _SimulatedListener:
    """The listener's place: keeps what is to go out. Whatever comes here is on the disk."""

    def __init__(self, committed: Callable[[], None]) -> None:
        self.outputs: list[Output] = []
        self._committed = committed

    def perform(self, outputs: Sequence[Output]) -> None:
        self._committed()
        self.outputs += outputs

    async def stop(self) -> None:
        self.outputs.clear()


class _SimulatedConnection:
    """A link to another node's server; what goes there is what the world brings."""

    is_up = True

    def __init__(self, published: list[Publish]) -> None:
        self.send = published.append

    def stop(self) -> None:
        """It is closed."""


class MemoryFiles:
    """A folder of log segments in memory; `trouble` is what every write raises."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.trouble: OSError | None = None

    def _write(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def list_names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        return self.files[name]

    def create(self, name: str, data: bytes) -> None:
        self._write()
        self.files[name] = data

    def append(self, name: str, data: bytes) -> None:
        self._write()
        self.files[name] += data

    def truncate(self, name: str, size: int) -> None:
        self.files[name] = self.files[name][:size]

    def sync(self, _: str) -> None:
        self._write()

    def rename(self, old: str, new: str) -> None:
        self._write()
        self.files[new] = self.files.pop(old)

    def remove(self, name: str) -> None:
        del self.files[name]

    def sync_directory(self) -> None:
        self._write()


class _NoFolder:
    """The data folder of a node whose store and log are elsewhere."""

    def mkdir(self, **_: object) -> None:
        """It is there."""

    def __truediv__(self, _: str) -> _NoFolder:
        return self

    def stat(self) -> None:
        """Nobody rolls out anything."""
        raise FileNotFoundError

    def write_text(self, *_: object, **__: object) -> None:
        """Nobody reads what the fleet is."""

    def replace(self, _: object) -> None:
        """Likewise."""


def make_folder() -> Path:
    """Return the folder of a node without one."""
    return cast("Path", _NoFolder())


class WholeNode(HostedNode):
    """A node with all that its process has.

    `loop` is its process; `endings` says why processes of it gave up, `defects` which exceptions
    left their event loop, `damages` which errors of its disk it reported.
    """

    def __init__(
        self,
        name: str,
        files: SiteFiles,
        config: NodeConfig,
        vocabulary: Vocabulary,
        settings: HostSettings,
        watch: Watch,
        *,
        has_twin: bool = False,
    ) -> None:
        keyring = Keyring(files.files[name])
        super().__init__(name, keyring, vocabulary, settings, watch)
        self.config = config
        self.loop = ProcessLoop(config)
        self.endings: list[str] = []
        self.log_files = MemoryFiles()
        self.lost_peers: list[str] = []  # whose link our server closed
        self.has_new_keys = False  # somebody has changed the key file
        self.run: Run | None = None
        self._site = files
        self._folder = TemporaryDirectory(dir=find_fast_folder()) if has_twin else None
        self._records = _Records()
        self._published: list[Publish] = []
        self._clients: dict[str, Client] = {}
        self._by_link: dict[int, Client] = {}
        self._last_link = 0
        self._now = 0
        self._random = Random(name)
        self.poisoned: set[Dot] = set()  # items at which the core fails when they end
        self.joined: set[str] = set()  # apps that came besides

    # Life -----------------------------------------------------------------------------------

    def start(self, now: int) -> None:
        """Open the node and begin to serve; raises what opening or the start of the run raises."""
        self._now = now
        wall = partial(self._read_wall)
        with drive_module(
            open_keyring=lambda _: self._open_keyring(),
            load_vocabularies=lambda _: self.vocabulary,
            Store=lambda _, __, first_epoch, leap: self._open_store(first_epoch, leap),
            randbelow=self._random.randrange,
            read_wall=wall,
            read_cpu=lambda: 0.0,  # of a machine that is never busy
            read_file_limit=lambda: 1 << 20,
            SteadyClock=lambda lead: SteadyClock(lead, wall, lambda: self._now / 1000),
            _log=SILENT,
        ):
            opened = process.open_node(self.config)
        built = opened.built
        self.store = cast("Storage", opened.store)
        self.clocks = built.clocks
        self.node = built.durable_node.node
        assert built.durable_node.server is not None, "there is no broker"
        self.server = built.durable_node.server
        self._records.clear()
        self._published.clear()
        _watch_core(self.node, self._records, self.poisoned)
        self._watch_failures(built.durable_node)
        self._listener = _SimulatedListener(self._show_records)
        self._forget_links()
        self.run = Run(opened, SimulatedLoop(), self._listener, self.log_files)
        self.time = self.run.process.clock.read()
        self.is_up = True
        self._records.append(Log("start", {}))
        request = self.loop.note("open", None, now)
        assert request.what == "run", request
        self.run.tick()  # up to its first wait

    def _watch_failures(self, durable_node: DurableNode) -> None:
        """Count the failures that the node survives as defects, and follow it to its new core."""
        rebuild, refuse = durable_node._rebuild, durable_node._refuse_failed
        skip = durable_node._skip_failed
        assert rebuild is not None

        def watch_rebuild() -> Node:
            self.node = rebuild()
            _watch_core(self.node, self._records, self.poisoned)
            return self.node

        def watch_refusal(arrived: Any, event: Event, who: str, error: Exception, now: int) -> None:
            self.defects.append(describe_defect(error))
            del self._records[self._records.begun :]
            refuse(arrived, event, who, error, now)

        def watch_skip(arrived: Any, event: Event, error: Exception, now: int) -> None:
            if not isinstance(error, LateDefect):
                self.defects.append(describe_defect(error))
            del self._records[self._records.begun :]
            skip(arrived, event, error, now)

        durable_node._rebuild = watch_rebuild
        durable_node._skip_failed = watch_skip  # type: ignore[method-assign]
        durable_node._refuse_failed = watch_refusal  # type: ignore[method-assign]

    def _read_wall(self) -> float:
        return (self._now + self.wall_error) / 1000

    def _open_keyring(self) -> Keyring:
        self.keys = Keyring(self._site.files[self.name], self._read_new_keys)
        return self.keys

    def _read_new_keys(self) -> Registrations | None:
        """Return the key file if somebody changed it."""
        if not self.has_new_keys:
            return None
        if self.log_files.trouble is not None:
            raise self.log_files.trouble
        self.has_new_keys = False
        return self._site.files[self.name]

    def _open_store(self, first_epoch: int, leap: int) -> Storage:
        self.medium.is_open = False
        first_epoch = max(self.medium.epoch + 1, first_epoch) + leap
        model = FieldStore(self.name, self.medium, self.faults, first_epoch=first_epoch)
        if self._folder is None:
            return model
        return TwinStore(model, Path(self._folder.name) / "node.db", first_epoch)

    @property
    def keyring(self) -> Keyring:
        """What the node knows of names and keys now."""
        return cast("Keyring", self.keys)

    def die(self) -> None:
        """Lose everything that is not on the disk."""
        self.is_up = False
        if self.run is not None:
            self.run.abandon()
            self.run = None
        self._forget_links()
        before = self.medium.losses
        if isinstance(self.store, FieldStore | TwinStore):
            self.store.crash()
        if self.medium.losses > before:  # the log was on the same disk
            self.log_files.files.clear()
        self.loop = ProcessLoop(self.config)

    def end_run(self, error: BaseException) -> LoopRequest:
        """Close after an error that ended a run, or kept it from being opened; return what the
        process does now."""
        what = "run" if self.run is not None else "open"
        if self.run is not None:
            self.run.abandon()
            self.run = None
            self.store.close()
        self.is_up = False
        self._forget_links()
        return self.loop.note(what, error, self._now)

    def close(self, now: int) -> None:
        """Stop in order."""
        if self.is_up:
            self._now = now
            assert self.run is not None
            self.run.stop()
            self.is_up = False
            self.store.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _forget_links(self) -> None:
        for client in self._clients.values():
            client.link = 0
            client.is_accepted = client.is_paused = False
        self._by_link.clear()
        self._clients.clear()

    # Events ---------------------------------------------------------------------------------

    def handle(self, event: Event, now: int) -> list[Publish]:
        """Bring an event to the node as it comes there; return what goes out after the commit."""
        self._now = now
        assert self.run is not None
        self.time = self.run.process.clock.read()
        if isinstance(event, Tick | ClockSet):  # a set clock is noticed at the next tick
            self._tick()
        elif isinstance(event, PeerUp | PeerDown):
            self._meet(event)
        elif isinstance(event, Listening):
            self._listen(event)
        elif isinstance(event, Acknowledged):
            self._acknowledge(event.token)
        else:
            self._publish(event)
        return self._take_published()

    def act(self, change: Callable[[Transaction], object], now: int) -> list[Publish]:
        """Let something of the node itself happen, in a transaction of its own."""
        self._now = now
        self._deliver(cast("Event", _Act(change)))
        return self._take_published()

    def _take_published(self) -> list[Publish]:
        published, self._published[:] = list(self._published), []
        return published

    def _tick(self) -> None:
        assert self.run is not None
        for client in list(self._clients.values()):
            if client.link:
                said, client.unsaid = client.unsaid, b""
                self._send(client, said + Client.PING)
            elif client.is_wanted:
                self._connect(client)
        self.run.tick()
        self._read_outputs()

    def _deliver(self, event: Event) -> None:
        """Bring an event of a connection that we opened."""
        assert self.run is not None
        self.run.do(self.run.process._deliver, event, None)
        self._read_outputs()

    def _receive(self, *inputs: Input) -> None:
        """Bring what the listener would bring."""
        assert self.run is not None
        self.run.do(self.run.process._receive_inputs, list(inputs))
        self._read_outputs()

    # Clients --------------------------------------------------------------------------------

    def find_client(self, user: str) -> Client:
        """Return the client of a user, which need not be connected."""
        client = self._clients.get(user)
        if client is None:
            kind = self._site.find_kind(user)
            password = (
                make_device_password(user, self.name) if kind == "device" else make_password(user)
            )
            client = self._clients[user] = Client(user, password)
            if kind != "device":  # by name, so that all sorts are there
                client.is_persistent = len(user) + ord(user[-1]) & 1 == 1
                client.qos = 1 + (ord(user[-1]) >> 1 & 1)
                client.level = 4 + (len(user) + (ord(user[-1]) >> 2) & 1)
                client.is_joining = client.level == 4
                client.will = (f"dens/1/sub/{user}", b'{"list": true}')
        return client

    def _connect(self, client: Client) -> bool:
        self._last_link += 1
        client.link = self._last_link
        self._by_link[client.link] = client
        self._receive(LinkOpened(client.link), LinkReceived(client.link, client.write_connect()))
        if client.is_accepted and client.filters:
            self._send(client, client.write_subscribe(client.filters))
        return client.is_accepted

    def join(self, client: Client, now: int) -> list[Publish]:
        """Let an app come besides those that people have; it does not come back by itself."""
        self._now = now
        client.is_wanted = False
        if self._connect(client):
            self.joined.add(client.app)
        return self._take_published()

    def lose(self, client: Client, now: int) -> list[Publish]:
        """Let an app break off."""
        self._now = now
        self.joined.discard(client.app)
        self._receive(LinkLost(client.link))
        self._drop_link(client)
        return self._take_published()

    def crowd(self, user: str, count: int, now: int) -> None:
        """Let somebody connect very often, as other apps each time, and stay."""
        self._now = now
        for number in range(count):
            self._last_link += 1
            hello = write_connect(f"{user}-{number}", user, make_password(user), keep_alive=0)
            self._receive(LinkOpened(self._last_link), LinkReceived(self._last_link, hello))

    def _send(self, client: Client, data: bytes) -> None:
        if client.is_paused:
            client.held.append(data)
        elif client.link:
            self._receive(LinkReceived(client.link, data))

    def _leave(self, client: Client, *, is_polite: bool) -> None:
        client.is_wanted = False
        client.filters = []
        link = client.link
        if link and is_polite:
            self._send(client, Client.GOODBYE)
        elif link:
            self._receive(LinkLost(link))
        self._drop_link(client)

    def _drop_link(self, client: Client) -> None:
        self._by_link.pop(client.link, None)
        client.link = 0
        client.is_accepted = client.is_paused = False
        client.held.clear()
        client.unsaid = b""

    def _listen(self, event: Listening) -> None:
        """Let somebody come or go; who comes listens to all that is theirs."""
        kind, _, rest = event.topic.removeprefix("dens/1/").partition("/")
        client = self.find_client(rest.partition("/")[0])
        if not event.is_up:
            if client.is_wanted:  # of a device the world itself brings the will
                self._leave(client, is_polite=kind == "wd" or self._now & 1 == 1)
            return
        client.is_wanted = True
        wanted = [event.topic]
        if kind == "wd":
            wanted.append(f"{DEVICES}{client.user}/ack")
        fresh = [name for name in wanted if name not in client.filters]
        client.filters += fresh
        if not client.link:
            self._connect(client)
        elif fresh:
            self._send(client, client.write_subscribe(fresh))

    def _publish(self, message: Message) -> None:
        if message.topic.startswith(PEERS) and self.name < message.sender:
            if message.sender in self._dialled:
                self._deliver(message)
            return
        client = self.find_client(message.sender)
        if message.topic.startswith(PEERS):
            if not client.link:
                return  # nobody speaks as a node without its card
        elif not client.link:
            self._connect(client)
        self._send(client, client.write_publish(message.topic, message.payload))
        if not client.is_wanted and not message.topic.startswith(PEERS):  # it came for this
            self._leave(client, is_polite=True)

    def _acknowledge(self, token: int) -> None:
        client = self._by_link.get(token >> _TOKEN)
        if client is not None:
            number = token & (1 << _TOKEN) - 1
            said = client.unsaid + Client.write_answer(clients.PUBACK, number)
            if client.is_joining and not client.unsaid:
                client.unsaid = said  # until the next one, or the next tick
                return
            client.unsaid = b""
            self._send(client, said)

    # Other nodes ----------------------------------------------------------------------------

    @property
    def _dialled(self) -> dict[str, Any]:
        assert self.run is not None
        return cast("dict[str, Any]", self.run.process._connections)

    def admit_peer(self, peer: str, password: str) -> bool:
        """Let another node connect to our server; return whether it was accepted."""
        client = self._clients[peer] = Client(peer, password)
        client.filters = [PEERS + peer]
        client.is_wanted = False  # it comes back by itself
        return self._connect(client)

    def _meet(self, event: PeerUp | PeerDown) -> None:
        is_up = isinstance(event, PeerUp)
        if self.name < event.name:
            if is_up:
                self._dialled[event.name] = _SimulatedConnection(self._published)
            elif self._dialled.pop(event.name, None) is None:
                return
            self._deliver(event)
        elif not is_up and event.name in self._clients:
            client = self._clients.pop(event.name)
            if client.link:
                self._receive(LinkLost(client.link))
                self._drop_link(client)

    # What goes out --------------------------------------------------------------------------

    def _show_records(self) -> None:
        """Show the records of what is on the disk now."""
        assert self._watch is not None
        records, self._records[:] = list(self._records), []
        for record in records:
            self._watch(self, record, self.time)

    def _read_outputs(self) -> None:
        """Let clients read what the server sent, and answer it."""
        while self._listener.outputs:
            outputs, self._listener.outputs = self._listener.outputs, []
            for output in outputs:
                client = self._by_link.get(cast("int", output[0]))
                if client is None:
                    continue
                if isinstance(output, Send):
                    for packet in read_packets(output.data, client.aliases):
                        self._read_packet(client, packet)
                elif isinstance(output, Close):
                    if self._site.find_kind(client.user) == "node":
                        self.lost_peers.append(client.user)
                    self._drop_link(client)
                elif isinstance(output, Pause):
                    client.is_paused = True
                elif isinstance(output, Resume):
                    client.is_paused = False
                    held, client.held = client.held, []
                    for data in held:
                        self._send(client, data)

    def _read_packet(self, client: Client, packet: clients.Received) -> None:
        if packet.kind == clients.CONNACK:
            client.is_accepted = packet.codes == b"\0"
        elif packet.kind == clients.PUBREC:
            self._send(client, Client.write_answer(clients.PUBREL, packet.number))
        elif packet.kind == clients.PUBLISH:
            is_confirmed = packet.topic.startswith((NOTES, DEVICES))  # by whom it is for
            token = client.link << _TOKEN | packet.number if is_confirmed and packet.number else 0
            self._published.append(Publish(packet.topic, packet.payload, token=token))
            if packet.number and not token:
                self._send(client, Client.write_answer(clients.PUBACK, packet.number))


def find_fast_folder() -> str | None:
    """Return a folder in memory, where there is one: what is tested is not the disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def make_exhaustion() -> OSError:
    """Return what a process with too many open files gets."""
    return OSError(errno.EMFILE, "Too many open files")
