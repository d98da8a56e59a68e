"""The check of a device's configuration, before anything is written, installed or run.

What the device itself would refuse, it refuses by the device's own classes; and keys that are weak.
Light: `denwatch watchdog` starts with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from denwatch.cli.devices.sensors import check_source
from denwatch.cli.errors import CommandError
from denwatch.watchdog.execution import Event
from denwatch.watchdog.sources import Channel, Source

_MIN_KEY = 16
_MAX_NODES = 4
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_PARTS = {
    "device": str,
    "vocabulary": str,
    "nodes": list,
    "spool": dict,
    "sources": dict,
    "events": list,
}
_KINDS = {str: "a text", list: "a list", dict: "an object"}


def check_config(config: Any) -> None:
    """Refuse what would fail on the device, or would not be safe."""
    if not isinstance(config, dict):
        raise CommandError("a configuration is a JSON object")
    for name, kind in _PARTS.items():
        if name not in config:
            raise CommandError(f"the configuration has no {name}")
        if not isinstance(config[name], kind):
            raise CommandError(f"{name} is not {_KINDS[kind]}")
    if len(_read_hex(config["vocabulary"], "vocabulary")) != 8:
        raise CommandError("vocabulary: 16 hexadecimal digits")
    check_nodes(config["nodes"])
    for node in config["nodes"]:
        _check_transport(node)
    _check_events(config)


def check_nodes(nodes: list[Any]) -> None:
    """Refuse nodes without an address or a key, or with weak ones."""
    if not 1 <= len(nodes) <= _MAX_NODES:
        raise CommandError(f"nodes: 1 to {_MAX_NODES} of them")
    keys: set[bytes] = set()
    for node in nodes:
        if not isinstance(node, dict):
            raise CommandError("nodes: each is an object")
        name = node.get("name", "a node without a name")
        if not str(node.get("url", "")).startswith(("mqtt://", "mqtts://")):
            raise CommandError(f"{name}: the url is mqtt://host:port or mqtts://host:port")
        key = _read_hex(node.get("key"), f"{name}: key")
        if len(key) < _MIN_KEY or len(set(key)) < _MIN_KEY // 2:
            raise CommandError(f"{name}: a key has at least {_MIN_KEY} bytes, and they differ")
        if key in keys:
            raise CommandError(f"{name}: another node has the same key")
        keys.add(key)
        if not isinstance(node.get("key_id"), int):
            raise CommandError(f"{name}: key_id is a number")


def is_loopback(url: str) -> bool:
    """Whether a url names this machine."""
    return url.partition("://")[2].rpartition(":")[0] in _LOOPBACK


def _check_transport(node: Mapping[str, Any]) -> None:
    """Refuse what the device refuses when it starts: `edge/denwatch/watchdog/config.py`."""
    name, url = node.get("name", "a node without a name"), str(node["url"])
    host, _, port = url.partition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise CommandError(f"{name}: the url {url} has no port")
    if url.startswith("mqtts:"):
        if not node.get("ca"):
            raise CommandError(f"{name}: no ca, the certificate of its authority")
    elif not is_loopback(url) and node.get("plain") is not True:
        raise CommandError(f'{name}: {url} has no TLS; mqtts://, or "plain": true')


def _check_events(config: Mapping[str, Any]) -> None:
    """Refuse sources, events and channels that the device's own classes refuse."""
    for name, source in config["sources"].items():
        try:
            check_source(source)
        except ValueError as error:
            raise CommandError(f"{name}: {error}") from None
    if not config["events"]:
        raise CommandError("events: at least one, or there is nothing to sense")
    sources = {name: Source() for name in config["sources"]}
    numbers = set()
    for event in config["events"]:
        if not isinstance(event, dict) or not isinstance(event.get("channels"), list):
            raise CommandError("an event has a list of channels")
        channels = [_make_channel(channel, sources) for channel in event["channels"]]
        number, period = event.get("event"), event.get("period")
        if not isinstance(number, int) or not isinstance(period, int) or period < 1:
            raise CommandError("an event has a number and a period in ms")
        try:
            Event(number, channels, period)
        except ValueError as error:
            raise CommandError(f"event {number}: {error}") from None
        if number in numbers:  # a device would tell its node of the last one only
            raise CommandError(f"event {number} stands twice: its channels belong together")
        numbers.add(number)


def _make_channel(entry: object, sources: Mapping[str, Source]) -> Channel:
    if not isinstance(entry, dict) or "source" not in entry:
        raise CommandError('a channel has a "source"')
    name = entry["source"]
    if name not in sources:
        raise CommandError(f"there is no source {name}")
    fields = {key: value for key, value in entry.items() if key != "source"}
    try:
        return Channel(sources[name], **fields)
    except (TypeError, ValueError) as error:
        raise CommandError(f"a channel of {name}: {error}") from None


def _read_hex(text: object, what: str) -> bytes:
    try:
        return bytes.fromhex(str(text))
    except ValueError:
        raise CommandError(f"{what} is not hexadecimal") from None
