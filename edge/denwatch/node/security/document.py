"""`keys.json` as text: a registry to JSON and back, every field checked. Pure."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from denwatch.node.security.cards import KEY, NodeKeys, read_card
from denwatch.node.security.errors import SecurityError
from denwatch.node.security.registry import (
    KINDS,
    Device,
    DeviceKey,
    Kind,
    Registry,
    Subscriber,
    checked,
)

VERSION = 1
_Entry = TypeVar("_Entry")
_Id = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class _Own(msgspec.Struct, forbid_unknown_fields=True):
    serial: _Id
    sign: str
    agree: str


class _Key(msgspec.Struct, forbid_unknown_fields=True):
    id: _Id
    secret: str
    master: bool = False


class _Device(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[_Key]
    version: _Id
    ours: bool


class _Password(msgspec.Struct, forbid_unknown_fields=True):
    id: _Id
    hash: str


class _Subscriber(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    passwords: list[_Password]
    version: _Id
    ours: bool


class _Revoked(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    name: str
    keys: list[_Id]  # empty: all


class _Proof(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    key: int
    signature: str


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    name: str
    site: str
    own: list[_Own]
    cards: list[str]
    devices: dict[str, _Device] = {}
    subscribers: dict[str, _Subscriber] = {}
    revoked: list[_Revoked] = []
    proofs: list[_Proof] = []
    invited: list[str] = []


def write_registry(registry: Registry) -> bytes:
    """Return the text of a registry, the same for the same content."""
    document = _Document(
        version=VERSION,
        name=registry.name,
        site=registry.site.hex(),
        own=[
            _Own(serial, keys.sign_secret.hex(), keys.agree_secret.hex())
            for serial, keys in sorted(registry.own.items())
        ],
        cards=[
            card.encode().hex()
            for _, cards in sorted(registry.cards.items())
            for _, card in sorted(cards.items())
        ],
        devices={
            name: _Device(
                [
                    _Key(key_id, key.secret.hex(), key.is_master)
                    for key_id, key in sorted(device.keys.items())
                ],
                device.version,
                device.is_ours,
            )
            for name, device in sorted(registry.devices.items())
        },
        subscribers={
            name: _Subscriber(
                subscriber.role,
                [_Password(key_id, text) for key_id, text in sorted(subscriber.passwords.items())],
                subscriber.version,
                subscriber.is_ours,
            )
            for name, subscriber in sorted(registry.subscribers.items())
        },
        revoked=[
            _Revoked(kind, name, sorted(ids))
            for (kind, name), ids in sorted(registry.revoked.items())
        ],
        proofs=[
            _Proof(name, key, signature.hex())
            for (name, key), signature in sorted(registry.proofs.items())
        ],
        invited=sorted(registry.invited),
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def read_registry(text: bytes) -> Registry:
    """Return the registry of a text; SecurityError says what is wrong with it."""
    try:
        document = msgspec.json.decode(text, type=_Document)
    except msgspec.DecodeError as error:
        raise SecurityError(str(error)) from None
    if document.version != VERSION:
        raise SecurityError(f"written in version {document.version}; this is version {VERSION}")
    site = _read_hex(document.site, "site", KEY)
    registry = Registry(
        name=document.name,
        site=site,
        own={own.serial: _read_own(own) for own in _distinct(document.own, "serial", "own")},
        cards={},
        devices={name: _read_device(name, entry) for name, entry in document.devices.items()},
        subscribers={
            name: _read_subscriber(name, entry) for name, entry in document.subscribers.items()
        },
        revoked={
            (_read_kind(entry.kind), entry.name): frozenset(entry.keys)
            for entry in document.revoked
        },
        proofs={
            (entry.name, entry.key): _read_hex(entry.signature, "proof", 64)
            for entry in document.proofs
        },
        invited=frozenset(document.invited),
    )
    for card in document.cards:
        registry = registry.with_card(read_card(_read_hex(card, "card"), site))
    for serial, keys in registry.own.items():
        held = registry.cards.get(registry.name, {}).get(serial)
        if held is None or (held.sign, held.agree) != (keys.sign_public, keys.agree_public):
            raise SecurityError(f"{registry.name}: its key {serial} has no card that fits")
    return checked(registry)


def _read_own(own: _Own) -> NodeKeys:
    sign = _read_hex(own.sign, f"own signing key {own.serial}", KEY)
    return NodeKeys(own.serial, sign, _read_hex(own.agree, f"agreement key {own.serial}", KEY))


def _read_device(name: str, entry: _Device) -> Device:
    keys = _distinct(entry.keys, "id", f"device {name}")
    return Device(
        {
            key.id: DeviceKey(_read_hex(key.secret, f"device {name}, key {key.id}"), key.master)
            for key in keys
        },
        entry.version,
        entry.ours,
    )


def _read_subscriber(name: str, entry: _Subscriber) -> Subscriber:
    passwords = _distinct(entry.passwords, "id", f"subscriber {name}")
    return Subscriber(
        entry.role, {one.id: one.hash for one in passwords}, entry.version, entry.ours
    )


def _distinct(entries: list[_Entry], attribute: str, what: str) -> list[_Entry]:
    """Return entries of which no two have one number: the later would hide the earlier."""
    numbers = [getattr(entry, attribute) for entry in entries]
    for number in numbers:
        if numbers.count(number) > 1:
            raise SecurityError(f"{what}: the {attribute} {number} twice")
    return entries


def _read_kind(kind: str) -> Kind:
    for known in KINDS:
        if kind == known:
            return known
    raise SecurityError(f'revoked: there is no kind "{kind}"')


def _read_hex(text: str, what: str, length: int = 0) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise SecurityError(f"{what}: not hexadecimal") from None
    if length and len(data) != length:
        raise SecurityError(f"{what}: {len(data)} bytes instead of {length}")
    return data
