"""What the MQTT server stores: keys and values of records, both ways. Only this file knows them.

Neither user names nor client ids nor topics contain U+0000, so it separates the parts of a key.
"""

from __future__ import annotations

from typing import NamedTuple

from denwatch.node.mqtt.packets import Will

SESSIONS = "mqtt.session"  # user, client: version; of MQTT 5 also expiry and when it left
SUBSCRIPTIONS = "mqtt.subscription"  # user, client, filter: options, and a number if it has one
QUEUE = "mqtt.queue"  # user, client, number: a message
INBOUND = "mqtt.inbound"  # user, client, packet id: nothing
RETAINED = "mqtt.retained"  # topic: QoS, expiry and properties of MQTT 5 if it has any, payload
WILLS = "mqtt.will"  # user, client: a will with a delay, and when it is due
SPACES = (SESSIONS, SUBSCRIPTIONS, QUEUE, INBOUND, RETAINED, WILLS)

VERSION, _VERSION_5 = b"\x01", b"\x02"
_HAS_MORE = 16  # a flag: expiry and properties of MQTT 5 follow
_HAS_GROUP = 32  # a flag: the shared subscription follows through which it came
PRESENT = b"\x01"

_NUMBER_BYTES = 8
_ID_BYTES = 2


class StoredRecordError(Exception):
    """A record in the store that no version of this server has written: space and key."""

    def __init__(self, space: str, key: bytes) -> None:
        super().__init__(f"record {key!r} of {space} was not written by this server")


class QueueRecord(NamedTuple):
    """A message that waits for a client; `id` is kept for QoS 2 only."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    is_released: bool
    id: int
    expires: int = 0
    properties: bytes = b""
    group: str = ""  # the shared subscription through which it came


class SessionRecord(NamedTuple):
    """How long a session stays without its client, in ms, and since when; None: as of 3.1.1."""

    expiry_ms: int | None
    away_since: int  # 0: its client was connected


def write_session(record: SessionRecord) -> bytes:
    """Return the value of a session."""
    if record.expiry_ms is None:
        return VERSION
    return b"".join(
        (_VERSION_5, record.expiry_ms.to_bytes(8, "big"), record.away_since.to_bytes(8, "big"))
    )


def read_session(key: bytes, value: bytes) -> SessionRecord:
    """Return what `write_session` was given."""
    if value == VERSION:
        return SessionRecord(None, 0)
    if value[:1] != _VERSION_5 or len(value) != 17:
        raise StoredRecordError(SESSIONS, key)
    return SessionRecord(int.from_bytes(value[1:9], "big"), int.from_bytes(value[9:], "big"))


def make_session_key(user: str, client: str) -> bytes:
    """Return the key of a session; the keys of its parts start with it."""
    return f"{user}\0{client}".encode()


def make_subscription_key(session: bytes, name: str) -> bytes:
    """Return the key of a session's subscription."""
    return session + b"\0" + name.encode()


def make_queue_key(session: bytes, number: int) -> bytes:
    """Return the key of a message in a session's queue; keys sort as the numbers do."""
    return session + b"\0" + number.to_bytes(_NUMBER_BYTES, "big")


def make_inbound_key(session: bytes, number: int) -> bytes:
    """Return the key of a QoS 2 message that a client has not released."""
    return session + b"\0" + number.to_bytes(_ID_BYTES, "big")


def read_session_key(key: bytes) -> tuple[str, str]:
    """Return user and client."""
    user, separator, client = key.decode().partition("\0")
    if not separator or "\0" in client:
        raise StoredRecordError(SESSIONS, key)
    return user, client


def write_grant(grant: int) -> bytes:
    """Return the value of a subscription."""
    number = grant >> 8
    return bytes((grant & 15,)) + (number.to_bytes(4, "big") if number else b"")


def read_subscription(key: bytes, value: bytes) -> tuple[bytes, str, int]:
    """Return the session's key, the filter and the grant."""
    session, separator, name = key.rpartition(b"\0")
    if not separator or not name or len(value) not in (1, 5) or value[0] > 15 or value[0] & 3 == 3:
        raise StoredRecordError(SUBSCRIPTIONS, key)
    return session, name.decode(), value[0] | int.from_bytes(value[1:], "big") << 8


def read_queue_key(key: bytes) -> tuple[bytes, int]:
    """Return the session's key and the number."""
    return _split_key(QUEUE, key, _NUMBER_BYTES)


def read_inbound_key(key: bytes) -> tuple[bytes, int]:
    """Return the session's key and the packet id."""
    return _split_key(INBOUND, key, _ID_BYTES)


def write_queue_value(record: QueueRecord) -> bytes:
    """Return flags, packet id, length of the topic, topic, what MQTT 5 has more, payload."""
    topic, group = record.topic.encode(), record.group.encode()
    more = _write_more(record.expires, record.properties)
    flags = record.qos | record.retain << 2 | record.is_released << 3 | (_HAS_MORE if more else 0)
    if group:
        flags |= _HAS_GROUP
        more += len(group).to_bytes(2, "big") + group
    return b"".join(
        (
            bytes((flags,)),
            record.id.to_bytes(_ID_BYTES, "big"),
            len(topic).to_bytes(2, "big"),
            topic,
            more,
            record.payload,
        )
    )


def read_queue_value(key: bytes, value: bytes) -> QueueRecord:
    """Return what `write_queue_value` was given."""
    stop = 5 + int.from_bytes(value[3:5], "big")
    if len(value) < max(stop, 6) or value[0] > 63 or value[0] & 3 not in (1, 2):
        raise StoredRecordError(QUEUE, key)
    flags = value[0]
    expires, properties, start = _read_more(QUEUE, key, value, stop)
    group = b""
    if flags & _HAS_GROUP:
        end = start + 2 + int.from_bytes(value[start : start + 2], "big")
        group, start = value[start + 2 : end], end
        if not group or len(value) < end:
            raise StoredRecordError(QUEUE, key)
    return QueueRecord(
        value[5:stop].decode(),
        value[start:],
        flags & 3,
        bool(flags & 4),
        bool(flags & 8),
        int.from_bytes(value[1:3], "big"),
        expires,
        properties,
        group.decode(),
    )


def write_will(will: Will, due: int) -> bytes:
    """Return the value of a will that is due later: when, what `Will` has, the lengths first."""
    topic = will.topic.encode()
    numbers = (
        (due, 8),
        (will.delay, 4),
        (will.expiry, 8),
        (len(topic), 2),
        (len(will.properties), 4),
    )
    head = b"".join(number.to_bytes(size, "big", signed=size == 8) for number, size in numbers)
    return head + bytes((will.qos | will.retain << 2,)) + topic + will.properties + will.payload


def read_will(key: bytes, value: bytes) -> tuple[Will, int]:
    """Return a will, and when it is due."""
    due, delay, expiry, topic, properties = (
        int.from_bytes(value[start:stop], "big", signed=stop - start == 8)
        for start, stop in ((0, 8), (8, 12), (12, 20), (20, 22), (22, 26))
    )
    middle, end = 27 + topic, 27 + topic + properties
    if not topic or len(value) < end or value[26] > 6 or value[26] & 3 == 3:
        raise StoredRecordError(WILLS, key)
    flags, name = value[26], value[27:middle].decode()
    retain, payload = bool(flags & 4), value[end:]
    return Will(name, payload, flags & 3, retain, delay, expiry, value[middle:end]), due


def write_retained(qos: int, payload: bytes, expires: int = 0, properties: bytes = b"") -> bytes:
    """Return the value of a retained message."""
    more = _write_more(expires, properties)
    return bytes((qos | (_HAS_MORE if more else 0),)) + more + payload


def read_retained(key: bytes, value: bytes) -> tuple[str, int, bytes, int, bytes]:
    """Return topic, QoS, payload, expiry and properties."""
    if len(value) < 2 or value[0] & ~_HAS_MORE > 2:
        raise StoredRecordError(RETAINED, key)
    expires, properties, start = _read_more(RETAINED, key, value, 1)
    return key.decode(), value[0] & 3, value[start:], expires, properties


def _write_more(expires: int, properties: bytes) -> bytes:
    if not expires and not properties:
        return b""
    return expires.to_bytes(8, "big") + len(properties).to_bytes(4, "big") + properties


def _read_more(space: str, key: bytes, value: bytes, at: int) -> tuple[int, bytes, int]:
    """Return expiry, properties, and where the payload begins."""
    if not value[0] & _HAS_MORE:
        return 0, b"", at
    stop = at + 12 + int.from_bytes(value[at + 8 : at + 12], "big")
    if len(value) < stop:
        raise StoredRecordError(space, key)
    return int.from_bytes(value[at : at + 8], "big"), value[at + 12 : stop], stop


def _split_key(space: str, key: bytes, size: int) -> tuple[bytes, int]:
    session, separator = key[: -size - 1], key[-size - 1 : -size]
    if separator != b"\0" or b"\0" not in session:
        raise StoredRecordError(space, key)
    return session, int.from_bytes(key[-size:], "big")
