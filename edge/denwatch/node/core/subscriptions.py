"""Subscriptions in force, and the subscribers that own them.

Kept in memory, for each subscription, as little as matching and delivery need: 100,000 of them must
fit, so no syntax trees and no words. What is shown to people is read from the disk.

  in force    is in a matcher and in its subscriber's table; new notifications are matched with it
  ended       expired or replaced; no longer matched, but known by its id while matches of it wait
  twins       two subscriptions of one subscriber and name, made at nodes apart: the newest stays

Only this file gives subscriptions their numbers in a matcher, and decides which of those that a
matcher finds were in force for a notification (`is_valid`). Spaces on the disk:

  sub.ended   id of an ended subscription: its item, for matches that wait
  sub.prefer  subscriber: priorities, as older versions stored them
  sub.mute    subscriber: receives nothing now
  sub.place   subscriber: the node where it was last known to be
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar

import cbor2
import msgspec
from denwatch.client.compiler.stories import Story
from denwatch.node.core.device_directory import SubscriptionNeed
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    BY,
    SUBSCRIPTION,
    Dot,
    Item,
    SubscriptionBody,
    decode_body,
    decode_item,
)
from denwatch.node.core.languages import STORY, StoredSubscription, load_languages
from denwatch.node.core.notifications import (
    Notification,
    Vocabularies,
    describe_content_values,
)
from denwatch.node.core.stored_facts import StoredFacts
from denwatch.node.core.trust import Proofs, read_key
from denwatch.node.matching.facts import FactTable, find_fact
from denwatch.node.matching.joins import JoinMatcher, StoryParts
from denwatch.node.matching.plugins import Matcher
from denwatch.node.ranking.rank import PriorityCycle, Rank, assign_levels, keep_acyclic
from denwatch.node.ranking.topk import PersonPreference, RankedEntry, TopK
from denwatch.protocol.degrees import MIN
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.vectors import Significance, SubscriptionVector

ENDED = "sub.ended"
PREFER = "sub.prefer"
MUTE = "sub.mute"
PLACE = "sub.place"

MatchRow = tuple[int, int, int, int]  # subscription's id, possible, certain, attribute
_Value = TypeVar("_Value", bound=Hashable)
KEPT_REASONS = ("expired", "replaced")  # what such a subscription matched before is still delivered
_ADOPTED = ("event", "features", "threshold", "certain")  # what `adopt_fact` takes of a fact
_COUNT = 6  # its place in a fact: how many words
_SHARED = 4_096  # values that many subscriptions have in common
_MAX_PAIRS = 512  # of priorities that contradict each other
_AGE = 0  # a notification matches as it was when it was read


# Settings, and what is needed of clocks and roles -------------------------------------------


@dataclass(frozen=True)
class SubscriberSettings:
    """Limits and habits. Times are in ms."""

    max_payload: int = 16_384  # bytes of a request
    max_subscriptions: int = 1_000  # of one subscriber
    window: int = 32  # notifications on their way to one subscriber, unacknowledged
    kept_replies: int = 16  # for one subscriber whom nobody listens for
    held_limit: int = 1_000_000  # notifications; beyond, the least worth are dropped
    receipt_batch: int = 64  # deliveries to one subscriber, reported to other nodes in one item
    receipt_interval: int = 5_000  # how long fewer wait to be reported, unless a node is met
    catch_up: int = 5_000  # held notifications matched with late subscriptions in one tick
    # A dead band holds for this long after the last sending. Whether a match ended in between is
    # known to the device alone; after so long a repeated value is sent as a new match.
    episode: int = 600_000
    # Notifications that all known subscribers have are removed this long after they were read;
    # None keeps them until they expire, for those whose subscription is not known here yet.
    purge_after: int | None = None
    story_life: int = 86_400_000  # how long a story is kept for its subscriber
    story_entries: int = 1_024  # readings that one part of a story remembers
    report_life: int = 7 * 86_400_000  # how long what a person reported is kept
    ended_life: int = 7 * 86_400_000  # how long matches of an expired subscription may wait
    claim_life: int = 12 * 3_600_000  # how long somebody has what they did not release
    place_life: int = 7 * 86_400_000  # how long others remember where somebody went
    organisation: str | None = None  # whose synonyms go first where a word means two things
    is_announcing: bool = True  # make an item of the node's own vocabulary
    # Log the signature of every notification; else of those that somebody waits for who is not
    # here, which are signed sooner or later anyway.
    signs_all: bool = False


class Roles(Protocol):
    """Who may see what; `denwatch.node.security` has the real one."""

    def role_of(self, subscriber: str) -> str:
        """Return the role of a subscriber."""

    def check(self, role: str, event: str, attributes: Iterable[str]) -> object | None:
        """Return why a role may not see attributes of an event (its text is shown), or None."""


class ItemClock(Protocol):
    """What is known of clocks; `denwatch.node.replication.clock` has the real one."""

    def localise(self, dot: Dot, time: int) -> int:
        """Return a time of an item's origin in this node's timeline, rather too late."""

    def doubt(self, origin: str, epoch: int, now: int) -> int:
        """Return by how much a time of a run may be wrong here: localised, twice this too late."""

    def show(self, dot: Dot, time: int) -> int:
        """Return a time of an item's origin as people have it."""

    def date(self, time: int) -> int:
        """Return a time of this node's timeline as people have it."""


class OpenRoles:
    """Everybody may see everything: for a node without roles."""

    def role_of(self, subscriber: str) -> str:  # noqa: ARG002
        """Return the one role there is."""
        return "open"

    def check(
        self,
        role: str,  # noqa: ARG002
        event: str,  # noqa: ARG002
        attributes: Iterable[str],  # noqa: ARG002
    ) -> object | None:
        """Refuse nothing."""
        return None


class SingleClock:
    """Everybody's clock is ours: for a node alone."""

    def localise(self, dot: Dot, time: int) -> int:  # noqa: ARG002
        """Return the time as it is."""
        return time

    def doubt(self, origin: str, epoch: int, now: int) -> int:  # noqa: ARG002
        """Return no doubt."""
        return 0

    def show(self, dot: Dot, time: int) -> int:  # noqa: ARG002
        """Return the time as it is."""
        return time

    def date(self, time: int) -> int:
        """Return the time as it is."""
        return time


# Keys and rows on the disk -------------------------------------------------------------------


class TopEntry(msgspec.Struct, array_like=True):
    """One entry of a top-k; `decided` is new, and 0 in rows of older versions."""

    notification: int
    level: int
    value: float
    expires: float
    turn: int
    decided: float = 0


class TopState(msgspec.Struct, array_like=True):
    """A top-k: its count of matches and its entries."""

    turn: int
    entries: list[TopEntry]


def save_top_k(top_k: TopK) -> TopState:
    """Return a top-k as it is stored."""
    entries = [
        TopEntry(e.note_id, e.rank.priority, e.rank.value, e.expires, e.turn, e.decided)
        for e in top_k.list_entries()
    ]
    return TopState(top_k.turn, entries)


def load_top_k(top_k: TopK, state: TopState) -> TopK:
    """Return a top-k of the same kind, with what was stored."""
    entries = [
        RankedEntry(e.notification, Rank(e.level, e.value), e.expires, e.turn, e.decided)
        for e in state.entries
    ]
    return TopK(top_k.k, top_k.window, fading=top_k.fading, turn=state.turn, entries=entries)


class EndedRow(msgspec.Struct, array_like=True):
    """A subscription that is no longer held, as its item was stored, and when it ended."""

    key: bytes
    value: bytes
    at: int


class Priorities(msgspec.Struct, array_like=True):
    """Pairs of names, better and worse."""

    pairs: list[tuple[str, str]]


encode_row = msgspec.msgpack.Encoder().encode
_ended_decoder = msgspec.msgpack.Decoder(EndedRow)
_priorities_decoder = msgspec.msgpack.Decoder(Priorities)


def join_name(name: str, rest: bytes = b"") -> bytes:
    """Return a key that begins with a name, so that no name is the beginning of another's keys."""
    data = name.encode()
    return len(data).to_bytes(2, "big") + data + rest


def split_name(key: bytes) -> tuple[str, bytes]:
    """Return name and rest of such a key."""
    end = 2 + int.from_bytes(key[:2], "big")
    return key[2:end].decode(), key[end:]


def make_id_key(id: int) -> bytes:
    """Return the key of a subscription's id."""
    return id.to_bytes(8, "big")


# Subscribers and subscriptions ---------------------------------------------------------------


@dataclass(slots=True, eq=False)
class SubscriberState:
    """A subscriber: its subscriptions, what waits for it, and what is in flight."""

    name: str
    subscriptions: dict[int, Subscription] = field(default_factory=dict)  # in force, by id
    contents: dict[int, int] = field(default_factory=dict)  # hash of what they say: id
    names: dict[str, int] = field(default_factory=dict)  # how many have it: nodes may make two
    prefers: int = 0  # how many name priorities
    levels: dict[int, int] = field(default_factory=dict)  # winnow levels by id; 1 if not named
    asked: list[tuple[str, str]] = field(default_factory=list)  # priorities requested alone
    delays: int = 0  # how many wait for somebody else to have it
    preference: PersonPreference | None = None  # None: as for everybody
    top_k: TopK | None = None  # over all subscriptions
    is_counted: bool = True  # what other nodes delivered counts against every top-k
    codes: array[int] = field(default_factory=lambda: array("Q"))  # what may wait for it
    stale: int = 0  # of those, how many are known to be gone
    is_listening: bool = False
    place: str = ""  # the node where it was last known to be
    is_muted: bool = False
    # What waits, best first: minus rank and value, degree, time; id and code of a notification.
    queue: list[tuple[float, float, int, int, int, int]] = field(default_factory=list)
    queued: set[int] = field(default_factory=set)  # codes in the queue or in flight
    in_flight: dict[int, int] = field(default_factory=dict)  # token: code

    @property
    def is_served(self) -> bool:
        """Whether notifications go out to them now."""
        return self.is_listening and not self.is_muted

    def enter(self, subscription: Subscription) -> None:
        """Add a live subscription."""
        self.subscriptions[subscription.id] = subscription
        self.contents.setdefault(subscription.content, subscription.id)
        self.prefers += bool(subscription.prefer)
        self.delays += bool(subscription.delay)
        if subscription.name is not None:
            self.names[subscription.name] = self.names.get(subscription.name, 0) + 1

    def leave(self, subscription: Subscription) -> None:
        """Take a subscription away."""
        del self.subscriptions[subscription.id]
        if self.contents.get(subscription.content) == subscription.id:
            del self.contents[subscription.content]
        self.prefers -= bool(subscription.prefer)
        self.delays -= bool(subscription.delay)
        if subscription.name is not None:
            self.names[subscription.name] -= 1
            if not self.names[subscription.name]:
                del self.names[subscription.name]

    def assign_levels(self) -> None:
        """Work out the levels of all subscriptions.

        Priorities name subscriptions; those that name none wait for it. A pair that would close a
        circle is left out: the older subscriptions' pairs go first, so all nodes leave out the
        same. Nobody makes a circle here, but a member may: then only so many pairs count.
        """
        self.levels = {}
        if not self.prefers and not self.asked:
            return
        named = {
            subscription.name: subscription.id
            for subscription in self.subscriptions.values()
            if subscription.name
        }
        ordered = sorted(
            self.subscriptions.values(),
            key=lambda subscription: (subscription.created, subscription.id),
        )
        pairs = [pair for subscription in ordered for pair in subscription.prefer] + self.asked
        wanted = [
            (named[better], named[worse])
            for better, worse in pairs
            if better in named and worse in named
        ]
        if not wanted:
            return
        try:
            self.levels = assign_levels(self.subscriptions, wanted)
        except PriorityCycle:
            kept = keep_acyclic(wanted[:_MAX_PAIRS])
            self.levels = assign_levels(self.subscriptions, kept)


class SubscriptionTerms(NamedTuple):
    """What the options of a subscription say that never changes; one object for all equal ones."""

    score: float = 1.0
    is_whole: bool = False
    # Who is to hear of it if nobody has it, and when; in the subscription that this makes for
    # them, whose it is and how long it waits (ms).
    escalation: tuple[str, float] | None = None
    behalf: str | None = None
    delay: int = 0
    by: bytes = b""  # the key of who asked for it
    refresh: int | None = None
    prefer: tuple[tuple[str, str], ...] = ()
    format: str = "json"


_NO_OPTIONS = SubscriptionTerms()


def _read_terms(options: dict[str, Any]) -> SubscriptionTerms:
    """Return the terms of options, which `check_options` has checked."""
    return SubscriptionTerms(
        float(options.get("score", 1.0)),
        bool(options.get("whole")),
        tuple(options["escalate"]) if "escalate" in options else None,
        options.get("behalf"),
        int(options["after"] * 1000) if "after" in options else 0,
        read_key(options.get(BY, "")),
        int(options["expiry"] * 1000) if "expiry" in options else None,
        tuple((pair[0], pair[1]) for pair in options.get("prefer", ())),
        options.get("format", "json"),
    )


class Subscription:
    """A subscription that is live, or that ended with matches waiting."""

    __slots__ = (
        "aggregator",
        "certain",
        "content",
        "created",
        "event",
        "expires",
        "features",
        "id",
        "is_live",
        "is_muted",
        "is_plain",
        "language",
        "name",
        "number",
        "recent",
        "role",
        "run",
        "sequence",
        "significance",
        "story",
        "subscriber",
        "terms",
        "threshold",
        "top_k",
        "vector",
        "vocabulary",
        "wides",
    )

    def __init__(self, item: Item, body: SubscriptionBody, subscriber: SubscriberState) -> None:
        options = body.options
        self.id: int = item.id
        self.run: tuple[str, int] = _share(item.dot.run)
        self.sequence = item.dot.sequence
        self.subscriber = subscriber
        self.role = _share(body.role)
        self.language = body.language
        self.vocabulary = _share(body.vocabulary)
        self.vector = body.vector
        self.created = body.created
        self.expires = item.expires
        self.name: str | None = options.get("name")
        self.is_muted = bool(options.get("muted"))
        self.top_k: TopK | None = TopK(options["top"]) if "top" in options else None
        self.terms = _share(_read_terms(options)) if options else _NO_OPTIONS
        self.content = hash(describe_content(body))
        self.number = -1
        self.is_live = True
        self.event = -1
        self.features = self.wides = self.threshold = self.certain = 0
        self.aggregator = MIN
        self.recent: tuple[int, int] | None = None
        self.significance: Significance | None = None
        self.story: Story | None = None  # what it tells, if it is about several readings
        self.is_plain = False  # its degree is that of the predicate that decided

    def adopt(self, vector: SubscriptionVector) -> None:
        """Note what delivery needs of a fuzzy vector."""
        self.event = vector.event
        self.features = vector.features
        self.wides = sum({1 << p.attribute for p in vector.predicates if p.wide})
        self.threshold = vector.threshold
        self.certain = vector.certain
        self.aggregator = vector.aggregator
        self.recent = vector.recent
        self.significance = vector.significance
        self.is_plain = vector.aggregator == MIN and not vector.pattern and not vector.recent

    def adopt_fact(self, event: int, features: int, threshold: int, certain: int) -> None:
        """Note the same of a plain vector, by what is known of it."""
        self.event = event
        self.features = features
        self.threshold = threshold
        self.certain = certain
        self.is_plain = True

    @property
    def score(self) -> float:
        """What a match is worth."""
        return self.terms.score

    @property
    def is_whole(self) -> bool:
        """Whether all values of a reading are wanted."""
        return self.terms.is_whole

    @property
    def escalation(self) -> tuple[str, float] | None:
        """Who is to hear of it if nobody has it, and when."""
        return self.terms.escalation

    @property
    def behalf(self) -> str | None:
        """Whose it is, if it escalates."""
        return self.terms.behalf

    @property
    def delay(self) -> int:
        """How long it waits for somebody else to have it, ms."""
        return self.terms.delay

    @property
    def by(self) -> bytes:
        """The key of who asked for it."""
        return self.terms.by

    @property
    def refresh(self) -> int | None:
        """How long its notifications count, ms."""
        return self.terms.refresh

    @property
    def prefer(self) -> tuple[tuple[str, str], ...]:
        """The priorities that it names."""
        return self.terms.prefer

    @property
    def format(self) -> str:
        """How its notifications are written."""
        return self.terms.format

    @property
    def dot(self) -> Dot:
        """The name of its item, made when it is needed."""
        return Dot(*self.run, self.sequence)

    @property
    def hex(self) -> str:
        """The id as people see it."""
        return f"{self.id:016x}"

    @property
    def label(self) -> str:
        """The name, or the id where there is none."""
        return self.name or self.hex


@lru_cache(maxsize=_SHARED)
def _share(value: _Value) -> _Value:
    """Return the value, one object for all that are equal."""
    return value


def describe_content(body: SubscriptionBody) -> tuple[object, ...]:
    """Return what a subscription says, and who, apart from when and where: equal ones are one."""
    options = by = b""
    if body.options:
        said = {key: body.options[key] for key in body.options if key != BY}
        options = cbor2.dumps(said, canonical=True) if said else b""
        by = _share(read_key(body.options.get(BY, "")))
    return body.language, _share(body.role), _share(body.vocabulary), body.vector, options, by


def read_subscription(item: Item) -> tuple[SubscriptionBody, Any]:
    """Return the body of an item and what its matcher takes; ProtocolError if it is none."""
    body = decode_body(SubscriptionBody, item.body)
    return body, decode_content(body)


def may_replace(newer: Subscription, older: Subscription) -> bool:
    """Return whether a subscription ends one of the same name: what has a key ends by its key."""
    return older.by in (b"", newer.by)


def decode_content(body: SubscriptionBody) -> Any:
    """Return what the matcher of a subscription takes; ProtocolError if it is none."""
    languages = load_languages()
    if body.language not in languages:
        raise ProtocolError(f"language {body.language} is not spoken here")
    return languages.find(body.language).decode(body.vector)


class Subscriptions:
    """All subscriptions of a node, by id, by number in a matcher and by subscriber."""

    def __init__(
        self,
        item_store: ItemStore,
        vocabularies: Vocabularies,
        clock: ItemClock,
        settings: SubscriberSettings,
        proofs: Proofs,
    ) -> None:
        self.vocabularies = vocabularies
        self.clock = clock
        self.proofs = proofs
        self.subscribers: dict[str, SubscriberState] = {}
        self.by_id: dict[int, Subscription] = {}  # in force, or ended while matches wait
        self._item_store = item_store
        self.settings = settings
        self._matchers: dict[int, Matcher[Any, Any]] = {}
        self._joins = JoinMatcher()  # the fuzzy ones that old readings may satisfy
        self._numbers: list[Subscription | None] = []
        self._free: list[int] = []
        self._twins: dict[str, None] = {}  # subscribers with two subscriptions of one name
        self._ended: dict[int, int] = {}  # id: until when it is known
        self._facts = StoredFacts()

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run stored."""
        facts = self._facts.load(reader)
        for subscription in self._add_many(self._item_store.iterate(reader, SUBSCRIPTION), facts):
            self._find_twins(subscription)
        self._facts.drop_unused(reader, facts, self.count)
        for _, row in reader.scan(ENDED):
            ended = _ended_decoder.decode(row)
            try:
                subscription, _ = self._read(decode_item(ended.key, ended.value))
            except ProtocolError:  # stored by a version that checked less
                continue
            subscription.is_live = False
            self.by_id[subscription.id] = subscription
            self._ended[subscription.id] = ended.at + self.settings.ended_life
        for key, row in reader.scan(PREFER):
            subscriber = self.find_subscriber(split_name(key)[0])
            subscriber.asked = _priorities_decoder.decode(row).pairs
            subscriber.assign_levels()
        for key, _ in reader.scan(MUTE):
            self.find_subscriber(split_name(key)[0]).is_muted = True
        for key, row in reader.scan(PLACE):
            self.find_subscriber(split_name(key)[0]).place = row.decode()

    # Subscribers ----------------------------------------------------------------------------

    def find_subscriber(self, name: str) -> SubscriberState:
        """Return a subscriber, who is new at the first time."""
        subscriber = self.subscribers.get(name)
        if subscriber is None:
            subscriber = self.subscribers[name] = SubscriberState(name)
        return subscriber

    def set_muted(
        self, transaction: Transaction, subscriber: SubscriberState, is_muted: bool
    ) -> None:
        """Note whether a subscriber receives anything now."""
        subscriber.is_muted = is_muted
        transaction.write(MUTE, join_name(subscriber.name), b"" if is_muted else None)

    def find_place(self, name: str) -> str:
        """Return the node where somebody was last known to be; "" if that is not known."""
        subscriber = self.subscribers.get(name)
        return "" if subscriber is None else subscriber.place

    def set_place(self, transaction: Transaction, subscriber: SubscriberState, node: str) -> None:
        """Note the node where a subscriber is."""
        if subscriber.place != node:
            subscriber.place = node
            transaction.write(PLACE, join_name(subscriber.name), node.encode())

    # Coming into force and going out of it --------------------------------------------------

    @property
    def count(self) -> int:
        """How many are in force."""
        return len(self._numbers) - len(self._free)

    def add(self, transaction: Transaction, item: Item, source: str) -> Subscription | None:
        """Put a new subscription in force; None if the item is refused."""
        try:
            subscription = self._add(item)
        except ProtocolError as error:
            transaction.log("refuse", what="subscription", why=str(error), who=item.dot.origin)
            return None
        self._find_twins(subscription)
        body = decode_body(SubscriptionBody, item.body)
        event = self.vocabularies.find_event(subscription.vocabulary, subscription.event)
        transaction.log(
            "subscribe",
            item=subscription.id,
            origin=subscription.dot.origin,
            run=subscription.dot.epoch,
            sequence=subscription.dot.sequence,
            owner=body.owner,
            role=body.role,
            words=body.words,
            language=body.language,
            vocabulary=body.vocabulary,
            vector=body.vector,
            created=body.created,
            expires=item.expires,
            options=body.options,
            source=source,
            event=event.name if event else None,
            features=subscription.features,
            signature=item.signature or None,
        )
        transaction.count("subscriptions_added")
        return subscription

    def remove(self, transaction: Transaction, item: Item, reason: str) -> Subscription | None:
        """Take a subscription out of force; None if it was not. It stays known if matches wait."""
        subscription = self.by_id.get(item.id)
        if subscription is None or not subscription.is_live:
            return None
        is_kept = reason in KEPT_REASONS
        self._withdraw(subscription, is_kept=is_kept)
        if is_kept:
            row = EndedRow(item.dot.key, item.encode(), transaction.now)
            transaction.write(ENDED, make_id_key(subscription.id), encode_row(row))
            self._ended[subscription.id] = transaction.now + self.settings.ended_life
        transaction.log(
            "unsubscribe", item=subscription.id, owner=subscription.subscriber.name, reason=reason
        )
        transaction.count("subscriptions_removed")
        return subscription

    def drop_ended(self, transaction: Transaction) -> list[Subscription]:
        """Forget ended subscriptions whose matches have waited long enough; return them."""
        dropped: list[Subscription] = []
        for id in [id for id, end in self._ended.items() if end <= transaction.now]:
            del self._ended[id]
            transaction.write(ENDED, make_id_key(id), None)
            subscription = self.by_id.get(id)
            if subscription is not None and not subscription.is_live:
                self._withdraw(subscription, is_kept=False)
                dropped.append(subscription)
        return dropped

    def _find_twins(self, subscription: Subscription) -> None:
        if subscription.name is not None and subscription.subscriber.names[subscription.name] > 1:
            self._twins[subscription.subscriber.name] = None

    def join_twins(self, transaction: Transaction) -> None:
        """Of subscriptions of one subscriber and name, made at several nodes, keep the newest."""
        twins, self._twins = self._twins, {}
        for name in twins:
            newest: dict[str, list[Subscription]] = {}  # by name; of several people, they say
            # By what the items say, not by this node's clock: all nodes must keep the same one.
            subscriptions = self.find_subscriber(name).subscriptions.values()
            for subscription in sorted(
                subscriptions, key=lambda subscription: (subscription.created, subscription.id)
            ):
                if subscription.name is not None:
                    older = newest.get(subscription.name, [])
                    newest[subscription.name] = [subscription]
                    for old in older:
                        if may_replace(subscription, old):
                            self._item_store.remove(transaction, SUBSCRIPTION, old.dot, "replaced")
                        else:
                            newest[subscription.name].append(old)

    def _read(self, item: Item) -> tuple[Subscription, Any]:
        """Return the subscription of an item and what its matcher takes; ProtocolError if none."""
        body, content = read_subscription(item)
        subscription = Subscription(item, body, self.find_subscriber(body.owner))
        if isinstance(content, SubscriptionVector):
            subscription.adopt(content)
        elif isinstance(content, Story):
            subscription.story = content
        return subscription, content

    def _add(self, item: Item) -> Subscription:
        """Put a subscription in force; ProtocolError for an item that is none."""
        subscription, content = self._read(item)
        number = self._take_number()
        try:
            self._find_matcher(subscription.language).add(number, content)
        except (ValueError, KeyError) as error:
            self._free.append(number)
            raise ProtocolError(f"no matcher takes this subscription: {error}") from None
        if isinstance(content, SubscriptionVector):
            self._joins.add(number, content)
        self._enter(subscription, number)
        subscription.subscriber.assign_levels()
        return subscription

    def _add_many(self, items: Iterable[Item], facts: FactTable) -> list[Subscription]:
        """Put many in force at once, at a start; what is no subscription is skipped.

        What is known of a vector is looked up; the others are decoded, and noted for the next time.
        """
        added: list[Subscription] = []
        numbers: list[int] = []  # of those with facts, and the places of these
        places: list[int] = []
        new: list[bytes] = []  # vectors without facts until now, and these
        found: list[tuple[Any, ...]] = []
        columns = [facts.rows[name].tolist() for name in _ADOPTED]
        known = len(facts.rows)
        for item in items:
            try:
                body = decode_body(SubscriptionBody, item.body)
                place = facts.places.get(body.vector) if body.language == FUZZY else None
                content = None if place is not None else decode_content(body)
            except ProtocolError:
                continue
            subscription = Subscription(item, body, self.find_subscriber(body.owner))
            number = self._take_number()
            if place is not None:
                if place < known:
                    subscription.adopt_fact(*(column[place] for column in columns))
                else:  # it is new, and there is another like it
                    subscription.adopt(decode_content(body))
            elif isinstance(content, SubscriptionVector):
                subscription.adopt(content)
                self._joins.add(number, content)
                is_plain = content.significance is None and not content.restrictors
                if is_plain and (fact := find_fact(content))[_COUNT]:
                    place = facts.places[body.vector] = known + len(found)
                    found.append(fact)
                    new.append(body.vector)
            elif isinstance(content, Story):
                subscription.story = content
            if place is not None:
                numbers.append(number)
                places.append(place)
            else:
                self._find_matcher(subscription.language).add(number, content)
            self._enter(subscription, number)
            added.append(subscription)
        if numbers:
            self._facts.learn(facts, new, found)
            matcher: Any = self._find_matcher(FUZZY)
            in_force = self._numbers
            vectors = [in_force[number].vector for number in numbers]  # type: ignore[union-attr]
            matcher.add_facts(numbers, facts.rows[places], vectors)
        for subscriber in {
            id(subscription.subscriber): subscription.subscriber for subscription in added
        }.values():
            subscriber.assign_levels()
        return added

    def _withdraw(self, subscription: Subscription, *, is_kept: bool) -> None:
        """Take a subscription out of force; one that is kept is still known by its id."""
        if subscription.is_live:
            self._find_matcher(subscription.language).remove(subscription.number)
            self._joins.discard(subscription.number)
            self._numbers[subscription.number] = None
            self._free.append(subscription.number)
            subscription.is_live = False
            subscription.subscriber.leave(subscription)
            subscription.subscriber.assign_levels()
        if not is_kept:
            self.by_id.pop(subscription.id, None)

    def _enter(self, subscription: Subscription, number: int) -> None:
        subscription.number = number
        # The item store has the same number: one object for both, there may be many.
        held = self._item_store.live[SUBSCRIPTION].get(subscription.run)
        if held is not None:
            subscription.expires = held.get(subscription.sequence, subscription.expires)
        self._numbers[number] = subscription
        self.by_id[subscription.id] = subscription
        subscription.subscriber.enter(subscription)

    def _take_number(self) -> int:
        if self._free:
            return self._free.pop()
        self._numbers.append(None)
        return len(self._numbers) - 1

    def _find_matcher(self, language: int) -> Matcher[Any, Any]:
        matcher = self._matchers.get(language)
        if matcher is None:
            matcher = self._matchers[language] = load_languages().find(language).make_matcher()
        return matcher

    def find_need(self, subscription: StoredSubscription) -> SubscriptionNeed | None:
        """Return what a device must sense to answer a subscription; None: sensors cannot."""
        if isinstance(subscription, Subscription) and subscription.event >= 0:
            return SubscriptionNeed(
                subscription.vocabulary, subscription.event, subscription.features
            )
        vocabulary = self.vocabularies.find(subscription.vocabulary)
        lowered = load_languages().lower(subscription, vocabulary)
        if lowered is None:
            return None
        features = int.from_bytes(lowered[6:8], "big")
        return SubscriptionNeed(subscription.vocabulary, lowered[0] & 63, features)

    # Matching -------------------------------------------------------------------------------

    def go_on(self, transaction: Transaction) -> None:
        """Let matchers move on to their compiled form, if there is one; write some facts."""
        for language in (FUZZY, STORY):
            matcher: Any = self._matchers.get(language)
            if matcher is not None:
                matcher.go_on()
        self._facts.write_some(transaction)

    def match_many(self, notifications: Sequence[Notification], now: int) -> list[list[MatchRow]]:
        """Return, for each notification, its matches among all in force for it, by rising id."""
        found: list[list[MatchRow]] = [[] for _ in notifications]
        for language, matcher in self._matchers.items():
            if language == FUZZY:
                self._match_fuzzy(matcher, notifications, now, found)
                for notification, matches in zip(notifications, found, strict=True):
                    if notification.vector.olds:
                        joined = self._joins.match(notification.vector, _AGE)
                        self._add_valid(notification, now, joined, matches)
            elif len(matcher) and language != STORY:  # `match_parts`
                for notification, matches in zip(notifications, found, strict=True):
                    rows = matcher.match(describe_content_values(notification))
                    self._add_valid(notification, now, rows, matches)
        for matches in found:
            matches.sort()
        return found

    def match_parts(self, notifications: Sequence[Notification], now: int) -> list[list[MatchRow]]:
        """Return, for each notification, the parts of stories that it fits.

        A row is that of a match, with the number of the part in the place of the attribute.
        """
        found: list[list[MatchRow]] = [[] for _ in notifications]
        parts = self._matchers.get(STORY)
        if parts is None or not len(parts):
            return found
        assert isinstance(parts, StoryParts)
        rows = parts.match_parts([notification.vector for notification in notifications])
        for notification, fitting, matches in zip(notifications, rows, found, strict=True):
            self._add_valid(notification, now, fitting, matches)
            matches.sort()
        return found

    def _match_fuzzy(
        self,
        matcher: Any,
        notifications: Sequence[Notification],
        now: int,
        found: list[list[MatchRow]],
    ) -> None:
        vectors = [notification.vector for notification in notifications]
        answers = matcher.match_many(vectors, [_AGE] * len(vectors))
        for notification, rows, matches in zip(notifications, answers, found, strict=True):
            self._add_valid(notification, now, rows, matches)

    def _add_valid(
        self,
        notification: Notification,
        now: int,
        rows: Iterable[tuple[int, int, int, int]],
        matches: list[MatchRow],
    ) -> None:
        for number, possible, certain, attribute in rows:
            subscription = self._numbers[number]
            assert subscription is not None, "a matcher knows what is not in force"
            if self.is_valid(subscription, notification, now):
                matches.append((subscription.id, possible, certain, attribute))

    def is_valid(self, subscription: Subscription, notification: Notification, now: int) -> bool:
        """Return whether a subscription is in force for a notification.

        It was there when the reading was made, as far as clocks can tell, and had not ended; and
        the vocabularies of both mean the same by the codes that it asks for.
        """
        begin, end, earliest, latest = (
            subscription.created,
            subscription.expires,
            notification.at,
            notification.at,
        )
        if (
            subscription.run != notification.run
        ):  # times of two timelines: whatever is possible counts
            localise, doubt = self.clock.localise, self.clock.doubt
            begin = localise(subscription.dot, begin) - 2 * doubt(*subscription.run, now)
            end = localise(subscription.dot, end) if end else 0
            latest = localise(notification.dot, notification.at)
            earliest = latest - 2 * doubt(*notification.run, now)
        if begin - notification.doubt > latest or (end and earliest >= end):
            return False
        if subscription.vocabulary == notification.vocabulary:
            return True
        if subscription.story is not None:
            agree, number = self.vocabularies.agree, notification.vector.event
            asked = (v.features for v in subscription.story.vectors if v.event == number)
            pair = subscription.vocabulary, notification.vocabulary
            return all(agree(*pair, number, features) for features in asked)
        if subscription.event < 0:
            return True
        return self.vocabularies.agree(
            subscription.vocabulary,
            notification.vocabulary,
            subscription.event,
            subscription.features,
        )

    def list_matches(
        self, subscriber: SubscriberState, matches: Iterable[MatchRow]
    ) -> list[tuple[Subscription, int, int, int]]:
        """Return those matches that are one subscriber's and still known."""
        by_id = self.by_id
        found = []
        for id, possible, certain, attribute in matches:
            subscription = by_id.get(id)
            if subscription is not None and subscription.subscriber is subscriber:
                found.append((subscription, possible, certain, attribute))
        return found
