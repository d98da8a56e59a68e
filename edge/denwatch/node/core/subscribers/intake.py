"""Items that come and go: subscriptions into the matchers, notifications to those who want them.

Only this file matches. A subscription that comes late, from another node, is matched with the
notifications that are held and not older than it: a few in each tick, remembered on the disk until
it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from denwatch.node.core.interface import Reader
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    DeliveredBody,
    Dot,
    Item,
    SubscriptionBody,
    decode_body,
    decode_item,
)
from denwatch.node.core.subscribers.delivery import Delivery
from denwatch.node.core.subscribers.judging import Judge
from denwatch.node.core.subscribers.ledger import Ledger
from denwatch.node.core.subscribers.marks import Marks
from denwatch.node.core.subscribers.notes import Note
from denwatch.node.core.subscribers.people import Owner, Sub
from denwatch.node.core.subscribers.registry import Registry
from denwatch.node.core.subscribers.settings import Clock, SubscriberSettings
from denwatch.node.core.subscribers.tables import Ended, Hit, Tables, Want, encode_row
from denwatch.node.core.subscribers.wants import Wants
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.protocol.errors import ProtocolError

_KEPT = ("expired", "replaced")  # what matched before is still delivered
_ended_decoder = msgspec.msgpack.Decoder(Ended)


class Intake:
    """Learns and forgets."""

    def __init__(
        self,
        item_store: ItemStore,
        vocabularies: Vocabularies,
        registry: Registry,
        wants: Wants,
        ledger: Ledger,
        judge: Judge,
        delivery: Delivery,
        marks: Marks,
        clock: Clock,
        tables: Tables,
        settings: SubscriberSettings,
    ) -> None:
        self._item_store = item_store
        self._vocabularies = vocabularies
        self._registry = registry
        self._wants = wants
        self._ledger = ledger
        self._judge = judge
        self._delivery = delivery
        self._marks = marks
        self._clock = clock
        self._tables = tables
        self._settings = settings
        self._late: dict[int, None] = {}  # subscriptions to be matched with what is held
        self._catching: tuple[dict[int, None], Iterator[int]] | None = None
        self._twins: dict[str, None] = {}  # owners with two subscriptions of one name
        self._ended: dict[int, int] = {}  # id: until when it is known

    def restore(self, reader: Reader) -> None:
        """Take up what an earlier run left."""
        for sub in self._registry.add_many(self._item_store.iterate(reader, SUBSCRIPTION)):
            self._judge.restore_gate(reader, sub)
            self._find_twins(sub)
        for _, row in self._tables.ended.scan(reader):
            ended = _ended_decoder.decode(row)
            sub = self._registry.keep_ended(decode_item(ended.key, ended.value))
            self._judge.restore_gate(reader, sub)
            self._ended[sub.id] = ended.at + self._settings.ended_life
        self._late = {int.from_bytes(key, "big"): None for key, _ in self._tables.late.scan(reader)}
        self._wants.restore(reader)

    # Subscriptions --------------------------------------------------------------------------

    def learn_subscription(self, transaction: Transaction, item: Item, source: str) -> None:
        """Put a new subscription in force."""
        try:
            sub = self._registry.add(item)
        except ProtocolError as error:
            transaction.log("refuse", what="subscription", why=str(error), who=item.dot.origin)
            return
        body = decode_body(SubscriptionBody, item.body)
        event = self._vocabularies.find_event(sub.vocabulary, sub.event)
        transaction.log(
            "subscribe",
            item=sub.id,
            origin=sub.dot.origin,
            run=sub.dot.epoch,
            sequence=sub.dot.sequence,
            owner=body.owner,
            role=body.role,
            words=body.words,
            language=body.language,
            vocabulary=body.vocabulary,
            vector=body.vector,
            created=body.created,
            expires=item.expires,
            options=body.options,
            source=source,
            event=event.name if event else None,
            features=sub.features,
            signature=item.signature or None,
        )
        transaction.count("subscriptions_added")
        if self._ledger.has_since(self._find_since(transaction, sub)):
            self._late[sub.id] = None
            self._tables.late.put(transaction, sub.id.to_bytes(8, "big"), b"")
        self._find_twins(sub)
        self._marks.note_place(transaction, sub.owner, sub.dot.origin)
        self._marks.tell_place(transaction, sub.owner)
        if sub.owner.heap:
            self._delivery.reorder(transaction, sub.owner)

    def forget_subscription(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Take a subscription out of force; what it matched stays, if its time was just over."""
        sub = self._registry.by_id.get(item.id)
        if sub is None or not sub.is_live:
            return
        is_kept = reason in _KEPT
        if is_kept and sub.id in self._late:
            self._match_all(transaction, sub)
        self._registry.withdraw(sub, is_kept=is_kept)
        self._close_late(transaction, sub.id)
        if is_kept:
            row = Ended(item.dot.key, item.encode(), transaction.now)
            self._tables.ended.put(transaction, sub.id.to_bytes(8, "big"), encode_row(row))
            self._ended[sub.id] = transaction.now + self._settings.ended_life
        else:
            self._judge.forget(transaction, sub)
        transaction.log("unsubscribe", item=sub.id, owner=sub.owner.name, reason=reason)
        transaction.count("subscriptions_removed")
        if sub.owner.heap:
            self._delivery.reorder(transaction, sub.owner)

    def _find_twins(self, sub: Sub) -> None:
        if sub.name is not None and sub.owner.names[sub.name] > 1:
            self._twins[sub.owner.name] = None

    def join_twins(self, transaction: Transaction) -> None:
        """Of subscriptions of one owner and one name, made at several nodes, keep the newest."""
        twins, self._twins = self._twins, {}
        for name in twins:
            newest: dict[str, Sub] = {}
            # By what the items say, not by this node's clock: all nodes must keep the same one.
            subs = self._registry.find_owner(name).subs.values()
            for sub in sorted(subs, key=lambda sub: (sub.created, sub.id)):
                if sub.name is not None:
                    old = newest.get(sub.name)
                    newest[sub.name] = sub
                    if old is not None:
                        self._item_store.remove(transaction, SUBSCRIPTION, old.dot, "replaced")

    def drop_ended(self, transaction: Transaction) -> None:
        """Forget ended subscriptions whose matches have waited long enough."""
        for id in [id for id, end in self._ended.items() if end <= transaction.now]:
            del self._ended[id]
            self._tables.ended.put(transaction, id.to_bytes(8, "big"), None)
            sub = self._registry.by_id.get(id)
            if sub is not None and not sub.is_live:
                self._registry.withdraw(sub, is_kept=False)
                self._judge.forget(transaction, sub)

    # Notifications --------------------------------------------------------------------------

    def learn_notes(self, transaction: Transaction, items: Sequence[Item], source: str) -> None:
        """Match new notifications, and let them go to those who are there."""
        notes: list[Note] = []
        read: list[Item] = []
        for item in items:
            try:
                note = Note(item, self._ledger.encode(item.dot))
            except ProtocolError as error:
                transaction.log("refuse", what="notification", why=str(error), who=item.dot.origin)
                continue
            note.event = self._vocabularies.find_event(note.vocabulary, note.vector.event)
            read.append(item)
            notes.append(note)
        matched = self._registry.match_many(notes, transaction.now)
        for item, note, hits in zip(read, notes, matched, strict=True):
            self._learn_note(transaction, item, note, source, hits)

    def _learn_note(
        self, transaction: Transaction, item: Item, note: Note, source: str, hits: list[Hit]
    ) -> None:
        self._delivery.keep(note)
        settled = self._take_done(transaction, note.dot) if source else []
        by_id = self._registry.by_id
        if settled:
            hits = [hit for hit in hits if by_id[hit[0]].owner.name not in settled]
        latest = self._judge.localise(note)[0] + note.doubt
        want = Want(note.at, note.doubt, note.expires, latest, hits, settled)
        self._wants.change(note.code, want)
        self._ledger.note_time(note.code, latest)
        self._log_note(transaction, item, note, source, hits)
        self._hand_out(transaction, note.code, want, hits)

    def _hand_out(self, transaction: Transaction, code: int, want: Want, hits: list[Hit]) -> None:
        by_id = self._registry.by_id
        owners: dict[str, Owner] = {}
        for hit in hits:
            owner = by_id[hit[0]].owner
            owners[owner.name] = owner
        for owner in owners.values():
            self._delivery.hand(transaction, owner, code, want)

    def _take_done(self, transaction: Transaction, dot: Dot) -> list[str]:
        """Return who had this before it came here."""
        names = []
        for key, _ in list(self._tables.done.scan(transaction, dot.key)):
            names.append(key[len(dot.key) :].decode())
            self._tables.done.put(transaction, key, None)
        return names

    def _log_note(
        self, transaction: Transaction, item: Item, note: Note, source: str, hits: list[Hit]
    ) -> None:
        transaction.log(
            "note",
            item=note.id,
            origin=note.dot.origin,
            run=note.dot.epoch,
            sequence=note.dot.sequence,
            device=note.device,
            device_epoch=note.device_epoch,
            device_sequence=note.device_sequence,
            at=note.at,
            doubt=note.doubt,
            expires=note.expires,
            vocabulary=note.vocabulary,
            vector=note.frame,
            source=source,
            degree=max((hit[1] for hit in hits), default=0),
            event=note.event.name if note.event else None,
            features=note.vector.features,
            signature=self._find_signature(item, hits),
        )
        self._log_hits(transaction, note.id, hits)

    def _find_signature(self, item: Item, hits: list[Hit]) -> bytes | None:
        """Return the signature of a notification for the log, by which operators can hand it on.

        Ours are signed only when they leave. Whoever waits elsewhere makes it leave, so then it
        costs nothing more.
        """
        if item.signature:
            return item.signature
        by_id = self._registry.by_id
        is_awaited = any(not by_id[hit[0]].owner.is_served for hit in hits)
        if not is_awaited and not self._settings.signs_all:
            return None
        return self._item_store.sign(item).signature

    def _log_hits(self, transaction: Transaction, note_id: int, hits: list[Hit]) -> None:
        for id, possible, certain, _ in hits:
            transaction.log(
                "match",
                note=note_id,
                subscription=id,
                owner=self._registry.by_id[id].owner.name,
                possible=possible,
                certain=certain,
            )
        if hits:
            transaction.count("notes_matched", len(hits))

    def forget_note(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Forget who wanted a notification."""
        want = self._wants.drop(transaction, self._ledger.encode(item.dot))
        if want is None:
            return
        self._ledger.forget_time(want.latest)
        for name in self._wants.list_degrees(want):
            self._delivery.note_gone(transaction, self._registry.find_owner(name))
        if reason != "space":
            transaction.log("purge", item=item.id, what="notification", why=reason)

    # Marks ----------------------------------------------------------------------------------

    def learn_marks(self, transaction: Transaction, item: Item, source: str) -> None:
        """Note what others have delivered."""
        if not source:
            return
        try:
            body = decode_body(DeliveredBody, item.body)
        except ProtocolError as error:
            transaction.log("refuse", what="delivered", why=str(error), who=item.dot.origin)
            return
        owner = self._registry.find_owner(body.subscriber)
        self._marks.note_place(transaction, owner, item.dot.origin)
        for dot in body.dots:
            if self._wants.find(transaction, self._ledger.encode(dot)) is not None:
                self._delivery.settle_elsewhere(transaction, owner, dot)
            elif self._item_store.holds(NOTIFICATION, dot) or not self._item_store.context.holds(
                *dot
            ):  # it is reported after this, or comes later
                self._tables.done.put(transaction, dot.key + body.subscriber.encode(), b"")
        notes = [dot.id for dot in body.dots]
        transaction.log("learn_delivered", subscriber=body.subscriber, notes=notes, source=source)

    def forget_marks(self, transaction: Transaction, item: Item) -> None:
        """Forget marks of notifications that never came."""
        try:
            body = decode_body(DeliveredBody, item.body)
        except ProtocolError:
            return
        for dot in body.dots:
            key = dot.key + body.subscriber.encode()
            if self._tables.done.get(transaction, key) is not None:
                self._tables.done.put(transaction, key, None)

    # Late subscriptions ---------------------------------------------------------------------

    def _find_since(self, transaction: Transaction, sub: Sub) -> int:
        """Return since when held notifications may match, in our timeline."""
        latest = self._clock.localise(sub.dot, sub.created)
        return latest - 2 * self._clock.doubt(*sub.run, transaction.now)

    def catch_up(self, transaction: Transaction) -> None:
        """Match some held notifications with late subscriptions."""
        if self._catching is None:
            if not self._late:
                return
            chosen = dict(self._late)
            subs = [self._registry.by_id[id] for id in chosen if id in self._registry.by_id]
            since = min(
                (self._find_since(transaction, sub) for sub in subs), default=transaction.now
            )
            self._catching = chosen, iter(list(self._ledger.iterate_since(since)))
        chosen, codes = self._catching
        for _ in range(self._settings.catch_up):
            code = next(codes, None)
            if code is None:
                self._catching = None
                for id in chosen:
                    self._close_late(transaction, id)
                return
            self._match_late(transaction, code, chosen)

    def _match_all(self, transaction: Transaction, sub: Sub) -> None:
        """Match a late subscription that ends with all that is held, while it is in force."""
        chosen: dict[int, None] = {sub.id: None}
        for code in list(self._ledger.iterate_since(self._find_since(transaction, sub))):
            self._match_late(transaction, code, chosen)

    def _match_late(self, transaction: Transaction, code: int, chosen: dict[int, None]) -> None:
        want = self._wants.find(transaction, code)
        note = self._delivery.find_note(transaction, code) if want is not None else None
        if want is None or note is None:
            return
        known = {hit[0] for hit in want.hits}
        by_id = self._registry.by_id
        fresh = [
            hit
            for hit in self._registry.match(note, transaction.now)
            if hit[0] in chosen
            and hit[0] not in known
            and hit[0] not in want.refused
            and by_id[hit[0]].owner.name not in want.settled
        ]
        if fresh:
            want.hits = sorted(want.hits + fresh)
            self._wants.change(code, want)
            self._log_hits(transaction, note.id, fresh)
            self._hand_out(transaction, code, want, fresh)

    def _close_late(self, transaction: Transaction, id: int) -> None:
        if id in self._late:
            del self._late[id]
            self._tables.late.put(transaction, id.to_bytes(8, "big"), None)
