"""What a rescue app subscribes with: durable on its side, each notification once.

- `Subscriber` (threads) and `AsyncSubscriber` (asyncio) are the two front ends;
- `inbox` says precisely what "once" means, and for which effects; `store` is the app's own disk;
- `core` decides, without I/O: requests, replies, reports, which node; `servers` chooses among
  several; `engine` performs what it decides; `link` is MQTT.

It needs paho-mqtt and nothing heavy: no numpy, no numba.
"""

from edge.client.subscriber.actions import State, Tell
from edge.client.subscriber.aio import AsyncSubscriber
from edge.client.subscriber.core import Settings
from edge.client.subscriber.errors import (
    RefusedError,
    StoreError,
    SubscriberError,
    TransactionError,
    UnconfirmedError,
)
from edge.client.subscriber.inbox import Promise, Transaction
from edge.client.subscriber.messages import Note
from edge.client.subscriber.servers import BackOff
from edge.client.subscriber.store import Subscription
from edge.client.subscriber.subscriber import Subscriber

__all__ = [
    "AsyncSubscriber",
    "BackOff",
    "Note",
    "Promise",
    "RefusedError",
    "Settings",
    "State",
    "StoreError",
    "Subscriber",
    "SubscriberError",
    "Subscription",
    "Tell",
    "Transaction",
    "TransactionError",
    "UnconfirmedError",
]
