"""The protocol between nodes: a session for each link, the order of its frames, and their seals.

Every subscription goes to every node, whole: any node may be the one where its subscriber turns up,
and delivery, ranking and roles are decided there. What subsumption saves is what is *installed*: a
subscription's vector goes to a node's watchdogs only while it adds something to the others that are
active there, which the device protocol decides with the same covering at every node. Keeping a
covered subscription from a peer would save 150 bytes once, and cost its subscriber every
notification while the covering one is removed and the link is down.

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
SEALS      Within one exchange frames are numbered from 0 in each direction, and only the next
           number is accepted: a frame that comes twice, late or out of order is ignored, and a lost
           frame makes the exchange begin again.

Only this file publishes to peers, below `dens/1/peer/`, and knows the order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from denwatch.node.core.events import PEERS, Message, Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import DELIVERED, KINDS, NOTIFICATION, SUBSCRIPTION, Item
from denwatch.node.core.peers.item_exchange import (
    Forwarding,
    ItemReceiver,
    ItemValidator,
    Packed,
    PeerKeys,
    PeerSettings,
    PendingDeliveries,
    SendQueue,
    log_transfer,
)
from denwatch.node.core.peers.knowledge import ChangeLog, KnowledgeComparison, PeerRecord
from denwatch.node.core.subscriptions import Subscription
from denwatch.node.core.trust import Trust
from denwatch.node.replication import wire
from denwatch.node.replication.clock import Clocks
from denwatch.node.replication.dot_sets import FrameReader, make_salt
from denwatch.node.replication.strategies import build_strategy
from denwatch.node.replication.wire import NAMES
from denwatch.protocol.errors import ProtocolError

# One channel -----------------------------------------------------------------------------------


class PeerChannel:
    """Seals frames to one peer, and opens those that it sent to us."""

    def __init__(self, item_store: ItemStore, keys: PeerKeys, peer: str, limit: int) -> None:
        self.name = item_store.name
        self.peer = peer
        self.bytes: Counter[tuple[str, bool]] = Counter()  # by kind of frame and whether we sent it
        self.salts = b""
        self.next_in = self.next_out = 0
        self._epoch = item_store.epoch
        self._keys = keys
        # Exchanges of this run of the node with any peer: no two have the same salt.
        self._rounds = item_store.numbers.rounds
        self._limit = limit

    @property
    def is_usable(self) -> bool:
        """Whether there is a secret with the peer: it may be revoked at any time."""
        return self._keys.peer_secret(self.peer) is not None

    def begin(self, salts: bytes) -> None:
        """Count frames from 0 again, under a new salt."""
        self.salts = salts
        self.next_in = self.next_out = 0

    def make_salt(self, transaction: Transaction) -> bytes:
        """Return a salt for an exchange."""
        secret = self._keys.peer_secret(self.peer) or bytes(1)
        return make_salt(secret, self.name, self._epoch, next(self._rounds), transaction.now)

    def send(
        self, transaction: Transaction, kind: int, body: bytes, *, is_flagged: bool = False
    ) -> None:
        """Send a frame; nothing goes to a peer without a secret."""
        secret = self._keys.peer_secret(self.peer)
        if secret is None:
            return
        salts = b"" if kind == wire.DIGEST else self.salts
        frame = wire.seal(
            secret, self.name, self.peer, salts, kind, self.next_out, body, is_flagged=is_flagged
        )
        self.next_out += kind not in (wire.DIGEST, wire.EQUAL)
        self.bytes[wire.NAMES[kind], True] += len(frame)
        transaction.publish(PEERS + self.peer, frame)

    def open(self, data: bytes) -> wire.PeerFrame:
        """Return a frame that the peer made, for us, in this exchange; ProtocolError otherwise."""
        frame = wire.read_frame(data, self._limit)
        salts = b"" if frame.kind == wire.DIGEST else self.salts
        if not frame.is_from(self._keys.peer_secrets(self.peer), self.peer, self.name, salts):
            raise ProtocolError(f"{NAMES[frame.kind]}: the tag is wrong")
        self.bytes[wire.NAMES[frame.kind], False] += len(data)
        return frame

    def is_next(self, frame: wire.PeerFrame) -> bool:
        """Return whether a frame is the one that comes next."""
        return frame.kind == wire.EQUAL or frame.number == self.next_in

    def accept(self, frame: wire.PeerFrame) -> None:
        """Record that a frame was accepted."""
        self.next_in += frame.kind != wire.EQUAL


# One session -----------------------------------------------------------------------------------

IDLE, ASKED, GROUPED = "idle", "asked", "grouped"
TOLD, ANSWERED, OPEN = "told", "answered", "open"
_EXPECTED = {  # what a phase accepts beside a digest
    IDLE: (),
    ASKED: (wire.EQUAL, wire.GROUPS, wire.SUMMARY),
    GROUPED: (wire.PICK,),
    TOLD: (wire.ANSWER,),
    ANSWERED: (wire.COMPLETION, wire.RESET),
    OPEN: (wire.ITEMS, wire.ACK, wire.ASK, wire.TELL),
}
_EQUAL = -1  # for `_last`: the fingerprints were equal, there was nothing to send


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
            self._change_log, self.record, self._receiver.accept_dead, self.peer
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
        body = wire.encode_digest(salt, self._change_log.fingerprint(salt), transaction.now)
        self.phase = ASKED
        self.channel.send(transaction, wire.DIGEST, body, is_flagged=self._is_full)

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
            self.channel.send(
                transaction, wire.ITEMS, wire.encode_item_batch(batch), is_flagged=is_last
            )

    def _decide(self, transaction: Transaction) -> bool:
        """Let the strategy decide about notifications; False: it waits for the peer's answer."""
        if not self.queue.is_answered:
            question = self.queue.ask(transaction)
            if question is not None:
                self._deadline = max(self._deadline, transaction.now + self._wait)
                body, has_ways = question
                self.channel.send(transaction, wire.ASK, body, is_flagged=has_ways)
            return False
        self.queue.decide(transaction, self.record)
        return True

    # Receiving ------------------------------------------------------------------------------

    def receive(self, transaction: Transaction, data: bytes) -> None:
        """Handle a frame; a ProtocolError says why it is refused, and then nothing has changed."""
        frame = self.channel.open(data)
        self.is_unproven = False
        if frame.kind == wire.DIGEST:
            self._receive_digest(transaction, frame)
        elif frame.kind not in _EXPECTED[self.phase] or not self.channel.is_next(frame):
            transaction.count("peer_frames_out_of_order", label=wire.NAMES[frame.kind])
            return
        else:
            _RECEIVE[frame.kind](self, transaction, frame)
            self.channel.accept(frame)
        self._wait = self._settings.retry
        self._deadline = transaction.now + self._wait

    def _receive_digest(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        salt, fingerprint, time = wire.decode_digest(frame.body)
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
            self.channel.send(transaction, wire.EQUAL, wire.encode_time(transaction.now))
            self._settle_equal(transaction)
            return
        else:
            count = self._comparison.choose_groups(self._settings.group_from)
            if count:
                self.phase = GROUPED
                hashes = self._comparison.hash_groups(salt, count)
                self.channel.send(transaction, wire.GROUPS, wire.encode_groups(hashes))
                return
        self._send_summary(transaction)

    def _receive_groups(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        theirs = wire.decode_groups(frame.body)
        ours = self._comparison.hash_groups(self.channel.salts, len(theirs))
        differing = frozenset(
            group for group, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]
        )
        self._comparison.pick(differing)
        self.channel.send(transaction, wire.PICK, wire.encode_pick(differing, len(theirs)))

    def _receive_pick(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        self._comparison.pick(wire.decode_pick(frame.body))
        self._send_summary(transaction)

    def _send_summary(self, transaction: Transaction) -> None:
        own = self.channel.make_salt(transaction)
        summary = self._comparison.summarise(own, transaction.now)
        self.phase = TOLD
        self.channel.send(transaction, wire.SUMMARY, wire.encode_summary(summary))
        self.channel.salts += own

    def _settle_equal(self, transaction: Transaction) -> None:
        self.record.note_equal(transaction, self._comparison.version)
        self.record.withhold(transaction, {})
        self.phase = OPEN
        self._last, self._is_heard = _EQUAL, True
        transaction.count("peer_exchanges_equal")

    def _receive_equal(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        cursor = FrameReader(frame.body)
        time = wire.decode_time(cursor)
        cursor.finish()
        self._clocks.measure(self.peer, time, transaction.now)
        self._settle_equal(transaction)

    def _receive_summary(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        summary = wire.decode_summary(frame.body)
        if self._comparison.is_foreign(summary.token, summary.table):
            self._is_full = True
            self.begin(transaction)
            self.channel.next_in = -1  # this frame was of the exchange before
            return
        lag = self._clocks.measure(self.peer, summary.time, transaction.now)
        answer = self._comparison.answer(transaction, summary, transaction.now, lag)
        self._is_full = False
        self.channel.salts += summary.salt
        self.channel.send(transaction, wire.ANSWER, wire.encode_answer(answer))
        self.phase = ANSWERED

    def _receive_answer(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        answer = wire.decode_answer(frame.body)
        if self._comparison.is_foreign(answer.token, answer.table):
            self.channel.send(transaction, wire.RESET, b"")
            self.phase = IDLE
            return
        lag = self._clocks.measure(self.peer, answer.time, transaction.now, answer.lag)
        completion = self._comparison.complete(transaction, answer, transaction.now, lag)
        self.channel.send(transaction, wire.COMPLETION, wire.encode_completion(completion))
        self._open(transaction)

    def _receive_completion(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        completion = wire.decode_completion(frame.body)
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

    def _receive_reset(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        if frame.body:
            raise ProtocolError("a reset with a body")
        self.record.forget_told(transaction)
        self.begin(transaction)
        self.channel.next_in = -1  # this frame was of the exchange before

    def _receive_items(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        batch = wire.decode_item_batch(frame.body)
        for run, dead in batch.dead:
            self._change_log.check_dead(run, dead)
        for kind, count in self._receiver.receive(transaction, batch, self.peer).items():
            self.items[kind, False] += count
        self._received += 1
        if frame.is_flagged and not self._is_heard:
            self._is_heard = True
            token = wire.derive_token(self.channel.salts, self.peer)
            self.record.note_heard(transaction, token, *self._comparison.their_table)
        self.channel.send(transaction, wire.ACK, wire.encode_ack(self._received))

    def _receive_ack(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        count = wire.decode_ack(frame.body)
        if not self._acked < count <= self._sent:
            raise ProtocolError(f"{count} frames acknowledged, {self._sent} were sent")
        while self._acked < count:
            self._acked += 1
            self._confirm(transaction, self._flights.popleft())
            if self._acked == self._last:
                token = wire.derive_token(self.channel.salts, self.channel.name)
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

    def _receive_ask(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        body, has_ways = self.queue.answer(transaction, frame.body, frame.is_flagged)
        self.channel.send(transaction, wire.TELL, body, is_flagged=has_ways)

    def _receive_tell(self, transaction: Transaction, frame: wire.PeerFrame) -> None:
        self.queue.receive_answer(transaction, frame.body, frame.is_flagged)


_RECEIVE = {
    wire.GROUPS: PeerSession._receive_groups,
    wire.PICK: PeerSession._receive_pick,
    wire.EQUAL: PeerSession._receive_equal,
    wire.SUMMARY: PeerSession._receive_summary,
    wire.ANSWER: PeerSession._receive_answer,
    wire.COMPLETION: PeerSession._receive_completion,
    wire.RESET: PeerSession._receive_reset,
    wire.ITEMS: PeerSession._receive_items,
    wire.ACK: PeerSession._receive_ack,
    wire.ASK: PeerSession._receive_ask,
    wire.TELL: PeerSession._receive_tell,
}


# All links -------------------------------------------------------------------------------------

_DIGESTS = ("digest", "equal")
_SHARED = (SUBSCRIPTION, NOTIFICATION, DELIVERED)


class PeerProtocol:
    """All links of a node to others."""

    def __init__(
        self,
        item_store: ItemStore,
        keys: PeerKeys,
        pending: PendingDeliveries,
        clocks: Clocks,
        settings: PeerSettings | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`trust` applies a revocation as soon as it is stored."""
        self.settings = settings or PeerSettings()
        self.validator = ItemValidator(item_store, clocks, keys, self.settings)
        self.sessions: dict[str, PeerSession] = {}  # by peer
        self._item_store = item_store
        self._keys = keys
        self._clocks = clocks
        self._change_log = ChangeLog(item_store, self.settings.grace)
        strategy = build_strategy(self.settings.strategy)
        self.forwarding = Forwarding(item_store, clocks, pending, strategy)
        self._receiver = ItemReceiver(
            item_store, self.validator, self._change_log, self.forwarding, clocks, trust
        )

    def restore(self, reader: Reader, subscriptions: Iterable[Subscription]) -> None:
        """Load what an earlier run saved; the clocks are restored before all protocols."""
        self._change_log.restore(reader)
        self.forwarding.restore(reader, subscriptions)

    # Links ----------------------------------------------------------------------------------

    def meet(self, transaction: Transaction, peer: str, is_up: bool) -> None:
        """Begin a contact, or end it."""
        if not is_up:
            self._end_contact(transaction, peer, "gone")
            return
        if peer == self._item_store.name or self._keys.peer_secret(peer) is None:
            self._refuse(transaction, peer, "a link to a node without a key", 0)
            return
        self._end_contact(transaction, peer, "again")
        session = self._begin_contact(transaction, peer)
        if self._item_store.name < peer:
            session.begin(transaction)

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Handle a frame from a peer."""
        if message.topic != PEERS + self._item_store.name:
            self._refuse(
                transaction, message.sender, "a frame for another node", len(message.payload)
            )
            return
        reason = "a frame of nobody we know"
        for peer in self._list_senders(message):
            # A frame may come before the news of its link: it counts once its tag is right.
            session = self.sessions.get(peer) or self._open_session(transaction, peer)
            try:
                session.receive(transaction, message.payload)
            except ProtocolError as error:
                reason = str(error)
                if session.is_unproven:
                    del self.sessions[peer]
            else:
                return
        self._refuse(transaction, message.sender, reason, len(message.payload))

    def _list_senders(self, message: Message) -> Iterable[str]:
        """Return who may have sent a frame: behind a broker, all that its hint allows."""
        if message.sender:
            known = self._keys.peer_secret(message.sender) is not None
            return [message.sender] if known else []
        hint = message.payload[1:3]
        return [peer for peer in sorted(self.sessions) if wire.hint_at(peer) == hint]

    def _open_session(self, transaction: Transaction, peer: str) -> PeerSession:
        item_store, settings = self._item_store, self.settings
        session = self.sessions[peer] = PeerSession(
            transaction,
            PeerChannel(item_store, self._keys, peer, settings.max_frame),
            SendQueue(
                item_store,
                self._change_log,
                self.forwarding,
                self._clocks,
                peer,
                settings.chunk,
            ),
            self._receiver,
            self._clocks,
            settings,
        )
        return session

    def _begin_contact(self, transaction: Transaction, peer: str) -> PeerSession:
        session = self._open_session(transaction, peer)
        session.is_unproven = False
        self.forwarding.encounters.meet(transaction.write, peer, transaction.now, True)
        is_first = self._item_store.name < peer
        transaction.log("contact", peer=peer, contact=transaction.now, is_initiator=is_first)
        return session

    def _end_contact(self, transaction: Transaction, peer: str, outcome: str) -> None:
        session = self.sessions.pop(peer, None)
        if session is None:
            return
        self.forwarding.encounters.meet(transaction.write, peer, transaction.now, False)
        self._clocks.forget_peer(peer)
        settled = "settled" if session.is_settled else session.phase
        fields = _sum_bytes(session)
        transaction.log(
            "contact_end",
            peer=peer,
            contact=session.began,
            began=session.began,
            outcome=settled if outcome == "gone" else outcome,
            **fields,
        )

    # Changes at this node -------------------------------------------------------------------

    def add_items(self, transaction: Transaction, items: Sequence[Item], source: str) -> None:
        """Record new items, and queue them for all linked peers but the one that sent them."""
        self._change_log.add_items(transaction, items)
        if not self.sessions and items[0].kind == NOTIFICATION:
            return  # nobody to tell, and nothing to learn from them
        for item in items:
            has_moved = self.forwarding.add_item(item)
            for peer, session in self.sessions.items():
                if peer != source:
                    session.queue.add_item(item)
                # What was kept back may now be for the peer: more is wanted, or somebody is there.
                session.may_offer_more |= has_moved or item.kind == SUBSCRIPTION

    def remove_item(self, transaction: Transaction, item: Item, reason: str, source: str) -> None:
        """Record that an item is gone, and tell all linked peers if it is gone for good.

        If a peer said that it is dead (`source`), the change log knows already, and that peer too.
        """
        if source or self._record_removal(transaction, item, reason):
            for peer, session in self.sessions.items():
                if peer != source:
                    session.queue.add_dead(item.dot)

    def _record_removal(self, transaction: Transaction, item: Item, reason: str) -> bool:
        expires = item.expires and self._clocks.localise(item.dot, item.expires)
        if item.kind == NOTIFICATION:
            self.forwarding.drop_copy(transaction, item, reason)
        return self._change_log.remove_item(transaction, item, reason, expires)

    def correct_clock(self, transaction: Transaction, offset: int) -> None:
        """Show times to people by the corrected clock; analysis learns of it from the log."""
        self._clocks.correct(transaction.write, offset, transaction.now)
        transaction.log("clock", offset=offset, source="machine")

    def use_strategy(self, text: str) -> None:
        """Use another strategy from now on, also for what was kept back until now."""
        self.forwarding.strategy = build_strategy(text)
        for session in self.sessions.values():
            session.may_offer_more = True

    def find_lag(self, now: int) -> int | None:
        """Return for how long something waits to be exchanged with a peer that is here.

        The longest, in ms; 0 if all have what they are to have, None if nobody is here.
        """
        return max((session.find_lag(now) for session in self.sessions.values()), default=None)

    def tick(self, transaction: Transaction) -> None:
        """Do what is due."""
        self._change_log.tick(transaction)
        for session in self.sessions.values():
            session.tick(transaction)

    def finish(self, transaction: Transaction) -> None:
        """Send what this transaction brought, and save the time."""
        self._clocks.save(transaction.write, transaction.now)
        for session in self.sessions.values():
            session.send_queued(transaction)

    def _refuse(self, transaction: Transaction, who: str, why: str, size: int) -> None:
        transaction.count("peer_frames_refused", label=why)
        transaction.log("refuse", what="frame", why=why, who=who, bytes=size)


def _sum_bytes(session: PeerSession) -> dict[str, int]:
    """Return the bytes of a session by kind of message and the items by kind, both ways."""
    fields: dict[str, int] = {}
    for is_out, way in ((True, "out"), (False, "in")):
        sums = {"digest": 0, "known": 0, "items": 0}
        for (name, went), size in session.channel.bytes.items():
            if went == is_out:
                group = "digest" if name in _DIGESTS else name if name == "items" else "known"
                sums[group] += size
        fields |= {f"{group}_{way}": size for group, size in sums.items()}
        names = {SUBSCRIPTION: "subscriptions", NOTIFICATION: "notes", DELIVERED: "delivered"}
        items = session.items
        fields |= {f"{names[kind]}_{way}": items[kind, is_out] for kind in _SHARED}
        fields[f"others_{way}"] = sum(items[kind, is_out] for kind in KINDS if kind not in _SHARED)
    return fields
