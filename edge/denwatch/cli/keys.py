"""`denwatch keys`: the names, keys and certificates of a site.

Works on a node's folder; a running node notices the change and replicates it to the other nodes. No
secret is printed without --secrets, except a new password, which is shown once and stored nowhere.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from denwatch.cli.common import add_option, build_parser, format_table, refuse
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError
from denwatch.cli.mosquitto import describe_rules, write_folder
from denwatch.node.config import NodeConfigError, ServerAddress, load_config
from denwatch.node.config.loading import is_loopback, read_url
from denwatch.node.security import site
from denwatch.node.security.access import OPERATOR
from denwatch.node.security.cards import AUTHORITY_FILE, Authority, list_addresses
from denwatch.node.security.credentials import SecurityError, read_secret
from denwatch.node.security.registrations import (
    KINDS,
    Kind,
    Registrations,
    derive_device_password,
    derive_device_secret,
)

_DESCRIPTION = """
Devices, subscribers (apps) and nodes each have a name and a key. Keys are rotated without a gap:
`rotate` adds a new one, `retire` ends the old ones. A name belongs to the node that registered it:
`revoke` there ends it at all nodes, elsewhere it needs the site's authority, which can also
`restore` it. To add a node, `invite` it at the first one and run `denwatch node --init --join` at
the new one."""
_EXAMPLES = """
denwatch keys add subscriber medic7 --role medic
denwatch keys add device dog-1
denwatch keys show dog-1 --secrets --output dog-1.json
denwatch keys invite node-b --address node-b.local --output node-b.invite
denwatch keys rotate dog-1
denwatch keys retire dog-1
denwatch keys revoke dog-1
denwatch keys restore dog-1
denwatch keys forget dog-1
denwatch keys acl --output /etc/mosquitto/denwatch
denwatch keys list"""
# An action yields lines for people, and facts for programs (--json).
Action = Callable[[argparse.Namespace], Iterator[str | dict[str, object]]]
_ANY = "any"
_SPREADS = "a running node applies it within seconds and sends it to the others"


def run(argv: list[str]) -> int:
    """Run one of the actions."""
    arguments = _parse(argv)
    action: Action = arguments.action
    if not Path(arguments.directory).is_dir():
        raise CommandError(f"{arguments.directory}: no such folder", MISSING)
    with refuse(SecurityError, NodeConfigError):
        facts: dict[str, object] = {"ok": True}
        for said in action(arguments):
            if isinstance(said, dict):
                facts |= said
            elif not arguments.json:
                print(said)
            elif said.startswith(("[", "{")):
                facts = {}  # it is JSON already
                print(said)
        if arguments.json and facts:
            print(json.dumps(facts, ensure_ascii=False))
    return 0


def _spell(arguments: argparse.Namespace, *words: str) -> str:
    """Return a hint that can be pasted: this command with the same folder and authority."""
    where = [] if arguments.directory == "." else ["--directory", arguments.directory]
    where += ["--authority", arguments.authority] if arguments.authority else []
    return "  " + shlex.join(["denwatch", "keys", *where, *words])


def _change(
    arguments: argparse.Namespace, change: Callable[[Registrations], tuple[Any, ...]]
) -> list[Any]:
    """Change the key file: `change` returns the new registry, and then what this returns."""
    file = site.KeyFile(Path(arguments.directory))
    with file.lock():
        registry, *rest = change(file.load())
        file.save(registry)
    return rest


def _load_authority(arguments: argparse.Namespace) -> Authority:
    return site.load_authority(Path(arguments.directory), _name_authority(arguments))


def _find_authority(arguments: argparse.Namespace) -> Authority | None:
    return _load_authority(arguments) if _name_authority(arguments).exists() else None


def _name_authority(arguments: argparse.Namespace) -> Path:
    return Path(arguments.authority or Path(arguments.directory) / AUTHORITY_FILE)


def add_device(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Register a device."""
    name = arguments.name
    secret = None
    if arguments.key_file:
        text = site.read_secret_file(Path(arguments.key_file)).decode("ascii", "replace")
        secret = read_secret(text.strip(), name)
    nodes = arguments.nodes and _read_nodes(arguments.nodes)
    _change(arguments, lambda r: (site.add_device(r, name, secret, arguments.key_id, nodes),))
    found = load_registry(arguments).devices[name]
    yield {"kind": "device", "name": name, "key_id": arguments.key_id, "nodes": [*found.nodes]}
    yield f"device {name} is registered, key {arguments.key_id}; {_SPREADS}"
    yield _spell(arguments, "show", name, "--secrets", "--output", f"{name}.json")


def change_nodes(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Say through which nodes a device speaks."""
    nodes = _read_nodes(arguments.nodes)
    _change(arguments, lambda r: (site.change_nodes(r, arguments.name, nodes),))
    yield {"name": arguments.name, "nodes": nodes}
    yield f"{arguments.name} speaks through {', '.join(nodes) or 'any node'}; {_SPREADS}"


def _read_nodes(named: list[str]) -> list[str]:
    """Return the nodes that are named; none stands for any node of the site."""
    return [] if named == [_ANY] else named


def add_subscriber(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Register a subscriber and show its password, once."""
    name, role = arguments.name, arguments.role
    _refuse_unknown_role(arguments, role)
    chosen = _read_chosen(arguments)
    [password] = _change(arguments, lambda r: site.add_subscriber(r, name, role, chosen))
    yield {"kind": "subscriber", "name": name, "role": role}
    yield f"subscriber {name} is registered as {role}; {_SPREADS}"
    yield from _hand_over(arguments, name, password)


def _hand_over(
    arguments: argparse.Namespace, name: str, password: str
) -> Iterator[str | dict[str, object]]:
    """Show a new password once, or write it to a file; a chosen one is known already."""
    if arguments.password_file:
        return
    if arguments.output:
        site.write_file(Path(arguments.output), f"{password}\n".encode())
        yield {"password_file": arguments.output}
        yield f"  the password is in {arguments.output}"
        return
    yield {"password": password}
    yield f"  password, shown this once: {password}"
    yield _spell(arguments, "show", name)


def _read_chosen(arguments: argparse.Namespace) -> str | None:
    if not arguments.password_file:
        return None
    if arguments.password_file == "-":
        return sys.stdin.readline().rstrip("\r\n")
    data = site.read_secret_file(Path(arguments.password_file))
    return data.decode("utf-8", "replace").rstrip("\r\n")


def _refuse_unknown_role(arguments: argparse.Namespace, role: str) -> None:
    config = Path(arguments.directory) / "node.toml"
    if config.exists() and role != OPERATOR:
        known = load_config(config).roles
        if role not in known:
            names = ", ".join([*sorted(known), OPERATOR])
            raise CommandError(f'{config} has no role "{role}"; there is: {names}')


def change_role(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Give a subscriber another role."""
    _refuse_unknown_role(arguments, arguments.role)
    _change(arguments, lambda r: (site.change_role(r, arguments.name, arguments.role),))
    yield {"name": arguments.name, "role": arguments.role}
    yield f"{arguments.name} is {arguments.role} now; {_SPREADS}"


def rotate(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Add a key beside the old ones."""
    name = arguments.name
    registry = load_registry(arguments)
    if name == registry.name:
        serial = site.rotate_own_keys(Path(arguments.directory), _load_authority(arguments))
        yield {"name": name, "key_id": serial}
        yield f"{name} has the key {serial}, too; {_SPREADS}"
    elif name in registry.cards:
        hint = _spell(arguments, "invite", name, "--output", f"{name}.invite").strip()
        raise CommandError(f"{name} is a node: `{hint}` gives it new keys")
    else:
        chosen = _read_chosen(arguments)
        key_id, password = _change(arguments, lambda r: site.rotate(r, name, chosen))
        yield {"name": name, "key_id": key_id}
        yield f"{name} has the key {key_id}, too; {_SPREADS}"
        if password:
            yield from _hand_over(arguments, name, password)
        else:
            yield _spell(arguments, "show", name, "--secrets", "--output", f"{name}.json")
    yield "when it is in use everywhere:"
    yield _spell(arguments, "retire", name)


def retire(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Revoke all keys of a name but the newest."""
    authority = _find_authority(arguments)
    [ids] = _change(arguments, lambda r: site.retire(r, arguments.name, authority))
    yield {"name": arguments.name, "ended": [*ids]}
    if not ids:
        yield f"{arguments.name} has no older key; nothing was changed"
    else:
        yield f"{arguments.name}: key {', '.join(map(str, ids))} ends; {_SPREADS}"


def revoke(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Revoke a name, or one key of it, at all nodes."""
    name, key_id = arguments.name, arguments.key_id

    def end(registry: Registrations) -> tuple[Registrations]:
        kind = registry.kind_of(name) or arguments.kind
        if kind is None:
            raise CommandError(
                f'"{name}" is not registered here; --kind device, subscriber or node says what'
            )
        if arguments.kind not in (None, kind):
            raise CommandError(f'"{name}" is a {kind}')
        find = _load_authority if kind == "node" else _find_authority
        now = int(time.time())
        return (site.revoke(registry, kind, name, key_id, find(arguments), now),)

    _change(arguments, end)
    what = f"key {key_id} of {name}" if key_id else name
    yield {"name": name, "revoked": key_id or "all keys"}
    yield f"{what} is revoked; {_SPREADS}"


def restore(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Undo the revocation of a name, and settle that it belongs to this node."""
    authority, now = _load_authority(arguments), int(time.time())
    _change(arguments, lambda r: (site.restore(r, arguments.name, authority, now),))
    yield {"name": arguments.name}
    yield f"{arguments.name} is valid, and belongs to this node; {_SPREADS}"


def forget(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Let a device begin anew at this node, whatever the number of its next hello."""
    name = arguments.name
    site.ask_to_forget(Path(arguments.directory), load_registry(arguments), name)
    yield {"name": name}
    yield f"{name} may begin anew at this node; if it runs, within a second"
    yield "whoever recorded its hellos can play one back until its next: a new key prevents that"
    yield _spell(arguments, "rotate", name)


def invite(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Write the invitation of another node, or new keys for one that is known."""
    folder, path = Path(arguments.directory), Path(arguments.output)
    if path.exists():
        raise CommandError(f"{path} exists already")
    peers = {load_registry(arguments).name: find_url(arguments)}
    authority = _load_authority(arguments)
    addresses = [*arguments.address, "localhost", "127.0.0.1"]
    today = datetime.now(UTC)
    invitation = site.invite_node(folder, authority, arguments.name, addresses, peers, today)
    site.write_file(path, site.write_invitation(invitation))
    yield {"name": arguments.name, "invitation": str(path)}
    yield f"{path} has the keys of {arguments.name}: copy it there, then delete it"
    words = ("--init", arguments.name, "--join", path.name, "--listen", "mqtts://0.0.0.0:8883")
    yield "  " + shlex.join(["denwatch", "node", *words])


def join(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Install new keys from an invitation, in a node's own folder."""
    file = site.KeyFile(Path(arguments.directory))
    if not file.path.exists():
        hint = shlex.join(["--init", str(file.path.parent), "--join", arguments.file])
        raise CommandError(f"{arguments.directory} has no node: `denwatch node {hint}`")
    registry = site.join_site(Path(arguments.directory), site.read_invitation(Path(arguments.file)))
    yield {"name": registry.name, "keys": sorted(registry.own)}
    yield f"{registry.name} has the keys {', '.join(map(str, sorted(registry.own)))}"


def renew(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Issue this node's certificate anew."""
    folder = Path(arguments.directory)
    authority = _load_authority(arguments)
    addresses = [*arguments.address, "localhost", "127.0.0.1"] if arguments.address else []
    names = site.renew_certificate(folder, authority, addresses, datetime.now(UTC))
    yield {"certificate": str(folder / site.CERTIFICATE_FILE), "addresses": [*names]}
    yield f"{folder / site.CERTIFICATE_FILE} is for {', '.join(names)}; restart the node"


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Manage names and keys of a site."
    parser = build_parser("keys", summary, _DESCRIPTION, _EXAMPLES)
    add_option(parser, "--directory DIRECTORY", "the node's folder (this one)", default=".")
    add_option(parser, "--authority FILE", "authority.json, if it is elsewhere")
    add_option(parser, "--json", "one JSON object instead of lines")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def add(name: str, action: Action, words: str, among: Any = actions) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = among.add_parser(name, help=words, description=words)
        made.set_defaults(action=action)
        # Before or after the action; only one of them may have a default.
        add_option(made, "--json", "one JSON object instead of lines", default=argparse.SUPPRESS)
        return made

    add("list", list_names, "list the names of the site")
    kinds = actions.add_parser("add", help="register a device or a subscriber").add_subparsers(
        required=True, metavar="device|subscriber"
    )
    device = add("device", add_device, "register a device", kinds)
    device.add_argument("name", help="the device's name")
    add_option(device, "--key-file FILE", "hexadecimal key that the device has already")
    add_option(device, "--key-id N", "number of the key (1)", type=int, default=1)
    add_option(device, "--nodes NODE", "through which it speaks, or any (this one)", nargs="+")
    words = "register a subscriber, and show the password once"
    subscriber = add("subscriber", add_subscriber, words, kinds)
    subscriber.add_argument("name", help="the person's or app's name")
    add_option(subscriber, "--role ROLE", "a role of node.toml", required=True)
    role = add("role", change_role, "give a subscriber another role")
    role.add_argument("name")
    role.add_argument("role")
    places = add("nodes", change_nodes, "say through which nodes a device speaks")
    places.add_argument("name")
    places.add_argument("nodes", nargs="+", metavar="NODE", help="names, or any")
    turn = add("rotate", rotate, "add a key; the old ones stay valid")
    turn.add_argument("name")
    for made in (subscriber, turn):
        add_option(made, "--password-file FILE|-", "use this password")
        add_option(made, "--output FILE", "write the password to this file")
    add("retire", retire, "end all keys of a name but the newest").add_argument("name")
    end = add("revoke", revoke, "end a name, or one key of it, at all nodes")
    end.add_argument("name")
    add_option(end, "--key-id N", "only this key", type=int)
    add_option(end, "--kind", "if the name is not registered here", choices=KINDS)
    words = "undo a revocation, and settle that a name is this node's (needs the authority)"
    add("restore", restore, words).add_argument("name")
    words = "accept a device's next hello, whatever its number: its memory was erased"
    add("forget", forget, words).add_argument("name")
    shown = add("show", show, "show a device's configuration, or a subscriber's commands")
    shown.add_argument("name")
    add_option(shown, "--secrets", "include the keys")
    add_option(shown, "--output FILE", "write it to a file of mode 0600")
    add_option(shown, "--url URL", "the address at which others reach this node")
    guest = add("invite", invite, "invite a node to the site, or give it new keys")
    guest.add_argument("name")
    add_option(guest, "--address HOST ...", "a name that others reach it by")
    add_option(guest, "--output FILE", "the invitation", required=True)
    add_option(guest, "--url URL", "the address at which others reach this node")
    add("join", join, "install new keys from an invitation").add_argument("file")
    new = add("renew", renew, "renew this node's certificate")
    add_option(new, "--address HOST ...", "new names for it")
    rules = add("acl", write_rules, "access rules for Mosquitto")
    add_option(rules, "--output FOLDER", "write them and a password file there")
    add("check", check, "check keys, certificate and configuration")
    return parser.parse_args(argv)


# What is shown: no change, and no secret without --secrets ----------------------------------

_COLUMNS = ("kind", "name", "keys", "role", "state")


def load_registry(arguments: argparse.Namespace) -> Registrations:
    """Load the key file."""
    return site.KeyFile(Path(arguments.directory)).load()


def list_names(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield all names, without secrets."""
    registry = load_registry(arguments)
    rows = [*_list_rows(registry)]
    if arguments.json:
        yield json.dumps([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
        return
    yield from format_table([_COLUMNS, *rows])
    for conflict in site.read_conflicts(Path(arguments.directory)):
        yield f"conflict: {conflict}"


def _list_rows(registry: Registrations) -> Iterator[tuple[str, str, str, str, str]]:
    for node, cards in sorted(registry.cards.items()):
        state = "this node" if node == registry.name else ""
        yield _make_row(registry, "node", node, sorted(cards), "", state)
    for name, device in sorted(registry.devices.items()):
        speaks = "" if device.nodes or not device.is_ours else "through any node"
        state = _describe_owner(registry, name) or speaks
        yield _make_row(registry, "device", name, sorted(device.keys), "", state)
    for name, app in sorted(registry.subscribers.items()):
        state = _describe_owner(registry, name)
        yield _make_row(registry, "subscriber", name, sorted(app.passwords), app.role, state)
    for (kind, name), _ in sorted(registry.revoked.items()):
        if registry.kind_of(name) is None:
            yield _make_row(registry, kind, name, [], "", "")


def _describe_owner(registry: Registrations, name: str) -> str:
    owner = registry.find_owner(name)
    return "" if owner == registry.name else f"from {owner or 'another node'}"


def _make_row(
    registry: Registrations, kind: Kind, name: str, ids: list[int], role: str, state: str
) -> tuple[str, str, str, str, str]:
    good = [str(key_id) for key_id in ids if not registry.is_revoked(kind, name, key_id)]
    is_revoked = registry.is_revoked(kind, name)
    return kind, name, " ".join(good), role, "revoked" if is_revoked else state


def show(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Show what the device or subscriber of a name needs."""
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
            raise CommandError(f'"{name}" is not registered here')
    if arguments.output:
        site.write_file(Path(arguments.output), f"{text}\n".encode())
        yield {"name": name, "output": arguments.output}
        yield f"written to {arguments.output}"
    elif arguments.json and not text.startswith("{"):
        yield {"name": name, "kind": registry.kind_of(name), "lines": text.splitlines()}
    else:
        yield text


def _describe_device(registry: Registrations, arguments: argparse.Namespace) -> dict[str, object]:
    """Return the part of watchdog.json that says where a device belongs."""
    name = arguments.name
    device = registry.devices[name]
    key_id = max(device.keys)
    key = device.keys[key_id]
    others = sorted(registry.cards.keys() - {registry.name}) if key.is_master else []
    nodes = [registry.name, *(node for node in others if not registry.is_revoked("node", node))]
    valid = [node for node in nodes if not device.nodes or node in device.nodes]
    entries = []
    for node in valid[:4]:  # a watchdog has room for four
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
    secure = f" --cafile {Path(arguments.directory) / site.CA_FILE}" if address.has_tls else ""
    start = f'-h {address.host} -p {address.port}{secure} -u {name} -P "$PASSWORD" -q 1'
    ca = f" --ca {Path(arguments.directory) / site.CA_FILE}" if address.has_tls else ""
    return (
        f"# {name}, role {registry.subscribers[name].role}\n"
        f"denwatch login {name} --node {find_url(arguments)}{ca}\n"
        f"# or any MQTT client, with the password in $PASSWORD:\n"
        f"mosquitto_sub {start} -t dens/1/reply/{name} -t dens/1/note/{name}\n"
        f"mosquitto_pub {start} -t dens/1/sub/{name} -m 'patient_temperature is very high'"
    )


def find_url(arguments: argparse.Namespace) -> str:
    """Return the address at which others reach this node, by a name of its certificate."""
    if getattr(arguments, "url", None):
        address = read_url(arguments.url)
        if isinstance(address, str) or address.is_websocket:
            what = address if isinstance(address, str) else "ws:// is for browsers"
            raise CommandError(f"--url: {what}", WRONG_USAGE)
        return str(arguments.url)
    folder = Path(arguments.directory)
    config = load_config(folder / "node.toml")
    found = [address for address in config.listen if not address.is_websocket]
    listen = sorted(found, key=lambda address: not address.has_tls)
    if not listen:
        raise CommandError("the node has no server of its own; give its address with --url")
    first = listen[0]
    host = first.host
    if host in ("0.0.0.0", "::"):
        names = list_addresses(site.read_certificate(folder / site.CERTIFICATE_FILE))
        beyond = [name for name in names if name != config.name and not is_loopback(name)]
        host = (beyond or [config.name])[0]
    host = f"[{host}]" if ":" in host else host
    return f"mqtt{'s' if first.has_tls else ''}://{host}:{first.port}"


def write_rules(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Yield the access rules for Mosquitto; or write them, with passwords, and say what is new."""
    config = Path(arguments.directory) / "node.toml"
    found = load_config(config) if config.exists() else None
    registry = load_registry(arguments)
    if arguments.output is None:
        yield {"rules": describe_rules(registry, found).splitlines()}
        yield describe_rules(registry, found)
    else:
        yield from write_folder(Path(arguments.output), registry, found)


def check(arguments: argparse.Namespace) -> Iterator[str | dict[str, object]]:
    """Check keys, certificate and configuration."""
    folder = Path(arguments.directory)
    registry = load_registry(arguments)
    names = list_addresses(site.read_certificate(folder / site.CERTIFICATE_FILE))
    config = load_config(folder / "node.toml")
    if config.name != registry.name:
        raise CommandError(f"node.toml is for {config.name}, keys.json for {registry.name}")
    notes: list[str] = []
    for peer in config.peers:
        if peer.name not in registry.cards:
            notes.append(
                f"note: the peer {peer.name} is not known here yet; it sends its keys later"
            )
    for name, app in sorted(registry.subscribers.items()):
        if app.role not in config.roles and app.role != OPERATOR:
            notes.append(f"note: {name} has the role {app.role}, which is not in node.toml")
    yield from notes
    yield {"node": registry.name, "notes": notes, "addresses": [*names]}
    yield {"devices": len(registry.devices), "subscribers": len(registry.subscribers)}
    yield (
        f"{registry.name}: valid; {len(registry.cards)} nodes, {len(registry.devices)} devices, "
        f"{len(registry.subscribers)} subscribers; certificate for {', '.join(names)}"
    )
