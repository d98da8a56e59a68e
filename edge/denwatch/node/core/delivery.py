"""Delivery: what waits for a subscriber goes out in the order of rank, and other nodes hear of it.

Only this file publishes notifications and makes receipts. A subscriber who is served (it listens,
and is not muted) has a *queue* of what waits, best first, and at most a *window* of notifications
in flight. An acknowledgement settles one and sends the next.

INVARIANT  what was decided stays decided: the row says to whom a notification was offered, so after
           a lost link or a restart the same ones go out again without a second decision.
RECEIPTS   a delivery is on the disk together with its receipt (`sub.mark`); many receipts become
           one item, now and then, or when a node is met, so that others do not deliver it again.
           A receipt of nothing reports that a subscriber came here: nodes that have few copies to
           give keep them for where a subscriber is.
EXAMPLE    window 2, a, b, c wait: a and b are sent; "b arrived" settles b, sends c, keeps a receipt
           (ada, b). The link breaks: nothing is in flight; when ada is back, a and c go out again.
"""

from __future__ import annotations

import heapq
from array import array

import msgspec
from denwatch.node.core.delivery_policy import DeliveryPolicy, FoundMatch, rank_matches
from denwatch.node.core.events import NOTES, Reader
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import (
    DELIVERED,
    NEVER,
    NOTIFICATION,
    DeliveredBody,
    Dot,
    encode_body,
    read_dot,
)
from denwatch.node.core.notifications import Notification, render_notification
from denwatch.node.core.pending import Matched, Pending, PendingRow
from denwatch.node.core.subscriptions import (
    SubscriberSettings,
    SubscriberState,
    Subscriptions,
    encode_row,
    join_name,
    split_name,
)
from denwatch.node.core.transaction import Transaction

RECEIPTS = "sub.mark"  # subscriber, dot: has it, which other nodes do not know yet
_WORTH_CLEANING = 1_024


class ReceiptRow(msgspec.Struct, array_like=True):
    """Somebody has a notification that expires then, in our timeline."""

    expires: int


_receipt_decoder = msgspec.msgpack.Decoder(ReceiptRow)


class Receipts:
    """Deliveries that other nodes do not know of yet."""

    def __init__(
        self, item_store: ItemStore, subscriptions: Subscriptions, settings: SubscriberSettings
    ) -> None:
        self._item_store = item_store
        self._subscriptions = subscriptions
        self._settings = settings
        self._waiting: dict[str, dict[Dot, int]] = {}  # subscriber: notification: its expiry
        self._reported = 0  # when all were reported last

    def restore(self, reader: Reader) -> None:
        """Load the receipts that were not reported."""
        for key, row in reader.scan(RECEIPTS):
            name, rest = split_name(key)
            expires = _receipt_decoder.decode(row).expires
            self._waiting.setdefault(name, {})[read_dot(rest)] = expires

    def keep(self, transaction: Transaction, name: str, dot: Dot, expires: int) -> None:
        """Note that a subscriber has a notification that expires then, in our timeline."""
        transaction.write(RECEIPTS, join_name(name, dot.key), encode_row(ReceiptRow(expires)))
        dots = self._waiting.setdefault(name, {})
        dots[dot] = expires
        if len(dots) >= self._settings.receipt_batch:
            self._report_subscriber(transaction, name)

    def note_place(self, transaction: Transaction, subscriber: SubscriberState, node: str) -> None:
        """Note where an item was made for a subscriber; who listens here is here."""
        if not (subscriber.is_listening and subscriber.place == self._item_store.name):
            self._subscriptions.set_place(transaction, subscriber, node)

    def report_place(self, transaction: Transaction, subscriber: SubscriberState) -> None:
        """Report that a subscriber came here: by a receipt, be it one of nothing."""
        here = self._item_store.name
        is_here = subscriber.is_listening and subscriber.subscriptions
        if not is_here or subscriber.place == here:
            return
        self._subscriptions.set_place(transaction, subscriber, here)
        if subscriber.name in self._waiting:
            self._report_subscriber(transaction, subscriber.name)
            return
        body = encode_body(DeliveredBody(subscriber.name, []))
        expires = transaction.now + self._settings.place_life
        self._item_store.originate(transaction, DELIVERED, expires, body, is_signed=False)
        transaction.count("places")

    def report_due(self, transaction: Transaction) -> None:
        """Report everything, if that was not done for a while."""
        if transaction.now - self._reported >= self._settings.receipt_interval:
            self._reported = transaction.now
            self.report(transaction)

    def report(self, transaction: Transaction) -> None:
        """Make items of all receipts, one for each subscriber."""
        for name in list(self._waiting):
            self._report_subscriber(transaction, name)

    def _report_subscriber(self, transaction: Transaction, name: str) -> None:
        dots = self._waiting.pop(name)
        ends = dots.values()
        expires = NEVER if NEVER in ends else max(ends)
        body = DeliveredBody(name, [list(dot) for dot in dots])
        # Signed when it first leaves, like notifications: there may be one for each subscriber.
        self._item_store.originate(
            transaction, DELIVERED, expires, encode_body(body), is_signed=False
        )
        for dot in dots:
            transaction.write(RECEIPTS, join_name(name, dot.key), None)
        transaction.count("marks", len(dots))


class Delivery:
    """Notifications on their way to subscribers."""

    def __init__(
        self,
        item_store: ItemStore,
        subscriptions: Subscriptions,
        pending: Pending,
        policy: DeliveryPolicy,
        receipts: Receipts,
        settings: SubscriberSettings,
    ) -> None:
        self._item_store = item_store
        self._subscriptions = subscriptions
        self._pending = pending
        self._policy = policy
        self._receipts = receipts
        self._settings = settings
        self._token = 0
        self._delivered: list[tuple[int, int]] = []  # (time, code) of what all have: a heap

    # Subscribers ----------------------------------------------------------------------------

    def begin_service(self, transaction: Transaction, subscriber: SubscriberState) -> None:
        """Offer everything that waits, best first."""
        waiting = array("Q")
        seen: set[int] = set()
        subscriber.queue = []
        subscriber.queued = set()
        subscriber.in_flight = {}
        for code in subscriber.codes:
            if code in seen:
                continue
            seen.add(code)
            entry = self._pending.peek(transaction, code)
            if entry is not None and self._push(subscriber, code, entry):
                waiting.append(code)
        subscriber.codes = waiting
        subscriber.stale = 0
        self.serve(transaction, subscriber)

    def end_service(self, subscriber: SubscriberState) -> None:
        """Stop: what is on its way goes out again when the subscriber is back."""
        subscriber.queue = []
        subscriber.queued = set()
        subscriber.in_flight = {}

    def reorder(self, transaction: Transaction, subscriber: SubscriberState) -> None:
        """Rank what waits anew: the subscriptions or their priorities have changed."""
        codes = [entry[-1] for entry in subscriber.queue]
        subscriber.queue = []
        for code in codes:
            subscriber.queued.discard(code)
            entry = self._pending.peek(transaction, code)
            if entry is not None:
                self._push(subscriber, code, entry)

    def note_gone(self, transaction: Transaction, subscriber: SubscriberState) -> None:
        """Note that one of a subscriber's codes is gone; clean the list when it is worth it."""
        subscriber.stale += 1
        if subscriber.stale > _WORTH_CLEANING and 2 * subscriber.stale > len(subscriber.codes):
            subscriber.codes = array(
                "Q",
                (c for c in set(subscriber.codes) if self._is_waiting(transaction, subscriber, c)),
            )
            subscriber.stale = 0

    def _is_waiting(self, transaction: Transaction, subscriber: SubscriberState, code: int) -> bool:
        if subscriber.is_served:
            return code in subscriber.queued
        entry = self._pending.peek(transaction, code)
        return entry is not None and subscriber.name in self._pending.list_degrees(entry)

    def hand_out(self, transaction: Transaction, found: Matched) -> None:
        """Send a notification to those whose subscriptions it was found to match, or queue it."""
        by_id = self._subscriptions.by_id
        subscribers: dict[str, SubscriberState] = {}
        for match in found.matches:
            subscriber = by_id[match[0]].subscriber
            subscribers[subscriber.name] = subscriber
        for subscriber in subscribers.values():
            self._hand(transaction, subscriber, found.code, found.entry)

    def _hand(
        self, transaction: Transaction, subscriber: SubscriberState, code: int, entry: PendingRow
    ) -> None:
        """Send a notification to a subscriber whose window has room, else queue it."""
        subscriber.codes.append(code)
        if not subscriber.is_served or code in subscriber.queued:
            return
        if subscriber.queue or len(subscriber.in_flight) >= self._settings.window:
            self._push(subscriber, code, entry)
        elif self._send(transaction, subscriber, code):
            subscriber.queued.add(code)

    def _push(self, subscriber: SubscriberState, code: int, entry: PendingRow) -> bool:
        matches = self._subscriptions.list_matches(subscriber, entry.matches)
        if not matches or subscriber.name in entry.settled:
            return False
        dot = self._pending.decode(code)
        decided = entry.offered.get(subscriber.name)
        rank, best = rank_matches(subscriber, matches)
        priority, value = rank if decided is None else decided[:2]
        read = entry.latest - entry.doubt
        heapq.heappush(subscriber.queue, (-priority, -value, -best[1], -read, dot.id, code))
        subscriber.queued.add(code)
        return True

    def serve(self, transaction: Transaction, subscriber: SubscriberState) -> None:
        """Send while the window has room."""
        if not subscriber.is_served:
            return
        while subscriber.queue and len(subscriber.in_flight) < self._settings.window:
            code = heapq.heappop(subscriber.queue)[-1]
            if not self._send(transaction, subscriber, code):
                subscriber.queued.discard(code)

    def _send(self, transaction: Transaction, subscriber: SubscriberState, code: int) -> bool:
        """Send one notification, if the policy lets it pass."""
        entry = self._pending.find(transaction, code)
        notification = self._pending.find_notification(transaction, code)
        if entry is None or notification is None or subscriber.name in entry.settled:
            return False
        matches = self._subscriptions.list_matches(subscriber, entry.matches)
        if not matches:
            return False
        decided = entry.offered.get(subscriber.name)
        if decided is None:
            matches, until = self._decide(transaction, subscriber, notification, entry, matches)
            if not matches:
                return False
            attempt = 1
        else:
            matches = [match for match in matches if self._policy.may_see(match[0], notification)]
            if not matches:
                return False
            until, attempt = decided[2], decided[3] + 1
        rank, best = rank_matches(subscriber, matches)
        entry.offered[subscriber.name] = (rank.priority, rank.value, until, attempt)
        self._pending.change(code, entry)
        self._token += 1
        subscriber.in_flight[self._token] = code
        self._publish(transaction, subscriber, notification, matches, best, rank.value, until)
        transaction.log(
            "send",
            note=notification.id,
            owner=subscriber.name,
            subscriptions=[match[0].id for match in matches],
            attempt=attempt,
            degree=best[1],
            score=rank.value,
        )
        transaction.count("notes_sent")
        return True

    def _decide(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        notification: Notification,
        entry: PendingRow,
        matches: list[FoundMatch],
    ) -> tuple[list[FoundMatch], int]:
        """Decide once; what fails is taken out of the row, so that it is not decided again."""
        kept, until, refused = self._policy.decide(transaction, subscriber, notification, matches)
        for reason, ids in refused.items():
            transaction.log(
                "suppress",
                note=notification.id,
                owner=subscriber.name,
                reason=reason,
                subscriptions=ids,
            )
            transaction.count("notes_suppressed", len(ids), reason)
        if not kept:
            self._pending.refuse(
                notification.code, entry, subscriber, (match[0].id for match in matches)
            )
            self.note_gone(transaction, subscriber)
            self._check_all_have(transaction, notification.code, entry)
            return [], 0
        mine = {match[0].id for match in matches}
        rated = [(match[0].id, *match[1:]) for match in kept]
        entry.matches = sorted([match for match in entry.matches if match[0] not in mine] + rated)
        return kept, until

    def _publish(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        notification: Notification,
        matches: list[FoundMatch],
        best: FoundMatch,
        score: float,
        until: int,
    ) -> None:
        subscription, possible, certain, attribute = best
        _, visible = self._policy.find_shown(subscription, notification)
        message = render_notification(
            notification,
            visible,
            subscription,
            (possible, certain, attribute),
            [match[0].label for match in matches],
            score,
            self._subscriptions.clock.show(notification.dot, notification.at),
            self._subscriptions.clock.date(until) if until else None,
            self._item_store.name,
        )
        transaction.publish(NOTES + subscriber.name, message, token=self._token)

    # Acknowledgements -----------------------------------------------------------------------

    def acknowledge(
        self, transaction: Transaction, subscriber: SubscriberState, token: int
    ) -> None:
        """Note that the subscriber has what was sent with this token."""
        code = subscriber.in_flight.pop(token, None)
        if code is None:
            transaction.log("duplicate", what="acknowledgement", source=subscriber.name)
            return
        self._settle(transaction, subscriber, code)
        self.serve(transaction, subscriber)

    def confirm(self, transaction: Transaction, subscriber: SubscriberState, ids: set[int]) -> int:
        """Note that the subscriber has these, as its library reports; return how many were new."""
        tokens = {
            self._pending.decode(code).id: token for token, code in subscriber.in_flight.items()
        }
        count = 0
        for id in sorted(ids):
            token = tokens.get(id)
            if token is not None:
                self._settle(transaction, subscriber, subscriber.in_flight.pop(token))
                count += 1
        rest = ids - tokens.keys()
        if rest:
            for code in list(subscriber.queued) if subscriber.is_served else list(subscriber.codes):
                if self._pending.decode(code).id in rest and self._settle(
                    transaction, subscriber, code
                ):
                    count += 1
        self.serve(transaction, subscriber)
        return count

    def _settle(self, transaction: Transaction, subscriber: SubscriberState, code: int) -> bool:
        subscriber.queued.discard(code)
        dot = self._pending.decode(code)
        entry = self._pending.find(transaction, code)
        if entry is None:  # gone while it was on its way; nobody else has it either
            transaction.log(
                "deliver", note=dot.id, owner=subscriber.name, subscriptions=[], attempt=1
            )
            transaction.count("notes_delivered")
            return False
        matches = self._subscriptions.list_matches(subscriber, entry.matches)
        sent = entry.offered.get(subscriber.name)
        if not self._pending.settle(code, entry, subscriber):
            # Another node was faster while it was on its way from here.
            transaction.log("duplicate", what="delivery", source=subscriber.name, item=dot.id)
            return False
        self.note_gone(transaction, subscriber)
        transaction.log(
            "deliver",
            note=dot.id,
            owner=subscriber.name,
            subscriptions=[match[0].id for match in matches],
            attempt=sent[3] if sent else 0,
            at=entry.at,
            degree=max((match[1] for match in matches), default=None),
        )
        transaction.count("notes_delivered")
        # A receipt is an item of ours: it lives as long as its notification, in our timeline.
        expires = entry.expires and self._subscriptions.clock.localise(dot, entry.expires)
        self._receipts.keep(transaction, subscriber.name, dot, expires)
        self._check_all_have(transaction, code, entry)
        return True

    def settle_elsewhere(
        self, transaction: Transaction, subscriber: SubscriberState, dot: Dot
    ) -> bool:
        """Note that another node has delivered a notification; return whether it is known here."""
        code = self._pending.encode(dot)
        entry = self._pending.find(transaction, code)
        if entry is None:
            return False
        if self._pending.settle(code, entry, subscriber):
            self.note_gone(transaction, subscriber)
            self._check_all_have(transaction, code, entry)
        return True

    # What all have --------------------------------------------------------------------------

    def _check_all_have(self, transaction: Transaction, code: int, entry: PendingRow) -> None:
        after = self._settings.purge_after
        if after is not None and not self._pending.list_degrees(entry):
            due = max(transaction.now, entry.latest + after)
            heapq.heappush(self._delivered, (due, code))

    def purge_delivered(self, transaction: Transaction) -> None:
        """Remove what all known subscribers have had for long enough."""
        while self._delivered and self._delivered[0][0] <= transaction.now:
            code = heapq.heappop(self._delivered)[1]
            entry = self._pending.find(transaction, code)
            if entry is not None and not self._pending.list_degrees(entry):
                dot = self._pending.decode(code)
                self._item_store.remove(transaction, NOTIFICATION, dot, "delivered")
