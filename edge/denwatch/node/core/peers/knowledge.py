"""What this node knows, what a peer knows of it, and how the two compare.

THEORY. `ChangeLog` gives each change of a run a version. A peer acknowledges versions, and the next
exchange sends only what changed after. A dot is *dead* if it was seen, is not held, and nobody
needs it any more: a subscription that was removed; a notification or receipt some time after its
end. A node that hears of one records it as seen if it never was. That closes the holes in contexts
that strategies leave which send few copies.

What a node drops for reasons of its own (expired by its clock, delivered as far as it knows, no
room) is *spared*: others may still need it, so it is not called dead before its life and a grace
period are over.

A PEER'S WORD. What is held ends by the word of its origin, or by a removal that proves it; that of
others counts for what is open to everybody (`trust.py`). That a dot of another node is dead,
which was not seen here, a peer is believed only if a later one was seen of the same run, or a later
run: its origin's signature proves that the dot is made. Otherwise a member that lies could make us
skip all that another node is going to send. What is beyond that waits (`_hearsay`) until a later
dot was seen, and for the grace period after, because older dots may still be on their way. An
origin is believed about its own dots. A run of which no item was ever seen is believed in as long
as its origin has few: each costs a row.

KEPT       for each run, in blocks of 64 sequences: `_alive` (held or spared) and `_held` (removable
           items that are held); a version for each run; the last `_LOG` changed blocks.
INVARIANT  dead = seen and not alive.
EXAMPLE    seen 1..5; 2 and 4 held, 3 expired an hour ago and spared, 1 and 5 removed: alive is
           {2, 3, 4}, dead is {1, 5}. When the grace of 3 is over, {1, 3, 5} are dead.

`PeerRecord` is what a node remembers of one peer, durably; `KnowledgeComparison` what two nodes say
to each other about their knowledge in one exchange.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from math import isqrt

from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import CONTEXT, ItemStore, Transaction
from denwatch.node.core.items import (
    ANNOUNCEMENT,
    CLAIM,
    NEVER,
    PREFERENCE,
    REVOCATION,
    SUBSCRIPTION,
    VOCABULARY,
    Dot,
    Item,
    read_dot,
)
from denwatch.node.core.trust import is_open
from denwatch.node.replication.dot_sets import (
    EMPTY,
    MAX_VALUE,
    NOTHING,
    Fingerprints,
    FrameReader,
    Run,
    SeenRange,
    Spans,
    build_range,
    build_spans,
    count_values,
    decode_spans,
    differ,
    encode_spans,
    find_group,
    intersect,
    iterate,
    list_spans,
    subtract,
    unite,
)
from denwatch.node.replication.wire import (
    NO_TOKEN,
    TOKEN,
    Answer,
    EntryDifference,
    Summary,
    SummaryCompletion,
    SummaryEntry,
)
from denwatch.protocol.errors import ProtocolError

# Changes and dead dots -------------------------------------------------------------------------

REMOVABLE = (SUBSCRIPTION, VOCABULARY, REVOCATION, ANNOUNCEMENT, PREFERENCE, CLAIM)
VERSIONS = "peer.version"
SPARED = "peer.spared"
_OWN_REASONS = ("expired", "dropped")  # of removable items too: others judge for themselves
_ENDLESS = 30 * 24 * 3_600_000  # ms; how long something without an end is spared
_BLOCK = 64
_FULL = (1 << _BLOCK) - 1
_MAX_RUNS = 65_536  # a peer that makes up epochs cannot fill us for ever
_MAX_HEARSAY = 1_024  # runs, and spans of each
_FEW_RUNS = 128  # of one origin, up to which runs are believed in that nobody showed an item of
_LOG = 8_192  # changed blocks remembered; a peer that is further behind is sent whole runs
Masks = dict[int, int]  # by block of 64 sequences


class ChangeLog:
    """The changes of one node, by version and run."""

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
        self._fingerprints = Fingerprints()
        self._stale: set[Run] = set()
        self._newest: dict[str, int] = {}  # epoch of each origin
        self._epochs: dict[str, set[int]] = {}  # of each origin
        self._hearsay: dict[Run, tuple[Spans, int]] = {}  # said to be dead; believed up to this
        self._judged = 0  # when that was looked at last

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run saved, after the item store did."""
        for key, value in reader.scan(VERSIONS):
            dot = read_dot(key)
            self._versions[dot.run] = int.from_bytes(value, "big")
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
        for run in self._known:
            self._note_epoch(run)

    # Changes --------------------------------------------------------------------------------

    def add_items(self, transaction: Transaction, items: Iterable[Item]) -> None:
        """Record items that are held from now on."""
        touched: dict[tuple[Run, int], int] = {}  # the last of each block
        for item in items:
            run, sequence = item.dot.run, item.dot.sequence
            _set(self._alive, run, sequence)
            if item.kind in REMOVABLE:
                _set(self._held, run, sequence)
            touched[run, (sequence - 1) // _BLOCK] = sequence
        for (run, _), sequence in touched.items():
            self._touch(transaction, run, sequence)

    def remove_item(self, transaction: Transaction, item: Item, reason: str, expires: int) -> bool:
        """Record an item that is no longer held; return whether it is dead for everybody.

        `expires` is when its life ends by the clock here.
        """
        run, sequence = item.dot.run, item.dot.sequence
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
        self._touch(transaction, dot.run, dot.sequence)

    def tick(self, transaction: Transaction) -> None:
        """Call dead what was spared long enough."""
        while self._ends and self._ends[0][0] <= transaction.now:
            end, dot = heapq.heappop(self._ends)
            if self._spared.get(dot) != end:
                continue
            del self._spared[dot]
            transaction.write(SPARED, dot.key, None)
            run = dot.run
            _clear(self._alive, run, dot.sequence)
            self._touch(transaction, run, dot.sequence)
        if transaction.now - self._judged >= self._grace:
            self._judged = transaction.now
            self._judge_hearsay(transaction)

    def check_dead(self, run: Run, dead: Spans) -> None:
        """Require that a set of dead dots can be held; a ProtocolError otherwise."""
        if run == (self._item_store.name, self._item_store.epoch):
            return
        runs = self._item_store.context.runs
        if run not in runs and len(runs) >= _MAX_RUNS:
            raise ProtocolError(f"more than {_MAX_RUNS} runs")
        build_range(unite(self.list_seen(run), dead))

    def accept_dead(self, transaction: Transaction, run: Run, dead: Spans, peer: str) -> int:
        """Believe a peer that dots are dead, as far as it can know; return how many were removed.

        The set was checked. Of our own run we know better than anybody.
        """
        if run == (self._item_store.name, self._item_store.epoch):
            dead = intersect(dead, self.list_seen(run))
        known = self._epochs.get(run[0], ())
        if run[1] not in known and len(known) >= _FEW_RUNS:
            return 0
        seen = self.list_seen(run)
        news = subtract(dead, seen)
        if peer != run[0]:
            made = self._list_made(run)
            self._keep_hearsay(run, subtract(news, made))
            news = intersect(news, made)
        if news:
            self._skip(transaction, run, news)
        removed = 0
        held = _list_masks(self._held.get(run, {}))
        for sequence in iterate(intersect(dead, held)):
            dot = Dot(*run, sequence)
            for kind in REMOVABLE:
                item = self._item_store.get(transaction, kind, dot)
                if item is None or not (peer == run[0] or is_open(item)):
                    continue
                self._item_store.remove(transaction, kind, dot, "removed", peer)
                # Recorded at once: the next summary speaks of this state.
                self.remove_item(transaction, item, "removed", item.expires)
                removed += 1
        return removed

    def _skip(self, transaction: Transaction, run: Run, news: Spans) -> None:
        """Record dots as seen that never come."""
        self._item_store.context.join(run, build_range(unite(self.list_seen(run), news)))
        seen = self._item_store.context.runs[run]
        transaction.write(CONTEXT, Dot(*run, 0).key, seen.encode())
        self._record_news(transaction, run)

    def _list_made(self, run: Run) -> Spans:
        """Return the dots of a run that surely exist: a later one, or a later run, was seen."""
        if self._newest.get(run[0], 0) > run[1]:
            return ((1, MAX_VALUE),)
        seen = self.list_seen(run)
        return ((1, seen[-1][1]),) if seen else NOTHING

    def _keep_hearsay(self, run: Run, beyond: Spans) -> None:
        if beyond and (run in self._hearsay or len(self._hearsay) < _MAX_HEARSAY):
            held, ripe = self._hearsay.get(run, (NOTHING, 0))
            held = unite(held, beyond)
            if len(held) <= _MAX_HEARSAY:
                self._hearsay[run] = held, ripe

    def _judge_hearsay(self, transaction: Transaction) -> None:
        """Believe what is older than dots that were seen a grace period ago."""
        for run, (held, ripe) in list(self._hearsay.items()):
            old = subtract(intersect(held, ((1, ripe),)), self.list_seen(run)) if ripe else NOTHING
            if old:
                self._skip(transaction, run, old)
            left = subtract(held, self.list_seen(run))
            made = self._list_made(run)
            self._hearsay[run] = left, made[-1][1] if made else 0
            if not left:
                del self._hearsay[run]

    def _note_epoch(self, run: Run) -> None:
        origin, epoch = run
        self._newest[origin] = max(epoch, self._newest.get(origin, 0))
        self._epochs.setdefault(origin, set()).add(epoch)

    def retry(self, transaction: Transaction, run: Run) -> None:
        """Ask for a run again at the next contact: something of it could not be accepted yet."""
        self._stamp(transaction, run)

    def _spare(self, dot: Dot, end: int) -> None:
        self._spared[dot] = end
        heapq.heappush(self._ends, (end, dot))
        _set(self._alive, dot.run, dot.sequence)

    def _touch(self, transaction: Transaction, run: Run, sequence: int) -> None:
        self._stamp(transaction, run)
        self._changes.append((self.version, run, (sequence - 1) // _BLOCK))
        if len(self._changes) > _LOG:
            self._floor = self._changes.popleft()[0]
        seen = self._item_store.context.runs.get(run)
        if seen is not None:
            self._known[run] = seen
            self._note_epoch(run)

    def _stamp(self, transaction: Transaction, run: Run) -> None:
        self.version += 1
        self._versions[run] = self.version
        self._stale.add(run)
        transaction.write(VERSIONS, Dot(*run, 0).key, self.version.to_bytes(8, "big"))

    def _record_news(self, transaction: Transaction, run: Run) -> None:
        """Find what became seen without being held here: dead, unless spared."""
        now, before = self._item_store.context.runs[run], self._known.get(run, EMPTY)
        news = subtract(list_spans(now), list_spans(before))
        self._stamp(transaction, run)
        self._known[run] = now
        self._note_epoch(run)
        if count_values(news) > _LOG:
            self._changes.clear()
            self._floor = self.version
            return
        for block in sorted({(sequence - 1) // _BLOCK for sequence in iterate(news)}):
            self._changes.append((self.version, run, block))
        while len(self._changes) > _LOG:
            self._floor = self._changes.popleft()[0]

    # What to send -----------------------------------------------------------------------------

    def refresh(self, transaction: Transaction) -> None:
        """Find what the rest of the node recorded as seen."""
        for run, seen in list(self._item_store.context.runs.items()):
            if self._known.get(run) is not seen and self._known.get(run) != seen:
                self._record_news(transaction, run)

    def fingerprint(self, salt: bytes) -> bytes:
        """Return the fingerprint of everything, for one contact."""
        self._update_fingerprints()
        return self._fingerprints.combine(salt)

    def hash_groups(self, salt: bytes, count: int) -> list[bytes]:
        """Return the hashes of groups of runs, for one contact."""
        self._update_fingerprints()
        return self._fingerprints.hash_groups(salt, count)

    def _update_fingerprints(self) -> None:
        for run in self._stale:
            seen = self._item_store.context.runs.get(run, EMPTY)
            self._fingerprints.update(run, seen, self._held.get(run, {}))
        self._stale.clear()

    def list_changed(self, since: int) -> list[Run]:
        """Return the runs that changed after a version, in order."""
        return sorted(run for run, at in self._versions.items() if at > since)

    def list_seen(self, run: Run) -> Spans:
        """Return what was seen of a run."""
        return list_spans(self._item_store.context.runs.get(run, EMPTY))

    def list_dead(self, since: int) -> dict[Run, Spans]:
        """Return what died after a version, by run; more than that where memory ends."""
        if since < self._floor:  # the changed blocks are forgotten: compare the runs as a whole
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

    def list_missing(self, run: Run, theirs: Spans, held: Collection[int]) -> Iterator[int]:
        """Yield the sequences that we hold of a run and a peer has not seen, rising.

        Goes through the shorter of the two sets: what a damaged disk or a liar made us believe to
        have seen may be without end.
        """
        missing = subtract(self.list_seen(run), theirs)
        if count_values(missing) > len(held):
            return iterate(intersect(build_spans(sorted(held)), missing))
        return (sequence for sequence in iterate(missing) if sequence in held)

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


# What is remembered of a peer ------------------------------------------------------------------

RECORDS = "peer.record"
TABLES = "peer.table"
WITHHELD = "peer.withheld"
_OUT, _IN = b"\0", b"\1"


class PeerRecord:
    """What a node remembers of one peer: acknowledged states, and numbers for runs.

    In memory during a contact alone. Each direction has its own half: `told` is our state that the
    peer acknowledged (a version, and a token by which the peer recognises that state), `heard` the
    tokens of the peer's state that we have committed. The last two are kept, because the peer may
    not know that we committed the newest. A peer that lost its store does not know the token, says
    so, and is sent everything.
    """

    def __init__(self, peer: str, reader: Reader) -> None:
        self.told_version = 0
        self.told_token = NO_TOKEN
        self.heard: tuple[bytes, bytes] = (NO_TOKEN, NO_TOKEN)
        self.indices: dict[Run, int] = {}  # of runs that the peer knows by number
        self.names: list[Run] = []  # what the peer's numbers mean
        # Runs of which the strategy kept something back, and what the peer had seen of them then;
        # None if that is not known. A peer that has seen more since says so by itself.
        self.withheld: dict[Run, Spans | None] = {}
        name = peer.encode()
        self._key = bytes([len(name)]) + name
        value = reader.get(RECORDS, self._key)
        if value is None:
            return
        self.told_version = int.from_bytes(value[:8], "big")
        tokens = [value[at : at + TOKEN] for at in range(8, 8 + 3 * TOKEN, TOKEN)]
        self.told_token, self.heard = tokens[0], (tokens[1], tokens[2])
        for _, run in reader.scan(TABLES, self._key + _OUT):
            dot = read_dot(run)
            self.indices[dot.run] = len(self.indices)
        for _, run in reader.scan(TABLES, self._key + _IN):
            dot = read_dot(run)
            self.names.append(dot.run)
        for key, seen in reader.scan(WITHHELD, self._key):
            dot = read_dot(key[len(self._key) :])
            self.withheld[dot.run] = decode_spans(FrameReader(seen)) if seen else None

    # What the peer has of us ----------------------------------------------------------------

    def forget_told(self, transaction: Transaction) -> None:
        """Assume that the peer knows nothing of us: it lost its store."""
        self.told_version, self.told_token = 0, NO_TOKEN
        for index in range(len(self.indices)):
            transaction.write(TABLES, self._table_key(_OUT, index), None)
        self.indices = {}
        self._write(transaction)

    def note_told(
        self, transaction: Transaction, version: int, token: bytes, named: list[Run]
    ) -> None:
        """Record that the peer committed our state as of a version, and numbers for new runs."""
        for run in named:
            index = len(self.indices)
            self.indices[run] = index
            transaction.write(TABLES, self._table_key(_OUT, index), Dot(*run, 0).key)
        self.told_version, self.told_token = version, token
        self._write(transaction)

    def note_equal(self, transaction: Transaction, version: int) -> None:
        """Record that the peer has all that we had at a version, however it came to it."""
        if version > self.told_version:
            self.told_version = version
            self._write(transaction)

    # What we have of the peer ---------------------------------------------------------------

    def knows(self, token: bytes) -> bool:
        """Return whether the peer may speak relative to this state of its own."""
        return token == NO_TOKEN or token in self.heard

    def resolve(self, run: Run | int, table: int) -> Run:
        """Return the run that a peer means, whose table has so many names that we confirmed."""
        if not isinstance(run, int):
            return run
        if run >= table:
            raise ProtocolError(f"number {run} for a run, {table} were named")
        return self.names[run]

    def note_heard(
        self, transaction: Transaction, token: bytes, start: int, named: list[Run]
    ) -> None:
        """Record that we have the peer's state, and its numbers for new runs, from `start` on."""
        for index in range(start + len(named), len(self.names)):
            transaction.write(TABLES, self._table_key(_IN, index), None)
        self.names[start:] = named
        for index, run in enumerate(named, start):
            transaction.write(TABLES, self._table_key(_IN, index), Dot(*run, 0).key)
        self.heard = (token, self.heard[0])
        self._write(transaction)

    # What was kept back ---------------------------------------------------------------------

    def withhold(self, transaction: Transaction, withheld: dict[Run, Spans | None]) -> None:
        """Record the runs of which something was kept back, and may go the next time."""
        for run in sorted(self.withheld.keys() - withheld.keys()):
            transaction.write(WITHHELD, self._key + Dot(*run, 0).key, None)
        for run, seen in sorted(withheld.items(), key=lambda pair: pair[0]):
            if run not in self.withheld or self.withheld[run] != seen:
                value = b"" if seen is None else encode_spans(seen)
                transaction.write(WITHHELD, self._key + Dot(*run, 0).key, value)
        self.withheld = withheld

    def _table_key(self, way: bytes, index: int) -> bytes:
        return self._key + way + index.to_bytes(4, "big")

    def _write(self, transaction: Transaction) -> None:
        value = self.told_version.to_bytes(8, "big") + self.told_token + b"".join(self.heard)
        transaction.write(RECORDS, self._key, value)


# What is said in one exchange ------------------------------------------------------------------

_Statement = tuple[Run, Spans, Spans]  # a run, what was seen of it, what is dead


class KnowledgeComparison:
    """What two nodes say about their knowledge in one exchange, and what follows; one side of it.

    Makes and reads the contents of summary, answer and completion; no frames, no link. It also
    believes what a peer says is dead. With many runs changed, the other side first sends hashes of
    groups of runs, and only the groups that differ are compared: two nodes in a busy network have
    mostly learnt the same from others.
    """

    def __init__(
        self,
        change_log: ChangeLog,
        record: PeerRecord,
        accept_dead: Callable[[Transaction, Run, Spans, str], None],
        peer: str,
    ) -> None:
        self.version = change_log.version  # of what we say
        self.named: list[Run] = []  # runs that we named, to be known by number later
        self.theirs: dict[Run, Spans] = {}  # what the peer has seen, of all runs compared
        self.their_table: tuple[int, list[Run]] = (0, [])
        self._said: list[tuple[Run, Spans]] = []  # what we said of runs, in order
        self._change_log = change_log
        self._record = record
        self._accept_dead = accept_dead
        self._peer = peer
        self._count = 0  # of groups; 0 if everything is compared
        self._picked: frozenset[int] = frozenset()

    # Groups ---------------------------------------------------------------------------------

    def choose_groups(self, group_from: int) -> int:
        """Return into how many groups to put the runs; 0 if fewer than `group_from` changed."""
        changed = len(self._list_changed())
        if changed < group_from:
            return 0
        return min(255, max(2, 2 * isqrt(changed)))

    def hash_groups(self, salt: bytes, count: int) -> list[bytes]:
        """Return the hash of each group."""
        self._count = count
        return self._change_log.hash_groups(salt, count)

    def pick(self, differing: frozenset[int]) -> None:
        """Compare only these groups from now on."""
        self._picked = differing

    # Saying ---------------------------------------------------------------------------------

    def summarise(self, salt: bytes, time: int) -> Summary:
        """Return what changed here since the peer's acknowledgement."""
        entries = self._list_entries({})
        return Summary(salt, time, self._record.told_token, len(self._record.indices), entries)

    def is_foreign(self, token: bytes, table: int) -> bool:
        """Return whether the peer speaks of a state, or of names, that we do not have."""
        return not self._record.knows(token) or table > len(self._record.names)

    def answer(self, transaction: Transaction, summary: Summary, time: int, lag: int) -> Answer:
        """Read a summary, and return how we differ and what changed here."""
        told = self._resolve(summary.entries, summary.table)
        self._believe(transaction, told)
        self.their_table = (summary.table, _list_named(summary.entries))
        self.theirs = {run: seen for run, seen, _ in told}
        entries = self._list_entries(self.theirs)
        record = self._record
        differences = self._compare(told)
        return Answer(time, lag, record.told_token, differences, len(record.indices), entries)

    def complete(
        self, transaction: Transaction, answer: Answer, time: int, lag: int
    ) -> SummaryCompletion:
        """Read an answer, and return how we differ from its own entries."""
        theirs = self._read_differences(answer.differences)
        told = self._resolve(answer.entries, answer.table)
        self._believe(transaction, theirs + told)
        self.their_table = (answer.table, _list_named(answer.entries))
        self.theirs = {run: seen for run, seen, _ in theirs + told}
        return SummaryCompletion(time, lag, self._compare(told))

    def conclude(self, transaction: Transaction, completion: SummaryCompletion) -> None:
        """Read a completion."""
        theirs = self._read_differences(completion.differences)
        self._believe(transaction, theirs)
        self.theirs |= {run: seen for run, seen, _ in theirs}

    def list_theirs(self) -> dict[Run, Spans]:
        """Return what the peer has seen, of all runs of which it may lack something.

        What was kept back earlier, of runs that changed at neither side, is remembered; in a group
        that is equal nothing is lacking.
        """
        kept = {
            run: seen
            for run, seen in self._record.withheld.items()
            if seen is not None and self._is_compared(run)
        }
        return kept | self.theirs

    def _list_changed(self) -> list[Run]:
        changed = set(self._change_log.list_changed(self._record.told_version))
        unclear = {run for run, seen in self._record.withheld.items() if seen is None}
        return [run for run in sorted(changed | unclear) if self._is_compared(run)]

    def _is_compared(self, run: Run) -> bool:
        return not self._count or find_group(run, self._count) in self._picked

    def _list_entries(self, known: dict[Run, Spans]) -> tuple[SummaryEntry, ...]:
        """Return our entries for runs that the peer did not mention, numbered ones first."""
        if not self._count:  # otherwise the groups' hashes fixed the version that we speak of
            self.version = self._change_log.version
        dead = self._change_log.list_dead(self._record.told_version)
        runs = [run for run in self._list_changed() if run not in known]
        indices = self._record.indices
        numbered = sorted((run for run in runs if run in indices), key=indices.__getitem__)
        self.named = [run for run in runs if run not in indices]
        entries = []
        for run in (*numbered, *self.named):
            seen = self._change_log.list_seen(run)
            self._said.append((run, seen))
            entries.append(SummaryEntry(indices.get(run, run), seen, dead.get(run, ())))
        return tuple(entries)

    def _compare(self, told: list[_Statement]) -> tuple[EntryDifference, ...]:
        died = self._change_log.list_dead(self._record.told_version)
        return tuple(
            EntryDifference(
                differ(self._change_log.list_seen(run), seen), subtract(died.get(run, ()), dead)
            )
            for run, seen, dead in told
        )

    # Reading --------------------------------------------------------------------------------

    def _read_differences(self, differences: tuple[EntryDifference, ...]) -> list[_Statement]:
        if len(differences) != len(self._said):
            raise ProtocolError(f"{len(differences)} differences to {len(self._said)} entries")
        return [
            (run, differ(seen, difference.differs), difference.dead)
            for (run, seen), difference in zip(self._said, differences, strict=True)
        ]

    def _resolve(self, entries: tuple[SummaryEntry, ...], table: int) -> list[_Statement]:
        told = [
            (self._record.resolve(entry.run, table), entry.seen, entry.dead) for entry in entries
        ]
        if len({run for run, _, _ in told}) != len(told):
            raise ProtocolError("one run in two entries")
        return told

    def _believe(self, transaction: Transaction, told: list[_Statement]) -> None:
        """Believe what is dead: all of it, or nothing if one set is impossible."""
        found = [(run, intersect(dead, seen)) for run, seen, dead in told if dead]
        for run, dead in found:
            self._change_log.check_dead(run, dead)
        for run, dead in found:
            self._accept_dead(transaction, run, dead, self._peer)


def _list_named(entries: tuple[SummaryEntry, ...]) -> list[Run]:
    return [entry.run for entry in entries if not isinstance(entry.run, int)]
