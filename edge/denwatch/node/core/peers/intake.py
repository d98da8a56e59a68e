"""Taking in what a peer sends: items through the gate, dead dots, clocks; and the log of it."""

from __future__ import annotations

from collections import Counter

from denwatch.node.core.items import KINDS, NOTIFICATION, Item
from denwatch.node.core.peers.acceptance import KNOWN, NEW, OVER
from denwatch.node.core.peers.kit import Kit
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.context import Run
from denwatch.node.replication.sets import Spans
from denwatch.node.replication.shipments import Parcel, Shipment
from denwatch.node.replication.strategies import Copy

_HEAD = 48  # bytes of an item beside body and signature, as when it is packed


class Intake:
    """What comes from one peer."""

    def __init__(self, kit: Kit, peer: str) -> None:
        self.items: Counter[tuple[int, bool]] = Counter()  # by kind and whether it went out
        self.is_taking = False  # what is learnt meanwhile came from this peer
        self._kit = kit
        self._peer = peer

    def take(self, transaction: Transaction, shipment: Shipment) -> None:
        """Take a frame of items, whose sets were checked: all in this transaction."""
        runs = {(parcel.item.dot.origin, parcel.item.dot.epoch) for parcel in shipment.parcels}
        clocks = [told for told in shipment.clocks if told[0] in runs and self._is_real(told[0])]
        self._kit.clocks.witness(transaction.write, self._peer, clocks, transaction.now)
        for run, dead in shipment.dead:
            self.bury(transaction, run, dead)
        for parcel in shipment.parcels:
            self._take_parcel(transaction, parcel)

    def bury(self, transaction: Transaction, run: Run, dead: Spans) -> None:
        """Believe that dots are dead, of nodes that exist."""
        if not self._is_real(run):
            return
        self.is_taking = True
        removed = self._kit.ledger.bury(transaction, run, dead)
        self.is_taking = False
        if removed:
            transaction.count("peer_items_removed", removed)

    def _is_real(self, run: Run) -> bool:
        """Return whether a run is one of a node, and not a name that a peer made up."""
        return run in self._kit.item_store.context.runs or self._kit.keys.knows_node(run[0])

    def _take_parcel(self, transaction: Transaction, parcel: Parcel) -> None:
        item = parcel.item
        verdict, reason = self._kit.gate.judge(transaction, item)
        if verdict == KNOWN:
            transaction.count("peer_items_known", label=KINDS[item.kind])
        elif verdict == OVER:
            self._kit.item_store.note_seen(transaction, item.dot)
            self._kit.ledger.spare(transaction, item.dot, transaction.now)
            transaction.count("peer_items_over", label=KINDS[item.kind])
        elif verdict == NEW:
            if item.kind == NOTIFICATION:
                copy = Copy(parcel.copies, parcel.hops, 0)
                self._kit.copies.keep(transaction, item.dot, copy)
            self._kit.item_store.accept(transaction, item, self._peer)
            size = len(item.body) + len(item.signature) + _HEAD
            self.log(transaction, item, size, is_out=False, copies=parcel.copies)
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
