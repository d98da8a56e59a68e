"""The durable state of a node: spaces of keys and values, and the outbox of its log.

    with Store("north.db", "north") as store:        # epoch has risen, and is on the disk
        record = encode_record("attach", {"subscriber": "medic7", "is_up": True}, now)
        store.apply([("item", b"k1", b"v1")], [record])
        store.get("item", b"k1")                     # b"v1": seen before the commit
        store.commit()                               # now it survives anything

Many `apply` and one `commit` are a group commit. The simulator's `MemoryStore` keeps the same
promises on an emulated disk, and fails where a test wants it to.

After any `StoreError` from `apply`, `get`, `scan` or `commit` the open group is undone, and whoever
built on it must start again from what the store holds: see `interface` for the rules.
"""

from __future__ import annotations

from denwatch.node.store.interface import (
    Change,
    Storage,
    StoreBusy,
    StoreDamaged,
    StoreDecayed,
    StoreError,
    StoreFailed,
    StoreForeign,
    StoreFull,
)
from denwatch.node.store.sqlite import Store

__all__ = [
    "Change",
    "Storage",
    "Store",
    "StoreBusy",
    "StoreDamaged",
    "StoreDecayed",
    "StoreError",
    "StoreFailed",
    "StoreForeign",
    "StoreFull",
]
