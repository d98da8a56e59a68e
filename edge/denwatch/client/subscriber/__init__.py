"""What a rescue app subscribes with: durable on its side, each notification once.

- `Subscriber` (threads) and `AsyncSubscriber` (asyncio) are the two front ends;
- `inbox` says precisely what "once" means, and for which effects; `store` is the app's own disk;
- `core` decides, without I/O: requests, replies, reports, which node; `servers` chooses among
  several; `engine` performs what it decides; `link` is MQTT.

It needs paho-mqtt and nothing heavy: no numpy, no numba.
"""

from denwatch.client.subscriber.actions import State, Tell
from denwatch.client.subscriber.aio import AsyncSubscriber
from denwatch.client.subscriber.core import Settings
from denwatch.client.subscriber.errors import (
    RefusedError,
    StoreError,
    SubscriberError,
    TransactionError,
    UnconfirmedError,
)
from denwatch.client.subscriber.inbox import Promise, Transaction
from denwatch.client.subscriber.messages import Note
from denwatch.client.subscriber.servers import BackOff
from denwatch.client.subscriber.store import Subscription
from denwatch.client.subscriber.subscriber import Subscriber

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
