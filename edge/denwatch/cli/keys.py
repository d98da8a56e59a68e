"""`denwatch keys`: who belongs to a site, and what they prove it with.

Works on a node's folder; a running node notices the change and tells the other nodes. No secret is
printed unless it is asked for, except a new password, which is shown once and kept nowhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from denwatch.cli.common import build_parser
from denwatch.cli.failures import CommandError
from denwatch.cli.key_views import (
    check,
    find_url,
    list_names,
    load_registry,
    print_acl,
    show,
)
from denwatch.node.config import NodeConfigError, load_config
from denwatch.node.security import site
from denwatch.node.security.access import OPERATOR
from denwatch.node.security.cards import AUTHORITY_FILE, Authority
from denwatch.node.security.credentials import SecurityError, read_secret
from denwatch.node.security.registrations import KINDS, Registrations
from denwatch.node.security.site import (
    CERTIFICATE_FILE,
    KeyFile,
    invite_node,
    join_site,
    load_authority,
    read_invitation,
    read_secret_file,
    renew_certificate,
    rotate_own_keys,
    write_file,
    write_invitation,
)

_DESCRIPTION = """
Everybody has a name and a key: devices, subscribers (apps) and nodes. Keys are rotated without a
gap: `rotate` adds one beside the old, `retire` ends the old. `revoke` ends a name for ever, at all
nodes. To link nodes, `invite` at the first one and `denwatch node --init --join` at the new one."""
_EXAMPLES = """
denwatch keys add subscriber medic7 --role medic
denwatch keys add device dog-1
denwatch keys show dog-1 --secrets --output dog-1.json
denwatch keys invite node-b --address node-b.local --output node-b.invite
denwatch keys rotate dog-1
denwatch keys retire dog-1
denwatch keys revoke dog-1
denwatch keys list"""
_SPREADS = "a running node takes it up within seconds and tells the others"


def run(argv: list[str]) -> int:
    """Run one of the actions."""
    arguments = _parse(argv)
    action: Callable[[argparse.Namespace], Iterator[str]] = arguments.action
    try:
        for line in action(arguments):
            print(line)
    except (SecurityError, NodeConfigError) as error:
        raise CommandError(str(error)) from None
    return 0


def _change(
    arguments: argparse.Namespace, change: Callable[[Registrations], Registrations]
) -> tuple[Registrations, Registrations]:
    """Change the key file; return the registry before and after."""
    file = KeyFile(Path(arguments.directory))
    with file.lock():
        before = file.load()
        after = change(before)
        file.save(after)
    return before, after


def _find_authority(arguments: argparse.Namespace, is_needed: bool = True) -> Authority | None:
    folder = Path(arguments.directory)
    path = Path(arguments.authority) if arguments.authority else folder / AUTHORITY_FILE
    if not is_needed and not path.exists():
        return None
    return load_authority(folder, path)


def _need_authority(arguments: argparse.Namespace) -> Authority:
    authority = _find_authority(arguments)
    assert authority is not None
    return authority


def add_device(arguments: argparse.Namespace) -> Iterator[str]:
    """Register a device."""
    name = arguments.name
    secret = None
    if arguments.key_file:
        text = read_secret_file(Path(arguments.key_file)).decode("ascii", "replace")
        secret = read_secret(text.strip(), name)
    _change(arguments, lambda r: site.add_device(r, name, secret, arguments.key_id))
    yield f"device {name} is registered, key {arguments.key_id}; {_SPREADS}"
    yield f"  denwatch keys show {name} --secrets --output {name}.json"


def add_subscriber(arguments: argparse.Namespace) -> Iterator[str]:
    """Register a subscriber and show its password, once."""
    name, role = arguments.name, arguments.role
    _warn_of_role(arguments, role)
    password = ""

    def add(registry: Registrations) -> Registrations:
        nonlocal password
        registry, password = site.add_subscriber(registry, name, role, _read_chosen(arguments))
        return registry

    _change(arguments, add)
    yield f"subscriber {name} is registered as {role}; {_SPREADS}"
    yield from _hand_over(arguments, name, password)


def _hand_over(arguments: argparse.Namespace, name: str, password: str) -> Iterator[str]:
    """Show a new password once, or put it into a file; a chosen one is known already."""
    if arguments.password_file:
        return
    if arguments.output:
        write_file(Path(arguments.output), f"{password}\n".encode())
        yield f"  the password is in {arguments.output}"
        return
    yield f"  password, shown this once: {password}"
    yield f"  denwatch keys show {name}"


def _read_chosen(arguments: argparse.Namespace) -> str | None:
    if not arguments.password_file:
        return None
    if arguments.password_file == "-":
        return sys.stdin.readline().rstrip("\r\n")
    data = read_secret_file(Path(arguments.password_file))
    return data.decode("utf-8", "replace").rstrip("\r\n")


def _warn_of_role(arguments: argparse.Namespace, role: str) -> None:
    config = Path(arguments.directory) / "node.toml"
    if config.exists() and role != OPERATOR and role not in load_config(config).roles:
        print(f"note: {config} has no role {role}: it sees nothing here", file=sys.stderr)


def change_role(arguments: argparse.Namespace) -> Iterator[str]:
    """Give a subscriber another role."""
    _warn_of_role(arguments, arguments.role)
    _change(arguments, lambda r: site.change_role(r, arguments.name, arguments.role))
    yield f"{arguments.name} is {arguments.role} now; {_SPREADS}"


def rotate(arguments: argparse.Namespace) -> Iterator[str]:
    """Add a key beside the old ones."""
    name = arguments.name
    registry = load_registry(arguments)
    if name == registry.name:
        serial = rotate_own_keys(Path(arguments.directory), _need_authority(arguments))
        yield f"{name} has the key {serial}, too; {_SPREADS}"
    elif name in registry.cards:
        raise CommandError(f"{name} is a node: `denwatch keys invite {name}` gives it new keys")
    else:
        key_id, password = 0, ""

        def add(registry: Registrations) -> Registrations:
            nonlocal key_id, password
            registry, key_id, password = site.rotate(registry, name, _read_chosen(arguments))
            return registry

        _change(arguments, add)
        yield f"{name} has the key {key_id}, too; {_SPREADS}"
        if password:
            yield from _hand_over(arguments, name, password)
        else:
            yield f"  denwatch keys show {name} --secrets --output {name}.json"
    yield f"  when it is in use everywhere: denwatch keys retire {name}"


def retire(arguments: argparse.Namespace) -> Iterator[str]:
    """Revoke all keys of a name but the newest."""
    ids: list[int] = []

    def end(registry: Registrations) -> Registrations:
        nonlocal ids
        authority = _find_authority(arguments, is_needed=False)
        registry, ids = site.retire(registry, arguments.name, authority)
        return registry

    _change(arguments, end)
    if not ids:
        yield f"{arguments.name} has no older key; nothing was changed"
    else:
        yield f"{arguments.name}: key {', '.join(map(str, ids))} ends; {_SPREADS}"


def revoke(arguments: argparse.Namespace) -> Iterator[str]:
    """Revoke a name, or one key of it, at all nodes."""
    name, key_id = arguments.name, arguments.key_id

    def end(registry: Registrations) -> Registrations:
        kind = registry.kind_of(name) or arguments.kind
        if kind is None:
            raise CommandError(
                f'"{name}" is not registered here; --kind device, subscriber or node says what'
            )
        if arguments.kind not in (None, kind):
            raise CommandError(f'"{name}" is a {kind}')
        authority = _find_authority(arguments, is_needed=kind == "node")
        return site.revoke(registry, kind, name, key_id, authority)

    _change(arguments, end)
    what = f"key {key_id} of {name}" if key_id else name
    yield f"{what} is revoked, for ever; {_SPREADS}"


def invite(arguments: argparse.Namespace) -> Iterator[str]:
    """Write the invitation of another node, or new keys for one that is known."""
    folder, path = Path(arguments.directory), Path(arguments.output)
    if path.exists():
        raise CommandError(f"{path} is there already")
    peers = {load_registry(arguments).name: find_url(arguments)}
    authority = _need_authority(arguments)
    addresses = [*arguments.address, "localhost", "127.0.0.1"]
    today = datetime.now(UTC)
    invitation = invite_node(folder, authority, arguments.name, addresses, peers, today)
    write_file(path, write_invitation(invitation))
    yield f"{path} holds the keys of {arguments.name}: carry it there, then delete it"
    yield f"  denwatch node --init DIRECTORY --join {path.name} --listen mqtts://0.0.0.0:8883"


def join(arguments: argparse.Namespace) -> Iterator[str]:
    """Take new keys from an invitation, in a node's own folder."""
    file = KeyFile(Path(arguments.directory))
    if not file.path.exists():
        raise CommandError(
            f"no node is in {arguments.directory}: `denwatch node --init DIRECTORY --join FILE`"
        )
    registry = join_site(Path(arguments.directory), read_invitation(Path(arguments.file)))
    yield f"{registry.name} has the keys {', '.join(map(str, sorted(registry.own)))}"


def renew(arguments: argparse.Namespace) -> Iterator[str]:
    """Issue this node's certificate anew."""
    folder = Path(arguments.directory)
    authority = _need_authority(arguments)
    addresses = [*arguments.address, "localhost", "127.0.0.1"] if arguments.address else []
    names = renew_certificate(folder, authority, addresses, datetime.now(UTC))
    yield f"{folder / CERTIFICATE_FILE} is for {', '.join(names)}; restart the node"


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Manage names and keys of a site."
    parser = build_parser("keys", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("--directory", default=".", help="the node's folder (this one)")
    parser.add_argument("--authority", metavar="FILE", help="authority.json, if it is elsewhere")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def add(
        name: str, action: Callable[[argparse.Namespace], Iterator[str]], words: str
    ) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=words, description=words)
        made.set_defaults(action=action)
        return made

    add("list", list_names, "who belongs to the site").add_argument(
        "--json", action="store_true", help="one JSON object"
    )
    kinds = actions.add_parser("add", help="register a device or a subscriber").add_subparsers(
        required=True, metavar="device|subscriber"
    )
    words = "register a device"
    device = kinds.add_parser("device", help=words, description=words)
    device.set_defaults(action=add_device)
    device.add_argument("name", help="of the device")
    device.add_argument("--key-file", metavar="FILE", help="hexadecimal key that it has already")
    device.add_argument("--key-id", type=int, default=1, metavar="N", help="of the key (1)")
    words = "register a subscriber, and show the password once"
    subscriber = kinds.add_parser("subscriber", help=words, description=words)
    subscriber.set_defaults(action=add_subscriber)
    subscriber.add_argument("name", help="of the person or app")
    subscriber.add_argument("--role", required=True, help="a role of node.toml")
    role = add("role", change_role, "give a subscriber another role")
    role.add_argument("name")
    role.add_argument("role")
    turn = add("rotate", rotate, "add a key; the old ones stay good")
    turn.add_argument("name")
    for made in (subscriber, turn):
        made.add_argument("--password-file", metavar="FILE|-", help="a password that was chosen")
        made.add_argument("--output", metavar="FILE", help="put the password here instead")
    add("retire", retire, "end all keys of a name but the newest").add_argument("name")
    end = add("revoke", revoke, "end a name, or one key of it, at all nodes")
    end.add_argument("name")
    end.add_argument("--key-id", type=int, metavar="N", help="this key alone")
    end.add_argument("--kind", choices=KINDS, help="if the name is not registered here")
    shown = add("show", show, "a device's configuration, or a subscriber's commands")
    shown.add_argument("name")
    shown.add_argument("--secrets", action="store_true", help="with the keys")
    shown.add_argument("--output", metavar="FILE", help="write it to a file of mode 0600")
    shown.add_argument("--url", help="where this node is reached")
    guest = add("invite", invite, "let another node join the site, or give it new keys")
    guest.add_argument("name")
    guest.add_argument(
        "--address", action="append", default=[], metavar="HOST", help="by which others reach it"
    )
    guest.add_argument("--output", required=True, metavar="FILE", help="the invitation")
    guest.add_argument("--url", help="where this node is reached")
    add("join", join, "take new keys from an invitation").add_argument("file")
    new = add("renew", renew, "issue this node's certificate anew")
    new.add_argument(
        "--address", action="append", default=[], metavar="HOST", help="others than it was for"
    )
    add("acl", print_acl, "access rules for Mosquitto")
    add("check", check, "check keys, certificate and configuration")
    return parser.parse_args(argv)
