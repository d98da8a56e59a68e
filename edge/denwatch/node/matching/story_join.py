"""The join of one story: readings that fit its parts come in any order; which tell the story?

THEORY. An *entry* is a reading that fits a part. Entries are kept for each part in the order of
event time (and of ids, where times are equal). A reading *closes* a story if it fits the last part
of a sequence, or if it is the last of those that are together or counted; a story is told once for
each reading that closes it, with the best choice of the others (`Telling`). An absence is told for
the last reading before the silence (0: since the subscription began).

LAST       of those that are together or counted is the one with the latest time by the clock of the
           node that took it (`StoryEntry.order`), which all nodes read alike. Event time is what a
           node makes of it: where clocks doubt the order, two nodes would close the same story by
           two readings, and a person who walks would be told twice.

DEGREE     the lowest of the parts', gaps' and distances' degrees. Times and places have doubt: a
           gap is an interval, and what it may be is *possible*, what it must be is *certain*. Of
           several choices the best counts for each of the two; the most possible one, then the
           latest, is the one that is named.
SEQUENCE   R(1, x) = degree of x in part 1; R(k, y) = min(degree of y in part k, max over x of
           min(R(k-1, x), gap(x, y), distance(x, y))). This is the best chain, since min and max
           commute; together and count choose freely for each part or device, since their gaps are
           counted to the last one.
LATE       an entry in the past can change only what closes after it, within the sum of the windows
           and the doubt (and as much before it as clocks differ): those are judged again. So the
           result does not depend on the order of arrival; `simulator/story_oracle.py` is the judge.
ABSENCE    what is not here may still be on its way, so no absence is certain. It is told when the
           silence is fully long, by a tick; or afterwards, if a gap was long enough. An entry that
           comes late into the gap takes the telling back (`Telling.degrees` is (0, 0)), which
           helps as long as nobody has it.
BOUND      each part keeps at most `limit` entries; the earliest are forgotten first, and counted.
           Only stories that would need those are missed.

Pure: numbers in, tellings out; no clock, no disk.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from math import hypot
from typing import NamedTuple

from denwatch.client.compiler.stories import ABSENCE, COUNT, PLACE, SEQUENCE, Story
from denwatch.client.vocabulary import EventType
from denwatch.protocol.vectors import NotificationVector

Degrees = tuple[int, int]  # possible, certain, 0..255
Place = tuple[float, float, float]  # m east, m north, doubt
BEGINNING = 0  # the id by which an absence since the beginning is told
NOTHING: Degrees = (0, 0)
FULL: Degrees = (255, 255)


class OwnTime(NamedTuple):
    """When a reading was made by the clock of the node that took it, with the reading's doubt."""

    run: tuple[str, int]
    at: int
    doubt: int


class StoryEntry(NamedTuple):
    """A reading that fits a part; entries sort by time and id."""

    time: int  # ms, the middle of when it may have been
    id: int
    part: int
    doubt: int  # ms
    device: str
    degrees: Degrees
    place: Place | None = None
    key: int = 0  # by which the caller finds the reading
    own: OwnTime | None = None

    @property
    def order(self) -> tuple[int, int]:
        """What decides which of two readings is the last, the same at every node."""
        return self.time if self.own is None else self.own.at, self.id


class Telling(NamedTuple):
    """What a reading closes: the degrees, and the entries that make the story, by part."""

    id: int
    degrees: Degrees
    entries: tuple[StoryEntry, ...]
    at: int  # when it became true, in event time

    def join(self, other: Telling) -> Telling:
        """Return the better of two ways to tell it, as certain as either."""
        better = self if self.degrees >= other.degrees else other
        certain = max(self.degrees[1], other.degrees[1])
        return better._replace(degrees=(better.degrees[0], certain))


def fall(x: float, full: float, zero: float) -> int:
    """Return the degree of a distance that is full up to one bound and nothing from another."""
    if x <= full:
        return 255
    return 0 if x >= zero else int(255 * (zero - x) / (zero - full))


def rise(x: float, full: float, zero: float) -> int:
    """Return the degree of a length that is nothing up to `zero` and full from `full` on."""
    if x >= full:
        return 255
    return 0 if x <= zero else int(255 * (x - zero) / (full - zero))


def take_least(one: Degrees, other: Degrees) -> Degrees:
    """Return the lower possibility and the lower certainty of two."""
    return min(one[0], other[0]), min(one[1], other[1])


def find_place(event: EventType | None, vector: NotificationVector) -> Place | None:
    """Return where a reading was made, and by how much that may be wrong, in m; None: unknown."""
    if event is None:
        return None
    found: list[tuple[float, float]] = []
    for name in PLACE:
        attribute = event.attributes.get(name)
        if attribute is None or attribute.unit != "m":
            return None
        reading = next((r for r in vector.readings if r.attribute == attribute.bit), None)
        if reading is None or reading.wide != attribute.wide:
            return None
        a, b, c, d = reading.points
        found.append((attribute.low + attribute.step * (b + c) / 2, attribute.step * (d - a) / 2))
    (east, dx), (north, dy) = found
    return east, north, hypot(dx, dy)


class StoryJoin:
    """The entries of one story, and what they tell."""

    def __init__(self, story: Story, since: int, limit: int = 1024) -> None:
        """`since`: when the subscription began, in event time."""
        self.story = story
        self.since = since
        self.forgotten = 0  # entries given up for room
        self._limit = limit
        self._parts: list[list[StoryEntry]] = [[] for _ in story.parts]
        self._doubt = 0  # the largest
        self._ahead: tuple[int, int] | None = None  # least and most that own times are ahead
        self._near = None if story.near is None else (story.near[0] / 1000, story.near[1] / 1000)
        self._reach = sum(max(window) for window in story.windows)
        self._told: dict[int, Degrees] = {}  # what was said last

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def add(self, entries: Iterable[StoryEntry]) -> list[Telling]:
        """Add what one reading fits; return what is told now, or told otherwise than before."""
        added = [entry for entry in entries if self._insert(entry)]
        if not added:
            return []
        if self.story.kind == ABSENCE:
            return self._judge_silences(added[0])
        slack = self._doubt + added[0].doubt
        first = added[0].time - slack - min(self._turned, self._reach + slack)
        last = added[0].time + self._reach + slack
        found: dict[int, Telling] = {}
        for closing in self._list_closings(first, last):
            telling = self.judge(closing)
            known = found.get(telling.id)
            found[telling.id] = telling if known is None else known.join(telling)
        enough = self.story.threshold
        return [each for each in found.values() if each.degrees[0] >= enough and self._note(each)]

    def _note(self, telling: Telling) -> bool:
        """Note what is told; return whether it is news."""
        is_news = self._told.get(telling.id) != telling.degrees
        self._told[telling.id] = telling.degrees
        return is_news

    def remove(self, id: int) -> None:
        """Forget a reading that is gone."""
        self._told.pop(id, None)
        for entries in self._parts:
            entries[:] = [entry for entry in entries if entry.id != id]

    def tick(self, now: int) -> list[Telling]:
        """Return the absence that is long enough now."""
        if self.story.kind != ABSENCE or now < self.due:
            return []
        entries = self._parts[0]
        anchor = entries[-1] if entries else None
        return self._tell_silence(anchor, FULL[0], self.due)

    @property
    def due(self) -> int:
        """When the present silence is fully long."""
        entries = self._parts[0]
        last = max(self.since, entries[-1].time) if entries else self.since
        return last + self.story.windows[0][0]

    def judge(self, closing: StoryEntry) -> Telling:
        """Return the best story that an entry closes, be it of degree 0."""
        if self.story.kind == SEQUENCE:
            degrees, entries = self._judge_chain(len(self.story.parts) - 1, closing)
        elif self.story.kind == COUNT:
            degrees, entries = self._judge_count(closing)
        else:
            degrees, entries = self._judge_together(closing)
        at = max((entry.time for entry in entries), default=closing.time)
        return Telling(closing.id, degrees, entries, at)

    # Keeping ------------------------------------------------------------------------------------

    def _insert(self, entry: StoryEntry) -> bool:
        entries = self._parts[entry.part]
        at = bisect_left(entries, (entry.time, entry.id))
        if at < len(entries) and entries[at][:2] == entry[:2]:
            return False
        if len(entries) >= self._limit:
            self.forgotten += 1
            if entry < entries[0]:
                return False
            self._told.pop(entries[0].id, None)
            del entries[0]
        insort(entries, entry)
        self._doubt = max(self._doubt, entry.doubt)
        ahead = entry.order[0] - entry.time
        least, most = self._ahead or (ahead, ahead)
        self._ahead = min(least, ahead), max(most, ahead)
        return True

    @property
    def _turned(self) -> int:
        """By how much an entry may be before another one in order, and after it in event time."""
        return 0 if self._ahead is None else self._ahead[1] - self._ahead[0]

    def _list_between(self, part: int, first: int, last: int) -> list[StoryEntry]:
        # A tuple of the time alone is before all entries of that time.
        entries = self._parts[part]
        return entries[bisect_left(entries, (first,)) : bisect_left(entries, (last + 1,))]

    def _list_closings(self, first: int, last: int) -> Iterator[StoryEntry]:
        parts = len(self.story.parts)
        for part in range(parts - 1, parts) if self.story.kind == SEQUENCE else range(parts):
            yield from self._list_between(part, first, last)

    # Judging ------------------------------------------------------------------------------------

    def _rate_place(self, one: StoryEntry, other: StoryEntry) -> Degrees:
        if self._near is None:
            return FULL
        if one.place is None or other.place is None:
            return NOTHING
        distance = hypot(one.place[0] - other.place[0], one.place[1] - other.place[1])
        doubt = one.place[2] + other.place[2]
        return fall(max(distance - doubt, 0), *self._near), fall(distance + doubt, *self._near)

    def _rate_pair(
        self, first: StoryEntry, last: StoryEntry, window: tuple[int, int], is_ordered: bool
    ) -> Degrees:
        gap, doubt = last.time - first.time, first.doubt + last.doubt
        one, other = first.own, last.own
        if one is not None and other is not None and one.run == other.run:
            gap, doubt = other.at - one.at, one.doubt + other.doubt  # no other clock matters
        low, high = gap - doubt, gap + doubt
        if not is_ordered and gap < 0:
            low, high = -high, -low
        if is_ordered and high < 0:
            return NOTHING
        certain = 0 if is_ordered and low < 0 else fall(high, *window)
        return take_least((fall(max(low, 0), *window), certain), self._rate_place(first, last))

    def _judge_chain(self, part: int, last: StoryEntry) -> tuple[Degrees, tuple[StoryEntry, ...]]:
        if part == 0:
            return last.degrees, (last,)
        window = self.story.windows[part - 1]
        slack = last.doubt + self._doubt
        best: tuple[int, StoryEntry, tuple[StoryEntry, ...]] | None = None
        certain = 0
        for first in self._list_between(part - 1, last.time - window[1] - slack, last.time + slack):
            if first.id == last.id:
                continue
            rated = self._rate_pair(first, last, window, True)
            if not rated[0]:
                continue
            before, chain = self._judge_chain(part - 1, first)
            rated = take_least(rated, before)
            certain = max(certain, rated[1])
            if chain and (best is None or (rated[0], first) > best[:2]):
                best = rated[0], first, chain
        if best is None:
            return NOTHING, ()
        return take_least(last.degrees, (best[0], certain)), (*best[2], last)

    def _list_before(self, part: int, last: StoryEntry) -> Iterator[tuple[Degrees, StoryEntry]]:
        """Yield what fits a part and comes before the last one, with its degrees as seen there."""
        window = self.story.windows[0]
        slack = last.doubt + self._doubt
        latest = last.time + min(window[1] + slack, self._turned)
        for entry in self._list_between(part, last.time - window[1] - slack, latest):
            if entry.order < last.order:
                rated = self._rate_pair(entry, last, window, False)
                yield take_least(entry.degrees, rated), entry
            elif entry.id == last.id and self.story.kind != COUNT:
                yield entry.degrees, entry  # one reading fits both

    def _judge_together(self, last: StoryEntry) -> tuple[Degrees, tuple[StoryEntry, ...]]:
        degrees, chosen = last.degrees, []
        for part in range(len(self.story.parts)):
            if part == last.part:
                chosen.append(last)
                continue
            choices = list(self._list_before(part, last))
            if not choices:
                return NOTHING, ()
            (possible, _), best = max(choices)
            certain = max(rated[1] for rated, _ in choices)
            degrees = take_least(degrees, (possible, certain))
            chosen.append(best)
        return degrees, tuple(chosen)

    def _judge_count(self, last: StoryEntry) -> tuple[Degrees, tuple[StoryEntry, ...]]:
        best: dict[str, tuple[int, StoryEntry]] = {}
        certain: dict[str, int] = {}
        for rated, entry in self._list_before(0, last):
            device = entry.device
            if device == last.device:
                continue
            certain[device] = max(certain.get(device, 0), rated[1])
            choice = rated[0], entry
            if device not in best or choice > best[device]:
                best[device] = choice
        needed = self.story.count - 1
        if len(best) < needed:
            return NOTHING, ()
        ranked = sorted(best.values(), reverse=True)[:needed]
        surest = sorted(certain.values(), reverse=True)[needed - 1]
        degrees = take_least(last.degrees, (ranked[-1][0], surest))
        return degrees, (*(entry for _, entry in ranked), last)

    # Absence ------------------------------------------------------------------------------------

    def _judge_silences(self, added: StoryEntry) -> list[Telling]:
        """Judge the silence before a new entry, and the one after it."""
        entries = self._parts[0]
        place = bisect_left(entries, added)
        before = entries[place - 1] if place else None
        after = entries[place + 1] if place + 1 < len(entries) else None
        told = self._judge_gap(before, added)
        if after is not None:
            told += self._judge_gap(added, after)
        return told

    def _judge_gap(self, anchor: StoryEntry | None, following: StoryEntry) -> list[Telling]:
        start = self.since if anchor is None else anchor.time
        if anchor is None and following.time < start:
            return []  # it was there before the subscription was: a beginning of its own
        doubt = following.doubt + (0 if anchor is None else anchor.doubt)
        degree = rise(following.time - start + doubt, *self.story.windows[0])
        return self._tell_silence(anchor, degree, following.time)

    def _tell_silence(self, anchor: StoryEntry | None, degree: int, at: int) -> list[Telling]:
        id = BEGINNING if anchor is None else anchor.id
        degrees = (degree, 0) if degree >= self.story.threshold else NOTHING
        if degrees == NOTHING and id not in self._told:
            return []
        telling = Telling(id, degrees, () if anchor is None else (anchor,), at)
        return [telling] if self._note(telling) else []
