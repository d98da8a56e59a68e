"""What `node.toml` can contain: every key with its type, limits and default; the template. Pure.

A new key needs three lines here: in its section, in `NodeConfig` if the node gets it in another
form, and in the template, whose comments are the users' documentation of all keys.
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
    """How long notifications are kept."""

    notification_seconds: Seconds = 86400


class LogSection(Section, frozen=True):
    """The segments that Spark reads."""

    segment_bytes: Annotated[int, msgspec.Meta(ge=4096, le=1 << 34)] = 16_777_216
    rotate_seconds: Seconds = 300
    keep_days: Annotated[int, msgspec.Meta(ge=0, le=36_600)] = 0
    sign_all: bool = False


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


# The template: the text of a new `node.toml` -------------------------------------------------

_TEMPLATE = """\
# The configuration of a DENS node. Every key is listed with its default; a key that is left out has
# that value. `denwatch node --check` checks the file. Paths are relative to this file's folder.
# Names and keys are not in here: see `denwatch keys --help`.

# The name of this node, as in keys.json. Its peers know it by this name.
name = @name@

# The folder of the database and the log.
data = "data"

# The vocabularies of subscriptions: shipped ones ("rescue", "weather") or .toml files. Several are
# merged. `denwatch vocabulary list` shows them.
vocabulary = ["rescue"]

# The organisation whose synonyms come first where a word has two meanings; "" for none.
organisation = ""

# The addresses of the node's MQTT server. mqtt:// is for this machine only (127.0.0.1, ::1). Any
# other address needs mqtts:// and the certificate below, for example "mqtts://0.0.0.0:8883".
listen = @listen@

# The server's certificate and key, and the authority that verifies peers.
# `denwatch keys renew --address HOST` makes a certificate for more host names.
[tls]
certificate = "tls/node.pem"
key = "tls/node.key"
ca = "tls/ca.pem"

[access]
# Accept clients without a name and password: from this machine only, under unregistered names.
anonymous = false
# The role of these clients.
anonymous_role = "observer"
# Topic filters outside dens/ on which every client with a name may publish and subscribe, for
# example ["chat/#"]; [] for none.
shared = []

# Other nodes to connect to, with name and address. `denwatch keys list` must show them.
# It is enough if one of two nodes lists the other.
# [[peers]]
# name = "node-b"
# url = "mqtts://node-b.local:8883"
@peers@
[discovery]
# Find peers on the local network by zeroconf (mDNS), and be found. A node that was found must still
# prove its name.
zeroconf = false

# An external MQTT broker instead of this node's own server; "" for the own server. The broker's
# access rules then protect the topics: `denwatch keys acl` prints them for Mosquitto.
[broker]
url = ""
user = ""
# A file with the password, mode 0600.
password_file = ""
# The authority that signed the broker's certificate; "" for those of the operating system.
ca = ""

[replication]
# Which notifications are sent to a peer:
# "epidemic"  all of them: the most reliable;
# "utility"   twelve copies of each in the network ("utility:20": twenty), most of them with nodes
#             that move around; a tenth of the cost in a crowd, less reliable where groups seldom
#             meet;
# "spray:6"   six copies of each, which then wait for the receiver;
# "auto"      epidemic up to 64 nodes with keys here, utility beyond.
strategy = "auto"
# About so many bytes of items go into one frame, which is one transaction at the receiver.
chunk_bytes = 32768
# Change the strategy when an operator recommends one from the logs of all nodes
# (`denwatch stream --mqtt`). If false, the status only shows the recommendation.
follow_plan = false

# How much one client, and all together, can make this node keep. Whatever exceeds a limit is
# refused or has to wait; nothing is dropped silently.
[limits]
# Bytes of one MQTT packet.
packet_bytes = 262144
# Messages sent to a client and not yet acknowledged.
window = 32
# Messages, and bytes, that wait for one client.
queue = 1000
queue_bytes = 4194304
# Bytes that wait for all clients together.
total_queue_bytes = 268435456
# Topic filters of one client.
subscriptions = 1000
# Sessions, connected or kept; open connections; retained messages.
sessions = 10000
links = 2000
retained = 10000
# Messages of one client per second, and how many at once.
messages_per_second = 500
burst = 2000
# Subscriptions in words that one subscriber may have.
requests_per_subscriber = 1000
# Notifications that are kept. At the limit watchdogs wait; then the notification with the lowest
# degree x freshness is removed.
notifications = 1000000

# How long notifications are kept: one day. A subscription has its own expiry.
[expiry]
notification_seconds = 86400

# The log that `denwatch analyze` reads: a segment is closed at this size or age.
[log]
segment_bytes = 16777216
rotate_seconds = 300
# Delete closed segments after so many days; 0 keeps them.
keep_days = 0
# Log the signature of every notification, not only of those that somebody elsewhere waits for.
# Operators can then also forward what nobody here subscribed to. Costs 50 to 100 µs a notification.
sign_all = false

# Prometheus metrics at http://ADDRESS/metrics, on this machine only, for example
# "127.0.0.1:9464"; "" for none.
[metrics]
address = ""

# How often dens/1/status/NAME is published.
[status]
interval_seconds = 10

[home_assistant]
# Announce what watchdogs measure to Home Assistant by MQTT discovery: docs/home-assistant.md.
enabled = false
# The topic under which Home Assistant looks for announcements.
prefix = "homeassistant"
# The subscriber as which Home Assistant connects here; nobody else may read these topics.
user = ""
# Home Assistant gets what this role may see; "": only what every role below may see.
role = ""
# A reading is shown as unknown after so many seconds; 0: never.
expire_after_seconds = 3600

# Who may see what. `denwatch keys add subscriber NAME --role ROLE` gives somebody a role. A role
# sees the listed attributes of the listed events, except what it denies; "*" stands for any part of
# a name. A role that is not listed here sees nothing. Every node uses its own table, so if two
# tables differ the stricter one wins.
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
