"""Control messages: CBOR maps with small integers for keys, described in CDDL in README.md.

A message is a name and a dictionary by field name. Key 0 holds the type. Unknown types, missing
fields and unknown keys below 24 are refused; unknown keys from 24 on are for later and passed over.
"""

from . import cbor
from .errors import ProtocolError

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
}

_LISTS = {"uints": "uint16", "many bytes": "bytes", "ranges": "range", "items": "item"}
_TUPLES = {
    "masks": ("uint16", "uint16"),
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
    if kind == "senses":
        return isinstance(value, dict) and all(
            _holds("uint6", event) and _holds("masks", value[event]) for event in value
        )
    if not isinstance(value, list):
        return False
    if kind in _LISTS:
        return all(_holds(_LISTS[kind], item) for item in value)
    fields = _TUPLES[kind]
    return len(value) == len(fields) and all(
        _holds(fields[i], value[i]) for i in range(len(fields))
    )
