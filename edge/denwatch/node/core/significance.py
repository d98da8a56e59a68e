"""Significance: whether a match is worth sending after what was sent last. Pure.

Dead band, quiet time and heartbeat are applied by devices before they send. But a device
sends for all its subscriptions together, and a notification does not say for which; so the node
that delivers decides again for each subscription and device, by what it *sent last* for them:

- within the quiet time of it (before or after: what was carried arrives in any order): not sent;
- no attribute has left its dead band: not sent, unless the heartbeat is due, or the last one was
  sent longer ago than an episode (`SubscriberSettings.episode`).

N of M was counted at the source, where all samples are. Hysteresis too: a notification below its
threshold is no match for a node. Whether a match ended in between is known to the device alone,
which is why a dead band holds for one episode only: a new alarm at the old value is sent again.
"""

from __future__ import annotations

import msgspec
from denwatch.node.core.notifications import Notification
from denwatch.node.core.subscriptions import Subscription
from denwatch.protocol.timecode import decode_duration


class LastSent(msgspec.Struct, array_like=True):
    """What was sent last for one subscription from one device."""

    at: int  # when it was read, in our timeline
    values: dict[int, int]  # by attribute, as 16-bit codes


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
