"""The device link: encrypted frames, and the control messages that some of them carry.

A frame is 19 bytes around a body, 11 before and 8 after: COSE_Encrypt0 with AES-CCM-16-64-128 and
everything left out that both ends know. The key is made of the shared secret and the two names; the
nonce is direction, kind, epoch and number. So nobody else can read a frame, and it cannot be turned
around, handed to another device or node, or played back under another number.

A batch of notifications does not carry its epoch, which is that of the device's last hello, but how
long ago the device heard the answer to that hello. The tag also covers the number of that answer.
So a batch belongs to one answer, and the node knows when it was made without a clock on the device:
not before it gave that answer, and then so much later.

Two things are the callers' part, for this file keeps nothing: never to seal two frames of one kind
under the same (epoch, sequence), and to refuse what was received before.

A control message is a name and a dictionary by field name; on the wire, a CBOR map with small
integers for keys, described in CDDL in README.md. Key 0 holds the type. Unknown types, missing
fields and unknown keys below 24 are refused; unknown keys from 24 on are for later and passed over.
"""

from hashlib import sha256

from . import cbor
from .errors import Cursor, ProtocolError
from .vectors import Record, check_range

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESCCM
except ImportError:  # MicroPython
    from .ccm import decrypt, encrypt
else:

    def encrypt(key: bytes, nonce: bytes, body: bytes, covered: bytes) -> bytes:
        """Do what `ccm` does, quicker."""
        return AESCCM(key, TAG).encrypt(nonce, body, covered)

    def decrypt(key: bytes, nonce: bytes, sealed: bytes, covered: bytes) -> "bytes | None":
        """Do what `ccm` does, quicker."""
        try:
            return AESCCM(key, TAG).decrypt(nonce, sealed, covered)
        except InvalidTag:
            return None


TAG = 8
OVERHEAD = 11 + TAG
MAX_LENGTH = 4096
MIN_SECRET = 16
_ALGORITHM = cbor.encode({1: 10})  # AES-CCM-16-64-128
_COVERED = cbor.encode(["Encrypt0", _ALGORITHM, b""])[:-1]  # up to the last, which is bytes

UP = 0  # from a device to its node
DOWN = 1

# What a body holds.
SUBSCRIPTIONS = 1  # subscription vectors, each behind its length
NOTIFICATIONS = 2  # notification vectors, each behind its length
MESSAGE = 3  # one control message
LATER = 4  # notifications, behind the upper 16 bits of their sequence
EARLIER = 8  # notifications of another epoch, which stands before those bits
BATCHES = (NOTIFICATIONS, LATER, EARLIER)  # each with as many bytes more before its vectors
_KINDS = (SUBSCRIPTIONS, NOTIFICATIONS, MESSAGE, LATER, EARLIER)

_VERSION = 0x80  # 2; frames of version 1 were not encrypted


class Link(Record):
    """One key between a device and a node, which belongs to their two names."""

    FIELDS = ("device", "node", "key_id")

    def __init__(self, device: str, node: str, key_id: int, secret: bytes) -> None:
        self.device = device
        self.node = node
        self.key_id = key_id
        check_range("key id", key_id, 0, 65535)
        if len(secret) < MIN_SECRET or len(set(secret)) < MIN_SECRET // 2:
            raise ProtocolError(f"a key has at least {MIN_SECRET} bytes, and they differ")
        named = cbor.encode(["denwatch", device, node, bytes(secret)])
        self.key = sha256(named).digest()[:16]


class HelloAnswer(Record):
    """A node's answer to a hello, which batches belong to: the number of its frame."""

    FIELDS = ("device_epoch", "epoch", "sequence")

    def __init__(self, device_epoch: int, epoch: int, sequence: int) -> None:
        self.device_epoch = device_epoch  # of the hello
        self.epoch = epoch
        self.sequence = sequence


class Frame(Record):
    """One frame that was authenticated; `elapsed` is of batches, in 1/16 s since the answer."""

    FIELDS = ("kind", "epoch", "sequence", "body", "elapsed")

    def __init__(self, kind: int, epoch: int, sequence: int, body: bytes, elapsed: int = 0) -> None:
        self.kind = kind
        self.epoch = epoch
        self.sequence = sequence
        self.body = body
        self.elapsed = elapsed


def _words(*numbers: int) -> bytes:
    return b"".join([number.to_bytes(4, "big") for number in numbers])


def _cover(answer: "HelloAnswer | None", elapsed: int) -> bytes:
    """Return COSE's Enc_structure: what the tag covers beside nonce and body."""
    external = b"" if answer is None else _words(answer.epoch, answer.sequence, elapsed)
    return _COVERED + bytes([0x40 | len(external)]) + external


def seal(link: Link, direction: int, frame: Frame, answer: "HelloAnswer | None" = None) -> bytes:
    """Return the bytes of a frame; a batch belongs to an answer."""
    if frame.kind not in _KINDS:
        raise ProtocolError(f"no frame is of kind {frame.kind}")
    if len(frame.body) > MAX_LENGTH - OVERHEAD:
        raise ProtocolError(f"a body of {len(frame.body)} bytes is too long")
    for number in (frame.epoch, frame.sequence, frame.elapsed):
        check_range("epoch, sequence or time", number, 0, 0xFFFFFFFF)
    start = bytes([_VERSION | frame.kind, link.key_id >> 8, link.key_id & 255])
    nonce = bytes([direction]) + start + _words(frame.epoch, frame.sequence) + b"\0"
    if (frame.kind in BATCHES) != (answer is not None):
        raise ProtocolError("a batch belongs to an answer, and nothing else does")
    shown = frame.epoch if answer is None else frame.elapsed
    sealed = encrypt(link.key, nonce, frame.body, _cover(answer, frame.elapsed))
    return start + _words(shown, frame.sequence) + sealed


def read_key_id(frame: bytes) -> int:
    """Return the key id of a frame, to find its link."""
    c = Cursor(frame, MAX_LENGTH)
    c.byte("kind")
    return c.pair("key id")


def is_batch(frame: bytes) -> bool:
    """Return whether a frame says that it carries notifications."""
    return frame[0] & 0x3F in BATCHES


def open_frame(
    link: Link, direction: int, frame: bytes, answer: "HelloAnswer | None" = None
) -> Frame:
    """Return the frame if its tag is right; ProtocolError otherwise.

    `answer` is the one that batches belong to; without one a batch cannot be opened.
    """
    c = Cursor(frame, MAX_LENGTH)
    kind = c.byte("kind")
    if kind & 0xC0 == 0x40:
        raise c.error("a frame of version 1, from before frames were encrypted: update its sender")
    if kind & 0xC0 != _VERSION or kind & 0x3F not in _KINDS:
        raise c.error("no kind of frame of version 2")
    if c.pair("key id") != link.key_id:
        raise c.error("another key's frame")
    epoch = c.pair("epoch") * 65536 + c.pair("epoch")
    sequence = c.pair("sequence") * 65536 + c.pair("sequence")
    elapsed = 0
    if kind & 0x3F not in BATCHES:
        answer = None
    elif answer is None:
        raise ProtocolError("a batch without an answer that it belongs to", 0)
    else:
        epoch, elapsed = answer.device_epoch, epoch
    sealed = c.take(max(TAG, len(frame) - c.at), "tag")
    nonce = bytes([direction]) + frame[:3] + _words(epoch, sequence) + b"\0"
    body = decrypt(link.key, nonce, sealed, _cover(answer, elapsed))
    if body is None:
        raise ProtocolError("the tag is wrong", len(frame) - TAG)
    return Frame(kind & 0x3F, epoch, sequence, body, elapsed)


class DeviceBatch(Record):
    """The notifications of a frame up; `epoch` and `last` are the number of the last of them."""

    FIELDS = ("epoch", "last", "vectors")

    def __init__(self, epoch: int, last: int, vectors: list[bytes]) -> None:
        self.epoch = epoch
        self.last = last
        self.vectors = vectors


def pack_batch(batch: DeviceBatch, epoch: int, count: int, elapsed: int = 0) -> Frame:
    """Return the frame of a batch, the device's `count`th in the epoch that it is in now."""
    high = batch.last >> 16
    kind = EARLIER if batch.epoch != epoch else LATER if high else NOTIFICATIONS
    prefix = _words(batch.epoch) + high.to_bytes(2, "big")
    body = prefix[EARLIER - kind :] + join_vectors(batch.vectors)
    return Frame(kind, epoch, count, body, elapsed)


def unpack_batch(frame: Frame) -> DeviceBatch:
    """Return the notifications of a frame; ProtocolError if it has none."""
    if frame.kind not in BATCHES:
        raise ProtocolError(f"kind {frame.kind} has no notifications", 0)
    size = frame.kind - NOTIFICATIONS
    prefix = bytes(6 - size) + Cursor(frame.body, MAX_LENGTH).take(size, "number")
    vectors = split_vectors(frame.body[size:])
    if not vectors or len(vectors[-1]) < 4:
        raise ProtocolError("a batch ends with a notification", len(frame.body))
    epoch = int.from_bytes(prefix[:4], "big") if frame.kind == EARLIER else frame.epoch
    last = int.from_bytes(prefix[4:] + vectors[-1][2:4], "big")
    return DeviceBatch(epoch, last, vectors)


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
    3: (
        "acknowledge",
        {
            1: ("epoch", "uint32", True),
            2: ("sequence", "uint32", True),
            24: ("hello", "number", False),  # the hello that this answers
        },
    ),
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
    "number": ("uint32", "uint32"),
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
