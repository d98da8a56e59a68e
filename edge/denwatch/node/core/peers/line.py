"""The sealed line to one peer: salts, numbers, tags and the bytes of each frame.

The only file that publishes to a peer. Within one exchange frames are numbered from 0 in each
direction, and only the next number is taken: a frame that comes twice, late or out of order is
passed over, and what is lost makes the exchange begin again.
"""

from __future__ import annotations

from collections import Counter

from denwatch.node.core.interface import PEERS
from denwatch.node.core.peers.kit import Kit
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.dot_sets import make_salt
from denwatch.node.replication.wire import DIGEST, EQUAL, NAMES, PeerFrame, read_frame, seal
from denwatch.protocol.errors import ProtocolError


class Line:
    """One peer's."""

    def __init__(self, kit: Kit, peer: str) -> None:
        self.bytes: Counter[tuple[str, bool]] = Counter()  # by frame and whether it went out
        self.salts = b""
        self.next_in = self.next_out = 0
        self._kit = kit
        self._peer = peer

    @property
    def is_usable(self) -> bool:
        """Whether there is a secret with the peer: it may be revoked at any time."""
        return self._kit.keys.peer_secret(self._peer) is not None

    def begin(self, salts: bytes) -> None:
        """Begin to count anew, under a new salt."""
        self.salts = salts
        self.next_in = self.next_out = 0

    def make_salt(self, transaction: Transaction) -> bytes:
        """Return a salt for an exchange."""
        secret = self._kit.keys.peer_secret(self._peer) or bytes(1)
        self._kit.rounds += 1
        item_store = self._kit.item_store
        return make_salt(
            secret, item_store.name, item_store.epoch, self._kit.rounds, transaction.now
        )

    def send(
        self, transaction: Transaction, kind: int, body: bytes, *, is_flagged: bool = False
    ) -> None:
        """Send a frame; nothing goes to a peer without a secret."""
        secret = self._kit.keys.peer_secret(self._peer)
        if secret is None:
            return
        frame = seal(
            secret,
            self._kit.item_store.name,
            self._peer,
            b"" if kind == DIGEST else self.salts,
            kind,
            self.next_out,
            body,
            is_flagged=is_flagged,
        )
        self.next_out += kind not in (DIGEST, EQUAL)
        self.bytes[NAMES[kind], True] += len(frame)
        transaction.publish(PEERS + self._peer, frame)

    def open(self, data: bytes) -> PeerFrame:
        """Return a frame that the peer made, for us, in this exchange; ProtocolError otherwise."""
        frame = read_frame(data, self._kit.settings.max_frame)
        salts = b"" if frame.kind == DIGEST else self.salts
        secrets = self._kit.keys.peer_secrets(self._peer)
        if not frame.is_from(secrets, self._peer, self._kit.item_store.name, salts):
            raise ProtocolError(f"{NAMES[frame.kind]}: the tag is wrong")
        self.bytes[NAMES[frame.kind], False] += len(data)
        return frame

    def is_next(self, frame: PeerFrame) -> bool:
        """Return whether a frame is the one that comes next."""
        return frame.kind == EQUAL or frame.number == self.next_in

    def take(self, frame: PeerFrame) -> None:
        """Note that a frame was taken."""
        self.next_in += frame.kind != EQUAL
