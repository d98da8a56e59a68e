"""Where the parts of a subscription vector stand, for those who need more than its degree.

The walk is that of `protocol.evaluator.evaluate`, which keeps its own for speed. Numbers are
private to each file (`_NAME = const(...)`) because MicroPython then keeps no name for them: that,
and not importing the evaluator, saves a device 4 KB of heap.
"""

from ..protocol.degrees import const

# The sections, by their bit in the two section bytes: protocol/README.md.
_REPEATS = const(0x01)
_NEGATIONS = const(0x02)
_HEDGES = const(0x04)
_ASYMMETRIC = const(0x08)
_WIDE = const(0x10)
_PATTERN = const(0x20)
_MORE = const(0x80)
_CERTAIN = const(0x01)
_THETAS = const(0x02)
_WEIGHTS = const(0x04)
_SIGNIFICANCE = const(0x08)
_RECENT = const(0x10)
_CONSEQUENTS = const(0x20)

# A place: masks and counts, and the positions of sections, 0 where there is none. Other files name
# its fields with the same numbers.
_FEATURES = const(0)
_COUNT = const(1)  # of predicates
_NEGATED = const(2)
_DENIED = const(14)  # where the negations of later predicates stand
_REPEATED = const(3)
_HEDGED = const(4)
_LOPSIDED = const(5)  # mask of the asymmetric predicates
_WIDES = const(6)
_PATTERNED = const(7)
_CERTAINLY = const(8)
_LEAST = const(9)  # thresholds of predicates
_EXTRA = const(10)  # weights or consequents
_SIGNIFICANT = const(11)
_RECENTLY = const(12)
_TRIPLES = const(13)
_PLACES = const(15)

# The DENS paper's patterns: code, counts of the two groups, and what they mean in postfix.
CODES = (
    (0x2C, 0x12, b"\x00\x01\x02\x52\x42"),
    (0x26, 0x21, b"\x00\x01\x42\x02\x52"),
    (0x2A, 0x22, b"\x00\x01\x42\x02\x03\x42\x52"),
    (0x23, 0x31, b"\x00\x01\x02\x53\x03\x42"),
)


def count_bits(mask: int) -> int:
    """Return how many bits are set."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


def locate(buf: bytes | bytearray, at: int, place: list[int]) -> None:
    """Fill in the place of the vector at buf[at:]."""
    for i in range(_PLACES):
        place[i] = 0
    features = buf[at + 6] << 8 | buf[at + 7]
    count = names = count_bits(features)
    place[_FEATURES] = features
    place[_NEGATED] = buf[at + 1] >> 4
    sections = more = 0
    p = at + 8
    if buf[at + 1] & 8:
        sections = buf[p]
        p += 1
        if sections & _MORE:
            more = buf[p]
            p += 1
    if sections & _REPEATS:
        place[_REPEATED] = p + 1
        count += buf[p]
        p += 1 + buf[p]
    if sections & _NEGATIONS:
        place[_DENIED] = p
        place[_NEGATED] |= buf[p] << 8 | buf[p + 1]
        p += 2
    if sections & _HEDGES:
        place[_HEDGED] = p
        p += (count + 1) >> 1
    if sections & _ASYMMETRIC:
        place[_LOPSIDED] = buf[p] << 8 | buf[p + 1]
        p += 2
    if sections & _WIDE:
        place[_WIDES] = buf[p] << 8 | buf[p + 1]
        p += 2
    if sections & _PATTERN:
        place[_PATTERNED] = p
        p += 1 + (buf[p] & 0x7F) if buf[p] & 0x80 else 2
    if more & _CERTAIN:
        place[_CERTAINLY] = p
        p += 1
    if more & _THETAS:
        place[_LEAST] = p
        p += 2 * count
    if more & _WEIGHTS:
        place[_EXTRA] = p
        p += count
    if more & _SIGNIFICANCE:
        place[_SIGNIFICANT] = p
        p += 1 + (names if buf[p] & 1 else 0) + count_bits(buf[p] >> 1)
    if more & _RECENT:
        place[_RECENTLY] = p
        p += 2
    if more & _CONSEQUENTS:
        place[_EXTRA] = p
        p += 1 + count * (count - 1) // 2 * (4 if buf[p] else 1)
    place[_COUNT] = count
    place[_TRIPLES] = p


def name_attribute(buf: bytes | bytearray, place: list[int], predicate: int) -> int:
    """Return the attribute of a predicate, by its number in the vector."""
    features = place[_FEATURES]
    for attribute in range(16):
        if features >> attribute & 1:
            if not predicate:
                return attribute
            predicate -= 1
    return buf[place[_REPEATED] + predicate]
