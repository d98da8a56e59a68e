"""Everything of a subscription that is not its condition, and what compiling returns.

Thresholds, times, significance, weights, rules and options. Each function takes what was written
and returns codes of the wire; a rounding that a person might notice is appended to the report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from denwatch.client import syntax
from denwatch.client.compiler.fit import Draft
from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import Attribute, EventType, ValueKind, Vocabulary, fold_name
from denwatch.client.vocabulary.values import read_duration, read_width
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.timecode import LAST_DURATION, decode_duration, encode_duration
from denwatch.protocol.vectors import MAX_RULE_PREDICATES, Significance, SubscriptionVector


@dataclass(frozen=True)
class Approximation:
    """One place where the vector differs from what was written.

    `error` is the highest difference in degree (0..1); None where no degree is concerned, as for a
    duration.
    """

    subject: str
    message: str
    error: float | None = None
    span: syntax.SourceSpan | None = None

    def __str__(self) -> str:
        error = "" if self.error is None else f", at most {self.error:.1%} off"
        return f"{self.subject}: {self.message}{error}"


@dataclass(frozen=True)
class Options:
    """What the vector does not carry: the node's own business with a subscription."""

    name: str | None = None
    score: float | None = None  # 0..1
    top: int | None = None  # top k
    prefer: tuple[tuple[str, str], ...] = ()  # (better, worse), names of subscriptions
    expiry: float | None = None  # seconds that a delivered notification counts
    whole: bool = False  # devices send all values of a reading that matches

    def to_dict(self) -> dict[str, Any]:
        """Return the options that are set, as JSON and CBOR take them."""
        values = {
            "name": self.name,
            "score": self.score,
            "top": self.top,
            "prefer": [list(pair) for pair in self.prefer] or None,
            "expiry": self.expiry,
            "whole": self.whole or None,
        }
        return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True)
class CompiledSubscription:
    """A subscription ready to send. `data` is the vector's encoding."""

    vector: SubscriptionVector
    data: bytes
    report: tuple[Approximation, ...]
    options: Options
    event: EventType
    vocabulary: str  # the content hash of the vocabulary that it was compiled with

    @property
    def error(self) -> float:
        """The highest error of a predicate's degree that was reported (0..1)."""
        return max((a.error for a in self.report if a.error is not None), default=0.0)


DEFAULT_THRESHOLD = 128
_TINY = 1e-9


def encode_threshold(scalar: syntax.Scalar | None, what: str) -> int:
    """Return the lowest degree that is at least a threshold; 0 for none."""
    return 0 if scalar is None else math.ceil(255 * check_share(scalar, what) - _TINY)


def check_share(scalar: syntax.Scalar, what: str) -> float:
    """Return a number between 0 and 1."""
    if not 0.0 <= scalar.value <= 1.0:
        raise LanguageError.at_node(f"{what} {scalar.value:g} is not between 0 and 1", scalar)
    return scalar.value


def encode_thresholds(
    possible: syntax.Scalar | None, certain: syntax.Scalar | None
) -> tuple[int, int]:
    """Return the codes of both thresholds of a predicate or subscription."""
    low = encode_threshold(possible, "threshold")
    high = encode_threshold(certain, "threshold")
    if possible is not None and certain is not None and high > low:
        raise LanguageError.at_node(
            f"contradictory thresholds: certain {certain.value:g} is above "
            f"possible {possible.value:g}",
            certain,
            "a match is never more certain than possible",
        )
    return low, high


def encode_overall(tree: syntax.SubscriptionTree) -> tuple[int, int]:
    """Return the subscription's thresholds, (possible, certain); at least 0 is above 0.

    What does not fit at all is no match, also for who wants to see the least one.
    """
    possible, certain = encode_thresholds(tree.possible, tree.certain)
    if tree.possible is None:
        return max(DEFAULT_THRESHOLD, certain), certain
    return max(1, possible), certain


def encode_time(value: syntax.Quantity | None, what: str, report: list[Approximation]) -> int:
    """Return the code of the shortest duration that is not shorter; 0 for none."""
    if value is None:
        return 0
    seconds = math.ceil(read_duration(value) - _TINY)
    try:
        code = encode_duration(seconds)
    except ProtocolError as error:
        raise LanguageError.at_node(f"{what}: {error.what}", value) from None
    if decode_duration(code) != seconds:
        taken = f"{seconds} s rounded to {decode_duration(code)} s"
        report.append(Approximation(what, taken, span=value.span))
    return code


def encode_recent(
    recent: syntax.Recent | None, vocabulary: Vocabulary, report: list[Approximation]
) -> tuple[int, int] | None:
    """Return the duration codes of a temporal restrictor."""
    if recent is None:
        return None
    if recent.phrase is not None:
        phrase = fold_name(recent.phrase).replace("_", " ")
        if phrase not in vocabulary.phrases:
            known = vocabulary.phrases
            raise LanguageError.of_unknown("unknown phrase of time", recent.phrase, known, recent)
        seconds = vocabulary.phrases[phrase]
        within, gone = (syntax.Quantity(max(s, 1e-3)) for s in seconds)
        quiet: list[Approximation] = []
        until = encode_time(within, phrase, quiet) if seconds[0] else 0
        return until, max(encode_time(gone, phrase, quiet), until + 1)
    if recent.within is None:
        raise LanguageError.at_node("recent needs a phrase or a duration", recent)
    until = encode_time(recent.within, "recent", report) if recent.within.value else 0
    end = until + 1
    if recent.gone is not None:
        if until and read_duration(recent.gone) <= read_duration(recent.within):
            raise LanguageError.at_node(
                "the second duration must be longer than the first", recent.gone
            )
        end = max(encode_time(recent.gone, "recent", report), until + 1)
    if end > LAST_DURATION:
        raise LanguageError.at_node("recent: too long ago", recent)
    return until, end


def encode_restrictor(
    recent: syntax.Recent, vocabulary: Vocabulary, threshold: int, report: list[Approximation]
) -> int:
    """Return how old a predicate's reading may be, as a duration code.

    One that fades counts as long as its degree reaches the threshold, as an alpha-cut says.
    """
    codes = encode_recent(recent, vocabulary, [])
    assert codes is not None
    until, gone = map(decode_duration, codes)
    if recent.phrase is None and recent.gone is None:
        code = encode_time(recent.within, "in the last", report)
    else:
        seconds = gone + -(threshold * (gone - until)) // 255
        code = encode_duration(max(1, seconds))
        taken = f"counts for {decode_duration(code)} s, as long as its degree is high enough"
        report.append(Approximation(recent.phrase or "in the last", taken, span=recent.span))
    return code


def encode_significance(
    tree: syntax.SubscriptionTree,
    bands: Mapping[int, syntax.Quantity],
    attributes: Sequence[Attribute],
    threshold: int,
    report: list[Approximation],
) -> Significance | None:
    """Return when a match is worth sending again; `attributes` are those of the features."""
    widths = bytes(_encode_band(bands.get(a.bit), a, report) for a in attributes)
    heartbeat = encode_time(tree.heartbeat, "heartbeat", report)
    quiet = encode_time(tree.quiet, "quiet", report)
    if heartbeat and quiet > heartbeat:
        raise LanguageError.at_node(
            "contradictory times: the quiet time is longer than the heartbeat", tree.quiet
        )
    hysteresis = encode_threshold(tree.hysteresis, "hysteresis")
    if hysteresis > threshold:
        raise LanguageError.at_node(
            "contradictory thresholds: the hysteresis is above the threshold", tree.hysteresis
        )
    hits = window = 0
    if tree.persistence is not None:
        window = read_count(tree.persistence.window, "the window", 15)
        hits = read_count(tree.persistence.hits, "the number of matches", 15)
        if hits > window:
            message = f"{hits} of {window} samples can never match"
            raise LanguageError.at_node(message, tree.persistence.hits)
    relative = encode_threshold(tree.relative_band, "relative dead band")
    values = (relative, hysteresis, hits, window, heartbeat, quiet)
    if not any(widths) and not any(values):
        return None
    return Significance(widths if any(widths) else b"", *values)


def _encode_band(
    width: syntax.Quantity | None, attribute: Attribute, report: list[Approximation]
) -> int:
    """Return a dead band in 1/255 of the domain."""
    if width is None:
        return 0
    if attribute.kind is ValueKind.TEXT:
        raise LanguageError.at_node(f"{attribute.name} is a text and has no dead band", width)
    share = read_width(width, attribute) / (attribute.high - attribute.low)
    if share > 1 + _TINY:
        raise LanguageError.at_node(
            f"the dead band is wider than the domain of {attribute.name}",
            width,
            f"it goes from {attribute.describe_domain()}",
        )
    code = max(1, math.floor(share * 255 + 0.5))
    if abs(share * 255 - code) > 0.01:
        taken = code / 255 * (attribute.high - attribute.low)
        message = f"{width.value:g} {width.unit or ''}".strip() + f" rounded to {taken:.4g}"
        subject = f"dead band of {attribute.name}"
        report.append(Approximation(subject, message + attribute.suffix, None, width.span))
    return code


def read_count(scalar: syntax.Scalar, what: str, most: int) -> int:
    """Return a whole number between 1 and a limit."""
    if not 1 <= scalar.value <= most or scalar.value != int(scalar.value):
        raise LanguageError.at_node(
            f"{what} is a whole number from 1 to {most}, not {scalar.value:g}", scalar
        )
    return int(scalar.value)


def read_options(tree: syntax.SubscriptionTree) -> Options:
    """Return what the node keeps beside the vector."""
    pairs = []
    for prefer in tree.prefer:
        if prefer.better.text == prefer.worse.text:
            raise LanguageError.at_node(
                f'"{prefer.better.text}" cannot be preferred to itself', prefer
            )
        pairs.append((prefer.better.text, prefer.worse.text))
    return Options(
        name=tree.name.text if tree.name is not None else None,
        score=check_share(tree.score, "score") if tree.score is not None else None,
        top=read_count(tree.top, "top", 65535) if tree.top is not None else None,
        prefer=tuple(pairs),
        expiry=read_duration(tree.expiry) if tree.expiry is not None else None,
        whole=tree.whole,
    )


# Weights as written, to whole numbers from 1 to 255.


def encode_weights(drafts: Sequence[Draft], report: list[Approximation]) -> list[Draft]:
    """Return the drafts with their weights; those without one count 1 like in any mean."""
    weights = []
    for draft in drafts:
        weight = draft.source.weight
        value = 1.0 if weight is None else weight.value
        if not (0.0 < value < math.inf):
            raise LanguageError.at_node(f"a weight must be above 0, not {value:g}", weight)
        weights.append(value)
    if all(value == int(value) and value <= 255 for value in weights):
        codes = [int(value) for value in weights]
    else:
        codes = _scale(weights)
        error = _measure(weights, codes)
        if error > 0.001:
            text = " : ".join(map(str, codes))
            report.append(Approximation("weights", f"rounded to {text}", error))
    return [replace(draft, weight=code) for draft, code in zip(drafts, codes, strict=True)]


def _scale(weights: Sequence[float]) -> list[int]:
    """Return the whole numbers whose shares are nearest, small ones if they are as good."""
    top = max(weights)
    best: tuple[float, list[int]] | None = None
    for most in range(1, 256):
        codes = [max(1, round(value / top * most)) for value in weights]
        error = _measure(weights, codes)
        if best is None or error < best[0] - 1e-9:
            best = error, codes
    assert best is not None
    return best[1]


def _measure(weights: Sequence[float], codes: Sequence[int]) -> float:
    """Return how far a weighted mean can be off: half the sum of the shares' differences."""
    pairs = zip(weights, codes, strict=True)
    return sum(abs(w / sum(weights) - c / sum(codes)) for w, c in pairs) / 2


# Takagi-Sugeno rules: consequents in units, to the wire's coefficients over codes and back.
#
# The wire computes c0 + (c1 x + c2 y) / 64 with x and y as 8-bit codes and 255 as a full degree.

SLOPE_SCALE = 64


def encode_rules(
    rules: Sequence[syntax.SugenoRule],
    places: Mapping[int, int],
    attributes: Sequence[Attribute],
    report: list[Approximation],
) -> list[tuple[int, ...]]:
    """Return one consequent for each pair of predicates, in the wire's order.

    `places` maps a predicate's number as written to its place on the wire, `attributes` are the
    predicates' attributes in the wire's order.
    """
    count = len(attributes)
    if not 2 <= count <= MAX_RULE_PREDICATES:
        raise LanguageError.at_node(
            f"rules need 2 to {MAX_RULE_PREDICATES} predicates, not {count}", rules[0]
        )
    is_linear = any(rule.slopes is not None for rule in rules)
    table: dict[tuple[int, int], tuple[int, ...]] = {}
    for rule in rules:
        for number in (rule.first, rule.second):
            if number not in places:
                raise LanguageError.at_node(f"there is no predicate {number}", rule)
        first, second = places[rule.first], places[rule.second]
        if first == second:
            raise LanguageError.at_node("a rule is about two predicates", rule)
        slopes = rule.slopes
        if first > second:
            first, second = second, first
            slopes = (slopes[1], slopes[0]) if slopes else None
        if (first, second) in table:
            raise LanguageError.at_node(
                f"predicates {rule.first} and {rule.second} have a rule already", rule
            )
        pair = attributes[first], attributes[second]
        if is_linear:
            table[first, second] = encode_linear(rule, slopes, pair, report)
        else:
            table[first, second] = (round(255 * check_share(rule.constant, "consequent")),)
    found = []
    for i in range(count):
        for j in range(i + 1, count):
            if (i, j) not in table:
                names = f"{attributes[i].name} and {attributes[j].name}"
                raise LanguageError.at_node(f"the rule of {names} is missing", rules[-1])
            found.append(table[i, j])
    return found


def encode_linear(
    rule: syntax.SugenoRule,
    slopes: tuple[syntax.Scalar, syntax.Scalar] | None,
    pair: tuple[Attribute, Attribute],
    report: list[Approximation],
) -> tuple[int, ...]:
    constant = rule.constant.value
    coefficients = []
    error = 0.0
    for slope, attribute in zip(slopes or (), pair, strict=False):
        if attribute.kind is ValueKind.TEXT and slope.value:
            raise LanguageError.at_node(f"{attribute.name} is a text and has no slope", slope)
        scaled = SLOPE_SCALE * slope.value * (attribute.high - attribute.low)
        code = round(scaled)
        if not -128 <= code <= 127:
            raise LanguageError.at_node(
                f"slope {slope.value:g} is too steep for {attribute.name}",
                slope,
                "over the whole domain a consequent may change by 2 at most",
            )
        constant += slope.value * attribute.low
        coefficients.append(code)
        error += abs(scaled - code) / SLOPE_SCALE
    first = round(255 * constant)
    if not -32768 <= first <= 32767:
        raise LanguageError.at_node(f"consequent {constant:g} is too large", rule.constant)
    error += abs(255 * constant - first) / 255
    if error > 0.005:
        names = f"rule of {pair[0].name} and {pair[1].name}"
        report.append(Approximation(names, "coefficients rounded", error, rule.span))
    return (first, *(coefficients or (0, 0)))
