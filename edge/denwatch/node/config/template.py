"""The text of a new `node.toml`: every key with its default and what it is for. Pure."""

from __future__ import annotations

import json

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
