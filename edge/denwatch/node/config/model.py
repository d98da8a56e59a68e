"""What `node.toml` can say: every key, its kind, its limits and its default. No I/O.

The comments of the file that `denwatch node --init` writes say what each is for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from denwatch.node.security.access import Role

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
class ServerAddress:
    """Where a server listens."""

    host: str
    port: int
    has_tls: bool = False


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
    """Somebody else's broker, and how to enter."""

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
    listen: tuple[ServerAddress, ...]
    tls: Tls
    anonymous_role: str | None
    shared: tuple[str, ...]
    peers: tuple[PeerAddress, ...]
    has_zeroconf: bool
    broker: Broker | None
    replication: Replication
    limits: LimitsSection
    expiry: ExpirySection
    log: LogSection
    metrics: ServerAddress | None
    status: StatusSection
    home_assistant: HomeAssistant | None
    roles: Mapping[str, Role]


# A mistake in `node.toml`: which key, what is wrong with it, and in which line.


class NodeConfigError(ValueError):
    """`key` is dotted, "" if the file as a whole is meant; `line` is 0 where it is unknown."""

    def __init__(self, key: str, what: str, line: int = 0, source: str = "") -> None:
        self.key = key
        self.what = what
        self.line = line
        place = ", ".join(part for part in (source, f"line {line}" if line else "") if part)
        super().__init__(": ".join(part for part in (place, key, what) if part))


# The text of a new `node.toml`: every key with its default and what it is for. Pure.

_TEMPLATE = """\
# The configuration of a DENS node. Every key stands here with its default; a key that is left out
# has the same value. `denwatch keys check` checks it. Paths count from the folder of this file.
# Names and keys are elsewhere: `denwatch keys --help`.

# Who this node is, as in keys.json. Its peers know it by this name.
name = @name@

# Where the database and the log are kept.
data = "data"

# The words that people use: shipped vocabularies ("rescue", "weather") or .toml files; several are
# merged. `denwatch vocabulary list` shows them.
vocabulary = ["rescue"]

# Whose synonyms go first where a word means two things; "" for nobody's.
organisation = ""

# Where the node's MQTT server listens. mqtt:// is for this machine alone (127.0.0.1, ::1). Whatever
# reaches beyond it is mqtts:// with the certificate below, for example "mqtts://0.0.0.0:8883".
listen = @listen@

# The server's certificate and key, and the authority by which peers are verified.
# `denwatch keys renew --address HOST` makes a certificate for further names.
[tls]
certificate = "tls/node.pem"
key = "tls/node.key"
ca = "tls/ca.pem"

[access]
# Let clients in without a name and password: on this machine only, under names that nobody has.
anonymous = false
# The role that they have then.
anonymous_role = "observer"
# Topic filters outside dens/ on which everybody with a name may publish and subscribe: [] for none,
# for example ["chat/#"].
shared = []

# Other nodes to connect to, by name and address; they must be known to `denwatch keys list`.
# One of two nodes is enough to open a link.
# [[peers]]
# name = "node-b"
# url = "mqtts://node-b.local:8883"
@peers@
[discovery]
# Look for peers on the local network by zeroconf (mDNS), and be found. A node that is found must
# still prove its name.
zeroconf = false

# Somebody else's broker instead of this node's own server; "" for our own. Then the broker's
# access rules protect the topics: `denwatch keys acl` prints them for Mosquitto.
[broker]
url = ""
user = ""
# A file with the password, mode 0600.
password_file = ""
# The authority that signed its certificate; "" for those of the system.
ca = ""

[replication]
# Which notifications a peer is given: "epidemic" (all of them: the surest), "utility" (twelve
# copies of each in the network, or "utility:20", most of them with nodes that get around; a tenth
# of the cost in a crowd, and less sure where groups seldom meet), "spray:6" (six copies, then wait
# for the receiver), "auto" (epidemic among up to 64 nodes with keys here, utility among more).
strategy = "auto"
# About so many bytes of items in one frame, which is one transaction at the receiver.
chunk_bytes = 32768
# Whether to take another strategy when an operator who sees all nodes' logs recommends it
# (`denwatch stream --mqtt`); otherwise the status only shows it.
follow_plan = false

# What a client, and all of them, can make this node keep. What is beyond is refused or made to
# wait, never dropped in silence.
[limits]
# Of one MQTT packet.
packet_bytes = 262144
# Messages sent to a client and not acknowledged.
window = 32
# Messages, and bytes, that wait for one client.
queue = 1000
queue_bytes = 4194304
# Bytes that wait for all clients.
total_queue_bytes = 268435456
# Topic filters of one client.
subscriptions = 1000
# Sessions, open or kept; open connections; retained messages.
sessions = 10000
links = 2000
retained = 10000
# Messages a second of one client, and how many at once.
messages_per_second = 500
burst = 2000
# Subscriptions in words that one subscriber may have.
requests_per_subscriber = 1000
# Notifications kept; beyond, watchdogs wait, and at last the lowest degree x freshness goes.
notifications = 1000000

# How long notifications are kept: a day. A subscription says itself how long it is valid.
[expiry]
notification_seconds = 86400

# The log that `denwatch analyze` reads: segments are closed at this size or age.
[log]
segment_bytes = 16777216
rotate_seconds = 300
# Remove closed segments after so many days; 0 keeps them.
keep_days = 0
# Log the signature of every notification, not only of those that somebody waits for elsewhere: so
# that operators can also hand on what nobody here asked for, at 50 to 100 µs a notification.
sign_all = false

# Prometheus metrics at http://ADDRESS/metrics, on this machine only, for example
# "127.0.0.1:9464"; "" for none.
[metrics]
address = ""

# How often dens/1/status/NAME is published.
[status]
interval_seconds = 10

[home_assistant]
# Announce what watchdogs sense to Home Assistant, by MQTT discovery: docs/home-assistant.md.
enabled = false
# Where Home Assistant looks for discoveries.
prefix = "homeassistant"
# The subscriber as whom Home Assistant connects here; nobody else may read what it is told.
user = ""
# It is told what this role may see; "" for only that which every role below may see.
role = ""
# A reading is good for so long, and then unknown; 0 for ever.
expire_after_seconds = 3600

# Who may see what. `denwatch keys add subscriber NAME --role ROLE` gives a role. A role sees the
# attributes that it lists, of the events that it lists, but nothing that it denies; "*" stands for
# any part of a name. A role that is not here sees nothing. Nodes judge each by their own table, so
# of two different ones the stricter wins.
[roles.medic]
events = ["*"]
attributes = ["*"]
deny = []

[roles.firefighter]
events = ["fire", "gas", "road", "team", "weather"]
attributes = ["*"]
deny = []

[roles.coordinator]
events = ["*"]
attributes = ["*"]
deny = ["patient.born", "patient.age"]

[roles.observer]
events = ["fire", "gas", "road", "weather"]
attributes = ["*"]
deny = []
"""


def write_config(name: str, listen: list[str], peers: dict[str, str]) -> str:
    """Return the text of a configuration for a node, its addresses, and its peers' URLs by name."""
    tables = "".join(
        f"\n[[peers]]\nname = {json.dumps(peer)}\nurl = {json.dumps(url)}\n"
        for peer, url in peers.items()
    )
    filled = _TEMPLATE.replace("@name@", json.dumps(name)).replace("@listen@", json.dumps(listen))
    return filled.replace("@peers@\n", tables + "\n" if tables else "\n")
