"""Which subscribers receive a notification: a profile for each subscriber, a graph for all of them.

A `Profile` combines one subscriber's preferences, priorities, expiry and top-k. It does not match:
its caller says which of its subscriptions a notification matched and how well, and the profile
decides whether the notification is delivered. A `Forwarder` is PrefSIENA's Algorithm 1 with the
pruned walk of section 3.2; `choose_server` picks a server for a new subscriber by the two criteria
of section 3.3. No clock, no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from denwatch.node.ranking.graph import SubscriptionGraph
from denwatch.node.ranking.rank import (
    Combination,
    Preference,
    PreferenceMatch,
    Rank,
    Ranked,
    UnknownPriority,
    assign_levels,
    combine_matches,
    select_deciding,
)
from denwatch.node.ranking.topk import (
    BoundedTopK,
    ExpiryRule,
    RankedEntry,
    TopK,
    TopKState,
    Verdict,
)

S = TypeVar("S", bound=Hashable)


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


@dataclass(frozen=True, slots=True, order=True)
class ServerOffer:
    """A probed server's answer; the least is the best, and the name breaks the last tie."""

    new_roots: int  # criterion 1: new nodes on the highest level, so new traffic to the server
    nodes: int  # criterion 2: nodes in its graph, so the work of searching it
    server: str


def probe_server(
    server: str, graph: SubscriptionGraph[S, N], subscriptions: Iterable[S]
) -> ServerOffer:
    """Say what subscriptions would add to a server, without adding them."""
    wanted = [s for s in dict.fromkeys(subscriptions) if not graph.is_covered(s)]
    # Among themselves they count once: what another new one covers becomes no root.
    newcomers: SubscriptionGraph[S, N] = SubscriptionGraph(graph.covers)
    for number, subscription in enumerate(wanted):
        newcomers.insert(number, subscription)
    return ServerOffer(len(newcomers.list_roots()), len(graph), server)


def choose_server(offers: Iterable[ServerOffer]) -> ServerOffer:
    """Return the best of the probed servers."""
    try:
        return min(offers)
    except ValueError:
        raise ValueError("no server was probed") from None
