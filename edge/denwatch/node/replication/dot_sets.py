"""Sets of dots: what a node has seen, as ranges, intervals, bytes and fingerprints. Pure.

THEORY. A *run* is one origin in one epoch; its items are numbered 1, 2, 3, ..., so a set of dots is
a set of sequences for each run. It has three forms:

- `SeenRange`, in memory and on the disk: `base` and `bitmap`. All sequences up to `base` are in it,
  and base + 1 + i where bit i of the bitmap is set. Nearly always the bitmap is 0.
- `Spans`, for set arithmetic: a rising tuple of (first, last), both inclusive, with a hole between
  any two. Nothing here expands a set by its values, so a peer that names an absurd number costs
  nothing.
- bytes, on a link: of four encodings each set takes the shortest (see `encode_spans`).

INVARIANT  A `CausalContext` only grows: what was seen stays seen. A dot that is seen and not held
           is therefore gone for good, and needs no tombstone.
EXAMPLE    seen 1 2 3 5 8: SeenRange(base=3, bitmap=0b10010), Spans ((1, 3), (5, 5), (8, 8)),
           bytes 05 03 12: head 5 = one byte of bitmap (1 << 2 | 1), base 3, bitmap 0x12.
           After 4 arrives the base moves over 4 and 5: SeenRange(base=5, bitmap=0b100).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from denwatch.protocol.errors import ProtocolError

FINGERPRINT = 16  # bytes
GROUP = 6  # bytes of the hash of a group of runs
SALT = 8  # bytes
Run = tuple[str, int]  # origin and epoch
Spans = tuple[tuple[int, int], ...]
NOTHING: Spans = ()
MAX_SPAN = 1 << 20  # bits after a base: what a bitmap may cost, however far a peer reaches
MAX_VALUE = (1 << 63) - 1  # what the store's keys and the log hold
_SPANS, _BITMAP, _HOLES, _SINGLES = range(4)
_SHORT = tuple(bytes([number]) for number in range(0x80))  # nearly all numbers are below it


class SeenRange(NamedTuple):
    """What was seen of one run."""

    base: int
    bitmap: int

    def holds(self, sequence: int) -> bool:
        """Return whether a sequence is in it."""
        if sequence <= self.base:
            return sequence > 0
        return bool(self.bitmap >> (sequence - self.base - 1) & 1)

    def add(self, sequence: int) -> SeenRange:
        """Return the range with one more; the base moves over what has become whole."""
        if self.holds(sequence):
            return self
        if sequence == self.base + 1 and not self.bitmap:  # the usual case
            return SeenRange(sequence, 0)
        return _normalise(self.base, self.bitmap | 1 << (sequence - self.base - 1))

    def join(self, other: SeenRange) -> SeenRange:
        """Return what either has seen."""
        base = max(self.base, other.base)
        bitmap = self.bitmap >> (base - self.base) | other.bitmap >> (base - other.base)
        return _normalise(base, bitmap)

    def encode(self) -> bytes:
        """Return the range as bytes: eight for the base, then the bitmap, lowest byte first."""
        size = (self.bitmap.bit_length() + 7) // 8
        return self.base.to_bytes(8, "big") + self.bitmap.to_bytes(size, "little")


def _normalise(base: int, bitmap: int) -> SeenRange:
    """Move the base over the ones at the low end of the bitmap.

    ~b & (b + 1) isolates the lowest zero of b: 0b0111 gives 0b1000. Its place is the number of ones
    below it.
    """
    ones = (~bitmap & (bitmap + 1)).bit_length() - 1
    return SeenRange(base + ones, bitmap >> ones)


EMPTY = SeenRange(0, 0)


def decode_range(data: bytes) -> SeenRange:
    """Return the range of `SeenRange.encode`."""
    return SeenRange(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "little"))


class CausalContext:
    """All dots that a node has ever seen, by run."""

    def __init__(self) -> None:
        self.runs: dict[Run, SeenRange] = {}

    def holds(self, origin: str, epoch: int, sequence: int) -> bool:
        """Return whether a dot was seen."""
        return self.runs.get((origin, epoch), EMPTY).holds(sequence)

    def add(self, origin: str, epoch: int, sequence: int) -> None:
        """Record that a dot was seen."""
        run = (origin, epoch)
        self.runs[run] = self.runs.get(run, EMPTY).add(sequence)

    def join(self, run: Run, seen: SeenRange) -> None:
        """Record everything in a range as seen."""
        self.runs[run] = self.runs.get(run, EMPTY).join(seen)


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


class FrameReader:
    """Reads a frame from front to back; a ProtocolError says what does not fit."""

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


def list_spans(seen: SeenRange) -> Spans:
    """Return what a range holds."""
    spans = [(1, seen.base)] if seen.base else []
    bitmap, at = seen.bitmap, seen.base + 1
    while bitmap:
        # b & -b isolates the lowest one: skip the zeros below it, then count the ones from there.
        zeros = (bitmap & -bitmap).bit_length() - 1
        bitmap >>= zeros
        ones = (~bitmap & (bitmap + 1)).bit_length() - 1
        bitmap >>= ones
        at += zeros
        spans.append((at, at + ones - 1))
        at += ones
    return tuple(spans)


def build_range(spans: Spans) -> SeenRange:
    """Return a range that holds a set; ProtocolError if it is spread too wide."""
    base = spans[0][1] if spans and spans[0][0] == 1 else 0
    bitmap = 0
    if spans and spans[-1][1] - base > MAX_SPAN:
        raise ProtocolError(f"a set with holes over {spans[-1][1] - base} values")
    for first, last in spans:
        if first > base:
            bitmap |= ((1 << (last - first + 1)) - 1) << (first - base - 1)
    return SeenRange(base, bitmap)


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
    """Return what is in the left set and not in the right one, in one pass over both."""
    spans = []
    at = 0
    for first, last in left:
        while at < len(right) and right[at][1] < first:
            at += 1  # ends before this interval, hence before all that follow
        look = at  # a long right interval may also cut the next left one: `at` stays
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
    """Return the shortest encoding of a set.

    Each begins with a number: how many pieces follow, times four, plus the encoding.

        0 spans    for each interval: the gap before it, its length - 1
        1 bitmap   base, then bytes of bitmap, lowest first    many short holes
        2 holes    the last value, then each missing one       nearly whole
        3 singles  each value                                  few, far apart

    Values are written as the distance to the one before, less one. A set whose other encodings
    cannot be shorter is not tried in them: a set of two intervals over a million values has neither
    a bitmap nor a list.
    """
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


def decode_spans(cursor: FrameReader) -> Spans:
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
        spans = list_spans(SeenRange(base, int.from_bytes(raw, "little")))
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


def _decode_spans(cursor: FrameReader, count: int) -> Spans:
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


def _decode_list(cursor: FrameReader, count: int) -> Spans:
    values = []
    end = 0
    for _ in range(count):
        end += 1 + cursor.take_number()
        values.append(end)
    return build_spans(values)


# Fingerprints -------------------------------------------------------------------------------
#
# One fingerprint of all that a node could tell another: if two are equal, there is nothing to
# exchange. It covers what was ever seen (the context) and which removable items are held; with both
# equal, no frame could change anything at either side. Held notifications and receipts are not in
# it: a node that has seen one does not accept it again, and drops it by its own clock.
#
# A run's hash is computed again only when the run changed; a contact hashes 16 bytes for each run.
# Hashes are concatenated and hashed, not added or XORed, so that nobody can choose dots that cancel
# out, and each contact's salt is made with a secret, so that nobody can search for collisions
# beforehand.


class Fingerprints:
    """The hashes of a node's runs, and the fingerprint made of them for each contact."""

    def __init__(self) -> None:
        self._hashes: dict[Run, bytes] = {}
        self._order: list[Run] = []

    def update(self, run: Run, seen: SeenRange, held: Mapping[int, int]) -> None:
        """Hash a run that changed: what was seen, and the removable items held, as 64-bit masks."""
        if seen == EMPTY:
            return
        state = hashlib.blake2b(digest_size=FINGERPRINT, person=b"run")
        name = run[0].encode()
        encoded = seen.encode()
        state.update(bytes([len(name)]) + name + run[1].to_bytes(4, "big"))
        state.update(len(encoded).to_bytes(4, "big") + encoded)
        for block in sorted(held):
            if held[block]:
                state.update(block.to_bytes(8, "big") + held[block].to_bytes(8, "big"))
        if run not in self._hashes:
            self._order = []
        self._hashes[run] = state.digest()

    def combine(self, salt: bytes) -> bytes:
        """Return the fingerprint of everything, for one contact."""
        if not self._order:
            self._order = sorted(self._hashes)
        state = hashlib.blake2b(digest_size=FINGERPRINT, key=salt, person=b"contact")
        for run in self._order:
            state.update(self._hashes[run])
        return state.digest()

    def hash_groups(self, salt: bytes, count: int) -> list[bytes]:
        """Return the hashes of so many groups of runs, for one contact."""
        states = [
            hashlib.blake2b(digest_size=GROUP, key=salt, person=b"group") for _ in range(count)
        ]
        for run in sorted(self._hashes):
            states[find_group(run, count)].update(self._hashes[run])
        return [state.digest() for state in states]


def find_group(run: Run, count: int) -> int:
    """Return the group of a run, which both sides find alike."""
    name = run[0].encode() + run[1].to_bytes(4, "big")
    return int.from_bytes(hashlib.blake2b(name, digest_size=4).digest(), "big") % count


def make_salt(secret: bytes, name: str, epoch: int, count: int, now: int) -> bytes:
    """Return a salt that no other contact of this node has and no third node can foresee."""
    told = b"".join(number.to_bytes(8, "big", signed=True) for number in (epoch, count, now))
    told += name.encode()  # both ends have the secret, and may begin at the same time
    return hashlib.blake2b(told, digest_size=SALT, key=secret[:64], person=b"salt").digest()
