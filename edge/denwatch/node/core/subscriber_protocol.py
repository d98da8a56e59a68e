"""SUB/DENS, between subscribers and a node: requests in, replies and notifications out.

    dens/1/sub/<subscriber>     requests (decoded and compiled by `requests.py`)
    dens/1/report/<subscriber>  what a person reports in words: a notification of theirs
    dens/1/reply/<subscriber>   every request is answered (`request_handler.py`)
    dens/1/note/<subscriber>    notifications (`delivery.py`)

This file is the only one that knows all the others: `Node` tells `SubscriberProtocol` which items
came and went, and it passes that on to `Subscriptions` (what is in force), `Pending` (who waits for
what), `DeliveryPolicy` (whether and in which order) and `Delivery` (sending, receipts). None of
them calls back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from denwatch.node.core.claims import Claims
from denwatch.node.core.delivery import Delivery, DeliveryPolicy
from denwatch.node.core.device_directory import DeviceDirectory
from denwatch.node.core.events import NOTES, REPLIES, Acknowledged, Listening, Message, Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    ANNOUNCEMENT,
    NOTIFICATION,
    VOCABULARY,
    AnnouncementBody,
    CountedNote,
    DeliveredBody,
    Dot,
    Item,
    decode_body,
    prove_item,
)
from denwatch.node.core.languages import load_languages
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.pending import Matched, Pending
from denwatch.node.core.preferences import Preferences
from denwatch.node.core.receipts import Receipts
from denwatch.node.core.request_handler import PlaceOnSensors, RequestHandler
from denwatch.node.core.stories import Stories
from denwatch.node.core.subscriptions import (
    KEPT_REASONS,
    ItemClock,
    OpenRoles,
    Roles,
    SingleClock,
    SubscriberSettings,
    SubscriberState,
    Subscription,
    Subscriptions,
)
from denwatch.node.core.trust import Proofs
from denwatch.protocol.errors import ProtocolError

_TELLINGS = 20_000  # subscribers or subscriptions looked at in one tick, to tell them news
_UNTOLD = 64  # kinds of devices that nobody was told of yet
_EVICTED_SHARE = 100  # a full node makes room for this part of its limit at once


class SubscriberProtocol:
    """Serves the subscribers of a node."""

    def __init__(
        self,
        item_store: ItemStore,
        vocabularies: Vocabularies,
        *,
        roles: Roles | None = None,
        clock: ItemClock | None = None,
        settings: SubscriberSettings | None = None,
        proofs: Proofs,
    ) -> None:
        roles = OpenRoles() if roles is None else roles
        clock = SingleClock() if clock is None else clock
        self._settings = settings = SubscriberSettings() if settings is None else settings
        self._item_store = item_store
        self._vocabularies = vocabularies
        self._subscriptions = subscriptions = Subscriptions(
            item_store, vocabularies, clock, settings, proofs
        )
        self._pending = pending = Pending(item_store, subscriptions, settings)
        self.stories = Stories(item_store, subscriptions, pending, settings)
        self.claims = claims = Claims(item_store, clock, settings)
        self._policy = DeliveryPolicy(roles, clock, settings, claims)
        self._preferences = Preferences(item_store, subscriptions)
        self._receipts = Receipts(item_store, subscriptions, settings)
        self._proofs = proofs
        self._clock = clock
        self.directory = DeviceDirectory(item_store.name, vocabularies.agree)
        self._delivery = delivery = Delivery(
            item_store, subscriptions, pending, self._policy, self._receipts, settings
        )
        self._requests = RequestHandler(
            self._preferences, claims, pending, delivery, roles, self.directory
        )
        self._is_announced = not settings.is_announcing
        self._untold_claims: dict[str, None] = {}  # subjects whose holder changed
        self._untold_kinds: deque[tuple[Item, AnnouncementBody]] = deque(maxlen=_UNTOLD)
        self._tellings = _TELLINGS  # subscribers or subscriptions that may be looked at for them

    def use_placement(self, place: PlaceOnSensors) -> None:
        """Explain by this where a subscription is installed."""
        self._requests.place_on_sensors = place

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run stored."""
        for item in self._item_store.iterate(reader, VOCABULARY):
            self._vocabularies.learn(item)
        for item in self._item_store.iterate(reader, ANNOUNCEMENT):
            with suppress(ProtocolError):  # stored by a version that checked less
                self.directory.add(item)
        self._subscriptions.restore(reader)
        for subscription in self._subscriptions.by_id.values():
            self._policy.restore_top_k(reader, subscription)
        self._preferences.restore(reader)
        self.claims.restore(reader)
        self._pending.restore(reader)
        self.stories.restore(reader)
        self._receipts.restore(reader)
        self._requests.replies.restore(reader)
        self._requests.finder.restore(reader)

    # Events ---------------------------------------------------------------------------------

    def list_in_force(self) -> list[Subscription]:
        """Return the subscriptions in force; at a start, by dot."""
        return [each for each in self._subscriptions.by_id.values() if each.is_live]

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Handle a request or a report."""
        self._requests.replies.asked = message
        try:
            self._requests.handle(transaction, message)
        finally:
            self._requests.replies.asked = None
        self._pending.flush(transaction)

    def listen(self, transaction: Transaction, event: Listening) -> None:
        """Note that a subscriber is there, or gone."""
        if event.topic.startswith(REPLIES):
            name = event.topic[len(REPLIES) :]
            self._requests.replies.listen(transaction, name, event.is_up)
        else:
            self._attach(transaction, event.topic[len(NOTES) :], event.is_up)
        self._pending.flush(transaction)

    def _attach(self, transaction: Transaction, name: str, is_up: bool) -> None:
        subscriber = self._subscriptions.find_subscriber(name)
        if subscriber.is_listening == is_up:
            return
        subscriber.is_listening = is_up
        transaction.log("attach", subscriber=name, is_up=is_up)
        self._receipts.report_place(transaction, subscriber)
        if subscriber.is_served:
            self._delivery.begin_service(transaction, subscriber)
        elif not is_up:
            self._delivery.end_service(subscriber)

    def acknowledge(self, transaction: Transaction, event: Acknowledged) -> None:
        """Note that a notification arrived."""
        subscriber = self._subscriptions.find_subscriber(event.topic[len(NOTES) :])
        self._delivery.acknowledge(transaction, subscriber, (event.token, *event.others))
        self._pending.flush(transaction)

    def report_receipts(self, transaction: Transaction) -> None:
        """Make items of deliveries that other nodes do not know of yet."""
        self._receipts.report(transaction)

    def tick(self, transaction: Transaction) -> None:
        """Do what is due: first what only looks at the items, then what changes them."""
        self._subscriptions.go_on(transaction)
        self._tellings = min(_TELLINGS, self._tellings + _TELLINGS)
        self._tell_people(transaction)
        self._requests.tell_better(transaction, is_moved=True)
        for found in self._pending.catch_up(transaction):
            self._hand_out(transaction, found)
        for told in self.stories.tick(transaction):
            self._delivery.hand_out(transaction, told)
        self._delivery.hand_out_due(transaction)
        for subscription in self._subscriptions.drop_ended(transaction):
            self._policy.forget(transaction, subscription)
        self._subscriptions.join_twins(transaction)
        if not self._is_announced:
            self._is_announced = True
            self._vocabularies.announce(transaction, self._item_store)
            load_languages()  # so that whoever asks first does not wait for it
        self._receipts.report_due(transaction)
        self._pending.flush(transaction)
        excess = self._item_store.count(NOTIFICATION) - self._settings.held_limit
        if excess > 0:
            self.evict(transaction, max(excess, self._settings.held_limit // _EVICTED_SHARE))
        self._delivery.purge_delivered(transaction)

    # Items that came and went ---------------------------------------------------------------

    def add_notifications(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> None:
        """Match new notifications, and send them to those who are there."""
        for found in self._pending.add_notifications(transaction, items, source):
            self._hand_out(transaction, found)
        self._pending.flush(transaction)

    def _hand_out(self, transaction: Transaction, found: Matched) -> None:
        """Hand out a notification, then the stories that it tells."""
        self._delivery.hand_out(transaction, found)
        if found.parts:
            for told in self.stories.add(transaction, found):
                self._delivery.hand_out(transaction, told)

    def add_subscriptions(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> None:
        """Put new subscriptions in force."""
        for item in items:
            subscription = self._subscriptions.add(transaction, item, source)
            if subscription is not None:
                subscriber = subscription.subscriber
                self.stories.add_subscription(subscription)
                self._pending.note_late(transaction, subscription)
                self._receipts.note_place(transaction, subscriber, item.dot.origin)
                self._receipts.report_place(transaction, subscriber)
                self._delivery.reorder(transaction, subscriber)
                subscriber.is_counted = not self._receipts.find_counted(subscriber.name)

    def add_preferences(self, transaction: Transaction, items: Sequence[Item]) -> None:
        """Note what subscribers prefer."""
        for item in items:
            subscriber = self._preferences.add(transaction, item)
            if subscriber is not None:
                self._note_preferred(transaction, subscriber)

    def remove_preference(self, transaction: Transaction, item: Item) -> None:
        """Forget what a subscriber preferred."""
        subscriber = self._preferences.remove(transaction, item)
        if subscriber is not None:
            self._note_preferred(transaction, subscriber)

    def _note_preferred(self, transaction: Transaction, subscriber: SubscriberState) -> None:
        subscriber.is_counted = not self._receipts.find_counted(subscriber.name)
        self._delivery.reorder(transaction, subscriber)

    def add_claims(self, transaction: Transaction, items: Sequence[Item]) -> None:
        """Note who has what, and tell those concerned."""
        for item in items:
            self._tell_claim(transaction, self.claims.add(transaction, item))

    def remove_claim(self, transaction: Transaction, item: Item) -> None:
        """Forget who had something, and tell those concerned."""
        self._tell_claim(transaction, self.claims.remove(item))

    def _tell_claim(self, transaction: Transaction, subject: str | None) -> None:
        if subject is not None:
            self._untold_claims[subject] = None
            self._tell_people(transaction)

    def add_receipts(self, transaction: Transaction, items: Sequence[Item], source: str) -> None:
        """Note what other nodes have delivered."""
        for item in items:
            if source:  # our own say what is known here
                self._add_receipt(transaction, item, source)
        self._pending.flush(transaction)

    def _add_receipt(self, transaction: Transaction, item: Item, source: str) -> None:
        try:
            body = decode_body(DeliveredBody, item.body)
        except ProtocolError as error:
            transaction.log("refuse", what="delivered", why=str(error), who=item.dot.origin)
            return
        subscriber = self._subscriptions.find_subscriber(body.subscriber)
        self._receipts.note_place(transaction, subscriber, item.dot.origin)
        notes = []
        counted = body.counted
        for dot, proof in body.proofs:
            word = item.dot.origin, proof
            note = counted.get(dot)
            if note is not None and not self._proves(dot, word, note):
                note = None
            if not proof and word[0] != dot.origin:
                is_believed: bool | None = False
            else:
                is_believed = self._delivery.settle_elsewhere(
                    transaction, subscriber, dot, word, is_brought=note is not None
                )
            if is_believed is False:
                transaction.count("receipts_refused")
                continue
            if is_believed is None:
                # Not matched here: it comes later, or is reported after this receipt.
                is_held = self._item_store.holds(NOTIFICATION, dot)
                if is_held or not self._item_store.context.holds(*dot):
                    self._pending.note_done(transaction, dot, body.subscriber, word)
            if note is not None:
                decided = min(self._clock.localise(item.dot, note.decided), transaction.now)
                self._receipts.keep_counted(transaction, subscriber, dot, note, decided)
            notes.append(dot.id)
        if len(notes) < len(body.notes):
            why = f"{len(body.notes) - len(notes)} of notifications that it never had"
            transaction.log("refuse", what="delivered", why=why, who=item.dot.origin)
        transaction.log("learn_delivered", subscriber=body.subscriber, notes=notes, source=source)

    def _proves(self, dot: Dot, word: tuple[str, bytes], note: CountedNote) -> bool:
        """Return whether a notification that a receipt brings along is the one it speaks of."""
        origin, proof = word
        is_same = origin == dot.origin or proof == prove_item(note.signature)
        return is_same and self._proofs.is_genuine(note.build_item(dot))

    def add_vocabularies(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> None:
        """Learn vocabularies of other nodes."""
        for item in items:
            body = self._vocabularies.learn(item)
            if body is None:
                who = item.dot.origin
                transaction.log(
                    "refuse", what="vocabulary", why="not a vocabulary of its hash", who=who
                )
                continue
            self._pending.forget_decoded()
            self.directory.forget_names()
            transaction.log("vocabulary", hash=body.hash, document=body.document, source=source)
        self._requests.finder.refresh()

    def add_announcements(self, transaction: Transaction, items: Sequence[Item]) -> None:
        """Note what devices sense; tell those whose subscriptions had nobody to answer them."""
        for item in items:
            try:
                body = self.directory.add(item)
            except ProtocolError as error:
                why = str(error)
                transaction.log("refuse", what="announcement", why=why, who=item.dot.origin)
                continue
            if self.directory.is_new_kind(body):  # nobody waited for one more of the others
                self._untold_kinds.append((item, body))
        self._tell_people(transaction)
        self._requests.finder.refresh()
        self._requests.tell_better(transaction)

    def _tell_people(self, transaction: Transaction) -> None:
        """Tell people who has what, and what can be answered now, as much as one tick permits.

        A frame of a member may bring many of either; the rest waits for the next ticks, and of
        devices that are announced the last ones alone.
        """
        while self._untold_claims and self._tellings > 0:
            subject = next(iter(self._untold_claims))
            del self._untold_claims[subject]
            self._tellings -= len(self._subscriptions.subscribers)
            self._requests.tell_claim(transaction, subject)
        while self._untold_kinds and self._tellings > 0:
            self._tellings -= len(self._subscriptions.by_id)
            self._tell_kind(transaction, *self._untold_kinds.popleft())

    def _tell_kind(self, transaction: Transaction, item: Item, body: AnnouncementBody) -> None:
        for subscription in self._subscriptions.by_id.values():
            need = self._subscriptions.find_need(subscription) if subscription.is_live else None
            if need is None or not self.directory.can_answer(body, need):
                continue
            if self._is_ours(subscription) and not self.directory.has_another(body, need):
                self._requests.tell_answerable(transaction, subscription, body.device, item)

    def _is_ours(self, subscription: Subscription) -> bool:
        """Return whether it is this node that has to tell a subscriber something."""
        place = subscription.subscriber.place or subscription.dot.origin
        return place == self._item_store.name

    def remove_notification(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Forget who waits for a notification that is gone."""
        self.stories.remove_notification(transaction, item)
        for name in self._pending.remove_notification(transaction, item, reason):
            self._delivery.note_gone(transaction, self._subscriptions.find_subscriber(name))

    def remove_subscription(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Take a subscription out of force; what it matched stays, if its time was just over."""
        subscription = self._subscriptions.by_id.get(item.id)
        if subscription is None or not subscription.is_live:
            return
        if reason in KEPT_REASONS:
            for found in self._pending.match_before_end(transaction, subscription):
                self._hand_out(transaction, found)
        self._subscriptions.remove(transaction, item, reason)
        self.stories.remove_subscription(transaction, subscription, reason in KEPT_REASONS)
        self._pending.forget_late(transaction, subscription.id)
        if reason not in KEPT_REASONS:
            self._policy.forget(transaction, subscription)
        self._delivery.reorder(transaction, subscription.subscriber)
        self._pending.flush(transaction)

    def remove_receipts(self, transaction: Transaction, item: Item) -> None:
        """Forget receipts of notifications that never came."""
        try:
            body = decode_body(DeliveredBody, item.body)
        except ProtocolError:
            return
        for dot, proof in body.proofs:
            self._pending.forget_done(transaction, dot, body.subscriber, (item.dot.origin, proof))
            self._receipts.forget_counted(transaction, body.subscriber, dot)

    # For the rest of the node ---------------------------------------------------------------

    def wanted(self, reader: Reader, dot: Dot) -> dict[str, int]:
        """Return who still waits for a notification that is held, with the degrees (0..255)."""
        entry = self._pending.peek(reader, self._pending.encode(dot))
        return {} if entry is None else self._pending.list_wanted(entry)

    def find_time(self, reader: Reader, dot: Dot) -> int:
        """Return when a notification that is held was made, by the clock here; 0 if unknown."""
        entry = self._pending.peek(reader, self._pending.encode(dot))
        return 0 if entry is None else entry.latest

    def evict(self, transaction: Transaction, count: int) -> int:
        """Give up so many notifications that are worth least; return how many there were."""
        victims = self._pending.choose_least_worth(transaction, count)
        for dot, degree in victims:
            transaction.log("drop", what="notification", why="space", item=dot.id, degree=degree)
            self._item_store.remove(transaction, NOTIFICATION, dot, "space")
        transaction.count("notes_dropped", len(victims))
        return len(victims)

    def forget_roles(self) -> None:
        """Ask again who may see what, after the rules were changed."""
        self._policy.forget_roles()

    @property
    def is_full(self) -> bool:
        """Whether the node holds as many notifications as it may."""
        return self._item_store.count(NOTIFICATION) >= self._settings.held_limit

    def list_subscribers(self) -> list[str]:
        """Return who has subscriptions."""
        states = self._subscriptions.subscribers.values()
        return sorted(state.name for state in states if state.subscriptions)

    def count_subscriptions(self) -> int:
        """Return how many subscriptions are in force."""
        return self._subscriptions.count

    def count_attached(self) -> int:
        """Return how many subscribers are served now."""
        return sum(state.is_served for state in self._subscriptions.subscribers.values())

    def count_waiting(self) -> int:
        """Return about how many deliveries wait: those of subscribers who are not here, too."""
        states = self._subscriptions.subscribers.values()
        return sum(len(state.codes) - state.stale for state in states)
