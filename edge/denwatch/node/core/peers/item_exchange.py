"""Items to a peer and from it: what goes next, what is worth sending, and what is accepted.

TO A PEER. Receipts first, because they free room on both sides; then revocations, vocabularies and
subscriptions, which decide what notifications are worth; then notifications, in the order and
number of copies that the strategy chooses. `Forwarding` is the node's side of that choice, shared
by all sessions: the strategy, the copies held, whom the node meets, and at which nodes each
subscriber was last seen. `SendQueue` belongs to one session: what its peer still lacks, packed into
frames, and the question that a strategy may have for the peer before it decides (how many nodes it
meets, and how soon it may meet each destination). The first question of a contact tells the same of
ourselves, for all nodes with subscribers, and so does its answer. It knows nothing of the link.

FROM A PEER. A peer is authenticated, not trusted: it carries what others made. Each item is checked
against its origin's signature, its own format, and what is possible. What is refused is counted and
logged, and not recorded as seen, so that the true item can still come. What a peer *is* trusted
with is to say that dots which exist, and were not seen here, are dead (see `knowledge.py`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    ANNOUNCEMENT,
    CLAIM,
    DELIVERED,
    KINDS,
    LATEST,
    NEVER,
    NOTIFICATION,
    PREFERENCE,
    REMOVAL,
    REVOCATION,
    SUBSCRIPTION,
    VOCABULARY,
    AnnouncementBody,
    ClaimBody,
    DeliveredBody,
    Dot,
    Item,
    NotificationBody,
    PreferenceBody,
    RemovalBody,
    SubscriptionBody,
    VocabularyBody,
    decode_body,
    read_dot,
)
from denwatch.node.core.peers.knowledge import ChangeLog, PeerRecord
from denwatch.node.core.subscriptions import Subscription
from denwatch.node.core.trust import ProofKeys, Trust, find_forgery
from denwatch.node.replication.clock import Clocks
from denwatch.node.replication.dot_sets import EMPTY, MAX_SPAN, Run, Spans, intersect, unite
from denwatch.node.replication.strategies import (
    Candidate,
    Copy,
    CopyChoice,
    Encounters,
    MetPeer,
    Strategy,
)
from denwatch.node.replication.wire import (
    MAX_ASKED,
    ItemBatch,
    SentItem,
    Ways,
    decode_ask,
    decode_ways,
    encode_ask,
    encode_ways,
    hash_name,
)
from denwatch.protocol.errors import ProtocolError

# Settings and keys -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PeerSettings:
    """How a node treats other nodes; all times in ms, all sizes in bytes."""

    strategy: str = "utility"  # epidemic, spray:L, utility[:L]
    chunk: int = 32_768  # of items in one frame, which is one transaction at the receiver
    window: int = 4  # frames of items that may be unacknowledged
    group_from: int = 64  # with so many runs changed, groups of them are compared first
    retry: int = 5_000  # without an answer for so long, the exchange begins again
    max_retry: int = 60_000
    grace: int = 3_600_000  # how long after its end an item is not yet called dead
    max_frame: int = 262_144
    max_future: int = 24 * 3_600_000  # a reading may be from so far ahead, by our best knowledge
    max_life: int = 400 * 24 * 3_600_000  # nothing with an end ends later than this from now

    def __post_init__(self) -> None:
        if not 1_024 <= self.chunk <= self.max_frame - 80_000:
            raise ValueError(
                f"chunk {self.chunk}: from 1024 bytes, and one longest item below max_frame"
            )
        if self.window < 1 or not 0 < self.retry <= self.max_retry or self.grace < 0:
            raise ValueError("window, retry and grace are positive, retry is below max_retry")


class PeerKeys(ProofKeys, Protocol):
    """What a keyring knows of nodes, and of people."""

    def knows_node(self, node: str) -> bool:
        """Return whether there is a key of this node."""

    def peer_secret(self, node: str) -> bytes | None:
        """Return the secret for frames to a node; None if it is unknown or revoked."""

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        """Return the secrets that frames of a node may have, while keys change."""


# Items to a peer -------------------------------------------------------------------------------

COPIES = "peer.copy"
ITEM_HEAD = 48  # bytes of an item beside body and signature, at most
_ORDER = (
    DELIVERED,
    REMOVAL,
    REVOCATION,
    VOCABULARY,
    CLAIM,
    ANNOUNCEMENT,
    PREFERENCE,
    SUBSCRIPTION,
)
_PLACES = 2  # nodes remembered for a subscriber
_REACH = 2  # bytes
_LARGEST_REACH = 0xFFFF
_ENDS = (
    "delivered",
    "expired",
)  # reasons for which a notification is removed that count as its age
_LINKED_BEFORE = 255  # what nodes of the first version tell of a node that is linked


class PendingDeliveries(Protocol):
    """What the subscribers' protocol knows of deliveries that are pending."""

    def wanted(self, reader: Reader, dot: Dot) -> Mapping[str, int]:
        """Return who still waits for a notification that is held, with the degree of each."""

    def find_time(self, reader: Reader, dot: Dot) -> int:
        """Return when a notification that is held was made, by the clock here; 0 if unknown."""


class Forwarding:
    """Which notifications are for whom: strategy, copies, encounters, places of subscribers.

    Items tell where a subscriber is: a subscription, and a receipt, are made at the node where
    their subscriber is.
    """

    def __init__(
        self, item_store: ItemStore, clocks: Clocks, pending: PendingDeliveries, strategy: Strategy
    ) -> None:
        self.strategy = strategy
        self.encounters = Encounters()
        self._item_store = item_store
        self._clocks = clocks
        self._pending = pending
        self._copies: dict[Dot, Copy] = {}  # those that are not as they began
        self._places: dict[str, tuple[str, ...]] = {}  # of a subscriber, the latest node first

    def restore(self, reader: Reader, subscriptions: Iterable[Subscription]) -> None:
        """Load what an earlier run saved; `subscriptions` are those in force, by dot."""
        for key, value in reader.scan(COPIES):
            copies, hops, level = (int.from_bytes(value[at : at + 2], "big") for at in (0, 2, 4))
            at = int.from_bytes(value[6:], "big")
            self._copies[read_dot(key)] = Copy(copies, hops, level, at)
        self.encounters.restore(reader)
        for each in subscriptions:
            self._note_place(each.subscriber.name, each.dot.origin)
        for item in self._item_store.iterate(reader, DELIVERED):
            self.add_item(item)

    def add_item(self, item: Item) -> bool:
        """Learn from a new item where a subscriber is; return whether that is another node."""
        try:
            if item.kind == SUBSCRIPTION:
                subscriber = decode_body(SubscriptionBody, item.body).owner
            elif item.kind == DELIVERED:
                said = item.said
                if not isinstance(said, DeliveredBody):
                    said = decode_body(DeliveredBody, item.body)
                subscriber = said.subscriber
            else:
                return False
        except ProtocolError:  # stored by a version that checked less
            return False
        return self._note_place(subscriber, item.dot.origin)

    def _note_place(self, subscriber: str, node: str) -> bool:
        """Note that a subscriber was at a node; return whether that was not known."""
        known = self._places.get(subscriber, ())
        before = tuple(place for place in known if place != node)
        self._places[subscriber] = (node, *before)[:_PLACES]
        return node not in known

    def list_destinations(self, transaction: Transaction, dots: Iterable[Dot]) -> set[str]:
        """Return the nodes where those may be who wait for any of these notifications."""
        found = (self._find_places(self._pending.wanted(transaction, dot)) for dot in dots)
        return {node for places in found for node in places}

    def build_candidate(self, transaction: Transaction, dot: Dot) -> Candidate:
        """Return what a strategy wants to know of a notification that is held."""
        expires = self._item_store.live[NOTIFICATION][dot.run][dot.sequence]
        wanted = self._pending.wanted(transaction, dot)
        return Candidate(
            dot,
            self.get_copy(dot),
            expires and self._clocks.localise(dot, expires),
            wanted,
            self._find_places(wanted),
            self._pending.find_time(transaction, dot) if self.strategy.is_asking else 0,
        )

    def _find_places(self, subscribers: Iterable[str]) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(node for name in subscribers for node in self._places.get(name, ()))
        )

    # Copies ---------------------------------------------------------------------------------

    def get_copy(self, dot: Dot) -> Copy:
        """Return what is known of our copy of a notification."""
        copy = self._copies.get(dot)
        if copy is not None:
            return copy
        is_own = dot.origin == self._item_store.name
        return Copy(self.strategy.copies if is_own else 1, 0)

    def keep_copy(self, transaction: Transaction, dot: Dot, copy: Copy) -> None:
        """Record what a copy is now."""
        if self.strategy.copies and copy != self.get_copy(dot):
            copies, hops, level = (min(number, 0xFFFF) for number in copy[:3])
            copy = self._copies[dot] = Copy(copies, hops, level, copy.at)
            row = b"".join(number.to_bytes(2, "big") for number in copy[:3])
            transaction.write(COPIES, dot.key, row + copy.at.to_bytes(6, "big"))

    def drop_copy(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Forget a copy that is gone; learn how old those get that travel."""
        if self._copies.pop(item.dot, None) is None:
            return
        transaction.write(COPIES, item.dot.key, None)
        if self.strategy.is_asking and reason in _ENDS:
            made = decode_body(NotificationBody, item.body).at
            if reason == "expired":
                age = item.expires - made
            else:
                age = transaction.now - self._clocks.estimate(item.dot, made)
            self.encounters.learn_age(age)

    # Ways -----------------------------------------------------------------------------------

    def list_nodes(self) -> list[str]:
        """Return the nodes that anything may be for: where subscriptions and receipts were made.

        Items of both kinds go to everybody before notifications, so that two nodes that are linked
        mostly have the same list.
        """
        live = self._item_store.live
        runs = (
            run for kind in (SUBSCRIPTION, DELIVERED) for run, held in live[kind].items() if held
        )
        return sorted({origin for origin, _ in runs})[:MAX_ASKED]

    def tell_ways(self, nodes: list[str], peer: str, now: int) -> bytes:
        """Return our reach and our ways to these nodes."""
        return encode_ways(Ways(self.reach, self.encounters.tell(nodes, peer, now)), nodes)

    @property
    def reach(self) -> int:
        """How many nodes are met in a hundred hours, as it is told."""
        return min(self.encounters.reach, _LARGEST_REACH)


class Packed(NamedTuple):
    """One item in a frame that was sent and is not acknowledged yet."""

    item: Item
    size: int
    choice: CopyChoice | None


class SendQueue:
    """What one peer is still to get."""

    def __init__(
        self,
        item_store: ItemStore,
        change_log: ChangeLog,
        forwarding: Forwarding,
        clocks: Clocks,
        peer: str,
        chunk: int,
    ) -> None:
        self._item_store = item_store
        self._change_log = change_log
        self._forwarding = forwarding
        self._clocks = clocks
        self._peer = peer
        self._chunk = chunk
        self._asked: list[str] | None = None  # the nodes in our question, while it is open
        self._is_telling = False  # the open question tells our ways
        self._may_tell_ways = True  # once in a contact
        self._is_first_version = False  # the peer tells ages instead of delays
        self._is_answered = False
        self.clear()

    def clear(self) -> None:
        """Forget everything: the next exchange finds out again what the peer lacks."""
        self._queues: dict[int, dict[Dot, None]] = {kind: {} for kind in _ORDER}
        self._undecided: dict[Dot, None] = {}  # notifications that the strategy has not seen yet
        self._chosen: deque[CopyChoice] = deque()
        self._dead: dict[Run, Spans] = {}
        self._theirs: dict[Run, Spans] = {}  # what the peer has seen
        self._loaded: set[Run] = set()
        self._met = MetPeer(self._peer, {}, 0)
        self._close_question()

    @property
    def is_ready(self) -> bool:
        """Whether there is something to pack."""
        return bool(self._dead or self._chosen or any(self._queues.values()))

    @property
    def is_undecided(self) -> bool:
        """Whether there are notifications for the strategy to decide about."""
        return bool(self._undecided)

    # Filling --------------------------------------------------------------------------------

    def add_missing(self, run: Run, theirs: Spans) -> None:
        """Queue what a peer that has seen `theirs` of a run lacks."""
        self._theirs[run] = theirs
        self._loaded.add(run)
        live = self._item_store.live
        for kind in (*_ORDER, NOTIFICATION):
            held = live[kind].get(run)
            for sequence in self._change_log.list_missing(run, theirs, held) if held else ():
                self._add(kind, Dot(*run, sequence))

    def add_item(self, item: Item) -> None:
        """Queue an item that is new here."""
        self._add(item.kind, item.dot)

    def add_dead(self, dot: Dot) -> None:
        """Queue the news that an item was removed."""
        run = dot.run
        one = ((dot.sequence, dot.sequence),)
        self._dead[run] = unite(self._dead.get(run, ()), one)

    def _add(self, kind: int, dot: Dot) -> None:
        (self._undecided if kind == NOTIFICATION else self._queues[kind])[dot] = None

    # Asking the peer ------------------------------------------------------------------------

    @property
    def is_answered(self) -> bool:
        """Whether everything is known that the strategy wants to know of the peer."""
        return self._is_answered

    def ask(self, transaction: Transaction) -> tuple[bytes, bool] | None:
        """Return the question, and whether it tells our ways; None if one is on its way."""
        if self._asked is not None:
            return None
        if self._may_tell_ways:
            self._may_tell_ways = False
            self._is_telling = True
            self._asked = self._forwarding.list_nodes()
            return self._forwarding.tell_ways(self._asked, self._peer, transaction.now), True
        found = self._forwarding.list_destinations(transaction, self._undecided)
        self._asked = sorted(found - {self._peer, self._item_store.name})[:MAX_ASKED]
        return encode_ask(self._asked), False

    def answer(self, transaction: Transaction, body: bytes, has_ways: bool) -> tuple[bytes, bool]:
        """Return the answer to a peer's question, and whether it tells our ways."""
        forwarding = self._forwarding
        head = forwarding.reach.to_bytes(_REACH, "big")
        if has_ways:
            nodes = forwarding.list_nodes()
            ways = decode_ways(body, nodes)
            if ways is None:  # of other nodes: the peer may ask for those that it needs
                return head, False
            self._may_tell_ways = False
            self._hear(nodes, ways, transaction.now)
            return forwarding.tell_ways(nodes, self._peer, transaction.now), True
        asked = decode_ask(body)
        known = {hash_name(name): name for name in forwarding.encounters.list_known()}
        names = [known.get(each, "") for each in asked]
        return head + forwarding.encounters.tell(names, self._peer, transaction.now), False

    def receive_answer(self, transaction: Transaction, body: bytes, has_ways: bool) -> None:
        """Learn from the answer to our question, also for later meetings with others."""
        nodes = self._asked
        if nodes is None or (has_ways and not self._is_telling):
            raise ProtocolError("an answer to no question")
        if has_ways:
            ways = decode_ways(body, nodes)
            if ways is None:
                raise ProtocolError("an answer about other nodes")
        elif self._is_telling:  # the peer has other nodes, or is of the first version
            self._is_first_version = len(body) > _REACH
            self._is_telling = False
            self._asked = None
            return
        else:
            if len(body) != _REACH + len(nodes):
                raise ProtocolError("an answer to another question")
            told = body[_REACH:]
            if self._is_first_version:
                told = bytes(byte if byte == _LINKED_BEFORE else 0 for byte in told)
            ways = Ways(int.from_bytes(body[:_REACH], "big"), told)
        self._asked = None
        self._hear(nodes, ways, transaction.now)

    def _hear(self, nodes: list[str], ways: Ways, now: int) -> None:
        """Record what the peer told; if nothing else was asked, it answers our next question."""
        self._forwarding.encounters.hear(self._peer, nodes, ways.told, now)
        if self._asked is None:
            likely = dict(zip(nodes, ways.told, strict=True))
            self._met = MetPeer(self._peer, likely, ways.reach)
            self._is_answered = True

    def _close_question(self) -> None:
        """Before its next decision the strategy asks again, if it asks at all."""
        self._asked = None
        self._is_telling = False
        self._is_answered = not self._forwarding.strategy.is_asking

    # Deciding -------------------------------------------------------------------------------

    def decide(self, transaction: Transaction, record: PeerRecord) -> None:
        """Let the strategy choose among the notifications, and remember what it kept back."""
        forwarding = self._forwarding
        candidates = [
            forwarding.build_candidate(transaction, dot)
            for dot in self._undecided
            if self._is_lacking(dot) and self._item_store.holds(NOTIFICATION, dot)
        ]
        chosen = forwarding.strategy.choose(
            candidates, self._met, forwarding.encounters, transaction.now
        )
        self._chosen.extend(chosen)
        self._undecided = {}
        going = {choice.dot for choice in chosen}
        left = {run: seen for run, seen in record.withheld.items() if run not in self._loaded}
        kept = {each.dot.run for each in candidates if each.dot not in going}
        record.withhold(transaction, left | {run: self._theirs.get(run) for run in kept})
        self._loaded = set()
        self._close_question()

    def _is_lacking(self, dot: Dot) -> bool:
        one = ((dot.sequence, dot.sequence),)
        return not intersect(one, self._theirs.get(dot.run, ()))

    # Packing --------------------------------------------------------------------------------

    def pack(self, transaction: Transaction) -> tuple[ItemBatch, list[Packed]]:
        """Take the next things out of the queue, as many as fit a frame."""
        packed: list[Packed] = []
        size = 0
        while size < self._chunk:
            found = self._take(transaction)
            if found is None:
                break
            size += found.size
            packed.append(found)
        runs = dict.fromkeys(each.item.dot.run for each in packed)
        batch = ItemBatch(
            tuple(self._dead.items()),
            tuple(self._clocks.tell(runs, transaction.now)),
            tuple(_build_sent_item(each) for each in packed),
        )
        self._dead = {}
        return batch, packed

    def confirm(self, transaction: Transaction, packed: Packed) -> None:
        """Record that the peer has an item: so many of our copies are gone."""
        if packed.choice is not None:
            self._forwarding.keep_copy(transaction, packed.item.dot, packed.choice.kept)

    def _take(self, transaction: Transaction) -> Packed | None:
        """Return the next item that is still held and still lacking."""
        for kind in _ORDER:
            queue = self._queues[kind]
            while queue:
                dot = next(iter(queue))
                del queue[dot]
                packed = self._fetch(transaction, kind, dot, None)
                if packed is not None:
                    return packed
        while self._chosen:
            choice = self._chosen.popleft()
            packed = self._fetch(transaction, NOTIFICATION, choice.dot, choice)
            if packed is not None:
                return packed
        return None

    def _fetch(
        self, transaction: Transaction, kind: int, dot: Dot, choice: CopyChoice | None
    ) -> Packed | None:
        if not self._is_lacking(dot) or not self._item_store.holds(kind, dot):
            return None
        item = self._item_store.get(transaction, kind, dot)
        assert item is not None, "held in memory, not on the disk"
        if dot.origin == self._item_store.name:
            item = self._item_store.sign(item)
        return Packed(item, len(item.body) + len(item.signature) + ITEM_HEAD, choice)


def _build_sent_item(packed: Packed) -> SentItem:
    if packed.choice is None:
        return SentItem(packed.item, 0, 0)
    return SentItem(packed.item, packed.choice.given, packed.choice.kept.hops + 1)


# Items from a peer -----------------------------------------------------------------------------

NEW, KNOWN, OVER, REFUSED = "new", "known", "over", "refused"


class ItemValidator:
    """Decides what to do with an item that another node made; also operators' items go here."""

    def __init__(
        self, item_store: ItemStore, clocks: Clocks, keys: PeerKeys, settings: PeerSettings
    ) -> None:
        self._item_store = item_store
        self._clocks = clocks
        self._keys = keys
        self._settings = settings

    def judge(self, transaction: Transaction, item: Item) -> tuple[str, str]:
        """Return NEW, KNOWN, OVER (expired already) or REFUSED, and for a refusal the reason."""
        dot = item.dot
        if self.has_seen(item):
            return KNOWN, ""
        if dot.run == (self._item_store.name, self._item_store.epoch):
            return REFUSED, "an item of ours that we never made"
        seen = self._item_store.context.runs.get(dot.run, EMPTY)
        if dot.sequence - seen.base > MAX_SPAN:
            return REFUSED, "a sequence far ahead of all others"
        if not self._keys.knows_node(dot.origin):
            return REFUSED, "an unknown origin"
        if not self._keys.verify(dot.origin, item.signed, item.signature):
            return REFUSED, "a wrong signature"
        return self._judge_content(transaction, item)

    def has_seen(self, item: Item) -> bool:
        """Return whether an item was here before: it changes nothing a second time."""
        return self._item_store.context.holds(*item.dot)

    def is_real(self, run: Run) -> bool:
        """Return whether a run is one of a known node, and not a name that a peer made up."""
        return run in self._item_store.context.runs or self.knows_origin(run)

    def knows_origin(self, run: Run) -> bool:
        """Return whether there is a key of a run's node: it may still come."""
        return self._keys.knows_node(run[0])

    def _judge_content(self, transaction: Transaction, item: Item) -> tuple[str, str]:
        try:
            read = _read_body(item)
        except ProtocolError as error:
            return REFUSED, str(error)
        if read is None:  # nobody but its node signs what a device says
            forgery = find_forgery(item, self._keys)
            if forgery:
                return REFUSED, forgery
        # `localise` is late rather than early by at most twice the doubt: what is ahead of a limit
        # without it is surely ahead.
        if read is not None and not self._keys.may_speak(read.device, item.dot.origin):
            return REFUSED, "a reading of a device that does not speak through its node"
        if isinstance(read, NotificationBody):
            at = self._clocks.localise(item.dot, read.at)
            doubt = self._clocks.doubt(item.dot.origin, item.dot.epoch, transaction.now)
            if at - 2 * doubt > transaction.now + self._settings.max_future:
                return REFUSED, "a reading from the future"
        if item.expires >= LATEST:
            return REFUSED, "an end after the year 2100"
        if item.expires != NEVER:
            end = self._clocks.localise(item.dot, item.expires)
            doubt = self._clocks.doubt(item.dot.origin, item.dot.epoch, transaction.now)
            if end <= transaction.now:
                return OVER, ""
            if end - 2 * doubt > transaction.now + self._settings.max_life:
                return REFUSED, "an end too far ahead"
        return NEW, ""


def _read_body(item: Item) -> NotificationBody | AnnouncementBody | None:
    """Check a body; return that of a notification or announcement, which speaks of a device."""
    if item.kind == NOTIFICATION:
        return decode_body(NotificationBody, item.body)
    if item.kind == SUBSCRIPTION:
        decode_body(SubscriptionBody, item.body)
    elif item.kind == DELIVERED:
        decode_body(DeliveredBody, item.body)
    elif item.kind == VOCABULARY:
        decode_body(VocabularyBody, item.body)
    elif item.kind == ANNOUNCEMENT:
        return decode_body(AnnouncementBody, item.body)
    elif item.kind == PREFERENCE:
        decode_body(PreferenceBody, item.body)
    elif item.kind == CLAIM:
        decode_body(ClaimBody, item.body)
    elif item.kind == REMOVAL:
        decode_body(RemovalBody, item.body)
    return None  # a revocation is the keyring's to read


class ItemReceiver:
    """Stores what peers send: items that are valid, news of dead dots, and what clocks show.

    `trust` applies a revocation as soon as it is stored.
    """

    def __init__(
        self,
        item_store: ItemStore,
        validator: ItemValidator,
        change_log: ChangeLog,
        forwarding: Forwarding,
        clocks: Clocks,
        trust: Trust | None,
    ) -> None:
        self._item_store = item_store
        self._validator = validator
        self.change_log = change_log
        self._forwarding = forwarding
        self._clocks = clocks
        self._trust = trust

    def receive(self, transaction: Transaction, batch: ItemBatch, peer: str) -> Counter[int]:
        """Store a frame of items, whose sets were checked; return how many were new, by kind."""
        runs = {sent.item.dot.run for sent in batch.items}
        clocks = [
            told for told in batch.clocks if told[0] in runs and self._validator.is_real(told[0])
        ]
        self._clocks.witness(transaction.write, peer, clocks, transaction.now)
        for run, dead in batch.dead:
            self.accept_dead(transaction, run, dead, peer)
        stored: Counter[int] = Counter()
        for sent in batch.items:
            if self._receive_item(transaction, sent, peer):
                stored[sent.item.kind] += 1
        return stored

    def accept_dead(self, transaction: Transaction, run: Run, dead: Spans, peer: str) -> None:
        """Believe a peer that dots are dead, if they are of a node that exists."""
        if not self._validator.is_real(run):
            return
        removed = self.change_log.accept_dead(transaction, run, dead, peer)
        if removed:
            transaction.count("peer_items_removed", removed)

    def _receive_item(self, transaction: Transaction, sent: SentItem, peer: str) -> bool:
        item = sent.item
        verdict, reason = self._validator.judge(transaction, item)
        if verdict == KNOWN:
            transaction.count("peer_items_known", label=KINDS[item.kind])
        elif verdict == OVER:
            self._item_store.note_seen(transaction, item.dot)
            self.change_log.spare(transaction, item.dot, transaction.now)
            transaction.count("peer_items_over", label=KINDS[item.kind])
        elif verdict == NEW:
            if item.kind == NOTIFICATION:
                copy = Copy(sent.copies, sent.hops, 0, transaction.now)
                self._forwarding.keep_copy(transaction, item.dot, copy)
            self._item_store.accept(transaction, item, peer)
            if item.kind == REVOCATION and self._trust is not None:
                self._trust.apply_notice(transaction, item)
            size = len(item.body) + len(item.signature) + ITEM_HEAD
            transaction.count("peer_items_taken", label=KINDS[item.kind])
            log_transfer(transaction, item, peer, size, is_out=False, copies=sent.copies)
            return True
        else:
            transaction.count("peer_items_refused", label=reason)
            transaction.log("refuse", what="item", why=reason, who=peer, bytes=len(item.body))
            run = item.dot.run
            if not self._validator.knows_origin(run):  # its key may still come
                self.change_log.retry(transaction, run)
        return False


def log_transfer(
    transaction: Transaction, item: Item, peer: str, size: int, *, is_out: bool, copies: int
) -> None:
    """Log that an item went from one node to another."""
    transaction.log(
        "transfer",
        item=item.id,
        what=KINDS[item.kind],
        peer=peer,
        is_out=is_out,
        bytes=size,
        copies=copies,
    )
