"""Dead band, quiet time and heartbeat once more, at the node that delivers.

A device applies them before it sends. But it sends for all its subscriptions together, and a
notification does not say for which, so what was sent for somebody else's sake has to be judged
again for each subscription and device. The node judges a notification by what it *sent last* for
them:

- within the quiet time of it (before or after: what was carried arrives in any order): not sent;
- no attribute has left its dead band: not sent, unless the heartbeat is due, or the last sending
  is longer ago than an episode (`SubscriberSettings.episode`).

N of M was counted at the source, where all samples are. Hysteresis too: a notification below its
threshold is no match for a node. Whether a match ended in between is known to the device alone,
which is why a dead band holds for one episode only: a new alarm at the old value is told again.
"""

from __future__ import annotations

from denwatch.node.core.subscribers.notes import Note
from denwatch.node.core.subscribers.people import Sub
from denwatch.node.core.subscribers.tables import Last
from denwatch.protocol.timecode import decode_duration
from denwatch.watchdog.significance import has_moved, is_due, is_quiet


def is_significant(sub: Sub, note: Note, at: int, last: Last | None, episode: int) -> bool:
    """Return whether a match, read at a time of ours, is worth sending after what was sent last."""
    rules = sub.significance
    if rules is None or last is None:
        return True
    since = abs(at - last.at)
    if rules.quiet and is_quiet(since, 1000 * decode_duration(rules.quiet)):
        return False
    if not (rules.bands or rules.relative) or since >= episode:
        return True
    if rules.heartbeat and is_due(since, 1000 * decode_duration(rules.heartbeat)):
        return True
    return _left_band(sub, note, last)


def _left_band(sub: Sub, note: Note, last: Last) -> bool:
    """Return whether some attribute of the subscription has moved since."""
    assert sub.significance is not None
    place = 0
    for reading in note.vector.readings:
        if not sub.features >> reading.attribute & 1:
            continue
        band = sub.significance.bands[place] if sub.significance.bands else 0
        place += 1
        before = last.values.get(reading.attribute)
        if before is None:
            return True
        if reading.wide:
            band *= 257
        if has_moved(_centre(reading.points), before, band, sub.significance.relative):
            return True
    return False


def remember(sub: Sub, note: Note, at: int, last: Last | None) -> Last:
    """Return what is to be known as sent last: the newest reading, whatever order they come in."""
    if last is not None and last.at > at:
        return last
    values = {
        reading.attribute: _centre(reading.points)
        for reading in note.vector.readings
        if sub.features >> reading.attribute & 1
    }
    return Last(at, values)


def _centre(points: tuple[int, int, int, int]) -> int:
    return (points[1] + points[2]) // 2
