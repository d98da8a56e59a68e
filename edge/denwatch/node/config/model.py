"""What `node.toml` can say: every key, its kind, its limits and its default. No I/O.

The comments of the file that `denwatch node --init` writes say what each is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from denwatch.node.security.roles import Role

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Bytes = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Seconds = Annotated[int, msgspec.Meta(ge=1, le=10 * 366 * 86400)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file: what it does not know is a mistake."""


class TlsSection(Section, frozen=True):
    """Files of the server's certificate, its key, and the authority that peers are verified by."""

    certificate: str = "tls/node.pem"
    key: str = "tls/node.key"
    ca: str = "tls/ca.pem"


class AccessSection(Section, frozen=True):
    """Who gets in without a name, and topics for everybody's own purposes."""

    anonymous: bool = False
    anonymous_role: str = "observer"
    shared: list[str] = msgspec.field(default_factory=list)


class PeerSection(Section, frozen=True):
    """Another node, and where it listens."""

    name: str
    url: str


class DiscoverySection(Section, frozen=True):
    """Whether to look for peers on the local network, and be found."""

    zeroconf: bool = False


class BrokerSection(Section, frozen=True):
    """Somebody else's broker instead of the node's own server."""

    url: str = ""
    user: str = ""
    password_file: str = ""
    ca: str = ""


class ReplicationSection(Section, frozen=True):
    """Which notifications peers are given, and how much at a time."""

    strategy: str = "auto"
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1024, le=131_072)] = 32_768
    follow_plan: bool = False


class LimitsSection(Section, frozen=True):
    """What one client, and all of them, can make the node keep."""

    packet_bytes: Annotated[int, msgspec.Meta(ge=1024, le=268_435_460)] = 262_144
    window: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 32
    queue: Count = 1_000
    queue_bytes: Bytes = 4_194_304
    total_queue_bytes: Bytes = 268_435_456
    subscriptions: Count = 1_000
    sessions: Count = 10_000
    links: Count = 2_000
    retained: Count = 10_000
    messages_per_second: Count = 500
    burst: Count = 2_000
    requests_per_subscriber: Count = 1_000
    notifications: Count = 1_000_000


class ExpirySection(Section, frozen=True):
    """How long notifications are kept; a subscription says so itself."""

    notification_seconds: Seconds = 86400


class LogSection(Section, frozen=True):
    """The segments that Spark reads."""

    segment_bytes: Annotated[int, msgspec.Meta(ge=4096, le=1 << 34)] = 16_777_216
    rotate_seconds: Seconds = 300
    keep_days: Annotated[int, msgspec.Meta(ge=0, le=36_600)] = 0
    sign_all: bool = False


class MetricsSection(Section, frozen=True):
    """Where Prometheus finds this node's numbers."""

    address: str = ""


class StatusSection(Section, frozen=True):
    """How often dens/1/status/NAME is published."""

    interval_seconds: Seconds = 10


class HomeAssistantSection(Section, frozen=True):
    """Whether devices are announced to Home Assistant, to whom, and what of them."""

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


# What the node gets: the same, with addresses taken apart and paths made whole -------------------


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    has_tls: bool = False


@dataclass(frozen=True)
class Peer:
    """Another node, and where its server is."""

    name: str
    address: Address


@dataclass(frozen=True)
class Tls:
    """Files of certificates."""

    certificate: Path
    key: Path
    ca: Path


@dataclass(frozen=True)
class Broker:
    """Somebody else's broker, and how to enter."""

    address: Address
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
class HomeAssistant:
    """What Home Assistant is told: what all `roles` may see; `user` may listen at our server."""

    prefix: str
    user: str  # "" for nobody
    roles: tuple[str, ...]
    expire_after: int  # s, 0 for never


@dataclass(frozen=True)
class NodeConfig:
    """A node's whole configuration, checked."""

    name: str
    folder: Path  # of node.toml and keys.json
    data: Path
    vocabulary: tuple[str, ...]  # shipped names, or whole paths of files
    organisation: str | None
    listen: tuple[Address, ...]
    tls: Tls
    anonymous_role: str | None
    shared: tuple[str, ...]
    peers: tuple[Peer, ...]
    has_zeroconf: bool
    broker: Broker | None
    replication: Replication
    limits: LimitsSection
    expiry: ExpirySection
    log: LogSection
    metrics: Address | None
    status: StatusSection
    home_assistant: HomeAssistant | None
    roles: Mapping[str, Role]
