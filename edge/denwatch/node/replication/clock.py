"""Clocks that nobody can trust: whose time an item is in, and when it has surely expired here.

THEORY. Each node has one timeline of its own, and `now` is a time in it. It never goes back, not
over restarts either, and continues evenly when somebody corrects the machine's clock. All times in
a node's items are in that timeline. For each run of another node this file keeps an interval in
which the offset of its timeline to ours lies: own = theirs + offset, low <= offset <= high.
Contacts narrow it, drift widens it. Two statements that cannot both hold are joined to the interval
around both.

INVARIANT  The true offset is in the interval, unless a peer lied.
WHY ENOUGH Expiry is decided by `high`: rather too late than too early. A lie or a wrong clock can
           make an item live longer, and never kill it.
MEASURING  A frame says the sender's time T and arrives at our time R: own - theirs <= R - T, the
           *lag*, because it was on its way for some time >= 0. The peer does the same with a frame
           of ours and tells its lag: own - theirs >= -their_lag. The two together bound the offset
           without any assumption about the link.
EXAMPLE    Our clock is 5 s ahead, frames take 0.2 s. A frame from the peer has the lag 5.2 s, the
           peer measures -4.8 s: the offset is in 4.8..5.2 s, and an item that expires at 100 s
           there is dropped at 105.2 s here.

The machine's clock has one use: people see times by it (`date`, `show`). It decides nothing. The
only file that reasons about clocks; pure, with `now` as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from denwatch.node.core.items import LATEST, Dot, read_dot
from denwatch.node.replication.dot_sets import Run

SPACE = "clock"
UNKNOWN = 24 * 3_600_000  # ms; the bound for a clock of which nothing is known
TRUSTED_GAP = 24 * 3_600_000  # ms; a machine that was off for longer is doubted
LINK = 30_000  # ms; how long a frame may have been on its way, until an answer says better
_DRIFT = 10_000  # a clock goes wrong by less than 1/10,000
_SAVE_EVERY = 10_000  # ms; a clock set back by less, while the node is off, goes unnoticed
_TIME = b""  # the keys of this space: time and wall offset, gaps by epoch, else a run's dot
_GAP = b"\0"
_FAR = 1 << 50  # ms; more than any clock shows
_WORD = 8  # bytes of a number on the disk

Save = Callable[[str, bytes, bytes | None], None]  # space, key, value: as a transaction writes


class SavedRows(Protocol):
    """What an earlier run saved, as a store reads it."""

    def scan(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a space in the order of keys."""


class Offset(NamedTuple):
    """In which interval the offset of our timeline to another lies, as measured at `when`."""

    low: int
    high: int
    when: int

    def widen(self, own: int) -> Offset:
        """Return the interval at another time of ours: drift has widened it."""
        drift = abs(own - self.when) // _DRIFT
        return Offset(self.low - drift, self.high + drift, own)

    def join(self, other: Offset) -> Offset:
        """Return the interval that two statements allow together."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low > high:  # they contradict each other, and we cannot know which is right
            low, high = min(self.low, other.low), max(self.high, other.high)
        return Offset(low, high, other.when)

    def encode(self) -> bytes:
        """Return the interval as bytes."""
        return _encode(*self)


def _encode(*values: int) -> bytes:
    return b"".join(value.to_bytes(_WORD, "big", signed=True) for value in values)


def _decode(data: bytes) -> list[int]:
    places = range(0, len(data), _WORD)
    return [int.from_bytes(data[at : at + _WORD], "big", signed=True) for at in places]


class Clocks:
    """What a node knows of its own clock and of the clocks of others."""

    def __init__(self, name: str, epoch: int) -> None:
        self._name = name
        self._epoch = epoch
        self._wall = 0  # what the machine's clock shows = our timeline + this
        self._offsets: dict[Run, Offset] = {}
        self._peers: dict[str, Offset] = {}  # of the timelines of those we are in contact with
        self._gaps: dict[int, Offset] = {}  # by epoch: what its start made doubtful, and when
        self._saved = -1
        self._stamp = 0

    def restore(self, saved: SavedRows, wall: int) -> int:
        """Load what an earlier run saved; return by how much our timeline leads the machine's.

        `wall` is what the machine's clock shows at the start. From here on, time is wall + lead
        plus what has elapsed. How long the node was off is a guess.
        """
        last = self._load(saved)
        start = self._find_start(wall, *last) if last else wall
        self._wall = wall - start
        return start - wall

    def reload(self, saved: SavedRows) -> None:
        """Go back to what is saved, within a run, because what came after it is in doubt."""
        self._offsets.clear()
        self._peers.clear()
        last = self._load(saved)
        self._wall = last[1] if last else self._wall
        self._saved = -1

    def _load(self, saved: SavedRows) -> list[int]:
        """Load what is saved; return the last time and what the machine's clock was ahead."""
        last: list[int] = []
        for key, value in saved.scan(SPACE):
            if key == _TIME:
                last = _decode(value)
                if last[0] >= LATEST:  # of an older version, which believed such a clock
                    last = []
            elif key.startswith(_GAP):
                self._gaps[int.from_bytes(key[1:], "big")] = Offset(*_decode(value))
            else:
                dot = read_dot(key)
                self._offsets[dot.run] = Offset(*_decode(value))
        return last

    def _find_start(self, wall: int, saved: int, before: int) -> int:
        """Return where our timeline continues: at the machine's clock, if that did not go back."""
        elapsed = wall - (saved + before)
        if elapsed < 0:  # it went back: we were off for an unknown time, and lag by it
            start = saved + _SAVE_EVERY
            self._gaps[self._epoch] = Offset(-_FAR, _SAVE_EVERY, start)
            return start
        start = saved + elapsed
        if elapsed > TRUSTED_GAP:  # perhaps it jumped, and no time passed at all
            self._gaps[self._epoch] = Offset(0, elapsed, start)
        return start

    # Time of our own ------------------------------------------------------------------------

    @property
    def wall(self) -> int:
        """By how much the machine's clock is ahead of our timeline."""
        return self._wall

    def correct(self, save: Save, offset: int, now: int) -> None:
        """Record that somebody set the machine's clock: it changes only the times shown."""
        self._wall += offset
        self._save(save, now)

    def date(self, time: int) -> int:
        """Return a time of our own as the machine's clock has it, for people."""
        return time + self._wall

    def stamp(self, now: int) -> int:
        """Return a number that rises with every call, and with time where clocks agree."""
        stamp, present = self._stamp + 1, now << 16
        self._stamp = stamp if stamp > present else present
        return self._stamp

    def save(self, save: Save, now: int) -> None:
        """Save the time now and then: after a restart our timeline never starts below it.

        To be called in every transaction, so that no time that is later by `_SAVE_EVERY` is used.
        """
        if now - self._saved >= _SAVE_EVERY or self._saved < 0:
            self._save(save, now)

    def _save(self, save: Save, now: int) -> None:
        if self._saved < 0 and self._epoch in self._gaps:
            key = _GAP + self._epoch.to_bytes(4, "big")
            save(SPACE, key, self._gaps[self._epoch].encode())
        self._saved = now
        save(SPACE, _TIME, _encode(now, self._wall))

    # Time of others -------------------------------------------------------------------------

    def localise(self, dot: Dot, time: int) -> int:
        """Return a time of an item in our timeline, late rather than early."""
        if dot.origin == self._name and not self._gaps:  # our own timeline, as nearly always
            return time
        return time + self._find_at(dot, time).high

    def estimate(self, dot: Dot, time: int) -> int:
        """Return a time of an item in our timeline, as near as is known.

        The upper bound as it was measured: frames seldom take long. Drift, and gaps of unknown
        length, are left out.
        """
        known = self._offsets.get(dot.run)
        return time + known.high if known else time

    def show(self, dot: Dot, time: int) -> int:
        """Return a time of an item as the machine's clock has it, for people."""
        return self.date(self.estimate(dot, time))

    def doubt(self, origin: str, epoch: int, now: int) -> int:
        """Return by how much a time of a run may be wrong here."""
        if origin == self._name and not self._gaps:
            return 0
        offset = self._find(origin, epoch, now)
        return (offset.high - offset.low + 1) // 2

    def doubt_peers(self, now: int) -> int:
        """Return by how much we may be wrong about the timeline of one we are in contact with."""
        known = [offset.widen(now) for offset in self._peers.values()]
        return max(((offset.high - offset.low + 1) // 2 for offset in known), default=0)

    def measure(self, peer: str, their_time: int, now: int, their_lag: int | None = None) -> int:
        """Measure a peer's clock by a fresh frame that says this time; return the lag.

        `their_lag` is what the peer measured with a frame of ours, if it said so: see MEASURING.
        """
        lag = now - their_time
        low = -their_lag if their_lag is not None else lag - LINK
        measured = Offset(min(low, lag), max(low, lag), now)
        known = self._peers.get(peer)
        self._peers[peer] = measured if known is None else known.widen(now).join(measured)
        return lag

    def forget_peer(self, peer: str) -> None:
        """Forget the timeline of a peer that left: the next contact measures it again."""
        self._peers.pop(peer, None)

    def witness(
        self, save: Save, peer: str, table: Iterable[tuple[Run, int, int]], now: int
    ) -> None:
        """Learn what a peer knows of the clocks of runs: its offset to each, and the bound."""
        base = self._peers.get(peer)
        if base is None:
            return
        for run, offset, bound in table:
            if run[0] == self._name or abs(offset) > _FAR or bound > _FAR:
                continue
            told = Offset(base.low + offset - bound, base.high + offset + bound, now)
            known = self._find(*run, now) if run in self._offsets else None
            joined = told if known is None else known.join(told)
            if known is None or self._is_news(known, joined):
                self._offsets[run] = joined
                save(SPACE, Dot(*run, 0).key, joined.encode())

    def tell(self, runs: Iterable[Run], now: int) -> list[tuple[Run, int, int]]:
        """Return what we know of the clocks of runs, for a peer's `witness`."""
        table = []
        for run in runs:
            low, high, _ = self._find(*run, now)
            low, high = max(low, -_FAR), min(high, _FAR)  # more would not be believed
            table.append((run, (low + high) // 2, (high - low + 1) // 2))
        return table

    # Looking up -----------------------------------------------------------------------------

    def _find_at(self, dot: Dot, time: int) -> Offset:
        """Return the offset to a run as it is when that run's clock shows a time."""
        known = self._offsets.get(dot.run)
        return self._find(dot.origin, dot.epoch, time + known.high if known else time)

    def _find(self, origin: str, epoch: int, own: int) -> Offset:
        """Return the offset to a run at a time of ours: as measured, widened by drift and gaps.

        A gap (a start after an unknown pause) makes doubtful what was measured before it, and of
        our own runs all those that ended before it.
        """
        known = self._offsets.get((origin, epoch))
        is_own = origin == self._name
        if known is None:
            known = Offset(0, 0, own) if is_own else Offset(-UNKNOWN, UNKNOWN, own)
        low = high = 0
        for began, gap in self._gaps.items():
            if began > epoch if is_own else gap.when >= known.when:
                low, high = low + gap.low, high + gap.high
        wide = known.widen(own)
        return Offset(wide.low + low, wide.high + high, own)

    @staticmethod
    def _is_news(known: Offset, joined: Offset) -> bool:
        """Return whether a bound moved by more than a second, which is worth a write."""
        return abs(known.low - joined.low) > 1_000 or abs(known.high - joined.high) > 1_000
