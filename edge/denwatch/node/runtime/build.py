"""Puts a node together from its configuration: the only file that knows all parts by name."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from denwatch.client.version import find_version
from denwatch.client.vocabulary import Vocabulary
from denwatch.client.vocabulary.loading import (
    SHIPPED,
    load_shipped,
    merge_vocabularies,
    parse_vocabulary,
)
from denwatch.node.config import NodeConfig, Replication
from denwatch.node.core.devices import Devices, DeviceSettings, VocabularySenses
from denwatch.node.core.home import Home, HomeSettings, Vision
from denwatch.node.core.interface import Count
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import NOTIFICATION, SUBSCRIPTION
from denwatch.node.core.node import Node, Protocols
from denwatch.node.core.operators import Operators
from denwatch.node.core.peers import PeerPart, PeerSettings
from denwatch.node.core.subscribers import Subscribers, SubscriberSettings
from denwatch.node.core.trust import Trust
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.server import MqttServer
from denwatch.node.replication.clock import Clocks
from denwatch.node.runtime.clock import SteadyClock, read_wall
from denwatch.node.runtime.publishers import list_publishers
from denwatch.node.runtime.station import Station
from denwatch.node.runtime.status import StatusTimer
from denwatch.node.security import Access, Keyring, RateLimit, RoleTable, open_keyring
from denwatch.node.security.access import grant_home
from denwatch.node.store import Store

DATABASE = "node.db"
_FEW_NODES = 64  # among which every notification may go everywhere
_BROKER_WINDOW = 400  # notifications: twice what our library reports at once


@dataclass
class Counter:
    """Where counts go; the metrics take the place of nowhere when they are there."""

    target: Callable[[Count], None] = field(default=lambda _: None)

    def __call__(self, what: Count) -> None:
        self.target(what)


@dataclass(frozen=True)
class _Roles:
    """Names to roles by the access rules, and what a role may see by the configuration."""

    access: Access
    table: RoleTable

    def role_of(self, owner: str) -> str:
        return self.access.role_of(owner) or ""

    def check(self, role: str, event: str, attributes: Iterable[str]) -> object | None:
        return self.table.check(role, event, attributes)


@dataclass(frozen=True)
class Assembly:
    """The parts of one node that the process around it talks to."""

    config: NodeConfig
    keyring: Keyring
    access: Access
    limits: Limits
    station: Station
    item_store: ItemStore
    subscribers: Subscribers
    devices: Devices
    peers: PeerPart
    clocks: Clocks
    vocabularies: Vocabularies
    operators: Operators
    counter: Counter
    status: StatusTimer

    def describe_start(self) -> dict[str, object]:
        """Return the fields of the log's record of a start."""
        strategy = self.peers.kit.settings.strategy
        return {"software": f"denwatch {find_version()}", "strategy": strategy}

    def read_gauges(self, now: int) -> dict[str, float]:
        """Return what there is of everything now."""
        devices = self.devices.describe()
        return {
            "subscriptions": self.item_store.count(SUBSCRIPTION),
            "notifications": self.item_store.count(NOTIFICATION),
            "waiting": self.subscribers.count_waiting(),
            "attached": self.subscribers.count_attached(),
            "peers": len(self.station.peers),
            "clock_doubt_ms": self.clocks.doubt_peers(now),
            **{f"devices_{name}": number for name, number in devices.items()},
        }

    def describe(self, now: int, uptime: int, totals: dict[str, int]) -> dict[str, object]:
        """Return the node's status; times are in ms.

        `at` is what the machine's clock shows, `clock_ms` by how much that is ahead of the node's
        own timeline, `doubt_ms` by how much the node may be wrong about the timeline of a peer
        that it is linked with. `lag_ms` is for how long something has been waiting to be
        exchanged with such a peer, at most: 0 if all are up to date, null if there is none.
        """
        gauges = self.read_gauges(now)
        return {
            "node": self.config.name,
            "version": find_version(),
            "epoch": self.item_store.epoch,
            "at": self.clocks.date(now),
            "uptime_s": uptime // 1000,
            "subscriptions": gauges["subscriptions"],
            "notifications": gauges["notifications"],
            "queue": gauges["waiting"],
            "attached": gauges["attached"],
            "delivered": totals.get("notes_delivered", 0),
            "devices": gauges["devices_present"],
            "publishers": list_publishers(self.devices.list_devices(), self.vocabularies),
            "peers": sorted(self.station.peers),
            "lag_ms": self.peers.find_lag(now),
            "plan": self.operators.describe(),
            "clock_ms": self.clocks.wall,
            "doubt_ms": gauges["clock_doubt_ms"],
            "conflicts": self.keyring.conflicts,
            "counts": totals,
        }


@dataclass(frozen=True)
class Opened:
    """A node that is ready to run."""

    config: NodeConfig
    assembly: Assembly
    store: Store
    clock: SteadyClock


def open_node(config: NodeConfig) -> Opened:
    """Open store and keys, and restore the node; StoreError, SecurityError or ValueError."""
    keyring = open_keyring(config.folder)
    if keyring.name != config.name:
        raise ValueError(f"node.toml is of {config.name}, the keys beside it are of {keyring.name}")
    vocabulary = load_vocabularies(config.vocabulary)
    config.data.mkdir(parents=True, exist_ok=True)
    (config.data / "log").mkdir(exist_ok=True)
    # A store that was lost and made anew must not number its items as the lost one did.
    first_epoch = max(1, int(read_wall()))
    store = Store(config.data / DATABASE, config.name, first_epoch=first_epoch)
    try:
        clocks = Clocks(config.name, store.epoch)
        clock = SteadyClock(clocks.restore(store, int(read_wall() * 1000)))
        assembly = build_assembly(config, keyring, vocabulary, store, clocks)
        assembly.station.restore(clock.read())
    except BaseException:
        store.close()
        raise
    return Opened(config, assembly, store, clock)


def build_assembly(
    config: NodeConfig,
    keyring: Keyring,
    vocabulary: Vocabulary,
    store: Store,
    clocks: Clocks,
) -> Assembly:
    """Put the parts together."""
    assistant = config.home_assistant
    besides = {assistant.user: grant_home(assistant.prefix)} if assistant else {}
    access = Access(keyring, secrets.token_bytes(32), config.anonymous_role, config.shared, besides)
    roles = RoleTable(config.roles)
    limits = read_limits(config)
    item_store = ItemStore(config.name, store.epoch, keyring.sign, clocks.localise)
    vocabularies = Vocabularies(vocabulary)
    subscribers = Subscribers(
        item_store,
        vocabularies,
        roles=_Roles(access, roles),
        clock=clocks,
        settings=SubscriberSettings(
            max_subscriptions=config.limits.requests_per_subscriber,
            # Behind a broker apps report what they have, now and then: more is on its way.
            window=max(config.limits.window, 0 if config.broker is None else _BROKER_WINDOW),
            held_limit=config.limits.notifications,
            organisation=config.organisation,
            signs_all=config.log.sign_all,
        ),
    )
    devices = Devices(
        item_store,
        keyring,
        VocabularySenses(vocabularies.find, vocabularies.agree),
        clocks.localise,
        DeviceSettings(
            keep=config.expiry.notification_seconds * 1000, has_listeners=config.broker is None
        ),
        has_room=lambda: not subscribers.is_full,
    )
    replication = PeerSettings(
        strategy=name_strategy(config.replication, len(keyring.list_nodes())),
        chunk=config.replication.chunk_bytes,
    )
    trust = Trust(item_store, keyring)
    peers = PeerPart(item_store, keyring, subscribers, clocks, replication, trust)
    home = Home(
        config.name,
        vocabularies.find_event,
        lambda: (d for d in devices.list_devices() if keyring.list_key_ids(d.name)),
        Vision(roles, assistant.roles if assistant else ()),
        clocks.show,
        HomeSettings(assistant.prefix, assistant.expire_after, find_version())
        if assistant
        else None,
    )
    operators = Operators(
        item_store, peers.kit.gate, peers, is_following=config.replication.follow_plan
    )
    node = Node(item_store, store, Protocols(subscribers, devices, peers, operators, home, trust))
    counter = Counter()
    server = None
    if config.broker is None:
        pace = RateLimit(config.limits.messages_per_second, config.limits.burst)
        server = MqttServer(access, limits, pace)
    station = Station(node, store, server, counter, clocks.stamp)
    return Assembly(
        config,
        keyring,
        access,
        limits,
        station,
        item_store,
        subscribers,
        devices,
        peers,
        clocks,
        vocabularies,
        operators,
        counter,
        StatusTimer(config.status.interval_seconds * 1000),
    )


def read_limits(config: NodeConfig) -> Limits:
    """Return the server's limits."""
    wanted = config.limits
    return Limits(
        packet_bytes=wanted.packet_bytes,
        window=wanted.window,
        queue=wanted.queue,
        queue_bytes=wanted.queue_bytes,
        total_queue_bytes=wanted.total_queue_bytes,
        subscriptions=wanted.subscriptions,
        sessions=wanted.sessions,
        links=wanted.links,
        retained=wanted.retained,
    )


def name_strategy(replication: Replication, nodes: int) -> str:
    """Return the strategy of a site with so many nodes as one word, with its copies."""
    if replication.strategy == "auto":
        return "epidemic" if nodes <= _FEW_NODES else "utility"
    return replication.strategy + (f":{replication.copies}" if replication.copies else "")


def load_vocabularies(names: tuple[str, ...]) -> Vocabulary:
    """Return the vocabulary of shipped names and files, merged."""
    merged = None
    for name in names:
        if name in SHIPPED:
            found = load_shipped(name)
        else:
            found = parse_vocabulary(Path(name).read_text(encoding="utf-8"))
        merged = found if merged is None else merge_vocabularies(merged, found)
    assert merged is not None, "the configuration has at least one"
    return merged
