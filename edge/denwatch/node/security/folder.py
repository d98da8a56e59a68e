"""A node's folder: its keys, its certificates, perhaps the site's authority. Makes and joins sites.

    keys.json          this node's registry (0600)
    authority.json     the site's authority (0600), where the site was founded
    tls/ca.pem, .der   verifies servers; give it to apps and boards
    tls/node.pem, .key this server's certificate and key (key: 0600)

An invitation is one secret file with all that a new node needs. The authority makes the new node's
keys, too, so that one file in one direction is enough; whoever carries it deletes it afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import msgspec
from denwatch.node.security.authority import (
    AUTHORITY_FILE,
    Authority,
    Certificate,
    convert_certificate,
    list_addresses,
    make_node_keys,
)
from denwatch.node.security.cards import NodeKeys
from denwatch.node.security.document import read_registry, write_registry
from denwatch.node.security.errors import SecurityError
from denwatch.node.security.files import KEYS_FILE, KeyFile, read_secret_file, write_file
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.names import check_name
from denwatch.node.security.registry import (
    Device,
    DeviceKey,
    Registry,
    checked,
    derive_device_secret,
)

CA_FILE = "tls/ca.pem"
CA_DER_FILE = "tls/ca.der"
CERTIFICATE_FILE = "tls/node.pem"
KEY_FILE = "tls/node.key"


class Invitation(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a new node gets: its registry, certificates, and where to find whoever invited it."""

    denwatch_invitation: int
    registry: str
    ca: str
    certificate: str
    key: str
    peers: dict[str, str]


def open_keyring(folder: Path) -> Keyring:
    """Return the keyring of a node's folder, which notices when the file changes."""
    file = KeyFile(folder)
    return Keyring(file.load(), file.load_if_changed)


def load_authority(folder: Path, path: Path | None = None) -> Authority:
    """Return the site's authority, from the folder or from wherever it is kept."""
    path = path or folder / AUTHORITY_FILE
    if not path.exists():
        raise SecurityError(
            f"{path} is not there: only where the site was founded, or with --authority FILE, "
            "can nodes be invited, renewed and revoked"
        )
    try:
        return Authority.read(read_secret_file(path))
    except SecurityError as error:
        raise SecurityError(f"{path}: {error}") from None


def found_site(folder: Path, name: str, addresses: list[str], today: datetime) -> Registry:
    """Make a new site with its first node."""
    refuse_present(folder)
    authority = Authority.make(check_name(name, "node"), today)
    keys = make_node_keys(1)
    card = authority.sign_card(name, keys)
    registry = Registry(name, authority.public, {1: keys}, {name: {1: card}})
    issued = authority.issue_certificate(name, addresses, today)
    _write_tls(folder, authority.certificate, issued)
    write_file(folder / AUTHORITY_FILE, authority.write())
    KeyFile(folder).save(registry)
    return registry


def invite_node(
    folder: Path,
    authority: Authority,
    name: str,
    addresses: list[str],
    peers: dict[str, str],
    today: datetime,
) -> Invitation:
    """Return the invitation of a node, and note its card here; a known node gets new keys."""
    file = KeyFile(folder)
    with file.lock():
        registry = file.load()
        if name == registry.name:
            raise SecurityError(f"{name} is this node; `denwatch keys rotate {name}` gives it keys")
        keys, registry = _add_keys(registry, authority, name)
        issued = authority.issue_certificate(name, addresses, today)
        registry = replace(registry, invited=registry.invited | {name})
        file.save(registry)
    return Invitation(
        denwatch_invitation=1,
        registry=write_registry(_turn_registry(registry, keys, name)).decode(),
        ca=authority.certificate.decode(),
        certificate=issued.certificate.decode(),
        key=issued.key.decode(),
        peers=peers,
    )


def rotate_own_keys(folder: Path, authority: Authority) -> int:
    """Give this node new keys beside the old ones; return their serial."""
    file = KeyFile(folder)
    with file.lock():
        registry = file.load()
        keys, registry = _add_keys(registry, authority, registry.name)
        file.save(replace(registry, own={**registry.own, keys.serial: keys}))
    return keys.serial


def _add_keys(registry: Registry, authority: Authority, name: str) -> tuple[NodeKeys, Registry]:
    """Return new keys of a node, and the registry with its card."""
    if authority.public != registry.site:
        raise SecurityError("this authority is another site's")
    if registry.is_revoked("node", name):
        raise SecurityError(f'"{name}" was revoked; take another name')
    keys = make_node_keys(max(registry.cards.get(name, {}), default=0) + 1)
    return keys, registry.with_card(authority.sign_card(name, keys))


def _turn_registry(registry: Registry, keys: NodeKeys, name: str) -> Registry:
    """Return the registry as another node is to have it: a device's keys for that node alone."""
    return replace(
        registry,
        name=name,
        own={keys.serial: keys},
        cards={
            node: cards if node != name else {keys.serial: cards[keys.serial]}
            for node, cards in registry.cards.items()
        },
        devices={
            device: Device(
                {
                    key_id: DeviceKey(derive_device_secret(key, device, name, key_id))
                    for key_id, key in entry.keys.items()
                    if key.is_master
                },
                entry.version,
                is_ours=False,
            )
            for device, entry in registry.devices.items()
            if any(key.is_master for key in entry.keys.values())
        },
        subscribers={
            subscriber: replace(entry, is_ours=False)
            for subscriber, entry in registry.subscribers.items()
        },
        invited=frozenset(),
    )


def write_invitation(invitation: Invitation) -> bytes:
    """Return the text of an invitation."""
    return msgspec.json.format(msgspec.json.encode(invitation), indent=1) + b"\n"


def read_invitation(path: Path) -> Invitation:
    """Return the invitation of a file."""
    data = read_secret_file(path)
    try:
        invitation = msgspec.json.decode(data, type=Invitation)
    except msgspec.DecodeError as error:
        raise SecurityError(f"{path}: no invitation: {error}") from None
    if invitation.denwatch_invitation != 1:
        raise SecurityError(f"{path}: an invitation of another version")
    return invitation


def join_site(folder: Path, invitation: Invitation) -> Registry:
    """Take an invitation in an empty folder, or new keys and cards in the node's own."""
    registry = read_registry(invitation.registry.encode())
    issued = Certificate(invitation.certificate.encode(), invitation.key.encode())
    file = KeyFile(folder)
    if file.path.exists():
        with file.lock():
            registry = _merge_registry(file.load(), registry)
            _write_tls(folder, invitation.ca.encode(), issued)
            file.save(registry)
        return registry
    refuse_present(folder)
    _write_tls(folder, invitation.ca.encode(), issued)
    file.save(registry)
    return registry


def _merge_registry(held: Registry, new: Registry) -> Registry:
    """Return a node's registry with the keys and cards of a later invitation."""
    if (held.name, held.site) != (new.name, new.site):
        raise SecurityError(f"the invitation is for {new.name}, of this or another site")
    for cards in new.cards.values():
        for card in cards.values():
            held = held.with_card(card)
    return checked(replace(held, own={**new.own, **held.own}))


def renew_certificate(
    folder: Path, authority: Authority, addresses: list[str], today: datetime
) -> list[str]:
    """Issue this node's certificate anew; return the names and addresses that it is for now."""
    name = KeyFile(folder).load().name
    if not addresses:
        addresses = list_addresses(read_certificate(folder / CERTIFICATE_FILE))
    issued = authority.issue_certificate(name, addresses, today)
    _write_tls(folder, authority.certificate, issued)
    return list_addresses(issued.certificate)


def read_certificate(path: Path) -> bytes:
    """Return a certificate, which is no secret."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from None


def refuse_present(folder: Path) -> None:
    """Refuse to make a node where one is."""
    for name in (KEYS_FILE, AUTHORITY_FILE, CA_FILE, CERTIFICATE_FILE, KEY_FILE):
        if (folder / name).exists():
            raise SecurityError(f"{folder / name} is there already; nothing was changed")


def _write_tls(folder: Path, ca: bytes, issued: Certificate) -> None:
    try:
        (folder / CA_FILE).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SecurityError(f"{folder}: {error.strerror}") from None
    write_file(folder / CA_FILE, ca, 0o644)
    write_file(folder / CA_DER_FILE, convert_certificate(ca), 0o644)
    write_file(folder / KEY_FILE, issued.key)
    write_file(folder / CERTIFICATE_FILE, issued.certificate, 0o644)
