"""Numbers as people write them: the shortest that still mean the same code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from denwatch.client.compiler.settings import encode_threshold
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import Quantity, Scalar
from denwatch.protocol.timecode import decode_duration


def round_numbers(values: tuple[float, ...]) -> Iterator[tuple[float, ...]]:
    """Yield the numbers with more and more digits, up to all of them."""
    previous = None
    for digits in range(1, 18):
        rounded = tuple(float(f"{value:.{digits}g}") for value in values)
        if rounded != previous:
            yield rounded
        previous = rounded


def shorten(
    values: tuple[float, ...], means_the_same: Callable[[tuple[float, ...]], bool]
) -> tuple[float, ...] | None:
    """Return the numbers with the fewest digits that pass, None if none do."""
    for rounded in round_numbers(values):
        try:
            if means_the_same(rounded):
                return rounded
        except LanguageError:  # rounded out of the domain, or out of order
            continue
    return None


def write_threshold(code: int) -> Scalar:
    """Return the shortest threshold that is encoded so: rounded down, as encoding rounds up."""
    for digits in range(1, 17):
        scale = 10**digits
        value = math.floor(code * scale / 255) / scale
        if encode_threshold(Scalar(value), "threshold") == code:
            return Scalar(value)
    return Scalar(code / 255)


def write_duration(code: int) -> Quantity:
    """Return the duration of a code in the largest unit that divides it."""
    seconds = decode_duration(code)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return Quantity(float(seconds // size), unit)
    return Quantity(float(seconds), "s")
