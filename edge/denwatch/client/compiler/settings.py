"""Everything of a subscription that is not its condition: thresholds, times, significance, options.

Each function takes what was written and answers codes of the wire; a rounding that a person might
notice is appended to the report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from denwatch.client.compiler.results import Approximation, Options
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.syntax import Persistence, Quantity, Recent, Scalar, SubscriptionTree
from denwatch.client.vocabulary import Attribute, ValueKind, Vocabulary, fold_name
from denwatch.client.vocabulary.values import read_duration, read_width
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.timecode import LAST_DURATION, decode_duration, encode_duration
from denwatch.protocol.vectors import Significance

DEFAULT_THRESHOLD = 128
_TINY = 1e-9


def encode_threshold(scalar: Scalar | None, what: str) -> int:
    """Return the lowest degree that is at least a threshold; 0 for none."""
    if scalar is None:
        return 0
    if not 0.0 <= scalar.value <= 1.0:
        raise LanguageError.at_node(f"{what} {scalar.value:g} is not between 0 and 1", scalar)
    return math.ceil(255 * scalar.value - _TINY)


def encode_thresholds(possible: Scalar | None, certain: Scalar | None) -> tuple[int, int]:
    """Return the codes of both thresholds of a predicate or subscription."""
    low = encode_threshold(possible, "threshold")
    high = encode_threshold(certain, "threshold")
    if possible is not None and certain is not None and high > low:
        raise LanguageError.at_node(
            f"contradictory thresholds: certain {certain.value:g} is above "
            f"possible {possible.value:g}",
            certain,
            "what is certain is possible at least as much",
        )
    return low, high


def encode_overall(tree: SubscriptionTree) -> tuple[int, int]:
    """Return the subscription's thresholds, (possible, certain)."""
    possible, certain = encode_thresholds(tree.possible, tree.certain)
    if tree.possible is None:
        possible = max(DEFAULT_THRESHOLD, certain)
    return possible, certain


def encode_time(value: Quantity | None, what: str, report: list[Approximation]) -> int:
    """Return the code of the shortest duration that is not shorter; 0 for none."""
    if value is None:
        return 0
    seconds = math.ceil(read_duration(value) - _TINY)
    try:
        code = encode_duration(seconds)
    except ProtocolError as error:
        raise LanguageError.at_node(f"{what}: {error.what}", value) from None
    if decode_duration(code) != seconds:
        taken = f"{seconds} s taken as {decode_duration(code)} s"
        report.append(Approximation(what, taken, span=value.span))
    return code


def encode_recent(
    recent: Recent | None, vocabulary: Vocabulary, report: list[Approximation]
) -> tuple[int, int] | None:
    """Return the duration codes of a temporal restrictor."""
    if recent is None:
        return None
    if recent.phrase is not None:
        phrase = fold_name(recent.phrase).replace("_", " ")
        if phrase not in vocabulary.phrases:
            raise LanguageError.at_node(
                f'unknown time "{recent.phrase}"',
                recent,
                suggestions=suggest_names(phrase, vocabulary.phrases),
            )
        seconds = vocabulary.phrases[phrase]
        within, gone = (Quantity(max(s, 1e-3)) for s in seconds)
        quiet: list[Approximation] = []
        until = encode_time(within, phrase, quiet) if seconds[0] else 0
        return until, max(encode_time(gone, phrase, quiet), until + 1)
    if recent.within is None:
        raise LanguageError.at_node("recent says neither a phrase nor a duration", recent)
    until = encode_time(recent.within, "recent", report) if recent.within.value else 0
    end = until + 1
    if recent.gone is not None:
        if until and read_duration(recent.gone) <= read_duration(recent.within):
            raise LanguageError.at_node("what is no longer recent must be older", recent.gone)
        end = max(encode_time(recent.gone, "recent", report), until + 1)
    if end > LAST_DURATION:
        raise LanguageError.at_node("recent: too long ago", recent)
    return until, end


def encode_significance(
    tree: SubscriptionTree,
    bands: Mapping[int, Quantity],
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
    hits, window = _encode_persistence(tree.persistence)
    relative = encode_threshold(tree.relative_band, "relative dead band")
    values = (relative, hysteresis, hits, window, heartbeat, quiet)
    if not any(widths) and not any(values):
        return None
    return Significance(widths if any(widths) else b"", *values)


def _encode_band(width: Quantity | None, attribute: Attribute, report: list[Approximation]) -> int:
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
        message = f"{width.value:g} {width.unit or ''}".strip() + f" taken as {taken:.4g}"
        unit = f" {attribute.unit}" if attribute.unit else ""
        report.append(
            Approximation(f"dead band of {attribute.name}", message + unit, None, width.span)
        )
    return code


def read_count(scalar: Scalar, what: str, most: int) -> int:
    """Return a whole number between 1 and a limit."""
    if not 1 <= scalar.value <= most or scalar.value != int(scalar.value):
        raise LanguageError.at_node(
            f"{what} is a whole number from 1 to {most}, not {scalar.value:g}", scalar
        )
    return int(scalar.value)


def _encode_persistence(persistence: Persistence | None) -> tuple[int, int]:
    if persistence is None:
        return 0, 0
    window = read_count(persistence.window, "the window", 15)
    hits = read_count(persistence.hits, "the number of matches", 15)
    if hits > window:
        raise LanguageError.at_node(f"{hits} of {window} samples can never match", persistence.hits)
    return hits, window


def read_options(tree: SubscriptionTree) -> Options:
    """Return what the node keeps beside the vector."""
    score = tree.score
    if score is not None and not 0.0 <= score.value <= 1.0:
        raise LanguageError.at_node(f"score {score.value:g} is not between 0 and 1", score)
    pairs = []
    for prefer in tree.prefer:
        if prefer.better.text == prefer.worse.text:
            raise LanguageError.at_node(
                f'"{prefer.better.text}" cannot be preferred to itself', prefer
            )
        pairs.append((prefer.better.text, prefer.worse.text))
    return Options(
        name=tree.name.text if tree.name is not None else None,
        score=score.value if score is not None else None,
        top=read_count(tree.top, "top", 65535) if tree.top is not None else None,
        prefer=tuple(pairs),
        expiry=read_duration(tree.expiry) if tree.expiry is not None else None,
    )
