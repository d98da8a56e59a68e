"""Top-k over time: a notification is delivered unless k better, still valid ones were (Def. 6).

Only this file decides "delivered or outranked". Time is an argument and never runs backwards
here: an earlier `now` counts as the latest one seen.

PrefSIENA's Algorithm 1 keeps k pairs (score, expiry) and lets a better one replace the worst. That
loses information: once the better one has expired, the replaced one would still be valid and, by
Definition 6, would still suppress others. `TopK` therefore keeps every delivered entry until k
entries that rank above it *and* count at least as long make it irrelevant for ever (the
k-skyband), which is exactly Definition 6.

The paper's future work is here too. WINDOW: only what was delivered among the last `window` matches
counts. FADING: what was delivered is worth its value times its freshness, which falls evenly from 1
at the decision to 0 after `fading`; so that an old alarm gives way little by little, and not all at
once when it expires. Of two straight lines the one that is higher now and ends later is higher
until the other ends; therefore the k-skyband holds for fading entries as well.

A notification is judged first (`judge`) and admitted only when it is delivered (`admit`): several
top-k may have a say in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from denwatch.node.ranking.rank import MAXIMUM, Rank


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
    decided: float = 0  # when


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
        fading: float | None = None,
        turn: int = 0,
        entries: Iterable[RankedEntry] = (),
    ) -> None:
        check_size("k", k)
        check_size("window", window)
        self.k = k
        self.window = window
        self.fading = fading
        self.turn = turn
        self._now = -math.inf
        self._entries: list[RankedEntry] = []
        self._rivals: list[int] = []  # per entry, how many rank above it and count as long
        self._load(entries)

    def judge(self, rank: Rank, now: float, expires: float) -> Verdict:
        """Decide on one more matching notification; nothing is remembered of it but its turn."""
        self.turn += 1
        self._forget_expired(now)
        if expires <= self._now:
            return Verdict.EXPIRED
        better = sum(self._rate(entry) > rank for entry in self._entries)
        return Verdict.OUTRANKED if better >= self.k else Verdict.DELIVERED

    def admit(self, note_id: int, rank: Rank, now: float, expires: float) -> None:
        """Remember what is delivered by the decision that was made last."""
        self._admit(self._make_entry(note_id, rank, now, expires, self.turn))

    def offer(self, note_id: int, rank: Rank, now: float, expires: float) -> Verdict:
        """Decide on a matching notification, and remember it if it is delivered."""
        verdict = self.judge(rank, now, expires)
        if verdict is Verdict.DELIVERED:
            self.admit(note_id, rank, self._now, expires)
        return verdict

    def count_delivered(
        self, note_id: int, rank: Rank, now: float, expires: float, turn: int = 0
    ) -> None:
        """Remember what was delivered by another's decision: it counts as one of the k too.

        `now` is when that was, and `turn` its number there; 0 makes it the latest here. What is
        known already is taken as it is said now.
        """
        known = self.find(note_id)
        if known is not None and known.rank == rank:
            return
        if known is not None:
            self._load(entry for entry in self._entries if entry.note_id != note_id)
        self.turn = max(self.turn, turn) if turn else self.turn + 1
        entry = self._make_entry(note_id, rank, now, expires, turn or self.turn)
        self._forget_expired(now)
        if self._counts(entry):
            self._admit(entry)

    def find(self, note_id: int) -> RankedEntry | None:
        """Return the entry of a notification that counts."""
        return next((entry for entry in self._entries if entry.note_id == note_id), None)

    def list_best(self, now: float) -> list[RankedEntry]:
        """Return the k best valid entries: by rank, the fresher of equals first."""
        self._forget_expired(now)
        return sorted(
            self._entries, key=lambda entry: (self._rate(entry), entry.turn), reverse=True
        )[: self.k]

    def list_entries(self) -> list[RankedEntry]:
        """Return all that a later decision may depend on, to be stored and given back."""
        return list(self._entries)

    def _make_entry(
        self, note_id: int, rank: Rank, now: float, expires: float, turn: int
    ) -> RankedEntry:
        if self.fading is not None:
            expires = min(expires, now + self.fading)
        return RankedEntry(note_id, rank, expires, turn, now)

    def _rate(self, entry: RankedEntry) -> Rank:
        """Return what an entry is worth now."""
        if self.fading is None:
            return entry.rank
        left = 1 - (self._now - entry.decided) / self.fading
        return Rank(entry.rank.priority, entry.rank.value * min(1.0, max(0.0, left)))

    def _load(self, entries: Iterable[RankedEntry]) -> None:
        kept = sorted(entries, key=lambda entry: entry.turn)
        self._entries, self._rivals = [], []
        self._now = max([self._now, *(entry.decided for entry in kept)])
        for entry in kept:
            self._admit(entry)

    def _admit(self, new: RankedEntry) -> None:
        kept_entries: list[RankedEntry] = []
        kept_rivals: list[int] = []
        rivals_of_new = 0
        for entry, rivals in zip(self._entries, self._rivals, strict=True):
            if self._outdoes(new, entry):
                rivals += 1
                if rivals >= self.k:
                    continue
            elif self._outdoes(entry, new):
                rivals_of_new += 1
            kept_entries.append(entry)
            kept_rivals.append(rivals)
        self._entries = [*kept_entries, new]
        self._rivals = [*kept_rivals, rivals_of_new]

    def _outdoes(self, one: RankedEntry, other: RankedEntry) -> bool:
        """Return whether one ranks above the other while that counts: of equals, the fresher."""
        if self.window is not None and one.turn < other.turn:
            return False
        ranks = (self._rate(one), one.turn), (self._rate(other), other.turn)
        return one.expires >= other.expires and ranks[0] > ranks[1]

    def _counts(self, entry: RankedEntry) -> bool:
        oldest = -math.inf if self.window is None else self.turn - self.window
        return entry.expires > self._now and entry.turn > oldest

    def _forget_expired(self, now: float) -> None:
        self._now = max(self._now, now)
        if all(map(self._counts, self._entries)):
            return
        pairs = [
            (entry, rivals)
            for entry, rivals in zip(self._entries, self._rivals, strict=True)
            if self._counts(entry)
        ]
        self._entries = [entry for entry, _ in pairs]
        self._rivals = [rivals for _, rivals in pairs]


@dataclass(frozen=True)
class PersonPreference:
    """What one person wants of all their subscriptions: how many, of which window, ranked how.

    The default wants everything. Times are in ms; 0 is for no limit.
    """

    top: int = 0
    last: int = 0  # matches
    within: int = 0
    fading: int = 0
    combination: str = MAXIMUM
    is_specific: bool = False  # only the most specific of the matching subscriptions count
    weights: Mapping[str, float] = field(default_factory=dict)  # by name, 1 for others

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> PersonPreference:
        """Return what checked options say."""
        return cls(
            options.get("top", 0),
            options.get("last", 0),
            int(1000 * options.get("within", 0)),
            int(1000 * options.get("fading", 0)),
            options.get("by", MAXIMUM),
            options.get("specific", False),
            options.get("weights", {}),
        )

    def make_top_k(self, before: TopK | None) -> TopK | None:
        """Return an empty top-k, or one with what counts already; None if everything is wanted."""
        if not self.top:
            return None
        return TopK(
            self.top,
            self.last or None,
            fading=self.fading or None,
            turn=before.turn if before else 0,
            entries=before.list_entries() if before else (),
        )
