"""The subscriber library: durable on the app's side, each notification handled once.

`subscriber.py` (threads) and `aio.py` (asyncio) are the front ends of `session.py`, which runs
`core.py` (all decisions, no I/O) on `store.py` (SQLite) and `link.py` (MQTT). `servers.py` chooses
among several nodes, `messages.py` is the wire format, `display.py` formats for people.
What "handled once" means precisely is at the head of `store.py`.

It needs paho-mqtt; it does not import numpy or numba.
"""

from denwatch.client.subscriber.aio import AsyncSubscriber
from denwatch.client.subscriber.core import ConnectionState, ConnectionStatus, SubscriberOptions
from denwatch.client.subscriber.messages import (
    LoginRefusedError,
    ReceivedNotification,
    RequestRefusedError,
    SubscriberError,
    SubscriberStoreError,
    TransactionError,
    UnconfirmedError,
)
from denwatch.client.subscriber.servers import BackOff
from denwatch.client.subscriber.store import HandlerTransaction, Promise, SubscriptionStatus
from denwatch.client.subscriber.subscriber import Subscriber

__all__ = [
    "AsyncSubscriber",
    "BackOff",
    "ConnectionState",
    "ConnectionStatus",
    "HandlerTransaction",
    "LoginRefusedError",
    "Promise",
    "ReceivedNotification",
    "RequestRefusedError",
    "Subscriber",
    "SubscriberError",
    "SubscriberOptions",
    "SubscriberStoreError",
    "SubscriptionStatus",
    "TransactionError",
    "UnconfirmedError",
]
