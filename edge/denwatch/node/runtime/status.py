"""What a node says about itself, on `dens/1/status/<node>`: one JSON object, retained."""

from __future__ import annotations

import json
from collections.abc import Mapping


class StatusTimer:
    """When the next status is due: after an interval, and at once when something changed."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._next = 0

    def is_due(self, now: int) -> bool:
        """Return whether it is time, and count it as done."""
        if now < self._next:
            return False
        self._next = now + self._interval
        return True

    def hurry(self) -> None:
        """Let the next one be due now."""
        self._next = 0


def encode_status(described: Mapping[str, object]) -> bytes:
    """Return the payload."""
    return json.dumps(described, separators=(",", ":")).encode()
