"""Who is trusted, told to all nodes: notices of revocation and of new names, as items.

Makes an item of every notice that this node's keyring lists, and gives the keyring those of
others. What a notice says and whether it may say so is the keyring's business. Which node a name
belongs to depends on what came first, so it is on the disk (`trust.owner`): only here. So are
copies of the notices that concern this node (`trust.notice`): a peer may say that an item of
another node is dead, but only the origin of a notice takes it back.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import NEVER, REVOCATION, Dot, Item, read_dot


class Notices(Protocol):
    """What is needed of a keyring; `denwatch.node.security.keyring` has the real one."""

    @property
    def generation(self) -> int:
        """A number that grows with every change."""

    def list_notices(self) -> list[bytes]:
        """Return the notices of this node for the others."""

    def apply_notice(self, origin: str, body: bytes) -> bool:
        """Take a notice; ValueError if it is none, or from somebody who may not say so."""

    def is_heeded(self, origin: str, body: bytes) -> bool:
        """Return whether a notice was taken that concerns this node."""

    def note_owner(self, name: str, node: str) -> None:
        """Learn from an earlier run which node a name belongs to."""

    def take_news(self) -> tuple[dict[str, str], list[str]]:
        """Return owners of names, and conflicts, that were found since the last call."""


OWNERS = "trust.owner"  # a name: the node it belongs to
NOTICES = "trust.notice"  # the dot of a notice: its body


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
        for key, value in reader.scan(NOTICES):
            with suppress(ValueError):
                self._keyring.apply_notice(read_dot(key).origin, value)
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
        self._keep_copy(transaction, item)
        self._keep_news(transaction, item.dot.origin)

    def remove_notice(self, transaction: Transaction, item: Item, source: str) -> None:
        """Forget the copy of a notice that its origin has taken back."""
        if source == item.dot.origin:
            transaction.write(NOTICES, item.dot.key, None)

    def _keep_copy(self, transaction: Transaction, item: Item) -> None:
        if self._keyring.is_heeded(item.dot.origin, item.body):
            transaction.write(NOTICES, item.dot.key, item.body)

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
        if self._generation < 0:  # a store of an older version has no copies
            for item in self._item_store.iterate(transaction, REVOCATION):
                if transaction.get(NOTICES, item.dot.key) is None:
                    self._keep_copy(transaction, item)
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
