"""Compiled vectors decide like the papers' formulas in floating point.

Random subscriptions of every kind; the vector's bytes are evaluated as a device evaluates them, the
oracle computes in reals. They must agree wherever the real degree is more than 2 % from a
threshold. Two things a byte per degree cannot do are allowed for, and only where they apply:

- a function that no triple follows (a Gaussian inside a mean, a side steeper than the wire's): then
  the error that the compiler reported takes the place of the 2 %;
- geometric and harmonic means and rules, which hang on their smallest degree (the root of half a
  step is 4 %): there the 2 % are on the predicates, and their effect is computed.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from denwatch.client.compiler import (
    CompiledSubscription,
    compile_subscription,
    fit,
    settings,
)
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import Hedge, Name, NamedTerm, PredicateNode, Scalar, SubscriptionTree
from denwatch.client.vocabulary import SHIPPED, Attribute, load_shipped

from tests.language.oracle import Oracle
from tests.language.sampling import LATTICE, OTHERS, draw_codes, draw_subscription
from tests.protocol.evaluator import SCRATCH, evaluate

MARGIN = 0.02
COMPARING = (*LATTICE, "nested")  # degrees are only compared: exact whatever the function
GENTLE = (*COMPARING, "product", "arithmetic_mean", "weighted")  # the whole is off by no more
KINDS = (*COMPARING, *OTHERS, "weighted", "rules")


def match_device(compiled: CompiledSubscription, codes: dict[str, int]) -> bool:
    """Return what a device answers for the values."""
    values = [0] * 16
    present = 0
    for name, code in codes.items():
        bit = compiled.event.attributes[name].bit
        values[bit] = code
        present |= 1 << bit
    return evaluate(compiled.data, 0, present, values, bytearray(SCRATCH)) >= 0


def compare(numbers: range, inputs: int, compact: bool) -> Counter[str]:
    """Compare the subscriptions of these numbers; return how many of what were compared."""
    counts: Counter[str] = Counter()
    for number in numbers:
        rng = random.Random(number)
        kind = KINDS[number % len(KINDS)]
        vocabulary = load_shipped(rng.choice(SHIPPED))
        tree = draw_subscription(rng, vocabulary, kind)
        try:
            compiled = compile_subscription(tree, vocabulary, compact=compact)
        except LanguageError as error:
            if error.message.startswith("empty set"):
                continue
            raise
        tables = vocabulary.document["event"][compiled.event.name]["attribute"]  # type: ignore[index]
        oracle = Oracle(tree, tables)
        own = any(leaf.possible or leaf.certain for leaf in oracle.leaves)
        plain = (kind in COMPARING and not own) or (kind in GENTLE and compiled.error <= 0.01)
        counts["subscriptions"] += 1
        counts["at 2 % of the whole"] += plain
        for codes in draw_codes(rng, compiled.event, compiled.vector, inputs):
            if plain:
                wanted = oracle.decide(codes, MARGIN)
            else:
                slack = max(MARGIN, compiled.error + 1 / 255)
                wanted = oracle.decide_bounded(codes, slack)
            if wanted is None:
                continue
            counts["decisions"] += 1
            counts["matches"] += wanted
            assert match_device(compiled, codes) == wanted, (number, codes, tree, compiled.vector)
    return counts


@pytest.mark.parametrize("compact", [False, True])
def test_vectors_decide_like_the_formulas(compact: bool) -> None:
    counts = compare(range(720), inputs=24, compact=compact)
    assert counts["subscriptions"] > 640
    assert counts["at 2 % of the whole"] > 300
    assert counts["decisions"] > 10_000
    assert counts["matches"] > 1_000  # both answers occur


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compact", "count", "plain"), [(False, 22_000, 10_000), (True, 11_500, 0)]
)
def test_ten_thousand_vectors_decide_like_the_formulas(
    compact: bool, count: int, plain: int
) -> None:
    counts = compare(range(count), inputs=24, compact=compact)
    print(dict(counts))
    assert counts["subscriptions"] >= 10_000
    assert counts["at 2 % of the whole"] >= plain


def test_single_predicates_agree_on_every_value() -> None:
    """One predicate with each shipped term and hedge: all 256 values, at two thresholds."""
    for name in SHIPPED:
        vocabulary = load_shipped(name)
        for attribute in vocabulary.iterate_attributes():
            if attribute.wide:
                continue
            for term in attribute.terms:
                for hedges in ((), (Hedge.VERY,), (Hedge.MORE_OR_LESS,)):
                    for threshold in (0.3, 0.7):
                        leaf = PredicateNode(
                            Name(attribute.name), NamedTerm(Name(term)), hedges=hedges
                        )
                        tree = SubscriptionTree(
                            leaf, Name(attribute.event), possible=Scalar(threshold)
                        )
                        compiled = compile_subscription(tree, vocabulary)
                        tables = vocabulary.document["event"][attribute.event]["attribute"]  # type: ignore[index]
                        oracle = Oracle(tree, tables)
                        for code in range(256):
                            wanted = oracle.decide({attribute.name: code}, MARGIN)
                            if wanted is not None:
                                found = match_device(compiled, {attribute.name: code})
                                assert found == wanted, (
                                    attribute.path,
                                    term,
                                    hedges,
                                    threshold,
                                    code,
                                )


# Ablations: without these rules the comparison above must fail, or it would prove nothing ---------


@pytest.mark.parametrize("rule", ["cuts", "hedges", "negation", "thresholds"])
def test_the_oracle_notices_when_a_rule_is_missing(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A vocabulary keeps its fits, also those from before the rule was removed: let it forget them.
    monkeypatch.setattr(Attribute, "fits", property(lambda _: {}))
    if rule == "cuts":  # sets are no longer fitted to the threshold
        monkeypatch.setattr(fit, "list_demands", lambda *_: None)
    elif rule == "hedges":
        monkeypatch.setattr(fit, "encode_hedges", lambda _: (0, 1.0))
    elif rule == "negation":
        monkeypatch.setattr(fit.Draft, "negated", False)
    else:  # every threshold is 12 degrees too low
        exact = settings.encode_threshold
        monkeypatch.setattr(settings, "encode_threshold", lambda *a: max(0, exact(*a) - 12))
    with pytest.raises(AssertionError):
        compare(range(720), inputs=24, compact=False)
