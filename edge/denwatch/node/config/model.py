"""What `node.toml` can contain: every key with its type, limits and default.

A new key needs three lines: in its section, in `NodeConfig` if the node gets it in another form,
and in `template.toml`, whose comments are the users' documentation of all keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from denwatch.node.security.access import Role

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Bytes = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Seconds = Annotated[int, msgspec.Meta(ge=1, le=10 * 366 * 86400)]
Short = Annotated[int, msgspec.Meta(ge=1, le=65_535)]  # MQTT has two bytes for it


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file; an unknown key is a mistake."""


class TlsSection(Section, frozen=True):
    """Files of the server's certificate and key, and of the authority that verifies peers."""

    certificate: str = "tls/node.pem"
    key: str = "tls/node.key"
    ca: str = "tls/ca.pem"


class AccessSection(Section, frozen=True):
    """Clients without a name, and topics that everybody may use."""

    anonymous: bool = False
    anonymous_role: str = "observer"
    shared: list[str] = msgspec.field(default_factory=list)
    unshared: list[str] = msgspec.field(default_factory=list)
    origins: list[str] = msgspec.field(default_factory=list)


class PeerSection(Section, frozen=True):
    """Another node, and where it listens."""

    name: str
    url: str


class DiscoverySection(Section, frozen=True):
    """Whether to find peers on the local network, and to be found."""

    zeroconf: bool = False


class BrokerSection(Section, frozen=True):
    """An external broker instead of the node's own server."""

    url: str = ""
    user: str = ""
    password_file: str = ""
    ca: str = ""


class ReplicationSection(Section, frozen=True):
    """Which notifications are sent to peers, and how much at a time."""

    strategy: str = "auto"
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1024, le=131_072)] = 32_768
    follow_plan: bool = False


class LimitsSection(Section, frozen=True):
    """How much one client, and all together, can make the node keep."""

    packet_bytes: Annotated[int, msgspec.Meta(ge=131_072, le=268_435_460)] = 262_144
    connect_bytes: Annotated[int, msgspec.Meta(ge=1_024, le=268_435_460)] = 81_920
    topic_bytes: Annotated[int, msgspec.Meta(ge=128, le=65_535)] = 1_024
    topic_levels: Annotated[int, msgspec.Meta(ge=8, le=65_535)] = 32
    client_bytes: Annotated[int, msgspec.Meta(ge=64, le=65_535)] = 256
    topic_aliases: Short = 32
    window: Short = 32
    inbound: Short = 1_024
    queue: Count = 1_000
    queue_bytes: Bytes = 4_194_304
    total_queue_bytes: Bytes = 268_435_456
    full_queue: Literal["expel", "drop", "wait"] = "expel"
    patience_seconds: Seconds = 1
    hold_seconds: Seconds = 20
    slow_seconds: Seconds = 60
    waiting: Count = 64
    waiting_bytes: Bytes = 262_144
    subscriptions: Count = 1_000
    sessions: Count = 10_000
    user_sessions: Count = 256
    session_seconds: Seconds = 604_800
    keep_alive_seconds: Short = 60
    retained: Count = 10_000
    retained_bytes: Bytes = 67_108_864
    wills: Count = 1_000
    links: Count = 2_000
    links_per_name: Count = 100
    half_open: Count = 256
    half_open_per_address: Count = 64
    connect_seconds: Seconds = 10
    farewell_seconds: Seconds = 5
    buffer_bytes: Bytes = 262_144
    buffer_limit_bytes: Bytes = 16_777_216
    messages_per_second: Count = 500
    burst: Count = 2_000
    cpu_ms_per_second: Count = 200
    requests_per_subscriber: Count = 1_000
    notifications: Count = 1_000_000


class ExpirySection(Section, frozen=True):
    """How long notifications are kept."""

    notification_seconds: Seconds = 86400


class LogSection(Section, frozen=True):
    """The segments that Spark reads."""

    segment_bytes: Annotated[int, msgspec.Meta(ge=4096, le=1 << 34)] = 16_777_216
    rotate_seconds: Seconds = 300
    keep_days: Annotated[int, msgspec.Meta(ge=0, le=36_600)] = 0
    sign_all: bool = False
    whole_readings: bool = False


class MetricsSection(Section, frozen=True):
    """Where Prometheus reads this node's metrics."""

    address: str = ""


class StatusSection(Section, frozen=True):
    """How often dens/1/status/NAME is published."""

    interval_seconds: Seconds = 10


class HomeAssistantSection(Section, frozen=True):
    """Whether devices are announced to Home Assistant, and what it may see."""

    enabled: bool = False
    prefix: str = "homeassistant"
    user: str = ""
    role: str = ""
    expire_after_seconds: Annotated[int, msgspec.Meta(ge=0, le=366 * 86400)] = 3600


class RoleSection(Section, frozen=True):
    """What a role may see."""

    events: list[str] = msgspec.field(default_factory=list)
    attributes: list[str] = msgspec.field(default_factory=list)
    deny: list[str] = msgspec.field(default_factory=list)


class Document(Section, frozen=True):
    """The whole file."""

    name: str
    data: str = "data"
    vocabulary: list[str] = msgspec.field(default_factory=lambda: ["rescue"])
    organisation: str = ""
    listen: list[str] = msgspec.field(default_factory=lambda: ["mqtt://127.0.0.1:1883"])
    tls: TlsSection = TlsSection()
    access: AccessSection = AccessSection()
    peers: list[PeerSection] = msgspec.field(default_factory=list)
    discovery: DiscoverySection = DiscoverySection()
    broker: BrokerSection = BrokerSection()
    replication: ReplicationSection = ReplicationSection()
    limits: LimitsSection = LimitsSection()
    expiry: ExpirySection = ExpirySection()
    log: LogSection = LogSection()
    metrics: MetricsSection = MetricsSection()
    status: StatusSection = StatusSection()
    home_assistant: HomeAssistantSection = HomeAssistantSection()
    roles: dict[str, RoleSection] = msgspec.field(default_factory=dict)


# What the node gets: the same, with addresses parsed and paths made absolute ------------------


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens."""

    host: str
    port: int
    has_tls: bool = False
    is_websocket: bool = False

    @property
    def scheme(self) -> str:
        """What its URL begins with."""
        return ("ws" if self.is_websocket else "mqtt") + ("s" if self.has_tls else "")


@dataclass(frozen=True)
class PeerAddress:
    """Another node, and where its server is."""

    name: str
    address: ServerAddress


@dataclass(frozen=True)
class Tls:
    """Files of certificates."""

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True)
class Broker:
    """An external broker and the login for it."""

    address: ServerAddress
    user: str
    password: str = field(repr=False)
    ca: Path | None  # None: the system's authorities


@dataclass(frozen=True)
class Replication:
    """`copies` is how many a strategy may make, 0 for its own number."""

    strategy: str
    copies: int
    chunk_bytes: int
    follow_plan: bool = False  # use the strategy that an operator recommends


@dataclass(frozen=True)
class HomeAssistantConfig:
    """Home Assistant gets what all `roles` may see; `user` may read it at our server."""

    prefix: str
    user: str  # "": nobody
    roles: tuple[str, ...]
    expire_after: int  # s; 0: never


@dataclass(frozen=True)
class NodeConfig:
    """A node's whole configuration, checked."""

    name: str
    folder: Path  # of node.toml and keys.json
    data: Path
    vocabulary: tuple[str, ...]  # shipped names, or absolute paths of files
    organisation: str | None
    listen: tuple[ServerAddress, ...]
    tls: Tls
    anonymous_role: str | None
    shared: tuple[str, ...]
    unshared: tuple[str, ...]
    origins: tuple[str, ...]
    peers: tuple[PeerAddress, ...]
    has_zeroconf: bool
    broker: Broker | None
    replication: Replication
    limits: LimitsSection
    expiry: ExpirySection
    log: LogSection
    metrics: ServerAddress | None
    status: StatusSection
    home_assistant: HomeAssistantConfig | None
    roles: Mapping[str, Role]


class NodeConfigError(ValueError):
    """`key` is dotted, "" if the file as a whole is meant; `line` is 0 where it is unknown."""

    def __init__(self, key: str, what: str, line: int = 0, source: str = "") -> None:
        self.key = key
        self.what = what
        self.line = line
        place = ", ".join(part for part in (source, f"line {line}" if line else "") if part)
        super().__init__(": ".join(part for part in (place, key, what) if part))


# The text of a new `node.toml`, with marks (@name@) for what differs from node to node.
TEMPLATE = Path(__file__).with_name("template.toml")


def write_config(name: str, listen: list[str], peers: dict[str, str]) -> str:
    """Return the text of a configuration for a node, its addresses, and its peers' URLs by name."""
    tables = "".join(
        f"\n[[peers]]\nname = {json.dumps(peer)}\nurl = {json.dumps(url)}\n"
        for peer, url in peers.items()
    )
    text = TEMPLATE.read_text(encoding="utf-8").replace('"@name@"', json.dumps(name))
    text = text.replace('["@listen@"]', json.dumps(listen))
    return text.replace("# @peers@\n", tables + "\n" if tables else "\n")
