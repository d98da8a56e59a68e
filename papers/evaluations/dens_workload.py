"""Workloads of the DENS evaluation: subscriptions as people word them, events as sensors read them.

Only this file draws random numbers for the benchmark. The paper generates subscriptions at random
from approximate terms and does not print how; but its three percentages of equality after covering
(60 % of 100, 92 % of 500, 96 % of 1,000) all leave 40 subscriptions. So the vocabulary here has
three events with four attributes of three terms each, and 44 situations that people ask about,
each naming three or four attributes and a term for each ("heart rate high, oxygen low, temperature
normal"). A subscription is one of them, picked evenly; one word in five is made stronger by "very".
Organisations use other words for the same terms, which the vocabulary maps to the same vectors, so
they leave no trace here. The two numbers, 44 and one in five, were chosen to meet the percentages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from denwatch.protocol.degrees import MIN, VERY
from denwatch.protocol.evaluator import AND, OR
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector

EVENTS = 3
ATTRIBUTES = 4
SITUATIONS = 44
HEDGED = 0.2  # how often a word is made stronger
HALF = 128

# Low, normal and high in 1/255 of the domain, with the gamma code of their slopes.
TERMS = ((0, 60, 90), (100, 155, 90), (195, 255, 90))
PATTERNS = {
    3: (bytes([0, 1, 2, OR | 2, AND | 2]), bytes([0, 1, AND | 2, 2, OR | 2])),
    4: (bytes([0, 1, AND | 2, 2, 3, AND | 2, OR | 2]), bytes([0, 1, 2, OR | 3, 3, AND | 2])),
}

Situation = tuple[int, tuple[tuple[int, int], ...]]  # event, (attribute, term) each


@dataclass(frozen=True)
class Vocabulary:
    """The situations that people ask about."""

    situations: list[Situation]


def draw_vocabulary(rng: np.random.Generator, situations: int = SITUATIONS) -> Vocabulary:
    """Draw distinct situations of three or four attributes."""
    drawn: dict[Situation, None] = {}
    while len(drawn) < situations:
        count = int(rng.integers(3, 5))
        attributes = sorted(rng.choice(ATTRIBUTES, count, replace=False).tolist())
        words = tuple((a, int(rng.integers(len(TERMS)))) for a in attributes)
        drawn[int(rng.integers(EVENTS)), words] = None
    return Vocabulary(list(drawn))


def draw_subscriptions(
    rng: np.random.Generator,
    vocabulary: Vocabulary,
    count: int,
    aggregator: int = MIN,
    patterned: bool = False,
) -> list[SubscriptionVector]:
    """Draw what people ask, all with the threshold 1/2."""
    drawn = []
    for _ in range(count):
        event, words = vocabulary.situations[int(rng.integers(len(vocabulary.situations)))]
        predicates = []
        for attribute, term in words:
            low, high, gamma = TERMS[term]
            hedge = VERY if rng.random() < HEDGED else 0
            predicates.append(Predicate(attribute, low, high, gamma, hedge=hedge))
        pattern = b""
        if patterned:
            pattern = PATTERNS[len(words)][int(rng.integers(2))]
        drawn.append(SubscriptionVector(event, predicates, aggregator, HALF, pattern=pattern))
    return drawn


def draw_events(rng: np.random.Generator, count: int) -> list[NotificationVector]:
    """Draw exact readings of all attributes of an event, uniform over their domains."""
    events = []
    for _ in range(count):
        values = rng.integers(0, 256, ATTRIBUTES).tolist()
        readings = [Reading(a, (x, x, x, x)) for a, x in enumerate(values)]
        events.append(NotificationVector(int(rng.integers(EVENTS)), readings))
    return events


def draw_notifications(
    rng: np.random.Generator, vocabulary: Vocabulary, count: int
) -> list[NotificationVector]:
    """Draw what a source sends: exact readings of the attributes of one situation alone.

    In the paper a notification has the features of the subscription that it was sent for.
    """
    sent = []
    for _ in range(count):
        event, words = vocabulary.situations[int(rng.integers(len(vocabulary.situations)))]
        values = rng.integers(0, 256, len(words)).tolist()
        readings = [Reading(a, (x, x, x, x)) for (a, _), x in zip(words, values, strict=True)]
        sent.append(NotificationVector(event, readings))
    return sent
