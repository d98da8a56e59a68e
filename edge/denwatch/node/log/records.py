"""One record of the log as bytes, and back: a CBOR array [kind, time, hybrid, fields...].

The number of a record is not in it: records are numbered by their place, without gaps, and a block
says where it begins. Trailing fields that are None are left out. Pure.

A node writes four records for every notification, so there is a short way of encoding: a writer for
each type of field checks a value and returns its bytes in one go. What it does not know leaves the
whole record to the checks and to cbor2, which write the same bytes or say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

import cbor2
from denwatch.node.log import kinds
from denwatch.node.log.kinds import KINDS, RecordKind

MAX_RECORD = 4 << 20  # bytes
FIXED = 3  # kind, time, hybrid come before the fields
_LOW, _HIGH, _TOP = -(1 << 63), 1 << 63, 1 << 64
_BAD_TIMES = "time and hybrid time are not integers of 64 bits"

_CLASSES: dict[str, tuple[type, ...]] = {
    kinds.TEXT: (str,),
    kinds.INT: (int,),
    kinds.ID: (int,),
    kinds.REAL: (float, int),
    kinds.BYTES: (bytes,),
    kinds.BOOL: (bool,),
    kinds.IDS: (list,),
    kinds.TEXTS: (list,),
    kinds.MAP: (dict,),
}
_CONTENTS: dict[str, Callable[[Any], bool]] = {
    kinds.REAL: lambda value: type(value) is float or -(1 << 53) <= value <= 1 << 53,
    kinds.IDS: lambda value: (
        not value or (set(map(type, value)) == {int} and min(value) >= 0 and max(value) < _TOP)
    ),
    kinds.TEXTS: lambda value: {str}.issuperset(map(type, value)),
    kinds.MAP: lambda value: all(type(key) is str for key in value),
}


class LogRecordError(ValueError):
    """A record does not fit the table of kinds; the text says which field, and why."""


class LogRecord(NamedTuple):
    """One record, decoded. `schema` is the version of the table it was written by."""

    schema: int
    node: str
    epoch: int
    number: int
    time: int  # ms, by the node's clock
    hybrid: int  # the node's hybrid time; 0 if it had none
    kind: str
    fields: dict[str, Any]


def encode_record(kind: str, fields: Mapping[str, Any], time: int, hybrid: int = 0) -> bytes:
    """Return a record as bytes; RecordError if the table of kinds has no such record."""
    layout = _BY_NAME.get(kind)
    if layout is None:
        raise LogRecordError(f"there is no record of the kind {kind!r}")
    try:
        data = _encode_shortly(layout, fields, time, hybrid)
    except (_Unusual, StructError, UnicodeEncodeError):
        data = _encode_checked(kind, layout, fields, time, hybrid)
    if len(data) > MAX_RECORD:
        raise LogRecordError(f"{kind}: {len(data)} bytes, more than {MAX_RECORD}")
    return data


def _encode_shortly(layout: _Layout, fields: Mapping[str, Any], time: int, hybrid: int) -> bytes:
    """Return a record whose values are of the usual types and sizes; _Unusual otherwise."""
    values = list(map(fields.get, layout.names))
    while values and values[-1] is None:
        values.pop()
    is_usual = time > _LONG_FROM and hybrid > _LONG_FROM and len(values) >= layout.required
    if not is_usual or not fields.keys() <= layout.known:
        raise _Unusual
    if None in values:
        written = [
            _NULL if value is None and field.is_optional else write(value)
            for write, value, field in zip(layout.writers, values, layout.kind.fields, strict=False)
        ]
    else:
        written = [write(value) for write, value in zip(layout.writers, values, strict=False)]
    return b"".join((layout.heads[len(values)], _pack_times(27, time, 27, hybrid), *written))


def _encode_checked(
    kind: str, layout: _Layout, fields: Mapping[str, Any], time: int, hybrid: int
) -> bytes:
    row = [layout.kind.id, time, hybrid, *map(fields.get, layout.names)]
    reason = _check_values(layout, row)
    if reason is None and not fields.keys() <= layout.known:
        reason = f"there is no field {min(fields.keys() - layout.known)!r}"
    if reason is not None:
        raise LogRecordError(f"{kind}: {reason}")
    while row[-1] is None:
        row.pop()
    try:
        data = cbor2.dumps(row)
    except (cbor2.CBOREncodeError, ValueError, RecursionError) as error:
        raise LogRecordError(f"{kind}: {error}") from None
    return data


# The short way: how values of one type are written. Each checks what it writes.

_NULL = b"\xf6"
_LONG_FROM = (1 << 32) - 1  # above, a number takes eight bytes
_NUMBERS = tuple(map(cbor2.dumps, range(256)))
_BYTES_HEADS = tuple(cbor2.dumps(bytes(size))[: 1 if size < 24 else 2] for size in range(256))
_pack_long = Struct(">BQ").pack
_pack_times = Struct(">BqBq").pack
_pack_real = Struct(">Bd").pack


class _Unusual(Exception):
    """A value that the short way leaves to the checks and to cbor2."""


def _write_id(value: Any) -> bytes:
    if type(value) is int:
        if value > _LONG_FROM:
            return _pack_long(27, value)  # StructError from 1 << 64 on
        if 0 <= value < 256:
            return _NUMBERS[value]
    raise _Unusual


def _write_int(value: Any) -> bytes:
    if type(value) is int:
        if 0 <= value < 256:
            return _NUMBERS[value]
        if _LOW <= value < _HIGH:
            return _pack_long(27, value) if value > _LONG_FROM else cbor2.dumps(value)
    raise _Unusual


def _write_real(value: Any) -> bytes:
    if type(value) is float and value - value == 0:  # neither infinite nor no number
        return _pack_real(251, value)
    raise _Unusual


def _write_bytes(value: Any) -> bytes:
    if type(value) is bytes and len(value) < 256:
        return _BYTES_HEADS[len(value)] + value
    raise _Unusual


def _write_text(value: Any) -> bytes:
    if type(value) is str:
        return _write_known(value) if len(value) < 64 else cbor2.dumps(value)
    raise _Unusual


@lru_cache(maxsize=4096)
def _write_known(text: str) -> bytes:
    """Return a short text: most are names, which come again."""
    return cbor2.dumps(text)


def _write_bool(value: Any) -> bytes:
    if type(value) is bool:
        return b"\xf5" if value else b"\xf4"
    raise _Unusual


def _write_ids(value: Any) -> bytes:
    if type(value) is list and len(value) < 24:
        return b"".join((bytes((0x80 | len(value),)), *map(_write_id, value)))
    raise _Unusual


def _write_unusual(value: Any) -> bytes:  # noqa: ARG001 - lists of text, and maps
    raise _Unusual


_WRITERS: dict[str, Callable[[Any], bytes]] = {
    kinds.TEXT: _write_text,
    kinds.INT: _write_int,
    kinds.ID: _write_id,
    kinds.REAL: _write_real,
    kinds.BYTES: _write_bytes,
    kinds.BOOL: _write_bool,
    kinds.IDS: _write_ids,
    kinds.TEXTS: _write_unusual,
    kinds.MAP: _write_unusual,
}


def check_row(row: Any) -> str | None:
    """Return why a decoded array is no record of a known kind; None if it is one.

    Additional fields come from a newer version and are ignored.
    """
    if type(row) is not list or len(row) < FIXED:
        return "a record is an array of kind, time, hybrid time and fields"
    layout = _LAYOUTS.get(row[0]) if type(row[0]) is int else None
    if layout is None:
        return f"the kind {row[0]!r} is not known to this version"
    return _check_values(layout, row)


def _check_values(layout: _Layout, row: list[Any]) -> str | None:
    # Types that were valid once are valid again: most rows take this short way.
    classes = tuple(map(type, row))
    shape = layout.accepted.get(classes)
    if shape is None:
        reason = layout.find_wrong_type(row)
        if reason is not None:
            return reason
        shape = layout.shape(classes)
        if len(layout.accepted) < 1024:
            layout.accepted[classes] = shape
    try:
        shape.pack(*shape.take(row))  # fails unless all integers are in range
    except StructError:
        return layout.find_out_of_range(row)
    for place, is_right in shape.contents:
        if not is_right(row[place]):
            return layout.describe_range(place, row[place])
    return None


def check_columns(kind: int, columns: Sequence[Sequence[Any]]) -> bool:
    """Return whether all rows of a kind are valid; `columns` are theirs, short rows padded.

    The same as `check_row` for many rows at once, but it does not find which one is wrong.
    """
    layout = _LAYOUTS[kind]
    if len(columns) < FIXED + layout.required:
        return False
    types = [set(map(type, column)) for column in columns]
    if any(found != {int} for found in types[:FIXED]):
        return False
    if any(min(column) < _LOW or max(column) >= _HIGH for column in columns[1:FIXED]):
        return False
    if not all(map(frozenset.issuperset, layout.allowed, types[FIXED:])):
        return False
    for place, low, high in layout.ranges:
        if place < len(columns):
            values = _drop_missing(columns[place], types[place])
            if values and (min(values) < low or max(values) >= high):
                return False
    for place, is_right in layout.contents:
        if place < len(columns):
            values = _drop_missing(columns[place], types[place])
            # A column of lists is one long list: two calls instead of one for each row.
            if values and type(values[0]) is list:
                values = [list(chain.from_iterable(values))]
            if not all(map(is_right, values)):
                return False
    return True


def _drop_missing(column: Sequence[Any], types: set[type]) -> Sequence[Any]:
    return [value for value in column if value is not None] if type(None) in types else column


def name_fields(row: list[Any]) -> dict[str, Any]:
    """Return the fields of a checked row by name; omitted fields are None."""
    names = _LAYOUTS[row[0]].names
    values = row[FIXED : FIXED + len(names)]
    values += [None] * (len(names) - len(values))
    return dict(zip(names, values, strict=True))


class _Shape(NamedTuple):
    """What is left to check when the types of a row are known."""

    take: Callable[[list[Any]], tuple[int, ...]]  # the two times, and all integers
    pack: Callable[..., bytes]
    contents: tuple[tuple[int, Callable[[Any], bool]], ...]


class _Layout(NamedTuple):
    """What checking a kind needs, computed once."""

    kind: RecordKind
    names: tuple[str, ...]
    known: frozenset[str]  # the same names
    required: int  # fields up to the last that must be there
    ranges: tuple[tuple[int, int, int], ...]  # place in the row, lowest, first too high
    contents: tuple[tuple[int, Callable[[Any], bool]], ...]  # place in the row, test
    allowed: tuple[frozenset[type], ...]  # types of each field
    accepted: dict[tuple[type, ...], _Shape]  # by types of rows that were found right
    heads: tuple[bytes, ...]  # how a record with so many fields begins
    writers: tuple[Callable[[Any], bytes], ...]  # of each field

    def shape(self, classes: tuple[type, ...]) -> _Shape:
        """Return what is left to check of rows with these types."""
        places, letters = [1, 2], "qq"  # the two times
        for place, low, _ in self.ranges:
            if place < len(classes) and classes[place] is int:
                places.append(place)
                letters += "q" if low else "Q"
        contents = [
            (place, is_right)
            for place, is_right in self.contents
            if place < len(classes) and classes[place] is not type(None)
        ]
        return _Shape(itemgetter(*places), Struct(f"<{letters}").pack, tuple(contents))

    def find_wrong_type(self, row: list[Any]) -> str | None:
        """Return which value is missing or has the wrong type."""
        if type(row[1]) is not int or type(row[2]) is not int:
            return _BAD_TIMES
        length = len(row) - FIXED
        if length < self.required:
            return f"the field {self.kind.fields[length].name} is missing"
        values = zip(row[FIXED:], self.allowed, self.kind.fields, strict=False)
        for value, allowed, field in values:
            if type(value) not in allowed:
                found = "missing" if value is None else f"{value!r:.40}"
                return f"the field {field.name} is {found}, not {field.type}"
        return None

    def find_out_of_range(self, row: list[Any]) -> str:
        """Return which value is out of range; there is one."""
        for place, low, high in self.ranges:
            if place < len(row) and row[place] is not None and not low <= row[place] < high:
                return self.describe_range(place, row[place])
        return _BAD_TIMES

    def describe_range(self, place: int, value: Any) -> str:
        """Return the message for a value that is out of range."""
        field = self.kind.fields[place - FIXED]
        return f"the field {field.name} is out of the range of {field.type}: {value!r:.40}"


def _lay_out(kind: RecordKind) -> _Layout:
    fields = list(enumerate(kind.fields, FIXED))
    limits = {kinds.INT: (_LOW, _HIGH), kinds.ID: (0, _TOP)}
    return _Layout(
        kind,
        tuple(field.name for field in kind.fields),
        frozenset(field.name for field in kind.fields),
        max((place + 1 - FIXED for place, field in fields if not field.is_optional), default=0),
        tuple((place, *limits[field.type]) for place, field in fields if field.type in limits),
        tuple((p, _CONTENTS[field.type]) for p, field in fields if field.type in _CONTENTS),
        tuple(
            frozenset((*_CLASSES[field.type], *([type(None)] if field.is_optional else ())))
            for field in kind.fields
        ),
        {},
        tuple(
            cbor2.dumps([kind.id, *[0] * (count + FIXED - 1)])[: -(count + FIXED - 1)]
            for count in range(len(fields) + 1)
        ),
        tuple(_WRITERS[field.type] for field in kind.fields),
    )


_LAYOUTS = {kind.id: _lay_out(kind) for kind in KINDS.values()}
_BY_NAME = {layout.kind.name: layout for layout in _LAYOUTS.values()}
