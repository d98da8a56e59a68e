"""The delivery policy: which matches a subscriber gets, and how good each is.

For each match, in this order, the first reason that applies refuses it: the role may not
see it ("role"), its time is over or it is no longer recent ("expired"), nothing significant has
changed ("quiet"), the subscription's `top k` has k better ones ("top-k"). What is left is refused
as a whole if the subscriber wants `my top k` and has k better ones of all subscriptions ("top-k").

RANKING is that of `node.ranking` (PrefSIENA): value = score * degree, priorities first, the maximum
over the matching subscriptions of the best level, or what the subscriber prefers instead
(`preferences.py`). A `top k` belongs to the subscription that says it, and ranks by that one alone:
others of the same subscriber are neither held back by it nor do they lift anything over it. `my top
k` belongs to the subscriber, and ranks by all matches that pass.

How long a delivered notification counts (`expires after`, a window of time, fading) begins with the
decision to deliver it. What another node delivered counts here from then on: its receipt brings the
notification along, as it was signed, and this node ranks it for itself; nobody's rank is believed.

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

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.languages import load_languages
from denwatch.node.core.notifications import Notification, name_attribute, name_event
from denwatch.node.core.preferences import FoundMatch, rank_matches, save_person
from denwatch.node.core.subscriptions import (
    ItemClock,
    Roles,
    SubscriberSettings,
    SubscriberState,
    Subscription,
    TopState,
    encode_row,
    load_top_k,
    make_id_key,
    save_top_k,
)
from denwatch.node.ranking.topk import Verdict
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.matching import rate_age
from denwatch.protocol.timecode import decode_duration

TOP_K = "sub.gate"
LAST_SENT = "sub.last"


class LastSent(msgspec.Struct, array_like=True):
    """What was sent last for one subscription from one device."""

    at: int  # when it was read, in our timeline
    values: dict[int, int]  # by attribute, as 16-bit codes


_last_decoder = msgspec.msgpack.Decoder(LastSent)
_top_decoder = msgspec.msgpack.Decoder(TopState)


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
        within = subscriber.preference.within
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
