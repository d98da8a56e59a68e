"""One link to another node, and the exchanges over it: who says what when.

    beginner                    other
    digest  ------------------>            equal prints: nothing to say
            <------------------ equal
    digest  ------------------>            otherwise
            <------------------ summary    what changed there since our acknowledgement
    answer  ------------------>            how we differ, and what changed here
            <------------------ completion how it differs from the latter
    items   <=================> items      both ways, a window of frames, each acknowledged
                                           after its commit; the last one closes the exchange

After that the link stays open: what is learnt goes out at once as further items. An exchange that
breaks leaves nothing half-done: every frame of items is one transaction, and the next exchange
begins where contexts are. Only this file sends to a peer.
"""

from __future__ import annotations

from collections import Counter, deque

from edge.dens.core.interface import PEERS
from edge.dens.core.peers.cargo import Cargo, Packed
from edge.dens.core.peers.intake import Intake
from edge.dens.core.peers.kit import Kit
from edge.dens.core.peers.records import PeerRecord
from edge.dens.core.turn import Turn
from edge.dens.replication.context import Run
from edge.dens.replication.prints import make_salt
from edge.dens.replication.sets import Cursor, Spans, differ, intersect, subtract
from edge.dens.replication.shipments import decode_shipment, encode_shipment
from edge.dens.replication.strategies import Peer
from edge.dens.replication.summaries import (
    Answer,
    Change,
    Completion,
    Entry,
    Summary,
    decode_ack,
    decode_answer,
    decode_ask,
    decode_completion,
    decode_digest,
    decode_summary,
    encode_ack,
    encode_answer,
    encode_ask,
    encode_completion,
    encode_digest,
    encode_summary,
)
from edge.dens.replication.wire import (
    ACK,
    ANSWER,
    ASK,
    COMPLETION,
    DIGEST,
    EQUAL,
    ITEMS,
    NAMES,
    RESET,
    SUMMARY,
    TELL,
    Frame,
    decode_time,
    derive_token,
    encode_time,
    hash_name,
    read_frame,
    seal,
)
from protocol.errors import ProtocolError

IDLE, ASKED, TOLD, ANSWERED, OPEN = "idle", "asked", "told", "answered", "open"
_EXPECTED = {  # what a phase may take beside a digest
    IDLE: (),
    ASKED: (EQUAL, SUMMARY),
    TOLD: (ANSWER,),
    ANSWERED: (COMPLETION, RESET),
    OPEN: (ITEMS, ACK, ASK, TELL),
}
_MAX_ASK = 1_024  # destinations in one question
_EQUAL = -1  # there was nothing to say


class Contact:
    """One link."""

    def __init__(self, kit: Kit, peer: str, now: int) -> None:
        self.peer = peer
        self.began = now
        self.phase = IDLE
        self.is_unproven = True  # nobody but the peer's name speaks for this link yet
        self.bytes: Counter[tuple[str, bool]] = Counter()  # by frame and whether it went out
        self.record = PeerRecord(peer, kit.reader)
        self.cargo = Cargo(kit, peer)
        self.intake = Intake(kit, peer)
        self._kit = kit
        self._wait = kit.settings.retry
        self._deadline = now + self._wait
        self._is_full = False  # ask for everything: the peer speaks of a state we do not have
        self._begin_round(b"")

    def _begin_round(self, salts: bytes) -> None:
        self._salts = salts
        self._in = self._out = 0  # numbers of the next frames
        self._version = self._kit.ledger.version  # what we speak of
        self._said: list[tuple[Run, Spans]] = []  # what we said of runs, in order
        self._named: list[Run] = []  # runs that we named, to be known by number later
        self._theirs: dict[Run, Spans] = {}
        self._their_table: tuple[int, list[Run]] = (0, [])
        self._flights: deque[list[Packed]] = deque()
        self._sent = self._acked = self._taken = 0  # frames of items
        self._last = 0  # the number of the frame of items that closes our side
        self._is_heard = False
        self._asked: list[str] | None = None
        self._peer = Peer(self.peer, {}, 0)
        self._is_answered = False
        self.cargo.clear()

    @property
    def is_settled(self) -> bool:
        """Whether both sides said everything and know it."""
        is_told = self._last == _EQUAL or 0 < self._last <= self._acked
        is_waiting = self._flights or self.cargo.is_ready or self.cargo.is_undecided
        return self.phase == OPEN and self._is_heard and is_told and not is_waiting

    # Sending --------------------------------------------------------------------------------

    def begin(self, turn: Turn) -> None:
        """Begin an exchange."""
        secret = self._kit.keys.peer_secret(self.peer)
        if secret is None:
            self.phase = IDLE
            return
        salt = self._make_salt(turn, secret)
        self._kit.ledger.refresh(turn)
        self._begin_round(salt)
        body = encode_digest(
            salt, self._kit.ledger.fingerprint(salt), self._kit.clocks.say(turn.now)
        )
        self.phase = ASKED
        self._send(turn, DIGEST, body, is_flagged=self._is_full)

    def correct_clock(self, offset: int) -> None:
        """Move what is timed with the clock."""
        self.began += offset
        self._deadline += offset

    def tick(self, turn: Turn) -> None:
        """Begin again what got stuck, and send what waits."""
        if not self.is_settled and turn.now >= self._deadline:
            self._wait = min(2 * self._wait, self._kit.settings.max_retry)
            self._deadline = turn.now + self._wait
            self.begin(turn)
        self.pump(turn)

    def pump(self, turn: Turn) -> None:
        """Send what is to go, as far as the window is open."""
        if self.phase != OPEN:
            return
        while len(self._flights) < self._kit.settings.window:
            if not self.cargo.is_ready and self.cargo.is_undecided and not self._decide(turn):
                return
            if not self.cargo.is_ready and self._last:
                return
            shipment, packed = self.cargo.pack(turn)
            is_last = not (self._last or self.cargo.is_ready or self.cargo.is_undecided)
            if not (packed or shipment.dead or is_last):
                continue
            self._sent += 1
            if is_last:
                self._last = self._sent
            self._flights.append(packed)
            self._send(turn, ITEMS, encode_shipment(shipment), is_flagged=is_last)

    def _decide(self, turn: Turn) -> bool:
        """Decide about notifications; return whether that was possible now."""
        if self._kit.strategy.is_asking and not self._is_answered:
            if self._asked is None:
                self._asked = self.cargo.list_destinations()[:_MAX_ASK]
                self._send(turn, ASK, encode_ask(self._asked))
            return False
        self.cargo.decide(turn, self.record, self._peer)
        self._asked, self._is_answered = None, False
        return True

    def _send(self, turn: Turn, kind: int, body: bytes, *, is_flagged: bool = False) -> None:
        secret = self._kit.keys.peer_secret(self.peer)
        if secret is None:  # revoked in the middle of it
            self.phase = IDLE
            return
        me = self._kit.holdings.name
        salts = b"" if kind == DIGEST else self._salts
        frame = seal(secret, me, self.peer, salts, kind, self._out, body, is_flagged=is_flagged)
        if kind not in (DIGEST, EQUAL):
            self._out += 1
        self.bytes[NAMES[kind], True] += len(frame)
        turn.publish(PEERS + self.peer, frame)

    def _make_salt(self, turn: Turn, secret: bytes) -> bytes:
        self._kit.rounds += 1
        return make_salt(secret, self._kit.holdings.epoch, self._kit.rounds, turn.now)

    # Receiving ------------------------------------------------------------------------------

    def receive(self, turn: Turn, data: bytes) -> None:
        """Take a frame; a ProtocolError says why it is refused, and nothing has changed then."""
        frame = read_frame(data, self._kit.settings.max_frame)
        salts = b"" if frame.kind == DIGEST else self._salts
        self.check_tag(frame, salts)
        self.is_unproven = False
        self.bytes[NAMES[frame.kind], False] += len(data)
        if frame.kind == DIGEST:
            self._take_digest(turn, frame)
        elif frame.kind not in _EXPECTED[self.phase]:
            turn.count("peer_frames_unexpected", label=NAMES[frame.kind])
            return
        elif frame.kind != EQUAL and frame.number != self._in:
            turn.count("peer_frames_out_of_order", label=NAMES[frame.kind])
            return
        else:
            _TAKE[frame.kind](self, turn, frame)
            self._in += frame.kind != EQUAL
        self._wait = self._kit.settings.retry
        self._deadline = turn.now + self._wait
        self.pump(turn)

    def check_tag(self, frame: Frame, salts: bytes) -> None:
        """Require that the peer made this frame, for us, in this exchange."""
        secrets = self._kit.keys.peer_secrets(self.peer)
        if not frame.is_from(secrets, self.peer, self._kit.holdings.name, salts):
            raise ProtocolError(f"{NAMES[frame.kind]}: the tag is wrong")

    def _take_digest(self, turn: Turn, frame: Frame) -> None:
        salt, fingerprint, _ = decode_digest(frame.body)
        me = self._kit.holdings.name
        if self.phase == ASKED and me < self.peer and turn.now < self._deadline:
            return  # both began: the smaller name goes on
        if salt == self._salts[: len(salt)]:
            return  # the same one again
        secret = self._kit.keys.peer_secret(self.peer)
        if secret is None:
            return
        self._kit.ledger.refresh(turn)
        self._begin_round(salt)
        time = self._kit.clocks.say(turn.now)
        if frame.is_flagged:
            self.record.forget_told(turn)
        elif self._kit.ledger.fingerprint(salt) == fingerprint:
            self._send(turn, EQUAL, encode_time(time))
            self._settle_equal(turn)
            return
        own = self._make_salt(turn, secret)
        entries = self._list_entries(skip=set(), known={})
        summary = Summary(own, time, self.record.told_token, len(self.record.indices), entries)
        self.phase = TOLD
        self._send(turn, SUMMARY, encode_summary(summary))
        self._salts = salt + own

    def _settle_equal(self, turn: Turn) -> None:
        self.record.note_equal(turn, self._version)
        self.phase = OPEN
        self._last, self._is_heard = _EQUAL, True
        turn.count("peer_exchanges_equal")

    def _take_equal(self, turn: Turn, frame: Frame) -> None:
        cursor = Cursor(frame.body)
        time = decode_time(cursor)
        cursor.finish()
        self._kit.clocks.measure(self.peer, time, turn.now)
        self._settle_equal(turn)

    def _take_summary(self, turn: Turn, frame: Frame) -> None:
        summary = decode_summary(frame.body)
        table = summary.table
        if not self.record.knows(summary.token) or table > len(self.record.names):
            self._is_full = True
            self.begin(turn)
            self._in = -1  # this frame was of the exchange before
            return
        entries = self._resolve(summary.entries, table)
        self._apply_dead(entries, turn)
        self._is_full = False
        self._their_table = (table, _list_named(summary.entries))
        self._theirs = {run: seen for run, seen, _ in entries}
        self._salts += summary.salt
        lag = self._kit.clocks.measure(self.peer, summary.time, turn.now)
        changes = self._compare(entries)
        own = self._list_entries(
            skip=set(self._theirs), known={run: dead for run, _, dead in entries}
        )
        self._send(
            turn,
            ANSWER,
            encode_answer(
                Answer(
                    self._kit.clocks.say(turn.now),
                    lag,
                    self.record.told_token,
                    changes,
                    len(self.record.indices),
                    own,
                )
            ),
        )
        self.phase = ANSWERED

    def _take_answer(self, turn: Turn, frame: Frame) -> None:
        answer = decode_answer(frame.body)
        if not self.record.knows(answer.token) or answer.table > len(self.record.names):
            self._send(turn, RESET, b"")
            self.phase = IDLE
            return
        if len(answer.changes) != len(self._said):
            raise ProtocolError(f"{len(answer.changes)} changes, {len(self._said)} entries")
        entries = self._resolve(answer.entries, answer.table)
        theirs = self._read_changes(answer.changes)
        self._apply_dead([*theirs, *entries], turn)
        self._their_table = (answer.table, _list_named(answer.entries))
        lag = self._kit.clocks.measure(self.peer, answer.time, turn.now, answer.lag)
        changes = self._compare(entries)
        self._send(
            turn,
            COMPLETION,
            encode_completion(Completion(self._kit.clocks.say(turn.now), lag, changes)),
        )
        self._open(turn, {run: seen for run, seen, _ in (*theirs, *entries)})

    def _take_completion(self, turn: Turn, frame: Frame) -> None:
        completion = decode_completion(frame.body)
        if len(completion.changes) != len(self._said):
            raise ProtocolError(f"{len(completion.changes)} changes, {len(self._said)} entries")
        theirs = self._read_changes(completion.changes)
        self._apply_dead(theirs, turn)
        self._kit.clocks.measure(self.peer, completion.time, turn.now, completion.lag)
        self._open(turn, self._theirs | {run: seen for run, seen, _ in theirs})

    def _take_reset(self, turn: Turn, frame: Frame) -> None:
        if frame.body:
            raise ProtocolError("a reset with a body")
        self.record.forget_told(turn)
        self.begin(turn)
        self._in = -1  # this frame was of the exchange before

    def _take_items(self, turn: Turn, frame: Frame) -> None:
        shipment = decode_shipment(frame.body)
        for run, dead in shipment.dead:
            self._kit.ledger.check(run, dead)
        self.intake.take(turn, shipment)
        self._taken += 1
        if frame.is_flagged and not self._is_heard:
            self._is_heard = True
            token = derive_token(self._salts, self.peer)
            self.record.note_heard(turn, token, *self._their_table)
        self._send(turn, ACK, encode_ack(self._taken))

    def _take_ack(self, turn: Turn, frame: Frame) -> None:
        count = decode_ack(frame.body)
        if not self._acked < count <= self._sent:
            raise ProtocolError(f"{count} frames acknowledged, {self._sent} were sent")
        while self._acked < count:
            self._acked += 1
            self._note_arrival(turn, self._flights.popleft())
            if self._acked == self._last:
                token = derive_token(self._salts, self._kit.holdings.name)
                self.record.note_told(turn, self._version, token, self._named)

    def _note_arrival(self, turn: Turn, flight: list[Packed]) -> None:
        for item, size, choice in flight:
            if choice is not None:
                self._kit.copies.keep(turn, item.dot, choice.kept)
            self.intake.log(turn, item, size, is_out=True, copies=choice.given if choice else 0)

    def _take_ask(self, turn: Turn, frame: Frame) -> None:
        hashes = decode_ask(frame.body)
        known = {hash_name(name): name for name in self._kit.encounters.list_known()}
        known[hash_name(self._kit.holdings.name)] = self._kit.holdings.name
        judge = self._kit.encounters.judge
        told = bytes(judge(known[each], turn.now) if each in known else 0 for each in hashes)
        reach = min(self._kit.encounters.reach, 0xFFFF)
        self._send(turn, TELL, reach.to_bytes(2, "big") + told)

    def _take_tell(self, turn: Turn, frame: Frame) -> None:
        if self._asked is None or len(frame.body) != 2 + len(self._asked):
            raise ProtocolError("an answer to no question")
        likely = dict(zip(self._asked, frame.body[2:], strict=True))
        for node, byte in likely.items():
            self._kit.encounters.hear(turn.write, node, byte, turn.now)
        self._peer = Peer(self.peer, likely, int.from_bytes(frame.body[:2], "big"))
        self._is_answered = True

    # Comparing ------------------------------------------------------------------------------

    def _open(self, turn: Turn, theirs: dict[Run, Spans]) -> None:
        self.phase = OPEN
        for run in sorted(theirs):
            self.cargo.load(run, theirs[run])
        turn.count("peer_exchanges_open")

    def _list_entries(self, skip: set[Run], known: dict[Run, Spans]) -> tuple[Entry, ...]:
        """Return what the peer is to hear of runs that changed, known numbers first."""
        self._version = self._kit.ledger.version
        since = self.record.told_version
        self._dead = {
            run: subtract(dead, known.get(run, ()))
            for run, dead in self._kit.ledger.list_dead(since).items()
        }
        runs = (set(self._kit.ledger.list_changed(since)) | self.record.withheld) - skip
        indices = self.record.indices
        numbered = sorted((run for run in runs if run in indices), key=indices.__getitem__)
        self._named = sorted(run for run in runs if run not in indices)
        entries = []
        for run in (*numbered, *self._named):
            seen = self._kit.ledger.list_seen(run)
            self._said.append((run, seen))
            entries.append(Entry(indices.get(run, run), seen, self._dead.get(run, ())))
        return tuple(entries)

    def _compare(self, entries: list[tuple[Run, Spans, Spans]]) -> tuple[Change, ...]:
        """Return how we differ from what the peer said."""
        died = self._kit.ledger.list_dead(self.record.told_version)
        return tuple(
            Change(
                differ(self._kit.ledger.list_seen(run), seen),
                subtract(died.get(run, ()), dead),
            )
            for run, seen, dead in entries
        )

    def _read_changes(self, changes: tuple[Change, ...]) -> list[tuple[Run, Spans, Spans]]:
        return [
            (run, differ(seen, change.differs), change.dead)
            for (run, seen), change in zip(self._said, changes, strict=True)
        ]

    def _resolve(self, entries: tuple[Entry, ...], table: int) -> list[tuple[Run, Spans, Spans]]:
        resolved = [
            (self.record.resolve(entry.run, table), entry.seen, entry.dead) for entry in entries
        ]
        if len({run for run, _, _ in resolved}) != len(resolved):
            raise ProtocolError("one run in two entries")
        return resolved

    def _apply_dead(self, entries: list[tuple[Run, Spans, Spans]], turn: Turn) -> None:
        """Believe what is dead: all of it, or nothing if one set is impossible."""
        found = [(run, intersect(dead, seen)) for run, seen, dead in entries if dead]
        for run, dead in found:
            self._kit.ledger.check(run, dead)
        for run, dead in found:
            self.intake.bury(turn, run, dead)


def _list_named(entries: tuple[Entry, ...]) -> list[Run]:
    return [entry.run for entry in entries if not isinstance(entry.run, int)]


_TAKE = {
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
