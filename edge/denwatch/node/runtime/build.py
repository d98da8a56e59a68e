"""Puts a node together from its configuration: its settings, its server and its status."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
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
from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.home_assistant import HomeSettings, Visibility
from denwatch.node.core.item_store import RunNumbers
from denwatch.node.core.node import CoreSettings, Node, build_core
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.subscriber_protocol import SubscriberProtocol
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.node.core.updates import DeviceUpdates
from denwatch.node.mqtt.budgets import OWN_FILES, LinkBudget, RateLimit, WorkBudget, fit_files
from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.server import MqttServer
from denwatch.node.replication.clock import Clocks
from denwatch.node.runtime.durable_node import DurableNode
from denwatch.node.runtime.metrics import Metrics, NodeStatus
from denwatch.node.security import Access, Keyring, RoleTable
from denwatch.node.security.access import OPERATOR, grant_home
from denwatch.node.store import Storage

_FEW_NODES = 64  # among which every notification may go everywhere
_BROKER_WINDOW = 400  # notifications: twice what our library reports at once
_PEER_FILES = 4  # of a link that we open: its socket, and those that wake its thread


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
class MachineResources:
    """What a node has of its machine: how many files, and its thread's processor time in ms."""

    files: int = 1 << 20
    read_cpu: Callable[[], float] = lambda: 0.0


_UNBOUNDED = MachineResources()


@dataclass(frozen=True)
class BuiltNode:
    """A node that is put together, and what the process around it needs of it."""

    durable_node: DurableNode
    clocks: Clocks
    keyring: Keyring
    access: Access
    status: NodeStatus
    updates: DeviceUpdates

    def list_fleet(self) -> list[dict[str, object]]:
        """Return what the core as it is now knows of its devices, for people."""
        devices = self.durable_node.node.protocols.devices
        return [] if devices is None else devices.describe_fleet()

    @property
    def subscribers(self) -> SubscriberProtocol:
        """The subscribers' protocol of the core as it is now."""
        found = self.durable_node.node.protocols.subscribers
        assert found is not None, "the settings below have them"
        return found


def build_node(
    config: NodeConfig,
    keyring: Keyring,
    vocabulary: Vocabulary,
    store: Storage,
    clocks: Clocks,
    machine: MachineResources = _UNBOUNDED,
) -> BuiltNode:
    """Put a node together; nothing is restored yet."""
    assistant = config.home_assistant
    besides = {assistant.user: grant_home(assistant.prefix)} if assistant else {}
    access = Access(
        keyring,
        secrets.token_bytes(32),
        config.anonymous_role,
        config.shared,
        config.unshared,
        besides,
    )
    roles = RoleTable(config.roles)
    settings = CoreSettings(
        subscribers=SubscriberSettings(
            max_subscriptions=config.limits.requests_per_subscriber,
            # Behind a broker apps report what they have, now and then: more is on its way.
            window=max(config.limits.window, 0 if config.broker is None else _BROKER_WINDOW),
            held_limit=config.limits.notifications,
            report_life=config.expiry.notification_seconds * 1000,
            organisation=config.organisation,
            signs_all=config.log.sign_all,
        ),
        devices=DeviceSettings(
            keep=config.expiry.notification_seconds * 1000,
            has_listeners=config.broker is None,
            # Home Assistant shows every value that a device sends.
            is_whole=assistant is not None or config.log.whole_readings,
        ),
        peers=PeerSettings(
            strategy=name_strategy(config.replication, len(keyring.list_nodes())),
            chunk=config.replication.chunk_bytes,
        ),
        follows_plan=config.replication.follow_plan,
        home=HomeSettings(
            assistant.prefix, assistant.expire_after, find_version(), config.broker is None
        )
        if assistant
        else None,
    )
    vocabularies = Vocabularies(vocabulary)
    numbers = RunNumbers()
    updates = DeviceUpdates()

    def build() -> Node:
        return build_core(
            config.name,
            store,
            keyring,
            vocabularies,
            clocks,
            settings,
            roles=_Roles(access, roles),
            visibility=Visibility(roles, assistant.roles if assistant else ()),
            notices=keyring,
            numbers=numbers,
            updates=updates,
        )

    def rebuild() -> Node:
        gc.unfreeze()  # what was frozen at the start is garbage now
        gc.collect()
        clocks.reload(store)
        node = build()
        node.restore()
        gc.freeze()
        return node

    limits = config.limits

    def is_vital(name: str) -> bool:
        return keyring.kind_of(name) in ("node", "device") or keyring.role_of(name) == OPERATOR

    rate = RateLimit(limits.messages_per_second, limits.burst)
    work = WorkBudget(limits.cpu_ms_per_second, rate, is_vital, machine.read_cpu)
    server = None
    if config.broker is None:
        own = OWN_FILES + _PEER_FILES * len(config.peers)
        server_limits = fit_files(read_limits(config), machine.files, own)
        links = LinkBudget(server_limits, is_vital, machine.read_cpu)
        server = MqttServer(access, server_limits, work, links)
    metrics = Metrics(config.name)
    durable_node = DurableNode(build(), store, server, metrics.count, clocks.stamp, rebuild)
    durable_node.budget = work
    status = NodeStatus(durable_node, clocks, vocabularies, keyring, metrics)
    return BuiltNode(durable_node, clocks, keyring, access, status, updates)


def read_limits(config: NodeConfig) -> Limits:
    """Return the server's limits, which the configuration has in seconds where they are times."""
    wanted = config.limits
    found: dict[str, int | str] = {}
    for field in fields(Limits):
        name = field.name
        if name.endswith("_ms"):
            found[name] = 1000 * getattr(wanted, name.removesuffix("ms") + "seconds")
        elif name.endswith("_s"):
            found[name] = getattr(wanted, name.removesuffix("s") + "seconds")
        else:
            found[name] = getattr(wanted, name)
    return Limits(**found)  # type: ignore[arg-type]


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
