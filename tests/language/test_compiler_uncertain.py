"""Uncertain readings: possible and certain degrees of compiled subscriptions, against A-ToPSS.

The oracle takes the supremum of min(mu, pi) and the infimum of max(mu, 1 - pi) over every code, in
floating point (A-ToPSS, section 2.2, with the corrected necessity), from the ideal functions.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import And, PredicateNode, Scalar, SubscriptionTree
from denwatch.client.vocabulary import Attribute, load_shipped
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.language.oracle import POWERS, constraint, decode
from tests.language.sampling import draw_predicate

RESCUE = load_shipped("rescue")
MARGIN = 0.02
Points = tuple[int, int, int, int]


def draw_points(rng: random.Random, attribute: Attribute) -> Points:
    """Return a trapezoid around some value; texts are known exactly."""
    if attribute.symbols:
        return (rng.choice(attribute.symbol_codes),) * 4
    centre = rng.randint(0, attribute.last)
    widths = sorted(rng.randint(0, 40) for _ in range(4))
    ends = (centre - widths[3], centre - widths[1], centre + widths[0], centre + widths[2])
    a, b, c, d = (min(max(end, 0), attribute.last) for end in ends)
    return a, b, c, d


def trapezoid(x: int, points: Points) -> float:
    a, b, c, d = points
    if b <= x <= c:
        return 1.0
    if x <= a or x >= d:
        return 0.0
    return (x - a) / (b - a) if x < b else (d - x) / (d - c)


def measure(
    leaf: PredicateNode, points: Points, rate: Callable[[int], float]
) -> tuple[float, float]:
    """Return (possible, certain) of one predicate; outside the trapezoid nothing counts."""
    codes = range(points[0], points[3] + 1)
    possible = max(min(rate(x), trapezoid(x, points)) for x in codes)
    certain = min(max(rate(x), 1 - trapezoid(x, points)) for x in codes)
    return (1 - certain, 1 - possible) if leaf.negated else (possible, certain)


def bind(leaf: PredicateNode, table: dict[str, object]) -> Callable[[int], float]:
    def rate(code: int) -> float:
        degree = constraint(leaf.constraint, table, decode(code, table))
        for hedge in leaf.hedges:
            degree **= POWERS[hedge.value]
        return degree

    return rate


def test_possible_and_certain_degrees_decide_like_the_formulas() -> None:
    event = RESCUE.events["patient"]
    tables = RESCUE.document["event"]["patient"]["attribute"]  # type: ignore[index]
    narrow = [a for a in event.attributes.values() if not a.wide]
    decided = {True: 0, False: 0}
    for number in range(700):
        rng = random.Random(number)
        attributes = rng.sample(narrow, rng.randint(1, 3))
        leaves = tuple(draw_predicate(rng, attribute, hedging=0.2) for attribute in attributes)
        leaves = tuple(
            PredicateNode(p.attribute, p.constraint, p.negated, p.hedges) for p in leaves
        )
        low = rng.randint(0, 50) / 100
        high = rng.randint(max(5, round(low * 100)), 95) / 100
        condition = leaves[0] if len(leaves) == 1 else And(leaves)
        tree = SubscriptionTree(condition, possible=Scalar(high), certain=Scalar(low))
        try:
            compiled = compile_subscription(tree, RESCUE, compact=False)
        except LanguageError:
            continue
        if compiled.error > MARGIN:
            continue  # no triple follows the function at every degree: reported
        points = {a.bit: draw_points(rng, a) for a in attributes}
        degrees = [
            measure(leaf, points[a.bit], bind(leaf, tables[a.name]))
            for leaf, a in zip(leaves, attributes, strict=True)
        ]
        possible, certain = min(d[0] for d in degrees), min(d[1] for d in degrees)
        # Between two codes of a steep side lies more than 2 %: one code of slack in the reading.
        if abs(possible - high) < 4 * MARGIN or (low and abs(certain - low) < 4 * MARGIN):
            continue
        readings = [Reading(bit, points[bit]) for bit in sorted(points)]
        found = match(compiled.vector, NotificationVector(event.number, readings))
        assert found is not None
        wanted = possible >= high and certain >= low
        assert found.matched == wanted, (number, degrees, tree)
        decided[wanted] += 1
    assert decided[True] > 20
    assert decided[False] > 200
