"""Delivery: which matches a subscriber gets, in which order, and how they go out.

Only this file publishes notifications. A subscriber who is served (it listens, and is not muted)
has a *queue* of what waits, best first, and at most a *window* of notifications in flight. An
acknowledgement settles one, keeps a receipt (`receipts.py`) and sends the next.

INVARIANT  what was decided stays decided: the row says to whom a notification was offered, so after
           a lost link or a restart the same ones go out again without a second decision.
EXAMPLE    window 2, a, b, c wait: a and b are sent; "b arrived" settles b, sends c, keeps a receipt
           (ada, b). The link breaks: nothing is in flight; when ada is back, a and c go out again.

POLICY. For each match, in this order, the first reason that applies refuses it: the role may not
see it ("role"), its time is over or it is no longer recent ("expired"), nothing significant has
changed ("quiet"), the subscription's `top k` has k better ones ("top-k").

RANKING is that of `node.ranking` (PrefSIENA): value = score * degree, priorities first, the maximum
over the matching subscriptions of the best level. A `top k` belongs to the subscription that says
it, and ranks by that one alone: others of the same subscriber are neither held back by it nor do
they lift anything over it. What another node delivered counts here as soon as its receipt and the
notification are here; the receipt alone does not say how good it was, and is not believed of what
nobody here has seen.

SIGNIFICANCE (dead band, quiet time, heartbeat) is applied by devices before they send. But a device
sends for all its subscriptions together, and a notification does not say for which; so the node
that delivers decides again for each subscription and device, by what it *sent last* for them:

- within the quiet time of it (before or after: what was carried arrives in any order): not sent;
- no attribute has left its dead band: not sent, unless the heartbeat is due, or the last one was
  sent longer ago than an episode (`SubscriberSettings.episode`).

N of M was counted at the source, where all samples are. Hysteresis too: a notification below its
threshold is no match for a node. Whether a match ended in between is known to the device alone,
which is why a dead band holds for one episode only: a new alarm at the old value is sent again.

On the disk: `sub.gate`, id of a subscription: the state of its top-k; `sub.last`, id of a
subscription and device: what was sent last.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from denwatch.node.core.events import NOTES, Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import NOTIFICATION, Dot
from denwatch.node.core.languages import load_languages
from denwatch.node.core.notifications import (
    Notification,
    name_attribute,
    name_event,
    render_notification,
)
from denwatch.node.core.pending import Matched, Pending, PendingRow
from denwatch.node.core.receipts import Receipts
from denwatch.node.core.subscriptions import (
    ItemClock,
    Roles,
    SubscriberSettings,
    SubscriberState,
    Subscription,
    Subscriptions,
    TopState,
    encode_row,
    make_id_key,
)
from denwatch.node.core.told_stories import describe_story
from denwatch.node.ranking.rank import Rank
from denwatch.node.ranking.topk import Verdict
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.matching import rate_age
from denwatch.protocol.timecode import decode_duration

# Policy and rank -------------------------------------------------------------------------------

TOP_K = "sub.gate"
LAST_SENT = "sub.last"
FoundMatch = tuple[Subscription, int, int, int]  # a subscription, possible, certain, attribute


class LastSent(msgspec.Struct, array_like=True):
    """What was sent last for one subscription from one device."""

    at: int  # when it was read, in our timeline
    values: dict[int, int]  # by attribute, as 16-bit codes


_last_decoder = msgspec.msgpack.Decoder(LastSent)
_top_decoder = msgspec.msgpack.Decoder(TopState)


def rank_matches(
    subscriber: SubscriberState, matches: Sequence[FoundMatch]
) -> tuple[Rank, FoundMatch]:
    """Return the rank of a notification for a subscriber, and the match that decides it."""
    levels = subscriber.levels
    best_level = min(levels.get(match[0].id, 1) for match in matches) if levels else 1
    best: FoundMatch | None = None
    value = -1.0
    for match in matches:  # by rising id: of equals the first stays
        if levels and levels.get(match[0].id, 1) != best_level:
            continue
        worth = match[0].score * match[1] / 255
        if best is None or worth > value or (worth == value and match[1] > best[1]):
            best, value = match, worth
    assert best is not None, "a notification that matches nothing has no rank"
    return Rank(-best_level, value), best


@lru_cache(maxsize=1024)
def _list_names(language: int, data: bytes) -> tuple[str, ...]:
    """Return the attributes that a subscription in another language than the fuzzy one names."""
    return load_languages().find(language).list_attributes(data)


class DeliveryPolicy:
    """Decides for one subscriber after the other; what it remembers is on the disk."""

    def __init__(self, roles: Roles, clock: ItemClock, settings: SubscriberSettings) -> None:
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
        kept: list[tuple[FoundMatch, float]] = []
        for match, until in passing:
            subscription = match[0]
            if subscription.top_k is not None:
                rank, _ = rank_matches(subscriber, (match,))
                verdict = self._offer(transaction, subscription, notification, rank, until)
                if verdict is not Verdict.DELIVERED:
                    refused.setdefault("top-k", []).append(subscription.id)
                    continue
            kept.append((match, until))
        for match, _ in kept:
            if match[0].significance is not None:
                self._remember(transaction, match[0], notification, at)
        longest = max((until for _, until in kept), default=0)
        return [match for match, _ in kept], 0 if longest == math.inf else int(longest), refused

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
        match, until = _rate_match(notification, match, at, expires, transaction.now)
        if not until:
            return "expired", match, 0
        if subscription.significance is not None:
            last = self._read_last(transaction, subscription, notification)
            if not is_significant(subscription, notification, at, last, self._settings.episode):
                return "quiet", match, 0
        return "", match, until

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
        shown = -1
        for role in self._list_roles(subscription):
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

    def _offer(
        self,
        transaction: Transaction,
        subscription: Subscription,
        notification: Notification,
        rank: Rank,
        until: float,
    ) -> Verdict:
        assert subscription.top_k is not None
        verdict = subscription.top_k.offer(notification.id, rank, transaction.now, until)
        self._save_top_k(transaction, subscription)
        return verdict

    def count_delivered(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        notification: Notification,
        matches: Sequence[FoundMatch],
    ) -> None:
        """Let what another node delivered count as one of the k best here, too."""
        at, expires = self.localise(notification)
        for found in matches:
            subscription = found[0]
            match, until = _rate_match(notification, found, at, expires, transaction.now)
            if until and subscription.top_k is not None:
                rank, _ = rank_matches(subscriber, (match,))
                subscription.top_k.count_delivered(notification.id, rank, transaction.now, until)
                self._save_top_k(transaction, subscription)

    def _save_top_k(self, transaction: Transaction, subscription: Subscription) -> None:
        transaction.write(
            TOP_K, make_id_key(subscription.id), encode_row(subscription.save_top_k())
        )

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
                subscription.restore_top_k(_top_decoder.decode(row))

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
    if subscription.refresh is not None:
        until = min(until, at + notification.doubt + subscription.refresh)
    if until <= now:
        return match, 0
    if subscription.recent is not None:
        fresh = rate_age(max(0, now - at - notification.doubt) // 1000, subscription.recent)
        possible, certain = min(possible, fresh), min(certain, fresh)
        if possible < subscription.threshold or certain < subscription.certain:
            return match, 0
    return (subscription, possible, certain, attribute), until


def _last_key(subscription: Subscription, notification: Notification) -> bytes:
    return make_id_key(subscription.id) + notification.device.encode()


# Significance ----------------------------------------------------------------------------------


def is_significant(
    subscription: Subscription,
    notification: Notification,
    at: int,
    last: LastSent | None,
    episode: int,
) -> bool:
    """Return whether a match, read at a time of ours, is worth sending after what was sent last."""
    rules = subscription.significance
    if rules is None or last is None:
        return True
    since = abs(at - last.at)
    if rules.quiet and since < 1000 * decode_duration(rules.quiet):
        return False
    if not (rules.bands or rules.relative) or since >= episode:
        return True
    if rules.heartbeat and since >= 1000 * decode_duration(rules.heartbeat):
        return True
    return _left_band(subscription, notification, last)


def _left_band(subscription: Subscription, notification: Notification, last: LastSent) -> bool:
    """Return whether some attribute of the subscription has moved since."""
    assert subscription.significance is not None
    place = 0
    for reading in notification.vector.readings:
        if not subscription.features >> reading.attribute & 1:
            continue
        band = subscription.significance.bands[place] if subscription.significance.bands else 0
        place += 1
        before = last.values.get(reading.attribute)
        if before is None:
            return True
        if reading.wide:
            band *= 257
        if _has_moved(_centre(reading.points), before, band, subscription.significance.relative):
            return True
    return False


def remember(
    subscription: Subscription, notification: Notification, at: int, last: LastSent | None
) -> LastSent:
    """Return what is to be known as sent last: the newest reading, whatever order they come in."""
    if last is not None and last.at > at:
        return last
    values = {
        reading.attribute: _centre(reading.points)
        for reading in notification.vector.readings
        if subscription.features >> reading.attribute & 1
    }
    return LastSent(at, values)


def _centre(points: tuple[int, int, int, int]) -> int:
    return (points[1] + points[2]) // 2


def _has_moved(value: int, last: int, band: int, relative: int) -> bool:
    """Return whether a value has left its dead band: the rule of `watchdog.significance`."""
    moved = abs(value - last)
    return moved > 0 and moved >= band and moved * 255 >= relative * last


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
        for id, possible, certain, attribute in found.had:
            subscription = by_id[id]
            notification = self._pending.find_notification(transaction, found.code)
            if subscription.top_k is not None and notification is not None:
                counted: FoundMatch = subscription, possible, certain, attribute
                self._policy.count_delivered(
                    transaction, subscription.subscriber, notification, [counted]
                )
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
        expires = entry.expires
        if expires and not dot.is_told:
            expires = self._subscriptions.clock.localise(dot, expires)
        is_own = dot.origin == self._item_store.name
        proof = b"" if is_own else self._pending.find_proof(transaction, dot, entry)
        self._receipts.keep(transaction, subscriber.name, dot, expires, proof)
        self._check_all_have(transaction, code, entry)
        return True

    def settle_elsewhere(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        dot: Dot,
        word: tuple[str, bytes],
    ) -> bool | None:
        """Note that another node has delivered a notification; None if it is not known here.

        `word` is that node and its proof; return whether it is believed.
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
            notification = self._pending.find_notification(transaction, code)
            if notification is not None:
                self._policy.count_delivered(transaction, subscriber, notification, matches)
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
