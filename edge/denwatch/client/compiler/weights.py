"""Weights as written, to whole numbers from 1 to 255."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from denwatch.client.compiler.drafts import Draft
from denwatch.client.compiler.results import Approximation
from denwatch.client.errors import LanguageError


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
            report.append(Approximation("weights", f"taken as {text}", error))
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
