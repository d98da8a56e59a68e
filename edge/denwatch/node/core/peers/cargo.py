"""What goes to one peer, in which order, packed into frames. Decides nothing about the link.

Marks first, because they free room on both sides; then revocations, vocabularies and subscriptions,
which decide what notifications are worth; then notifications, as the strategy orders them.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from denwatch.node.core.items import (
    DELIVERED,
    NOTIFICATION,
    REVOCATION,
    SUBSCRIPTION,
    VOCABULARY,
    Dot,
    Item,
)
from denwatch.node.core.peers.kit import Kit
from denwatch.node.core.peers.records import PeerRecord
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.dot_sets import Run, Spans, intersect, unite
from denwatch.node.replication.strategies import Candidate, CopyChoice, MetPeer
from denwatch.node.replication.wire import ItemBatch, SentItem

_ORDER = (DELIVERED, REVOCATION, VOCABULARY, SUBSCRIPTION)
_HEAD = 48  # bytes of an item beside body and signature, at most


class Packed(NamedTuple):
    """One item in a frame that is under way."""

    item: Item
    size: int
    choice: CopyChoice | None


class Cargo:
    """What one peer is still to get."""

    def __init__(self, kit: Kit, peer: str) -> None:
        self._kit = kit
        self._peer = peer
        self.clear()

    def clear(self) -> None:
        """Forget everything: the next exchange finds out anew."""
        self._queues: dict[int, dict[Dot, None]] = {kind: {} for kind in _ORDER}
        self._notes: dict[Dot, None] = {}  # not decided yet
        self._chosen: deque[CopyChoice] = deque()
        self._deaths: dict[Run, Spans] = {}
        self._theirs: dict[Run, Spans] = {}
        self._loaded: set[Run] = set()

    @property
    def is_ready(self) -> bool:
        """Whether there is something to pack."""
        return bool(self._deaths or self._chosen or any(self._queues.values()))

    @property
    def is_undecided(self) -> bool:
        """Whether the strategy is to be asked."""
        return bool(self._notes)

    # Filling --------------------------------------------------------------------------------

    def load(self, run: Run, theirs: Spans) -> None:
        """Take what a peer that has seen `theirs` of a run lacks."""
        self._theirs[run] = theirs
        self._loaded.add(run)
        live = self._kit.item_store.live
        here = [(kind, live[kind][run]) for kind in (*_ORDER, NOTIFICATION) if run in live[kind]]
        if not here:
            return
        for sequence in self._kit.ledger.list_missing(run, theirs):
            for kind, held in here:
                if sequence in held:
                    self._add(kind, Dot(*run, sequence))

    def learn(self, item: Item) -> None:
        """Take an item that is new here."""
        self._add(item.kind, item.dot)

    def bury(self, dot: Dot) -> None:
        """Take the news of a removal."""
        run = (dot.origin, dot.epoch)
        one = ((dot.sequence, dot.sequence),)
        self._deaths[run] = unite(self._deaths.get(run, ()), one)

    def _add(self, kind: int, dot: Dot) -> None:
        (self._notes if kind == NOTIFICATION else self._queues[kind])[dot] = None

    # Deciding -------------------------------------------------------------------------------

    def list_destinations(self, transaction: Transaction) -> list[str]:
        """Return the nodes about which the strategy wants to know, in order."""
        wanted = self._kit.wanting.wanted
        found = {
            node for dot in self._notes for node in self._kit.places.find(wanted(transaction, dot))
        }
        return sorted(found - {self._peer, self._kit.item_store.name})

    def decide(self, transaction: Transaction, record: PeerRecord, peer: MetPeer) -> None:
        """Let the strategy choose among the notifications, and remember what it kept back."""
        candidates = []
        for dot in self._notes:
            if not self._is_lacking(dot) or not self._kit.item_store.holds(NOTIFICATION, dot):
                continue
            expires = self._kit.item_store.live[NOTIFICATION][dot.origin, dot.epoch][dot.sequence]
            wanted = self._kit.wanting.wanted(transaction, dot)
            candidates.append(
                Candidate(
                    dot,
                    self._kit.copies.get(dot),
                    expires and self._kit.clocks.localise(dot, expires),
                    wanted,
                    self._kit.places.find(wanted),
                )
            )
        chosen = self._kit.strategy.choose(candidates, peer, self._kit.encounters, transaction.now)
        self._chosen.extend(chosen)
        self._notes = {}
        going = {choice.dot for choice in chosen}
        left = {run: seen for run, seen in record.withheld.items() if run not in self._loaded}
        kept = {(each.dot.origin, each.dot.epoch) for each in candidates if each.dot not in going}
        record.withhold(transaction, left | {run: self._theirs.get(run) for run in kept})
        self._loaded = set()

    def _is_lacking(self, dot: Dot) -> bool:
        one = ((dot.sequence, dot.sequence),)
        return not intersect(one, self._theirs.get((dot.origin, dot.epoch), ()))

    # Packing --------------------------------------------------------------------------------

    def pack(self, transaction: Transaction) -> tuple[ItemBatch, list[Packed]]:
        """Take the next things out, as many as fit a frame."""
        packed: list[Packed] = []
        size = 0
        while size < self._kit.settings.chunk:
            found = self._take(transaction)
            if found is None:
                break
            size += found.size
            packed.append(found)
        runs = dict.fromkeys((each.item.dot.origin, each.item.dot.epoch) for each in packed)
        batch = ItemBatch(
            tuple(self._deaths.items()),
            tuple(self._kit.clocks.tell(runs, transaction.now)),
            tuple(self._wrap(each) for each in packed),
        )
        self._deaths = {}
        return batch, packed

    def _take(self, transaction: Transaction) -> Packed | None:
        """Return the next item that is still held and still lacking."""
        item_store = self._kit.item_store
        for kind in _ORDER:
            queue = self._queues[kind]
            while queue:
                dot = next(iter(queue))
                del queue[dot]
                packed = self._fetch(transaction, kind, dot, None)
                if packed is not None:
                    return packed
        while self._chosen:
            choice = self._chosen.popleft()
            if item_store.holds(NOTIFICATION, choice.dot):
                packed = self._fetch(transaction, NOTIFICATION, choice.dot, choice)
                if packed is not None:
                    return packed
        return None

    def _fetch(
        self, transaction: Transaction, kind: int, dot: Dot, choice: CopyChoice | None
    ) -> Packed | None:
        if not self._is_lacking(dot) or not self._kit.item_store.holds(kind, dot):
            return None
        item = self._kit.item_store.get(transaction, kind, dot)
        assert item is not None, "held in memory, not on the disk"
        if dot.origin == self._kit.item_store.name:
            item = self._kit.item_store.sign(item)
        return Packed(item, len(item.body) + len(item.signature) + _HEAD, choice)

    def _wrap(self, packed: Packed) -> SentItem:
        if packed.choice is None:
            return SentItem(packed.item, 0, 0)
        return SentItem(packed.item, packed.choice.given, packed.choice.kept.hops + 1)
