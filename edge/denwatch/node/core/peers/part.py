"""DENS to DENS: the part of a node that meets other nodes.

Every subscription goes to every node, whole: any node may be the one where its owner turns up, and
delivery, ranking and roles are decided there. What subsumption saves is what is *installed*: a
subscription's vector goes on to a node's watchdogs only while it adds something to the others that
are active there, which the devices' part decides with the same covering at every node. Keeping a
covered subscription from a peer would save 150 bytes once, and cost its owner every notification
while the covering one is removed and the link is down.

Only this part touches topics below `dens/1/peer/`.
"""

from __future__ import annotations

from collections.abc import Iterable

from denwatch.node.core.interface import PEERS, Message, Reader
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import DELIVERED, KINDS, NOTIFICATION, SUBSCRIPTION, Item
from denwatch.node.core.peers.acceptance import Gate
from denwatch.node.core.peers.contact import Contact
from denwatch.node.core.peers.kit import Copies, Kit
from denwatch.node.core.peers.ledger import Ledger
from denwatch.node.core.peers.settings import Keys, PeerSettings, Wanting
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.trust import Trust
from denwatch.node.replication.clock import Clocks
from denwatch.node.replication.strategies import build_strategy
from denwatch.node.replication.wire import hint_at
from denwatch.protocol.errors import ProtocolError

_DIGESTS = ("digest", "equal")
_SHARED = (SUBSCRIPTION, NOTIFICATION, DELIVERED)


class PeerPart:
    """All links of a node to others."""

    def __init__(
        self,
        item_store: ItemStore,
        keys: Keys,
        wanting: Wanting,
        clocks: Clocks,
        settings: PeerSettings | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`trust` hears of notices as soon as they are stored."""
        settings = settings or PeerSettings()
        strategy = build_strategy(settings.strategy)
        self.kit = Kit(
            item_store,
            keys,
            wanting,
            clocks,
            settings,
            strategy,
            Ledger(item_store, settings.grace),
            Gate(item_store, clocks, keys, settings),
            Copies(item_store.name, strategy),
            trust,
        )
        self.contacts: dict[str, Contact] = {}

    def restore(self, reader: Reader) -> None:
        """Take up the state that an earlier run left; the clocks are restored before all parts."""
        self.kit.ledger.restore(reader)
        self.kit.copies.restore(reader)
        self.kit.encounters.restore(reader)
        self.kit.places.restore(self.kit.item_store, reader)

    # Links ----------------------------------------------------------------------------------

    def meet(self, transaction: Transaction, peer: str, is_up: bool) -> None:
        """Begin a contact, or end it."""
        if not is_up:
            self._leave(transaction, peer, "gone")
            return
        if peer == self.kit.item_store.name or self.kit.keys.peer_secret(peer) is None:
            self._refuse(transaction, peer, "a link to a node without a key", 0)
            return
        self._leave(transaction, peer, "again")
        contact = self._greet(transaction, peer)
        if self.kit.item_store.name < peer:
            contact.begin(transaction)

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Take a frame."""
        if message.topic != PEERS + self.kit.item_store.name:
            self._refuse(
                transaction, message.sender, "a frame for another node", len(message.payload)
            )
            return
        reason = "a frame of nobody we know"
        for peer in self._list_senders(message):
            contact = self.contacts.get(peer) or self._greet_unasked(transaction, peer)
            try:
                contact.receive(transaction, message.payload)
            except ProtocolError as error:
                reason = str(error)
                if contact.is_unproven:
                    del self.contacts[peer]
            else:
                return
        self._refuse(transaction, message.sender, reason, len(message.payload))

    def _list_senders(self, message: Message) -> Iterable[str]:
        """Return who may have sent a frame: behind a broker, all that its hint allows."""
        if message.sender:
            known = self.kit.keys.peer_secret(message.sender) is not None
            return [message.sender] if known else []
        hint = message.payload[1:3]
        return [peer for peer in sorted(self.contacts) if hint_at(peer) == hint]

    def _greet(self, transaction: Transaction, peer: str) -> Contact:
        contact = self.contacts[peer] = Contact(self.kit, peer, transaction)
        contact.is_unproven = False
        self.kit.encounters.meet(transaction.write, peer, transaction.now, True)
        is_first = self.kit.item_store.name < peer
        transaction.log("contact", peer=peer, contact=transaction.now, is_initiator=is_first)
        return contact

    def _greet_unasked(self, transaction: Transaction, peer: str) -> Contact:
        """A frame came before the news of its link: it counts once its tag is right."""
        contact = self.contacts[peer] = Contact(self.kit, peer, transaction)
        return contact

    def _leave(self, transaction: Transaction, peer: str, outcome: str) -> None:
        contact = self.contacts.pop(peer, None)
        if contact is None:
            return
        self.kit.encounters.meet(transaction.write, peer, transaction.now, False)
        self.kit.clocks.part(peer)
        settled = "settled" if contact.is_settled else contact.phase
        fields = _sum_bytes(contact)
        transaction.log(
            "contact_end",
            peer=peer,
            contact=contact.began,
            began=contact.began,
            outcome=settled if outcome == "gone" else outcome,
            **fields,
        )

    # The node's life ------------------------------------------------------------------------

    def add_items(self, transaction: Transaction, items: Iterable[Item], source: str) -> None:
        """Note new items, which go to all that are linked and did not send them."""
        for item in items:
            self._add_item(transaction, item, source)

    def _add_item(self, transaction: Transaction, item: Item, source: str) -> None:
        has_moved = self.kit.learn(transaction, item)
        for peer, contact in self.contacts.items():
            if peer != source:
                contact.cargo.learn(item)
            # What was kept back may now be for the peer: more is wanted, or somebody is there.
            contact.is_restless |= has_moved or item.kind == SUBSCRIPTION

    def remove_item(self, transaction: Transaction, item: Item, reason: str, source: str) -> None:
        """Note that an item is gone, and tell it to all that are linked if it is for good.

        What a peer said is dead (`source`), the ledger knows already, and that peer too."""
        if source or self.kit.forget(transaction, item, reason):
            for peer, contact in self.contacts.items():
                if peer != source:
                    contact.cargo.bury(item.dot)

    def correct_clock(self, transaction: Transaction, offset: int) -> None:
        """Show times to people by the corrected clock; analysis learns of it from the log."""
        self.kit.clocks.correct(transaction.write, offset, transaction.now)
        transaction.log("clock", offset=offset, source="machine")

    def use_strategy(self, text: str) -> None:
        """Decide by another strategy from now on; what was kept back is looked at again."""
        self.kit.follow(build_strategy(text))
        for contact in self.contacts.values():
            contact.is_restless = True

    def find_lag(self, now: int) -> int | None:
        """Return for how long something waits to be exchanged with a peer that is here.

        The longest, in ms; 0 if all have what they are to have, None if nobody is here.
        """
        return max((contact.find_lag(now) for contact in self.contacts.values()), default=None)

    def tick(self, transaction: Transaction) -> None:
        """Do what is due."""
        self.kit.ledger.tick(transaction)
        for contact in self.contacts.values():
            contact.tick(transaction)

    def finish(self, transaction: Transaction) -> None:
        """Send what was learnt in this transaction, and note how late it is."""
        self.kit.clocks.save(transaction.write, transaction.now)
        for contact in self.contacts.values():
            contact.pump(transaction)

    def _refuse(self, transaction: Transaction, who: str, why: str, size: int) -> None:
        transaction.count("peer_frames_refused", label=why)
        transaction.log("refuse", what="frame", why=why, who=who, bytes=size)


def _sum_bytes(contact: Contact) -> dict[str, int]:
    """Return the bytes of a contact by kind of message and the items by kind, both ways."""
    fields: dict[str, int] = {}
    for is_out, way in ((True, "out"), (False, "in")):
        sums = {"digest": 0, "known": 0, "items": 0}
        for (name, went), size in contact.line.bytes.items():
            if went == is_out:
                group = "digest" if name in _DIGESTS else name if name == "items" else "known"
                sums[group] += size
        fields |= {f"{group}_{way}": size for group, size in sums.items()}
        names = {SUBSCRIPTION: "subscriptions", NOTIFICATION: "notes", DELIVERED: "delivered"}
        items = contact.intake.items
        fields |= {f"{names[kind]}_{way}": items[kind, is_out] for kind in _SHARED}
        fields[f"others_{way}"] = sum(items[kind, is_out] for kind in KINDS if kind not in _SHARED)
    return fields
