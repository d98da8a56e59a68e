"""What a strategy wants to know of a peer: one question and one answer, a few bytes each.

The question names the destinations of what could go; the answer says how many nodes the peer has
ever met, and for each destination how soon it may meet it. Answers also teach the node that asks.
"""

from __future__ import annotations

from denwatch.node.core.peers.cargo import Cargo
from denwatch.node.core.peers.kit import Kit
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.strategies import MetPeer
from denwatch.node.replication.wire import decode_ask, encode_ask, hash_name
from denwatch.protocol.errors import ProtocolError

_MAX = 1_024  # destinations in one question
_REACH = 2  # bytes


class Questions:
    """One peer's, in one exchange."""

    def __init__(self, kit: Kit, peer: str) -> None:
        self.peer = MetPeer(peer, {}, 0)
        self._kit = kit
        self._asked: list[str] | None = None
        self._is_answered = not kit.strategy.is_asking

    @property
    def is_answered(self) -> bool:
        """Whether all is known that the strategy wants."""
        return self._is_answered

    def ask(self, transaction: Transaction, cargo: Cargo) -> bytes | None:
        """Return the question to send; None if it is under way."""
        if self._asked is not None:
            return None
        self._asked = cargo.list_destinations(transaction)[:_MAX]
        return encode_ask(self._asked)

    def close(self) -> None:
        """Note that the strategy has decided: the next time it wants to know again."""
        self._asked, self._is_answered = None, not self._kit.strategy.is_asking

    def answer(self, transaction: Transaction, body: bytes) -> bytes:
        """Return the answer to a peer's question."""
        encounters = self._kit.encounters
        known = {hash_name(name): name for name in encounters.list_known()}
        told = bytes(
            encounters.judge(known[each], transaction.now) if each in known else 0
            for each in decode_ask(body)
        )
        return min(encounters.reach, 0xFFFF).to_bytes(_REACH, "big") + told

    def learn(self, transaction: Transaction, body: bytes) -> None:
        """Take the answer to ours."""
        if self._asked is None or len(body) != _REACH + len(self._asked):
            raise ProtocolError("an answer to no question")
        likely = dict(zip(self._asked, body[_REACH:], strict=True))
        for node, byte in likely.items():
            self._kit.encounters.hear(transaction.write, node, byte, transaction.now)
        self.peer = MetPeer(self.peer.name, likely, int.from_bytes(body[:_REACH], "big"))
        self._is_answered = True
