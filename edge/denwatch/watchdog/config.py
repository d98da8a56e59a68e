"""The parts of a watchdog from its configuration: a dictionary, as in `watchdog.json`.

`docs/watchdog.md` describes it. What would make the device silently wrong is refused here, by name;
`denwatch device install` checks the rest on the PC. Only this file knows the names of the fields.
"""

from .execution import Event
from .link import NodeAddress, make_context
from .ring import find_flash, find_partition, open_file
from .seal import FrameKey
from .sources import Channel
from .spool import NODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ring import BlockDevice
    from .sources import Board

# Where the module is called otherwise than the kind.
_KINDS = {
    "csv": "csv_file",
    "dht11": "dht",
    "dht22": "dht",
    "sht3x": "commands",
    "scd4x": "commands",
    "adc": "pins",
    "adc_mv": "pins",
    "gpio": "pins",
    "w1": "sysfs",
    "iio": "sysfs",
    "pulses": "pins",
}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ConfigError(ValueError):
    """A configuration that cannot be: which field, and why."""


def split_url(url: str) -> "tuple[bool, str, int]":
    """Return whether it has TLS, host and port of mqtt://host:port or mqtts://host:port."""
    scheme, _, rest = url.partition("://")
    cut = rest.rfind(":")
    host = rest[:cut].strip("[]")
    if scheme not in ("mqtt", "mqtts") or cut < 1 or not rest[cut + 1 :].isdigit():
        raise ConfigError("url: " + url)
    return scheme == "mqtts", host, int(rest[cut + 1 :])


def read_nodes(config: "dict[str, Any]") -> "tuple[list[NodeAddress], dict[str, FrameKey]]":
    """Return the servers in order of preference, and the key of each node."""
    servers: list[NodeAddress] = []
    keys: dict[str, FrameKey] = {}
    if not 1 <= len(config["nodes"]) <= NODES:
        raise ConfigError("nodes")
    for node in config["nodes"]:
        name = node["name"]
        keys[name] = FrameKey(config["device"], name, node["key_id"], bytes.fromhex(node["key"]))
        if "radio" in config:  # the gateway knows where the node is
            servers.append(NodeAddress(name, "", 0))
            continue
        has_tls, host, port = split_url(node["url"])
        context = None
        if has_tls:
            with open(node["ca"], "rb") as file:  # noqa: PTH123 - no pathlib on a device
                context = make_context(file.read())
        elif host not in _LOOPBACK and node.get("plain") is not True:
            raise ConfigError("no TLS: " + name)  # beyond this machine only if "plain" is true
        servers.append(
            NodeAddress(name, host, port, context, node.get("user"), node.get("password"))
        )
    return servers, keys


def open_spool(spool: "dict[str, Any]") -> "BlockDevice":
    """Return the block device of the spool: a partition, a part of the flash, or a file."""
    if "partition" in spool:
        return find_partition(spool["partition"])
    if "flash" in spool:
        return find_flash(spool["flash"][0], spool["flash"][1])
    return open_file(spool["file"], spool.get("blocks", 16))


def read_events(config: "dict[str, Any]", board: "Board | None") -> list[Event]:
    """Return the events with their channels; sources are made once each."""
    sources = config["sources"]
    sources = {name: make_source(sources[name], board) for name in sources}
    events = []
    for entry in config["events"]:
        channels = []
        for fields in entry["channels"]:
            fields = dict(fields)
            channels.append(Channel(sources[fields.pop("source")], **fields))
        events.append(Event(entry["event"], channels, entry["period"]))
    return events


def find_source_module(kind: str) -> str:
    """Return the module of `sources` that has a kind."""
    return _KINDS.get(kind, kind)


def make_source(entry: "dict[str, Any]", board: "Board | None") -> "Any":
    """Return a source by its kind: `make` of the module of that name; no other is imported."""
    kind = entry["kind"]
    name = find_source_module(kind)
    package = __name__[: -len("config")]
    try:
        if board is None and kind not in ("csv", "w1", "iio", "sysfs"):  # those need no board
            board = __import__(package + "linux", None, None, ["make_i2c"])
        return __import__(package + "sources." + name, None, None, ["make"]).make(entry, board)
    except (ImportError, AttributeError):
        raise ConfigError("kind: " + kind + ", not among denwatch watchdog --check") from None
