"""The parts of a device's configuration that stand in files or in one word, read and checked.

Key file, sources written by hand, sentences, certificate, wireless network, spool. The only file of
`denwatch device config` that opens files. Every refusal is a CommandError that says what and where.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from denwatch.cli.common import point_at, read_file
from denwatch.cli.devices.config import Builder, Row
from denwatch.cli.devices.sensors import check_source
from denwatch.cli.devices.words import parse_lines, parse_sense
from denwatch.cli.errors import MISSING, CommandError
from denwatch.client.errors import LanguageError, join_choices, suggest_names
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.site import read_secret_file, write_file

DEFAULT_SPOOL = "file:spool.bin"
_BLOCKS = 16  # of 4 KB
_FEWEST = 3  # blocks that a spool needs
_BLOCK = 4096
_LINE = 1 << 16


def read_key(path: Path) -> dict[str, Any]:
    """Return name and nodes of a device: what `denwatch keys show NAME --secrets` wrote."""
    try:
        data = read_secret_file(path)
    except SecurityError as error:
        raise CommandError(str(error), 1 if path.exists() else MISSING) from None
    key = _parse_json(data.decode("utf-8", "replace"), path)
    show = "`denwatch keys show NAME --secrets --output FILE` writes one"
    if not isinstance(key.get("device"), str) or not isinstance(key.get("nodes"), list):
        raise CommandError(f"{path}: not a device's key file; {show}")
    for node in key["nodes"]:
        if not isinstance(node, dict) or not _is_hex(node.get("key")):
            raise CommandError(f"{path}: there is no key in it; {show}")
    return {"device": key["device"], "nodes": [dict(node) for node in key["nodes"]]}


def read_sources(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sources that stand in a file: {"name": {"kind": ...}, ...}."""
    document = _parse_json(read_file(path), path)
    for name, entry in document.items():
        try:
            check_source(entry)
        except ValueError as error:
            raise CommandError(f"{path}: {name}: {error}") from None
    return document


def add_sentence(builder: Builder, text: str) -> Row:
    """Take one sentence; the error points at the word."""
    try:
        return builder.add(parse_sense(text))
    except LanguageError as error:
        raise CommandError(point_at(error, text, "")) from None


def add_file(builder: Builder, path: Path) -> None:
    """Take the sentences of a file, one a line."""
    text = read_file(path)
    try:
        for sense in parse_lines(text):
            builder.add(sense)
    except LanguageError as error:
        raise CommandError(point_at(error, text, str(path))) from None


def read_columns(path: str) -> list[str] | None:
    """Return the columns of a CSV file, None if it is not there (yet, or on the board only)."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as stream:
            return [name.strip() for name in stream.readline(_LINE).split(",")]
    except OSError:
        return None


def read_spool(text: str) -> dict[str, Any]:
    """Return the spool that `file:NAME[:BLOCKS]`, `partition:NAME` or `flash:START:LENGTH` says."""
    kind, _, rest = text.partition(":")
    if kind == "partition" and rest:
        return {"partition": rest}
    if kind == "file" and rest:
        name, _, blocks = rest.rpartition(":")
        if not name:
            return {"file": rest, "blocks": _BLOCKS}
        if not blocks.isdecimal() or int(blocks) < _FEWEST:
            raise CommandError(f'spool "{text}": at least {_FEWEST} blocks of 4 KB')
        return {"file": name, "blocks": int(blocks)}
    if kind == "flash":
        try:
            start, length = (int(number, 0) for number in rest.split(":"))
        except ValueError:
            raise CommandError(f'spool "{text}": flash:START:LENGTH, in bytes') from None
        if start < 0 or start % _BLOCK or length % _BLOCK or length < _FEWEST * _BLOCK:
            raise CommandError(
                f'spool "{text}": both are multiples of {_BLOCK}, at least {_FEWEST} of them'
            )
        return {"flash": [start, length]}
    known = ("file:spool.bin", "partition:spool", "flash:0x100000:0x10000")
    near = suggest_names(kind, ("file", "partition", "flash"))
    meant = f"; did you mean {join_choices(near)}?" if near and near[0] != kind else ""
    raise CommandError(f'spool "{text}": none{meant} (such as {", ".join(known)})')


def read_wifi(name: str, password: str) -> dict[str, str]:
    """Return a wireless network; an empty password is for an open one."""
    if not 1 <= len(name.encode()) <= 32:
        raise CommandError(f'the network "{name}": a name has 1 to 32 bytes')
    if password and not 8 <= len(password.encode()) <= 64:
        raise CommandError(f"the password of {name}: WPA has 8 to 63 characters")
    return {"name": name, "password": password}


def read_password_file(path: Path) -> str:
    """Return the password that a file of mode 0600 holds."""
    try:
        return read_secret_file(path).decode("utf-8").rstrip("\r\n")
    except SecurityError as error:
        raise CommandError(str(error), 1 if path.exists() else MISSING) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: not a text") from None


def list_secured(device: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes that are reached over TLS."""
    return [node for node in device["nodes"] if str(node.get("url", "")).startswith("mqtts:")]


def set_certificate(device: Mapping[str, Any], given: str | None) -> None:
    """Name the authority's certificate for every node with TLS; it must be there, as DER."""
    nodes = list_secured(device)
    if given is not None and not nodes:
        raise CommandError(f"--ca {given}: none of the nodes has TLS")
    for node in nodes:
        node["ca"] = given or node.get("ca") or "ca.der"
        check_certificate(Path(node["ca"]), str(node.get("name")))


def check_certificate(path: Path, name: str) -> None:
    """Refuse what a board cannot verify a node with."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CommandError(
            f"{name}: {path}: {error.strerror}; --ca FILE names its authority's certificate, "
            f"the ca.der in the node's tls/",
            MISSING,
        ) from None
    if data.startswith(b"-----"):
        raise CommandError(f"{path} is PEM; a board takes DER: the ca.der beside it")
    if not data.startswith(b"\x30"):
        raise CommandError(f"{path} is no certificate")


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write a configuration for its owner's eyes only: it holds a key."""
    text = json.dumps(config, indent=1, ensure_ascii=False) + "\n"
    try:
        write_file(path, text.encode())
    except SecurityError as error:
        raise CommandError(str(error), MISSING) from None


def _parse_json(text: str, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None
    if not isinstance(document, dict):
        raise CommandError(f"{path}: not a JSON object")
    return document


def _is_hex(text: object) -> bool:
    try:
        return bool(bytes.fromhex(str(text)))
    except ValueError:
        return False
