"""PrefSIENA: which subscribers receive a notification; a profile for each, a graph for all of them.

What the product uses of the paper is in `denwatch.node.ranking`: `Rank`, winnow levels, `TopK`. In
this file the values of several matching subscriptions are combined as the subscriber asks
(Definition 5: the maximum). Between equal ranks `sort_best_first` compares degree, then freshness,
then id, so the order is total; sums are `math.fsum`, which does not depend on the order of its
terms. `BoundedTopK` is the paper's Algorithm 1, with >= in line 21: never more than k entries.

When a delivered notification expires: the paper has an expiry by the publisher, a refresh time by
the subscriber, and periods, which are the expiry "end of the current period"; its future work is
the sliding window, by time in `ExpiryRule` and by number of matches in `TopK`. The earliest of
those in force holds, so that a notification that is no longer valid never blocks one that is.

A `Profile` combines one subscriber's preferences, priorities, expiry and top-k. It does not match:
its caller says which of its subscriptions a notification matched and how well, and the profile
decides whether the notification is delivered. A `Forwarder` is PrefSIENA's Algorithm 1 with the
pruned walk of section 3.2. No clock, no I/O.

    >>> from denwatch.node.ranking.content import ContentFilter
    >>> from denwatch.node.ranking.content_covering import covers
    >>> server = Forwarder(covers, measure_degree)
    >>> profile = server.connect("john", RankingPolicy(k=2))
    >>> comedy, drama = (ContentFilter.of(("genre", "=", it)) for it in ("comedy", "drama"))
    >>> server.subscribe(Preference(1, "john", comedy, score=0.9))
    True
    >>> server.subscribe(Preference(2, "john", drama, score=0.8))
    True
    >>> [d.verdict.value for d in server.forward(7, {"genre": "drama"}, now=0.0, expires=60.0)]
    ['delivered']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from denwatch.node.ranking.content import Content, ContentFilter, matches
from denwatch.node.ranking.rank import Rank, UnknownPriority, assign_levels
from denwatch.node.ranking.topk import RankedEntry, TopK, Verdict, check_size

from papers.prefsiena_graph import SubscriptionGraph

S = TypeVar("S", bound=Hashable)
FULL_DEGREE = 255


def measure_degree(subscription: ContentFilter, notification: Content) -> int:
    """Return the degree of match on the scale of fuzzy subscriptions: 255 or 0."""
    return FULL_DEGREE if matches(subscription, notification) else 0


class Combination(StrEnum):
    """How the values of several matching subscriptions become one."""

    MAX = "max"
    MEAN = "mean"
    MIN = "min"
    WEIGHTED_SUM = "weighted-sum"
    MOST_SPECIFIC = "most-specific"  # the maximum over those that cover no other matching one


@dataclass(frozen=True, slots=True)
class Preference(Generic[S]):
    """A preferential subscription (Definition 4): what is wanted, by whom, and how much.

    `refresh` is the subscriber's own expiry in seconds; `weight` counts only in a weighted sum.
    """

    id: Hashable
    subscriber: Hashable
    subscription: S
    score: float = 1.0
    refresh: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"subscription {self.id!r}: score {self.score} is not in 0..1")
        if not (0.0 <= self.weight < math.inf):
            raise ValueError(f"subscription {self.id!r}: weight {self.weight} is not finite, >= 0")
        if self.refresh is not None and not self.refresh > 0.0:
            raise ValueError(f"subscription {self.id!r}: refresh {self.refresh} is not above 0")


@dataclass(frozen=True, slots=True)
class PreferenceMatch(Generic[S]):
    """One subscription that a notification matched, and how well (1..255)."""

    preference: Preference[S]
    degree: int
    level: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= FULL_DEGREE:
            raise ValueError(
                f"subscription {self.preference.id!r}: degree {self.degree} is not in 1..255"
            )

    @property
    def value(self) -> float:
        """Score and degree as one number, 0..1."""
        return self.preference.score * self.degree / FULL_DEGREE


def select_deciding(matches: Sequence[PreferenceMatch[S]]) -> list[PreferenceMatch[S]]:
    """Return the matches of the best winnow level: only they make the rank."""
    best = min(match.level for match in matches)
    return [match for match in matches if match.level == best]


def combine_matches(
    matches: Sequence[PreferenceMatch[S]], combination: Combination, covers: Callable[[S, S], bool]
) -> Rank:
    """Return the rank of a notification from what it matched; at least one match is needed."""
    if not matches:
        raise ValueError("a notification that matches nothing has no rank")
    deciding = select_deciding(matches)
    match combination:
        case Combination.MAX:
            value = max(m.value for m in deciding)
        case Combination.MIN:
            value = min(m.value for m in deciding)
        case Combination.MEAN:
            value = math.fsum(m.value for m in deciding) / len(deciding)
        case Combination.WEIGHTED_SUM:
            value = math.fsum(m.value * m.preference.weight for m in deciding)
        case Combination.MOST_SPECIFIC:
            value = max(m.value for m in select_most_specific(deciding, covers))
    return Rank(-deciding[0].level, value)


def select_most_specific(
    matches: Sequence[PreferenceMatch[S]], covers: Callable[[S, S], bool]
) -> list[PreferenceMatch[S]]:
    """Return the matches that cover no other one, unless that one covers them too.

    PrefSIENA's text says "that no other covers", against its own example: there the general
    subscription, which nothing covers, is the one to be ignored.
    """

    def is_strictly_above(a: PreferenceMatch[S], b: PreferenceMatch[S]) -> bool:
        upper, lower = a.preference.subscription, b.preference.subscription
        return covers(upper, lower) and not covers(lower, upper)

    return [a for a in matches if not any(is_strictly_above(a, b) for b in matches if b is not a)]


class Ranked(NamedTuple):
    """One notification for one subscriber, with all that its place depends on."""

    rank: Rank
    degree: int
    published: float
    note_id: int


def sort_best_first(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Sort by rank, degree, freshness, and the smaller id: a total order, the same everywhere."""
    return sorted(ranked, key=lambda r: (*(-part for part in r[0]), -r[1], -r[2], r[3]))


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """What a subscriber adds to the publisher's expiry; nothing by default. All in seconds.

    `period` starts top-k anew at every multiple of itself after `origin`; `span` is a sliding
    window over the time of delivery.
    """

    period: float | None = None
    origin: float = 0.0
    span: float | None = None

    def __post_init__(self) -> None:
        for name, length in (("period", self.period), ("span", self.span)):
            if length is not None and not 0.0 < length < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, not {length}")

    def find_expiry(
        self, now: float, by_publisher: float = math.inf, refreshes: Iterable[float | None] = ()
    ) -> float:
        """Return the earliest of: publisher's expiry, refresh times, end of period, window."""
        expiry = by_publisher
        for refresh in refreshes:
            if refresh is not None:
                expiry = min(expiry, now + refresh)
        if self.period is not None:
            expiry = min(expiry, find_period_end(now, self.period, self.origin))
        if self.span is not None:
            expiry = min(expiry, now + self.span)
        return expiry


def find_period_end(now: float, period: float, origin: float = 0.0) -> float:
    """Return the end of the period that `now` lies in; its start belongs to it, its end not."""
    number = math.floor((now - origin) / period)
    # The division rounds: the period found may be a neighbour of the true one.
    for count in (number, number + 1, number + 2):
        end = origin + count * period
        if end > now:
            break
    return end


class TopKState(Protocol):
    """What decides for one subscriber."""

    def offer(self, note_id: int, rank: Rank, now: float, expires: float) -> Verdict:
        """Decide on a matching notification, and remember it if it is delivered."""

    def list_best(self, now: float) -> list[RankedEntry]:
        """Return the k best valid entries, best first."""


class BoundedTopK:
    """Algorithm 1: k entries at most; may deliver what Definition 6 would hold back."""

    def __init__(self, k: int) -> None:
        check_size("k", k)
        self.k = k
        self.turn = 0
        self._now = -math.inf
        self._entries: list[RankedEntry] = []

    def offer(self, note_id: int, rank: Rank, now: float, expires: float) -> Verdict:
        """Decide on a matching notification, and remember it if it is delivered."""
        self.turn += 1
        self._forget_expired(now)
        if expires <= self._now:
            return Verdict.EXPIRED
        if len(self._entries) >= self.k:
            worst = min(self._entries, key=lambda entry: (entry.rank, entry.turn))
            if rank < worst.rank:
                return Verdict.OUTRANKED
            self._entries.remove(worst)
        self._entries.append(RankedEntry(note_id, rank, expires, self.turn))
        return Verdict.DELIVERED

    def list_best(self, now: float) -> list[RankedEntry]:
        """Return the k best valid entries: by rank, the fresher of equals first."""
        self._forget_expired(now)
        return sorted(self._entries, key=lambda entry: (entry.rank, entry.turn), reverse=True)

    def _forget_expired(self, now: float) -> None:
        self._now = max(self._now, now)
        self._entries = [entry for entry in self._entries if entry.expires > self._now]


@dataclass(frozen=True, slots=True)
class RankingPolicy:
    """How one subscriber wants to be served. `window` counts matches, `expiry` has the times.

    `k` None delivers everything that matches, ranked. `is_bounded` takes the paper's Algorithm 1,
    which remembers k entries and no more, instead of the exact top-k.
    """

    k: int | None = None
    combination: Combination = Combination.MAX
    expiry: ExpiryRule = field(default_factory=ExpiryRule)
    window: int | None = None
    is_bounded: bool = False

    def build_top_k(self) -> TopKState | None:
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
    """The state of one subscriber; a `top_k` given is one restored after a restart."""

    def __init__(
        self,
        subscriber: Hashable,
        policy: RankingPolicy,
        covers: Callable[[S, S], bool],
        top_k: TopKState | None = None,
    ) -> None:
        self.subscriber = subscriber
        self.policy = policy
        self._covers = covers
        self.top_k = policy.build_top_k() if top_k is None else top_k
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
                PreferenceMatch(self._preferences[key], degree, self._levels[key])
                for key, degree in matched
            ]
        except KeyError as error:
            raise KeyError(f"{self.subscriber!r} has no subscription {error.args[0]!r}") from None
        rank = combine_matches(matches, self.policy.combination, self._covers)
        deciding = select_deciding(matches)
        until = self.policy.expiry.find_expiry(
            now, expires, (match.preference.refresh for match in deciding)
        )
        if self.top_k is not None:
            verdict = self.top_k.offer(note_id, rank, now, until)
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

    def list_best(self, now: float) -> list[RankedEntry]:
        """Return the subscriber's valid top-k, best first; nothing is remembered without a k."""
        return [] if self.top_k is None else self.top_k.list_best(now)


N = TypeVar("N")


class Forwarder(Generic[S, N]):
    """Takes notifications, says who gets them. Subscription ids are unique on one server."""

    def __init__(self, covers: Callable[[S, S], bool], degree: Callable[[S, N], int]) -> None:
        self._covers = covers
        self.graph: SubscriptionGraph[S, N] = SubscriptionGraph(covers, degree)
        self.profiles: dict[Hashable, Profile[S]] = {}
        self._subscribers: dict[Hashable, Hashable] = {}

    def connect(
        self, subscriber: Hashable, policy: RankingPolicy, top_k: TopKState | None = None
    ) -> Profile[S]:
        """Register a subscriber; its profile takes priorities ("prefer A over B").

        After a restart, `top_k` is the top-k rebuilt from what was stored.
        """
        if subscriber in self.profiles:
            raise ValueError(f"subscriber {subscriber!r} is already connected")
        profile = Profile(subscriber, policy, self._covers, top_k)
        self.profiles[subscriber] = profile
        return profile

    def disconnect(self, subscriber: Hashable) -> None:
        """Remove a subscriber with all its subscriptions."""
        profile = self._find_profile(subscriber)
        for key in profile.preferences:
            self.graph.delete(key)
            del self._subscribers[key]
        del self.profiles[subscriber]

    def subscribe(self, preference: Preference[S]) -> bool:
        """Add a preferential subscription; return whether it made a new root of the graph."""
        profile = self._find_profile(preference.subscriber)
        if preference.id in self._subscribers:
            raise ValueError(f"subscription {preference.id!r} already exists")
        profile.add(preference)
        self._subscribers[preference.id] = preference.subscriber
        return self.graph.insert(preference.id, preference.subscription)

    def unsubscribe(self, subscription_id: Hashable) -> None:
        """Remove a subscription."""
        if subscription_id not in self._subscribers:
            raise KeyError(f"no subscription {subscription_id!r} here")
        self.profiles[self._subscribers.pop(subscription_id)].remove(subscription_id)
        self.graph.delete(subscription_id)

    def forward(
        self,
        note_id: int,
        notification: N,
        now: float,
        *,
        expires: float = math.inf,
        published: float | None = None,
    ) -> list[Decision]:
        """Decide for every subscriber that the notification matches, in order of the walk."""
        by_subscriber: dict[Hashable, list[tuple[Hashable, int]]] = {}
        for key, degree in self.graph.find_matching(notification).matches:
            by_subscriber.setdefault(self._subscribers[key], []).append((key, degree))
        return [
            self.profiles[subscriber].decide(
                note_id, matched, now, expires=expires, published=published
            )
            for subscriber, matched in by_subscriber.items()
        ]

    def _find_profile(self, subscriber: Hashable) -> Profile[S]:
        try:
            return self.profiles[subscriber]
        except KeyError:
            raise KeyError(f"subscriber {subscriber!r} is not connected") from None
