"""The session with one peer: the order of the frames on one link, and what each side learns.

    beginner                    other
    digest  ------------------>            equal fingerprints: nothing to exchange
            <------------------ equal
    digest  ------------------>            otherwise
           (<------------------ groups     with many runs: which groups of them differ?
    pick    ------------------>)
            <------------------ summary    what changed there since our acknowledgement
    answer  ------------------>            how we differ, and what changed here
            <------------------ completion how it differs from the latter
    items   <=================> items      both ways, a window of frames, each acknowledged
                                           after its commit; the last one closes the exchange

After that the link stays open: new items go out at once, as further items frames.

INVARIANT  Every items frame is one transaction at its receiver, and is acknowledged after its
           commit. An exchange that breaks leaves nothing half-done: the next one begins where the
           contexts are.
PHASES     idle (nothing yet), asked (we sent a digest), grouped (we sent groups), told (we sent a
           summary), answered (we sent an answer), open (items go both ways). `_EXPECTED` says
           which frames a phase accepts; a digest is accepted in all.
RETRY      A session that is not settled by `_deadline` begins again with a digest; the wait
           doubles up to `max_retry`.

Only this file knows the order.
"""

from __future__ import annotations

from collections import Counter, deque
from math import isqrt

from denwatch.node.core.items import KINDS
from denwatch.node.core.peers.change_log import ChangeLog, PeerRecord
from denwatch.node.core.peers.channel import PeerChannel, PeerSettings
from denwatch.node.core.peers.item_validation import ItemReceiver, log_transfer
from denwatch.node.core.peers.send_queue import Packed, SendQueue
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.clock import Clocks
from denwatch.node.replication.dot_sets import (
    FrameReader,
    Run,
    Spans,
    differ,
    find_group,
    intersect,
    subtract,
)
from denwatch.node.replication.wire import (
    ACK,
    ANSWER,
    ASK,
    COMPLETION,
    DIGEST,
    EQUAL,
    GROUPS,
    ITEMS,
    NAMES,
    PICK,
    RESET,
    SUMMARY,
    TELL,
    Answer,
    EntryDifference,
    PeerFrame,
    Summary,
    SummaryCompletion,
    SummaryEntry,
    decode_ack,
    decode_answer,
    decode_completion,
    decode_digest,
    decode_groups,
    decode_item_batch,
    decode_pick,
    decode_summary,
    decode_time,
    derive_token,
    encode_ack,
    encode_answer,
    encode_completion,
    encode_digest,
    encode_groups,
    encode_item_batch,
    encode_pick,
    encode_summary,
    encode_time,
)
from denwatch.protocol.errors import ProtocolError

IDLE, ASKED, GROUPED = "idle", "asked", "grouped"
TOLD, ANSWERED, OPEN = "told", "answered", "open"
_EXPECTED = {  # what a phase accepts beside a digest
    IDLE: (),
    ASKED: (EQUAL, GROUPS, SUMMARY),
    GROUPED: (PICK,),
    TOLD: (ANSWER,),
    ANSWERED: (COMPLETION, RESET),
    OPEN: (ITEMS, ACK, ASK, TELL),
}
_EQUAL = -1  # for `_last`: the fingerprints were equal, there was nothing to send
_Statement = tuple[Run, Spans, Spans]  # a run, what was seen of it, what is dead


class KnowledgeComparison:
    """What two nodes say about their knowledge in one exchange, and what follows; one side of it.

    Makes and reads the contents of summary, answer and completion; no frames, no link. It also
    believes what a peer says is dead. With many runs changed, the other side first sends hashes of
    groups of runs, and only the groups that differ are compared: two nodes in a busy network have
    mostly learnt the same from others.
    """

    def __init__(
        self, change_log: ChangeLog, record: PeerRecord, receiver: ItemReceiver, peer: str
    ) -> None:
        self.version = change_log.version  # of what we say
        self.named: list[Run] = []  # runs that we named, to be known by number later
        self.theirs: dict[Run, Spans] = {}  # what the peer has seen, of all runs compared
        self.their_table: tuple[int, list[Run]] = (0, [])
        self._said: list[tuple[Run, Spans]] = []  # what we said of runs, in order
        self._change_log = change_log
        self._record = record
        self._receiver = receiver
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
            self._receiver.accept_dead(transaction, run, dead, self._peer)


def _list_named(entries: tuple[SummaryEntry, ...]) -> list[Run]:
    return [entry.run for entry in entries if not isinstance(entry.run, int)]


class PeerSession:
    """The protocol on one link to another node, from its beginning to its end."""

    def __init__(
        self,
        transaction: Transaction,
        channel: PeerChannel,
        queue: SendQueue,
        receiver: ItemReceiver,
        clocks: Clocks,
        settings: PeerSettings,
    ) -> None:
        self.peer = channel.peer
        self.began = self._settled = transaction.now
        self.phase = IDLE
        self.may_offer_more = False  # news that may change what a strategy keeps back
        self.is_unproven = True  # nobody but the peer's name speaks for this link yet
        self.channel = channel
        self.queue = queue
        self.items: Counter[tuple[int, bool]] = Counter()  # by kind and whether we sent it
        self.record = PeerRecord(self.peer, transaction)
        self._receiver = receiver
        self._change_log = receiver.change_log
        self._clocks = clocks
        self._settings = settings
        self._wait = settings.retry
        self._deadline = transaction.now + self._wait
        self._is_full = False  # ask for everything: the peer speaks of a state we do not have
        self._begin_round(b"")

    def _begin_round(self, salts: bytes) -> None:
        self.channel.begin(salts)
        self._comparison = KnowledgeComparison(
            self._change_log, self.record, self._receiver, self.peer
        )
        self._flights: deque[list[Packed]] = deque()  # items frames that are not acknowledged
        self._sent = self._acked = self._received = 0  # numbers of items frames
        self._last = 0  # the number of the items frame that closes our side
        self._is_heard = False  # whether the peer closed its side
        self.queue.clear()

    @property
    def is_settled(self) -> bool:
        """Whether both sides have sent everything, and know it."""
        is_told = self._last == _EQUAL or 0 < self._last <= self._acked
        is_waiting = self._flights or self.queue.is_ready or self.queue.is_undecided
        return self.phase == OPEN and self._is_heard and is_told and not is_waiting

    # Sending --------------------------------------------------------------------------------

    def begin(self, transaction: Transaction) -> None:
        """Begin an exchange with a digest."""
        if not self.channel.is_usable:
            self.phase = IDLE
            return
        salt = self.channel.make_salt(transaction)
        self._change_log.refresh(transaction)
        self._begin_round(salt)
        body = encode_digest(salt, self._change_log.fingerprint(salt), transaction.now)
        self.phase = ASKED
        self.channel.send(transaction, DIGEST, body, is_flagged=self._is_full)

    def find_lag(self, now: int) -> int:
        """Return how long ago both sides last had everything; 0 if they do now."""
        return 0 if self.is_settled else now - self._settled

    def tick(self, transaction: Transaction) -> None:
        """Begin again what got stuck."""
        if self.is_settled:
            self._settled = transaction.now
        if not self.is_settled and transaction.now >= self._deadline:
            self._wait = min(2 * self._wait, self._settings.max_retry)
            self._deadline = transaction.now + self._wait
            self.begin(transaction)
        elif self.may_offer_more and self.is_settled:
            self.may_offer_more = False
            if self.record.withheld:
                self.begin(transaction)

    def send_queued(self, transaction: Transaction) -> None:
        """Send what is queued, as far as the window is open."""
        if self.phase != OPEN:
            return
        while len(self._flights) < self._settings.window:
            if (
                not self.queue.is_ready
                and self.queue.is_undecided
                and not self._decide(transaction)
            ):
                return
            if not self.queue.is_ready and self._last:
                return
            batch, packed = self.queue.pack(transaction)
            is_last = not (self._last or self.queue.is_ready or self.queue.is_undecided)
            if not (packed or batch.dead or is_last):
                continue
            self._sent += 1
            if is_last:
                self._last = self._sent
            self._flights.append(packed)
            self._deadline = max(self._deadline, transaction.now + self._wait)
            self.channel.send(transaction, ITEMS, encode_item_batch(batch), is_flagged=is_last)

    def _decide(self, transaction: Transaction) -> bool:
        """Let the strategy decide about notifications; False: it waits for the peer's answer."""
        if not self.queue.is_answered:
            question = self.queue.ask(transaction)
            if question is not None:
                self._deadline = max(self._deadline, transaction.now + self._wait)
                self.channel.send(transaction, ASK, question)
            return False
        self.queue.decide(transaction, self.record)
        return True

    # Receiving ------------------------------------------------------------------------------

    def receive(self, transaction: Transaction, data: bytes) -> None:
        """Handle a frame; a ProtocolError says why it is refused, and then nothing has changed."""
        frame = self.channel.open(data)
        self.is_unproven = False
        if frame.kind == DIGEST:
            self._receive_digest(transaction, frame)
        elif frame.kind not in _EXPECTED[self.phase] or not self.channel.is_next(frame):
            transaction.count("peer_frames_out_of_order", label=NAMES[frame.kind])
            return
        else:
            _RECEIVE[frame.kind](self, transaction, frame)
            self.channel.accept(frame)
        self._wait = self._settings.retry
        self._deadline = transaction.now + self._wait

    def _receive_digest(self, transaction: Transaction, frame: PeerFrame) -> None:
        salt, fingerprint, time = decode_digest(frame.body)
        me = self.channel.name
        if self.phase == ASKED and me < self.peer and transaction.now < self._deadline:
            return  # both began: the smaller name continues
        if salt == self.channel.salts[: len(salt)]:
            return  # the same one again
        self._change_log.refresh(transaction)
        self._begin_round(salt)
        # If there is nothing to exchange, no other frame says what time it is there.
        self._clocks.measure(self.peer, time, transaction.now)
        if frame.is_flagged:
            self.record.forget_told(transaction)
        elif self._change_log.fingerprint(salt) == fingerprint:
            self.channel.send(transaction, EQUAL, encode_time(transaction.now))
            self._settle_equal(transaction)
            return
        else:
            count = self._comparison.choose_groups(self._settings.group_from)
            if count:
                self.phase = GROUPED
                hashes = self._comparison.hash_groups(salt, count)
                self.channel.send(transaction, GROUPS, encode_groups(hashes))
                return
        self._send_summary(transaction)

    def _receive_groups(self, transaction: Transaction, frame: PeerFrame) -> None:
        theirs = decode_groups(frame.body)
        ours = self._comparison.hash_groups(self.channel.salts, len(theirs))
        differing = frozenset(
            group for group, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]
        )
        self._comparison.pick(differing)
        self.channel.send(transaction, PICK, encode_pick(differing, len(theirs)))

    def _receive_pick(self, transaction: Transaction, frame: PeerFrame) -> None:
        self._comparison.pick(decode_pick(frame.body))
        self._send_summary(transaction)

    def _send_summary(self, transaction: Transaction) -> None:
        own = self.channel.make_salt(transaction)
        summary = self._comparison.summarise(own, transaction.now)
        self.phase = TOLD
        self.channel.send(transaction, SUMMARY, encode_summary(summary))
        self.channel.salts += own

    def _settle_equal(self, transaction: Transaction) -> None:
        self.record.note_equal(transaction, self._comparison.version)
        self.record.withhold(transaction, {})
        self.phase = OPEN
        self._last, self._is_heard = _EQUAL, True
        transaction.count("peer_exchanges_equal")

    def _receive_equal(self, transaction: Transaction, frame: PeerFrame) -> None:
        cursor = FrameReader(frame.body)
        time = decode_time(cursor)
        cursor.finish()
        self._clocks.measure(self.peer, time, transaction.now)
        self._settle_equal(transaction)

    def _receive_summary(self, transaction: Transaction, frame: PeerFrame) -> None:
        summary = decode_summary(frame.body)
        if self._comparison.is_foreign(summary.token, summary.table):
            self._is_full = True
            self.begin(transaction)
            self.channel.next_in = -1  # this frame was of the exchange before
            return
        lag = self._clocks.measure(self.peer, summary.time, transaction.now)
        answer = self._comparison.answer(transaction, summary, transaction.now, lag)
        self._is_full = False
        self.channel.salts += summary.salt
        self.channel.send(transaction, ANSWER, encode_answer(answer))
        self.phase = ANSWERED

    def _receive_answer(self, transaction: Transaction, frame: PeerFrame) -> None:
        answer = decode_answer(frame.body)
        if self._comparison.is_foreign(answer.token, answer.table):
            self.channel.send(transaction, RESET, b"")
            self.phase = IDLE
            return
        lag = self._clocks.measure(self.peer, answer.time, transaction.now, answer.lag)
        completion = self._comparison.complete(transaction, answer, transaction.now, lag)
        self.channel.send(transaction, COMPLETION, encode_completion(completion))
        self._open(transaction)

    def _receive_completion(self, transaction: Transaction, frame: PeerFrame) -> None:
        completion = decode_completion(frame.body)
        self._comparison.conclude(transaction, completion)
        self._clocks.measure(self.peer, completion.time, transaction.now, completion.lag)
        self._open(transaction)

    def _open(self, transaction: Transaction) -> None:
        self.phase = OPEN
        theirs = self._comparison.list_theirs()
        withheld = self.record.withheld
        self.record.withhold(transaction, {run: theirs[run] for run in withheld if run in theirs})
        for run in sorted(theirs):
            self.queue.add_missing(run, theirs[run])
        transaction.count("peer_exchanges_open")

    def _receive_reset(self, transaction: Transaction, frame: PeerFrame) -> None:
        if frame.body:
            raise ProtocolError("a reset with a body")
        self.record.forget_told(transaction)
        self.begin(transaction)
        self.channel.next_in = -1  # this frame was of the exchange before

    def _receive_items(self, transaction: Transaction, frame: PeerFrame) -> None:
        batch = decode_item_batch(frame.body)
        for run, dead in batch.dead:
            self._change_log.check_dead(run, dead)
        for kind, count in self._receiver.receive(transaction, batch, self.peer).items():
            self.items[kind, False] += count
        self._received += 1
        if frame.is_flagged and not self._is_heard:
            self._is_heard = True
            token = derive_token(self.channel.salts, self.peer)
            self.record.note_heard(transaction, token, *self._comparison.their_table)
        self.channel.send(transaction, ACK, encode_ack(self._received))

    def _receive_ack(self, transaction: Transaction, frame: PeerFrame) -> None:
        count = decode_ack(frame.body)
        if not self._acked < count <= self._sent:
            raise ProtocolError(f"{count} frames acknowledged, {self._sent} were sent")
        while self._acked < count:
            self._acked += 1
            self._confirm(transaction, self._flights.popleft())
            if self._acked == self._last:
                token = derive_token(self.channel.salts, self.channel.name)
                compared = self._comparison
                self.record.note_told(transaction, compared.version, token, compared.named)

    def _confirm(self, transaction: Transaction, flight: list[Packed]) -> None:
        for packed in flight:
            item, size, choice = packed
            self.queue.confirm(transaction, packed)
            self.items[item.kind, True] += 1
            transaction.count("peer_items_sent", label=KINDS[item.kind])
            copies = choice.given if choice else 0
            log_transfer(transaction, item, self.peer, size, is_out=True, copies=copies)

    def _receive_ask(self, transaction: Transaction, frame: PeerFrame) -> None:
        self.channel.send(transaction, TELL, self.queue.answer(transaction, frame.body))

    def _receive_tell(self, transaction: Transaction, frame: PeerFrame) -> None:
        self.queue.receive_answer(transaction, frame.body)


_RECEIVE = {
    GROUPS: PeerSession._receive_groups,
    PICK: PeerSession._receive_pick,
    EQUAL: PeerSession._receive_equal,
    SUMMARY: PeerSession._receive_summary,
    ANSWER: PeerSession._receive_answer,
    COMPLETION: PeerSession._receive_completion,
    RESET: PeerSession._receive_reset,
    ITEMS: PeerSession._receive_items,
    ACK: PeerSession._receive_ack,
    ASK: PeerSession._receive_ask,
    TELL: PeerSession._receive_tell,
}
