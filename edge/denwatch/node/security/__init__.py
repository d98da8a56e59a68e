"""Names, keys, roles and access rules of a node. README.md explains how they work together."""

from __future__ import annotations

from denwatch.node.security.access import Access, Role, RoleTable
from denwatch.node.security.credentials import Refusal, SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.site import open_keyring

__all__ = [
    "Access",
    "Keyring",
    "Refusal",
    "Role",
    "RoleTable",
    "SecurityError",
    "open_keyring",
]
