"""Notices: what nodes report to each other about names and keys, and what that changes.

A notice is the body of a REVOCATION item: CBOR, the same bytes for the same content. It travels
like any item, signed by its origin. There are five kinds: a name or key is revoked; a node has
this card; sealed for one node, the registration of a device or subscriber with its keys; the
authority's ruling on a name; and through which nodes a device speaks. Only the authority's
signature revokes a node.

`RegistrationsBuilder` applies notices to registrations, in place. A NAME BELONGS TO ONE NODE, the
first that was seen to register or revoke it (`owners`, which the node's store keeps): what another
node says about it is a conflict and changes nothing, whatever its version. Two honest nodes that
register one name while apart each keep their own, and third nodes the one they saw first, until
the authority rules on it. A revoked node owns nothing any more. Of two registrations by the owner
the higher version wins. Contradictions raise SecurityError. Pure.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import NamedTuple, TypeVar

from denwatch.node.security.cards import (
    Card,
    Ruling,
    cover_revocation,
    read_card,
    read_ruling,
    verify_signature,
)
from denwatch.node.security.credentials import SecurityError, check_name
from denwatch.node.security.registrations import (
    KINDS,
    MAX_KEY_ID,
    OWNED,
    DeviceKey,
    DeviceRegistration,
    Kind,
    Registrations,
    SubscriberRegistration,
    check_device,
    check_subscriber,
    derive_device_secret,
)
from denwatch.protocol import cbor
from denwatch.protocol.errors import ProtocolError

_REVOKED, _INTRODUCED, _SEALED, _RULED, _PLACED = 1, 2, 3, 4, 5
_MAX_NOTICE = 4096


class Revoked(NamedTuple):
    """A name, or one key of it, that is not valid any more."""

    kind: Kind
    name: str
    key_id: int | None
    proof: bytes  # the authority's signature if it is a node
    round: int = 0  # the number of the ruling that the owner knew; an older one was undone


class Sealed(NamedTuple):
    """A registration that only one node can read."""

    receiver: str
    box: bytes


class Placed(NamedTuple):
    """A device speaks through these nodes only; the greatest version counts."""

    version: int
    name: str
    nodes: tuple[str, ...]


Notice = Revoked | Card | Sealed | Ruling | Placed


def make_revocation(
    kind: Kind, name: str, key_id: int | None = None, proof: bytes = b"", round: int = 0
) -> bytes:
    """Return the notice that revokes a name, or one key of it."""
    fields = [_REVOKED, KINDS.index(kind), name, key_id, proof]
    return cbor.encode([*fields, round] if round else fields)


def list_revocations(registrations: Registrations) -> list[bytes]:
    """Return the notices of all that is revoked in a registrations and this node may revoke."""
    found = [cbor.encode([_RULED, each.encode()]) for each in registrations.rulings.values()]
    for (kind, name), ids in sorted(registrations.revoked.items()):
        if kind != "node" and registrations.find_owner(name) not in ("", registrations.name):
            continue  # a door that is closed here alone, or the authority's ruling
        for key_id in sorted(ids) if ids else (None,):
            proof = registrations.proofs.get((name, key_id or 0), b"")
            round = registrations.round_of(name)
            found.append(make_revocation(kind, name, key_id, proof, round))
    return found


def make_introduction(card: Card) -> bytes:
    """Return the notice that introduces a node by its card."""
    return cbor.encode([_INTRODUCED, card.encode()])


def make_sealed(receiver: str, box: bytes) -> bytes:
    """Return the notice that carries a registration to one node."""
    return cbor.encode([_SEALED, receiver, box])


def list_places(registrations: Registrations, names: Container[str]) -> list[bytes]:
    """Return the notices of devices of this node that do not speak through all nodes."""
    return [
        cbor.encode([_PLACED, device.version, name, list(device.nodes)])
        for name, device in sorted(registrations.devices.items())
        if device.nodes and device.is_ours and name in names
    ]


def read_notice(body: bytes, site: bytes) -> Notice:
    """Return a notice; SecurityError if it is invalid or lacks a signature that it needs."""
    fields = decode(body, "notice")
    match fields:
        case [1, int() as kind, str() as name, int() | None as key_id, bytes() as proof, *rest]:
            round = rest[0] if rest else 0
            if len(rest) > 1 or not isinstance(round, int):
                raise SecurityError("a revocation of an unknown form")
            if not 0 <= kind < len(KINDS) or not (key_id is None or 0 < key_id <= MAX_KEY_ID):
                raise SecurityError("a revocation with an unknown kind or key")
            found = Revoked(KINDS[kind], name, key_id, proof, round)
            covered = cover_revocation(name, key_id)
            if found.kind == "node" and not verify_signature(site, covered, proof):
                raise SecurityError(
                    f"the revocation of node {name} lacks the authority's signature"
                )
            return found
        case [2, bytes() as card]:
            return read_card(card, site)
        case [3, str() as receiver, bytes() as box]:
            return Sealed(receiver, box)
        case [4, bytes() as ruling]:
            return read_ruling(ruling, site)
        case [5, int() as version, str() as name, [str(), *_] as nodes] if all(
            isinstance(node, str) for node in nodes
        ):
            return Placed(version, name, tuple(map(str, nodes)))
    raise SecurityError("a notice of an unknown form")


def write_registration(registrations: Registrations, name: str, node: str) -> bytes:
    """Return what a node must know of a device or subscriber: a device's keys for it alone."""
    device = registrations.devices.get(name)
    if device is not None:
        keys = [
            [key_id, derive_device_secret(key, name, node, key_id)]
            for key_id, key in sorted(device.keys.items())
            if key.is_master or not device.is_ours  # a given key is for this node only
        ]
        return cbor.encode([KINDS.index("device"), name, device.version, keys])
    subscriber = registrations.subscribers[name]
    passwords = [[key_id, text] for key_id, text in sorted(subscriber.passwords.items())]
    fields = [KINDS.index("subscriber"), name, subscriber.version, subscriber.role, passwords]
    return cbor.encode(fields)


def decode(body: bytes, what: str) -> object:
    """Return the content of a body; SecurityError if it is too long or not CBOR."""
    if len(body) > _MAX_NOTICE:
        raise SecurityError(f"a {what} of {len(body)} bytes; {_MAX_NOTICE} at most")
    try:
        return cbor.decode(body)
    except ProtocolError as error:
        raise SecurityError(f"{what}: {error}") from None


# Applying notices ----------------------------------------------------------------------------

_Key = TypeVar("_Key", bytes, str)


class RegistrationsBuilder:
    """Builds `registrations` from others, which stay unchanged, and notices.

    `owners` has the node that each name belongs to by what was seen first; new ones are entered.
    """

    def __init__(self, registrations: Registrations, owners: dict[str, str] | None = None) -> None:
        self._devices = dict(registrations.devices)
        self._subscribers = dict(registrations.subscribers)
        self._nodes = {} if owners is None else owners
        self._places: dict[str, Placed] = {}
        self.registrations = replace(
            registrations, devices=self._devices, subscribers=self._subscribers
        )
        # The name of each key, so that two names with one key are found without a search.
        self._owners = {secret: "" for _, secret in registrations.list_secrets()}
        for name in (*self._devices, *self._subscribers):
            self._owners |= dict.fromkeys(self._list_secrets(name), name)

    def add_card(self, card: Card) -> None:
        """Add a node's card; the caller has checked its signature."""
        self.registrations = self.registrations.with_card(card)

    def revoke_node(self, notice: Revoked) -> None:
        """Apply the revocation of a node; the caller has checked its signature."""
        self.registrations = self.registrations.revoke(*notice[:4])

    def rule(self, ruling: Ruling) -> None:
        """Apply a ruling of the authority; the caller has checked its signature."""
        self.registrations = self.registrations.rule(ruling)

    def drop_lapsed(self) -> None:
        """Remove what belongs to a revoked node, to another node by a ruling, or is revoked."""
        for name in (*self._devices, *self._subscribers):
            held, owner = self._find(name), self.registrations.find_owner(name)
            assert held is not None
            is_ended = self._is_lapsed(owner) or self._is_revoked(name)
            if owner != self.registrations.name if held.is_ours else is_ended:
                self._drop(name)

    def find_owner(self, name: str) -> str:
        """Return the node that a name belongs to; empty if to none that is a member."""
        owner = self.registrations.find_owner(name) or self._nodes.get(name, "")
        return "" if self._is_lapsed(owner) else owner

    def revoke(self, notice: Revoked, origin: str) -> None:
        """Apply a node's revocation of a name of its own; another node's entry of it is removed."""
        self._claim(notice.name, origin)
        if notice.round == self.registrations.round_of(notice.name):
            self.registrations = self.registrations.revoke(*notice[:4])
            held = self._find(notice.name)
            if held is not None and not held.is_ours and self._is_revoked(notice.name):
                self._drop(notice.name)

    def place(self, notice: Placed, origin: str) -> None:
        """Apply a node's word on where a device of its own may speak."""
        if self.registrations.kind_of(notice.name) == "node":
            raise SecurityError(f'"{notice.name}" is a node already')
        self._claim(notice.name, origin)
        self._places[notice.name] = max(notice, self._places.get(notice.name, notice))

    def list_places(self, name: str) -> tuple[str, ...]:
        """Return the nodes through which a device speaks; none: through all."""
        held = self._devices.get(name)
        if held is not None and held.is_ours:
            return held.nodes
        return self._places[name].nodes if name in self._places else ()

    def register(self, data: bytes, origin: str) -> None:
        """Apply a registration of another node."""
        match decode(data, "registration"):
            case [1, str() as name, int() as version, list() as pairs]:
                if self._is_wanted(name, version, data, origin):
                    keys = {key_id: DeviceKey(key) for key_id, key in _read_pairs(pairs, bytes)}
                    device = DeviceRegistration(keys, version, is_ours=False, node=origin)
                    check_device(name, device)
                    self._enter(name, [key.secret for key in keys.values()])
                    self._claim(name, origin)
                    self._devices[name] = device
            case [2, str() as name, int() as version, str() as role, list() as pairs]:
                if self._is_wanted(name, version, data, origin):
                    passwords = dict(_read_pairs(pairs, str))
                    subscriber = SubscriberRegistration(
                        role, passwords, version, is_ours=False, node=origin
                    )
                    check_subscriber(name, subscriber)
                    hashes = [text.encode() for text in passwords.values()]
                    self._enter(name, hashes)
                    self._claim(name, origin)
                    self._subscribers[name] = subscriber
            case _:
                raise SecurityError("a registration of an unknown form")

    def _claim(self, name: str, origin: str) -> None:
        """Note whose a name is; SecurityError if it belongs to another node."""
        check_name(name)
        owner = self.find_owner(name)
        if owner not in ("", origin):
            raise SecurityError(
                f"{name} belongs to {owner}, where it was registered first; what {origin} says "
                "about it is ignored"
            )
        if self._is_lapsed(origin):
            raise SecurityError(f"{origin} was revoked; what it says about {name} is ignored")
        if not owner:
            self._nodes[name] = origin

    def _is_lapsed(self, node: str) -> bool:
        return node != self.registrations.name and self.registrations.is_revoked("node", node)

    def _is_wanted(self, name: str, version: int, data: bytes, origin: str) -> bool:
        owner = self.find_owner(name)
        if owner in ("", origin) and self._is_revoked(name):
            return False  # its node has not received the revocation yet
        if owner not in ("", origin):
            self._claim(name, origin)
        held = self._find(name)
        if held is None:
            return True
        own = write_registration(self.registrations, name, self.registrations.name)
        return not held.node or (version, data) > (held.version, own)

    def _enter(self, name: str, secrets: list[bytes]) -> None:
        """Remove a name's old entry, after checking that name and keys belong to nobody else."""
        check_name(name)
        if self.registrations.kind_of(name) == "node":
            raise SecurityError(f'"{name}" is a node already')
        for secret in secrets:
            owner = self._owners.get(secret, name)
            if owner != name:
                raise SecurityError(f"{name}: has the same key as {owner or 'this node'}")
        self._drop(name)
        self._owners |= dict.fromkeys(secrets, name)

    def _drop(self, name: str) -> None:
        for secret in self._list_secrets(name):
            self._owners.pop(secret, None)
        self._devices.pop(name, None)
        self._subscribers.pop(name, None)

    def _find(self, name: str) -> DeviceRegistration | SubscriberRegistration | None:
        return self._devices.get(name) or self._subscribers.get(name)

    def _is_revoked(self, name: str) -> bool:
        return any(self.registrations.is_revoked(kind, name) for kind in OWNED)

    def _list_secrets(self, name: str) -> list[bytes]:
        device, subscriber = self._devices.get(name), self._subscribers.get(name)
        found = [key.secret for key in device.keys.values()] if device else []
        return found + [
            text.encode() for text in (subscriber.passwords if subscriber else {}).values()
        ]


def _read_pairs(pairs: list[object], kind: type[_Key]) -> list[tuple[int, _Key]]:
    found: list[tuple[int, _Key]] = []
    for pair in pairs:
        if not isinstance(pair, list) or list(map(type, pair)) != [int, kind]:
            raise SecurityError("a registration whose keys are not numbered")
        found.append((pair[0], pair[1]))
    return found
