"""The fixed corpus, 10,000 subscriptions and 10,000 publications: index, definition and oracle.

Here the index answers the whole corpus, and a sample of the pairs is checked. The slow lane holds
every pair, 10**8 of them, against the oracle (some minutes), and every tenth publication against
the slower definition.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.records import pack_subscriptions
from denwatch.node.matching.search import MatchBatch, pack_notifications
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector

from tests.matching.oracle import Verdict, find_degree, judge_degrees, list_shape, measure_rows
from tests.matching.samples import make_corpus

AGE = 40
OPEN = 255.0  # the oracle's tolerance where it says nothing
Answer = dict[int, tuple[int, int, int]]


@cache
def corpus() -> tuple[list[SubscriptionVector], list[NotificationVector]]:
    """Return the corpus, made once."""
    return make_corpus()


@cache
def answer() -> MatchBatch:
    """Return the index's answer to the whole corpus."""
    subs, notes = corpus()
    index = FuzzyIndex(attributes=32)
    index.add_batch(pack_subscriptions(enumerate(subs)))
    return index.match_batch(pack_notifications(notes, [AGE] * len(notes)))


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


@pytest.mark.parametrize("stride", [2000, pytest.param(10, marks=pytest.mark.slow)])
def test_the_index_agrees_with_the_definition(stride: int) -> None:
    subs, notes = corpus()
    for i in range(0, len(notes), stride):
        expected: Answer = {}
        n = notes[i]
        for id, s in enumerate(subs):
            if s.event != n.event or s.features & ~n.features:
                continue  # no candidate: `get_answer` must not have it either
            found = match(s, n, AGE)
            if found is not None and found.matched:
                attribute = s.predicates[found.predicate].attribute
                expected[id] = (found.possible, found.certain, attribute)
        assert get_answer(i) == expected


class Judge:
    """The float oracle over the whole corpus: one table of degrees for each predicate."""

    def __init__(self, subs: list[SubscriptionVector]) -> None:
        self.subs = subs
        predicates = [p for s in subs for p in s.predicates]
        self.tables = np.array([[find_degree(p, x) for x in range(256)] for p in predicates])
        self.shapes = np.array([list_shape(p) for p in predicates], float)
        self.negated = np.array([p.negated for p in predicates])
        self.where = np.array([16 * s.event + p.attribute for s in subs for p in s.predicates])
        self.starts = np.cumsum([0] + [len(s.predicates) for s in subs]).tolist()

    def judge(self, n: NotificationVector) -> dict[int, Verdict]:
        """Return the verdicts on all candidates of a notification."""
        possible = np.full(len(self.where), -1.0)
        certain = np.full(len(self.where), -1.0)
        doubtful = np.zeros(len(self.where), bool)
        for reading in n.readings:
            rows = np.flatnonzero(self.where == 16 * n.event + reading.attribute)
            if reading.exact:
                degrees = self.tables[rows, reading.points[0]]
                degrees = np.where(self.negated[rows], 255 - degrees, degrees)
                possible[rows] = certain[rows] = degrees
                continue
            doubtful[rows] = True
            with np.errstate(divide="ignore", invalid="ignore"):
                possible[rows], certain[rows] = measure_rows(self.shapes[rows], reading.points)
        centres = {r.attribute: (r.points[1] + r.points[2]) // 2 for r in n.readings}
        verdicts = {}
        for id in np.flatnonzero(np.minimum.reduceat(possible, self.starts[:-1]) >= 0).tolist():
            rows = slice(self.starts[id], self.starts[id + 1])
            highs, lows = possible[rows].tolist(), certain[rows].tolist()
            unsure = doubtful[rows].tolist()
            verdicts[id] = judge_degrees(self.subs[id], highs, lows, centres, AGE, unsure)
        return verdicts


@pytest.mark.parametrize(
    ("fewer", "stride"), [(10, 100), pytest.param(1, 1, marks=pytest.mark.slow)]
)
def test_the_index_agrees_with_the_oracle(fewer: int, stride: int) -> None:
    subs, notes = corpus()
    judge = Judge(subs[::fewer])
    undecided = decided = 0
    for i in range(0, len(notes), stride):
        found = {id // fewer: hit for id, hit in get_answer(i).items() if id % fewer == 0}
        verdicts = judge.judge(notes[i])
        assert found.keys() <= verdicts.keys()
        for id, verdict in verdicts.items():
            if verdict.matched is None:  # what the oracle leaves open, the definition judges
                undecided += verdict.tolerance < OPEN
            else:
                decided += 1
                assert (id in found) == verdict.matched
            if id in found:
                high, low, attribute = found[id]
                assert abs(high - verdict.possible) <= verdict.tolerance
                assert abs(low - verdict.certain) <= verdict.tolerance
                assert verdict.attribute in (attribute, None)
    assert undecided < decided / 20, (undecided, decided)
