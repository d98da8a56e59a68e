"""One link to another node, and the exchanges over it: who says what when.

    beginner                    other
    digest  ------------------>            equal prints: nothing to say
            <------------------ equal
    digest  ------------------>            otherwise
           (<------------------ groups     with many runs: which groups of them differ?
    pick    ------------------>)
            <------------------ summary    what changed there since our acknowledgement
    answer  ------------------>            how we differ, and what changed here
            <------------------ completion how it differs from the latter
    items   <=================> items      both ways, a window of frames, each acknowledged
                                           after its commit; the last one closes the exchange

After that the link stays open: what is learnt goes out at once as further items. An exchange that
breaks leaves nothing half-done: every frame of items is one transaction, and the next exchange
begins where contexts are. Only this file knows the order.
"""

from __future__ import annotations

from collections import deque

from denwatch.node.core.peers.cargo import Cargo, Packed
from denwatch.node.core.peers.comparison import Comparison
from denwatch.node.core.peers.intake import Intake
from denwatch.node.core.peers.kit import Kit
from denwatch.node.core.peers.line import Line
from denwatch.node.core.peers.questions import Questions
from denwatch.node.core.peers.records import PeerRecord
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.dot_sets import FrameReader
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
    PeerFrame,
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
_EXPECTED = {  # what a phase may take beside a digest
    IDLE: (),
    ASKED: (EQUAL, GROUPS, SUMMARY),
    GROUPED: (PICK,),
    TOLD: (ANSWER,),
    ANSWERED: (COMPLETION, RESET),
    OPEN: (ITEMS, ACK, ASK, TELL),
}
_EQUAL = -1  # there was nothing to say


class Contact:
    """One link."""

    def __init__(self, kit: Kit, peer: str, transaction: Transaction) -> None:
        now = transaction.now
        self.peer = peer
        self.began = self._settled = now
        self.phase = IDLE
        self.is_restless = False  # something was learnt that may change what a strategy keeps back
        self.is_unproven = True  # nobody but the peer's name speaks for this link yet
        self.line = Line(kit, peer)
        self.record = PeerRecord(peer, transaction)
        self.cargo = Cargo(kit, peer)
        self.intake = Intake(kit, peer)
        self._kit = kit
        self._wait = kit.settings.retry
        self._deadline = now + self._wait
        self._is_full = False  # ask for everything: the peer speaks of a state we do not have
        self._begin_round(b"")

    def _begin_round(self, salts: bytes) -> None:
        self.line.begin(salts)
        self._comparison = Comparison(self._kit, self.record, self.intake)
        self._flights: deque[list[Packed]] = deque()
        self._sent = self._acked = self._taken = 0  # frames of items
        self._last = 0  # the number of the frame of items that closes our side
        self._is_heard = False
        self._questions = Questions(self._kit, self.peer)
        self.cargo.clear()

    @property
    def is_settled(self) -> bool:
        """Whether both sides said everything and know it."""
        is_told = self._last == _EQUAL or 0 < self._last <= self._acked
        is_waiting = self._flights or self.cargo.is_ready or self.cargo.is_undecided
        return self.phase == OPEN and self._is_heard and is_told and not is_waiting

    # Sending --------------------------------------------------------------------------------

    def begin(self, transaction: Transaction) -> None:
        """Begin an exchange."""
        if not self.line.is_usable:
            self.phase = IDLE
            return
        salt = self.line.make_salt(transaction)
        self._kit.ledger.refresh(transaction)
        self._begin_round(salt)
        body = encode_digest(salt, self._kit.ledger.fingerprint(salt), transaction.now)
        self.phase = ASKED
        self.line.send(transaction, DIGEST, body, is_flagged=self._is_full)

    def find_lag(self, now: int) -> int:
        """Return how long ago both sides last had everything; 0 if they do now."""
        return 0 if self.is_settled else now - self._settled

    def tick(self, transaction: Transaction) -> None:
        """Begin again what got stuck."""
        if self.is_settled:
            self._settled = transaction.now
        if not self.is_settled and transaction.now >= self._deadline:
            self._wait = min(2 * self._wait, self._kit.settings.max_retry)
            self._deadline = transaction.now + self._wait
            self.begin(transaction)
        elif self.is_restless and self.is_settled:
            self.is_restless = False
            if self.record.withheld:
                self.begin(transaction)

    def pump(self, transaction: Transaction) -> None:
        """Send what is to go, as far as the window is open."""
        if self.phase != OPEN:
            return
        while len(self._flights) < self._kit.settings.window:
            if (
                not self.cargo.is_ready
                and self.cargo.is_undecided
                and not self._decide(transaction)
            ):
                return
            if not self.cargo.is_ready and self._last:
                return
            batch, packed = self.cargo.pack(transaction)
            is_last = not (self._last or self.cargo.is_ready or self.cargo.is_undecided)
            if not (packed or batch.dead or is_last):
                continue
            self._sent += 1
            if is_last:
                self._last = self._sent
            self._flights.append(packed)
            self._deadline = max(self._deadline, transaction.now + self._wait)
            self.line.send(transaction, ITEMS, encode_item_batch(batch), is_flagged=is_last)

    def _decide(self, transaction: Transaction) -> bool:
        """Decide about notifications; return whether that was possible now."""
        if not self._questions.is_answered:
            question = self._questions.ask(transaction, self.cargo)
            if question is not None:
                self._deadline = max(self._deadline, transaction.now + self._wait)
                self.line.send(transaction, ASK, question)
            return False
        self.cargo.decide(transaction, self.record, self._questions.peer)
        self._questions.close()
        return True

    # Receiving ------------------------------------------------------------------------------

    def receive(self, transaction: Transaction, data: bytes) -> None:
        """Take a frame; a ProtocolError says why it is refused, and nothing has changed then."""
        frame = self.line.open(data)
        self.is_unproven = False
        if frame.kind == DIGEST:
            self._take_digest(transaction, frame)
        elif frame.kind not in _EXPECTED[self.phase] or not self.line.is_next(frame):
            transaction.count("peer_frames_out_of_order", label=NAMES[frame.kind])
            return
        else:
            _TAKE[frame.kind](self, transaction, frame)
            self.line.take(frame)
        self._wait = self._kit.settings.retry
        self._deadline = transaction.now + self._wait

    def _take_digest(self, transaction: Transaction, frame: PeerFrame) -> None:
        salt, fingerprint, time = decode_digest(frame.body)
        me = self._kit.item_store.name
        if self.phase == ASKED and me < self.peer and transaction.now < self._deadline:
            return  # both began: the smaller name goes on
        if salt == self.line.salts[: len(salt)]:
            return  # the same one again
        self._kit.ledger.refresh(transaction)
        self._begin_round(salt)
        # If there is nothing to exchange, no other frame tells how late it is there.
        self._kit.clocks.measure(self.peer, time, transaction.now)
        if frame.is_flagged:
            self.record.forget_told(transaction)
        elif self._kit.ledger.fingerprint(salt) == fingerprint:
            self.line.send(transaction, EQUAL, encode_time(transaction.now))
            self._settle_equal(transaction)
            return
        else:
            count = self._comparison.choose_groups()
            if count:
                self.phase = GROUPED
                hashes = self._comparison.hash_groups(salt, count)
                self.line.send(transaction, GROUPS, encode_groups(hashes))
                return
        self._send_summary(transaction)

    def _take_groups(self, transaction: Transaction, frame: PeerFrame) -> None:
        theirs = decode_groups(frame.body)
        ours = self._comparison.hash_groups(self.line.salts, len(theirs))
        differing = frozenset(
            group for group, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]
        )
        self._comparison.pick(differing)
        self.line.send(transaction, PICK, encode_pick(differing, len(theirs)))

    def _take_pick(self, transaction: Transaction, frame: PeerFrame) -> None:
        self._comparison.pick(decode_pick(frame.body))
        self._send_summary(transaction)

    def _send_summary(self, transaction: Transaction) -> None:
        own = self.line.make_salt(transaction)
        summary = self._comparison.summarise(own, transaction.now)
        self.phase = TOLD
        self.line.send(transaction, SUMMARY, encode_summary(summary))
        self.line.salts += own

    def _settle_equal(self, transaction: Transaction) -> None:
        self.record.note_equal(transaction, self._comparison.version)
        self.record.withhold(transaction, {})
        self.phase = OPEN
        self._last, self._is_heard = _EQUAL, True
        transaction.count("peer_exchanges_equal")

    def _take_equal(self, transaction: Transaction, frame: PeerFrame) -> None:
        cursor = FrameReader(frame.body)
        time = decode_time(cursor)
        cursor.finish()
        self._kit.clocks.measure(self.peer, time, transaction.now)
        self._settle_equal(transaction)

    def _take_summary(self, transaction: Transaction, frame: PeerFrame) -> None:
        summary = decode_summary(frame.body)
        if self._comparison.is_foreign(summary.token, summary.table):
            self._is_full = True
            self.begin(transaction)
            self.line.next_in = -1  # this frame was of the exchange before
            return
        lag = self._kit.clocks.measure(self.peer, summary.time, transaction.now)
        answer = self._comparison.answer(transaction, summary, transaction.now, lag)
        self._is_full = False
        self.line.salts += summary.salt
        self.line.send(transaction, ANSWER, encode_answer(answer))
        self.phase = ANSWERED

    def _take_answer(self, transaction: Transaction, frame: PeerFrame) -> None:
        answer = decode_answer(frame.body)
        if self._comparison.is_foreign(answer.token, answer.table):
            self.line.send(transaction, RESET, b"")
            self.phase = IDLE
            return
        lag = self._kit.clocks.measure(self.peer, answer.time, transaction.now, answer.lag)
        completion = self._comparison.complete(transaction, answer, transaction.now, lag)
        self.line.send(transaction, COMPLETION, encode_completion(completion))
        self._open(transaction)

    def _take_completion(self, transaction: Transaction, frame: PeerFrame) -> None:
        completion = decode_completion(frame.body)
        self._comparison.conclude(transaction, completion)
        self._kit.clocks.measure(self.peer, completion.time, transaction.now, completion.lag)
        self._open(transaction)

    def _open(self, transaction: Transaction) -> None:
        self.phase = OPEN
        theirs = self._comparison.list_theirs()
        withheld = self.record.withheld
        self.record.withhold(transaction, {run: theirs[run] for run in withheld if run in theirs})
        for run in sorted(theirs):
            self.cargo.load(run, theirs[run])
        transaction.count("peer_exchanges_open")

    def _take_reset(self, transaction: Transaction, frame: PeerFrame) -> None:
        if frame.body:
            raise ProtocolError("a reset with a body")
        self.record.forget_told(transaction)
        self.begin(transaction)
        self.line.next_in = -1  # this frame was of the exchange before

    def _take_items(self, transaction: Transaction, frame: PeerFrame) -> None:
        batch = decode_item_batch(frame.body)
        for run, dead in batch.dead:
            self._kit.ledger.check(run, dead)
        self.intake.take(transaction, batch)
        self._taken += 1
        if frame.is_flagged and not self._is_heard:
            self._is_heard = True
            token = derive_token(self.line.salts, self.peer)
            self.record.note_heard(transaction, token, *self._comparison.their_table)
        self.line.send(transaction, ACK, encode_ack(self._taken))

    def _take_ack(self, transaction: Transaction, frame: PeerFrame) -> None:
        count = decode_ack(frame.body)
        if not self._acked < count <= self._sent:
            raise ProtocolError(f"{count} frames acknowledged, {self._sent} were sent")
        while self._acked < count:
            self._acked += 1
            self._note_arrival(transaction, self._flights.popleft())
            if self._acked == self._last:
                token = derive_token(self.line.salts, self._kit.item_store.name)
                compared = self._comparison
                self.record.note_told(transaction, compared.version, token, compared.named)

    def _note_arrival(self, transaction: Transaction, flight: list[Packed]) -> None:
        for item, size, choice in flight:
            if choice is not None:
                self._kit.copies.keep(transaction, item.dot, choice.kept)
            self.intake.log(
                transaction, item, size, is_out=True, copies=choice.given if choice else 0
            )

    def _take_ask(self, transaction: Transaction, frame: PeerFrame) -> None:
        self.line.send(transaction, TELL, self._questions.answer(transaction, frame.body))

    def _take_tell(self, transaction: Transaction, frame: PeerFrame) -> None:
        self._questions.learn(transaction, frame.body)


_TAKE = {
    GROUPS: Contact._take_groups,
    PICK: Contact._take_pick,
    EQUAL: Contact._take_equal,
    SUMMARY: Contact._take_summary,
    ANSWER: Contact._take_answer,
    COMPLETION: Contact._take_completion,
    RESET: Contact._take_reset,
    ITEMS: Contact._take_items,
    ACK: Contact._take_ack,
    ASK: Contact._take_ask,
    TELL: Contact._take_tell,
}
