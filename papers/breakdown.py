"""BFCPAB, BFCPA1 and BFCPA2: decomposition into the fuzzy Cartesian product (DENS paper, 4.3).

Predicates are taken two by two: m of them make m(m-1)/2 fuzzy relational pairs (FRP), each with a
two-dimensional degree. They are walked as in FNIF, features first.

- BFCPA1 and BFCPA2 hold one Takagi-Sugeno rule a pair, of first order (linear in the two values)
  and of zero order (a constant): the score is the fuzzy mean, each rule weighing the min of its two
  degrees. Subscriptions that bring consequents score as the protocol says. For the others the
  aggregator is approximated when they are added, so their scores differ from it (`consequents.py`).
- BFCPAB runs patterns of and/or/not. A group of several operands becomes its pairs: under "and" a
  pair holds as much as the aggregator of its two says, and the group is the fuzzy mean of its pairs
  (rules "pair holds: 1, does not: 0", so their plain mean); under "or" a pair is the max of its
  two, and the group is the mean of these maxima. Groups are joined by the pattern's last
  connective.

How BFCPAB differs from min and max: not at all for groups of two, hence not for three of the
paper's four patterns. For three or more, "and" is never below the min (one predicate at 0 leaves
the pairs without it), and "or" never above the max (one of three at 1, the others at 0, is 2/3).
The paper does not define "maximum mean"; this reading is the one dual to its fuzzy mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.degrees import MAX, SUGENO, aggregate
from denwatch.protocol.evaluator import NOT, OR, find_least
from denwatch.protocol.vectors import SubscriptionVector

from papers.consequents import approximate
from papers.evaluation import (
    Entry,
    Readings,
    Verdict,
    combine_flat,
    decide,
)
from papers.flat import FNIF
from papers.relations import describe_vector

Pair = tuple[int, int]


class Broken(Entry):
    """A break-down subscription vector: the subscription and its fuzzy relational pairs."""

    __slots__ = ("pairs",)

    def __init__(self, id: int, subscription: SubscriptionVector) -> None:
        super().__init__(id, subscription)
        self.pairs = list_pairs(len(subscription.predicates))


class Breakdown(FNIF, ABC):
    """What the three share: predicates first, then pairs, then the score."""

    def _evaluate(self, entry: Entry, readings: Readings, age: int) -> SubscriptionMatch | None:
        assert isinstance(entry, Broken)  # what _prepare returns
        possibles = bytearray()
        certains = bytearray()
        for p in entry.subscription.predicates:
            possible, certain = readings.measure(p)
            if possible < p.possible or certain < p.certain:
                return None
            possibles.append(possible)
            certains.append(certain)
        if len(possibles) == 1:
            verdict = combine_flat(entry, possibles, certains)  # no pair: its own degree
        else:
            verdict = self._score(entry, possibles, certains, readings)
        return decide(entry.subscription, verdict, age)

    @abstractmethod
    def _score(
        self, entry: Broken, possibles: bytearray, certains: bytearray, readings: Readings
    ) -> Verdict:
        """Return the degree of the whole from those of the predicates."""


class BFCPAB(Breakdown):
    """Break-down of arbitrary Boolean subscriptions."""

    def _prepare(self, id: int, subscription: SubscriptionVector) -> Broken:
        if subscription.aggregator == SUGENO:
            raise ValueError("BFCPAB has no rules: BFCPA1 and BFCPA2 do")
        return Broken(id, subscription)

    def _score(
        self,
        entry: Broken,
        possibles: bytearray,
        certains: bytearray,
        readings: Readings,  # noqa: ARG002 - only rules compute with the values themselves
    ) -> Verdict:
        s = entry.subscription
        leaves = [(p, c, i) for i, (p, c) in enumerate(zip(possibles, certains, strict=True))]
        if not s.pattern:
            return join_group(s.aggregator, leaves, entry.weights)
        stack: list[Verdict] = []
        for op in s.pattern:
            if op < len(leaves):
                stack.append(leaves[op])
            elif op == NOT:
                possible, certain, decisive = stack.pop()
                stack.append((255 - certain, 255 - possible, decisive))
            else:
                kind = MAX if op & 0xF0 == OR else s.aggregator
                operands = stack[-(op & 15) :]
                del stack[-(op & 15) :]
                stack.append(join_group(kind, operands, b"\x01" * len(operands)))
        return stack[0]


class Rules(Breakdown):
    """Break-down with Takagi-Sugeno rules of one order, 0 or 1."""

    order: int

    def __init__(self) -> None:
        super().__init__()
        self._fitted: dict[tuple[object, ...], SubscriptionVector] = {}

    def _prepare(self, id: int, subscription: SubscriptionVector) -> Broken:
        s = subscription
        if s.pattern:
            raise ValueError("rules take no pattern: BFCPAB does")
        if s.consequents is None:
            if len(s.predicates) > 1:
                name = describe_vector(s)
                if name not in self._fitted:
                    self._fitted[name] = approximate(s, self.order)
                s = self._fitted[name]
        elif len(s.consequents[0]) != 1 + 2 * self.order:
            raise ValueError(f"consequents are not of order {self.order}")
        return Broken(id, s)

    def _score(
        self, entry: Broken, possibles: bytearray, certains: bytearray, readings: Readings
    ) -> Verdict:
        centres = readings.find_centres() if self.order else {}
        results = []
        assert entry.subscription.consequents is not None  # _prepare saw to it
        for (i, j), rule in zip(entry.pairs, entry.subscription.consequents, strict=True):
            result = rule[0]
            if self.order:
                x = centres[entry.subscription.predicates[i].attribute]
                y = centres[entry.subscription.predicates[j].attribute]
                result = min(255, max(0, result + ((rule[1] * x + rule[2] * y + 32) >> 6)))
            results.append(result)
        possible = average_rules(possibles, entry.pairs, results)
        certain = min(possible, average_rules(certains, entry.pairs, results))
        return possible, certain, find_least(SUGENO, possibles, 0, len(possibles))


class BFCPA1(Rules):
    """Function approximation by Takagi-Sugeno rules of first order: linear consequents."""

    order = 1


class BFCPA2(Rules):
    """Function approximation by Takagi-Sugeno rules of zero order: constant consequents."""

    order = 0


_PAIRS = [[(i, j) for i in range(n) for j in range(i + 1, n)] for n in range(17)]


def list_pairs(count: int) -> list[Pair]:
    """Return the fuzzy relational pairs of so many operands, in the order of the wire's rules."""
    return _PAIRS[count]


def join_group(kind: int, operands: list[Verdict], weights: bytes) -> Verdict:
    """Return the degrees of one group: the mean of its pairs, and the operand that decides."""
    highs = bytearray([operand[0] for operand in operands])
    lows = bytearray([operand[1] for operand in operands])
    pairs = list_pairs(len(operands))
    possible = average_pairs(kind, highs, pairs, weights)
    certain = possible if highs == lows else average_pairs(kind, lows, pairs, weights)
    return possible, certain, operands[find_least(kind, highs, 0, len(highs))][2]


def average_pairs(kind: int, degrees: bytearray, pairs: list[Pair], weights: bytes) -> int:
    """Return the mean of the two-dimensional degrees of all pairs."""
    total = 0
    for i, j in pairs:
        both = bytearray([degrees[i], degrees[j]])
        total += aggregate(kind, both, 0, 2, bytes([weights[i], weights[j]]), 0)
    return (total + len(pairs) // 2) // len(pairs)


def average_rules(degrees: bytearray, pairs: list[Pair], results: list[int]) -> int:
    """Return the fuzzy mean of the rules' results; 0 where no pair holds at all."""
    total = weight = 0
    for (i, j), result in zip(pairs, results, strict=True):
        share = min(degrees[i], degrees[j])
        total += share * result
        weight += share
    return (total + weight // 2) // weight if weight else 0


def size_breakdown(s: SubscriptionVector) -> int:
    """Return the bytes of fuzzifier parameters in a break-down vector: 3 for each use of a set.

    A group of one carries its set, a group of several a set twice for each of its pairs; so
    (p1 or p2 or p3) and p4 takes 21, as in the DENS paper.
    """
    count = len(s.predicates)
    if not s.pattern:
        return 3 if count == 1 else 6 * len(list_pairs(count))
    size = 0
    leaves: list[bool] = []  # of each operand on the stack: is it a predicate, not a group?
    for op in s.pattern:
        if op < count:
            leaves.append(True)
        elif op != NOT:
            operands = leaves[-(op & 15) :]
            del leaves[-(op & 15) :]
            size += 6 * len(list_pairs(len(operands))) if all(operands) else 3 * sum(operands)
            leaves.append(False)
    return size
