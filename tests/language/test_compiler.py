"""Trees to vectors: what each part of the language becomes on the wire."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from denwatch.client.compiler import Options, compile_subscription
from denwatch.client.language import parse
from denwatch.client.syntax import (
    About,
    Aggregator,
    And,
    Condition,
    Constraint,
    CrispComparison,
    CrispRange,
    DeadBand,
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
from denwatch.client.vocabulary import Vocabulary, build_vocabulary, load_shipped
from denwatch.protocol import vectors
from denwatch.protocol.cuts import cut
from denwatch.protocol.degrees import (
    CRISP,
    MORE_OR_LESS,
    SUGENO,
    VERY,
    WEIGHTED,
)
from denwatch.protocol.timecode import decode_duration

RESCUE = load_shipped("rescue")


def leaf(
    name: str, constraint: Constraint | str, *hedges: Hedge, negated: bool = False
) -> PredicateNode:
    """Return a predicate; a text is a term."""
    if isinstance(constraint, str):
        constraint = NamedTerm(Name(constraint))
    return PredicateNode(Name(name), constraint, negated, hedges)


HOT = leaf("patient_temperature", "high")
FAST = leaf("heart_rate", "high")
SHORT_OF_AIR = leaf("oxygen_saturation", "low")
OLD = leaf("age", "old")


def build(
    condition: Condition, compact: bool = True, **fields: object
) -> vectors.SubscriptionVector:
    """Return the vector of a condition under the rescue vocabulary."""
    tree = SubscriptionTree(condition, **fields)  # type: ignore[arg-type]
    return compile_subscription(tree, RESCUE, compact=compact).vector


def core(constraint: Constraint, name: str = "patient_temperature") -> tuple[int, int, bool]:
    """Return the core of one crisp predicate, and whether it is negated."""
    (p,) = build(leaf(name, constraint)).predicates
    assert p.left == p.right == CRISP
    return p.low, p.high, p.negated


# Crisp ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "value", "wanted"),
    [
        (Operator.GREATER, Quantity(40.0), (151, 255, False)),
        (Operator.AT_LEAST, Quantity(40.0), (150, 255, False)),
        (Operator.LESS, Quantity(35.0), (0, 99, False)),
        (Operator.AT_MOST, Quantity(35.0), (0, 100, False)),
        (Operator.EQUAL, Quantity(37.0), (120, 120, False)),
        (Operator.UNEQUAL, Quantity(37.0), (120, 120, True)),
        (Operator.GREATER, Quantity(40.05), (151, 255, False)),
        (Operator.AT_LEAST, Quantity(40.05), (151, 255, False)),
        (Operator.GREATER, Quantity(104, "°F"), (151, 255, False)),
        (Operator.AT_LEAST, Quantity(313.15, "K"), (150, 255, False)),
    ],
)
def test_comparisons_take_the_values_that_compare_so(
    operator: Operator, value: Value, wanted: tuple[int, int, bool]
) -> None:
    assert core(CrispComparison(operator, value)) == wanted


def test_ranges_include_their_ends() -> None:
    assert core(CrispRange(Quantity(36.0), Quantity(38.0))) == (110, 130, False)
    assert core(CrispRange(Quantity(36.01), Quantity(37.99))) == (111, 129, False)


def test_a_range_narrower_than_a_step_is_that_step_and_reported() -> None:
    tree = SubscriptionTree(
        leaf("patient_temperature", CrispRange(Quantity(37.02), Quantity(37.04)))
    )
    compiled = compile_subscription(tree, RESCUE)
    assert compiled.vector.predicates[0].low == 120
    assert "narrower than one step" in str(compiled.report[0])


def test_texts_are_symbols_by_any_name() -> None:
    assert core(CrispComparison(Operator.EQUAL, Text("red")), "triage") == (2, 2, False)
    assert core(CrispComparison(Operator.UNEQUAL, Text("RED")), "triage") == (2, 2, True)
    assert core(NamedTerm(Name("immediate")), "category") == (2, 2, False)
    assert core(CrispComparison(Operator.AT_LEAST, Text("voice")), "consciousness") == (2, 3, False)
    assert core(CrispRange(Text("pain"), Text("voice")), "AVPU") == (1, 2, False)


def test_dates_and_times_are_codes_of_their_domain() -> None:
    low, high, _ = core(CrispComparison(Operator.AT_LEAST, Moment("12:00")), "measured_at")
    assert (low, high) == (32768, 65535)
    low, high, _ = core(CrispComparison(Operator.LESS, Moment("1900-01-11")), "born")
    assert (low, high) == (0, 9)
    low, high, _ = core(
        CrispComparison(Operator.EQUAL, Moment("2026-01-01T05:00")), "blocked_since"
    )
    assert (low, high) == (5, 5)


# Fuzzy ----------------------------------------------------------------------------------------


def test_synonyms_and_organisations_give_the_same_bytes() -> None:
    first = compile_subscription(SubscriptionTree(And((HOT, FAST))), RESCUE)
    second = SubscriptionTree(And((leaf("T°", "febrile"), leaf("HR", "tachycardic"))))
    assert compile_subscription(second, RESCUE).data == first.data
    assert first.vocabulary == RESCUE.hash


def test_three_plain_predicates_take_17_bytes() -> None:
    compiled = compile_subscription(SubscriptionTree(And((HOT, FAST, SHORT_OF_AIR))), RESCUE)
    assert len(compiled.data) == 17


def test_negation_is_free() -> None:
    tree = SubscriptionTree(
        And((HOT, leaf("heart_rate", "normal", negated=True), Not(SHORT_OF_AIR)))
    )
    compiled = compile_subscription(tree, RESCUE)
    assert len(compiled.data) == 17
    assert [p.negated for p in compiled.vector.predicates] == [False, True, True]


def test_about_has_the_spread_of_its_attribute_or_its_own() -> None:
    (p,) = build(leaf("heart_rate", About(Quantity(120)))).predicates
    (q,) = build(leaf("heart_rate", About(Quantity(120), Quantity(10, "bpm")))).predicates
    (r,) = build(leaf("heart_rate", About(Quantity(120), Quantity(40)))).predicates
    assert p == q
    assert (p.low, p.high) == (r.low, r.high) == (120, 120)
    assert r.left < p.left


def test_hedges_go_to_the_wire_where_there_is_room() -> None:
    vector = build(And((leaf("temp", "high", Hedge.VERY), FAST)))
    assert [p.hedge for p in vector.predicates] == [VERY, 0]
    (p,) = build(leaf("temp", "high", Hedge.VERY, Hedge.SOMEWHAT)).predicates
    assert p.hedge == VERY << 2 | MORE_OR_LESS  # somewhat acts first


@pytest.mark.parametrize("threshold", [0.1, 0.35, 0.5, 0.7, 0.95])
@pytest.mark.parametrize("hedge", list(Hedge))
def test_a_hedge_fitted_away_under_minimum_keeps_the_threshold_exactly(
    hedge: Hedge, threshold: float
) -> None:
    """Three predicates with a hedge would take 20 bytes: the same values match in 17."""
    condition = And((leaf("temp", "high", hedge), FAST, SHORT_OF_AIR))
    exact = build(condition, compact=False, possible=Scalar(threshold))
    tree = SubscriptionTree(condition, possible=Scalar(threshold))
    short = compile_subscription(tree, RESCUE)
    assert len(short.data) == 17
    assert exact.predicates[0].hedge
    assert not short.vector.predicates[0].hedge
    wanted = cut(exact.predicates[0], exact.threshold)
    assert cut(short.vector.predicates[0], exact.threshold) == wanted
    assert any("fitted away" in entry.message for entry in short.report)


def test_a_hedge_under_a_mean_is_fitted_with_its_error_reported() -> None:
    condition = And((leaf("temp", "high", Hedge.VERY), FAST, SHORT_OF_AIR))
    tree = SubscriptionTree(condition, aggregator=Aggregator("arithmetic_mean"))
    compiled = compile_subscription(tree, RESCUE)
    assert len(compiled.data) == 17
    assert 0.02 < compiled.error < 0.1
    exact = compile_subscription(tree, RESCUE, compact=False)
    assert len(exact.data) == 20
    assert exact.error < 0.02


def test_unlike_sides_share_a_slope_only_to_save_bytes() -> None:
    sides = leaf("heart_rate", Shape("trapezoid", tuple(map(Quantity, (40.0, 60.0, 100.0, 160.0)))))
    (p,) = build(sides).predicates
    assert p.left != p.right
    exact = build(And((HOT, sides, SHORT_OF_AIR)), compact=False)
    short = build(And((HOT, sides, SHORT_OF_AIR)))
    assert short.predicates[1].left == short.predicates[1].right
    assert cut(short.predicates[1], 128) == cut(exact.predicates[1], 128)


def test_three_hedges_become_two_or_a_fit() -> None:
    (p,) = build(leaf("temp", "high", Hedge.VERY, Hedge.VERY, Hedge.SOMEWHAT)).predicates
    assert p.hedge == VERY  # the root undoes one square
    (q,) = build(leaf("temp", "high", Hedge.VERY, Hedge.VERY, Hedge.VERY)).predicates
    assert q.hedge == 0
    assert q.low > 145  # the eighth power is much narrower than "high"


# Aggregators, thresholds, the rest ------------------------------------------------------------


def test_weights_are_whole_numbers_with_the_shares_that_were_written() -> None:
    def weigh(*weights: float) -> list[int]:
        operands = [
            PredicateNode(p.attribute, p.constraint, weight=Scalar(w))
            for p, w in zip((HOT, FAST, OLD), weights, strict=False)
        ]
        vector = build(And(tuple(operands)))
        assert vector.aggregator == WEIGHTED
        return [p.weight for p in vector.predicates]

    assert weigh(2, 1) == [2, 1]
    assert weigh(0.5, 0.25, 0.25) == [2, 1, 1]
    assert weigh(0.7, 0.3) == [7, 3]


def test_thresholds_are_the_lowest_degrees_that_reach_them() -> None:
    assert build(HOT).threshold == 128
    assert build(HOT, possible=Scalar(0.7)).threshold == 179
    assert build(HOT, possible=Scalar(1.0)).threshold == 255
    both = build(HOT, possible=Scalar(0.6), certain=Scalar(0.2))
    assert (both.threshold, both.certain) == (153, 51)
    alone = build(HOT, certain=Scalar(0.8))
    assert (alone.threshold, alone.certain) == (204, 204)
    own = PredicateNode(HOT.attribute, HOT.constraint, possible=Scalar(0.6), certain=Scalar(0.2))
    (p,) = build(own).predicates
    assert (p.possible, p.certain) == (153, 51)


def test_rules_follow_the_wires_order_and_units() -> None:
    rules = (
        SugenoRule(1, 2, Scalar(0.2), (Scalar(0.0), Scalar(0.004))),
        SugenoRule(1, 3, Scalar(0.5)),
        SugenoRule(3, 2, Scalar(1.0), (Scalar(0.01), Scalar(0.0))),
    )
    vector = build(And((SHORT_OF_AIR, FAST, HOT)), rules=rules)
    assert vector.aggregator == SUGENO
    assert [p.attribute for p in vector.predicates] == [0, 1, 3]
    hot_fast, hot_air, fast_air = vector.consequents or []
    assert hot_fast[1:] == (round(64 * 0.01 * 25.5), 0)
    assert hot_fast[0] == round(255 * (1.0 + 0.01 * 25))
    assert hot_air == (round(255 * 0.5), 0, 0)
    assert fast_air[1:] == (round(64 * 0.004 * 255), 0)
    flat = build(And((HOT, FAST)), rules=(SugenoRule(1, 2, Scalar(0.4)),))
    assert flat.consequents == [(102,)]


def test_times_are_not_shorter_than_written() -> None:
    vector = build(HOT, valid_for=Quantity(1, "h"), recent=Recent("recent"))
    assert decode_duration(vector.validity) >= 3600
    assert vector.recent is not None
    until, gone = map(decode_duration, vector.recent)
    assert (until, gone) == (30, 120)
    sharp = build(HOT, recent=Recent(within=Quantity(20, "s"))).recent
    assert sharp is not None
    assert sharp[1] == sharp[0] + 1


def test_significance_is_in_the_wires_units() -> None:
    vector = build(
        And((HOT, FAST)),
        dead_bands=(
            DeadBand(Name("HR"), Quantity(5, "bpm")),
            DeadBand(Name("temp"), Quantity(0.9, "°F")),
        ),
        relative_band=Scalar(0.1),
        hysteresis=Scalar(0.1),
        persistence=Persistence(Scalar(3), Scalar(5)),
        heartbeat=Quantity(4, "min"),
        quiet=Quantity(30),
    )
    s = vector.significance
    assert s is not None
    assert s.bands == bytes([5, 5])
    assert (s.relative, s.hysteresis, s.hits, s.window) == (26, 26, 3, 5)
    assert (decode_duration(s.heartbeat), decode_duration(s.quiet)) == (240, 30)


def test_options_stay_with_the_node_and_survive_a_dictionary() -> None:
    tree = SubscriptionTree(
        HOT,
        name=Name("fever"),
        score=Scalar(0.9),
        top=Scalar(5),
        prefer=(Prefer(Name("fever"), Name("all")),),
        expiry=Quantity(10, "min"),
        why=True,
    )
    compiled = compile_subscription(tree, RESCUE)
    assert compiled.options == Options("fever", 0.9, 5, (("fever", "all"),), 600.0)
    assert compiled.options.to_dict() == {
        "name": "fever",
        "score": 0.9,
        "top": 5,
        "prefer": [["fever", "all"]],
        "expiry": 600.0,
    }
    assert Options().to_dict() == {}
    assert compiled.vector.why


def test_event_follows_from_the_attributes_or_is_named() -> None:
    assert (
        build(And((leaf("east", CrispComparison(Operator.LESS, Quantity(5, "km"))), HOT))).event
        == 1
    )
    near = leaf("east", CrispComparison(Operator.LESS, Quantity(5, "km")))
    assert build(near, event=Name("crew")).event == 5
    assert build(leaf("team.east", near.constraint)).event == 5


# Cost ------------------------------------------------------------------------------------------


def count_calls(text: str, vocabulary: Vocabulary) -> int:
    """Return how many Python functions a compilation from text to vector calls."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        compile_subscription(parse(text), vocabulary)
    finally:
        sys.setprofile(None)
    return calls


def test_a_vocabulary_fits_a_term_once_and_keeps_it() -> None:
    fever = "patient_temperature is very high and heart_rate is not normal, at least 0.6"
    vocabulary = build_vocabulary(dict(RESCUE.document))
    compile_subscription(parse("spo2 is low"), vocabulary)
    first = count_calls(fever, vocabulary)
    assert count_calls(fever, vocabulary) < 1000 < first
    assert count_calls(fever.replace("0.6", "0.7"), vocabulary) < 1500  # another threshold
    # Another vocabulary object starts afresh, whatever its hash: nothing is kept outside of it.
    assert count_calls(fever, build_vocabulary(dict(RESCUE.document))) > 1000
