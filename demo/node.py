"""The node's side of the demo: the matching index, and a ranking for each subscriber."""

from __future__ import annotations

from collections import Counter

import numpy as np

from edge.dens.matching.batch import Batch, build_batch, build_predicates
from edge.dens.matching.index import FuzzyIndex
from edge.dens.ranking import Policy, Preference, Profile, Verdict
from protocol.vectors import Notification, Subscription

_LIFE = 60  # minutes that a notification stays valid
_SHOWN = 3

Best = tuple[Notification, int, int, int, int]  # note, patient, minute, degree, attribute


class Node:
    """Who asked for what, and what has arrived."""

    def __init__(self, others: int, event: int) -> None:
        """Start with so many subscriptions of other people to the same event."""
        self.received = 0
        self.matched = 0
        self.delivered: Counter[str] = Counter()
        self._index = FuzzyIndex()
        self._index.add_batch(_draw_others(others, event))
        self._others = others
        self._profiles: dict[int, Profile[Subscription]] = {}
        self._names: dict[str, int] = {}
        self._best: dict[str, list[Best]] = {}

    def subscribe(self, who: str, vector: Subscription, k: int) -> None:
        """Add a person's subscription; they see the k best of what is valid."""
        id = self._others + len(self._names)
        self._index.add(id, vector)
        profile: Profile[Subscription] = Profile(who, Policy(k=k), covers=lambda a, b: a == b)
        profile.add(Preference(id, who, vector))
        self._profiles[id] = profile
        self._names[who] = id
        self._best[who] = []

    def receive(self, note: Notification, patient: int, minute: int) -> None:
        """Match one notification, and deliver it to whom it is among the best for."""
        self.received += 1
        for hit in self._index.match(note):
            profile = self._profiles.get(hit.id)
            if profile is None:
                self.matched += 1
                continue
            who = str(profile.subscriber)
            decision = profile.decide(
                self.received, [(hit.id, hit.possible)], minute, expires=minute + _LIFE
            )
            if decision.verdict is Verdict.DELIVERED:
                self.delivered[who] += 1
                item = (note, patient, minute, hit.possible, hit.attribute)
                self._best[who].append(item)

    def list_best(self, who: str) -> list[Best]:
        """Return the best of the day, one a patient."""
        best: dict[int, Best] = {}
        for item in self._best[who]:
            known = best.get(item[1])
            if known is None or item[3] > known[3]:
                best[item[1]] = item
        return sorted(best.values(), key=lambda item: (-item[3], item[2]))[:_SHOWN]


def _draw_others(count: int, event: int) -> Batch:
    """Return random subscriptions to two of the first four attributes of an event."""
    rng = np.random.default_rng(1)
    first = rng.integers(0, 3, count)
    second = rng.integers(first + 1, 4)
    attributes = np.stack([first, second], axis=1).ravel() + 16 * event
    low = rng.integers(0, 256, 2 * count)
    high = np.minimum(255, low + rng.integers(0, 32, 2 * count))
    predicates = build_predicates(attributes, low, high, left=rng.integers(120, 255, 2 * count))
    return build_batch(np.arange(count), np.full(count, 2), predicates, threshold=178)
