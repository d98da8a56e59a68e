"""BFCPAB, BFCPA1 and BFCPA2: decomposition into the fuzzy Cartesian product (DENS paper, 4.3, 4.4).

Predicates are taken two by two: m of them make m(m-1)/2 fuzzy relational pairs (FRP), each with a
two-dimensional degree. They are walked as in FNIF, features first.

- BFCPA1 and BFCPA2 have one Takagi-Sugeno rule a pair, of first order (linear in the two values)
  and of zero order (a constant): the score is the fuzzy mean, each rule weighing the min of its two
  degrees. Subscriptions that bring consequents score as the protocol says. For the others
  `approximate` fits consequents to the aggregator when they are added, so their scores differ from
  it: one rule for each pair, by least squares over sample points that are the same on every run.
  The fuzzy mean is linear in the consequents, so this is one linear system, solved in floats;
  evaluation stays in integers.
- BFCPAB runs patterns of and/or/not. A group of several operands becomes its pairs: under "and" a
  pair holds as much as the aggregator of its two says, and the group is the fuzzy mean of its pairs
  (rules "pair holds: 1, does not: 0", so their plain mean); under "or" a pair is the max of its
  two, and the group is the mean of these maxima. The pattern's last connective joins the groups.

How BFCPAB differs from min and max: not at all for groups of two, hence not for three of the
paper's four patterns. For three or more, "and" is never below the min (one predicate at 0 leaves
the pairs without it), and "or" never above the max (one of three at 1, the others at 0, is 2/3).
The paper does not define "maximum mean"; this reading is the one dual to its fuzzy mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.protocol.cuts import cut_set
from denwatch.protocol.degrees import (
    ARITHMETIC,
    CRISP,
    GEOMETRIC,
    HARMONIC,
    MAX,
    MIN,
    PRODUCT,
    SUGENO,
    aggregate,
    slope,
)
from denwatch.protocol.matching import find_least
from denwatch.protocol.vectors import NOT, OR, Predicate, SubscriptionVector

from papers.dens_covering import describe_vector
from papers.dens_flat import FNIF, Entry, Readings, Verdict, combine_flat, decide

Floats = npt.NDArray[np.float64]

SAMPLES = 512
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
_STEP = 64  # a coefficient of 1 raises the result by 1/64 of a degree a step of the value


def approximate(s: SubscriptionVector, order: int) -> SubscriptionVector:
    """Return the subscription with rules in place of its aggregator.

    ProtocolError for more predicates than rules are allowed for.
    """
    count = len(s.predicates)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    values = _draw_values(s.predicates)
    degrees = np.stack([_fuzzify(p, values[i]) for i, p in enumerate(s.predicates)])
    target = 255 * _aggregate(s, degrees)
    shares = np.stack([np.minimum(degrees[i], degrees[j]) for i, j in pairs])
    fired = shares.sum(axis=0) > 0
    shares = shares[:, fired] / shares[:, fired].sum(axis=0)
    values = np.array([v / 257 if p.wide else v for p, v in zip(s.predicates, values, strict=True)])
    rules = _fit(shares, values[:, fired], target[fired], pairs, order)
    predicates = []
    for p in s.predicates:
        fields = dict(zip(Predicate.FIELDS, p.fields(), strict=True))
        fields["weight"] = 1
        predicates.append(Predicate(**fields))  # type: ignore[arg-type]
    return SubscriptionVector(
        s.event,
        predicates,
        SUGENO,
        s.threshold,
        s.certain,
        s.handle,
        s.validity,
        b"",
        s.why,
        s.recent,
        s.significance,
        rules,
    )


def _fit(
    shares: Floats, values: Floats, target: Floats, pairs: list[tuple[int, int]], order: int
) -> list[tuple[int, ...]]:
    """Return the consequents: constants, or (constant, slope, slope) as the wire codes them."""
    if target.size == 0:
        return [(0,) if order == 0 else (0, 0, 0) for _ in pairs]
    slopes = np.zeros((len(pairs), 2))
    if order:
        columns = []
        for share, (i, j) in zip(shares, pairs, strict=True):
            columns += [share, share * values[i], share * values[j]]
        answer = np.linalg.lstsq(np.stack(columns, axis=1), target, rcond=1e-9)[0]
        found = answer.reshape(-1, 3)[:, 1:] * _STEP
        slopes = np.clip(np.rint(found), -128, 127)
    # The slopes are rounded and limited, so the constants are fitted to what these leave.
    rest = target.copy()
    for share, (i, j), (left, right) in zip(shares, pairs, slopes, strict=True):
        rest -= share * (left * values[i] + right * values[j]) / _STEP
    constants = np.linalg.lstsq(shares.T, rest, rcond=1e-9)[0]
    if order == 0:
        return [(int(c),) for c in np.clip(np.rint(constants), 0, 255)]
    bounded = np.clip(np.rint(constants), -32768, 32767)
    return [(int(c), int(a), int(b)) for c, (a, b) in zip(bounded, slopes, strict=True)]


def _draw_values(predicates: list[Predicate]) -> Floats:
    """Return sample values, a row for each predicate, spread evenly over where its set is not 0.

    Multiples of irrational numbers, modulo 1, fill a cube evenly without a random source. Several
    predicates on one attribute see the same values.
    """
    turns = np.arange(1, SAMPLES + 1)
    rows: dict[int, Floats] = {}
    for p in predicates:
        low, high = (0, p.last) if p.negated else cut_set(p, 1)
        if p.attribute not in rows:
            root = _PRIMES[p.attribute] ** 0.5
            rows[p.attribute] = low + (turns * root % 1.0) * (high - low)
    return np.stack([rows[p.attribute] for p in predicates])


def _fuzzify(p: Predicate, values: Floats) -> Floats:
    """Return the degrees (0..1) of the values in a predicate, hedges and negation included."""
    below = _lose(np.maximum(p.low - values, 0), p.left, p.wide)
    above = _lose(np.maximum(values - p.high, 0), p.right, p.wide)
    degrees: Floats = np.clip(1 - below - above, 0, 1)
    code = p.hedge
    while code:
        degrees = degrees ** (2.0, 3.0, 0.5)[(code & 3) - 1]
        code >>= 2
    return 1 - degrees if p.negated else degrees


def _lose(distance: Floats, code: int, wide: bool) -> Floats:
    """Return what a degree (0..1) loses at a distance from the core."""
    if code == CRISP:
        return np.where(distance > 0, 1.0, 0.0)
    lost: Floats = distance * (slope(code) / (255 * (65792 if wide else 256)))
    return lost


def _aggregate(s: SubscriptionVector, degrees: Floats) -> Floats:
    """Return the aggregator's value (0..1) at every sample."""
    kind = s.aggregator
    if kind in (MIN, MAX):
        return np.asarray(degrees.min(axis=0) if kind == MIN else degrees.max(axis=0))
    if kind in (PRODUCT, GEOMETRIC):
        product: Floats = degrees.prod(axis=0)
        return product if kind == PRODUCT else product ** (1 / len(degrees))
    if kind == HARMONIC:
        inverse = np.where(degrees > 0, 1 / np.maximum(degrees, 1e-12), np.inf).sum(axis=0)
        return np.asarray(len(degrees) / inverse)
    weights = np.array([1.0 if kind == ARITHMETIC else p.weight for p in s.predicates])
    return np.asarray(weights @ degrees / weights.sum())


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
