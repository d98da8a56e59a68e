"""Notes and statuses for the view models' tests, as a node would send them."""

from __future__ import annotations

import json
from typing import Any

from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.subscriber.messages import read_notification


def make_note(
    key: str, values: dict[str, Any] | None = None, **fields: Any
) -> ReceivedNotification:
    """Return a note: exact and certain unless it is said otherwise."""
    degree = fields.get("degree", 1.0)
    document = {
        "id": key,
        "event": "patient",
        "device": "bed-1",
        "values": values or {"heart_rate": {"value": 150.0, "unit": "bpm"}},
        "degree": degree,
        "possible": degree,
        "certain": degree,
        "why": None,
        "subscriptions": ["fast"],
        "at": "2026-11-16T10:00:00.000Z",
        "expires": "2026-11-16T10:10:00.000Z",
        "score": degree,
        "node": "north",
        **fields,
    }
    note = read_notification(json.dumps(document).encode())
    assert note is not None
    return note


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
