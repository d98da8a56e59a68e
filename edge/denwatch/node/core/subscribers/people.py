"""Subscriptions and their owners, in memory: as little of each as matching and delivery need.

100,000 of them must fit: no syntax trees, no words. What is shown to people is read from the disk.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any

import cbor2
from denwatch.node.core.items import Dot, Item, SubscriptionBody, decode_body
from denwatch.node.core.subscribers.tables import GateState
from denwatch.node.matching.plugins import CONTENT, FUZZY
from denwatch.node.ranking.content import ContentError, ContentFilter
from denwatch.node.ranking.rank import PriorityCycle, Rank, assign_levels
from denwatch.node.ranking.topk import RankedEntry, TopK
from denwatch.protocol import subscription as codec
from denwatch.protocol.degrees import MIN
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import Significance, SubscriptionVector


class Owner:
    """A subscriber: what they want, what waits for them, what is on its way."""

    __slots__ = (
        "asked",
        "codes",
        "flight",
        "heap",
        "is_listening",
        "is_muted",
        "keys",
        "levels",
        "name",
        "names",
        "place",
        "prefers",
        "queued",
        "stale",
        "subs",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.subs: dict[int, Sub] = {}  # live ones, by id
        self.keys: dict[tuple[object, ...], int] = {}  # what they say: id
        self.names: dict[str, int] = {}  # how many have the name: nodes apart may make two
        self.prefers = 0  # how many name priorities
        self.levels: dict[int, int] = {}  # winnow levels by id; 1 for those not named
        self.asked: list[tuple[str, str]] = []  # priorities that came by themselves
        self.codes = array("Q")  # notifications that may wait for them
        self.stale = 0  # of those, how many are known to be gone
        self.is_listening = False
        self.place = ""  # the node where it was last known to be
        self.is_muted = False
        self.heap: list[tuple[float, float, int, int, int, int]] = []  # what waits, best first
        self.queued: set[int] = set()  # codes in the heap or on their way
        self.flight: dict[int, int] = {}  # token: code

    @property
    def is_served(self) -> bool:
        """Whether notifications go out to them now."""
        return self.is_listening and not self.is_muted

    def enter(self, sub: Sub) -> None:
        """Add a live subscription."""
        self.subs[sub.id] = sub
        self.keys.setdefault(sub.key, sub.id)
        self.prefers += bool(sub.prefer)
        if sub.name is not None:
            self.names[sub.name] = self.names.get(sub.name, 0) + 1

    def leave(self, sub: Sub) -> None:
        """Take a subscription away."""
        del self.subs[sub.id]
        if self.keys.get(sub.key) == sub.id:
            del self.keys[sub.key]
        self.prefers -= bool(sub.prefer)
        if sub.name is not None:
            self.names[sub.name] -= 1
            if not self.names[sub.name]:
                del self.names[sub.name]

    def assign_levels(self) -> None:
        """Work out the levels of all subscriptions.

        Priorities name subscriptions; those that name none wait for it. A pair that would close a
        circle is left out: the older subscriptions' pairs go first, so all nodes leave out the
        same.
        """
        self.levels = {}
        if not self.prefers and not self.asked:
            return
        named = {sub.name: sub.id for sub in self.subs.values() if sub.name}
        ordered = sorted(self.subs.values(), key=lambda sub: (sub.created, sub.id))
        pairs = [pair for sub in ordered for pair in sub.prefer] + self.asked
        wanted = [
            (named[better], named[worse])
            for better, worse in pairs
            if better in named and worse in named
        ]
        if not wanted:
            return
        kept: list[tuple[int, int]] = []
        try:
            self.levels = assign_levels(self.subs, wanted)
        except PriorityCycle:
            for pair in wanted:
                try:
                    self.levels = assign_levels(self.subs, [*kept, pair])
                    kept.append(pair)
                except PriorityCycle:
                    continue


class Sub:
    """A subscription that is live, or that ended with matches waiting."""

    __slots__ = (
        "aggregator",
        "certain",
        "created",
        "dot",
        "event",
        "expires",
        "features",
        "format",
        "gate",
        "id",
        "is_live",
        "is_plain",
        "key",
        "language",
        "name",
        "number",
        "owner",
        "prefer",
        "recent",
        "refresh",
        "role",
        "run",
        "score",
        "significance",
        "threshold",
        "vector",
        "vocabulary",
    )

    def __init__(self, item: Item, body: SubscriptionBody, owner: Owner) -> None:
        options = body.options
        self.dot: Dot = item.dot
        self.id: int = item.id
        self.run = (item.dot.origin, item.dot.epoch)
        self.owner = owner
        self.role = body.role
        self.language = body.language
        self.vocabulary = body.vocabulary
        self.vector = body.vector
        self.created = body.created
        self.expires = item.expires
        self.name: str | None = _take(options, "name", str)
        score = _take(options, "score", (int, float))
        self.score = min(1.0, max(0.0, 1.0 if score is None else float(score)))
        top = _take(options, "top", int)
        self.gate: TopK | None = TopK(top) if top is not None and top > 0 else None
        expiry = _take(options, "expiry", (int, float))
        self.refresh = None if not expiry or expiry < 0 else int(expiry * 1000)
        self.prefer = tuple(
            (str(pair[0]), str(pair[1])) for pair in options.get("prefer", ()) if len(pair) == 2
        )
        self.format = options.get("format", "json")
        self.key = describe_content(body)
        self.number = -1
        self.is_live = True
        self.event = -1
        self.features = self.threshold = self.certain = 0
        self.aggregator = MIN
        self.recent: tuple[int, int] | None = None
        self.significance: Significance | None = None
        self.is_plain = False  # its degree is that of the predicate that decided

    def adopt(self, vector: SubscriptionVector) -> None:
        """Note what delivery needs of a fuzzy vector."""
        self.event = vector.event
        self.features = vector.features
        self.threshold = vector.threshold
        self.certain = vector.certain
        self.aggregator = vector.aggregator
        self.recent = vector.recent
        self.significance = vector.significance
        self.is_plain = vector.aggregator == MIN and not vector.pattern and not vector.recent

    @property
    def hex(self) -> str:
        """The id as people see it."""
        return f"{self.id:016x}"

    @property
    def label(self) -> str:
        """The name, or the id where there is none."""
        return self.name or self.hex

    def restore_gate(self, state: GateState) -> None:
        """Take up a top-k where it was."""
        if self.gate is not None:
            entries = [
                RankedEntry(note, Rank(level, value), expires, turn)
                for note, level, value, expires, turn in state.entries
            ]
            self.gate = TopK(self.gate.k, turn=state.turn, entries=entries)

    def save_gate(self) -> GateState:
        """Return the top-k as it is."""
        assert self.gate is not None
        entries = [
            (e.note_id, e.rank.priority, e.rank.value, e.expires, e.turn)
            for e in self.gate.list_entries()
        ]
        return GateState(self.gate.turn, entries)


def _take(options: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    value = options.get(name)
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def describe_content(body: SubscriptionBody) -> tuple[object, ...]:
    """Return what a subscription says, apart from when and where: equal ones are one."""
    options = cbor2.dumps(body.options, canonical=True) if body.options else b""
    return body.language, body.role, body.vocabulary, body.vector, options


def read_subscription(item: Item) -> tuple[SubscriptionBody, SubscriptionVector | ContentFilter]:
    """Return the body of an item and what its matcher takes; ProtocolError if it is none."""
    body = decode_body(SubscriptionBody, item.body)
    if body.language == FUZZY:
        return body, codec.decode(body.vector)
    if body.language == CONTENT:
        return body, read_filter(body.vector)
    raise ProtocolError(f"language {body.language} is not spoken here")


def read_filter(vector: bytes) -> ContentFilter:
    """Return the filter of a content subscription's bytes."""
    try:
        triples = cbor2.loads(vector)
        return ContentFilter.of(*(tuple(triple) for triple in triples))
    except (cbor2.CBORDecodeError, ContentError, ValueError, TypeError) as error:
        raise ProtocolError(f"no filter: {error}") from None


@lru_cache(maxsize=4096)
def decode_vector(vector: bytes) -> SubscriptionVector:
    """Return a vector whose predicates somebody asks for; most subscriptions are never asked."""
    return codec.decode(vector)
