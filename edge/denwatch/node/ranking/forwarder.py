"""A server's forwarding: one subscription graph, and a profile for each subscriber on it.

PrefSIENA's Algorithm 1 with the pruned walk of its section 3.2; and the choice of a server for a
new subscriber by the two criteria of section 3.3. No clock, no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from denwatch.node.ranking.graph import SubscriptionGraph
from denwatch.node.ranking.profile import Decision, Policy, Profile
from denwatch.node.ranking.rank import Preference
from denwatch.node.ranking.topk import Gate

S = TypeVar("S", bound=Hashable)
N = TypeVar("N")


class Forwarder(Generic[S, N]):
    """Takes notifications, says who gets them. Subscription ids are unique on one server."""

    def __init__(self, covers: Callable[[S, S], bool], degree: Callable[[S, N], int]) -> None:
        self._covers = covers
        self.graph: SubscriptionGraph[S, N] = SubscriptionGraph(covers, degree)
        self.profiles: dict[Hashable, Profile[S]] = {}
        self._owners: dict[Hashable, Hashable] = {}

    def connect(self, subscriber: Hashable, policy: Policy, gate: Gate | None = None) -> Profile[S]:
        """Register a subscriber; its profile takes priorities ("prefer A over B").

        After a restart, `gate` is the top-k rebuilt from what was stored.
        """
        if subscriber in self.profiles:
            raise ValueError(f"subscriber {subscriber!r} is already connected")
        profile = Profile(subscriber, policy, self._covers, gate)
        self.profiles[subscriber] = profile
        return profile

    def disconnect(self, subscriber: Hashable) -> None:
        """Remove a subscriber with all its subscriptions."""
        profile = self._find_profile(subscriber)
        for key in profile.preferences:
            self.graph.delete(key)
            del self._owners[key]
        del self.profiles[subscriber]

    def subscribe(self, preference: Preference[S]) -> bool:
        """Add a preferential subscription; return whether it made a new root of the graph."""
        profile = self._find_profile(preference.subscriber)
        if preference.id in self._owners:
            raise ValueError(f"subscription {preference.id!r} already exists")
        profile.add(preference)
        self._owners[preference.id] = preference.subscriber
        return self.graph.insert(preference.id, preference.subscription)

    def unsubscribe(self, subscription_id: Hashable) -> None:
        """Remove a subscription."""
        if subscription_id not in self._owners:
            raise KeyError(f"no subscription {subscription_id!r} here")
        self.profiles[self._owners.pop(subscription_id)].remove(subscription_id)
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
        for key, degree in self.graph.find_matching(notification).hits:
            by_subscriber.setdefault(self._owners[key], []).append((key, degree))
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
