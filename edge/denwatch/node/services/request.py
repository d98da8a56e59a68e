"""What is asked of a finder and what it answers; the only file that turns a rule into bit masks.

A pull (a user asks for services) and a push (a service looks for users) are the same search with
the roles exchanged, so both become the same seven masks for the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from denwatch.node.services.attributes import Plane, Rule, count_words


class Side(Enum):
    """Who asks: PULL is a wish looking for services, PUSH a service looking for wishes."""

    PULL = "pull"
    PUSH = "push"


@dataclass(frozen=True)
class Request:
    """One question: the asker's own vector, the rule, and how many answers (None: all)."""

    values: tuple[int, ...]
    rule: Rule = Rule.POSITIVE
    side: Side = Side.PULL
    limit: int | None = 1

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"a request needs a limit of at least 1, not {self.limit}")


class Match(NamedTuple):
    """One answer: who, and its squared Euclidean distance from the request."""

    identity: Hashable
    squared: int

    @property
    def distance(self) -> float:
        """The Euclidean distance: 0 is a perfect match."""
        return math.sqrt(self.squared)


@dataclass(frozen=True)
class Result:
    """The answers, nearest first, and what they cost.

    `probes` counts every stored entry that was looked at, on every list, and every step of every
    binary search. `checks` counts full comparisons of a stored vector with the request.
    """

    matches: tuple[Match, ...]
    probes: int
    checks: int

    @property
    def best(self) -> Match | None:
        """The nearest answer, or None."""
        return self.matches[0] if self.matches else None

    @property
    def quality(self) -> float:
        """The distance of the best answer (the paper's sub-quality: lower is better)."""
        return self.matches[0].distance if self.matches else math.inf


class Masks(NamedTuple):
    """A request as the kernels read it.

    `rows` are: ones that an item must have, minus ones that it must have, ones that it must not
    have, minus ones that it must not have, attributes whose difference counts, and the request's
    own ones and minus ones. If `item_cares`, the attributes that the *item* states count too.

    With z for the number of an item's non-zero attributes, no feasible item has z outside
    `low..high`, and none is nearer (squared) than `up`·(z - centre) or `down`·(centre - z).
    """

    rows: Plane
    item_cares: bool
    centre: int
    up: int
    down: int
    low: int
    high: int


def compile_request(request: Request, width: int, negatives: bool) -> Masks:
    """Return the masks of `request` over `width` attributes.

    `negatives` says whether any stored item has a minus one; without them the range of z is
    narrower. Whole numbers serve as bit sets here: for one vector they are faster than arrays.
    """
    plus, minus = _read_bits(request.values, width)
    full = (1 << width) - 1
    must_plus = must_minus = not_plus = not_minus = 0
    counted, item_cares = full, False
    up, down, low, high = 1, 1, 0, width
    pull = request.side is Side.PULL
    if request.rule is Rule.POSITIVE and pull:
        must_plus, not_minus = plus, full & ~minus
        low = plus.bit_count()
    elif request.rule is Rule.POSITIVE:
        must_minus, not_plus = minus, full & ~plus
        low = minus.bit_count()
        high = width if negatives else plus.bit_count()
    elif request.rule is Rule.AGREEING:
        not_plus, not_minus = minus, plus
        counted = plus | minus if pull else 0
        item_cares = not pull
        up, down = (0, 1) if pull else (1, 0)
    rows = _pack_rows((must_plus, must_minus, not_plus, not_minus, counted, plus, minus), width)
    return Masks(rows, item_cares, (plus | minus).bit_count(), up, down, low, high)


def _read_bits(values: tuple[int, ...], width: int) -> tuple[int, int]:
    """Return the ones and the minus ones of `values` as two bit sets."""
    if len(values) != width:
        raise ValueError(f"a request of {len(values)} values for {width} attributes")
    plus = minus = 0
    for at, value in enumerate(values):
        if value == 1:
            plus |= 1 << at
        elif value == -1:
            minus |= 1 << at
        elif value != 0:
            raise ValueError(f"request, attribute {at}: {value!r} is not -1, 0 or 1")
    return plus, minus


def _pack_rows(sets: tuple[int, ...], width: int) -> Plane:
    """Return each bit set as one row of 64-bit words."""
    words = count_words(width)
    octets = bytearray().join(bits.to_bytes(8 * words, "little") for bits in sets)
    return np.frombuffer(octets, "<u8").reshape(len(sets), words).astype(np.uint64, copy=False)
