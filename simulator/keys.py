"""Keys of an emulated site: real signatures and tags, under keys that follow from names.

Nothing here is secret: whoever reads this file knows all keys, which is what makes a run
repeatable. Signing and verifying are the real Ed25519; a result that one emulated node has worked
out serves the next one that asks the same, which changes nothing but the time it takes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from denwatch.node.security.cards import verify_signature
from denwatch.protocol.frames import Link

_PERSON = "person "
KEY_ID = 7  # every device has one key, and this is its number


def _derive(*words: str) -> bytes:
    return hashlib.blake2b("\0".join(("field", *words)).encode(), digest_size=32).digest()


@lru_cache(maxsize=4096)
def _make_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(_derive("node", name))


@lru_cache(maxsize=1 << 14)
def _sign(name: str, data: bytes) -> bytes:
    return _make_key(name).sign(data)


@lru_cache(maxsize=4096)
def _make_public(person: str) -> bytes:
    return _make_key(_PERSON + person).public_key().public_bytes_raw()


@lru_cache(maxsize=1 << 14)
def _verify(name: str, data: bytes, signature: bytes) -> bool:
    # An Ed25519 signature is always the same for the same key and data, so whoever has the key, as
    # only this file has everybody's, can compare. What differs is verified all the same: a second
    # valid signature, made by other means, must not be called wrong.
    if _sign(name, data) == signature:
        return True
    try:
        _make_key(name).public_key().verify(signature, data)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=1 << 16)
def _share(one: str, other: str) -> bytes:
    return _derive("pair", *sorted((one, other)))


def make_device_secret(device: str) -> bytes:
    """Return the secret of a device, which it shares with all nodes of the site."""
    return _derive("device", device)


class Roster:
    """Who belongs to the site; one for all nodes, as after every key has travelled."""

    def __init__(self) -> None:
        self.nodes: dict[str, None] = {}
        self.devices: dict[str, None] = {}
        self.places: dict[str, set[str]] = {}  # of devices that do not speak through all nodes
        self.roles: dict[str, str] = {}  # of subscribers
        self.hidden: dict[
            str, tuple[str, ...]
        ] = {}  # by role: what it may not see, event.attribute


class Ring:
    """One node's view of the roster; what a real keyring and the access rules answer."""

    def __init__(self, name: str, roster: Roster) -> None:
        self.name = name
        self._roster = roster

    def sign(self, data: bytes) -> bytes:
        """Return this node's signature."""
        return _sign(self.name, data)

    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        """Return whether a node of the site signed this."""
        return origin in self._roster.nodes and _verify(origin, data, signature)

    def knows_node(self, node: str) -> bool:
        """Return whether a node belongs to the site."""
        return node in self._roster.nodes

    def may_speak(self, device: str, node: str) -> bool:
        """Return whether a device speaks through a node: through all, unless it is said."""
        return node in self._roster.places.get(device, self._roster.nodes)

    def peer_secret(self, node: str) -> bytes | None:
        """Return the secret for frames to a node."""
        return _share(self.name, node) if node in self._roster.nodes else None

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        """Return the secrets that frames of a node may have."""
        secret = self.peer_secret(node)
        return () if secret is None else (secret,)

    def sign_for(self, name: str, data: bytes, key: bytes = b"") -> tuple[bytes, bytes] | None:
        """Return the key of somebody of the site, as if they logged in here, and a signature."""
        public = _make_public(name)
        if name not in self._roster.roles or key not in (b"", public):
            return None
        return public, _sign(_PERSON + name, data)

    def verify_person(self, key: bytes, data: bytes, signature: bytes) -> bool:
        """Return whether a person's key signed this."""
        return verify_signature(key, data, signature)

    def link_for(self, device: str, key_id: int) -> Link | None:
        """Return the link of a device's key."""
        if device not in self._roster.devices or key_id != KEY_ID:
            return None
        return Link(device, self.name, key_id, make_device_secret(device))

    def list_key_ids(self, device: str) -> list[int]:
        """Return the keys of a device."""
        return [KEY_ID] if device in self._roster.devices else []

    def role_of(self, owner: str) -> str:
        """Return the role of a subscriber."""
        return self._roster.roles.get(owner, "all")

    def check(self, role: str, event: str, attributes: Iterable[str]) -> object | None:
        """Return why a role may not see attributes of an event, or None."""
        return find_hidden(self._roster.hidden, role, event, attributes)


def find_hidden(
    hidden: Mapping[str, tuple[str, ...]], role: str, event: str, attributes: Iterable[str]
) -> str | None:
    """Return what keeps a role from seeing attributes of an event; None: it may."""
    for name in (event, *(f"{event}.{attribute}" for attribute in attributes)):
        if name in hidden.get(role, ()):
            return f"role {role} may not see {name}"
    return None


class HmacKeys:
    """The keys of a node among nodes and devices that all know each other, but for `unknown`.

    Signatures are HMACs of the length of real ones: enough to tell true from forged, and quick.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.unknown: set[str] = set()
        self.places: dict[str, set[str]] = {}  # of devices that do not speak through all nodes
        self.people: set[str] = set()  # who logged in here

    def sign(self, data: bytes) -> bytes:
        """Return this node's signature."""
        return sign_by_name(self.name, data)

    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        """Return whether a known node signed this."""
        made = sign_by_name(origin, data)
        return origin not in self.unknown and hmac.compare_digest(made, signature)

    def knows_node(self, node: str) -> bool:
        """Return whether a node belongs to the site."""
        return node not in self.unknown

    def may_speak(self, device: str, node: str) -> bool:
        """Return whether a device speaks through a node: through all, unless it is said."""
        return node in self.places.get(device, {node})

    def peer_secret(self, node: str) -> bytes | None:
        """Return the secret for frames to a node."""
        if node in self.unknown:
            return None
        return hashlib.sha256("|".join(sorted((self.name, node))).encode()).digest()

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        """Return the secrets that frames of a node may have."""
        secret = self.peer_secret(node)
        return () if secret is None else (secret,)

    def sign_for(self, name: str, data: bytes, key: bytes = b"") -> tuple[bytes, bytes] | None:
        """Return the key of somebody who logged in here, and a signature."""
        public = hashlib.sha256(name.encode()).digest()
        if name not in self.people or key not in (b"", public):
            return None
        return public, sign_by_name(public.hex(), data)

    def verify_person(self, key: bytes, data: bytes, signature: bytes) -> bool:
        """Return whether a person's key signed this."""
        return hmac.compare_digest(sign_by_name(key.hex(), data), signature)

    def list_key_ids(self, device: str) -> list[int]:
        """Return the one key that each device has."""
        return [] if device in self.unknown else [1]

    def link_for(self, device: str, key_id: int) -> Link | None:
        """Return the link of a device's key."""
        if device in self.unknown:
            return None
        return Link(device, self.name, key_id, hashlib.sha256(device.encode()).digest())


def sign_by_name(name: str, data: bytes) -> bytes:
    """Return an HMAC under a key that follows from a name."""
    return hmac.new(b"key of " + name.encode(), data, "sha512").digest()
