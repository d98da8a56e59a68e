"""Nothing that a person can write breaks the compiler: it answers, or it says what is wrong.

Valid random subscriptions with one part replaced by something wild: values that are no numbers,
units of nothing, points in any order, names that are empty or long, counts that are not whole.
Whatever compiles must decompile to a tree that compiles to the same bytes.
"""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from denwatch.client.compiler import compile_subscription, decompile
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import (
    About,
    Aggregator,
    Condition,
    Constraint,
    CrispComparison,
    CrispRange,
    DeadBand,
    Extension,
    Hedge,
    Moment,
    Name,
    NamedTerm,
    Not,
    Operator,
    Persistence,
    PredicateNode,
    Prefer,
    Quantity,
    Recent,
    Scalar,
    Shape,
    SubscriptionTree,
    SugenoRule,
    Text,
    Value,
)
from denwatch.client.vocabulary import SHIPPED, load_shipped

from tests.language.sampling import LATTICE, OTHERS, draw_subscription

NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 37.0, 255.0, 65535.0, 359.99, 1e308, -1e308, 1e-320, 2.0**70]
NUMBERS += [math.inf, -math.inf, math.nan]
UNITS = [None, None, None, "°C", "°F", "km/h", "m", "bpm", "", "xyz", "%", "min", "d", "°"]
NAMES = ["temp", "T°", "HR", "triage", "east", "born", "dd", "sky", "", "x" * 500, "a.b.c", "."]
TEXTS = ["red", "green", "high", "", 'x"y', "clear"]
MOMENTS = ["14:30", "2026-11-16", "2026-11-16T14:30", "", "99:99", "24:00", "0001-01-01"]
MOMENTS += ["9999-12-31T23:59:59+14:00", "14:30:00.5", "14:30+01:00"]
SHAPES = ["trapezoid", "triangle", "rising", "falling", "bell", "gaussian", "fuzzifier", "zap"]


def quantity(rng: random.Random) -> Quantity:
    wild = rng.random() < 0.5
    return Quantity(rng.choice(NUMBERS) if wild else rng.uniform(0, 300), rng.choice(UNITS))


def value(rng: random.Random) -> Value:
    kind = rng.choice(["quantity", "quantity", "text", "moment"])
    if kind == "quantity":
        return quantity(rng)
    return Text(rng.choice(TEXTS)) if kind == "text" else Moment(rng.choice(MOMENTS))


def points(rng: random.Random) -> tuple[Value, ...]:
    count = rng.randrange(6)
    if rng.random() < 0.5:
        return tuple(map(Quantity, sorted(rng.uniform(-50, 300) for _ in range(count))))
    return tuple(value(rng) for _ in range(count))


def constraint(rng: random.Random) -> Constraint:
    return rng.choice(
        [
            CrispComparison(rng.choice(list(Operator)), value(rng)),
            CrispRange(value(rng), value(rng)),
            NamedTerm(Name(rng.choice([*TEXTS, "low", "normal", "east"]))),
            About(value(rng), rng.choice([None, quantity(rng)])),
            Shape(rng.choice(SHAPES), points(rng)),
            Extension(rng.choice(["near", "sector", "nope"]), points(rng)),
        ]
    )


def scalar(rng: random.Random) -> Scalar | None:
    return rng.choice([None, Scalar(rng.choice(NUMBERS)), Scalar(rng.random())])


def spoil(rng: random.Random, condition: Condition) -> Condition:
    """Return the condition with one of its predicates made wild."""
    if isinstance(condition, Not):
        return Not(spoil(rng, condition.operand))
    if not isinstance(condition, PredicateNode):
        operands = list(condition.operands)
        i = rng.randrange(len(operands))
        operands[i] = spoil(rng, operands[i])
        return dataclasses.replace(condition, operands=tuple(operands))
    hedges = tuple(rng.choices(list(Hedge), k=rng.randrange(9)))
    return rng.choice(
        [
            dataclasses.replace(condition, constraint=constraint(rng), hedges=()),
            dataclasses.replace(condition, attribute=Name(rng.choice(NAMES))),
            dataclasses.replace(condition, hedges=hedges),
            dataclasses.replace(
                condition, possible=scalar(rng), certain=scalar(rng), weight=scalar(rng)
            ),
        ]
    )


def spoil_settings(rng: random.Random, tree: SubscriptionTree) -> SubscriptionTree:
    """Return the subscription with one setting made wild."""
    slopes = rng.choice([None, (Scalar(rng.choice(NUMBERS)), Scalar(rng.random()))])
    rule = SugenoRule(rng.randrange(-1, 4), rng.randrange(4), Scalar(rng.choice(NUMBERS)), slopes)
    wild: dict[str, object] = {
        "name": Name(rng.choice(NAMES)),
        "event": Name(rng.choice(NAMES)),
        "aggregator": Aggregator(rng.choice(["zz", "minimum", *OTHERS]), (quantity(rng),)),
        "possible": scalar(rng),
        "certain": scalar(rng),
        "rules": (rule,) * rng.randint(1, 3),
        "recent": Recent(rng.choice([None, "recent", "zz"]), quantity(rng), quantity(rng)),
        "score": scalar(rng),
        "prefer": (Prefer(Name("a"), Name(rng.choice("ab"))),),
        "top": scalar(rng),
        "valid_for": quantity(rng),
        "expiry": quantity(rng),
        "dead_bands": (DeadBand(Name(rng.choice(NAMES)), quantity(rng)),),
        "relative_band": scalar(rng),
        "hysteresis": scalar(rng),
        "persistence": Persistence(Scalar(rng.choice(NUMBERS)), Scalar(rng.choice(NUMBERS))),
        "heartbeat": quantity(rng),
        "quiet": quantity(rng),
    }
    field = rng.choice(sorted(wild))
    return dataclasses.replace(tree, **{field: wild[field]})  # type: ignore[arg-type]


def survive(numbers: range) -> tuple[int, int]:
    """Compile the spoiled subscriptions; return how many compiled and how many were refused."""
    compiled = refused = 0
    for number in numbers:
        rng = random.Random(number)
        vocabulary = load_shipped(rng.choice(SHIPPED))
        kind = rng.choice([*LATTICE, *OTHERS, "nested", "weighted", "rules"])
        tree = draw_subscription(rng, vocabulary, kind)
        if rng.random() < 0.6:
            tree = dataclasses.replace(tree, condition=spoil(rng, tree.condition))
        else:
            tree = spoil_settings(rng, tree)
        try:
            found = compile_subscription(tree, vocabulary)
        except LanguageError:
            refused += 1
            continue
        again = decompile(found.data, vocabulary, found.options)
        assert compile_subscription(again, vocabulary).data == found.data, number
        compiled += 1
    return compiled, refused


def test_wild_subscriptions_are_compiled_or_refused() -> None:
    compiled, refused = survive(range(250))
    assert compiled > 50
    assert refused > 50


@pytest.mark.slow
def test_ten_thousand_wild_subscriptions_are_compiled_or_refused() -> None:
    assert sum(survive(range(10_000))) == 10_000
