"""The items that a node holds, and the transaction of one event that changes them.

Everything that a node does for one event goes through one `Transaction`:

  get, scan      read what is stored, with this transaction's own writes visible;
  write          change a key durably;
  publish        send a message, after the writes are on the disk;
  log, count     a record for the node's log, a count for the metrics;
  changes        items that were added to the item store or removed from it.

Nothing leaves before `Node.handle` returns: whoever runs the core performs the actions then.

`ItemStore` has the items, and the context of all that the node has ever seen. It is the only one
that adds items to a node or removes them, and it only stores: every change is written through the
transaction and collected in its `changes`; `Node` reports them to the protocols afterwards, in
order. Bodies stay on the disk; memory has sequences and expiries.
"""

from __future__ import annotations

import heapq
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from denwatch.node.core.events import Action, Count, Log, Publish, Reader, Write
from denwatch.node.core.items import (
    KINDS,
    NEVER,
    Dot,
    Item,
    NotificationBody,
    decode_item,
    encode_body,
    read_dot,
    read_expires,
)
from denwatch.node.replication.dot_sets import (
    EMPTY,
    CausalContext,
    Run,
    decode_range,
    list_spans,
)


class Added(NamedTuple):
    """Items of one kind that are new here and came together."""

    items: Sequence[Item]
    source: str  # the peer or operator that they came from, "" for our own


class Removed(NamedTuple):
    """An item that is no longer held."""

    item: Item
    reason: str  # "removed", "replaced", "expired", "delivered", "space"…
    source: str  # the peer that reported the removal, "" for our own


_make = tuple.__new__  # an action without the call of its class: there are dozens a notification


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
        own = sorted(
            (key, value)
            for key, value in written.items()
            if value is not None and key.startswith(prefix)
        )
        old = (row for row in self._reader.scan(space, prefix) if row[0] not in written)
        yield from heapq.merge(old, own)  # no key is in both

    # Changing -------------------------------------------------------------------------------

    def write(self, space: str, key: bytes, value: bytes | None) -> None:
        """Change a key durably; None deletes it."""
        written = self._written.get(space)
        if written is None:
            written = self._written[space] = {}
        written[key] = value
        self.actions.append(_make(Write, (space, key, value)))

    def clear(self, space: str, prefix: bytes) -> None:
        """Delete all keys with a prefix."""
        for key, _ in list(self.scan(space, prefix)):
            self.write(space, key, None)

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        token: int = 0,
        correlation: bytes = b"",
    ) -> None:
        """Send a message, after everything in this transaction is on the disk."""
        self.actions.append(_make(Publish, (topic, payload, qos, retain, token, correlation)))

    def log(self, kind: str, **fields: object) -> None:
        """Write one record of the node's log."""
        self.actions.append(_make(Log, (kind, fields)))

    def count(self, name: str, amount: int = 1, label: str = "") -> None:
        """Count something for the metrics."""
        self.actions.append(_make(Count, (name, amount, label)))


CONTEXT = "context"
_BUCKET = 1_000  # ms; items that expire in the same second are looked at together
_UNSURE = 60_000  # ms of doubt or difference, from which on an end is looked at again and again
_LOOK_AGAIN = 60  # buckets between two looks; spread over as many
SPACES = {kind: f"item.{name}" for kind, name in KINDS.items()}


@dataclass(frozen=True)
class RunNumbers:
    """Numbers that one run of a node uses once, also if its core is built again meanwhile."""

    tokens: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # of deliveries
    rounds: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # with any peer


class ItemStore:
    """What is held, by kind and run; one for a node.

    `localise(dot, time)` turns a time of an item's origin into one of this node's clock, and
    judges conservatively: rather too late than too early.
    """

    def __init__(
        self,
        name: str,
        epoch: int,
        sign: Callable[[bytes], bytes],
        localise: Callable[[Dot, int], int],
        numbers: RunNumbers | None = None,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.numbers = numbers or RunNumbers()
        self.context = CausalContext()
        self.live: dict[int, dict[Run, dict[int, int]]] = {kind: {} for kind in KINDS}
        self._sign = sign
        self._localise = localise
        self._sequence = 0
        # What expires in which second: sequences by kind and run, eight bytes each.
        self._buckets: dict[int, dict[tuple[int, Run], array[int]]] = {}
        self._due: list[int] = []  # a heap of the buckets
        self._swept = 0

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run stored, or an earlier core of this one."""
        for key, value in reader.scan(CONTEXT):
            dot = read_dot(key)
            self.context.runs[dot.run] = decode_range(value)
        made = list_spans(self.context.runs.get((self.name, self.epoch), EMPTY))
        self._sequence = made[-1][1] if made else 0
        for kind in KINDS:
            start, run = b"", ("", 0)
            for key, value in reader.scan(SPACES[kind]):
                if key[:-8] != start:  # the next run
                    start, run = key[:-8], read_dot(key).run
                dot = Dot(*run, int.from_bytes(key[-8:], "big"))
                self._hold(dot, kind, read_expires(value))

    # Looking --------------------------------------------------------------------------------

    def get(self, reader: Reader, kind: int, dot: Dot) -> Item | None:
        """Return an item that is held; `reader` is the transaction, where there is one."""
        value = reader.get(SPACES[kind], dot.key)
        return None if value is None else decode_item(dot.key, value)

    def holds(self, kind: int, dot: Dot) -> bool:
        """Return whether an item is held."""
        return dot.sequence in self.live[kind].get(dot.run, ())

    def iterate(self, reader: Reader, kind: int) -> Iterator[Item]:
        """Yield the items of a kind by dot."""
        for key, value in reader.scan(SPACES[kind]):
            yield decode_item(key, value)

    def count(self, kind: int) -> int:
        """Return how many items of a kind are held."""
        return sum(len(run) for run in self.live[kind].values())

    # Changing -------------------------------------------------------------------------------

    def originate(
        self,
        transaction: Transaction,
        kind: int,
        expires: int,
        body: bytes,
        *,
        is_signed: bool = True,
        said: object = None,
    ) -> Item:
        """Make an item of our own. One that is not signed now is when it first leaves.

        `said`: the body before it was encoded, for those who are told of an unsigned item.
        """
        self._sequence += 1
        item = Item(Dot(self.name, self.epoch, self._sequence), kind, expires, body, said=said)
        if is_signed:
            item = self.sign(item)
        self._add(transaction, (item,), "")
        return item

    def originate_many(
        self, transaction: Transaction, kind: int, expires: int, bodies: Sequence[NotificationBody]
    ) -> list[Item]:
        """Make items of our own that came together; they are signed when they first leave."""
        first = self._sequence + 1
        self._sequence += len(bodies)
        items = [
            Item(Dot(self.name, self.epoch, number), kind, expires, encode_body(body), said=body)
            for number, body in enumerate(bodies, first)
        ]
        self._add(transaction, items, "")
        return items

    def sign(self, item: Item) -> Item:
        """Return an item of ours with its signature, which is the same each time."""
        if item.signature:
            return item
        return Item(item.dot, item.kind, item.expires, item.body, self._sign(item.signed))

    def accept(self, transaction: Transaction, item: Item, source: str) -> bool:
        """Take an item from a peer, whose signature was verified; return whether it is new."""
        if self.context.holds(*item.dot):
            return False
        self._add(transaction, (item,), source)
        return True

    def note_seen(self, transaction: Transaction, dot: Dot) -> None:
        """Note that an item was there, without holding it: it was gone before it came."""
        self.context.add(*dot)
        self._write_context(transaction, dot.run)

    def remove(
        self, transaction: Transaction, kind: int, dot: Dot, reason: str, source: str = ""
    ) -> Item | None:
        """Remove an item, and return it if it was held; `source` is the peer that says so."""
        run = self.live[kind].get(dot.run)
        if run is None or dot.sequence not in run:
            return None
        item = self.get(transaction, kind, dot)
        assert item is not None, "held in memory, not on the disk"
        del run[dot.sequence]
        if not run:
            del self.live[kind][dot.run]
        transaction.write(SPACES[kind], dot.key, None)
        transaction.changes.append(Removed(item, reason, source))
        return item

    def expire(self, transaction: Transaction) -> None:
        """Remove everything whose time is over."""
        present = transaction.now // _BUCKET
        if present <= self._swept:
            return
        while self._due and self._due[0] < present:
            groups = self._buckets.pop(heapq.heappop(self._due))
            for (kind, run), sequences in groups.items():
                for sequence in sequences:
                    expires = self.live[kind].get(run, {}).get(sequence)
                    if expires:
                        self._judge_end(transaction, kind, Dot(*run, sequence), expires)
        self._swept = present

    def _judge_end(self, transaction: Transaction, kind: int, dot: Dot, expires: int) -> None:
        if self._localise(dot, expires) <= transaction.now:
            self.remove(transaction, kind, dot, "expired")
        else:  # the clocks have learnt something since, or may
            self._schedule(kind, dot, expires, transaction.now // _BUCKET)

    def _add(self, transaction: Transaction, items: Sequence[Item], source: str) -> None:
        runs: dict[Run, None] = {}
        for item in items:
            dot = item.dot
            self.context.add(*dot)
            transaction.write(SPACES[item.kind], dot.key, item.encode())
            self._hold(dot, item.kind, item.expires)
            runs[dot.run] = None
        for run in runs:
            self._write_context(transaction, run)
        transaction.changes.append(Added(items, source))

    def _hold(self, dot: Dot, kind: int, expires: int) -> None:
        self.live[kind].setdefault(dot.run, {})[dot.sequence] = expires
        if expires != NEVER:
            self._schedule(kind, dot, expires, self._swept)

    def _schedule(self, kind: int, dot: Dot, expires: int, present: int) -> None:
        """Look at an item when its time is over here; sooner, if its origin's clock is not known.

        A clock that is learnt later may say that its time was over long ago.
        """
        local = self._localise(dot, expires)
        bucket = max(local // _BUCKET, present)
        if local - expires > _UNSURE:
            bucket = min(bucket, present + _LOOK_AGAIN + dot.sequence % _LOOK_AGAIN)
        groups = self._buckets.get(bucket)
        if groups is None:
            groups = self._buckets[bucket] = {}
            heapq.heappush(self._due, bucket)
        key = (kind, dot.run)
        sequences = groups.get(key)
        if sequences is None:
            sequences = groups[key] = array("Q")
        sequences.append(dot.sequence)

    def _write_context(self, transaction: Transaction, run: Run) -> None:
        key = Dot(run[0], run[1], 0).key
        transaction.write(CONTEXT, key, self.context.runs[run].encode())
