"""A device's key file: what `denwatch keys show DEVICE --secrets` writes, or a watchdog.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from denwatch.client.publisher.errors import PublisherError
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import Link


@dataclass(frozen=True)
class DeviceKey:
    """Where a device belongs, and how it shows that."""

    link: Link
    url: str
    user: str | None
    password: str | None
    ca: Path | None


def read_key(path: Path, device: str | None = None, node: str | None = None) -> DeviceKey:
    """Return the key of a device for a node, by default those that the file names first."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PublisherError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise PublisherError(f"{path}: no JSON: {error}") from None
    if not isinstance(document, dict):
        raise PublisherError(f"{path}: no key file of a device")
    name = _read_text(document, "device", str(path))
    if device is not None and device != name:
        raise PublisherError(f"{path} is the key of {name}, not of {device}")
    entry = _find_node(document.get("nodes"), node, path)
    where = f"{path}: {entry.get('name')}"
    try:
        secret = bytes.fromhex(_read_text(entry, "key", where))
        link = Link(name, _read_text(entry, "name", where), int(entry["key_id"]), secret)
    except (KeyError, TypeError, ValueError, ProtocolError) as error:
        raise PublisherError(f"{where}: no key: {error}") from None
    ca = entry.get("ca")
    return DeviceKey(
        link,
        _read_text(entry, "url", where),
        entry.get("user"),
        entry.get("password"),
        path.parent / ca if isinstance(ca, str) else None,
    )


def _find_node(nodes: Any, wanted: str | None, path: Path) -> dict[str, Any]:
    entries = [entry for entry in nodes or [] if isinstance(entry, dict)]
    if not entries:
        raise PublisherError(f"{path}: it names no node")
    if wanted is None:
        return entries[0]
    for entry in entries:
        if entry.get("name") == wanted:
            return entry
    known = ", ".join(str(entry.get("name")) for entry in entries)
    raise PublisherError(f"{path}: it has no key for {wanted}, only for {known}")


def _read_text(document: dict[str, Any], field: str, where: str) -> str:
    value = document.get(field)
    if not isinstance(value, str) or not value:
        raise PublisherError(f"{where}: {field} is missing")
    return value
