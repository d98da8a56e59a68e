"""Taking in what a peer sends: items through the gate, dead dots, clocks; and the log of it."""

from __future__ import annotations

from collections import Counter

from denwatch.node.core.items import KINDS, NOTIFICATION, REVOCATION, Item
from denwatch.node.core.peers.acceptance import KNOWN, NEW, OVER
from denwatch.node.core.peers.kit import Kit
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.dot_sets import Run, Spans
from denwatch.node.replication.strategies import Copy
from denwatch.node.replication.wire import ItemBatch, SentItem

_HEAD = 48  # bytes of an item beside body and signature, as when it is packed


class Intake:
    """What comes from one peer."""

    def __init__(self, kit: Kit, peer: str) -> None:
        self.items: Counter[tuple[int, bool]] = Counter()  # by kind and whether it went out
        self._kit = kit
        self._peer = peer

    def take(self, transaction: Transaction, batch: ItemBatch) -> None:
        """Take a frame of items, whose sets were checked: all in this transaction."""
        runs = {(sent.item.dot.origin, sent.item.dot.epoch) for sent in batch.items}
        clocks = [told for told in batch.clocks if told[0] in runs and self._is_real(told[0])]
        self._kit.clocks.witness(transaction.write, self._peer, clocks, transaction.now)
        for run, dead in batch.dead:
            self.bury(transaction, run, dead)
        for sent in batch.items:
            self._take_sent_item(transaction, sent)

    def bury(self, transaction: Transaction, run: Run, dead: Spans) -> None:
        """Believe that dots are dead, of nodes that exist."""
        if not self._is_real(run):
            return
        removed = self._kit.ledger.bury(transaction, run, dead, self._peer)
        if removed:
            transaction.count("peer_items_removed", removed)

    def _is_real(self, run: Run) -> bool:
        """Return whether a run is one of a node, and not a name that a peer made up."""
        return run in self._kit.item_store.context.runs or self._kit.keys.knows_node(run[0])

    def _take_sent_item(self, transaction: Transaction, sent: SentItem) -> None:
        item = sent.item
        verdict, reason = self._kit.gate.judge(transaction, item)
        if verdict == KNOWN:
            transaction.count("peer_items_known", label=KINDS[item.kind])
        elif verdict == OVER:
            self._kit.item_store.note_seen(transaction, item.dot)
            self._kit.ledger.spare(transaction, item.dot, transaction.now)
            transaction.count("peer_items_over", label=KINDS[item.kind])
        elif verdict == NEW:
            if item.kind == NOTIFICATION:
                copy = Copy(sent.copies, sent.hops, 0)
                self._kit.copies.keep(transaction, item.dot, copy)
            self._kit.item_store.accept(transaction, item, self._peer)
            if item.kind == REVOCATION and self._kit.trust is not None:
                self._kit.trust.apply_notice(transaction, item)
            size = len(item.body) + len(item.signature) + _HEAD
            self.log(transaction, item, size, is_out=False, copies=sent.copies)
        else:
            transaction.count("peer_items_refused", label=reason)
            transaction.log("refuse", what="item", why=reason, who=self._peer, bytes=len(item.body))
            if not self._kit.keys.knows_node(item.dot.origin):  # its key may come yet
                self._kit.ledger.retry(transaction, (item.dot.origin, item.dot.epoch))

    def log(
        self, transaction: Transaction, item: Item, size: int, *, is_out: bool, copies: int
    ) -> None:
        """Note an item that went over for good."""
        self.items[item.kind, is_out] += 1
        transaction.count(
            "peer_items_sent" if is_out else "peer_items_taken", label=KINDS[item.kind]
        )
        transaction.log(
            "transfer",
            item=item.id,
            what=KINDS[item.kind],
            peer=self._peer,
            is_out=is_out,
            bytes=size,
            copies=copies,
        )
