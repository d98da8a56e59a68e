"""Names, keys, roles and access rules of a node."""

from __future__ import annotations

from edge.dens.security.access import Access
from edge.dens.security.errors import Refusal, SecurityError
from edge.dens.security.folder import open_keyring
from edge.dens.security.keyring import Keyring
from edge.dens.security.rates import RateLimit
from edge.dens.security.roles import Role, Roles
from edge.dens.security.tags import PEER_TAG, check_peer, open_peer, seal_peer, tag_peer

__all__ = [
    "PEER_TAG",
    "Access",
    "Keyring",
    "RateLimit",
    "Refusal",
    "Role",
    "Roles",
    "SecurityError",
    "check_peer",
    "open_keyring",
    "open_peer",
    "seal_peer",
    "tag_peer",
]
