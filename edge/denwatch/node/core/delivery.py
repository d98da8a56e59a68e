"""Delivery: which matches a subscriber gets, in which order, and what becomes of them.

Only this file publishes notifications. A subscriber who is served (it listens, and is not muted)
has a *queue* of what waits, best first, and at most a *window* of notifications in flight. An
acknowledgement settles one, keeps a receipt (`receipts.py`) and sends the next.

INVARIANT  what was decided stays decided: the row says to whom a notification was offered, so after
           a lost link or a restart the same ones go out again without a second decision.
EXAMPLE    window 2, a, b, c wait: a and b are sent; "b arrived" settles b, sends c, keeps a receipt
           (ada, b). The link breaks: nothing is in flight; when ada is back, a and c go out again.

POLICY. For each match, in this order, the first reason that applies refuses it: the role may not
see it ("role"), the subscription is muted ("muted"), somebody has what it would escalate ("had"),
its time is over or it is no longer recent ("expired"), nothing significant has changed ("quiet"),
the subscription's `top k` has k better ones ("top-k"). What is left is refused
as a whole if the subscriber wants `my top k` and has k better ones of all subscriptions ("top-k").

RANKING is that of `node.ranking` (PrefSIENA): value = score * degree, priorities first, the maximum
over the matching subscriptions of the best level, or what the subscriber prefers instead
(`preferences.py`). A `top k` belongs to the subscription that says it, and ranks by that one alone:
others of the same subscriber are neither held back by it nor do they lift anything over it. `my top
k` belongs to the subscriber, and ranks by all matches that pass.

AN ESCALATION is a subscription of somebody else that waits: what matches it is looked at when its
time has come, counted from the reading, and then decided like anything else. What waits so is in
`_later`, in memory: whoever comes back is offered all that waits anew.

How long a delivered notification counts (`expires after`, a window of time, fading) begins with the
decision to deliver it. What another node delivered counts here from then on: its receipt brings the
notification along, as it was signed, and this node ranks it for itself; nobody's rank is believed.

On the disk: `sub.gate`, id of a subscription: the state of its top-k; `sub.last`, id of a
subscription and device: what was sent last.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from denwatch.node.core.claims import Claims
from denwatch.node.core.events import NOTES, Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import NOTIFICATION, Dot, Item
from denwatch.node.core.languages import load_languages
from denwatch.node.core.notifications import (
    Notification,
    name_attribute,
    name_event,
    render_notification,
)
from denwatch.node.core.pending import Matched, Pending, PendingRow
from denwatch.node.core.preferences import FoundMatch, list_most_specific, save_person
from denwatch.node.core.receipts import ReceiptRow, Receipts
from denwatch.node.core.significance import LastSent, is_significant, remember
from denwatch.node.core.subscriptions import (
    ItemClock,
    Roles,
    SubscriberSettings,
    SubscriberState,
    Subscription,
    Subscriptions,
    TopState,
    encode_row,
    load_top_k,
    make_id_key,
    save_top_k,
)
from denwatch.node.core.told_stories import describe_story
from denwatch.node.ranking.rank import SUM, Rank, combine_values
from denwatch.node.ranking.topk import Verdict
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.matching import rate_age

# Policy and rank -------------------------------------------------------------------------------

TOP_K = "sub.gate"
LAST_SENT = "sub.last"


_last_decoder = msgspec.msgpack.Decoder(LastSent)
_top_decoder = msgspec.msgpack.Decoder(TopState)


def rank_matches(
    subscriber: SubscriberState, matches: Sequence[FoundMatch]
) -> tuple[Rank, FoundMatch]:
    """Return the rank of a notification for a subscriber, and the match that decides it."""
    levels = subscriber.levels
    best_level = min(levels.get(match[0].id, 1) for match in matches) if levels else 1
    if levels:
        matches = [match for match in matches if levels.get(match[0].id, 1) == best_level]
    preference = subscriber.preference
    if preference is not None and preference.is_specific and len(matches) > 1:
        matches = list_most_specific(matches)
    best: FoundMatch | None = None
    value = -1.0
    for match in matches:  # by rising id: of equals the first stays
        worth = match[0].score * match[1] / 255
        if best is None or worth > value or (worth == value and match[1] > best[1]):
            best, value = match, worth
    assert best is not None, "a notification that matches nothing has no rank"
    if preference is not None and (len(matches) > 1 or preference.combination == SUM):
        weights = [preference.weights.get(match[0].name or "", 1.0) for match in matches]
        values = [match[0].score * match[1] / 255 for match in matches]
        value = combine_values(values, preference.combination, weights)
    return Rank(-best_level, value), best


@lru_cache(maxsize=1024)
def _list_names(language: int, data: bytes) -> tuple[str, ...]:
    """Return the attributes that a subscription in another language than the fuzzy one names."""
    return load_languages().find(language).list_attributes(data)


class DeliveryPolicy:
    """Decides for one subscriber after the other; what it remembers is on the disk."""

    def __init__(
        self,
        roles: Roles,
        clock: ItemClock,
        settings: SubscriberSettings,
        claims: Claims | None = None,
    ) -> None:
        """`claims`: who has what; None where decisions are made again, for analysis."""
        self.claims = claims
        self._roles = roles
        self._clock = clock
        self._settings = settings
        self._visible: dict[tuple[str, bytes, int, int], tuple[str | None, int]] = {}

    def localise(self, notification: Notification) -> tuple[int, int]:
        """Return when a notification was read and when it expires (0: never), in our timeline."""
        if notification.story is not None:  # it was told here
            return notification.at, notification.expires
        localise = self._clock.localise
        return localise(notification.dot, notification.at), notification.expires and localise(
            notification.dot, notification.expires
        )

    def find_visible(self, role: str, notification: Notification) -> tuple[str | None, int]:
        """Return why a role may not see a notification at all, or the attributes it may see."""
        mask = notification.vector.features | notification.vector.faults
        key = role, notification.vocabulary, notification.vector.event, mask
        known = self._visible.get(key)
        if known is None:
            event = name_event(notification)
            reason = self._roles.check(role, event, ())
            visible = 0
            for bit in range(16):
                if mask >> bit & 1:
                    name = name_attribute(notification.event, bit)
                    if self._roles.check(role, event, (name,)) is None:
                        visible |= 1 << bit
            known = (None if reason is None else str(reason)), visible
            if notification.event is not None:  # else it may get its names later
                self._visible[key] = known
        return known

    def forget_roles(self) -> None:
        """Ask again who may see what: the rules have changed."""
        self._visible.clear()

    def decide(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        notification: Notification,
        matches: Sequence[FoundMatch],
    ) -> tuple[list[FoundMatch], int, dict[str, list[int]]]:
        """Return the matches that pass, until when they count, and why the others fail."""
        at, expires = self.localise(notification)
        refused: dict[str, list[int]] = {}
        passing: list[tuple[FoundMatch, float]] = []
        for match in matches:
            reason, rated, until = self._judge_match(transaction, notification, match, at, expires)
            if reason:
                refused.setdefault(reason, []).append(match[0].id)
            else:
                passing.append((rated, until))
        if not passing:
            return [], 0, refused
        now = transaction.now
        kept: list[tuple[FoundMatch, float]] = []
        for match, until in passing:
            top_k = match[0].top_k
            if top_k is not None:
                rank, _ = rank_matches(subscriber, (match,))
                if top_k.judge(rank, now, until) is not Verdict.DELIVERED:
                    refused.setdefault("top-k", []).append(match[0].id)
                    self._save_top_k(transaction, match[0])
                    continue
            kept.append((match, until))
        if kept and not self._passes_person(transaction, subscriber, notification, kept):
            refused.setdefault("top-k", []).extend(match[0].id for match, _ in kept)
            kept = []
        for match, until in kept:
            if match[0].top_k is not None:
                rank, _ = rank_matches(subscriber, (match,))
                match[0].top_k.admit(notification.id, rank, now, until)
                self._save_top_k(transaction, match[0])
            if match[0].significance is not None:
                self._remember(transaction, match[0], notification, at)
        longest = max((until for _, until in kept), default=0)
        return [match for match, _ in kept], 0 if longest == math.inf else int(longest), refused

    def _passes_person(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        notification: Notification,
        kept: list[tuple[FoundMatch, float]],
    ) -> bool:
        """Return whether a notification is among the k best of all; if so, it counts as one."""
        top_k = subscriber.top_k
        if top_k is None:
            return True
        rank, _ = rank_matches(subscriber, [match for match, _ in kept])
        until = self._limit(subscriber, max(until for _, until in kept), transaction.now)
        is_delivered = top_k.judge(rank, transaction.now, until) is Verdict.DELIVERED
        if is_delivered:
            top_k.admit(notification.id, rank, transaction.now, until)
        save_person(transaction, subscriber)
        return is_delivered

    @staticmethod
    def _limit(subscriber: SubscriberState, until: float, decided: int) -> float:
        """Return until when a notification counts against a subscriber's top-k."""
        preference = subscriber.preference
        within = 0 if preference is None else preference.within
        return min(until, decided + within) if within else until

    def _judge_match(
        self,
        transaction: Transaction,
        notification: Notification,
        match: FoundMatch,
        at: int,
        expires: int,
    ) -> tuple[str, FoundMatch, float]:
        """Return why a match does not count ("" if it does), the match as rated now, its end."""
        subscription = match[0]
        if not self.may_see(subscription, notification):
            return "role", match, 0
        if subscription.is_muted:
            return "muted", match, 0
        if subscription.delay and self.find_claim(notification) is not None:
            return "had", match, 0
        match, until = _rate_match(notification, match, at, expires, transaction.now)
        if not until:
            return "expired", match, 0
        if subscription.significance is not None:
            last = self._read_last(transaction, subscription, notification)
            if not is_significant(subscription, notification, at, last, self._settings.episode):
                return "quiet", match, 0
        return "", match, until

    def find_claim(self, notification: Notification) -> str | None:
        """Return what somebody has, of a notification: itself or its device."""
        return self.claims.find(notification) if self.claims and self.claims.held else None

    def may_see(self, subscription: Subscription, notification: Notification) -> bool:
        """Return whether the subscriber may see what the subscription asks for."""
        reason, visible = self.find_shown(subscription, notification)
        if reason is not None:
            return False
        if notification.story is not None:
            roles, asks = self._list_roles(subscription), notification.story.asks
            return all(self._roles.check(role, *ask) is None for role in roles for ask in asks)
        if subscription.language != FUZZY:
            names = _list_names(subscription.language, subscription.vector)
            event = name_event(notification)
            return all(
                self._roles.check(r, event, names) is None for r in self._list_roles(subscription)
            )
        return not subscription.features & ~visible

    def find_shown(
        self, subscription: Subscription, notification: Notification
    ) -> tuple[str | None, int]:
        """Return why the subscriber may not see a notification, or the attributes to be shown."""
        present = self._roles.role_of(subscription.subscriber.name)
        if not present or present == subscription.role:  # as nearly always
            reason, visible = self.find_visible(subscription.role, notification)
            return reason, visible if reason is None else 0
        shown = -1
        for role in (subscription.role, present):
            reason, visible = self.find_visible(role, notification)
            if reason is not None:
                return reason, 0
            shown &= visible
        return None, shown

    def _list_roles(self, subscription: Subscription) -> set[str]:
        """Return the role that travels with the subscription, and the subscriber's role now.

        The second only if it is known here: who lost a role sees no more by what was asked before.
        """
        return {
            subscription.role,
            self._roles.role_of(subscription.subscriber.name) or subscription.role,
        }

    def count_delivered(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        notification: Notification,
        matches: Sequence[FoundMatch],
        decided: int,
        turn: int = 0,
    ) -> None:
        """Let what another node delivered count as one of the k best here, too.

        `decided` is when that was, in our timeline, and `turn` its number among the matches there.
        """
        at, expires = self.localise(notification)
        counted: list[tuple[FoundMatch, float]] = []
        for found in matches:
            match, until = _rate_match(notification, found, at, expires, decided)
            if until:
                counted.append((match, until))
            top_k = match[0].top_k
            if until > transaction.now and top_k is not None:
                rank, _ = rank_matches(subscriber, (match,))
                top_k.count_delivered(notification.id, rank, decided, until)
                self._save_top_k(transaction, match[0])
        if counted and subscriber.top_k is not None:
            rank, _ = rank_matches(subscriber, [match for match, _ in counted])
            until = self._limit(subscriber, max(until for _, until in counted), decided)
            # Also what counts no more had its turn.
            subscriber.top_k.count_delivered(notification.id, rank, decided, until, turn)
            save_person(transaction, subscriber)

    def find_counted(
        self, subscriber: SubscriberState, notification: int, matches: Sequence[FoundMatch]
    ) -> tuple[int, int] | None:
        """Return when it was decided to deliver what counts against a top-k, and its turn."""
        for top_k in (subscriber.top_k, *(match[0].top_k for match in matches)):
            entry = None if top_k is None else top_k.find(notification)
            if entry is not None:
                return int(entry.decided), entry.turn if top_k is subscriber.top_k else 0
        return None

    def _save_top_k(self, transaction: Transaction, subscription: Subscription) -> None:
        assert subscription.top_k is not None
        row = encode_row(save_top_k(subscription.top_k))
        transaction.write(TOP_K, make_id_key(subscription.id), row)

    def _read_last(
        self, transaction: Transaction, subscription: Subscription, notification: Notification
    ) -> LastSent | None:
        row = transaction.get(LAST_SENT, _last_key(subscription, notification))
        return None if row is None else _last_decoder.decode(row)

    def _remember(
        self,
        transaction: Transaction,
        subscription: Subscription,
        notification: Notification,
        at: int,
    ) -> None:
        last = remember(
            subscription, notification, at, self._read_last(transaction, subscription, notification)
        )
        transaction.write(LAST_SENT, _last_key(subscription, notification), encode_row(last))

    def restore_top_k(self, reader: Reader, subscription: Subscription) -> None:
        """Load the state of a top-k that an earlier run stored."""
        if subscription.top_k is not None:
            row = reader.get(TOP_K, make_id_key(subscription.id))
            if row is not None:
                subscription.top_k = load_top_k(subscription.top_k, _top_decoder.decode(row))

    def forget(self, transaction: Transaction, subscription: Subscription) -> None:
        """Forget all about a subscription."""
        key = make_id_key(subscription.id)
        if subscription.top_k is not None:
            transaction.write(TOP_K, key, None)
        if subscription.significance is not None:
            transaction.clear(LAST_SENT, key)


def _rate_match(
    notification: Notification, match: FoundMatch, at: int, expires: int, now: int
) -> tuple[FoundMatch, float]:
    """Return a match as it is rated now, and when it ends; 0 if its time is over."""
    subscription, possible, certain, attribute = match
    until: float = expires or math.inf
    if until <= now:
        return match, 0
    if subscription.refresh is not None:  # from the decision on: how old news may be is `recent`
        until = min(until, now + subscription.refresh)
    if subscription.recent is not None:
        fresh = rate_age(max(0, now - at - notification.doubt) // 1000, subscription.recent)
        possible, certain = min(possible, fresh), min(certain, fresh)
        if possible < subscription.threshold or certain < subscription.certain:
            return match, 0
    return (subscription, possible, certain, attribute), until


def _last_key(subscription: Subscription, notification: Notification) -> bytes:
    return make_id_key(subscription.id) + notification.device.encode()


# Sending ---------------------------------------------------------------------------------------

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
        self._later: list[tuple[int, str, int]] = []  # (time, subscriber, code): a heap

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
            if entry is None:
                continue
            if self._is_early(transaction, subscriber, code, entry) or self._push(
                subscriber, code, entry
            ):
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
        if subscriber.is_served and not subscriber.delays:
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
        if self._is_early(transaction, subscriber, code, entry):
            return
        if subscriber.queue or len(subscriber.in_flight) >= self._settings.window:
            self._push(subscriber, code, entry)
        elif self._send(transaction, subscriber, code):
            subscriber.queued.add(code)

    def _is_early(
        self, transaction: Transaction, subscriber: SubscriberState, code: int, entry: PendingRow
    ) -> bool:
        """Return whether a notification waits for somebody to have it; if so, look at it later."""
        if not subscriber.delays or subscriber.name in entry.settled:
            return False
        matches = self._subscriptions.list_matches(subscriber, entry.matches)
        due = min((entry.latest + match[0].delay for match in matches), default=0)
        if due <= transaction.now or any(not match[0].delay for match in matches):
            return False
        heapq.heappush(self._later, (due, subscriber.name, code))
        return True

    def hand_out_due(self, transaction: Transaction) -> None:
        """Look at what nobody has had for long enough."""
        while self._later and self._later[0][0] <= transaction.now:
            _, name, code = heapq.heappop(self._later)
            subscriber = self._subscriptions.find_subscriber(name)
            entry = self._pending.peek(transaction, code)
            if entry is not None and subscriber.is_served and code not in subscriber.queued:
                self._push(subscriber, code, entry)
                self.serve(transaction, subscriber)

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
            if subscriber.delays:
                due = transaction.now - entry.latest
                matches = [m for m in matches if m[0].delay <= due or not m[0].delay]
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
        message = self._render(notification, matches, best, rank.value, until, transaction.now)
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
        now: int,
    ) -> bytes:
        subscription, possible, certain, attribute = best
        _, visible = self._policy.find_shown(subscription, notification)
        story, clock = None, self._subscriptions.clock
        if notification.story is not None:
            parts = notification.story.parts
            shown = [self._policy.find_shown(subscription, p.notification)[1] for p in parts]
            story = describe_story(notification.story, shown, clock)
        return render_notification(
            notification,
            visible,
            subscription,
            (possible, certain, attribute),
            [(match[0].label, match[1]) for match in matches],
            score,
            clock.date(notification.at) if story else clock.show(notification.dot, notification.at),
            clock.date(until) if until else None,
            self._item_store.name,
            story,
            self._describe_had(notification, subscription, now),
        )

    def _describe_had(
        self, notification: Notification, subscription: Subscription, now: int
    ) -> dict[str, Any]:
        """Return who has it, and on whose behalf it comes, if that is so."""
        said: dict[str, Any] = {}
        subject = self._policy.find_claim(notification)
        if subject is not None and self._policy.claims is not None:
            said["had"] = self._policy.claims.describe(subject, now)
        if subscription.behalf is not None:
            said["escalated"] = subscription.behalf
        return said

    # Acknowledgements -----------------------------------------------------------------------

    def acknowledge(
        self, transaction: Transaction, subscriber: SubscriberState, tokens: Sequence[int]
    ) -> None:
        """Note that the subscriber has what was sent with these tokens, then send the next."""
        for token in tokens:
            code = subscriber.in_flight.pop(token, None)
            if code is None:
                transaction.log("duplicate", what="acknowledgement", source=subscriber.name)
            else:
                self._settle(transaction, subscriber, code)
        self._receipts.flush(transaction)
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
        self._receipts.flush(transaction)
        self.serve(transaction, subscriber)
        return count

    def _settle(self, transaction: Transaction, subscriber: SubscriberState, code: int) -> bool:
        subscriber.queued.discard(code)
        dot = self._pending.decode(code)
        id = self._pending.find_id(code)
        entry = self._pending.find(transaction, code)
        if entry is None:  # gone while it was on its way; nobody else has it either
            transaction.log("deliver", note=id, owner=subscriber.name, subscriptions=[], attempt=1)
            transaction.count("notes_delivered")
            return False
        matches = self._subscriptions.list_matches(subscriber, entry.matches)
        sent = entry.offered.get(subscriber.name)
        if not self._pending.settle(code, entry, subscriber):
            # Another node was faster while it was on its way from here.
            transaction.log("duplicate", what="delivery", source=subscriber.name, item=id)
            return False
        self.note_gone(transaction, subscriber)
        ids = [match[0].id for match in matches]
        transaction.log(
            "deliver",
            note=id,
            owner=subscriber.name,
            subscriptions=ids,
            attempt=sent[3] if sent else 0,
            at=entry.at,
            degree=max((match[1] for match in matches), default=None),
        )
        transaction.count("notes_delivered")
        # A receipt is an item of ours: it lives as long as its notification, in our timeline.
        expires = entry.expires
        if expires and not dot.is_told:
            expires = self._subscriptions.clock.localise(dot, expires)
        is_own = dot.origin == self._item_store.name
        proof = b"" if is_own else self._pending.find_proof(transaction, dot, entry)
        counted = self._policy.find_counted(subscriber, id, matches)
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
        if after is not None and not self._pending.list_wanted(entry):
            due = max(transaction.now, entry.latest + after)
            heapq.heappush(self._delivered, (due, code))

    def purge_delivered(self, transaction: Transaction) -> None:
        """Remove what all known subscribers have had for long enough."""
        while self._delivered and self._delivered[0][0] <= transaction.now:
            code = heapq.heappop(self._delivered)[1]
            entry = self._pending.find(transaction, code)
            if entry is not None and not self._pending.list_wanted(entry):
                dot = self._pending.decode(code)
                self._item_store.remove(transaction, NOTIFICATION, dot, "delivered")
