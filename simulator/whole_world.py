"""A world of whole nodes: their processes, their site's keys, and links that need a login.

Differs from `World` in what stands between a node and the others, and in nothing else: nodes are
`WholeNode`s, people and devices are registered at one node and known to the others when notices
came there, a link between two nodes begins with a CONNECT, and a process that fails is started
again, or not, as the product's own loop decides. A process that was killed from outside, or that
ended because its disk failed, is started again by whoever looks after the machine; one that gave up
for any other reason stays down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from denwatch.client.vocabulary import Vocabulary
from denwatch.node.config.model import (
    ExpirySection,
    HomeAssistantConfig,
    LimitsSection,
    LogSection,
    NodeConfig,
    Replication,
    StatusSection,
    Tls,
)
from denwatch.node.core.events import PeerUp, Publish
from denwatch.node.security.access import Role
from denwatch.node.store import StoreError, StoreFull
from denwatch.watchdog.seal import FrameKey

from simulator.clients import Client
from simulator.device import EmulatedDevice, Sense
from simulator.hosted_node import HostedNode, HostSettings, Watch, describe_defect
from simulator.keyrings import SiteFiles, make_secret
from simulator.keys import KEY_ID
from simulator.link import FAIR, Air
from simulator.memory_store import Crashed
from simulator.network import WorldSettings
from simulator.person import LIBRARY, Person
from simulator.process_loop import LoopRequest
from simulator.whole_node import WholeNode, make_folder
from simulator.whole_scenarios import POST
from simulator.world import World

ROLES = {
    "all": Role(("*",), ("*",)),
    "operator": Role(("*",), ("*",)),
}
SMALL = LimitsSection(
    packet_bytes=131_072,  # an item may have half of it
    window=2,
    queue=8,
    queue_bytes=131_072,  # as much as a packet: else a peer might never get one through
    total_queue_bytes=262_144,
    subscriptions=4,
    sessions=16,
    links=64,
    links_per_name=6,
    retained=20,
    messages_per_second=20,
    burst=40,
    requests_per_subscriber=12,
)
DEFAULT = LimitsSection()
CHAT = "chat/"  # what clients tell each other, which is not the node's


class WholeDevice(EmulatedDevice):
    """A device with a key of its own for each node."""

    def start(self, now: int, wall: int | None = None, kept: bytes = b"") -> None:
        """Start, with the keys that it was given at its registration."""
        super().start(now, wall, kept)
        self.uplink._keys = {
            node: FrameKey(self.name, node, KEY_ID, make_secret(self.name, node))
            for node in self._nodes
        }


class WholeWorld(World):
    """A world whose nodes are whole; `has_twins`: with both stores."""

    def __init__(
        self,
        seed: int,
        vocabulary: Vocabulary,
        settings: WorldSettings | None = None,
        watch: Watch | None = None,
        *,
        limits: LimitsSection = DEFAULT,
        room: int = 100_000,
        has_twins: bool = False,
        hidden: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(seed, vocabulary, settings, watch)
        self.site = SiteFiles()
        self._limits = limits
        self._room = room
        self._has_twins = has_twins
        self.chat: list[tuple[int, str, str]] = []  # when, at which node, under which topic
        denied = {role: Role(("*",), ("*",), names) for role, names in (hidden or {}).items()}
        self._roles = {**ROLES, **denied}

    # Who there is ---------------------------------------------------------------------------

    def found_site(self, names: Iterable[str], people: dict[str, str], devices: list[str]) -> None:
        """Write the key files of all nodes; subscribers come with their roles."""
        names = list(names)
        for name in names:
            self.site.add_node(name)
        for number, (person, role) in enumerate(people.items()):
            self.site.add_subscriber(person, names[number % len(names)], role)
            self.roster.roles[person] = role
        for number, device in enumerate(devices):
            self.site.add_device(device, names[number % len(names)])
        self.site.add_device(POST, names[0], (names[0],))

    def add_node(self, name: str, settings: HostSettings | None = None) -> HostedNode:
        """Start a node's process."""
        self.roster.nodes[name] = None
        settings = settings or self.settings.host
        host = WholeNode(
            name,
            self.site,
            self._configure(name, settings),
            self.vocabulary,
            settings,
            self._watch,
            has_twin=self._has_twins,
        )
        self.hosts[name] = host
        self._starts[name] = 0
        self._ticks[name] = (0, 0)
        self._start(name)
        return host

    def _configure(self, name: str, settings: HostSettings) -> NodeConfig:
        assert settings.peers is not None
        assert settings.subscribers is not None
        strategy, _, copies = settings.peers.strategy.partition(":")
        home = HomeAssistantConfig("homeassistant", "", ("helper",), 0) if settings.home else None
        folder = make_folder()
        limits = self._limits
        fields = {each: getattr(limits, each) for each in limits.__struct_fields__}
        return NodeConfig(
            name=name,
            folder=folder,
            data=folder,
            vocabulary=("rescue",),
            organisation=settings.subscribers.organisation,
            listen=(),
            tls=Tls(folder, folder, folder),
            anonymous_role=None,
            shared=(f"{CHAT}#",),
            unshared=(),
            origins=(),
            peers=(),
            has_zeroconf=False,
            broker=None,
            replication=Replication(strategy, int(copies or 0), settings.peers.chunk),
            limits=LimitsSection(**{**fields, "notifications": self._room}),
            expiry=ExpirySection(),
            log=LogSection(),
            metrics=None,
            status=StatusSection(interval_seconds=60),
            home_assistant=home,
            roles=self._roles,
        )

    def add_person(
        self, name: str, node: str = "", role: str = "all", client: str = LIBRARY
    ) -> Person:
        """Let somebody come who is registered with this role."""
        assert self.site.find_kind(name) == "subscriber", f"{name} is not registered"
        return super().add_person(name, node, role, client)

    def make_device(
        self,
        name: str,
        senses: list[Sense],
        rng: Random,
        drive: Callable[[Random, int, int, int], int] | None,
    ) -> EmulatedDevice:
        """Return a device with its keys."""
        return WholeDevice(
            name,
            sorted(self.hosts),
            self.vocabulary_hash,
            senses,
            rng,
            drive,
            keeps_readings=self.keeps_readings,
        )

    def find_secret(self, device: str, node: str) -> bytes:
        """Return what a device and a node share: another at each node."""
        return make_secret(device, node)

    def whole(self, name: str) -> WholeNode:
        """Return a node."""
        host = self.hosts[name]
        assert isinstance(host, WholeNode)
        return host

    def act_as(
        self, name: str, act: Callable[[Client, int], list[Publish]], client: Client
    ) -> None:
        """Let a client do something at a node."""
        self._do(self.hosts[name], lambda: act(client, self.now))

    def _bring(self, name: str, publish: Publish) -> None:
        super()._bring(name, publish)
        if publish.topic.startswith(CHAT):
            self.chat.append((self.now, name, publish.topic))

    # Processes ------------------------------------------------------------------------------

    def _do(self, host: HostedNode, call: Callable[[], list[Publish]]) -> bool:
        if not host.is_up:
            return False
        assert isinstance(host, WholeNode)
        try:
            published = call()
        except Crashed as death:
            self.kill(host.name, str(death))
            return False
        except Exception as error:  # noqa: BLE001 - it ends the run, as in the process
            self._end_run(host, error)
            return False
        for publish in published:
            self.calendar.wait(
                host.settings.disk_delay, self._route, host.name, host.store, publish
            )
        self._cut_lost(host)
        return True

    def _end_run(self, host: WholeNode, error: Exception) -> None:
        """Let the process do what it does when a run of it ends."""
        self.tell("kill", f"{host.name}: {type(error).__name__}: {error}")
        if not isinstance(error, StoreError | OSError):
            when = "at its start: " if host.run is None else ""
            host.defects.append(when + describe_defect(error))
        self.deaths += 1
        request = host.end_run(error)
        self._void(host.name)
        self._obey(host, request)

    def _void(self, name: str) -> None:
        """Let nothing planned for a dead node happen."""
        for pair in [pair for pair in self.links if name in pair]:
            self._cut(pair)
        self._ticks[name] = (self._ticks[name][0] + 1, 0)

    def _obey(self, host: WholeNode, request: LoopRequest) -> None:
        if request.what == "open":
            self.calendar.wait(max(request.wait, 1), self._start, host.name)
            return
        assert request.what == "end", request
        error = request.error
        is_failed = isinstance(error, StoreError) and not isinstance(error, StoreFull)
        if is_failed:  # somebody looks after the disk, and starts the node
            host.loop = type(host.loop)(host.config)
            self.calendar.wait(self.settings.restart_after, self._start, host.name)
        else:
            host.endings.append("nothing" if error is None else describe_defect(error))
            self.tell("end", f"{host.name}: {host.endings[-1]}")

    def _start(self, name: str) -> None:
        host = self.whole(name)
        if host.is_up or host.endings:
            return
        self._starts[name] += 1
        try:
            host.start(self.now)
        except Crashed as death:
            self.tell("kill", f"{name}: at its start: {death}")
            host.die()
            self.deaths += 1
            self.calendar.wait(self.settings.restart_after, self._start, name)
            return
        except Exception as error:  # noqa: BLE001 - as the process sees it
            self._end_run(host, error)
            return
        self._plan_tick(name, 1_000)
        for pair in sorted(pair for pair in self._near if name in pair):
            self._link(pair)
        self.calendar.wait(1_000, self._greet, name, self._starts[name])

    # Links ----------------------------------------------------------------------------------

    def _link(self, pair: tuple[str, str]) -> None:
        """Let the first of two nodes log in at the other's server."""
        is_able = pair in self._near and pair not in self.blocked and pair not in self.links
        if not is_able or not all(self.hosts[name].is_up for name in pair):
            return
        first, second = pair
        credentials = self.whole(first).keyring.make_credentials(second)
        if credentials is None:
            return  # its card has not come yet; the next tick tries again
        air = self.links[pair] = Air(*pair, self.settings.radio)
        self.contacts += 1
        for one, other in ((first, second), (second, first)):
            air.ways[one].weather = self.weather.get((one, other), FAIR)
        listener = self.whole(second)
        is_in = [False]

        def admit() -> list[Publish]:
            listener._now = self.now
            is_in[0] = listener.admit_peer(first, credentials[1])
            return listener._take_published()

        self._do(listener, admit)
        if not is_in[0]:
            self._cut(pair)
        elif self.links.get(pair) is air:
            self.give(first, PeerUp(second))
            self._plan_tick(second, 1_000)

    def _cut_lost(self, host: WholeNode) -> None:
        """Cut the links of those whom a server disconnected."""
        lost, host.lost_peers = host.lost_peers, []
        for peer in lost:
            self._cut((peer, host.name))

    def _tick(self, name: str, number: int) -> None:
        super()._tick(name, number)
        for pair in sorted(self._near):
            if name in pair:
                self._link(pair)


__all__ = ["DEFAULT", "SMALL", "WholeWorld"]
