"""Delivery: in which order matches go out to a subscriber, and what becomes of them.

Only this file publishes notifications. A subscriber who is served (it listens, and is not muted)
has a *queue* of what waits, best first, and at most a *window* of notifications in flight. An
acknowledgement settles one, keeps a receipt (`receipts.py`) and sends the next. Which matches go
out at all is decided by `delivery_policy.py`.

INVARIANT  what was decided stays decided: the row says to whom a notification was offered, so after
           a lost link or a restart the same ones go out again without a second decision.
EXAMPLE    window 2, a, b, c wait: a and b are sent; "b arrived" settles b, sends c, keeps a receipt
           (ada, b). The link breaks: nothing is in flight; when ada is back, a and c go out again.
"""

from __future__ import annotations

import heapq
from array import array

from denwatch.node.core.delivery_policy import DeliveryPolicy
from denwatch.node.core.events import NOTES
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import NOTIFICATION, Dot, Item
from denwatch.node.core.notifications import Notification, render_notification
from denwatch.node.core.pending import Matched, Pending, PendingRow
from denwatch.node.core.preferences import FoundMatch, rank_matches
from denwatch.node.core.receipts import ReceiptRow, Receipts
from denwatch.node.core.subscriptions import SubscriberSettings, SubscriberState, Subscriptions

_WORTH_CLEANING = 1_024


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
        self._tokens = item_store.numbers.tokens
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
        for name in dict.fromkeys(by_id[match[0]].subscriber.name for match in found.had):
            subscriber = self._subscriptions.find_subscriber(name)
            if self._pending.decode(found.code) not in self._receipts.find_counted(name):
                matches = self._subscriptions.list_matches(subscriber, found.had)
                self._count(transaction, subscriber, found.code, matches)
        for match in found.matches:
            subscriber = by_id[match[0]].subscriber
            subscribers[subscriber.name] = subscriber
        for subscriber in subscribers.values():
            self._hand(transaction, subscriber, found.code, found.entry)

    def _count(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        code: int,
        matches: list[FoundMatch],
    ) -> None:
        """Let what another node delivered, and what is here, count against every top-k."""
        notification = self._pending.find_notification(transaction, code)
        if notification is not None:
            self._policy.count_delivered(
                transaction, subscriber, notification, matches, transaction.now
            )

    def _count_elsewhere(self, transaction: Transaction, subscriber: SubscriberState) -> None:
        """Let count what receipts brought along, now that a decision depends on it."""
        subscriber.is_counted = True
        for dot, row in self._receipts.find_counted(subscriber.name).items():
            item = Item(dot, NOTIFICATION, row.expires, row.body, row.signature)
            for notification, found in self._pending.match_item(item, transaction.now):
                matches = self._subscriptions.list_matches(subscriber, found)
                matches = [match for match in matches if match[0].id in row.ids]
                self._policy.count_delivered(
                    transaction, subscriber, notification, matches, row.decided, row.turn
                )

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
        token = next(self._tokens)
        subscriber.in_flight[token] = code
        message = self._render(notification, matches, best, rank.value, until)
        transaction.publish(NOTES + subscriber.name, message, token=token)
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
        if not subscriber.is_counted:
            self._count_elsewhere(transaction, subscriber)
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

    def _render(
        self,
        notification: Notification,
        matches: list[FoundMatch],
        best: FoundMatch,
        score: float,
        until: int,
    ) -> bytes:
        subscription, possible, certain, attribute = best
        _, visible = self._policy.find_shown(subscription, notification)
        return render_notification(
            notification,
            visible,
            subscription,
            (possible, certain, attribute),
            [(match[0].label, match[1]) for match in matches],
            score,
            self._subscriptions.clock.show(notification.dot, notification.at),
            self._subscriptions.clock.date(until) if until else None,
            self._item_store.name,
        )

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
        is_own = dot.origin == self._item_store.name
        proof = b"" if is_own else self._pending.find_proof(transaction, dot, entry)
        counted = self._policy.find_counted(subscriber, dot.id, matches)
        ids = [match[0].id for match in matches]
        receipt = ReceiptRow(expires, proof, counted and (*counted, ids))
        self._receipts.keep(transaction, subscriber.name, dot, receipt)
        self._check_all_have(transaction, code, entry)
        return True

    def settle_elsewhere(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        dot: Dot,
        word: tuple[str, bytes],
        *,
        is_brought: bool = False,
    ) -> bool | None:
        """Note that another node has delivered a notification; None if it is not known here.

        `word` is that node and its proof; return whether it is believed. What the receipt brings
        along is counted later, and by the time of the decision (`_count_elsewhere`).
        """
        code = self._pending.encode(dot)
        entry = self._pending.find(transaction, code)
        if entry is None:
            return None
        origin, proof = word
        if origin != dot.origin and proof != self._pending.find_proof(transaction, dot, entry):
            return False
        matches = self._subscriptions.list_matches(subscriber, entry.matches)
        if self._pending.settle(code, entry, subscriber):
            if not is_brought:
                self._count(transaction, subscriber, code, matches)
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
