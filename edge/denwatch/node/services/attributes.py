"""What a service or a wish says: a vector of binary and ternary attributes, and its bit planes.

The only file that knows how a vector of -1, 0 and 1 becomes two packed bit planes. A binary
attribute is 1 (has it) or 0 (has it not); a ternary one is 1 (for), -1 (against) or 0 (neutral).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int8]
Plane = npt.NDArray[np.uint64]

WORD_BITS = 64


class Kind(Enum):
    """What an attribute may say."""

    BINARY = "binary"
    TERNARY = "ternary"


class Rule(Enum):
    """When a service is feasible for a wish, and how far it is from it.

    POSITIVE: every attribute of the service is at least the wish's; distance over all attributes.
    NEAREST: every service is feasible; distance over all attributes.
    AGREEING: a 0 in the wish is "don't care"; a service is feasible if it never says the opposite
    of the wish, and its distance is over the attributes on which the wish says something.
    """

    POSITIVE = "positive"
    NEAREST = "nearest"
    AGREEING = "agreeing"


@dataclass(frozen=True)
class Schema:
    """The attributes of one kind of service, in their order in the vector."""

    kinds: Mapping[str, Kind]
    positions: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        if not self.kinds:
            raise ValueError("a schema needs at least one attribute")
        object.__setattr__(self, "positions", {name: at for at, name in enumerate(self.kinds)})

    @property
    def width(self) -> int:
        """How many attributes a vector has."""
        return len(self.kinds)

    def encode_values(self, said: Mapping[str, int]) -> tuple[int, ...]:
        """Return the vector of `said`; attributes that it does not name are 0."""
        vector = [0] * self.width
        for name, value in said.items():
            kind = self.kinds.get(name)
            if kind is None:
                raise ValueError(f"unknown attribute {name!r}")
            allowed = (0, 1) if kind is Kind.BINARY else (-1, 0, 1)
            if value not in allowed:
                raise ValueError(f"{name!r} is {kind.value}: {value!r} is not one of {allowed}")
            vector[self.positions[name]] = int(value)
        return tuple(vector)

    def decode_values(self, vector: Sequence[int]) -> dict[str, int]:
        """Return what `vector` says by name, without the attributes that are 0."""
        if len(vector) != self.width:
            raise ValueError(f"a vector of {len(vector)} values for {self.width} attributes")
        return {name: int(vector[at]) for name, at in self.positions.items() if vector[at]}


def count_words(width: int) -> int:
    """Return how many 64-bit words hold one bit for each of `width` attributes."""
    return -(-width // WORD_BITS)


def read_matrix(rows: npt.ArrayLike, width: int) -> Values:
    """Return `rows` as a checked matrix with `width` columns of -1, 0 and 1."""
    matrix = np.atleast_2d(np.asarray(rows))
    if matrix.size == 0:
        return np.zeros((0, width), np.int8)
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise ValueError(f"expected rows of {width} attributes, got an array of {matrix.shape}")
    small = matrix.astype(np.int8)
    wrong = (small != matrix) | (small > 1) | (small < -1)
    if wrong.any():
        row, column = (int(at) for at in np.argwhere(wrong)[0])
        value = matrix[row, column]
        raise ValueError(f"row {row}, attribute {column}: {value} is not -1, 0 or 1")
    return small


def pack_bits(bits: npt.NDArray[np.bool_]) -> Plane:
    """Return the rows of `bits` as little-endian 64-bit words, attribute 0 in bit 0."""
    count, width = bits.shape
    packed = np.zeros((count, count_words(width) * 8), np.uint8)
    octets = np.packbits(bits, axis=1, bitorder="little")
    packed[:, : octets.shape[1]] = octets
    return packed.view("<u8").astype(np.uint64, copy=False)


def pack_planes(matrix: Values) -> tuple[Plane, Plane]:
    """Return the planes of the ones and of the minus ones of each row."""
    return pack_bits(matrix > 0), pack_bits(matrix < 0)
