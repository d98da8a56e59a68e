"""What the MQTT server stores: keys and values of records, both ways. Only this file knows them.

Neither user names nor client ids nor topics contain U+0000, so it separates the parts of a key.
"""

from __future__ import annotations

from typing import NamedTuple

SESSIONS = "mqtt.session"  # user, client: version
SUBSCRIPTIONS = "mqtt.subscription"  # user, client, filter: QoS
QUEUE = "mqtt.queue"  # user, client, number: a message
INBOUND = "mqtt.inbound"  # user, client, packet id: nothing
RETAINED = "mqtt.retained"  # topic: QoS, payload
SPACES = (SESSIONS, SUBSCRIPTIONS, QUEUE, INBOUND, RETAINED)

VERSION = b"\x01"
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


def read_subscription(key: bytes, value: bytes) -> tuple[bytes, str, int]:
    """Return the session's key, the filter and the QoS."""
    session, separator, name = key.rpartition(b"\0")
    if not separator or not name or len(value) != 1 or value[0] > 2:
        raise StoredRecordError(SUBSCRIPTIONS, key)
    return session, name.decode(), value[0]


def read_queue_key(key: bytes) -> tuple[bytes, int]:
    """Return the session's key and the number."""
    return _split_key(QUEUE, key, _NUMBER_BYTES)


def read_inbound_key(key: bytes) -> tuple[bytes, int]:
    """Return the session's key and the packet id."""
    return _split_key(INBOUND, key, _ID_BYTES)


def write_queue_value(record: QueueRecord) -> bytes:
    """Return flags, packet id, length of the topic, topic, payload."""
    topic = record.topic.encode()
    flags = record.qos | record.retain << 2 | record.is_released << 3
    return b"".join(
        (
            bytes((flags,)),
            record.id.to_bytes(_ID_BYTES, "big"),
            len(topic).to_bytes(2, "big"),
            topic,
            record.payload,
        )
    )


def read_queue_value(key: bytes, value: bytes) -> QueueRecord:
    """Return what `write_queue_value` was given."""
    stop = 5 + int.from_bytes(value[3:5], "big")
    if len(value) < max(stop, 6) or value[0] > 15 or value[0] & 3 not in (1, 2):
        raise StoredRecordError(QUEUE, key)
    flags = value[0]
    return QueueRecord(
        value[5:stop].decode(),
        value[stop:],
        flags & 3,
        bool(flags & 4),
        bool(flags & 8),
        int.from_bytes(value[1:3], "big"),
    )


def write_retained(qos: int, payload: bytes) -> bytes:
    """Return the value of a retained message."""
    return bytes((qos,)) + payload


def read_retained(key: bytes, value: bytes) -> tuple[str, int, bytes]:
    """Return topic, QoS and payload."""
    if len(value) < 2 or value[0] > 2:
        raise StoredRecordError(RETAINED, key)
    return key.decode(), value[0], value[1:]


def _split_key(space: str, key: bytes, size: int) -> tuple[bytes, int]:
    session, separator = key[: -size - 1], key[-size - 1 : -size]
    if separator != b"\0" or b"\0" not in session:
        raise StoredRecordError(space, key)
    return session, int.from_bytes(key[-size:], "big")
