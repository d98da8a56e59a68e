"""What one node tells all others about names and keys: bodies of REVOCATION items. Pure.

A notice is CBOR, the same bytes for the same content, and travels like any item, signed by its
origin. Three kinds: a name or key is revoked; a node has this card; and, sealed for one node, a
device or subscriber with its keys. Only the authority's signature revokes a node. What notices do
to a registry is in `enrolment.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from denwatch.node.security.cards import Card, read_card, verify_signature
from denwatch.node.security.errors import SecurityError
from denwatch.node.security.registry import (
    KINDS,
    MAX_KEY_ID,
    Kind,
    Registry,
    derive_device_secret,
)
from denwatch.protocol import cbor
from denwatch.protocol.errors import ProtocolError

_REVOKED, _CARD, _SEALED = 1, 2, 3
_MAX_NOTICE = 4096


class Revoked(NamedTuple):
    """A name, or one key of it, that counts no more."""

    kind: Kind
    name: str
    key_id: int | None
    proof: bytes  # the authority's signature if it is a node


class Sealed(NamedTuple):
    """A registration that only one node can read."""

    receiver: str
    box: bytes


Notice = Revoked | Card | Sealed


def cover_revocation(name: str, key_id: int | None) -> bytes:
    """Return the bytes that the authority signs to revoke a node."""
    return cbor.encode(["denwatch revoke", name, key_id])


def make_revocation(kind: Kind, name: str, key_id: int | None = None, proof: bytes = b"") -> bytes:
    """Return the notice that revokes a name, or one key of it."""
    return cbor.encode([_REVOKED, KINDS.index(kind), name, key_id, proof])


def list_revocations(registry: Registry) -> list[bytes]:
    """Return the notices of all that is revoked in a registry."""
    found = []
    for (kind, name), ids in sorted(registry.revoked.items()):
        for key_id in sorted(ids) if ids else (None,):
            proof = registry.proofs.get((name, key_id or 0), b"")
            found.append(make_revocation(kind, name, key_id, proof))
    return found


def make_introduction(card: Card) -> bytes:
    """Return the notice that tells of a node."""
    return cbor.encode([_CARD, card.encode()])


def make_sealed(receiver: str, box: bytes) -> bytes:
    """Return the notice that carries a registration to one node."""
    return cbor.encode([_SEALED, receiver, box])


def read_notice(body: bytes, site: bytes) -> Notice:
    """Return a notice; SecurityError if it is none, or lacks a signature that it needs."""
    fields = decode(body, "notice")
    match fields:
        case [1, int() as kind, str() as name, int() | None as key_id, bytes() as proof]:
            if not 0 <= kind < len(KINDS) or not (key_id is None or 0 < key_id <= MAX_KEY_ID):
                raise SecurityError("a revocation of no known kind or key")
            found = Revoked(KINDS[kind], name, key_id, proof)
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
    raise SecurityError("a notice of no known form")


def write_registration(registry: Registry, name: str, node: str) -> bytes:
    """Return what a node must know of a device or subscriber: a device's keys for it alone."""
    device = registry.devices.get(name)
    if device is not None:
        keys = [
            [key_id, derive_device_secret(key, name, node, key_id)]
            for key_id, key in sorted(device.keys.items())
            if key.is_master or not device.is_ours  # one given at this node is for this node
        ]
        return cbor.encode([KINDS.index("device"), name, device.version, keys])
    subscriber = registry.subscribers[name]
    passwords = [[key_id, text] for key_id, text in sorted(subscriber.passwords.items())]
    fields = [KINDS.index("subscriber"), name, subscriber.version, subscriber.role, passwords]
    return cbor.encode(fields)


def decode(body: bytes, what: str) -> object:
    """Return what a body holds; SecurityError if it is too long or no CBOR."""
    if len(body) > _MAX_NOTICE:
        raise SecurityError(f"a {what} of {len(body)} bytes; {_MAX_NOTICE} at most")
    try:
        return cbor.decode(body)
    except ProtocolError as error:
        raise SecurityError(f"{what}: {error}") from None
