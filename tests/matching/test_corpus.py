"""The fixed corpus, 10,000 subscriptions and 10,000 publications: index, definition and oracle.

Here the index answers the whole corpus and a sample of publications is checked against all
subscriptions. DENWATCH_SLOW=1 checks every pair: 10**8 of them, some minutes for each judge.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache

import numpy as np
import pytest

from edge.dens.matching.batch import Hits, pack_notifications, pack_subscriptions
from edge.dens.matching.index import FuzzyIndex
from protocol.matching import match
from protocol.vectors import Notification, Subscription
from tests.matching.oracle import Verdict, find_degree, find_possibility, judge_degrees
from tests.matching.samples import make_corpus

SLOW = bool(os.environ.get("DENWATCH_SLOW"))
AGE = 40
Answer = dict[int, tuple[int, int, int]]


@cache
def corpus() -> tuple[list[Subscription], list[Notification]]:
    """Return the corpus, made once."""
    return make_corpus()


@cache
def answer() -> Hits:
    """Return the index's answer to the whole corpus."""
    subs, notes = corpus()
    index = FuzzyIndex(attributes=32)
    index.add_batch(pack_subscriptions(enumerate(subs)))
    return index.match_batch(pack_notifications(notes, [AGE] * len(notes)))


def choose(stride: int) -> list[int]:
    """Return the publications to check: all of them in the slow lane."""
    return list(range(0, len(corpus()[1]), 1 if SLOW else stride))


def get_answer(i: int) -> Answer:
    """Return the index's hits of publication i, each once."""
    hits = answer()
    rows = range(hits.starts[i], hits.starts[i + 1])
    found = {
        int(hits.ids[row]): (
            int(hits.possible[row]),
            int(hits.certain[row]),
            int(hits.attributes[row]) % 16,
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def test_the_corpus_covers_the_five_cases() -> None:
    subs, notes = corpus()
    assert len(subs) == len(notes) == 10_000

    def name(crisp: set[bool]) -> str:
        return "mixed" if len(crisp) == 2 else "crisp" if True in crisp else "approximate"

    sides = [name({p.left == 255 == p.right for p in s.predicates}) for s in subs]
    cases = [name({reading.exact for reading in n.readings}) for n in notes]
    for counts in (Counter(sides), Counter(cases)):
        assert set(counts) == {"crisp", "approximate", "mixed"}
        assert min(counts.values()) > 500
    assert Counter(s.aggregator for s in subs).keys() == set(range(8))


def test_the_index_agrees_with_the_definition() -> None:
    subs, notes = corpus()
    for i in choose(800):
        expected: Answer = {}
        for id, s in enumerate(subs):
            found = match(s, notes[i], AGE)
            if found is not None and found.matched:
                attribute = s.predicates[found.predicate].attribute
                expected[id] = (found.possible, found.certain, attribute)
        assert get_answer(i) == expected


class Judge:
    """The float oracle over the whole corpus: one table of degrees for each predicate."""

    def __init__(self, subs: list[Subscription]) -> None:
        self.subs = subs
        predicates = [p for s in subs for p in s.predicates]
        self.tables = np.array([[find_degree(p, x) for x in range(256)] for p in predicates])
        self.negated = np.array([p.negated for p in predicates])
        self.where = np.array([16 * s.event + p.attribute for s in subs for p in s.predicates])
        self.starts = np.cumsum([0] + [len(s.predicates) for s in subs]).tolist()

    def judge(self, n: Notification) -> dict[int, Verdict]:
        """Return the verdicts on all candidates of a notification."""
        possible = np.full(len(self.where), -1.0)
        certain = np.full(len(self.where), -1.0)
        for reading in n.readings:
            rows = np.flatnonzero(self.where == 16 * n.event + reading.attribute)
            pi = np.array([find_possibility(x, reading.points) for x in range(256)])
            possible[rows] = np.minimum(self.tables[rows], pi).max(axis=1)
            certain[rows] = np.maximum(self.tables[rows], 255 - pi).min(axis=1)
        swapped = np.where(self.negated & (possible >= 0), 255 - certain, possible)
        certain = np.where(self.negated & (possible >= 0), 255 - possible, certain)
        centres = {r.attribute: (r.points[1] + r.points[2]) // 2 for r in n.readings}
        verdicts = {}
        for id, s in enumerate(self.subs):
            rows = slice(self.starts[id], self.starts[id + 1])
            highs = swapped[rows].tolist()
            if min(highs) >= 0:
                verdicts[id] = judge_degrees(s, highs, certain[rows].tolist(), centres, AGE)
        return verdicts


def test_the_index_agrees_with_the_oracle() -> None:
    subs, notes = corpus()
    judge = Judge(subs)
    undecided = decided = 0
    for i in choose(200):
        found = get_answer(i)
        verdicts = judge.judge(notes[i])
        assert found.keys() <= verdicts.keys()
        for id, verdict in verdicts.items():
            if verdict.matched is None:
                undecided += 1
            else:
                decided += 1
                assert (id in found) == verdict.matched
            if id in found:
                high, low, attribute = found[id]
                assert abs(high - verdict.possible) <= verdict.tolerance
                assert abs(low - verdict.certain) <= verdict.tolerance
                assert attribute == verdict.attribute
    assert undecided < decided / 20, (undecided, decided)


@pytest.mark.skipif(not SLOW, reason="DENWATCH_SLOW=1 checks all 10**8 pairs of the corpus")
def test_every_publication_was_checked() -> None:
    assert len(choose(200)) == 10_000
