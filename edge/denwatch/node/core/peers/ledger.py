"""What this node could tell others: what changed when, what is dead, and the print of it all.

A dot is *dead* if it was seen, is not held, and nobody needs it any more: a subscription that was
removed; a notification or mark some time after its end. Dead dots are the only news of a removal:
whoever hears of one lets go of the subscription, and notes dots it never saw as seen. That needs
no tombstones, and it closes the holes in contexts which strategies leave that hand over little.

What a node lets go of for reasons of its own (expired by its clock, delivered as far as it knows,
no room) is *spared*: others may need it still, so it is not called dead before its life and a
grace are over. Each change has a version; peers acknowledge versions, and are told the rest.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from denwatch.node.core.interface import Reader
from denwatch.node.core.item_store import CONTEXT, ItemStore
from denwatch.node.core.items import (
    NEVER,
    REVOCATION,
    SUBSCRIPTION,
    VOCABULARY,
    Dot,
    Item,
    read_dot,
)
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.dot_sets import (
    EMPTY,
    NOTHING,
    Fingerprints,
    Run,
    SeenRange,
    Spans,
    build_range,
    count_values,
    intersect,
    iterate,
    list_spans,
    subtract,
    unite,
)
from denwatch.protocol.errors import ProtocolError

REMOVABLE = (SUBSCRIPTION, VOCABULARY, REVOCATION)
VERSIONS = "peer.version"
SPARED = "peer.spared"
_OWN_REASONS = ("expired", "dropped")  # of removable items too: others judge for themselves
_ENDLESS = 30 * 24 * 3_600_000  # ms; how long something without an end is spared
_BLOCK = 64
_FULL = (1 << _BLOCK) - 1
_MAX_RUNS = 65_536  # a peer that makes up epochs cannot fill us for ever
_LOG = 8_192  # changes of blocks remembered; who is further behind is told whole runs

Masks = dict[int, int]  # by block of 64 sequences


class Ledger:
    """The changes of one node."""

    def __init__(self, item_store: ItemStore, grace: int) -> None:
        self.version = 0
        self._item_store = item_store
        self._grace = grace
        self._versions: dict[Run, int] = {}
        self._alive: dict[Run, Masks] = {}  # held, or spared
        self._held: dict[Run, Masks] = {}  # removable items that are held
        self._known: dict[Run, SeenRange] = {}  # the context as of the last look
        self._changes: deque[tuple[int, Run, int]] = deque()
        self._floor = 0  # changes of blocks up to this version are not remembered
        self._spared: dict[Dot, int] = {}
        self._ends: list[tuple[int, Dot]] = []
        self._prints = Fingerprints()
        self._stale: set[Run] = set()

    def restore(self, reader: Reader) -> None:
        """Take up what an earlier run left, after the item_store did."""
        for key, value in reader.scan(VERSIONS):
            dot = read_dot(key)
            self._versions[dot.origin, dot.epoch] = int.from_bytes(value, "big")
        self.version = self._floor = max(self._versions.values(), default=0)
        for kind, runs in self._item_store.live.items():
            for run, held in runs.items():
                for sequence in held:
                    _set(self._alive, run, sequence)
                    if kind in REMOVABLE:
                        _set(self._held, run, sequence)
        for key, value in reader.scan(SPARED):
            dot = read_dot(key)
            self._spare(dot, int.from_bytes(value, "big"))
        self._known = dict(self._item_store.context.runs)
        self._stale = set(self._known)

    # Changes --------------------------------------------------------------------------------

    def learn(self, transaction: Transaction, item: Item) -> None:
        """Note an item that is held from now on."""
        run, sequence = (item.dot.origin, item.dot.epoch), item.dot.sequence
        _set(self._alive, run, sequence)
        if item.kind in REMOVABLE:
            _set(self._held, run, sequence)
        self._touch(transaction, run, sequence)

    def forget(self, transaction: Transaction, item: Item, reason: str, expires: int) -> bool:
        """Note an item that is no longer held; return whether it is dead for everybody.

        `expires` is when its life ends by the clock here."""
        run, sequence = (item.dot.origin, item.dot.epoch), item.dot.sequence
        if item.kind in REMOVABLE:
            _clear(self._held, run, sequence)
        is_dead = item.kind in REMOVABLE and reason not in _OWN_REASONS
        if is_dead:
            _clear(self._alive, run, sequence)
        else:
            self.spare(transaction, item.dot, expires)
        self._touch(transaction, run, sequence)
        return is_dead

    def spare(self, transaction: Transaction, dot: Dot, expires: int) -> None:
        """Keep a dot that is seen and not held from being called dead before its time."""
        end = (
            transaction.now + _ENDLESS if expires == NEVER else max(expires, transaction.now)
        ) + self._grace
        transaction.write(SPARED, dot.key, max(end, 0).to_bytes(8, "big"))
        self._spare(dot, end)
        self._touch(transaction, (dot.origin, dot.epoch), dot.sequence)

    def tick(self, transaction: Transaction) -> None:
        """Call dead what was spared long enough."""
        while self._ends and self._ends[0][0] <= transaction.now:
            end, dot = heapq.heappop(self._ends)
            if self._spared.get(dot) != end:
                continue
            del self._spared[dot]
            transaction.write(SPARED, dot.key, None)
            run = (dot.origin, dot.epoch)
            _clear(self._alive, run, dot.sequence)
            self._touch(transaction, run, dot.sequence)

    def check(self, run: Run, dead: Spans) -> None:
        """Require that a set of dead dots can be held; a ProtocolError otherwise."""
        if run == (self._item_store.name, self._item_store.epoch):
            return
        runs = self._item_store.context.runs
        if run not in runs and len(runs) >= _MAX_RUNS:
            raise ProtocolError(f"more than {_MAX_RUNS} runs")
        build_range(unite(self.list_seen(run), dead))

    def bury(self, transaction: Transaction, run: Run, dead: Spans, peer: str) -> int:
        """Believe a peer that dots are dead; return how many items went.

        The set was checked. Of our own run we know better than anybody."""
        if run == (self._item_store.name, self._item_store.epoch):
            dead = intersect(dead, self.list_seen(run))
        seen = self.list_seen(run)
        news = subtract(dead, seen)
        if news:
            joined = build_range(unite(seen, news))
            self._item_store.context.join(run, joined)
            transaction.write(
                CONTEXT, Dot(*run, 0).key, self._item_store.context.runs[run].encode()
            )
            self._notice(transaction, run)
        removed = 0
        held = _list_masks(self._held.get(run, {}))
        for sequence in iterate(intersect(dead, held)):
            dot = Dot(*run, sequence)
            for kind in REMOVABLE:
                item = self._item_store.remove(transaction, kind, dot, "removed", peer)
                if item is not None:  # noted at once: the next summary speaks of this state
                    self.forget(transaction, item, "removed", item.expires)
                    removed += 1
        return removed

    def retry(self, transaction: Transaction, run: Run) -> None:
        """Ask for a run again at the next contact: something of it could not be taken yet."""
        self._stamp(transaction, run)

    def _spare(self, dot: Dot, end: int) -> None:
        self._spared[dot] = end
        heapq.heappush(self._ends, (end, dot))
        _set(self._alive, (dot.origin, dot.epoch), dot.sequence)

    def _touch(self, transaction: Transaction, run: Run, sequence: int) -> None:
        self._stamp(transaction, run)
        self._changes.append((self.version, run, (sequence - 1) // _BLOCK))
        if len(self._changes) > _LOG:
            self._floor = self._changes.popleft()[0]
        seen = self._item_store.context.runs.get(run)
        if seen is not None:
            self._known[run] = seen

    def _stamp(self, transaction: Transaction, run: Run) -> None:
        self.version += 1
        self._versions[run] = self.version
        self._stale.add(run)
        transaction.write(VERSIONS, Dot(*run, 0).key, self.version.to_bytes(8, "big"))

    def _notice(self, transaction: Transaction, run: Run) -> None:
        """Find what became seen without being held here: dead, unless spared."""
        now, before = self._item_store.context.runs[run], self._known.get(run, EMPTY)
        news = subtract(list_spans(now), list_spans(before))
        self._stamp(transaction, run)
        self._known[run] = now
        if count_values(news) > _LOG:
            self._changes.clear()
            self._floor = self.version
            return
        for block in sorted({(sequence - 1) // _BLOCK for sequence in iterate(news)}):
            self._changes.append((self.version, run, block))
        while len(self._changes) > _LOG:
            self._floor = self._changes.popleft()[0]

    # Telling --------------------------------------------------------------------------------

    def refresh(self, transaction: Transaction) -> None:
        """Notice what other parts noted as seen."""
        for run, seen in list(self._item_store.context.runs.items()):
            if self._known.get(run) is not seen and self._known.get(run) != seen:
                self._notice(transaction, run)

    def fingerprint(self, salt: bytes) -> bytes:
        """Return the print of everything, for one contact."""
        self._update_prints()
        return self._prints.combine(salt)

    def hash_groups(self, salt: bytes, count: int) -> list[bytes]:
        """Return the hashes of groups of runs, for one contact."""
        self._update_prints()
        return self._prints.hash_groups(salt, count)

    def _update_prints(self) -> None:
        for run in self._stale:
            seen = self._item_store.context.runs.get(run, EMPTY)
            self._prints.update(run, seen, self._held.get(run, {}))
        self._stale.clear()

    def list_changed(self, since: int) -> list[Run]:
        """Return the runs that changed after a version, in order."""
        return sorted(run for run, at in self._versions.items() if at > since)

    def list_seen(self, run: Run) -> Spans:
        """Return what was seen of a run."""
        return list_spans(self._item_store.context.runs.get(run, EMPTY))

    def list_dead(self, since: int) -> dict[Run, Spans]:
        """Return what died after a version, by run; more than that where memory ends."""
        if since < self._floor:
            found = {
                run: subtract(self.list_seen(run), _list_masks(self._alive.get(run, {})))
                for run in self.list_changed(since)
            }
            return {run: dead for run, dead in found.items() if dead}
        masks: dict[Run, Masks] = {}
        for version, run, block in reversed(self._changes):
            if version <= since:
                break
            alive = self._alive.get(run, {}).get(block, 0)
            dead = self._mask_seen(run, block) & ~alive
            if dead:
                masks.setdefault(run, {})[block] = dead
        return {run: _list_masks(found) for run, found in masks.items()}

    def list_missing(self, run: Run, theirs: Spans) -> Iterator[int]:
        """Yield the sequences that we have seen of a run and a peer has not, rising."""
        return iterate(subtract(self.list_seen(run), theirs))

    def _mask_seen(self, run: Run, block: int) -> int:
        seen = self._item_store.context.runs.get(run, EMPTY)
        start = block * _BLOCK  # the sequence before the block's first
        if seen.base >= start + _BLOCK:
            return _FULL
        whole = (1 << max(0, seen.base - start)) - 1
        move = seen.base - start
        bits = seen.bitmap << move if move >= 0 else seen.bitmap >> -move
        return (whole | bits) & _FULL


def _set(masks: dict[Run, Masks], run: Run, sequence: int) -> None:
    blocks = masks.setdefault(run, {})
    block, bit = divmod(sequence - 1, _BLOCK)
    blocks[block] = blocks.get(block, 0) | 1 << bit


def _clear(masks: dict[Run, Masks], run: Run, sequence: int) -> None:
    blocks = masks.get(run, {})
    block, bit = divmod(sequence - 1, _BLOCK)
    left = blocks.get(block, 0) & ~(1 << bit)
    if left:
        blocks[block] = left
    else:
        blocks.pop(block, None)


def _list_masks(masks: Masks) -> Spans:
    """Return the set that masks stand for, joined over the borders of blocks."""
    spans: list[tuple[int, int]] = []
    for block in sorted(masks):
        for first, last in list_spans(SeenRange(0, masks[block])):
            first, last = first + block * _BLOCK, last + block * _BLOCK
            if spans and spans[-1][1] + 1 == first:
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
    return tuple(spans) if spans else NOTHING
