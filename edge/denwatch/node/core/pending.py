"""Who waits for which notification: matching, and the rows that remember what it found.

THEORY. For every notification that is held there is one row (`PendingRow`), from the moment it was
matched until its item is removed: which subscriptions it matches, who has it, to whom it was sent,
and for which subscriptions it was decided against. A subscriber *waits* for a notification if one
of its subscriptions is among the row's matches; settling or refusing takes them out.

The rows are on the disk. In memory there are, in eight bytes each, the notifications that may wait
for each subscriber (`SubscriberState.codes`) and those of each second (to find what a late
subscription may match). A notification is a *code* there: the number of its run and its sequence.
These lists only say where to look; they may name what is gone, and `Delivery` cleans them.

INVARIANT  whoever waits by a row has the code in its list; so scanning the list finds everything.
LATE       a subscription that comes after notifications it may match (from another node) is
           remembered (`sub.late`) and matched with what is held, a bounded number in each tick.
EXAMPLE    n matches s1 of ada and s2 of ben: row matches=[s1, s2]. Ada acknowledges: matches=[s2],
           settled=[ada]. A receipt from another node says that ben has it: matches=[], all have it.

Spaces on the disk, which only this file reads and writes:

  sub.want    dot of a notification: its row
  sub.done    dot of a notification that is not here, subscriber: who says that it has it, as proofs
  sub.late    id of a subscription that held notifications are still to be matched with
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    NOTIFICATION,
    PROOF,
    SEQUENCE_BITS,
    Dot,
    Item,
    prove_item,
    read_dot,
)
from denwatch.node.core.notifications import Notification
from denwatch.node.core.subscriptions import (
    MatchRow,
    SubscriberSettings,
    SubscriberState,
    Subscription,
    Subscriptions,
    encode_row,
    make_id_key,
)
from denwatch.node.core.told_stories import TOLD, build_notification, decode_told
from denwatch.node.replication.dot_sets import Run
from denwatch.protocol.errors import ProtocolError

ROWS = "sub.want"
DONE = "sub.done"
LATE = "sub.late"

Decided = tuple[int, float, int, int]  # minus the winnow level, value, counts until, attempts

_ROWS_AT_HAND = 4_096  # between transactions
_DECODED_AT_HAND = 256
_LIFE = 7 * 86_400_000  # ms: of what never expires
_SEQUENCE = (1 << SEQUENCE_BITS) - 1
_SECOND = 1_000
_BY_ORIGIN = bytes(1 + PROOF)  # what a word about a notification that is not here is stored as
_BY_PROOF = b"\1"
_MAX_WORDS = 8
_CLAIMED_RUNS = 64  # of one origin, of which receipts may speak before anything was seen of them


class PendingRow(msgspec.Struct, array_like=True):
    """What is known about the subscribers of one notification that is held."""

    at: int  # in its origin's timeline, as `expires`
    doubt: int
    expires: int
    latest: int  # in our timeline, when it was read at the latest
    matches: list[MatchRow]
    settled: list[str] = []  # subscribers who have it
    offered: dict[str, Decided] = {}  # subscribers it was sent to, unacknowledged
    refused: list[int] = []  # subscriptions for which it was decided against
    proof: bytes = b""  # that we have it, for receipts; empty for our own
    parts: list[MatchRow] = []  # parts of stories that it fits: (story's id, …, part)


class Matched(NamedTuple):
    """A notification with its row, and the matches that were found just now.

    `had` are those of subscribers who have it already, from another node.
    """

    code: int
    entry: PendingRow
    matches: list[MatchRow]
    had: Sequence[MatchRow] = ()
    parts: Sequence[MatchRow] = ()  # of stories, found just now


_row_decoder = msgspec.msgpack.Decoder(PendingRow)


def rate_freshness(entry: PendingRow, now: int) -> float:
    """Return how much of its life a notification has left, 0..1."""
    life = (entry.expires - entry.at) if entry.expires else _LIFE
    left = life - (now - entry.latest)
    return min(1.0, max(0.0, left / life)) if life > 0 else 0.0


class Pending:
    """All notifications that are held, with the subscribers who wait for them."""

    def __init__(
        self, item_store: ItemStore, subscriptions: Subscriptions, settings: SubscriberSettings
    ) -> None:
        self._item_store = item_store
        self._subscriptions = subscriptions
        self._settings = settings
        self._open: dict[int, PendingRow] = {}  # read or made lately
        self._changed: dict[int, PendingRow] = {}  # to be written
        self._decoded: dict[int, Notification] = {}  # notifications at hand
        # Codes: the runs by number, and how the keys of each begin.
        self._runs: list[Run] = []
        self._bases: list[bytes] = []
        self._numbers: dict[Run, int] = {}
        self._prefixes: dict[bytes, int] = {}  # of keys: the code of the run
        # What was read in which second, and how many of that are still held.
        self._seconds: dict[int, array[int]] = {}
        self._counts: dict[int, int] = {}
        self._claimed: dict[str, set[int]] = {}  # epochs of which only receipts spoke, by origin
        self._late: dict[int, None] = {}  # subscriptions to be matched with what is held
        self._catching: tuple[dict[int, None], Iterator[int]] | None = None
        self.part_codes: list[int] = []  # what `restore` found to be parts of stories

    def restore(self, reader: Reader) -> int:
        """Load who waits for what; return how many notifications there are."""
        self._late = {int.from_bytes(key, "big"): None for key, _ in reader.scan(LATE)}
        count = 0
        by_id = self._subscriptions.by_id
        for key, row in reader.scan(ROWS):
            entry = _row_decoder.decode(row)
            code = self.encode_key(key)
            if not self.decode(code).is_told:
                self._note_time(code, entry.latest)
            if entry.parts:
                self.part_codes.append(code)
            for match in entry.matches:
                subscription = by_id.get(match[0])
                if subscription is not None:
                    codes = subscription.subscriber.codes
                    if not codes or codes[-1] != code:  # once, however many matches are theirs
                        codes.append(code)
            count += 1
        return count

    # Codes ----------------------------------------------------------------------------------

    def encode(self, dot: Dot) -> int:
        """Return the code of a dot."""
        run = dot.run
        number = self._numbers.get(run)
        if number is None:
            number = self._numbers[run] = len(self._runs)
            self._runs.append(run)
            self._bases.append(dot.key[:-8])
        return number << SEQUENCE_BITS | dot.sequence

    def encode_key(self, key: bytes) -> int:
        """Return the code of a dot's key, quickly: a start reads a million of them."""
        base = self._prefixes.get(key[:-8])
        if base is None:
            base = self._prefixes[key[:-8]] = self.encode(read_dot(key)) & ~_SEQUENCE
        return base | int.from_bytes(key[-8:], "big")

    def decode(self, code: int) -> Dot:
        """Return the dot of a code."""
        origin, epoch = self._runs[code >> SEQUENCE_BITS]
        return Dot(origin, epoch, code & _SEQUENCE)

    def find_id(self, code: int) -> int:
        """Return the number by which people call a notification."""
        notification = self._decoded.get(code)
        return self.decode(code).id if notification is None else notification.id

    def make_key(self, code: int) -> bytes:
        """Return the key of the dot of a code."""
        return self._bases[code >> SEQUENCE_BITS] + (code & _SEQUENCE).to_bytes(8, "big")

    def _note_time(self, code: int, time: int) -> None:
        second = time // _SECOND
        codes = self._seconds.get(second)
        if codes is None:
            codes = self._seconds[second] = array("Q")
            self._counts[second] = 0
        codes.append(code)
        self._counts[second] += 1

    def _forget_time(self, time: int) -> None:
        second = time // _SECOND
        if second in self._counts:
            self._counts[second] -= 1
            if not self._counts[second]:
                del self._counts[second], self._seconds[second]

    def _list_since(self, time: int) -> list[int]:
        """Return the codes of what was read since then, in the order of time; some may be gone."""
        first = time // _SECOND
        seconds = sorted(second for second in self._seconds if second >= first)
        return [code for second in seconds for code in self._seconds[second]]

    # Rows -----------------------------------------------------------------------------------

    def find(self, reader: Reader, code: int) -> PendingRow | None:
        """Return the row of a notification; change it only together with `change`."""
        entry = self.peek(reader, code)
        if entry is not None:
            self._open[code] = entry
        return entry

    def peek(self, reader: Reader, code: int) -> PendingRow | None:
        """Return the row of a notification, only to look at: nothing is kept of it."""
        entry = self._open.get(code)
        if entry is None:
            row = reader.get(ROWS, self.make_key(code))
            return None if row is None else _row_decoder.decode(row)
        return entry

    def change(self, code: int, entry: PendingRow) -> None:
        """Note that a row has changed, or is new."""
        self._open[code] = self._changed[code] = entry

    def flush(self, transaction: Transaction) -> None:
        """Write the rows that have changed: once, however often they did."""
        for code, entry in self._changed.items():
            transaction.write(ROWS, self.make_key(code), encode_row(entry))
        if self._changed:
            self._changed = {}
        if len(self._open) > _ROWS_AT_HAND:
            self._open.clear()

    def settle(self, code: int, entry: PendingRow, subscriber: SubscriberState) -> bool:
        """Note that a subscriber has a notification; return whether that is news."""
        if subscriber.name in entry.settled:
            return False
        self._withdraw(entry, subscriber)
        entry.offered.pop(subscriber.name, None)
        entry.settled.append(subscriber.name)
        self.change(code, entry)
        return True

    def refuse(
        self, code: int, entry: PendingRow, subscriber: SubscriberState, ids: Iterable[int]
    ) -> None:
        """Note that it was decided against a notification, for these subscriptions.

        Another one of the same subscriber may still come that matches it.
        """
        self._withdraw(entry, subscriber)
        entry.refused = sorted({*entry.refused, *ids})
        self.change(code, entry)

    def _withdraw(self, entry: PendingRow, subscriber: SubscriberState) -> None:
        by_id = self._subscriptions.by_id
        entry.matches = [
            match
            for match in entry.matches
            if (found := by_id.get(match[0])) is None or found.subscriber is not subscriber
        ]

    def list_degrees(self, entry: PendingRow) -> dict[str, int]:
        """Return who still waits for a notification, and how well it matches."""
        degrees: dict[str, int] = {}
        for id, possible, _, _ in entry.matches:
            subscription = self._subscriptions.by_id.get(id)
            if subscription is not None:
                name = subscription.subscriber.name
                degrees[name] = max(possible, degrees.get(name, 0))
        return degrees

    def list_wanted(self, entry: PendingRow) -> dict[str, int]:
        """Return who waits for a notification, be it as a part of a story, and how well it fits."""
        degrees = self.list_degrees(entry)
        for id, possible, _, _ in entry.parts:
            subscription = self._subscriptions.by_id.get(id)
            if subscription is not None and subscription.is_live:
                name = subscription.subscriber.name
                degrees[name] = max(possible, degrees.get(name, 0))
        return degrees

    # Stories that were told -----------------------------------------------------------------

    def add_told(self, transaction: Transaction, dot: Dot, entry: PendingRow) -> Matched:
        """Let the subscriber of a story wait for it, unless it has it from another node."""
        code = self.encode(dot)
        entry.settled = self._take_done(transaction, dot, entry.proof)
        by_id = self._subscriptions.by_id
        had = [m for m in entry.matches if by_id[m[0]].subscriber.name in entry.settled]
        entry.matches = [m for m in entry.matches if m not in had]
        self.change(code, entry)
        self._log_matches(transaction, dot.id, entry.matches)
        return Matched(code, entry, entry.matches, had)

    def remove_told(self, transaction: Transaction, dot: Dot) -> None:
        """Forget who waits for a story."""
        code = self.encode(dot)
        self._open.pop(code, None)
        self._changed.pop(code, None)
        self._decoded.pop(code, None)
        transaction.write(ROWS, self.make_key(code), None)

    # Notifications that come and go ---------------------------------------------------------

    def find_notification(self, reader: Reader, code: int) -> Notification | None:
        """Return a notification that is held, decoded."""
        notification = self._decoded.get(code)
        if notification is None:
            dot = self.decode(code)
            try:
                notification = self._find(reader, dot, code)
            except ProtocolError:
                return None
            if notification is not None:
                self._keep_decoded(notification)
        return notification

    def match_item(self, item: Item, now: int) -> Iterator[tuple[Notification, list[MatchRow]]]:
        """Yield a notification that is not held, and its matches; nothing if it is none."""
        with suppress(ProtocolError):
            notification = self._read(item, self.encode(item.dot))
            yield notification, self._subscriptions.match_many((notification,), now)[0]

    def _find(self, reader: Reader, dot: Dot, code: int) -> Notification | None:
        if dot.is_told:
            row = reader.get(TOLD, dot.key)
            vocabularies = self._subscriptions.vocabularies
            if row is None:
                return None
            return build_notification(decode_told(row), dot, code, vocabularies)
        item = self._item_store.get(reader, NOTIFICATION, dot)
        return None if item is None else self._read(item, code)

    def forget_decoded(self, code: int | None = None) -> None:
        """Decode anew: all, because a vocabulary came, or one that is told otherwise now."""
        if code is None:
            self._decoded.clear()
        else:
            self._decoded.pop(code, None)

    def _read(self, item: Item, code: int) -> Notification:
        notification = Notification(item, code)
        notification.event = self._subscriptions.vocabularies.find_event(
            notification.vocabulary, notification.vector.event
        )
        return notification

    def _keep_decoded(self, notification: Notification) -> None:
        if len(self._decoded) >= _DECODED_AT_HAND:
            self._decoded.clear()
        self._decoded[notification.code] = notification

    def add_notifications(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> Iterator[Matched]:
        """Match new notifications, all at once; yield each with its matches."""
        read: list[tuple[Item, Notification]] = []
        for item in items:
            try:
                read.append((item, self._read(item, self.encode(item.dot))))
            except ProtocolError as error:
                transaction.log("refuse", what="notification", why=str(error), who=item.dot.origin)
        notifications = [notification for _, notification in read]
        found = self._subscriptions.match_many(notifications, transaction.now)
        parts = self._subscriptions.match_parts(notifications, transaction.now)
        for (item, notification), *rows in zip(read, found, parts, strict=True):
            yield self._add(transaction, item, notification, source, *rows)

    def _add(
        self,
        transaction: Transaction,
        item: Item,
        notification: Notification,
        source: str,
        matches: list[MatchRow],
        parts: list[MatchRow],
    ) -> Matched:
        self._keep_decoded(notification)
        proof = prove_item(item.signature) if source else b""
        settled = self._take_done(transaction, notification.dot, proof) if source else []
        by_id = self._subscriptions.by_id
        had: list[MatchRow] = []
        if settled:
            had = [m for m in matches if by_id[m[0]].subscriber.name in settled]
            matches = [m for m in matches if by_id[m[0]].subscriber.name not in settled]
        at, doubt, expires = notification.at, notification.doubt, notification.expires
        latest = self._subscriptions.clock.localise(notification.dot, at) + doubt
        entry = PendingRow(at, doubt, expires, latest, matches, settled, proof=proof, parts=parts)
        self.change(notification.code, entry)
        self._note_time(notification.code, latest)
        transaction.log(
            "note",
            item=notification.id,
            origin=notification.dot.origin,
            run=notification.dot.epoch,
            sequence=notification.dot.sequence,
            device=notification.device,
            device_epoch=notification.device_epoch,
            device_sequence=notification.device_sequence,
            at=at,
            doubt=doubt,
            expires=expires,
            vocabulary=notification.vocabulary,
            vector=notification.frame,
            source=source,
            degree=_find_best(matches),
            event=notification.event.name if notification.event else None,
            features=notification.vector.features,
            signature=self._find_signature(item, matches + parts),
        )
        self._log_matches(transaction, notification.id, matches)
        return Matched(notification.code, entry, matches, had, parts)

    def _find_signature(self, item: Item, matches: list[MatchRow]) -> bytes | None:
        """Return the signature of a notification for the log, by which operators can hand it on.

        Ours are signed only when they leave. Whoever waits elsewhere makes it leave, so then it
        costs nothing more.
        """
        if item.signature:
            return item.signature
        by_id = self._subscriptions.by_id
        for match in matches:
            if not by_id[match[0]].subscriber.is_served:
                return self._item_store.sign(item).signature
        return self._item_store.sign(item).signature if self._settings.signs_all else None

    def _log_matches(self, transaction: Transaction, id: int, matches: list[MatchRow]) -> None:
        for subscription, possible, certain, _ in matches:
            transaction.log(
                "match",
                note=id,
                subscription=subscription,
                owner=self._subscriptions.by_id[subscription].subscriber.name,
                possible=possible,
                certain=certain,
            )
        if matches:
            transaction.count("notes_matched", len(matches))

    def remove_notification(
        self, transaction: Transaction, item: Item, reason: str
    ) -> Iterable[str]:
        """Forget the row of a notification that is gone; return who waited for it."""
        code = self.encode(item.dot)
        entry = self.find(transaction, code)
        if entry is None:
            return ()
        self._open.pop(code, None)
        self._changed.pop(code, None)
        transaction.write(ROWS, self.make_key(code), None)
        self._forget_time(entry.latest)
        if reason != "space":
            transaction.log("purge", item=item.id, what="notification", why=reason)
        return self.list_degrees(entry)

    def choose_least_worth(self, transaction: Transaction, count: int) -> list[tuple[Dot, int]]:
        """Return so many notifications that a full node gives up, with their degrees, least first.

        The last resort: lowest degree times freshness, never the oldest as such. What nobody is
        known to wait for goes first, then what matches least and has the least of its life left.
        """

        def rate(row: tuple[bytes, bytes]) -> tuple[float, float, bytes, int]:
            entry = _row_decoder.decode(row[1])
            freshness = rate_freshness(entry, transaction.now)
            degree = max(self.list_wanted(entry).values(), default=0)
            return degree * freshness, freshness, row[0], degree

        rows = (row for row in transaction.scan(ROWS) if not read_dot(row[0]).is_told)
        worst = heapq.nsmallest(count, map(rate, rows))
        return [(read_dot(key), degree) for _, _, key, degree in worst]

    # Receipts that came before their notifications ------------------------------------------

    def find_proof(self, reader: Reader, dot: Dot, entry: PendingRow) -> bytes:
        """Return the proof that somebody had a notification that is held here."""
        if not entry.proof:
            item = self._item_store.get(reader, NOTIFICATION, dot)
            if item is None:
                return b""
            if dot.origin == self._item_store.name:  # it was signed when it left
                return prove_item(self._item_store.sign(item).signature)
            entry.proof = prove_item(item.signature)  # the row of an older version
        return entry.proof

    def note_done(
        self, transaction: Transaction, dot: Dot, subscriber: str, word: tuple[str, bytes]
    ) -> None:
        """Note who says that a subscriber has a notification that is not here yet, and its proof.

        Judged when the notification comes. Of many such words the last are kept, and of runs of
        which nothing was seen those of a few: what a liar can achieve is that something is
        delivered twice.
        """
        if not self._may_note(transaction, dot.run):
            transaction.count("receipts_refused")
            return
        key, entry = dot.key + subscriber.encode(), _encode_word(dot, word)
        held = transaction.get(DONE, key) or b""
        if entry not in _split_words(held):
            transaction.write(DONE, key, (held + entry)[-_MAX_WORDS * len(entry) :])

    def _may_note(self, transaction: Transaction, run: Run) -> bool:
        """Return whether receipts of a run may be kept: it exists, or few are said to exist."""
        if run in self._item_store.context.runs:
            return True
        name = run[0].encode()
        if run[0] not in self._claimed:
            rows = transaction.scan(DONE, bytes([len(name)]) + name)
            self._claimed[run[0]] = {read_dot(key[: len(name) + 13]).epoch for key, _ in rows}
        claimed = self._claimed[run[0]]
        if run[1] not in claimed and len(claimed) < _CLAIMED_RUNS:
            claimed.add(run[1])
        return run[1] in claimed

    def forget_done(
        self, transaction: Transaction, dot: Dot, subscriber: str, word: tuple[str, bytes]
    ) -> None:
        """Forget that: the receipt is over."""
        key = dot.key + subscriber.encode()
        held = transaction.get(DONE, key)
        if held is not None:
            entry = _encode_word(dot, word)
            left = b"".join(each for each in _split_words(held) if each != entry)
            transaction.write(DONE, key, left or None)

    def _take_done(self, transaction: Transaction, dot: Dot, proof: bytes) -> list[str]:
        """Return who had this before it came here, by words that prove it."""
        names = []
        for key, held in list(transaction.scan(DONE, dot.key)):
            if not {_BY_ORIGIN, _BY_PROOF + proof}.isdisjoint(_split_words(held)):
                names.append(key[len(dot.key) :].decode())
            transaction.write(DONE, key, None)
        return names

    # Late subscriptions ---------------------------------------------------------------------

    def note_late(self, transaction: Transaction, subscription: Subscription) -> None:
        """Remember a new subscription if something is held that it may match."""
        first = self._find_since(transaction, subscription) // _SECOND
        if any(second >= first for second in self._seconds):
            self._late[subscription.id] = None
            transaction.write(LATE, make_id_key(subscription.id), b"")

    def forget_late(self, transaction: Transaction, id: int) -> None:
        """Note that a subscription was matched with everything, or is gone."""
        if id in self._late:
            del self._late[id]
            transaction.write(LATE, make_id_key(id), None)

    def catch_up(self, transaction: Transaction) -> Iterator[Matched]:
        """Match some held notifications with late subscriptions; yield what is found."""
        if self._catching is None:
            if not self._late:
                return
            chosen = dict(self._late)
            by_id = self._subscriptions.by_id
            late = [by_id[id] for id in chosen if id in by_id]
            since = min((self._find_since(transaction, s) for s in late), default=transaction.now)
            self._catching = chosen, iter(self._list_since(since))
        chosen, codes = self._catching
        for _ in range(self._settings.catch_up):
            code = next(codes, None)
            if code is None:
                self._catching = None
                for id in chosen:
                    self.forget_late(transaction, id)
                return
            yield from self._match_late(transaction, code, chosen)

    def match_before_end(
        self, transaction: Transaction, subscription: Subscription
    ) -> Iterator[Matched]:
        """Match a late subscription that ends with all that is held, while it is in force."""
        if subscription.id in self._late:
            for code in self._list_since(self._find_since(transaction, subscription)):
                yield from self._match_late(transaction, code, {subscription.id: None})

    def _find_since(self, transaction: Transaction, subscription: Subscription) -> int:
        """Return since when held notifications may match, in our timeline."""
        clock = self._subscriptions.clock
        latest = clock.localise(subscription.dot, subscription.created)
        return latest - 2 * clock.doubt(*subscription.run, transaction.now)

    def _match_late(
        self, transaction: Transaction, code: int, chosen: dict[int, None]
    ) -> Iterator[Matched]:
        entry = self.find(transaction, code)
        notification = self.find_notification(transaction, code) if entry is not None else None
        if entry is None or notification is None:
            return
        known = {match[0] for match in entry.matches}
        by_id = self._subscriptions.by_id
        fresh = [
            match
            for match in self._subscriptions.match_many((notification,), transaction.now)[0]
            if match[0] in chosen
            and match[0] not in known
            and match[0] not in entry.refused
            and by_id[match[0]].subscriber.name not in entry.settled
        ]
        parts = [
            row
            for row in self._subscriptions.match_parts((notification,), transaction.now)[0]
            if row[0] in chosen and row not in entry.parts
        ]
        if fresh or parts:
            entry.matches = sorted(entry.matches + fresh)
            entry.parts = sorted(entry.parts + parts)
            self.change(code, entry)
            self._log_matches(transaction, notification.id, fresh)
            yield Matched(code, entry, fresh, parts=parts)


def _find_best(matches: list[MatchRow]) -> int:
    """Return the highest degree; 0 if there is none. Nearly all have one."""
    if len(matches) == 1:
        return matches[0][1]
    return max((match[1] for match in matches), default=0)


def _encode_word(dot: Dot, word: tuple[str, bytes]) -> bytes:
    """Return what a node says about a notification, as it is stored, always of one length."""
    origin, proof = word
    return _BY_ORIGIN if origin == dot.origin else _BY_PROOF + proof


def _split_words(held: bytes) -> list[bytes]:
    size = 1 + PROOF
    return [held[at : at + size] for at in range(0, len(held), size)]
