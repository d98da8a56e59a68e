"""Validates items received from a peer, and stores those that are good.

A peer is authenticated, not trusted: it carries what others made. Each item is checked against its
origin's signature, its own format, and what is possible. What is refused is counted and logged, and
not recorded as seen, so that the true item can still come. What a peer *is* trusted with is to say
that a subscription was removed: it could also keep items to itself.
"""

from __future__ import annotations

from collections import Counter

from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import (
    DELIVERED,
    KINDS,
    NEVER,
    NOTIFICATION,
    REVOCATION,
    SUBSCRIPTION,
    VOCABULARY,
    DeliveredBody,
    Item,
    NotificationBody,
    SubscriptionBody,
    VocabularyBody,
    decode_body,
)
from denwatch.node.core.peers.change_log import ChangeLog
from denwatch.node.core.peers.channel import PeerKeys, PeerSettings
from denwatch.node.core.peers.send_queue import ITEM_HEAD, Forwarding
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.trust import Trust
from denwatch.node.replication.clock import Clocks
from denwatch.node.replication.dot_sets import EMPTY, MAX_SPAN, Run, Spans
from denwatch.node.replication.strategies import Copy
from denwatch.node.replication.wire import ItemBatch, SentItem
from denwatch.protocol.errors import ProtocolError

NEW, KNOWN, OVER, REFUSED = "new", "known", "over", "refused"


class ItemValidator:
    """Decides what to do with an item that another node made; also operators' items go here."""

    def __init__(
        self, item_store: ItemStore, clocks: Clocks, keys: PeerKeys, settings: PeerSettings
    ) -> None:
        self._item_store = item_store
        self._clocks = clocks
        self._keys = keys
        self._settings = settings

    def judge(self, transaction: Transaction, item: Item) -> tuple[str, str]:
        """Return NEW, KNOWN, OVER (expired already) or REFUSED, and for a refusal the reason."""
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

    def is_real(self, run: Run) -> bool:
        """Return whether a run is one of a known node, and not a name that a peer made up."""
        return run in self._item_store.context.runs or self.knows_origin(run)

    def knows_origin(self, run: Run) -> bool:
        """Return whether there is a key of a run's node: it may still come."""
        return self._keys.knows_node(run[0])

    def _judge_content(self, transaction: Transaction, item: Item) -> tuple[str, str]:
        try:
            read = _read_body(item)
        except ProtocolError as error:
            return REFUSED, str(error)
        # `localise` is late rather than early by at most twice the doubt: what is ahead of a limit
        # without it is surely ahead.
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


class ItemReceiver:
    """Stores what peers send: items that are valid, news of dead dots, and what clocks show.

    `trust` applies a revocation as soon as it is stored.
    """

    def __init__(
        self,
        item_store: ItemStore,
        validator: ItemValidator,
        change_log: ChangeLog,
        forwarding: Forwarding,
        clocks: Clocks,
        trust: Trust | None,
    ) -> None:
        self._item_store = item_store
        self._validator = validator
        self.change_log = change_log
        self._forwarding = forwarding
        self._clocks = clocks
        self._trust = trust

    def receive(self, transaction: Transaction, batch: ItemBatch, peer: str) -> Counter[int]:
        """Store a frame of items, whose sets were checked; return how many were new, by kind."""
        runs = {(sent.item.dot.origin, sent.item.dot.epoch) for sent in batch.items}
        clocks = [
            told for told in batch.clocks if told[0] in runs and self._validator.is_real(told[0])
        ]
        self._clocks.witness(transaction.write, peer, clocks, transaction.now)
        for run, dead in batch.dead:
            self.accept_dead(transaction, run, dead, peer)
        stored: Counter[int] = Counter()
        for sent in batch.items:
            if self._receive_item(transaction, sent, peer):
                stored[sent.item.kind] += 1
        return stored

    def accept_dead(self, transaction: Transaction, run: Run, dead: Spans, peer: str) -> None:
        """Believe a peer that dots are dead, if they are of a node that exists."""
        if not self._validator.is_real(run):
            return
        removed = self.change_log.accept_dead(transaction, run, dead, peer)
        if removed:
            transaction.count("peer_items_removed", removed)

    def _receive_item(self, transaction: Transaction, sent: SentItem, peer: str) -> bool:
        item = sent.item
        verdict, reason = self._validator.judge(transaction, item)
        if verdict == KNOWN:
            transaction.count("peer_items_known", label=KINDS[item.kind])
        elif verdict == OVER:
            self._item_store.note_seen(transaction, item.dot)
            self.change_log.spare(transaction, item.dot, transaction.now)
            transaction.count("peer_items_over", label=KINDS[item.kind])
        elif verdict == NEW:
            if item.kind == NOTIFICATION:
                copy = Copy(sent.copies, sent.hops, 0)
                self._forwarding.keep_copy(transaction, item.dot, copy)
            self._item_store.accept(transaction, item, peer)
            if item.kind == REVOCATION and self._trust is not None:
                self._trust.apply_notice(transaction, item)
            size = len(item.body) + len(item.signature) + ITEM_HEAD
            transaction.count("peer_items_taken", label=KINDS[item.kind])
            log_transfer(transaction, item, peer, size, is_out=False, copies=sent.copies)
            return True
        else:
            transaction.count("peer_items_refused", label=reason)
            transaction.log("refuse", what="item", why=reason, who=peer, bytes=len(item.body))
            run = (item.dot.origin, item.dot.epoch)
            if not self._validator.knows_origin(run):  # its key may still come
                self.change_log.retry(transaction, run)
        return False


def log_transfer(
    transaction: Transaction, item: Item, peer: str, size: int, *, is_out: bool, copies: int
) -> None:
    """Log that an item went from one node to another."""
    transaction.log(
        "transfer",
        item=item.id,
        what=KINDS[item.kind],
        peer=peer,
        is_out=is_out,
        bytes=size,
        copies=copies,
    )
