"""Top-k over time: a notification is delivered unless k better, still valid ones were (Def. 6).

Only this file decides "delivered or outranked". Time is an argument and never runs backwards
here: an earlier `now` counts as the latest one seen.

PrefSIENA's Algorithm 1 keeps k pairs (score, expiry) and lets a better one replace the worst. That
loses information: once the better one has expired, the replaced one would still be valid and, by
Definition 6, would still suppress others. `TopK` therefore keeps every delivered entry until k
entries that rank above it *and* live at least as long make it irrelevant for ever (the k-skyband),
which is exactly Definition 6. A window over the last matches is the paper's future work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from denwatch.node.ranking.rank import Rank


class Verdict(StrEnum):
    """What became of a notification that matched."""

    DELIVERED = "delivered"
    OUTRANKED = "outranked"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class RankedEntry:
    """One delivered notification; `turn` counts the matches, so a higher turn is fresher."""

    note_id: int
    rank: Rank
    expires: float
    turn: int


def check_size(name: str, size: int | None) -> None:
    """Refuse a size below 1."""
    if size is not None and size < 1:
        raise ValueError(f"{name} must be at least 1, not {size}")


class TopK:
    """Definition 6, exactly. `window` also forgets all but the last `window` matches."""

    def __init__(
        self,
        k: int,
        window: int | None = None,
        *,
        turn: int = 0,
        entries: Iterable[RankedEntry] = (),
    ) -> None:
        check_size("k", k)
        check_size("window", window)
        self.k = k
        self.window = window
        self.turn = turn
        self._now = -math.inf
        self._entries: list[RankedEntry] = []
        self._rivals: list[int] = []  # per entry, how many rank above it and live as long
        for entry in sorted(entries, key=lambda entry: entry.turn):
            self._admit(entry)

    def offer(self, note_id: int, rank: Rank, now: float, expires: float) -> Verdict:
        """Decide on a matching notification, and remember it if it is delivered."""
        self.turn += 1
        self._forget_expired(now)
        if expires <= self._now:
            return Verdict.EXPIRED
        if sum(entry.rank > rank for entry in self._entries) >= self.k:
            return Verdict.OUTRANKED
        self._admit(RankedEntry(note_id, rank, expires, self.turn))
        return Verdict.DELIVERED

    def count_delivered(self, note_id: int, rank: Rank, now: float, expires: float) -> None:
        """Remember what was delivered by another's decision: it counts as one of the k too."""
        self.turn += 1
        self._forget_expired(now)
        if expires > self._now and all(entry.note_id != note_id for entry in self._entries):
            self._admit(RankedEntry(note_id, rank, expires, self.turn))

    def list_best(self, now: float) -> list[RankedEntry]:
        """Return the k best valid entries: by rank, the fresher of equals first."""
        self._forget_expired(now)
        return sorted(self._entries, key=lambda entry: (entry.rank, entry.turn), reverse=True)[
            : self.k
        ]

    def list_entries(self) -> list[RankedEntry]:
        """Return all that a later decision may depend on, to be stored and given back."""
        return list(self._entries)

    def _admit(self, new: RankedEntry) -> None:
        # An older entry of the same rank is below the new one, so a newcomer is never dropped.
        # With a window, the newcomer also outlives every older entry in matches.
        kept_entries: list[RankedEntry] = []
        kept_rivals: list[int] = []
        rivals_of_new = 0
        for entry, rivals in zip(self._entries, self._rivals, strict=True):
            if entry.rank > new.rank:
                # By count it dies first, so it can only be a rival if nothing dies by count.
                rivals_of_new += self.window is None and entry.expires >= new.expires
            elif new.expires >= entry.expires:
                rivals += 1
                if rivals >= self.k:
                    continue
            kept_entries.append(entry)
            kept_rivals.append(rivals)
        self._entries = [*kept_entries, new]
        self._rivals = [*kept_rivals, rivals_of_new]

    def _forget_expired(self, now: float) -> None:
        self._now = max(self._now, now)
        oldest = -math.inf if self.window is None else self.turn - self.window
        if all(entry.expires > self._now and entry.turn > oldest for entry in self._entries):
            return
        pairs = [
            (entry, rivals)
            for entry, rivals in zip(self._entries, self._rivals, strict=True)
            if entry.expires > self._now and entry.turn > oldest
        ]
        self._entries = [entry for entry, _ in pairs]
        self._rivals = [rivals for _, rivals in pairs]
