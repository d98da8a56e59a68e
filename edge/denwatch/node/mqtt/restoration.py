"""Takes up at start what an earlier run of the server left in the store."""

from __future__ import annotations

from denwatch.node.core.interface import Reader
from denwatch.node.mqtt.exchange import Exchange
from denwatch.node.mqtt.records import (
    INBOUND,
    QUEUE,
    SESSIONS,
    SUBSCRIPTIONS,
    VERSION,
    RecordError,
    read_inbound_key,
    read_queue_key,
    read_queue_value,
    read_session_key,
    read_subscription,
)
from denwatch.node.mqtt.session import Delivery, Parcel, Session


def restore_exchange(exchange: Exchange, reader: Reader, now: int) -> None:
    """Bring back persistent sessions, all of them away, and retained messages."""
    exchange.retained.restore(reader)
    sessions: dict[bytes, Session] = {}
    for key, value in reader.scan(SESSIONS):
        if value != VERSION:
            raise RecordError(SESSIONS, key)
        user, client = read_session_key(key)
        session = Session(user, client, True)
        session.away_since = now
        sessions[key] = exchange.sessions[user, client] = session
    for key, value in reader.scan(SUBSCRIPTIONS):
        owner, name, qos = read_subscription(key, value)
        session = _find_session(sessions, owner, SUBSCRIPTIONS, key)
        session.subscriptions[name] = qos
        exchange.index.add(name, session, qos)
    for key, _ in reader.scan(INBOUND):
        owner, number = read_inbound_key(key)
        _find_session(sessions, owner, INBOUND, key).inbound[number] = None
    for key, value in reader.scan(QUEUE):
        owner, number = read_queue_key(key)
        session = _find_session(sessions, owner, QUEUE, key)
        _restore_delivery(exchange, session, number, key, value)


def _restore_delivery(
    exchange: Exchange, session: Session, number: int, key: bytes, value: bytes
) -> None:
    record = read_queue_value(key, value)
    parcel = Parcel(record.topic, record.payload, record.qos)
    delivery = Delivery(parcel, record.qos, record.retain, False, False)
    delivery.number = number
    delivery.is_released = record.is_released
    # Whether QoS 1 was sent before is not written down; a repetition must say that it may be one.
    delivery.is_repeated = record.qos == 1 or record.id > 0
    if record.id:
        delivery.id = record.id
        session.flight[record.id] = delivery
    else:
        session.queue.append(delivery)
    session.bytes += parcel.size
    exchange.outbound.bytes += parcel.size
    exchange.outbound.last_number = max(exchange.outbound.last_number, number)


def _find_session(sessions: dict[bytes, Session], owner: bytes, space: str, key: bytes) -> Session:
    session = sessions.get(owner)
    if session is None:
        raise RecordError(space, key)
    return session
