"""What comes from a peer and may come in. The only file that decides it.

A peer is authenticated, not trusted: it carries what others made. Each item is checked against its
origin's signature, its own format, and what is possible. What is refused is counted and logged, and
not marked as seen, so that the true item can still come. What a peer *is* trusted with is to say
that a subscription was removed: it can also keep items to itself.
"""

from __future__ import annotations

from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import (
    DELIVERED,
    NEVER,
    NOTIFICATION,
    SUBSCRIPTION,
    VOCABULARY,
    DeliveredBody,
    Item,
    NotificationBody,
    SubscriptionBody,
    VocabularyBody,
    decode_body,
)
from denwatch.node.core.peers.settings import Keys, PeerSettings
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.clock import Clocks
from denwatch.node.replication.dot_sets import EMPTY, MAX_SPAN
from denwatch.protocol.errors import ProtocolError

NEW, KNOWN, OVER, REFUSED = "new", "known", "over", "refused"


class Gate:
    """Checks items at one node's door."""

    def __init__(
        self, item_store: ItemStore, clocks: Clocks, keys: Keys, settings: PeerSettings
    ) -> None:
        self._item_store = item_store
        self._clocks = clocks
        self._keys = keys
        self._settings = settings

    def judge(self, transaction: Transaction, item: Item) -> tuple[str, str]:
        """Return what to do with an item, and for a refusal the reason."""
        dot = item.dot
        if self.has_seen(item):
            return KNOWN, ""
        if (dot.origin, dot.epoch) == (self._item_store.name, self._item_store.epoch):
            return REFUSED, "an item of ours that we never made"
        seen = self._item_store.context.runs.get((dot.origin, dot.epoch), EMPTY)
        if dot.sequence - seen.base > MAX_SPAN:
            return REFUSED, "a sequence far ahead of all others"
        if not self._keys.knows_node(dot.origin):
            return REFUSED, "an unknown origin"
        if not self._keys.verify(dot.origin, item.signed, item.signature):
            return REFUSED, "a wrong signature"
        return self._judge_content(transaction, item)

    def has_seen(self, item: Item) -> bool:
        """Return whether an item was here before: it changes nothing a second time."""
        return self._item_store.context.holds(*item.dot)

    def _judge_content(self, transaction: Transaction, item: Item) -> tuple[str, str]:
        try:
            read = _read_body(item)
        except ProtocolError as error:
            return REFUSED, str(error)
        if read is not None:
            at = self._clocks.localise(item.dot, read)
            doubt = self._clocks.doubt(item.dot.origin, item.dot.epoch, transaction.now)
            if at - 2 * doubt > transaction.now + self._settings.max_future:
                return REFUSED, "a reading from the future"
        if item.expires != NEVER:
            end = self._clocks.localise(item.dot, item.expires)
            doubt = self._clocks.doubt(item.dot.origin, item.dot.epoch, transaction.now)
            if end <= transaction.now:
                return OVER, ""
            if end - 2 * doubt > transaction.now + self._settings.max_life:
                return REFUSED, "an end too far ahead"
        return NEW, ""


def _read_body(item: Item) -> int | None:
    """Check a body; return when a notification was read."""
    if item.kind == NOTIFICATION:
        return decode_body(NotificationBody, item.body).at
    if item.kind == SUBSCRIPTION:
        decode_body(SubscriptionBody, item.body)
    elif item.kind == DELIVERED:
        decode_body(DeliveredBody, item.body)
    elif item.kind == VOCABULARY:
        decode_body(VocabularyBody, item.body)
    return None  # a revocation is the keyring's to read
