"""Fit Takagi-Sugeno consequents to an aggregator, so that rules can stand for it (DENS paper, 4.4).

For every pair of predicates one rule, of order 0 or 1, chosen by least squares over sample points
that are the same on every run. The fuzzy mean is linear in the consequents, so this is one linear
system. The fit is computed in floats when a subscription is loaded; evaluation stays in integers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
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
    slope,
)
from denwatch.protocol.vectors import Predicate, SubscriptionVector

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
