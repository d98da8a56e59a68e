"""Predicate patterns: the DENS paper's four in two bytes, every other nesting as postfix.

The paper's names count operands after their operator, d for disjunction and c for conjunction:
c1d2 is p1 and (p2 or p3); c2d1 is (p1 and p2) or p3; c2c2 is (p1 and p2) or (p3 and p4);
d3c1 is (p1 or p2 or p3) and p4. A group of several is joined to the other by the other operator.
"""

from .cursor import Cursor
from .errors import ProtocolError
from .evaluator import AND, OR
from .vectors import check_pattern

# First byte: bit 0 the operator of group 1 (0 and, 1 or), bit 1 whether it has several operands,
# bits 2 and 3 the same of group 2, bits 4 and 5 how many such pairs of bits the pattern uses.
_CODES = {
    (0x2C, 0x12): bytes([0, 1, 2, OR | 2, AND | 2]),
    (0x26, 0x21): bytes([0, 1, AND | 2, 2, OR | 2]),
    (0x2A, 0x22): bytes([0, 1, AND | 2, 2, 3, AND | 2, OR | 2]),
    (0x23, 0x31): bytes([0, 1, 2, OR | 3, 3, AND | 2]),
}


def pack_pattern(pattern: bytes) -> bytes:
    """Return the section of a postfix pattern."""
    for code in _CODES:
        if _CODES[code] == pattern:
            return bytes(code)
    return bytes([0x80 | len(pattern)]) + pattern


def unpack_pattern(c: Cursor, predicates: int) -> bytes:
    """Return the postfix pattern of the section at the cursor."""
    start = c.at
    head = c.byte("pattern")
    if not head & 0x80:
        code = (head, c.byte("counts of the pattern"))
        if code not in _CODES:
            raise ProtocolError("no pattern has the code 0x{:02x}{:02x}".format(*code), start)
        if (code[1] >> 4) + (code[1] & 15) != predicates:
            raise c.error(f"pattern of other than {predicates} predicates")
        return _CODES[code]
    pattern = c.take(head & 0x7F, "pattern")
    check_pattern(pattern, predicates, start + 1)
    if pack_pattern(pattern)[0] != head:
        raise ProtocolError("this pattern has a two-byte code", start)
    return pattern
