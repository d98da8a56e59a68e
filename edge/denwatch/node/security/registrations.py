"""Who belongs to a site as one node knows it, and how that is written in `keys.json`. Pure.

`Registrations` holds nodes, devices, subscribers and revocations. It is immutable: every change
returns a new one, checked. All names share one name space, because an MQTT user name must say who
somebody is: a device cannot have the name of a subscriber. A revocation is permanent: a revoked
name is never given again, so that copies of old registrations, which may travel between nodes for
weeks, cannot revive it. Only the authority's ruling on a name undoes that.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, TypeVar

import msgspec
from denwatch.node.security.cards import KEY, Card, NodeKeys, Ruling, read_card, read_ruling
from denwatch.node.security.credentials import (
    SecurityError,
    check_distinct,
    check_hash,
    check_name,
    check_secret,
)
from denwatch.protocol import cbor

Kind = Literal["node", "device", "subscriber"]
KINDS: tuple[Kind, ...] = ("node", "device", "subscriber")
OWNED: tuple[Kind, ...] = ("device", "subscriber")  # names that belong to a node
MAX_KEY_ID = 65535
MAX_KEYS = 8  # of one name at a time


@dataclass(frozen=True)
class DeviceKey:
    """A key of a device. One made here is a master: each node's key is derived from it."""

    secret: bytes = field(repr=False)
    is_master: bool = False


@dataclass(frozen=True)
class DeviceRegistration:
    """A device's keys by id. `version` grows with each change, so that the newest wins.

    `nodes` are those through which it speaks, if not through all.
    """

    keys: Mapping[int, DeviceKey]
    version: int = 1
    is_ours: bool = True  # registered at this node, which reports it to the others
    node: str = ""  # where it was registered, if not here; empty in files of older versions
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubscriberRegistration:
    """A subscriber's role, and scrypt hashes of its passwords by id."""

    role: str
    passwords: Mapping[int, str] = field(repr=False)
    version: int = 1
    is_ours: bool = True
    node: str = ""


@dataclass(frozen=True)
class Registrations:
    """All of a node. `revoked` has key ids by (kind, name); an empty set: the whole name.

    `rulings` are the authority's, the newest for each name.
    """

    name: str
    site: bytes  # the authority's public key
    own: Mapping[int, NodeKeys]
    cards: Mapping[str, Mapping[int, Card]]
    devices: Mapping[str, DeviceRegistration] = field(default_factory=dict)
    subscribers: Mapping[str, SubscriberRegistration] = field(default_factory=dict)
    revoked: Mapping[tuple[Kind, str], frozenset[int]] = field(default_factory=dict)
    proofs: Mapping[tuple[str, int], bytes] = field(default_factory=dict)  # see `revoke`
    invited: frozenset[str] = frozenset()  # nodes that this node invited and introduces
    rulings: Mapping[str, Ruling] = field(default_factory=dict)

    def kind_of(self, name: str) -> Kind | None:
        """Return what a name is here."""
        if name in self.cards or name == self.name:
            return "node"
        if name in self.devices:
            return "device"
        return "subscriber" if name in self.subscribers else None

    def is_revoked(self, kind: Kind, name: str, key_id: int | None = None) -> bool:
        """Return whether a name, or one of its keys, was revoked."""
        ids = self.revoked.get((kind, name))
        return ids is not None and (not ids or key_id in ids)

    def with_device(self, name: str, device: DeviceRegistration) -> Registrations:
        """Return the registrations with a device added or changed."""
        self._check_free(name, "device")
        check_device(name, device)
        return replace(self, devices={**self.devices, name: device})._distinct()

    def with_subscriber(self, name: str, subscriber: SubscriberRegistration) -> Registrations:
        """Return the registrations with a subscriber added or changed."""
        self._check_free(name, "subscriber")
        check_subscriber(name, subscriber)
        return replace(self, subscribers={**self.subscribers, name: subscriber})._distinct()

    def with_card(self, card: Card) -> Registrations:
        """Return the registrations with a node's card added; the caller has checked its signature.

        Cards of revoked nodes are added too: a card is public, and revocation is checked on use.
        """
        self._check_kind(card.name, "node")
        known = self.cards.get(card.name, {})
        held = known.get(card.serial)
        if held is not None and held != card:
            raise SecurityError(f"{card.name}: two cards with the serial {card.serial}")
        cards = {**self.cards, card.name: {**known, card.serial: card}}
        return replace(self, cards=cards)

    def revoke(
        self, kind: Kind, name: str, key_id: int | None = None, proof: bytes = b""
    ) -> Registrations:
        """Return the registrations without a name, or without one key of it.

        `proof` is the authority's signature, which the revocation of a node must carry: else a
        stolen node could shut out all the others.
        """
        check_name(name, kind)
        before = self.revoked.get((kind, name))
        if before is not None and not before:
            return self  # the whole name is revoked already
        ids = frozenset() if key_id is None else (before or frozenset()) | {key_id}
        revoked = {**self.revoked, (kind, name): ids}
        proofs = {**self.proofs, (name, key_id or 0): proof} if proof else self.proofs
        return replace(self, revoked=revoked, proofs=proofs)

    def rule(self, ruling: Ruling) -> Registrations:
        """Return the registrations after a ruling of the authority; the newest on a name counts."""
        held = self.rulings.get(ruling.name)
        if held is not None and held >= ruling:
            return self
        ruled = replace(self, rulings={**self.rulings, ruling.name: ruling})
        for kind in OWNED:
            key = kind, ruling.name
            if ruling.is_revoked:
                ruled = replace(ruled, revoked={**ruled.revoked, key: frozenset()})
            elif not ruled.revoked.get(key, {0}):  # single keys stay revoked
                ruled = replace(ruled, revoked={k: v for k, v in ruled.revoked.items() if k != key})
        return ruled

    def round_of(self, name: str) -> int:
        """Return the number of the ruling on a name, which a revocation of it answers; or 0."""
        return self.rulings[name].number if name in self.rulings else 0

    def find_owner(self, name: str) -> str:
        """Return the node that a name belongs to: where it was registered, or as it was ruled."""
        ruling = self.rulings.get(name)
        if ruling is not None and ruling.node:
            return ruling.node
        held = self.devices.get(name) or self.subscribers.get(name)
        if held is None:
            return ""
        return self.name if held.is_ours else held.node

    def _distinct(self) -> Registrations:
        check_distinct(self.list_secrets())
        return self

    def _check_free(self, name: str, kind: Kind) -> None:
        self._check_kind(name, kind)
        if self.is_revoked(kind, name):
            raise SecurityError(f'"{name}" was revoked; use another name')

    def _check_kind(self, name: str, kind: Kind) -> None:
        check_name(name, kind)
        holder = self.kind_of(name)
        if holder not in (None, kind):
            raise SecurityError(f'"{name}" is a {holder} already')

    def list_reported(self) -> list[str]:
        """Return the names that were registered here and that are reported to other nodes."""
        devices = [
            name
            for name, device in sorted(self.devices.items())
            if device.is_ours and any(key.is_master for key in device.keys.values())
        ]
        return devices + [name for name, app in sorted(self.subscribers.items()) if app.is_ours]

    def list_secrets(self) -> Iterator[tuple[str, bytes]]:
        """Yield every secret with its owner, for the search for equal ones."""
        for serial, keys in self.own.items():
            yield f"{self.name}, serial {serial}, signing", keys.sign_secret
            yield f"{self.name}, serial {serial}, agreement", keys.agree_secret
        for name, device in self.devices.items():
            for key_id, key in device.keys.items():
                yield f"device {name}, key {key_id}", key.secret
        for name, subscriber in self.subscribers.items():
            for key_id, text in subscriber.passwords.items():
                yield f"subscriber {name}, password {key_id}", text.encode()


def checked(registrations: Registrations) -> Registrations:
    """Return the registrations; SecurityError if they have weak, equal or impossible keys."""
    check_name(registrations.name, "node")
    if not registrations.own:
        raise SecurityError(f"{registrations.name}: it has no key of its own")
    groups: tuple[tuple[Kind, Mapping[str, object]], ...] = (
        ("node", {**registrations.cards, registrations.name: None}),
        ("device", registrations.devices),
        ("subscriber", registrations.subscribers),
    )
    kinds: dict[str, Kind] = {}
    for kind, group in groups:
        for name in group:
            check_name(name, kind)
            if kinds.setdefault(name, kind) != kind:
                raise SecurityError(f'"{name}" is a {kinds[name]} and a {kind}')
    for name, device in registrations.devices.items():
        check_device(name, device)
    for name, subscriber in registrations.subscribers.items():
        check_subscriber(name, subscriber)
    for serial, keys in registrations.own.items():
        check_secret(keys.sign_secret, f"signing key {serial}")
        check_secret(keys.agree_secret, f"agreement key {serial}")
    check_distinct(registrations.list_secrets())
    return registrations


def check_device(name: str, device: DeviceRegistration) -> None:
    """Refuse a device with weak or impossible keys."""
    _check_ids(f"device {name}", device.keys, device.version)
    for node in device.nodes:
        check_name(node, f"node of {name}")
    for key_id, key in device.keys.items():
        check_secret(key.secret, f"device {name}, key {key_id}")


def check_subscriber(name: str, subscriber: SubscriberRegistration) -> None:
    """Refuse a subscriber with an impossible role or password."""
    check_name(subscriber.role, f"role of {name}")
    _check_ids(f"subscriber {name}", subscriber.passwords, subscriber.version)
    for key_id, text in subscriber.passwords.items():
        check_hash(text, f"subscriber {name}, password {key_id}")


def _check_ids(what: str, keys: Mapping[int, object], version: int) -> None:
    if not 1 <= len(keys) <= MAX_KEYS:
        raise SecurityError(f"{what}: {len(keys)} keys; 1 to {MAX_KEYS} at a time")
    if not 1 <= version <= MAX_KEY_ID:
        raise SecurityError(f"{what}: version {version} is not in 1..{MAX_KEY_ID}")
    for key_id in keys:
        if not 1 <= key_id <= MAX_KEY_ID:
            raise SecurityError(f"{what}: key id {key_id} is not in 1..{MAX_KEY_ID}")


def derive_device_secret(key: DeviceKey, device: str, node: str, key_id: int) -> bytes:
    """Return the secret that a device and one node share.

    A device has another key at every node, so a stolen node knows only its own ones.
    """
    if not key.is_master:
        return key.secret
    return hmac.digest(key.secret, cbor.encode(["denwatch device", device, node, key_id]), "sha256")


def derive_device_password(secret: bytes) -> str:
    """Return a device's MQTT password at a node; it does not reveal the key."""
    return hmac.digest(secret, b"denwatch mqtt", "sha256")[:16].hex()


# `keys.json` ---------------------------------------------------------------------------------

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


class _Device(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    keys: list[_Key]
    version: _Id
    ours: bool
    node: str = ""
    nodes: list[str] = []


class _Password(msgspec.Struct, forbid_unknown_fields=True):
    id: _Id
    hash: str


class _Subscriber(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    role: str
    passwords: list[_Password]
    version: _Id
    ours: bool
    node: str = ""


class _Revoked(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    name: str
    keys: list[_Id]  # empty: all


class _Proof(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    key: int
    signature: str


class _KeysFile(msgspec.Struct, forbid_unknown_fields=True):
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
    rulings: list[str] = []


def write_registrations(registrations: Registrations) -> bytes:
    """Return the text of a registrations, the same for the same content."""
    document = _KeysFile(
        version=VERSION,
        name=registrations.name,
        site=registrations.site.hex(),
        own=[
            _Own(serial, keys.sign_secret.hex(), keys.agree_secret.hex())
            for serial, keys in sorted(registrations.own.items())
        ],
        cards=[
            card.encode().hex()
            for _, cards in sorted(registrations.cards.items())
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
                device.node,
                list(device.nodes),
            )
            for name, device in sorted(registrations.devices.items())
        },
        subscribers={
            name: _Subscriber(
                subscriber.role,
                [_Password(key_id, text) for key_id, text in sorted(subscriber.passwords.items())],
                subscriber.version,
                subscriber.is_ours,
                subscriber.node,
            )
            for name, subscriber in sorted(registrations.subscribers.items())
        },
        revoked=[
            _Revoked(kind, name, sorted(ids))
            for (kind, name), ids in sorted(registrations.revoked.items())
        ],
        proofs=[
            _Proof(name, key, signature.hex())
            for (name, key), signature in sorted(registrations.proofs.items())
        ],
        invited=sorted(registrations.invited),
        rulings=[ruling.encode().hex() for _, ruling in sorted(registrations.rulings.items())],
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def read_registrations(text: bytes) -> Registrations:
    """Return the registrations of a text; SecurityError says what is wrong."""
    try:
        document = msgspec.json.decode(text, type=_KeysFile)
    except msgspec.DecodeError as error:
        raise SecurityError(str(error)) from None
    if document.version != VERSION:
        raise SecurityError(f"version {document.version} of the file; this program reads {VERSION}")
    site = _read_hex(document.site, "site", KEY)
    registrations = Registrations(
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
        rulings={
            ruling.name: ruling
            for text in document.rulings
            for ruling in [read_ruling(_read_hex(text, "ruling"), site)]
        },
    )
    for card in document.cards:
        registrations = registrations.with_card(read_card(_read_hex(card, "card"), site))
    for serial, keys in registrations.own.items():
        held = registrations.cards.get(registrations.name, {}).get(serial)
        if held is None or (held.sign, held.agree) != (keys.sign_public, keys.agree_public):
            raise SecurityError(f"{registrations.name}: its key {serial} has no matching card")
    return checked(registrations)


def _read_own(own: _Own) -> NodeKeys:
    sign = _read_hex(own.sign, f"own signing key {own.serial}", KEY)
    return NodeKeys(own.serial, sign, _read_hex(own.agree, f"agreement key {own.serial}", KEY))


def _read_device(name: str, entry: _Device) -> DeviceRegistration:
    keys = _distinct(entry.keys, "id", f"device {name}")
    return DeviceRegistration(
        {
            key.id: DeviceKey(_read_hex(key.secret, f"device {name}, key {key.id}"), key.master)
            for key in keys
        },
        entry.version,
        entry.ours,
        entry.node,
        tuple(entry.nodes),
    )


def _read_subscriber(name: str, entry: _Subscriber) -> SubscriberRegistration:
    passwords = _distinct(entry.passwords, "id", f"subscriber {name}")
    return SubscriberRegistration(
        entry.role, {one.id: one.hash for one in passwords}, entry.version, entry.ours, entry.node
    )


def _distinct(entries: list[_Entry], attribute: str, what: str) -> list[_Entry]:
    """Return the entries; refuse two with one number, of which the later would hide the other."""
    numbers = [getattr(entry, attribute) for entry in entries]
    for number in numbers:
        if numbers.count(number) > 1:
            raise SecurityError(f"{what}: the {attribute} {number} appears twice")
    return entries


def _read_kind(kind: str) -> Kind:
    for known in KINDS:
        if kind == known:
            return known
    raise SecurityError(f'revoked: unknown kind "{kind}"')


def _read_hex(text: str, what: str, length: int = 0) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise SecurityError(f"{what}: not hexadecimal") from None
    if length and len(data) != length:
        raise SecurityError(f"{what}: {len(data)} bytes instead of {length}")
    return data
