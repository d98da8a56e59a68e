"""Notifications as a node understands them: their vectors decoded, and named by a vocabulary.

A node sees each vector several times, and most are plain: exact values of one byte each. So decoded
vectors are shared: whoever gets one from `decode_notification` must not change it. The protocol's
own decoder, which also runs on devices, decides about everything that is not plain.

What the numbers in a vector mean is said by its vocabulary, known by the first eight bytes of its
content hash. One is the node's own: requests are compiled with it. Others come as items from other
nodes, so that what was read or asked for elsewhere can be named here. Only this file turns a
vocabulary into an item and back.

What all subscribers of one notification share of its JSON is made once; the rest is put around it.
Values are limited to what the subscriber's role may see.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import cbor2
import msgspec
from denwatch.client.vocabulary import (
    Attribute,
    EventType,
    ValueKind,
    Vocabulary,
    build_vocabulary,
    format_moment,
)
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    NEVER,
    VOCABULARY,
    Dot,
    Item,
    NotificationBody,
    VocabularyBody,
    decode_body,
    encode_body,
)
from denwatch.node.ranking.content import PossibleValues
from denwatch.protocol import notification as codec
from denwatch.protocol import subscription as subscription_codec
from denwatch.protocol.cuts import trapezoid
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.matching import match as match_vector
from denwatch.protocol.timecode import LAST_AGE, decode_duration
from denwatch.protocol.vectors import NotificationVector, Reading, SubscriptionVector

if TYPE_CHECKING:
    from denwatch.node.core.subscriptions import Subscription
    from denwatch.node.core.told_stories import ToldStory

# Vectors ---------------------------------------------------------------------------------------

_HEAD = 8  # bytes before the values: type and event, flags, sequence, age, features


@lru_cache(maxsize=1024)
def decode_notification(frame: bytes) -> NotificationVector:
    """Return the notification of a whole vector; ProtocolError names the byte that is wrong."""
    if len(frame) > _HEAD and frame[0] & 0xC0 == codec.TYPE and not frame[1]:
        features = frame[6] << 8 | frame[7]
        attributes = list_attributes(features)
        age = frame[4] << 8 | frame[5]
        if len(attributes) == len(frame) - _HEAD and age <= LAST_AGE:
            readings = [_read(a, frame[_HEAD + i]) for i, a in enumerate(attributes)]
            n = NotificationVector.__new__(NotificationVector)  # its checks are those above
            n.event = frame[0] & 63
            n.readings = readings
            n.sequence = frame[2] << 8 | frame[3]
            n.age = age
            n.why = None
            n.faults = n.olds = 0
            n.features = features
            return n
    return codec.decode(frame)


@lru_cache(maxsize=4096)
def list_attributes(features: int) -> tuple[int, ...]:
    """Return the attributes of a mask, rising."""
    return tuple(bit for bit in range(16) if features >> bit & 1)


@lru_cache(maxsize=4096)
def _read(attribute: int, value: int) -> Reading:
    return Reading(attribute, (value, value, value, value))


# Vocabularies ----------------------------------------------------------------------------------

HASH_SIZE = 8
# What a reader of documents stumbles over, whoever wrote them: errors of ours are ValueErrors.
_UNREADABLE = (
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    LookupError,
    RecursionError,
)


def shorten_hash(vocabulary: Vocabulary) -> bytes:
    """Return the eight bytes by which items call a vocabulary."""
    return bytes.fromhex(vocabulary.hash)[:HASH_SIZE]


def write_document(vocabulary: Vocabulary) -> str:
    """Return a vocabulary's document as JSON, in its own order: terms build on earlier ones."""
    return json.dumps(vocabulary.document, separators=(",", ":"), ensure_ascii=False, default=str)


def _shape(attribute: Attribute | None) -> tuple[object, ...] | None:
    """Return what a code of the attribute means, whatever the attribute is called."""
    if attribute is None:
        return None
    a = attribute
    return (a.kind, a.low, a.high, a.unit, a.wide, a.symbols, a.symbol_codes)


def list_sensed(vocabulary: Vocabulary) -> dict[int, tuple[int, int]]:
    """Return what a vocabulary lets a device sense: by event, features and those with 16 bits."""
    sensed = {}
    for event in vocabulary.events.values():
        features = wides = 0
        for attribute in event.attributes.values():
            features |= 1 << attribute.bit
            wides |= (1 << attribute.bit) if attribute.wide else 0
        sensed[event.number] = features, wides
    return sensed


class Vocabularies:
    """The node's own vocabulary and those that it has learnt."""

    def __init__(self, own: Vocabulary) -> None:
        self.own = own
        self.own_hash = shorten_hash(own)
        self._known = {self.own_hash: own}
        self._events: dict[tuple[bytes, int], EventType | None] = {}
        self._sensed: dict[bytes, dict[int, tuple[int, int]]] = {}
        self._agreements: dict[tuple[bytes, bytes, int, int], bool] = {}

    def __contains__(self, hash: bytes) -> bool:
        return hash in self._known

    def find(self, hash: bytes) -> Vocabulary | None:
        """Return the vocabulary of a hash."""
        return self._known.get(hash)

    def find_sensed(self, hash: bytes) -> dict[int, tuple[int, int]] | None:
        """Return what the vocabulary of a hash lets a device sense; None: unknown."""
        if hash not in self._sensed:
            vocabulary = self._known.get(hash)
            if vocabulary is None:
                return None
            self._sensed[hash] = list_sensed(vocabulary)
        return self._sensed[hash]

    def find_event(self, hash: bytes, number: int) -> EventType | None:
        """Return the event of a number in the vocabulary of a hash."""
        key = hash, number
        if key not in self._events:
            vocabulary = self._known.get(hash)
            self._events[key] = None if vocabulary is None else vocabulary.find_number(number)
        return self._events[key]

    def agree(self, one: bytes, other: bytes, event: int, features: int) -> bool:
        """Return whether two vocabularies give an event's codes the same meaning.

        A synonym more makes another vocabulary, and yet all codes stay what they were. Of a
        vocabulary that is not known here nothing is held against it.
        """
        if one == other:
            return True
        key = one, other, event, features
        answer = self._agreements.get(key)
        if answer is None:
            answer = self._compare(one, other, event, features)
            if one in self._known and other in self._known:
                self._agreements[key] = answer
        return answer

    def _compare(self, one: bytes, other: bytes, number: int, features: int) -> bool:
        if one not in self._known or other not in self._known:
            return True
        left, right = self.find_event(one, number), self.find_event(other, number)
        if left is None or right is None or left.name != right.name:
            return False
        return all(
            _shape(left.find_bit(bit)) == _shape(right.find_bit(bit))
            for bit in range(16)
            if features >> bit & 1
        )

    def learn(self, item: Item) -> VocabularyBody | None:
        """Take a vocabulary from an item; None for one that is no vocabulary of its hash."""
        try:
            body = decode_body(VocabularyBody, item.body)
            vocabulary = build_vocabulary(json.loads(body.document))
        except _UNREADABLE:
            return None
        if shorten_hash(vocabulary) != body.hash:
            return None
        self.add(vocabulary)
        return body

    def add(self, vocabulary: Vocabulary) -> None:
        """Know one more vocabulary."""
        hash = shorten_hash(vocabulary)
        if hash not in self._known:
            self._known[hash] = vocabulary
            self._events = {key: e for key, e in self._events.items() if key[0] != hash}

    def announce(self, transaction: Transaction, item_store: ItemStore) -> bool:
        """Make an item of the node's own vocabulary, unless one is held; return whether."""
        for item in item_store.iterate(transaction, VOCABULARY):
            try:
                if decode_body(VocabularyBody, item.body).hash == self.own_hash:
                    return False
            except ProtocolError:
                continue  # somebody else's mistake; `learn` has said so
        body = VocabularyBody(self.own_hash, write_document(self.own))
        item_store.originate(transaction, VOCABULARY, NEVER, encode_body(body))
        return True


# Notifications as they are delivered -----------------------------------------------------------

_LAST = 253_402_300_799_999  # the last ms of the year 9999
_KEPT_MEMBERS = 8192
REPORTED = 0  # the device's epoch of what a person said; devices count from 1
_encode = msgspec.json.encode
_MESSAGE = b'{"id":"%016x",%b%b%b%b,"at":%b,"expires":%b,"score":%b,"node":%b%b'


class Notification:
    """A notification that is held, decoded."""

    __slots__ = (
        "at",
        "code",
        "device",
        "device_epoch",
        "device_sequence",
        "dot",
        "doubt",
        "event",
        "expires",
        "frame",
        "id",
        "parts",
        "run",
        "story",
        "vector",
        "vocabulary",
    )

    def __init__(self, item: Item, code: int, event: EventType | None = None) -> None:
        body = item.said
        if not isinstance(body, NotificationBody):
            body = decode_body(NotificationBody, item.body)
        self.vector: NotificationVector = decode_notification(body.vector)
        self.dot: Dot = item.dot
        self.run = item.dot.run
        self.code = code
        self.id: int = item.id
        self.device = body.device
        self.device_epoch = body.device_epoch
        self.device_sequence = body.device_sequence
        self.frame = body.vector
        self.at = body.at
        self.doubt = body.doubt
        self.expires = item.expires
        self.vocabulary = body.vocabulary
        self.event = event
        self.story: ToldStory | None = None  # what it tells, if it is no reading
        self.parts: dict[int, bytes] = {}  # JSON of event, device and values, by what is visible


def format_time(ms: int) -> str:
    """Return a time as ISO 8601, UTC, with milliseconds."""
    ms = min(max(ms, 0), _LAST)
    return f"{_format_second(ms // 1000)}.{ms % 1000:03d}Z"


def _write_time(ms: int) -> bytes:
    """Return a time as JSON."""
    return b'"%b"' % format_time(ms).encode()


@lru_cache(maxsize=1024, typed=True)
def _write_score(score: float) -> bytes:
    """Return a score as JSON; few differ."""
    return _encode(round(score, 4))


@lru_cache(maxsize=64)
def _write_name(name: str) -> bytes:
    """Return a node's name as JSON."""
    return _encode(name)


@lru_cache(maxsize=256)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def name_event(notification: Notification) -> str:
    """Return the name of a notification's event, by its number where no vocabulary has it."""
    return notification.event.name if notification.event else f"event_{notification.vector.event}"


def name_attribute(event: EventType | None, bit: int) -> str:
    """Return the name of an attribute, by its number where no vocabulary has it."""
    attribute = _find_bits(event).get(bit) if event else None
    return attribute.name if attribute else f"attribute_{bit}"


class _Words:
    """An event's attributes by bit, which `EventType` searches one by one; how readings look."""

    __slots__ = ("bits", "event", "members")

    def __init__(self, event: EventType) -> None:
        self.event = event
        self.bits: dict[int, Attribute] = {a.bit: a for a in event.attributes.values()}
        self.members: dict[tuple[int, tuple[int, ...], bool, int], bytes] = {}


_words: dict[int, _Words] = {}


def _find_words(event: EventType) -> _Words:
    known = _words.get(id(event))
    if known is None or known.event is not event:
        known = _Words(event)
        if len(_words) > 4096:  # vocabularies come and go, slowly
            _words.clear()
        _words[id(event)] = known
    return known


def _find_bits(event: EventType) -> dict[int, Attribute]:
    """Return an event's attributes by bit."""
    return _find_words(event).bits


def _describe_member(event: EventType | None, reading: Reading) -> bytes:
    """Return a reading as a JSON member: its name and what it says."""
    if event is None:
        name, described = name_attribute(None, reading.attribute), describe_reading(None, reading)
        return _encode(name) + b":" + described
    words = _find_words(event)
    key = reading.attribute, reading.points, reading.wide, reading.age
    member = words.members.get(key)
    if member is None:
        name = name_attribute(event, reading.attribute)
        described = describe_reading(words.bits.get(reading.attribute), reading)
        if reading.age:
            described = described[:-1] + b',"age":%d}' % decode_duration(reading.age)
        member = _encode(name) + b":" + described
        if len(words.members) > _KEPT_MEMBERS:
            words.members.clear()
        words.members[key] = member
    return member


@lru_cache(maxsize=8192)
def _describe_exact(kind: ValueKind, low: float, step: float, unit: str | None, code: int) -> bytes:
    """Return the JSON of a number or time."""
    value = _write_number(kind, low, step, code)
    return _encode({"value": value, "unit": unit} if unit else {"value": value})


def _write_number(kind: ValueKind, low: float, step: float, code: float) -> float | str:
    value = low + code * step
    if kind is not ValueKind.NUMBER:
        return format_moment(value, kind)
    # One digit finer than a step: nothing is lost, and no digits pretend.
    digits = max(0, 1 - math.floor(math.log10(step))) if step > 0 else 0
    return round(value, min(digits, 12))


def describe_reading(attribute: Attribute | None, reading: Reading) -> bytes:
    """Return the JSON of a reading: its value and unit, and its range where it is in doubt."""
    a, b, c, d = reading.points
    if attribute is None or attribute.wide != reading.wide:
        return _encode({"code": b} if a == d else {"codes": [a, b, c, d]})
    if attribute.kind is ValueKind.TEXT:
        if attribute.is_graded:
            names = [name for name, _ in list_symbols(attribute, reading.points)]
        else:
            names = [str(name_value(attribute, code)) for code in sorted({a, b, c, d})]
        return _encode({"value": names[0]} if a == d else {"value": None, "among": names})
    kind, low, step = attribute.kind, attribute.low, attribute.step
    if a == d:
        return _describe_exact(kind, low, step, attribute.unit, a)
    shown: dict[str, Any] = {"value": _write_number(kind, low, step, (b + c) / 2)}
    if attribute.unit:
        shown["unit"] = attribute.unit
    shown["low"] = _write_number(kind, low, step, a)
    shown["high"] = _write_number(kind, low, step, d)
    return _encode(shown)


def _describe_notification(notification: Notification, visible: int) -> bytes:
    """Return the JSON members that all subscribers with the same rights share."""
    event = notification.event
    known = {} if event is None else _find_words(event).members
    members = [
        known.get((r.attribute, r.points, r.wide, r.age)) or _describe_member(event, r)
        for r in notification.vector.readings
        if visible >> r.attribute & 1
    ]
    # Two nodes may have taken one reading: the device walked before it heard the first one's
    # acknowledgement. Then there are two ids, and this says that it is the same.
    device = notification.device if notification.story is None else notification.dot.origin
    start, end = _write_head(
        name_event(notification),
        notification.device,
        f"{device}/{notification.device_epoch}/",
        notification.device_epoch == REPORTED and notification.story is None,
    )
    number = notification.device_sequence
    shared = b'%b%d"%b,"values":{%b}' % (start, number, end, b",".join(members))
    faults = notification.vector.faults & visible
    if not faults:
        return shared
    broken = [name_attribute(event, bit) for bit in range(16) if faults >> bit & 1]
    return shared + b',"faults":' + _encode(broken)


@lru_cache(maxsize=1024)
def _write_head(event: str, device: str, run: str, is_reported: bool) -> tuple[bytes, bytes]:
    """Return what stands before and after the number of a reading: one of each run of a device."""
    head = _encode({"event": event, "device": device, "reading": run})
    return head[1:-2], b',"reporter":' + _encode(device) if is_reported else b""


@lru_cache(maxsize=4096)
def _decode_subscription(vector: bytes) -> SubscriptionVector:
    """Return a subscription's vector, to explain a match; most are never asked for."""
    return subscription_codec.decode(vector)


def explain(
    notification: Notification, subscription: Subscription, possible: int, attribute: int
) -> bytes:
    """Return why a notification matches no better, as JSON: the limiting attribute, its degree."""
    if attribute < 0:
        return b"null"
    degree = possible
    if not subscription.is_plain:
        found = match_vector(_decode_subscription(subscription.vector), notification.vector)
        if found is not None:
            attribute = (
                _decode_subscription(subscription.vector).predicates[found.predicate].attribute
            )
            degree = found.degree
    event = notification.event
    bits = _find_bits(event) if event else {}
    described = b""
    for reading in notification.vector.readings:
        if reading.attribute == attribute and attribute in bits:
            described = describe_reading(bits[attribute], reading)
            break
    return _write_reason(name_attribute(event, attribute), described, degree)


@lru_cache(maxsize=8192)
def _write_reason(name: str, described: bytes, degree: int) -> bytes:
    share = round(degree / 255, 3)
    value = f" {_word(described)}" if described else ""
    return _encode(
        {"attribute": name, "degree": share, "words": f"{name}{value} fits to {share:g}"}
    )


@lru_cache(maxsize=4096)
def _write_degrees(possible: int, certain: int) -> bytes:
    degree = _encode(round(possible / 255, 3))
    sure = _encode(round(certain / 255, 3))
    return b',"degree":%b,"possible":%b,"certain":%b,"why":' % (degree, degree, sure)


@lru_cache(maxsize=4096)
def _write_matches(label: str, id: int, matches: tuple[tuple[str, int], ...]) -> bytes:
    """Return the members about a subscriber's subscriptions; most readings match one of few."""
    said = {
        "subscription": label,
        "subscription_id": f"{id:016x}",
        "subscriptions": [name for name, _ in matches],
        "degrees": [round(degree / 255, 3) for _, degree in matches],
    }
    return b"," + _encode(said)[1:-1]


def describe_values(event: EventType, vector: NotificationVector) -> list[str]:
    """Return what a vector says in words: "heart_rate 110 to 130 bpm", one for each attribute."""
    bits = _find_bits(event)
    found = {r.attribute: _word(describe_reading(bits[r.attribute], r)) for r in vector.readings}
    found |= {bit: "broken" for bit in bits if vector.faults >> bit & 1}
    return [f"{bits[bit].name} {words}" for bit, words in sorted(found.items())]


@lru_cache(maxsize=8192)
def _word(described: bytes) -> str:
    """Return a described reading as people say it."""
    shown = json.loads(described)
    unit = f" {shown['unit']}" if shown.get("unit") else ""
    if "low" in shown:
        return f"{shown['low']} to {shown['high']}{unit}"
    if "among" in shown:
        return " or ".join(shown["among"])
    return f"{shown.get('value', shown.get('code'))}{unit}"


def render_notification(
    notification: Notification,
    visible: int,
    subscription: Subscription,
    match: tuple[int, int, int],
    matches: list[tuple[str, int]],
    score: float,
    at: int,
    expires: int | None,
    node: str,
    story: dict[str, Any] | None = None,
    beside: dict[str, Any] | None = None,
) -> bytes:
    """Return the message; `match` is (possible, certain, attribute) of the best subscription.

    `matches` are all of the subscriber's that it fits, with their degrees. `story` is what a told
    story says of its parts, `beside` what people say: who has it.
    """
    shared = notification.parts.get(visible)
    if shared is None:
        shared = notification.parts[visible] = _describe_notification(notification, visible)
    possible, certain, attribute = match
    if notification.story is None:
        why = explain(notification, subscription, possible, attribute)
    else:
        why = _encode({"words": notification.story.explain()})
    end = b"}"
    if story is not None or beside:
        others = {} if story is None else {"story": story}
        end = b"," + _encode(others | (beside or {}))[1:]
    message = _MESSAGE % (
        notification.id,
        shared,
        _write_degrees(possible, certain),
        why,
        _write_matches(subscription.label, subscription.id, tuple(matches)),
        _write_time(at),
        b"null" if expires is None else _write_time(expires),
        _write_score(score),
        _write_name(node),
        end,
    )
    return cbor2.dumps(json.loads(message)) if subscription.format == "cbor" else message


# Typed content -------------------------------------------------------------------------------


def describe_content_values(notification: Notification) -> dict[str, object]:
    """Return a notification as typed content: event, device, and each value by name."""
    bits = _find_bits(notification.event) if notification.event else {}
    values: dict[str, object] = {}
    for reading in notification.vector.readings:
        attribute = bits.get(reading.attribute)
        if attribute is None or attribute.wide != reading.wide or reading.age:
            continue
        a, _, _, d = reading.points
        if a == d:
            values[attribute.name] = name_value(attribute, a)
        else:
            codes = [(code, trapezoid(code, reading.points)) for code in range(a, d + 1)]
            named = [(name_value(attribute, code), degree) for code, degree in codes if degree]
            if attribute.is_graded:
                named = [*list_symbols(attribute, reading.points)]
            values[attribute.name] = PossibleValues(tuple(named))
    return {**values, "event": name_event(notification), "device": notification.device}


def list_symbols(attribute: Attribute, points: tuple[int, int, int, int]) -> list[tuple[str, int]]:
    """Return the symbols of a graded text that a reading may be, and how possible each is.

    If it lies between two, the nearest to its middle.
    """
    pairs = zip(attribute.symbols, attribute.symbol_codes, strict=True)
    found = [(name, trapezoid(code, points)) for name, code in pairs]
    nearest = attribute.name_code((points[1] + points[2]) // 2) or ""
    return [pair for pair in found if pair[1]] or [(nearest, 255)]


def name_value(attribute: Attribute, code: int) -> float | str:
    """Return the value of a code, as a notification shows it."""
    if attribute.kind is ValueKind.TEXT:
        return attribute.name_code(code) or str(code)
    return _write_number(attribute.kind, attribute.low, attribute.step, code)
