"""One event's transaction: what it reads, writes, sends and logs, and which items it changes.

Everything that a node does for one event goes through one `Transaction`:

  get, scan      read what is stored, with this transaction's own writes visible;
  write          change a key durably;
  publish        send a message, after the writes are on the disk;
  log, count     a record for the node's log, a count for the metrics;
  changes        items that were added to the item store or removed from it. The store only
                 collects them here; `Node` reports them to the protocols afterwards, in order.

Nothing leaves before `Node.handle` returns: whoever runs the core performs the actions then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from denwatch.node.core.events import Action, Count, Log, Publish, Reader, Write
from denwatch.node.core.items import Item


class Added(NamedTuple):
    """Items of one kind that are new here and came together."""

    items: Sequence[Item]
    source: str  # the peer or operator that they came from, "" for our own


class Removed(NamedTuple):
    """An item that is no longer held."""

    item: Item
    reason: str  # "removed", "replaced", "expired", "delivered", "space"…
    source: str  # the peer that reported the removal, "" for our own


class Transaction:
    """The reads, writes, messages and item changes of one event.

    `now` is the node's own timeline: all times in its items are in it. Times of other nodes' items,
    and times for people, go through `denwatch.node.replication.clock`.
    """

    __slots__ = ("_reader", "_written", "actions", "changes", "now")

    def __init__(self, now: int, reader: Reader) -> None:
        self.now = now
        self.actions: list[Action] = []
        self.changes: list[Added | Removed] = []
        self._reader = reader
        self._written: dict[str, dict[bytes, bytes | None]] = {}  # by space; None: deleted

    # Reading --------------------------------------------------------------------------------

    def get(self, space: str, key: bytes) -> bytes | None:
        """Return the value of a key as of now."""
        written = self._written.get(space)
        if written is not None and key in written:
            return written[key]
        return self._reader.get(space, key)

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values as of now, in the order of keys; do not write meanwhile."""
        written = self._written.get(space)
        if written is None:
            yield from self._reader.scan(space, prefix)
            return
        own = sorted(key for key in written if key.startswith(prefix))
        place = 0
        for key, value in self._reader.scan(space, prefix):
            while place < len(own) and own[place] < key:  # new in this transaction
                fresh = written[own[place]]
                if fresh is not None:
                    yield own[place], fresh
                place += 1
            if place < len(own) and own[place] == key:  # changed or deleted in it
                fresh = written[key]
                place += 1
                if fresh is not None:
                    yield key, fresh
            else:
                yield key, value
        for key in own[place:]:
            fresh = written[key]
            if fresh is not None:
                yield key, fresh

    # Changing -------------------------------------------------------------------------------

    def write(self, space: str, key: bytes, value: bytes | None) -> None:
        """Change a key durably; None deletes it."""
        written = self._written.get(space)
        if written is None:
            written = self._written[space] = {}
        written[key] = value
        self.actions.append(Write(space, key, value))

    def clear(self, space: str, prefix: bytes) -> None:
        """Delete all keys with a prefix."""
        for key, _ in list(self.scan(space, prefix)):
            self.write(space, key, None)

    def publish(
        self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False, token: int = 0
    ) -> None:
        """Send a message, after everything in this transaction is on the disk."""
        self.actions.append(Publish(topic, payload, qos, retain, token))

    def log(self, kind: str, **fields: object) -> None:
        """Write one record of the node's log."""
        self.actions.append(Log(kind, fields))

    def count(self, name: str, amount: int = 1, label: str = "") -> None:
        """Count something for the metrics."""
        self.actions.append(Count(name, amount, label))
