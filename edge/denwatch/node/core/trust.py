"""Who is trusted, told to all nodes: notices of revocation and of new names, as items.

Makes an item of every notice that this node's keyring lists, and gives the keyring those of
others. What a notice says and whether it may say so is the keyring's business. Which node a name
belongs to depends on what came first, so it is on the disk (`trust.owner`): only here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import NEVER, REVOCATION, Dot, Item


class Notices(Protocol):
    """What is needed of a keyring; `denwatch.node.security.keyring` has the real one."""

    @property
    def generation(self) -> int:
        """A number that grows with every change."""

    def list_notices(self) -> list[bytes]:
        """Return the notices of this node for the others."""

    def apply_notice(self, origin: str, body: bytes) -> bool:
        """Take a notice; ValueError if it is none, or from somebody who may not say so."""

    def note_owner(self, name: str, node: str) -> None:
        """Learn from an earlier run which node a name belongs to."""

    def take_news(self) -> tuple[dict[str, str], list[str]]:
        """Return owners of names, and conflicts, that were found since the last call."""


OWNERS = "trust.owner"  # a name: the node it belongs to


class Trust:
    """Keeps a keyring and the notices among the items in step."""

    def __init__(self, item_store: ItemStore, keyring: Notices) -> None:
        self._item_store = item_store
        self._keyring = keyring
        self._told: dict[bytes, Dot] = {}  # our own notices that are items
        self._generation = -1

    def restore(self, reader: Reader) -> None:
        """Give the keyring what an earlier run learned."""
        for key, value in reader.scan(OWNERS):
            self._keyring.note_owner(key.decode(), value.decode())
        for item in self._item_store.iterate(reader, REVOCATION):
            if item.dot.origin == self._item_store.name:
                self._told[item.body] = item.dot
            else:
                with suppress(ValueError):  # it was refused when it came, too
                    self._keyring.apply_notice(item.dot.origin, item.body)

    def apply_notice(self, transaction: Transaction, item: Item) -> None:
        """Give the keyring the notice of another node.

        At once, when it is stored: what follows in the same frame is judged by the new keys.
        """
        try:
            self._keyring.apply_notice(item.dot.origin, item.body)
        except ValueError as error:
            transaction.log("refuse", what="notice", why=str(error), who=item.dot.origin)
            transaction.count("notices_refused")
        self._keep_news(transaction, item.dot.origin)

    def _keep_news(self, transaction: Transaction, who: str) -> None:
        owners, conflicts = self._keyring.take_news()
        for name, node in owners.items():
            transaction.write(OWNERS, name.encode(), node.encode())
        for why in conflicts:
            transaction.log("refuse", what="notice", why=why, who=who)
            transaction.count("notices_refused")

    def tick(self, transaction: Transaction) -> None:
        """Make items of what is new, and remove those that no longer hold."""
        if self._keyring.generation == self._generation:
            return
        self._generation = self._keyring.generation
        self._keep_news(transaction, self._item_store.name)
        wanted = dict.fromkeys(self._keyring.list_notices())
        for body in [body for body in self._told if body not in wanted]:
            self._item_store.remove(transaction, REVOCATION, self._told.pop(body), "removed")
        for body in wanted:
            if body not in self._told:
                self._told[body] = self._item_store.originate(
                    transaction, REVOCATION, NEVER, body
                ).dot
