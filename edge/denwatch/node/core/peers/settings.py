"""How a node treats other nodes: numbers, and what this part needs from the rest of the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from denwatch.node.core.interface import Reader
from denwatch.node.core.items import Dot


@dataclass(frozen=True)
class PeerSettings:
    """All times in ms, all sizes in bytes."""

    strategy: str = "utility"  # epidemic, spray:L, utility[:L]
    chunk: int = 32_768  # of items in one frame, which is one transaction at the receiver
    window: int = 4  # frames of items that may be unacknowledged
    group_from: int = 64  # with so many runs changed, groups of them are compared first
    retry: int = 5_000  # without an answer for so long, the exchange begins again
    max_retry: int = 60_000
    grace: int = 3_600_000  # how long after its end an item is not yet called dead
    max_frame: int = 262_144
    max_future: int = 24 * 3_600_000  # a reading may be from so far ahead, by our best knowledge
    max_life: int = 400 * 24 * 3_600_000  # nothing with an end ends later than this from now

    def __post_init__(self) -> None:
        if not 1_024 <= self.chunk <= self.max_frame - 80_000:
            raise ValueError(
                f"chunk {self.chunk}: from 1024 bytes, and one longest item below max_frame"
            )
        if self.window < 1 or not 0 < self.retry <= self.max_retry or self.grace < 0:
            raise ValueError("window, retry and grace are positive, retry is below max_retry")


class Keys(Protocol):
    """What a keyring knows of nodes."""

    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        """Return whether a node, which is not revoked, signed this."""

    def knows_node(self, node: str) -> bool:
        """Return whether there is a key of this node."""

    def peer_secret(self, node: str) -> bytes | None:
        """Return the secret for frames to a node; None if it is unknown or revoked."""

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        """Return the secrets that frames of a node may have, while keys change."""


class Wanting(Protocol):
    """What the subscribers' part knows."""

    def wanted(self, reader: Reader, dot: Dot) -> Mapping[str, int]:
        """Return who still waits for a notification that is held, with the degree of each."""
