"""The sealed channel to one peer: salts, numbers, tags and the bytes of each frame.

The only file that publishes to a peer. Within one exchange frames are numbered from 0 in each
direction, and only the next number is accepted: a frame that comes twice, late or out of order is
ignored, and a lost frame makes the exchange begin again. Also here: the settings of the peer
protocol, and what it needs of a keyring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from denwatch.node.core.events import PEERS
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.dot_sets import make_salt
from denwatch.node.replication.wire import DIGEST, EQUAL, NAMES, PeerFrame, read_frame, seal
from denwatch.protocol.errors import ProtocolError


@dataclass(frozen=True)
class PeerSettings:
    """How a node treats other nodes; all times in ms, all sizes in bytes."""

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


class PeerKeys(Protocol):
    """What a keyring knows of nodes."""

    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        """Return whether a node, which is not revoked, signed this."""

    def knows_node(self, node: str) -> bool:
        """Return whether there is a key of this node."""

    def peer_secret(self, node: str) -> bytes | None:
        """Return the secret for frames to a node; None if it is unknown or revoked."""

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        """Return the secrets that frames of a node may have, while keys change."""


class PeerChannel:
    """Seals frames to one peer, and opens those that it sent to us.

    `rounds` counts the exchanges of this run of the node with any peer, so that no two have the
    same salt.
    """

    def __init__(
        self, item_store: ItemStore, keys: PeerKeys, rounds: Iterator[int], peer: str, limit: int
    ) -> None:
        self.name = item_store.name
        self.peer = peer
        self.bytes: Counter[tuple[str, bool]] = Counter()  # by kind of frame and whether we sent it
        self.salts = b""
        self.next_in = self.next_out = 0
        self._epoch = item_store.epoch
        self._keys = keys
        self._rounds = rounds
        self._limit = limit

    @property
    def is_usable(self) -> bool:
        """Whether there is a secret with the peer: it may be revoked at any time."""
        return self._keys.peer_secret(self.peer) is not None

    def begin(self, salts: bytes) -> None:
        """Count frames from 0 again, under a new salt."""
        self.salts = salts
        self.next_in = self.next_out = 0

    def make_salt(self, transaction: Transaction) -> bytes:
        """Return a salt for an exchange."""
        secret = self._keys.peer_secret(self.peer) or bytes(1)
        return make_salt(secret, self.name, self._epoch, next(self._rounds), transaction.now)

    def send(
        self, transaction: Transaction, kind: int, body: bytes, *, is_flagged: bool = False
    ) -> None:
        """Send a frame; nothing goes to a peer without a secret."""
        secret = self._keys.peer_secret(self.peer)
        if secret is None:
            return
        salts = b"" if kind == DIGEST else self.salts
        frame = seal(
            secret, self.name, self.peer, salts, kind, self.next_out, body, is_flagged=is_flagged
        )
        self.next_out += kind not in (DIGEST, EQUAL)
        self.bytes[NAMES[kind], True] += len(frame)
        transaction.publish(PEERS + self.peer, frame)

    def open(self, data: bytes) -> PeerFrame:
        """Return a frame that the peer made, for us, in this exchange; ProtocolError otherwise."""
        frame = read_frame(data, self._limit)
        salts = b"" if frame.kind == DIGEST else self.salts
        if not frame.is_from(self._keys.peer_secrets(self.peer), self.peer, self.name, salts):
            raise ProtocolError(f"{NAMES[frame.kind]}: the tag is wrong")
        self.bytes[NAMES[frame.kind], False] += len(data)
        return frame

    def is_next(self, frame: PeerFrame) -> bool:
        """Return whether a frame is the one that comes next."""
        return frame.kind == EQUAL or frame.number == self.next_in

    def accept(self, frame: PeerFrame) -> None:
        """Record that a frame was accepted."""
        self.next_in += frame.kind != EQUAL
