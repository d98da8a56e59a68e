"""What a start needs to know of each subscription vector, so that it need not decode it again.

Decoding a vector and finding its hull takes 60 µs, looking it up here one. A *fact* is what follows
from the bytes of a vector and from nothing else: so facts can be kept on the disk, in chunks, and
are right whatever else was lost, added or removed since. A chunk that was written by other code
(STAMP), or that is not whole, is left out; what is missing is worked out from the vector.

Only plain vectors have facts: the min of up to four 8-bit predicates, and no significance. They are
nearly all that people ask for; the others are decoded.

    chunk   stamp (16 bytes), CRC-32 of the rest (4), count (4), lengths of the vectors (2 each),
            the vectors, the rows (FACT)
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from denwatch.node.matching import evaluation, hulls
from denwatch.node.matching.hulls import find_hull
from denwatch.protocol import cuts, degrees, slopes, subscription, vectors
from denwatch.protocol.degrees import MIN
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from numpy.typing import NDArray

WORDS = 4  # predicates that fit into a fact
ATTRIBUTES = 16
FACT = np.dtype(
    [
        ("words", np.int64, (WORDS,)),  # as `records.py` has them
        ("features", np.uint16),
        ("event", np.uint8),
        ("level", np.uint8),  # of the hull
        ("threshold", np.uint8),
        ("certain", np.uint8),
        ("count", np.uint8),  # predicates; 0: not plain
        ("lows", np.uint8, (ATTRIBUTES,)),  # of the hull
        ("highs", np.uint8, (ATTRIBUTES,)),
    ]
)
_HEAD = 24
# A field that this file does not know of makes a vector other than plain.
_STRANGE = sorted(
    set(SubscriptionVector.FIELDS)
    - {"event", "predicates", "aggregator", "threshold", "certain", "handle", "validity"}
    - {"why", "significance", "consequents"}
)  # among them pattern and recent
_STRANGE_PREDICATE = sorted(
    set(Predicate.FIELDS) - {"attribute", "low", "high", "left", "right", "negated", "hedge"}
    - {"weight"}
)  # fmt: skip

Facts = NDArray[np.void]


def pack_words(s: SubscriptionVector) -> list[int]:
    """Return the words (`records.py` has their layout) of a plain vector, else none."""
    is_plain = s.aggregator == MIN and len(s.predicates) <= WORDS
    if not is_plain or any(getattr(s, name) for name in _STRANGE):
        return []
    words = []
    for p in s.predicates:
        if any(getattr(p, name) for name in _STRANGE_PREDICATE):
            return []
        word = p.low | p.high << 16 | p.left << 32 | p.right << 40 | p.hedge << 48
        words.append(word | bool(p.negated) << 52 | p.attribute << 54)
    return words


def find_fact(s: SubscriptionVector) -> tuple[Any, ...]:
    """Return the fact of a vector as a tuple; that of one that is not plain has no words."""
    hull = find_hull(s)
    words = pack_words(s)
    lows, highs = [0] * ATTRIBUTES, [255] * ATTRIBUTES
    bounds = hull.bounds
    if bounds is None:  # nothing matches it: no reading lies between 255 and 0
        bounds = {s.predicates[0].attribute: (255, 0)}
    for attribute, (low, high) in bounds.items():
        lows[attribute], highs[attribute] = low, high
    padded = words + [0] * (WORDS - len(words))
    asked = (s.features, s.event, hull.level, s.threshold, s.certain, len(words))
    return (padded, *asked, lows, highs)


def pack_facts(facts: Sequence[tuple[Any, ...]]) -> Facts:
    """Return facts as rows."""
    return np.array(list(facts), FACT)


class FactTable:
    """Facts by vector."""

    def __init__(self) -> None:
        self.places: dict[bytes, int] = {}  # by vector: the row
        self.rows: Facts = np.zeros(0, FACT)

    def load(self, chunks: Sequence[bytes]) -> list[int]:
        """Add the facts of chunks; return the numbers of those that are of no use."""
        parts, useless, size = [self.rows], [], len(self.rows)
        for number, chunk in enumerate(chunks):
            found = decode_chunk(chunk)
            if found is None:
                useless.append(number)
                continue
            known, rows = found
            self.places.update(zip(known, range(size, size + len(known)), strict=True))
            parts.append(rows)
            size += len(known)
        self.rows = np.concatenate(parts)
        return useless

    def add(self, facts: Sequence[tuple[Any, ...]]) -> None:
        """Add rows; whoever does has entered their places."""
        if facts:
            self.rows = np.concatenate([self.rows, pack_facts(facts)])


def encode_chunk(known: Sequence[bytes], rows: Facts) -> bytes:
    """Return the facts of some vectors as bytes."""
    lengths = np.array([len(data) for data in known], "<u2").tobytes()
    rest = len(known).to_bytes(4, "little") + lengths + b"".join(known) + rows.tobytes()
    return make_stamp() + zlib.crc32(rest).to_bytes(4, "little") + rest


def decode_chunk(data: bytes) -> tuple[list[bytes], Facts] | None:
    """Return the vectors and facts of a chunk; None for one of other code, or one not whole."""
    rest = data[20:]
    if data[:16] != make_stamp() or zlib.crc32(rest).to_bytes(4, "little") != data[16:20]:
        return None
    count = int.from_bytes(data[20:_HEAD], "little")
    ends = np.cumsum(np.frombuffer(data, "<u2", count, _HEAD), dtype=np.int64) + _HEAD + 2 * count
    known = []
    start = _HEAD + 2 * count
    for end in ends.tolist():
        known.append(data[start:end])
        start = end
    return known, np.frombuffer(data, FACT, count, start)


@cache
def make_stamp() -> bytes:
    """Return a hash of all code that a fact follows from, and of the machine's byte order."""
    digest = hashlib.sha256(np.array([1], np.int64).tobytes())
    modules: list[Any] = [evaluation, hulls, cuts, degrees, slopes, subscription, vectors]
    for path in [Path(str(module.__file__)) for module in modules] + [Path(__file__)]:
        digest.update(path.read_bytes())
    return digest.digest()[:16]
