"""The protocol between nodes: opens a session for each link, and feeds it with frames and changes.

Every subscription goes to every node, whole: any node may be the one where its subscriber turns up,
and delivery, ranking and roles are decided there. What subsumption saves is what is *installed*: a
subscription's vector goes to a node's watchdogs only while it adds something to the others that are
active there, which the device protocol decides with the same covering at every node. Keeping a
covered subscription from a peer would save 150 bytes once, and cost its subscriber every
notification while the covering one is removed and the link is down.

Only `core/peers` uses topics below `dens/1/peer/`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from denwatch.node.core.events import PEERS, Message, Reader
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import DELIVERED, KINDS, NOTIFICATION, SUBSCRIPTION, Item
from denwatch.node.core.peers.change_log import ChangeLog
from denwatch.node.core.peers.channel import PeerChannel, PeerKeys, PeerSettings
from denwatch.node.core.peers.item_validation import ItemReceiver, ItemValidator
from denwatch.node.core.peers.send_queue import Forwarding, PendingDeliveries, SendQueue
from denwatch.node.core.peers.session import PeerSession
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.trust import Trust
from denwatch.node.replication.clock import Clocks
from denwatch.node.replication.strategies import build_strategy
from denwatch.node.replication.wire import hint_at
from denwatch.protocol.errors import ProtocolError

_DIGESTS = ("digest", "equal")
_SHARED = (SUBSCRIPTION, NOTIFICATION, DELIVERED)


class PeerProtocol:
    """All links of a node to others."""

    def __init__(
        self,
        item_store: ItemStore,
        keys: PeerKeys,
        pending: PendingDeliveries,
        clocks: Clocks,
        settings: PeerSettings | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`trust` applies a revocation as soon as it is stored."""
        self.settings = settings or PeerSettings()
        self.validator = ItemValidator(item_store, clocks, keys, self.settings)
        self.sessions: dict[str, PeerSession] = {}  # by peer
        self._item_store = item_store
        self._keys = keys
        self._clocks = clocks
        self._rounds = itertools.count(1)
        self._change_log = ChangeLog(item_store, self.settings.grace)
        strategy = build_strategy(self.settings.strategy)
        self.forwarding = Forwarding(item_store, clocks, pending, strategy)
        self._receiver = ItemReceiver(
            item_store, self.validator, self._change_log, self.forwarding, clocks, trust
        )

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run saved; the clocks are restored before all protocols."""
        self._change_log.restore(reader)
        self.forwarding.restore(reader)

    # Links ----------------------------------------------------------------------------------

    def meet(self, transaction: Transaction, peer: str, is_up: bool) -> None:
        """Begin a contact, or end it."""
        if not is_up:
            self._end_contact(transaction, peer, "gone")
            return
        if peer == self._item_store.name or self._keys.peer_secret(peer) is None:
            self._refuse(transaction, peer, "a link to a node without a key", 0)
            return
        self._end_contact(transaction, peer, "again")
        session = self._begin_contact(transaction, peer)
        if self._item_store.name < peer:
            session.begin(transaction)

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Handle a frame from a peer."""
        if message.topic != PEERS + self._item_store.name:
            self._refuse(
                transaction, message.sender, "a frame for another node", len(message.payload)
            )
            return
        reason = "a frame of nobody we know"
        for peer in self._list_senders(message):
            # A frame may come before the news of its link: it counts once its tag is right.
            session = self.sessions.get(peer) or self._open_session(transaction, peer)
            try:
                session.receive(transaction, message.payload)
            except ProtocolError as error:
                reason = str(error)
                if session.is_unproven:
                    del self.sessions[peer]
            else:
                return
        self._refuse(transaction, message.sender, reason, len(message.payload))

    def _list_senders(self, message: Message) -> Iterable[str]:
        """Return who may have sent a frame: behind a broker, all that its hint allows."""
        if message.sender:
            known = self._keys.peer_secret(message.sender) is not None
            return [message.sender] if known else []
        hint = message.payload[1:3]
        return [peer for peer in sorted(self.sessions) if hint_at(peer) == hint]

    def _open_session(self, transaction: Transaction, peer: str) -> PeerSession:
        item_store, settings = self._item_store, self.settings
        session = self.sessions[peer] = PeerSession(
            transaction,
            PeerChannel(item_store, self._keys, self._rounds, peer, settings.max_frame),
            SendQueue(
                item_store,
                self._change_log,
                self.forwarding,
                self._clocks,
                peer,
                settings.chunk,
            ),
            self._receiver,
            self._clocks,
            settings,
        )
        return session

    def _begin_contact(self, transaction: Transaction, peer: str) -> PeerSession:
        session = self._open_session(transaction, peer)
        session.is_unproven = False
        self.forwarding.encounters.meet(transaction.write, peer, transaction.now, True)
        is_first = self._item_store.name < peer
        transaction.log("contact", peer=peer, contact=transaction.now, is_initiator=is_first)
        return session

    def _end_contact(self, transaction: Transaction, peer: str, outcome: str) -> None:
        session = self.sessions.pop(peer, None)
        if session is None:
            return
        self.forwarding.encounters.meet(transaction.write, peer, transaction.now, False)
        self._clocks.forget_peer(peer)
        settled = "settled" if session.is_settled else session.phase
        fields = _sum_bytes(session)
        transaction.log(
            "contact_end",
            peer=peer,
            contact=session.began,
            began=session.began,
            outcome=settled if outcome == "gone" else outcome,
            **fields,
        )

    # Changes at this node -------------------------------------------------------------------

    def add_items(self, transaction: Transaction, items: Iterable[Item], source: str) -> None:
        """Record new items, and queue them for all linked peers but the one that sent them."""
        for item in items:
            self._add_item(transaction, item, source)

    def _add_item(self, transaction: Transaction, item: Item, source: str) -> None:
        self._change_log.add_item(transaction, item)
        has_moved = self.forwarding.add_item(item)
        for peer, session in self.sessions.items():
            if peer != source:
                session.queue.add_item(item)
            # What was kept back may now be for the peer: more is wanted, or somebody is there.
            session.may_offer_more |= has_moved or item.kind == SUBSCRIPTION

    def remove_item(self, transaction: Transaction, item: Item, reason: str, source: str) -> None:
        """Record that an item is gone, and tell all linked peers if it is gone for good.

        If a peer said that it is dead (`source`), the change log knows already, and that peer too.
        """
        if source or self._record_removal(transaction, item, reason):
            for peer, session in self.sessions.items():
                if peer != source:
                    session.queue.add_dead(item.dot)

    def _record_removal(self, transaction: Transaction, item: Item, reason: str) -> bool:
        expires = item.expires and self._clocks.localise(item.dot, item.expires)
        if item.kind == NOTIFICATION:
            self.forwarding.drop_copy(transaction, item.dot)
        return self._change_log.remove_item(transaction, item, reason, expires)

    def correct_clock(self, transaction: Transaction, offset: int) -> None:
        """Show times to people by the corrected clock; analysis learns of it from the log."""
        self._clocks.correct(transaction.write, offset, transaction.now)
        transaction.log("clock", offset=offset, source="machine")

    def use_strategy(self, text: str) -> None:
        """Use another strategy from now on, also for what was kept back until now."""
        self.forwarding.strategy = build_strategy(text)
        for session in self.sessions.values():
            session.may_offer_more = True

    def find_lag(self, now: int) -> int | None:
        """Return for how long something waits to be exchanged with a peer that is here.

        The longest, in ms; 0 if all have what they are to have, None if nobody is here.
        """
        return max((session.find_lag(now) for session in self.sessions.values()), default=None)

    def tick(self, transaction: Transaction) -> None:
        """Do what is due."""
        self._change_log.tick(transaction)
        for session in self.sessions.values():
            session.tick(transaction)

    def finish(self, transaction: Transaction) -> None:
        """Send what this transaction brought, and save the time."""
        self._clocks.save(transaction.write, transaction.now)
        for session in self.sessions.values():
            session.send_queued(transaction)

    def _refuse(self, transaction: Transaction, who: str, why: str, size: int) -> None:
        transaction.count("peer_frames_refused", label=why)
        transaction.log("refuse", what="frame", why=why, who=who, bytes=size)


def _sum_bytes(session: PeerSession) -> dict[str, int]:
    """Return the bytes of a session by kind of message and the items by kind, both ways."""
    fields: dict[str, int] = {}
    for is_out, way in ((True, "out"), (False, "in")):
        sums = {"digest": 0, "known": 0, "items": 0}
        for (name, went), size in session.channel.bytes.items():
            if went == is_out:
                group = "digest" if name in _DIGESTS else name if name == "items" else "known"
                sums[group] += size
        fields |= {f"{group}_{way}": size for group, size in sums.items()}
        names = {SUBSCRIPTION: "subscriptions", NOTIFICATION: "notes", DELIVERED: "delivered"}
        items = session.items
        fields |= {f"{names[kind]}_{way}": items[kind, is_out] for kind in _SHARED}
        fields[f"others_{way}"] = sum(items[kind, is_out] for kind in KINDS if kind not in _SHARED)
    return fields
