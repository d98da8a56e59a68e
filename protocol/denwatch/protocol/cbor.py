"""CBOR for control messages: maps, arrays, integers, byte and text strings, booleans, null.

Deterministic (RFC 8949, section 4.2, map keys by length first): one value, one encoding, and the
decoder refuses every other one, so that a message can be compared and signed as bytes. MicroPython
has no CBOR, so this codec is ours; on CPython cbor2 does the work and this one explains refusals.
The only file that imports cbor2.
"""

from .errors import ProtocolError

MAX_DEPTH = 8
MAX_SIZE = 65536

Value = object  # None, bool, int, bytes, str, list of Value, dict from int or str to Value


def encode_portable(value: Value) -> bytes:
    """Return the deterministic encoding."""
    out = bytearray()
    _append(out, value, MAX_DEPTH)
    return bytes(out)


def _append(out: bytearray, value: Value, depth: int) -> None:
    if value is None:
        out.append(0xF6)
    elif value is True or value is False:
        out.append(0xF5 if value else 0xF4)
    elif isinstance(value, int):
        if value < 0:
            _append_head(out, 0x20, -1 - value)
        else:
            _append_head(out, 0x00, value)
    elif isinstance(value, (bytes, bytearray)):
        _append_head(out, 0x40, len(value))
        out += value
    elif isinstance(value, str):
        _append_text(out, value)
    elif not isinstance(value, (list, tuple, dict)):
        raise ProtocolError(f"{type(value).__name__} has no place in a message")
    elif depth == 0:
        raise ProtocolError(f"nested deeper than {MAX_DEPTH}")
    elif isinstance(value, dict):
        _append_map(out, value, depth)
    else:
        _append_head(out, 0x80, len(value))
        for item in value:
            _append(out, item, depth - 1)


def _append_text(out: bytearray, value: str) -> None:
    try:
        text = value.encode()
    except ValueError:  # CPython's UnicodeEncodeError is one
        raise ProtocolError("text with half a character") from None
    _append_head(out, 0x60, len(text))
    out += text


def _append_map(out: bytearray, value: dict[object, object], depth: int) -> None:
    entries = []
    for key in value:
        if key is True or key is False or not isinstance(key, (int, str)):
            raise ProtocolError(f"{type(key).__name__} cannot be a key")
        encoded = bytearray()
        _append(encoded, key, 0)
        entries.append((len(encoded), bytes(encoded), value[key]))
    _append_head(out, 0xA0, len(entries))
    entries.sort(key=lambda entry: entry[:2])
    for _, encoded_key, item in entries:
        out += encoded_key
        _append(out, item, depth - 1)


def _append_head(out: bytearray, major: int, argument: int) -> None:
    if argument < 24:
        out.append(major | argument)
        return
    size = 1
    while argument >> (8 * size):
        size *= 2
    if size > 8:
        raise ProtocolError("an integer of more than 64 bits")
    out.append(major | {1: 24, 2: 25, 4: 26, 8: 27}[size])
    for i in range(size - 1, -1, -1):
        out.append(argument >> (8 * i) & 255)


def decode_portable(frame: bytes) -> Value:
    """Return the value of a whole encoding; ProtocolError names the byte that is wrong."""
    if len(frame) > MAX_SIZE:
        raise ProtocolError(f"longer than {MAX_SIZE} bytes", MAX_SIZE)
    value, at = _take(bytes(frame), 0, MAX_DEPTH)
    if at != len(frame):
        raise ProtocolError("bytes that follow the end", at)
    return value


def _take(frame: bytes, at: int, depth: int) -> tuple[Value, int]:
    """Return the value that starts at a byte, and where it ends."""
    start = at
    if at >= len(frame):
        raise ProtocolError("ends inside a message", at)
    major = frame[at] & 0xE0
    if major >= 0xC0:
        if frame[at] not in (0xF4, 0xF5, 0xF6):
            raise ProtocolError(f"0x{frame[at]:02x} starts nothing that a message may hold", at)
        return {0xF4: False, 0xF5: True, 0xF6: None}[frame[at]], at + 1
    argument, at = _take_head(frame, at)
    if major == 0x00:
        return argument, at
    if major == 0x20:
        return -1 - argument, at
    if argument > len(frame) - at:  # each element takes a byte at least
        raise ProtocolError("ends inside a string, array or map", len(frame))
    if major == 0x40:
        return frame[at : at + argument], at + argument
    if major == 0x60:
        raw = frame[at : at + argument]
        if not is_utf8(raw):
            raise ProtocolError("not UTF-8", at)
        return str(raw, "utf-8"), at + argument
    if depth == 0:
        raise ProtocolError(f"nested deeper than {MAX_DEPTH}", start)
    if major == 0x80:
        items = []
        for _ in range(argument):
            item, at = _take(frame, at, depth - 1)
            items.append(item)
        return items, at
    return _take_map(frame, at, argument, depth)


def _take_map(frame: bytes, at: int, count: int, depth: int) -> tuple[Value, int]:
    result: dict[object, object] = {}
    previous = (0, b"")
    for _ in range(count):
        start = at
        key, at = _take(frame, at, 0)
        if key is True or key is False or not isinstance(key, (int, str)):
            raise ProtocolError("this cannot be a key", start)
        order = (at - start, frame[start:at])
        if order <= previous:
            raise ProtocolError("keys out of order", start)
        previous = order
        result[key], at = _take(frame, at, depth - 1)
    return result, at


def _take_head(frame: bytes, at: int) -> tuple[int, int]:
    """Return the argument of the head at a byte, and where the head ends."""
    short = frame[at] & 31
    if short < 24:
        return short, at + 1
    if short > 27:
        raise ProtocolError("lengths are given, not open or reserved", at)
    size = 1 << (short - 24)
    stop = at + 1 + size
    if stop > len(frame):
        raise ProtocolError("ends inside a number", len(frame))
    argument = 0
    for byte in frame[at + 1 : stop]:
        argument = argument << 8 | byte
    if argument < 24 if size == 1 else argument >> (4 * size) == 0:
        raise ProtocolError("a number with leading zeros", at)
    return argument, stop


def is_utf8(raw: bytes) -> bool:
    """Return whether bytes are well-formed UTF-8; MicroPython's own check lets more pass."""
    i = 0
    while i < len(raw):
        head = raw[i]
        i += 1
        if head < 0x80:
            continue
        if head < 0xC0 or head > 0xF4:
            return False
        more = 1 if head < 0xE0 else 2 if head < 0xF0 else 3
        point = head & (0x3F >> more)
        for byte in raw[i : i + more]:
            if byte & 0xC0 != 0x80:
                return False
            point = point << 6 | byte & 0x3F
        i += more
        if i > len(raw) or point < (0x80, 0x800, 0x10000)[more - 1] or point > 0x10FFFF:
            return False
        if 0xD800 <= point < 0xE000:
            return False
    return True


def is_plain(value: Value, depth: int = MAX_DEPTH) -> bool:
    """Return whether a value holds only what a message may hold, at most so deep."""
    kind = type(value)
    if kind is int:
        return -(1 << 64) <= value < 1 << 64  # type: ignore[operator]
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) not in (int, str) or not is_plain(key):
                return False
            if not depth or not is_plain(item, depth - 1):
                return False
        return depth > 0
    if kind in (list, tuple):
        return depth > 0 and all(is_plain(item, depth - 1) for item in value)  # type: ignore[attr-defined]
    return value is None or kind in (bool, bytes, bytearray, str)


try:
    import cbor2
except ImportError:  # MicroPython
    encode = encode_portable
    decode = decode_portable
else:

    class _NoTags(dict):  # type: ignore[type-arg]
        """Every tag's decoder refuses: some of cbor2's would compute numbers of any size."""

        def __getitem__(self, tag: object) -> object:
            return self._refuse

        def _refuse(self, *_: object) -> object:
            raise cbor2.CBORDecodeError("no tags")

    _NO_TAGS = _NoTags()

    def encode(value: Value) -> bytes:
        """Return the deterministic encoding."""
        if is_plain(value):
            try:
                return cbor2.dumps(value, canonical=True)
            except (cbor2.CBOREncodeError, UnicodeEncodeError):
                return encode_portable(value)
        return encode_portable(value)

    def decode(frame: bytes) -> Value:
        """Return the value of a whole encoding; ProtocolError names the byte that is wrong."""
        if len(frame) <= MAX_SIZE:
            try:
                value = cbor2.loads(
                    frame,
                    max_depth=MAX_DEPTH + 1,
                    allow_indefinite=False,
                    allow_duplicate_keys=False,
                    semantic_decoders=_NO_TAGS,
                )
            except Exception:  # noqa: BLE001 - whatever cbor2 refuses, our decoder explains
                return decode_portable(frame)
            if is_plain(value) and cbor2.dumps(value, canonical=True) == frame:
                return value
        return decode_portable(frame)
