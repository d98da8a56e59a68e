"""What each predicate of a subscription says of a value: the functions behind pictures and reasons.

Pure. A predicate is taken as it was written, before it is fitted to the wire: that is what people
meant, and the wire is at most two hundredths off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from denwatch.client.compiler.compiler import Lowerer, lower_aggregator, resolve_event
from denwatch.client.compiler.constraints import ConstraintReader, FuzzySet
from denwatch.client.compiler.fit import Draft
from denwatch.client.language.words_printer import print_condition
from denwatch.client.plugins import load_registry
from denwatch.client.syntax import SubscriptionTree
from denwatch.client.vocabulary import Attribute, EventType, ValueKind, Vocabulary, parse_moment
from denwatch.client.vocabulary.fitting import find_power
from denwatch.protocol.degrees import fuzzify, hedge


@dataclass(frozen=True)
class Meaning:
    """One predicate: its attribute, its words, and the degree (0..1) of a code."""

    attribute: Attribute
    words: str
    evaluate: Callable[[float], float]


def list_meanings(
    tree: SubscriptionTree, vocabulary: Vocabulary, organisation: str | None = None
) -> tuple[EventType, list[Meaning]]:
    """Return the event of a subscription and its predicates; LanguageError if it is wrong."""
    registry = load_registry()
    event = resolve_event(tree, vocabulary, organisation)
    lowerer = Lowerer(ConstraintReader(vocabulary, registry, organisation), event)
    lowerer.lower(lower_aggregator(tree, registry).condition)
    return event, [_build(draft) for draft in lowerer.drafts]


def _build(draft: Draft) -> Meaning:
    attribute, meaning = draft.attribute, draft.meaning
    if isinstance(meaning, FuzzySet):
        membership = meaning.membership.hedged(draft.extra_power * find_power(draft.hedge))

        def evaluate(code: float) -> float:
            degree = membership.evaluate(attribute.to_value(code))
            return 1 - degree if draft.negated else degree
    else:
        triple = meaning.triple

        def evaluate(code: float) -> float:
            sides = triple.low, triple.high, triple.left, triple.right
            degree = hedge(fuzzify(round(code), *sides, attribute.wide), draft.hedge) / 255
            return 1 - degree if draft.negated else degree

    return Meaning(attribute, print_condition(draft.source), evaluate)


@dataclass(frozen=True)
class Codes:
    """What a delivered value may be, as codes: from `low` to `high`, likeliest `peak`."""

    low: float
    peak: float
    high: float


def read_codes(attribute: Attribute, value: object) -> Codes | None:
    """Return a delivered value as codes; None if it is no value."""
    if not isinstance(value, Mapping):
        return None
    if attribute.kind is ValueKind.TEXT:
        among = value.get("among") or [value.get("value")]
        codes = [attribute.symbols.index(s) for s in among if s in attribute.symbols]
        return Codes(min(codes), codes[0], max(codes)) if codes else None
    numbers = []
    for key in ("low", "value", "high"):
        number = _read_number(attribute, value.get(key, value.get("value")))
        if number is None:
            return None
        numbers.append(min(max(attribute.to_position(number), 0.0), float(attribute.last)))
    return Codes(*numbers)


def _read_number(attribute: Attribute, value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return parse_moment(value, attribute.kind)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None


def find_range(meaning: Meaning, codes: Codes) -> tuple[float, float]:
    """Return how surely and how possibly a value is meant, 0..1: necessity and possibility.

    As the node does it, but for a triangle: that is what is delivered of a reading in doubt.
    """
    if codes.high <= codes.low:
        degree = meaning.evaluate(codes.peak)
        return degree, degree
    steps = 64
    points = [codes.low + (codes.high - codes.low) * step / steps for step in range(steps + 1)]
    possible = certain = meaning.evaluate(codes.peak)
    for code in points:
        degree, likely = meaning.evaluate(code), _find_likelihood(codes, code)
        possible = max(possible, min(degree, likely))
        certain = min(certain, max(degree, 1 - likely))
    return certain, possible


def _find_likelihood(codes: Codes, code: float) -> float:
    end = codes.low if code < codes.peak else codes.high
    return 1.0 if end == codes.peak else max(0.0, (code - end) / (codes.peak - end))
