"""Taking in what a peer sends: items through the gate, dead dots, clocks; and the log of it."""

from __future__ import annotations

from collections import Counter

from denwatch.node.core.items import KINDS, NOTIFICATION, Item
from denwatch.node.core.peers.acceptance import KNOWN, NEW, OVER
from denwatch.node.core.peers.kit import Kit
from denwatch.node.core.turn import Turn
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

    def take(self, turn: Turn, shipment: Shipment) -> None:
        """Take a frame of items, whose sets were checked: all in this turn's transaction."""
        runs = {(parcel.item.dot.origin, parcel.item.dot.epoch) for parcel in shipment.parcels}
        clocks = [told for told in shipment.clocks if told[0] in runs and self._is_real(told[0])]
        self._kit.clocks.witness(turn.write, self._peer, clocks, turn.now)
        for run, dead in shipment.dead:
            self.bury(turn, run, dead)
        for parcel in shipment.parcels:
            self._take_parcel(turn, parcel)

    def bury(self, turn: Turn, run: Run, dead: Spans) -> None:
        """Believe that dots are dead, of nodes that exist."""
        if not self._is_real(run):
            return
        self.is_taking = True
        removed = self._kit.ledger.bury(turn, run, dead)
        self.is_taking = False
        if removed:
            turn.count("peer_items_removed", removed)

    def _is_real(self, run: Run) -> bool:
        """Return whether a run is one of a node, and not a name that a peer made up."""
        return run in self._kit.holdings.context.runs or self._kit.keys.knows_node(run[0])

    def _take_parcel(self, turn: Turn, parcel: Parcel) -> None:
        item = parcel.item
        verdict, reason = self._kit.gate.judge(turn, item)
        if verdict == KNOWN:
            turn.count("peer_items_known", label=KINDS[item.kind])
        elif verdict == OVER:
            self._kit.holdings.note_seen(turn, item.dot)
            self._kit.ledger.spare(turn, item.dot, turn.now)
            turn.count("peer_items_over", label=KINDS[item.kind])
        elif verdict == NEW:
            if item.kind == NOTIFICATION:
                copy = Copy(parcel.copies, parcel.hops, 0)
                self._kit.copies.keep(turn, item.dot, copy)
            self._kit.holdings.accept(turn, item, self._peer)
            size = len(item.body) + len(item.signature) + _HEAD
            self.log(turn, item, size, is_out=False, copies=parcel.copies)
        else:
            turn.count("peer_items_refused", label=reason)
            turn.log("refuse", what="item", why=reason, who=self._peer, bytes=len(item.body))
            if not self._kit.keys.knows_node(item.dot.origin):  # its key may come yet
                self._kit.ledger.retry(turn, (item.dot.origin, item.dot.epoch))

    def log(self, turn: Turn, item: Item, size: int, *, is_out: bool, copies: int) -> None:
        """Note an item that went over for good."""
        self.items[item.kind, is_out] += 1
        turn.count("peer_items_sent" if is_out else "peer_items_taken", label=KINDS[item.kind])
        turn.log(
            "transfer",
            item=item.id,
            what=KINDS[item.kind],
            peer=self._peer,
            is_out=is_out,
            bytes=size,
            copies=copies,
        )
