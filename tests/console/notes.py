"""Statuses for the view models' tests, as a node would send them."""

from __future__ import annotations

from typing import Any


def make_status(peers: list[str], publishers: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return a node's status."""
    return {
        "peers": peers,
        "lag_ms": 0 if peers else None,
        "queue": 2,
        "devices": 1.0,
        "subscriptions": 3,
        "publishers": publishers or [],
    }
