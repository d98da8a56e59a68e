"""Plug-ins: the shipped circular one, and strangers that add one thing of each kind."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest
from denwatch.client.compiler import CompiledSubscription, compile_subscription, decompile
from denwatch.client.errors import LanguageError
from denwatch.client.plugins import (
    SHIPPED,
    LanguagePlugin,
    Lowered,
    Parameter,
    PluginRegistry,
    load_registry,
)
from denwatch.client.syntax import (
    Aggregator,
    And,
    Condition,
    CrispRange,
    Extension,
    Hedge,
    Name,
    NamedTerm,
    Or,
    PredicateNode,
    Quantity,
    Scalar,
    Shape,
    SourceSpan,
    SubscriptionTree,
    Value,
)
from denwatch.client.vocabulary import Attribute, load_shipped, parse_vocabulary
from denwatch.client.vocabulary.values import read_value

from tests.protocol.evaluator import SCRATCH, evaluate

WEATHER = load_shipped("weather")
RESCUE = load_shipped("rescue")
DIRECTION = WEATHER.events["weather"].attributes["wind_direction"]


def near(centre: float, *spread: float, **options: object) -> PredicateNode:
    arguments = tuple(map(Quantity, (centre, *spread)))
    return PredicateNode(Name("wind_direction"), Extension("near", arguments), **options)  # type: ignore[arg-type]


def rate(compiled: CompiledSubscription, code: int) -> float:
    """Return the degree that a device gives, matched or not."""
    bit = compiled.vector.predicates[0].attribute
    values = [code] * 16
    degree = evaluate(compiled.data, 0, 1 << bit, values, bytearray(SCRATCH))
    return (degree if degree >= 0 else ~degree) / 255


# Circular -------------------------------------------------------------------------------------


def test_350_is_near_10() -> None:
    compiled = compile_subscription(SubscriptionTree(near(10.0, 40.0)), WEATHER)
    assert rate(compiled, DIRECTION.to_code(350)) == pytest.approx(0.5, abs=0.03)
    assert rate(compiled, DIRECTION.to_code(10)) == pytest.approx(1.0, abs=0.03)
    assert rate(compiled, DIRECTION.to_code(180)) == 0.0


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("spread", [15.0, 45.0, 90.0, 180.0])
@pytest.mark.parametrize("centre", [0.0, 5.0, 90.0, 200.0, 350.0, 359.5, -10.0, 730.0])
def test_the_vector_follows_the_plug_ins_own_evaluation(
    centre: float, spread: float, negated: bool
) -> None:
    """Over the whole circle, also where a set passes north."""
    compiled = compile_subscription(
        SubscriptionTree(near(centre, spread, negated=negated)), WEATHER
    )
    extension = load_registry().predicates["near"]
    steepest = 1.5 * DIRECTION.step / spread  # how far rounding a place to a step can move a degree
    for code in range(256):
        wanted = extension.evaluate(
            DIRECTION.to_value(code), (Quantity(centre), Quantity(spread)), DIRECTION
        )
        wanted = 1 - wanted if negated else wanted
        assert rate(compiled, code) == pytest.approx(wanted, abs=0.015 + steepest), code


@pytest.mark.parametrize(("start", "end"), [(340, 20), (20, 340), (0, 90), (270, 0), (359.5, 10)])
def test_sectors_go_clockwise(start: float, end: float) -> None:
    sector = Extension("sector", (Quantity(start, "°"), Quantity(end, "°")))
    compiled = compile_subscription(SubscriptionTree(PredicateNode(Name("dd"), sector)), WEATHER)
    extension = load_registry().predicates["sector"]
    for code in range(256):
        wanted = extension.evaluate(DIRECTION.to_value(code), sector.arguments, DIRECTION)
        assert rate(compiled, code) == wanted


def test_circular_predicates_join_others_and_decompile() -> None:
    tree = SubscriptionTree(
        And((near(350.0, 30.0), PredicateNode(Name("wind_speed"), NamedTerm(Name("storm")))))
    )
    compiled = compile_subscription(tree, WEATHER)
    assert compile_subscription(decompile(compiled.data, WEATHER), WEATHER).data == compiled.data


@pytest.mark.parametrize(
    ("predicate", "vocabulary", "message"),
    [
        (near(10.0, 200.0), WEATHER, "a spread is at most half the circle, 180"),
        (near(10.0, -1.0), WEATHER, "a width must be above 0"),
        (near(10.0, 20.0, hedges=(Hedge.VERY,)), WEATHER, "becomes several predicates here"),
        (near(10.0, 20.0, possible=Scalar(0.5)), WEATHER, "becomes several predicates here"),
        (
            PredicateNode(Name("dd"), Extension("near")),
            WEATHER,
            "takes 1 to 2 arguments, not 0 (centre",
        ),
        (
            PredicateNode(Name("heart_rate"), Extension("near", (Quantity(9.0),))),
            RESCUE,
            "heart_rate is not circular",
        ),
    ],
)
def test_mistakes_with_circles(predicate: PredicateNode, vocabulary: object, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        compile_subscription(SubscriptionTree(predicate), vocabulary)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_hedges_are_welcome_where_the_circle_is_one_piece() -> None:
    south = near(180.0, 40.0, hedges=(Hedge.VERY,), possible=Scalar(0.2))
    (p,) = compile_subscription(SubscriptionTree(south), WEATHER).vector.predicates
    assert (p.hedge, p.possible) == (1, 51)


def test_a_mistake_inside_a_plug_in_has_its_place() -> None:
    wide = Quantity(500.0, span=SourceSpan(20, 23))
    bad = PredicateNode(Name("dd"), Extension("near", (Quantity(10.0), wide)))
    with pytest.raises(LanguageError) as caught:
        compile_subscription(SubscriptionTree(bad), WEATHER)
    assert caught.value.at == 21


# Strangers ------------------------------------------------------------------------------------


class Round:
    """A predicate type: one of the multiples of ten next to a value."""

    name = "round"
    words = ("a round number near",)
    tag = "round-predicate"
    parameters = (Parameter("value"),)

    def lower(self, predicate: PredicateNode, attribute: Attribute) -> Condition:
        constraint = predicate.constraint
        assert isinstance(constraint, Extension)
        value = read_value(constraint.arguments[0], attribute)
        tens = {math.floor(value / 10) * 10.0, math.ceil(value / 10) * 10.0}
        parts = tuple(
            PredicateNode(predicate.attribute, CrispRange(Quantity(ten), Quantity(ten)))
            for ten in sorted(tens)
        )
        return parts[0] if len(parts) == 1 else Or(parts)

    def evaluate(self, x: float, arguments: Sequence[Value], attribute: Attribute) -> float:
        value = read_value(arguments[0], attribute)
        return float(x in (math.floor(value / 10) * 10, math.ceil(value / 10) * 10))


class Cosine:
    """A membership function: one arch of a cosine."""

    name = "cosine"
    words = ("cosine",)
    tag = "cosine"
    parameters = (Parameter("centre"), Parameter("width"))

    def find_core(self, points: Sequence[float]) -> tuple[float, float]:
        if points[1] <= 0:
            raise LanguageError("cosine: the width must be above 0")
        return points[0], points[0]

    def evaluate(self, x: float, points: Sequence[float]) -> float:
        centre, width = points
        return (
            (1 + math.cos(math.pi * (x - centre) / width)) / 2 if abs(x - centre) < width else 0.0
        )


class AtLeast:
    """An aggregator: so many of the operands."""

    name = "at_least"
    words = ("at least so many",)
    tag = "at-least"
    parameters = (Parameter("count"),)

    def lower(self, operands: tuple[Condition, ...], arguments: Sequence[Quantity]) -> Lowered:
        count = int(arguments[0].value)
        if not 1 <= count <= len(operands):
            raise LanguageError.at_node(f"{count} of {len(operands)} is no choice", arguments[0])
        groups = [And(group) if count > 1 else group[0] for group in combinations(operands, count)]
        return Lowered(Or(tuple(groups)) if len(groups) > 1 else groups[0])

    def evaluate(self, degrees: Sequence[float], arguments: Sequence[float]) -> float:
        return sorted(degrees, reverse=True)[int(arguments[0]) - 1]


STRANGERS = PluginRegistry.of(
    [
        LanguagePlugin(
            "strangers", predicates=(Round(),), shapes=(Cosine(),), aggregators=(AtLeast(),)
        )
    ]
)


def test_a_predicate_type_from_outside() -> None:
    leaf = PredicateNode(Name("heart_rate"), Extension("round", (Quantity(74.0),)))
    compiled = compile_subscription(SubscriptionTree(leaf), RESCUE, registry=STRANGERS)
    matching = [code for code in range(256) if rate(compiled, code) == 1.0]
    assert matching == [70, 80]
    attribute = RESCUE.events["patient"].attributes["heart_rate"]
    wanted = [x for x in range(256) if Round().evaluate(x, (Quantity(74.0),), attribute)]
    assert matching == wanted


def test_a_membership_function_from_outside_in_a_subscription_and_a_vocabulary() -> None:
    shape = Shape("cosine", (Quantity(120.0), Quantity(50.0)))
    tree = SubscriptionTree(PredicateNode(Name("heart_rate"), shape))
    compiled = compile_subscription(tree, RESCUE, registry=STRANGERS)
    assert 0.01 < compiled.error < 0.12
    for code in range(256):
        wanted = Cosine().evaluate(code, (120.0, 50.0))
        assert rate(compiled, code) == pytest.approx(wanted, abs=compiled.error + 0.005)
    text = """
    name = "v"
    [event.e]
    number = 1
    [event.e.attribute.x]
    bit = 0
    domain = [0, 255]
    [event.e.attribute.x.terms]
    middling = { cosine = [120, 50] }
    """
    vocabulary = parse_vocabulary(text, STRANGERS)
    term = vocabulary.events["e"].attributes["x"].terms["middling"]
    assert term.membership.evaluate(145) == pytest.approx(0.5)
    with pytest.raises(LanguageError, match="cosine: the width must be above 0"):
        parse_vocabulary(text.replace("50]", "-1]"), STRANGERS)
    with pytest.raises(LanguageError, match='unknown membership function "cosine"'):
        parse_vocabulary(text)


def test_an_aggregator_from_outside() -> None:
    operands = (
        PredicateNode(Name("heart_rate"), NamedTerm(Name("high"))),
        PredicateNode(Name("patient_temperature"), NamedTerm(Name("high"))),
        PredicateNode(Name("age"), NamedTerm(Name("old"))),
    )
    tree = SubscriptionTree(And(operands), aggregator=Aggregator("at_least", (Quantity(2.0),)))
    compiled = compile_subscription(tree, RESCUE, registry=STRANGERS)
    assert len(compiled.vector.predicates) == 3
    scratch = bytearray(SCRATCH)
    for codes in ((200, 200, 0), (200, 0, 0), (130, 140, 150), (0, 200, 255), (0, 0, 0)):
        values = [codes[0], codes[1], *[0] * 7, codes[2]]
        degree = evaluate(compiled.data, 0, 0b1000000011, values, scratch)
        degrees = [scratch[i] / 255 for i in range(3)]
        wanted = AtLeast().evaluate(degrees, (2.0,))
        assert (degree if degree >= 0 else ~degree) / 255 == pytest.approx(wanted)
    bad = SubscriptionTree(And(operands), aggregator=Aggregator("at_least", (Quantity(9.0),)))
    with pytest.raises(LanguageError, match="9 of 3 is no choice"):
        compile_subscription(bad, RESCUE, registry=STRANGERS)


def test_names_are_added_once() -> None:
    with pytest.raises(
        LanguageError, match='plug-in "b" adds "round", which another one has added'
    ):
        PluginRegistry.of(
            [LanguagePlugin("a", predicates=(Round(),)), LanguagePlugin("b", predicates=(Round(),))]
        )


STRANGER = """
from denwatch.client.extensions.circular import Near
from denwatch.client.plugins import LanguagePlugin

class Close(Near):
    name = "close"
    words = ("close to",)
    tag = "close"

PLUGIN = LanguagePlugin("stranger", predicates=(Close(),))
NOT_A_PLUGIN = 7
"""
ASK = "from denwatch.client.plugins import load_registry; print(sorted(load_registry().predicates))"


def install(folder: Path, entry: str) -> subprocess.CompletedProcess[str]:
    """Return what an interpreter finds when a distribution declares an entry point."""
    (folder / "stranger.py").write_text(STRANGER)
    info = folder / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[denwatch.language]\n{entry}\n")
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", ASK],
        env={"PYTHONPATH": f"{folder}:{root}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_installed_distribution_adds_its_plug_in(tmp_path: Path) -> None:
    run = install(tmp_path, "stranger = stranger:PLUGIN")
    assert run.stdout.strip() == "['close', 'near', 'sector']", run.stderr


def test_an_entry_point_that_is_no_plug_in_is_refused(tmp_path: Path) -> None:
    run = install(tmp_path, "stranger = stranger:NOT_A_PLUGIN")
    assert "entry point stranger of denwatch.language is not a LanguagePlugin" in run.stderr


def test_the_shipped_one_may_be_declared_as_well(tmp_path: Path) -> None:
    run = install(tmp_path, f"circular = {SHIPPED[0]}")
    assert run.stdout.strip() == "['near', 'sector']", run.stderr
