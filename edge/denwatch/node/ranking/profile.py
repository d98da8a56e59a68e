"""One subscriber's ranking: preferences, priorities, expiry and top-k together.

A profile does not match: it is told which of its subscriptions a notification matched and how
well, by the subscription graph or by any other matcher, and decides whether it is delivered. It
is a state machine without clock or I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from denwatch.node.ranking.expiry import ExpiryRule
from denwatch.node.ranking.rank import (
    Combination,
    Match,
    Preference,
    Rank,
    Ranked,
    combine_matches,
    select_deciding,
)
from denwatch.node.ranking.topk import BoundedTopK, Entry, Gate, TopK, Verdict
from denwatch.node.ranking.winnow import UnknownPriority, assign_levels

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Policy:
    """How one subscriber wants to be served. `window` counts matches, `expiry` has the times.

    `k` None delivers everything that matches, ranked. `is_bounded` takes the paper's Algorithm 1,
    which remembers k entries and no more, instead of the exact top-k.
    """

    k: int | None = None
    combination: Combination = Combination.MAX
    expiry: ExpiryRule = field(default_factory=ExpiryRule)
    window: int | None = None
    is_bounded: bool = False

    def build_gate(self) -> Gate | None:
        """Return the fresh state that this policy needs."""
        if self.k is None:
            return None
        if not self.is_bounded:
            return TopK(self.k, self.window)
        if self.window is not None:
            raise ValueError("the bounded top-k has no window over matches")
        return BoundedTopK(self.k)


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a notification for one subscriber, and why."""

    subscriber: Hashable
    note_id: int
    verdict: Verdict
    rank: Rank
    degree: int
    expires: float
    published: float
    matched: tuple[Hashable, ...]

    @property
    def is_delivered(self) -> bool:
        """Whether the subscriber gets it."""
        return self.verdict is Verdict.DELIVERED

    @property
    def ranked(self) -> Ranked:
        """The place of this notification among others; see `sort_best_first`."""
        return Ranked(self.rank, self.degree, self.published, self.note_id)


class Profile(Generic[S]):
    """The state of one subscriber; a `gate` given is one restored after a restart."""

    def __init__(
        self,
        subscriber: Hashable,
        policy: Policy,
        covers: Callable[[S, S], bool],
        gate: Gate | None = None,
    ) -> None:
        self.subscriber = subscriber
        self.policy = policy
        self._covers = covers
        self.gate = policy.build_gate() if gate is None else gate
        self._preferences: dict[Hashable, Preference[S]] = {}
        self._conditions: dict[tuple[Hashable, Hashable], None] = {}
        self._levels: dict[Hashable, int] = {}

    @property
    def preferences(self) -> Mapping[Hashable, Preference[S]]:
        """The subscriber's subscriptions by id."""
        return self._preferences

    @property
    def levels(self) -> Mapping[Hashable, int]:
        """The winnow level of each subscription."""
        return self._levels

    def add(self, preference: Preference[S]) -> None:
        """Add a subscription; it starts at the level that no condition has moved it from."""
        if preference.id in self._preferences:
            raise ValueError(f"{self.subscriber!r} already has subscription {preference.id!r}")
        if preference.subscriber != self.subscriber:
            raise ValueError(
                f"subscription {preference.id!r} belongs to {preference.subscriber!r}, "
                f"not to {self.subscriber!r}"
            )
        self._preferences[preference.id] = preference
        self._levels[preference.id] = 1

    def remove(self, subscription_id: Hashable) -> None:
        """Remove a subscription and the conditions that name it."""
        if subscription_id not in self._preferences:
            raise KeyError(f"{self.subscriber!r} has no subscription {subscription_id!r}")
        del self._preferences[subscription_id]
        self._conditions = {pair: None for pair in self._conditions if subscription_id not in pair}
        self._levels = assign_levels(self._preferences, self._conditions)

    def prefer(self, better: Hashable, worse: Hashable) -> None:
        """Add "better over worse"; a cycle is refused and changes nothing."""
        conditions = {**self._conditions, (better, worse): None}
        self._levels = assign_levels(self._preferences, conditions)
        self._conditions = conditions

    def forget_preference(self, better: Hashable, worse: Hashable) -> None:
        """Take one condition back."""
        if (better, worse) not in self._conditions:
            raise UnknownPriority(f"{better} over {worse}")
        del self._conditions[better, worse]
        self._levels = assign_levels(self._preferences, self._conditions)

    def decide(
        self,
        note_id: int,
        matched: Iterable[tuple[Hashable, int]],
        now: float,
        *,
        expires: float = math.inf,
        published: float | None = None,
    ) -> Decision:
        """Rank a notification that matched (subscription id, degree) pairs, and deliver or not."""
        try:
            matches = [
                Match(self._preferences[key], degree, self._levels[key]) for key, degree in matched
            ]
        except KeyError as error:
            raise KeyError(f"{self.subscriber!r} has no subscription {error.args[0]!r}") from None
        rank = combine_matches(matches, self.policy.combination, self._covers)
        deciding = select_deciding(matches)
        until = self.policy.expiry.find_expiry(
            now, expires, (match.preference.refresh for match in deciding)
        )
        if self.gate is not None:
            verdict = self.gate.offer(note_id, rank, now, until)
        else:
            verdict = Verdict.DELIVERED if until > now else Verdict.EXPIRED
        return Decision(
            subscriber=self.subscriber,
            note_id=note_id,
            verdict=verdict,
            rank=rank,
            degree=max(match.degree for match in deciding),
            expires=until,
            published=now if published is None else published,
            matched=tuple(match.preference.id for match in matches),
        )

    def list_best(self, now: float) -> list[Entry]:
        """Return the subscriber's valid top-k, best first; nothing is remembered without a k."""
        return [] if self.gate is None else self.gate.list_best(now)
