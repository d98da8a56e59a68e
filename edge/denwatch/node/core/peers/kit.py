"""What all contacts of a node share: its stores of knowledge, and the small ones kept here.

`Copies` remembers what a strategy says about each copy; `Places` remembers at which nodes each
subscriber was last known, which items tell: a subscription is made, and a mark is set, where its
subscriber is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from denwatch.node.core.interface import Reader
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import (
    DELIVERED,
    NOTIFICATION,
    SUBSCRIPTION,
    DeliveredBody,
    Dot,
    Item,
    SubscriptionBody,
    decode_body,
    read_dot,
)
from denwatch.node.core.peers.acceptance import Gate
from denwatch.node.core.peers.ledger import Ledger
from denwatch.node.core.peers.settings import Keys, PeerSettings, Wanting
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.trust import Trust
from denwatch.node.replication.clock import Clocks
from denwatch.node.replication.strategies import Copy, Encounters, Strategy

COPIES = "peer.copy"
_PLACES = 2  # nodes remembered for a subscriber


class Copies:
    """The strategy's notes on the copies held here, of those that are not as they began."""

    def __init__(self, name: str, strategy: Strategy) -> None:
        self._name = name
        self._strategy = strategy
        self._copies: dict[Dot, Copy] = {}

    def restore(self, reader: Reader) -> None:
        """Take up what an earlier run left."""
        for key, value in reader.scan(COPIES):
            numbers = [int.from_bytes(value[at : at + 2], "big") for at in (0, 2, 4)]
            self._copies[read_dot(key)] = Copy(*numbers)

    def get(self, dot: Dot) -> Copy:
        """Return what is known of a copy."""
        copy = self._copies.get(dot)
        if copy is not None:
            return copy
        return Copy(self._strategy.copies if dot.origin == self._name else 1, 0, 0)

    def keep(self, transaction: Transaction, dot: Dot, copy: Copy) -> None:
        """Note what a copy is now."""
        if self._strategy.copies and copy != self.get(dot):
            copy = Copy(*(min(number, 0xFFFF) for number in copy))
            self._copies[dot] = copy
            transaction.write(
                COPIES, dot.key, b"".join(number.to_bytes(2, "big") for number in copy)
            )

    def follow(self, strategy: Strategy) -> None:
        """Count copies as another strategy does."""
        self._strategy = strategy

    def drop(self, transaction: Transaction, dot: Dot) -> None:
        """Forget a copy that is gone."""
        if self._copies.pop(dot, None) is not None:
            transaction.write(COPIES, dot.key, None)


class Places:
    """Where subscribers were last known, the latest first."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, ...]] = {}

    def restore(self, item_store: ItemStore, reader: Reader) -> None:
        """Read it from the items that are held."""
        for kind in (SUBSCRIPTION, DELIVERED):
            for item in item_store.iterate(reader, kind):
                self.learn(item)

    def learn(self, item: Item) -> bool:
        """Note what an item says about where somebody is; return whether that is another node."""
        if item.kind == SUBSCRIPTION:
            owner = decode_body(SubscriptionBody, item.body).owner
        elif item.kind == DELIVERED:
            owner = decode_body(DeliveredBody, item.body).subscriber
        else:
            return False
        node = item.dot.origin
        known = self._places.get(owner, ())
        before = tuple(place for place in known if place != node)
        self._places[owner] = (node, *before)[:_PLACES]
        return node not in known

    def find(self, owners: Iterable[str]) -> tuple[str, ...]:
        """Return the nodes where any of these may be."""
        return tuple(
            dict.fromkeys(node for owner in owners for node in self._places.get(owner, ()))
        )


@dataclass
class Kit:
    """One node's."""

    item_store: ItemStore
    keys: Keys
    wanting: Wanting
    clocks: Clocks
    settings: PeerSettings
    strategy: Strategy
    ledger: Ledger
    gate: Gate
    copies: Copies
    trust: Trust | None = None
    encounters: Encounters = field(default_factory=Encounters)
    places: Places = field(default_factory=Places)
    rounds: int = 0  # exchanges begun in this run: no two have one salt

    def follow(self, strategy: Strategy) -> None:
        """Decide by another strategy from now on."""
        self.strategy = strategy
        self.copies.follow(strategy)

    def learn(self, transaction: Transaction, item: Item) -> bool:
        """Note an item that is held from now on; return whether somebody is somewhere new."""
        self.ledger.learn(transaction, item)
        return self.places.learn(item)

    def forget(self, transaction: Transaction, item: Item, reason: str) -> bool:
        """Note an item that is gone; return whether it is dead for everybody."""
        expires = item.expires and self.clocks.localise(item.dot, item.expires)
        if item.kind == NOTIFICATION:
            self.copies.drop(transaction, item.dot)
        return self.ledger.forget(transaction, item, reason, expires)
