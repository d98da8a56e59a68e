"""Refuses every frame that `protocol.subscription.decode` refuses, without building objects.

The kernel has no bounds checks, so nothing enters the filter that did not pass here. Decoding
would do, but its classes take 10 KB of a device's flash; the two are compared frame by frame in
the tests, damaged frames included.
"""

from ..protocol.degrees import const
from ..protocol.errors import ProtocolError
from .rating import CODES, count_bits, locate, name_attribute

# Numbers of the protocol: protocol/README.md.
_MAX = const(1)
_WEIGHTED = const(6)
_SUGENO = const(7)
_AND = const(0x40)
_OR = const(0x50)
_NOT = const(0x60)
_LAST_DURATION = const(0xB7)

# Fields of a place: rating.py.
_COUNT = const(1)
_NEGATED = const(2)
_REPEATED = const(3)
_HEDGED = const(4)
_LOPSIDED = const(5)
_WIDES = const(6)
_PATTERNED = const(7)
_CERTAINLY = const(8)
_LEAST = const(9)
_EXTRA = const(10)
_SIGNIFICANT = const(11)
_RECENTLY = const(12)
_TRIPLES = const(13)
_DENIED = const(14)
_RESTRICTED = const(15)
_PLACES = const(16)


def check(frame: bytes) -> list[int]:
    """Return where the parts of a subscription vector stand; ProtocolError if it is none."""
    place = [0] * _PLACES
    _require(11 <= len(frame) <= 255, len(frame))
    try:
        locate(frame, 0, place)
        _check_head(frame)
        _check_shapes(frame, place)
        _check_conditions(frame, place)
        end = _check_triples(frame, place)
    except IndexError:
        end = 256
    _require(end == len(frame), min(end, len(frame)))
    return place


def _require(holds: object, at: int) -> None:
    """Refuse unless it holds. No words for each reason: the node that sent the frame has them."""
    if not holds:
        raise ProtocolError("not a sound subscription vector", at)


def _check_head(frame: bytes) -> None:
    flags = frame[1]
    kind = flags & 7
    _require(frame[0] & 0xC0 == 0x40, 0)
    _require(frame[5] <= _LAST_DURATION, 5)
    _require(frame[6] | frame[7], 7)
    more = 0
    if flags & 8:
        _require(frame[8], 8)
        if frame[8] & 0x80:
            more = frame[9]
            _require(more and not more & 0x80, 9)
    _require(bool(more & 0x04) == (kind == _WEIGHTED), 1)
    _require(bool(more & 0x20) == (kind == _SUGENO), 1)


def _check_shapes(frame: bytes, place: list[int]) -> None:
    """Check the sections of the first section byte."""
    features = frame[6] << 8 | frame[7]
    count = place[_COUNT]
    p = place[_REPEATED]
    if p:
        _require(frame[p - 1] and count <= 16, p - 1)
        for i in range(p, p + frame[p - 1]):
            a = frame[i]
            rises = i == p or a >= frame[i - 1]
            _require(a < 16 and features >> a & 1 and rises, i)
    _require(not place[_NEGATED] >> count, 1)
    p = place[_DENIED]
    _require(not p or ((frame[p] or frame[p + 1]) and not frame[p + 1] & 15), p)
    p = place[_HEDGED]
    if p:
        some = 0
        for i in range((count + 1) & ~1):
            code = frame[p + (i >> 1)] >> (0 if i & 1 else 4) & 15
            _require(not code or (code & 3 and i < count), p + (i >> 1))
            some |= code
        _require(some, p)
    if frame[1] & 8:
        mask = place[_LOPSIDED]
        _require(bool(mask) == bool(frame[8] & 0x08) and not mask >> count, 8)
        mask = place[_WIDES]
        _require(bool(mask) == bool(frame[8] & 0x10) and not mask & ~features, 8)
    if place[_PATTERNED]:
        _require(frame[1] & 7 not in (_MAX, _WEIGHTED, _SUGENO), 1)
        _check_pattern(frame, place[_PATTERNED], count)


def _check_pattern(frame: bytes, p: int, count: int) -> None:
    if not frame[p] & 0x80:
        for code, counts, _ in CODES:
            if frame[p] == code and frame[p + 1] == counts:
                _require((counts >> 4) + (counts & 15) == count, p + 1)
                return
        _require(False, p)
    start = p + 1
    stop = start + (frame[p] & 0x7F)
    used = depth = 0
    for i in range(start, stop):
        op = frame[i]
        if op < count:
            used |= 1 << op
            depth += 1
            _require(depth <= 16, i)
            continue
        operands = 1 if op == _NOT else op & 15
        known = op == _NOT or (op & 0xF0 in (_AND, _OR) and operands >= 2)
        _require(known and depth >= operands, i)
        depth -= operands - 1
    _require(depth == 1 and used == (1 << count) - 1, p)
    for _, counts, postfix in CODES:
        same = frame[start:stop] == postfix and (counts >> 4) + (counts & 15) == count
        _require(not same, p)


def _check_conditions(frame: bytes, place: list[int]) -> None:
    """Check the sections of the second section byte."""
    count = place[_COUNT]
    p = place[_CERTAINLY]
    _require(not p or frame[p], p)
    p = place[_LEAST]
    _require(not p or any(frame[p : p + 2 * count]), p)
    p = place[_EXTRA]
    if p and frame[1] & 7 == _WEIGHTED:
        for i in range(count):
            _require(frame[p + i], p + i)
    elif p:
        _require(frame[p] < 2 and 2 <= count <= 8, p)
    p = place[_RECENTLY]
    _require(not p or frame[p] < frame[p + 1] <= _LAST_DURATION, p)
    p = place[_RESTRICTED]
    if p:
        codes = frame[p : place[_TRIPLES]]
        _require(any(codes) and max(codes) <= _LAST_DURATION, p)
    p = place[_SIGNIFICANT]
    if p:
        _check_significance(frame, p)


def _check_significance(frame: bytes, p: int) -> None:
    flags = frame[p]
    _require(flags and not flags & 0xC0, p)
    p += 1
    if flags & 1:
        names = count_bits(frame[6] << 8 | frame[7])
        _require(any(frame[p : p + names]), p)
        p += names
    for bit in range(1, 6):
        if flags >> bit & 1:
            value = frame[p]
            _require(value, p)
            if bit == 3:
                _require(1 <= value >> 4 <= value & 15, p)
            _require(bit < 4 or value <= _LAST_DURATION, p)
            p += 1


def _check_triples(frame: bytes, place: list[int]) -> int:
    """Check the predicates' numbers and return where the vector ends."""
    p = place[_TRIPLES]
    for i in range(place[_COUNT]):
        a = name_attribute(frame, place, i)
        size = place[_WIDES] >> a & 1
        low = frame[p] << 8 | frame[p + 1] if size else frame[p]
        high = frame[p + 2] << 8 | frame[p + 3] if size else frame[p + 1]
        _require(low <= high, p)
        p += 2 + 2 * size
        if place[_LOPSIDED] >> i & 1:
            _require(frame[p] != frame[p + 1], p)
            p += 1
        p += 1
    return p
