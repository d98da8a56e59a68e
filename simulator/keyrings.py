"""Real keyrings for an emulated site: authority, cards and registrations; keys follow from names.

What a node's key file says when the site begins: every node has its own card and the card of the
node that invited it, the first one, which introduces all others. A subscriber or device is
registered at one node; the others hear of it by notices, as in the field. Nothing here is secret.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from denwatch.node.security.cards import Card, NodeKeys, make_card
from denwatch.node.security.credentials import COST_MADE, hash_password
from denwatch.node.security.registrations import (
    DeviceKey,
    DeviceRegistration,
    Registrations,
    SubscriberRegistration,
    derive_device_password,
    derive_device_secret,
)

from simulator.keys import KEY_ID


def _derive(*words: str) -> bytes:
    return hashlib.blake2b("\0".join(("site", *words)).encode(), digest_size=32).digest()


@lru_cache(maxsize=1)
def _open_authority() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(_derive("authority"))


@lru_cache(maxsize=256)
def make_keys(node: str) -> NodeKeys:
    """Return the private keys of a node."""
    return NodeKeys(1, _derive("sign", node), _derive("agree", node))


@lru_cache(maxsize=256)
def make_node_card(node: str) -> Card:
    """Return the card of a node."""
    return make_card(_open_authority(), node, make_keys(node))


def make_master(device: str) -> DeviceKey:
    """Return the key that all nodes' keys of a device come from."""
    return DeviceKey(_derive("device", device), is_master=True)


def make_secret(device: str, node: str) -> bytes:
    """Return what a device and one node share."""
    return derive_device_secret(make_master(device), device, node, KEY_ID)


def make_password(user: str) -> str:
    """Return a subscriber's password."""
    return _derive("password", user).hex()[:30]


def make_device_password(device: str, node: str) -> str:
    """Return a device's password at a node."""
    return derive_device_password(make_secret(device, node))


@lru_cache(maxsize=1024)
def hash_of(user: str) -> str:
    """Return the hash of a subscriber's password."""
    salt = _derive("salt", user)[:16]
    return hash_password(make_password(user).encode(), salt, COST_MADE)


class SiteFiles:
    """The key files of all nodes of a site; each node reads its own at every start."""

    def __init__(self) -> None:
        self.files: dict[str, Registrations] = {}
        self.homes: dict[str, str] = {}  # where each subscriber and device is registered
        self._founder = ""

    def add_node(self, name: str) -> None:
        """Invite a node; the first one founds the site."""
        self._founder = self._founder or name
        site = _open_authority().public_key().public_bytes_raw()
        cards = {one: {1: make_node_card(one)} for one in {self._founder, name}}
        self.files[name] = Registrations(name, site, {1: make_keys(name)}, cards)
        founder = self.files[self._founder]
        if name != self._founder:
            founder = founder.with_card(make_node_card(name))
            self.files[self._founder] = replace(founder, invited=founder.invited | {name})

    def add_subscriber(self, name: str, node: str, role: str) -> None:
        """Register a subscriber at a node."""
        self.homes[name] = node
        app = SubscriberRegistration(role, {1: hash_of(name)})
        self.files[node] = self.files[node].with_subscriber(name, app)

    def add_device(self, name: str, node: str, nodes: tuple[str, ...] = ()) -> None:
        """Register a device at a node; it speaks through these nodes, or any."""
        self.homes[name] = node
        device = DeviceRegistration({KEY_ID: make_master(name)}, nodes=nodes)
        self.files[node] = self.files[node].with_device(name, device)

    def find_kind(self, name: str) -> str:
        """Return "node", "device" or "subscriber", whoever knows it; "" for a stranger."""
        if name in self.files:
            return "node"
        home = self.files.get(self.homes.get(name, ""))
        return "" if home is None else home.kind_of(name) or ""
