"""Names, keys, roles and access rules of a node."""

from __future__ import annotations

from denwatch.node.security.access import Access
from denwatch.node.security.errors import Refusal, SecurityError
from denwatch.node.security.folder import open_keyring
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.rates import RateLimit
from denwatch.node.security.roles import Role, Roles
from denwatch.node.security.tags import PEER_TAG, check_peer, open_peer, seal_peer, tag_peer

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
