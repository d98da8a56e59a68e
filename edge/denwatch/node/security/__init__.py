"""Names, keys, roles and access rules of a node."""

from __future__ import annotations

from denwatch.node.replication.wire import PEER_TAG, tag_peer
from denwatch.node.security.access import Access, RateLimit, Role, RoleTable
from denwatch.node.security.cards import check_peer, open_peer, seal_peer
from denwatch.node.security.credentials import Refusal, SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.site import open_keyring

__all__ = [
    "PEER_TAG",
    "Access",
    "Keyring",
    "RateLimit",
    "Refusal",
    "Role",
    "RoleTable",
    "SecurityError",
    "check_peer",
    "open_keyring",
    "open_peer",
    "seal_peer",
    "tag_peer",
]
