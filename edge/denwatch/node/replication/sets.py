"""Sets of sequences as intervals, and their smallest form as bytes. Pure arithmetic.

A set is a rising tuple of (first, last), both inclusive, with a hole between any two. Nothing here
expands a set by its values, so that a peer that names an absurd number costs nothing. The only file
that knows how a set looks on a link: of four forms, each set takes the shortest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from denwatch.node.replication.context import Range
from denwatch.protocol.errors import ProtocolError

Spans = tuple[tuple[int, int], ...]
NOTHING: Spans = ()
MAX_SPAN = 1 << 20  # bits after a base: what a bitmap may cost, however far a peer reaches
MAX_VALUE = (1 << 63) - 1  # what the store's keys and the log hold
_SPANS, _BITMAP, _HOLES, _SINGLES = range(4)
_SHORT = tuple(bytes([number]) for number in range(0x80))  # nearly all numbers are below it

# Numbers ------------------------------------------------------------------------------------


def encode_number(number: int) -> bytes:
    """Return a number in groups of seven bits, lowest first."""
    if 0 <= number <= 0x7F:
        return _SHORT[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Cursor:
    """Reads a frame from its beginning, and says where one is too short."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, length: int) -> bytes:
        """Return the next bytes."""
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise ProtocolError(f"{length} bytes announced, {len(self.data) - self.at} are there")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def take_number(self) -> int:
        """Return the next number."""
        at = self.at
        if at < len(self.data) and (number := self.data[at]) < 0x80:
            self.at = at + 1
            return number
        number = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if (shift and not byte) or number > MAX_VALUE:
                    raise ProtocolError(f"a number that is written too long, before byte {self.at}")
                return number
        raise ProtocolError(f"a number without an end, before byte {self.at}")

    def take_count(self, least: int = 1) -> int:
        """Return a count of things of at least so many bytes, which must still fit."""
        count = self.take_number()
        if count * least > len(self.data) - self.at:
            raise ProtocolError(f"{count} announced, more than the frame holds")
        return count

    def finish(self) -> None:
        """Require that nothing is left."""
        if self.at != len(self.data):
            raise ProtocolError(f"{len(self.data) - self.at} bytes too many")


# Sets ---------------------------------------------------------------------------------------


def list_spans(seen: Range) -> Spans:
    """Return what a range holds."""
    spans = [(1, seen.base)] if seen.base else []
    bitmap, at = seen.bitmap, seen.base + 1
    while bitmap:
        zeros = (bitmap & -bitmap).bit_length() - 1
        bitmap >>= zeros
        ones = (~bitmap & (bitmap + 1)).bit_length() - 1
        bitmap >>= ones
        at += zeros
        spans.append((at, at + ones - 1))
        at += ones
    return tuple(spans)


def build_range(spans: Spans) -> Range:
    """Return a range that holds a set; ProtocolError if it is spread too wide."""
    base = spans[0][1] if spans and spans[0][0] == 1 else 0
    bitmap = 0
    if spans and spans[-1][1] - base > MAX_SPAN:
        raise ProtocolError(f"a set with holes over {spans[-1][1] - base} values")
    for first, last in spans:
        if first > base:
            bitmap |= ((1 << (last - first + 1)) - 1) << (first - base - 1)
    return Range(base, bitmap)


def build_spans(values: Iterable[int]) -> Spans:
    """Return the set of rising values."""
    spans: list[tuple[int, int]] = []
    for value in values:
        if spans and spans[-1][1] + 1 == value:
            spans[-1] = (spans[-1][0], value)
        else:
            spans.append((value, value))
    return tuple(spans)


def subtract(left: Spans, right: Spans) -> Spans:
    """Return what is in the left set and not in the right one."""
    spans = []
    at = 0
    for first, last in left:
        while at < len(right) and right[at][1] < first:
            at += 1
        look = at
        while first <= last:
            if look == len(right) or right[look][0] > last:
                spans.append((first, last))
                break
            if right[look][0] > first:
                spans.append((first, right[look][0] - 1))
            first = right[look][1] + 1
            look += 1
    return tuple(spans)


def intersect(left: Spans, right: Spans) -> Spans:
    """Return what is in both sets."""
    return subtract(left, subtract(left, right))


def unite(left: Spans, right: Spans) -> Spans:
    """Return what is in either set."""
    spans: list[tuple[int, int]] = []
    for first, last in sorted(left + right):
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return tuple(spans)


def differ(left: Spans, right: Spans) -> Spans:
    """Return what is in exactly one of two sets. Applied again, it gives the other back."""
    return unite(subtract(left, right), subtract(right, left))


def iterate(spans: Spans) -> Iterator[int]:
    """Yield the values, rising."""
    for first, last in spans:
        yield from range(first, last + 1)


def count_values(spans: Spans) -> int:
    """Return how many values a set has."""
    return sum(last - first + 1 for first, last in spans)


# Bytes --------------------------------------------------------------------------------------


def encode_spans(spans: Spans) -> bytes:
    """Return the shortest of the forms of a set."""
    forms = [_encode_spans(spans)]
    count = count_values(spans)
    if spans and count <= 2 * len(spans):
        forms.append(_encode_list(_SINGLES, list(iterate(spans)), b""))
    if spans:
        top = spans[-1][1]
        holes = subtract(((1, top),), spans)
        if count_values(holes) <= 2 * len(spans):
            forms.append(_encode_list(_HOLES, list(iterate(holes)), encode_number(top)))
        base = spans[0][1] if spans[0][0] == 1 else 0
        if 0 < top - base <= 32 * len(spans):
            bitmap = build_range(spans).bitmap
            raw = bitmap.to_bytes((bitmap.bit_length() + 7) // 8, "little")
            forms.append(encode_number(len(raw) << 2 | _BITMAP) + encode_number(base) + raw)
    return min(forms, key=len)


def decode_spans(cursor: Cursor) -> Spans:
    """Return the next set of a frame."""
    head = cursor.take_number()
    form, count = head & 3, head >> 2
    if count > len(cursor.data) - cursor.at:
        raise ProtocolError(f"a set of {count} pieces, more than the frame holds")
    if form == _BITMAP:
        base = cursor.take_number()
        raw = cursor.take(count)
        if count * 8 > MAX_SPAN or not count or not raw[-1]:
            raise ProtocolError("a bitmap that is too long")
        spans = list_spans(Range(base, int.from_bytes(raw, "little")))
    elif form == _SPANS:
        spans = _decode_spans(cursor, count)
    elif form == _HOLES:
        top = cursor.take_number()
        spans = subtract(((1, top),) if top else NOTHING, _decode_list(cursor, count))
    else:
        spans = _decode_list(cursor, count)
    if spans and spans[-1][1] > MAX_VALUE:
        raise ProtocolError("a sequence beyond all sequences")
    return spans


def _encode_spans(spans: Spans) -> bytes:
    out = [encode_number(len(spans) << 2 | _SPANS)]
    end = 0
    for first, last in spans:
        out += encode_number(first - end - 1), encode_number(last - first)
        end = last
    return b"".join(out)


def _decode_spans(cursor: Cursor, count: int) -> Spans:
    spans: list[tuple[int, int]] = []
    end = 0
    for _ in range(count):
        first = end + 1 + cursor.take_number()
        end = first + cursor.take_number()
        if spans and first == spans[-1][1] + 1:
            raise ProtocolError("two pieces of a set that are one")
        spans.append((first, end))
    return tuple(spans)


def _encode_list(form: int, values: list[int], top: bytes) -> bytes:
    out = [encode_number(len(values) << 2 | form), top]
    end = 0
    for value in values:
        out.append(encode_number(value - end - 1))
        end = value
    return b"".join(out)


def _decode_list(cursor: Cursor, count: int) -> Spans:
    values = []
    end = 0
    for _ in range(count):
        end += 1 + cursor.take_number()
        values.append(end)
    return build_spans(values)
