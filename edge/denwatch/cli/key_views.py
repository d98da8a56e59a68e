"""What `denwatch keys` shows: lists, a device's configuration, an app's commands, access rules.

Changes nothing. Shows no secret unless it is asked for.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from denwatch.cli.failures import WRONG_USAGE, CommandError
from denwatch.node.config import ServerAddress, load_config
from denwatch.node.config.loading import is_loopback, read_url
from denwatch.node.security.access import OPERATOR
from denwatch.node.security.cards import list_addresses
from denwatch.node.security.registrations import (
    Kind,
    Registrations,
    derive_device_password,
    derive_device_secret,
)
from denwatch.node.security.site import (
    CA_FILE,
    CERTIFICATE_FILE,
    KeyFile,
    read_certificate,
    write_file,
)

# %u is the user name: Mosquitto's own form of "everybody to their own topics".
_ACL = """\
pattern write dens/1/sub/%u
pattern read dens/1/reply/%u
pattern read dens/1/note/%u
pattern write dens/1/wd/%u/hello
pattern write dens/1/wd/%u/nv
pattern read dens/1/wd/%u/sv
pattern read dens/1/wd/%u/ack
pattern read dens/1/status/+
pattern read dens/1/plan/+
"""
_ACL_NODE = """
user {name}
topic read dens/1/sub/+
topic write dens/1/reply/+
topic write dens/1/note/+
topic read dens/1/wd/+/hello
topic read dens/1/wd/+/nv
topic write dens/1/wd/+/sv
topic write dens/1/wd/+/ack
topic read dens/1/peer/{name}
topic write dens/1/peer/+
topic write dens/1/status/{name}
topic read dens/1/operator/{name}
topic write dens/1/plan/{name}
"""
_ACL_OPERATOR = """
user {name}
topic write dens/1/operator/+
"""
_ACL_NODE_HOME = """\
topic write {prefix}/#
topic write dens/1/home/{name}/#
"""
_ACL_HOME = """
user {user}
topic read {prefix}/#
topic read dens/1/home/#
topic write {prefix}/status
"""
_COLUMNS = ("kind", "name", "keys", "role", "state")


def load_registry(arguments: argparse.Namespace) -> Registrations:
    """Return what the key file says."""
    return KeyFile(Path(arguments.directory)).load()


def list_names(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield everybody, without secrets."""
    registry = load_registry(arguments)
    rows = [*_list_rows(registry)]
    if arguments.json:
        yield json.dumps([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
        return
    shown = [_COLUMNS, *rows]
    widths = [max(len(str(row[i])) for row in shown) for i in range(len(_COLUMNS))]
    for row in shown:
        padded = (f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def _list_rows(registry: Registrations) -> Iterator[tuple[str, str, str, str, str]]:
    for node, cards in sorted(registry.cards.items()):
        state = "this node" if node == registry.name else ""
        yield _make_row(registry, "node", node, sorted(cards), "", state)
    for name, device in sorted(registry.devices.items()):
        state = "" if device.is_ours else "from another node"
        yield _make_row(registry, "device", name, sorted(device.keys), "", state)
    for name, app in sorted(registry.subscribers.items()):
        state = "" if app.is_ours else "from another node"
        yield _make_row(registry, "subscriber", name, sorted(app.passwords), app.role, state)
    for (kind, name), _ in sorted(registry.revoked.items()):
        if registry.kind_of(name) is None:
            yield _make_row(registry, kind, name, [], "", "")


def _make_row(
    registry: Registrations, kind: Kind, name: str, ids: list[int], role: str, state: str
) -> tuple[str, str, str, str, str]:
    good = [str(key_id) for key_id in ids if not registry.is_revoked(kind, name, key_id)]
    is_revoked = registry.is_revoked(kind, name)
    return kind, name, " ".join(good), role, "revoked" if is_revoked else state


def show(arguments: argparse.Namespace) -> Iterator[str]:
    """Show what a name's owner needs."""
    registry = load_registry(arguments)
    name = arguments.name
    match registry.kind_of(name):
        case "device":
            text = json.dumps(_describe_device(registry, arguments), indent=2)
        case "subscriber":
            text = _describe_subscriber(registry, arguments)
        case "node":
            cards = registry.cards[name]
            text = "\n".join(f"{name} key {n}: {card.sign.hex()}" for n, card in cards.items())
        case None:
            raise CommandError(f'there is nobody called "{name}" here')
    if arguments.output:
        write_file(Path(arguments.output), f"{text}\n".encode())
        yield f"written to {arguments.output}"
    else:
        yield text


def _describe_device(registry: Registrations, arguments: argparse.Namespace) -> dict[str, object]:
    """Return the part of watchdog.json that says where a device belongs."""
    name = arguments.name
    device = registry.devices[name]
    key_id = max(device.keys)
    key = device.keys[key_id]
    nodes = [registry.name]
    if key.is_master:
        nodes += [
            node
            for node in sorted(registry.cards)
            if node != registry.name and not registry.is_revoked("node", node)
        ]
    entries = []
    for node in nodes[:4]:  # as many as a watchdog takes
        secret = derive_device_secret(key, name, node, key_id)
        is_shown = arguments.secrets
        entry = {
            "name": node,
            "url": find_url(arguments) if node == registry.name else f"mqtts://{node}:8883",
            "key_id": key_id,
            "key": secret.hex() if is_shown else "(--secrets shows it)",
            "user": name,
            "password": derive_device_password(secret) if is_shown else "(--secrets shows it)",
        }
        if entry["url"].startswith("mqtts:"):
            entry["ca"] = "ca.der"
        entries.append(entry)
    return {"device": name, "nodes": entries}


def _describe_subscriber(registry: Registrations, arguments: argparse.Namespace) -> str:
    name = arguments.name
    address = read_url(find_url(arguments))
    assert isinstance(address, ServerAddress)
    secure = f" --cafile {Path(arguments.directory) / CA_FILE}" if address.has_tls else ""
    start = f"-h {address.host} -p {address.port}{secure} -u {name} -P PASSWORD -q 1"
    return "\n".join(
        [
            f"# {name}, role {registry.subscribers[name].role}",
            f"mosquitto_sub {start} -t dens/1/reply/{name} -t dens/1/note/{name}",
            f"mosquitto_pub {start} -t dens/1/sub/{name} -m 'patient_temperature is very high'",
        ]
    )


def find_url(arguments: argparse.Namespace) -> str:
    """Return where others reach this node: where it listens, by a name of its certificate."""
    if getattr(arguments, "url", None):
        address = read_url(arguments.url)
        if isinstance(address, str):
            raise CommandError(f"--url: {address}", WRONG_USAGE)
        return str(arguments.url)
    folder = Path(arguments.directory)
    config = load_config(folder / "node.toml")
    listen = sorted(config.listen, key=lambda address: not address.has_tls)
    if not listen:
        raise CommandError("the node has no server of its own; --url says where it is reached")
    first = listen[0]
    host = first.host
    if host in ("0.0.0.0", "::"):
        names = list_addresses(read_certificate(folder / CERTIFICATE_FILE))
        beyond = [name for name in names if name != config.name and not is_loopback(name)]
        host = (beyond or [config.name])[0]
    host = f"[{host}]" if ":" in host else host
    return f"mqtt{'s' if first.has_tls else ''}://{host}:{first.port}"


def print_acl(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the access rules for Mosquitto, for sites that have one."""
    registry = load_registry(arguments)
    rules = _ACL
    config = Path(arguments.directory) / "node.toml"
    home = load_config(config).home_assistant if config.exists() else None
    for name in sorted(registry.cards):
        rules += _ACL_NODE.format(name=name)
        if home is not None:
            rules += _ACL_NODE_HOME.format(name=name, prefix=home.prefix)
    for name, app in sorted(registry.subscribers.items()):
        if app.role == OPERATOR:
            rules += _ACL_OPERATOR.format(name=name)
    if home is not None and home.user:
        rules += _ACL_HOME.format(user=home.user, prefix=home.prefix)
    yield rules


def check(arguments: argparse.Namespace) -> Iterator[str]:
    """Check keys, certificate and configuration."""
    folder = Path(arguments.directory)
    registry = load_registry(arguments)
    names = list_addresses(read_certificate(folder / CERTIFICATE_FILE))
    config = load_config(folder / "node.toml")
    if config.name != registry.name:
        raise CommandError(f"node.toml is of {config.name}, keys.json of {registry.name}")
    for peer in config.peers:
        if peer.name not in registry.cards:
            yield f"note: the peer {peer.name} is not known here yet; {registry.name} learns of it"
    for name, app in sorted(registry.subscribers.items()):
        if app.role not in config.roles and app.role != OPERATOR:
            yield f"note: {name} has the role {app.role}, which is not in node.toml"
    yield (
        f"{registry.name}: good; {len(registry.cards)} nodes, {len(registry.devices)} devices, "
        f"{len(registry.subscribers)} subscribers; certificate for {', '.join(names)}"
    )
