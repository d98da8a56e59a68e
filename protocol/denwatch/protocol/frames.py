"""The device link: authenticated frames, and the control messages that some of them carry.

A frame is 19 bytes around a body, 11 before and 8 after. The tag also covers what is not sent,
because both ends know it: the direction and the two names. So a frame cannot be turned around,
handed to another device, or played back under another epoch. To refuse a repeated (epoch, sequence)
is the receiver's part: this file keeps nothing.

A control message is a name and a dictionary by field name; on the wire, a CBOR map with small
integers for keys, described in CDDL in README.md. Key 0 holds the type. Unknown types, missing
fields and unknown keys below 24 are refused; unknown keys from 24 on are for later and passed over.
"""

from . import cbor
from .errors import Cursor, ProtocolError
from .vectors import Record, check_range

try:
    from hmac import HMAC
    from hmac import compare_digest as equal
except ImportError:  # MicroPython, which may have an hmac without compare_digest
    from .mac import PortableKey as Key
    from .mac import equal_portable as equal  # type: ignore[no-redef]
else:

    class Key:  # type: ignore[no-redef]
        """CPython's own HMAC, where `mac.PortableKey` is not needed."""

        def __init__(self, secret: bytes) -> None:
            self.state = HMAC(secret, digestmod="sha256")

        def tag(self, message: bytes) -> bytes:
            """Return the first 8 bytes of the HMAC."""
            state = self.state.copy()
            state.update(message)
            return state.digest()[:TAG]


TAG = 8
OVERHEAD = 11 + TAG
MAX_LENGTH = 4096
MIN_SECRET = 16

UP = 0  # from a device to its node
DOWN = 1

# What a body holds.
SUBSCRIPTIONS = 1  # subscription vectors, each behind its length
NOTIFICATIONS = 2  # notification vectors, each behind its length
MESSAGE = 3  # one control message
_KINDS = (SUBSCRIPTIONS, NOTIFICATIONS, MESSAGE)

_VERSION = 0x40


class Link(Record):
    """One key between a device and a node, and the names that its tags cover."""

    FIELDS = ("device", "node", "key_id")

    def __init__(self, device: str, node: str, key_id: int, secret: bytes) -> None:
        self.device = device
        self.node = node
        self.key_id = key_id
        check_range("key id", key_id, 0, 65535)
        if len(secret) < MIN_SECRET or len(set(secret)) < MIN_SECRET // 2:
            raise ProtocolError(f"a key has at least {MIN_SECRET} bytes, and they differ")
        self._key = Key(secret)
        self._starts = [self._begin(direction) for direction in (UP, DOWN)]

    def _begin(self, direction: int) -> bytes:
        """Return how what the tag covers begins: an array of six, of which two are the frame's."""
        covered = cbor.encode(["denwatch", direction, self.device, self.node, b"", b""])
        return covered[:-2]

    def tag(self, direction: int, head: bytes, body: bytes) -> bytes:
        """Return the tag of one frame."""
        return self._key.tag(
            self._starts[direction] + _measure(head) + head + _measure(body) + body
        )


class Frame(Record):
    """One frame that was authenticated."""

    FIELDS = ("kind", "epoch", "sequence", "body")

    def __init__(self, kind: int, epoch: int, sequence: int, body: bytes) -> None:
        self.kind = kind
        self.epoch = epoch
        self.sequence = sequence
        self.body = body


def _measure(data: bytes) -> bytes:
    """Return what stands before bytes in CBOR; a frame has fewer than 65,536."""
    size = len(data)
    if size < 24:
        return bytes([0x40 + size])
    return bytes([0x58, size]) if size < 256 else bytes([0x59, size >> 8, size & 255])


def seal(link: Link, direction: int, frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    if frame.kind not in _KINDS:
        raise ProtocolError(f"no frame is of kind {frame.kind}")
    if len(frame.body) > MAX_LENGTH - OVERHEAD:
        raise ProtocolError(f"a body of {len(frame.body)} bytes is too long")
    head = bytearray([_VERSION | frame.kind, link.key_id >> 8, link.key_id & 255])
    for number in (frame.epoch, frame.sequence):
        check_range("epoch or sequence", number, 0, 0xFFFFFFFF)
        for shift in (24, 16, 8, 0):
            head.append(number >> shift & 255)
    return bytes(head) + frame.body + link.tag(direction, bytes(head), frame.body)


def read_key_id(frame: bytes) -> int:
    """Return the key id of a frame, to find its link."""
    c = Cursor(frame, MAX_LENGTH)
    c.byte("kind")
    return c.pair("key id")


def open_frame(link: Link, direction: int, frame: bytes) -> Frame:
    """Return the frame if its tag is right; ProtocolError otherwise."""
    c = Cursor(frame, MAX_LENGTH)
    head = c.byte("kind")
    if head & 0xC0 != _VERSION or head & 0x3F not in _KINDS:
        raise c.error("no kind of frame of version 1")
    if c.pair("key id") != link.key_id:
        raise c.error("another key's frame")
    epoch = c.pair("epoch") * 65536 + c.pair("epoch")
    sequence = c.pair("sequence") * 65536 + c.pair("sequence")
    body = c.take(max(0, len(frame) - OVERHEAD), "body")
    tag = c.take(TAG, "tag")
    if not equal(tag, link.tag(direction, bytes(frame[: OVERHEAD - TAG]), body)):
        raise ProtocolError("the tag is wrong", len(frame) - TAG)
    return Frame(head & 0x3F, epoch, sequence, body)


def join_vectors(vectors: list[bytes]) -> bytes:
    """Return the body that carries several vectors."""
    body = b""
    for vector in vectors:
        check_range("length of a vector", len(vector), 1, 255)
        body += bytes([len(vector)]) + vector
    return body


def split_vectors(body: bytes) -> list[bytes]:
    """Return the vectors of a body."""
    c = Cursor(body, MAX_LENGTH)
    vectors = []
    while c.at < len(body):
        vectors.append(c.take(c.positive("length of a vector"), "vector"))
    return vectors


# Control messages ------------------------------------------------------------------------------

FUZZY, CONTENT = 0, 1  # subscription languages: one id in hellos, items and logs
_OPTIONAL_KEYS = 24
_MAX_NAME = 64

# type: (name, {key: (field, kind, required)})
_SCHEMAS = {
    1: (
        "hello",
        {
            1: ("device", "name", True),
            2: ("epoch", "uint32", True),
            3: ("vocabulary", "hash", True),
            4: ("senses", "senses", True),  # event: [features, wide features]
            5: ("capacity", "uint32", True),  # bytes for subscription vectors
            6: ("languages", "uints", True),
            7: ("firmware", "text", False),
            8: ("reset", "uint32", False),  # reset reason
            9: ("lowest", "uint32", False),  # low-water mark of free memory
            10: ("dropped", "uint32", False),  # notifications lost to a full spool
            24: ("doubts", "doubts", False),  # event: features that have an accuracy
            25: ("facts", "facts", False),  # what the board says of itself, by number
            26: ("log", "text", False),  # its last lines, once it was asked for them
            # sys.implementation._mpy, 0: no updates, 1: they can be, 2: on trial; version, image,
            # image that failed
            30: ("image", "image", False),
        },
    ),
    2: ("vocabulary", {1: ("hash", "hash", True), 2: ("body", "bytes", True)}),
    3: ("acknowledge", {1: ("epoch", "uint32", True), 2: ("sequence", "uint32", True)}),
    4: ("remove", {1: ("handles", "uints", True)}),
    5: ("digest", {1: ("salt", "bytes", True), 2: ("prints", "many bytes", True)}),
    # origin, epoch, base, bitmap: all up to base, and the bits after it
    6: ("known", {1: ("ranges", "ranges", True)}),
    # origin, epoch, sequence, kind, expires (s, 0: never), body
    7: ("items", {1: ("items", "items", True)}),
    # the number of the last hello that a node accepted, to a device whose hello is older
    8: ("heard", {1: ("epoch", "uint32", True), 2: ("count", "uint32", True)}),
    # updates over the air: an image (its id) with a manifest of so many bytes ...
    16: ("offer", {1: ("image", "bytes", True), 2: ("size", "uint32", True)}),
    # ... of which file 0 is the manifest, and file n what its nth line names
    17: (
        "piece",
        {
            1: ("image", "bytes", True),
            2: ("file", "uint16", True),
            3: ("at", "uint32", True),
            4: ("data", "bytes", True),
        },
    ),
    18: (
        "want",
        {
            1: ("image", "bytes", True),
            2: ("file", "uint16", True),
            3: ("at", "uint32", True),
            4: ("length", "uint16", True),
        },
    ),
}

_LISTS = {"uints": "uint16", "many bytes": "bytes", "ranges": "range", "items": "item"}
_MAPS = {"senses": ("uint6", "masks"), "doubts": ("uint6", "uint16"), "facts": ("uint8", "uint32")}
_TUPLES = {
    "masks": ("uint16", "uint16"),
    "image": ("uint16", "uint8", "text", "bytes", "bytes"),
    "range": ("name", "uint32", "uint64", "bytes"),
    "item": ("name", "uint32", "uint64", "uint8", "uint64", "bytes"),
}


def encode_message(name: str, fields: dict[str, object]) -> bytes:
    """Return the bytes of a message, checked like one from outside."""
    for number in _SCHEMAS:
        if _SCHEMAS[number][0] == name:
            break
    else:
        raise ProtocolError(f"there is no message {name}")
    message: dict[object, object] = {0: number}
    schema = _SCHEMAS[number][1]
    keys = {schema[key][0]: key for key in schema}
    for field in fields:
        if field not in keys:
            raise ProtocolError(f"{name} has no field {field}")
        message[keys[field]] = fields[field]
    _check_fields(name, schema, message)
    return cbor.encode(message)


def decode_message(frame: bytes) -> tuple[str, dict[str, object]]:
    """Return the name and the fields of a message."""
    message = cbor.decode(frame)
    if not isinstance(message, dict):
        raise ProtocolError("a message is a map", 0)
    number = message.get(0)
    if type(number) is not int or number not in _SCHEMAS:
        raise ProtocolError(f"no message has the type {number!r}", 0)
    name, schema = _SCHEMAS[number]
    _check_fields(name, schema, message)
    return name, {schema[key][0]: message[key] for key in schema if key in message}


def _check_fields(
    name: str, schema: dict[int, tuple[str, str, bool]], message: dict[object, object]
) -> None:
    for key in message:
        known = key == 0 or key in schema
        if not known and not (isinstance(key, int) and key >= _OPTIONAL_KEYS):
            raise ProtocolError(f"{name}: unknown key {key!r}", 0)
    for key in schema:
        field, kind, required = schema[key]
        if key not in message:
            if required:
                raise ProtocolError(f"{name}: {field} is missing", 0)
        elif not _holds(kind, message[key]):
            raise ProtocolError(f"{name}: {field} is not {kind}", 0)


def _holds(kind: str, value: object) -> bool:
    """Return whether a value is of a kind of the schemas."""
    if kind.startswith("uint") and kind != "uints":
        return type(value) is int and 0 <= value < 1 << int(kind[4:])
    if kind == "name":
        return isinstance(value, str) and 0 < len(value) <= _MAX_NAME
    if kind == "text":
        return isinstance(value, str)
    if kind == "bytes":
        return isinstance(value, bytes)
    if kind == "hash":
        return isinstance(value, bytes) and len(value) == 8
    if kind in _MAPS:
        keys, values = _MAPS[kind]
        return isinstance(value, dict) and all(
            _holds(keys, key) and _holds(values, value[key]) for key in value
        )
    if not isinstance(value, list):
        return False
    if kind in _LISTS:
        return all(_holds(_LISTS[kind], item) for item in value)
    fields = _TUPLES[kind]
    return len(value) == len(fields) and all(
        _holds(fields[i], value[i]) for i in range(len(fields))
    )
