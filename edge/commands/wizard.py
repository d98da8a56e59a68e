"""Asks for what a device must know and checks it: the configuration of `docs/watchdog.md`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from edge.commands.failures import CommandError

_MIN_KEY = 16

Ask = Callable[[str], str]


def ask_config(ask: Ask = input) -> dict[str, Any]:
    """Return a configuration; `ask` shows a question and returns the answer."""

    def question(words: str, default: str = "") -> str:
        answer = ask(f"{words} [{default}]: " if default else f"{words}: ").strip()
        return answer or default

    device = question("name of the device", "dog-1")
    node = question("name of its node", "node-a")
    url = question("the node's server", "mqtts://node.local:8883")
    config: dict[str, Any] = {
        "device": device,
        "vocabulary": question("hash of the vocabulary, 16 digits", "00" * 8),
        "nodes": [
            {
                "name": node,
                "url": url,
                "key_id": int(question("number of the key", "1")),
                "key": question("key, hexadecimal", secrets.token_hex(32)),
            }
        ],
        "sources": {},
        "events": [],
    }
    if url.startswith("mqtts:"):
        config["nodes"][0]["ca"] = question("file of the authority's certificate", "ca.der")
    wifi = question("name of the wireless network (nothing: none)")
    if wifi:
        config["wifi"] = {"name": wifi, "password": question("its password")}
    partition = question("flash partition of the spool (nothing: a file)")
    config["spool"] = {"partition": partition} if partition else {"file": "spool.bin", "blocks": 16}
    check_config(config)
    return config


def check_config(config: dict[str, Any]) -> None:
    """Refuse what would fail on the device, or would not be safe."""
    for name in ("device", "vocabulary", "nodes", "spool", "sources", "events"):
        if name not in config:
            raise CommandError(f"the configuration has no {name}")
    if len(_read_hex(config["vocabulary"], "vocabulary")) != 8:
        raise CommandError("vocabulary: 16 hexadecimal digits")
    keys: set[bytes] = set()
    for node in config["nodes"]:
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
    for event in config["events"]:
        for channel in event["channels"]:
            if channel["source"] not in config["sources"]:
                raise CommandError(f"there is no source {channel['source']}")


def _read_hex(text: object, what: str) -> bytes:
    try:
        return bytes.fromhex(str(text))
    except ValueError:
        raise CommandError(f"{what} is not hexadecimal") from None
