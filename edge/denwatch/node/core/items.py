"""Items: what nodes share. Each has a dot, a kind, an expiry, a body and its origin's signature.

The bodies are CBOR arrays, deterministic, in the order of the fields below. Only this file knows
how items and bodies look as bytes, on the disk and between nodes, and what each field may be: what
comes from outside is checked completely here before anything changes.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import cbor2
from denwatch.protocol.errors import ProtocolError

SUBSCRIPTION = 1
NOTIFICATION = 2
DELIVERED = 3  # receipts: a subscriber has notifications
VOCABULARY = 4
REVOCATION = 5
ANNOUNCEMENT = 6  # what a device senses
PREFERENCE = 7  # how much a subscriber wants to hear, and what first
CLAIM = 8  # somebody has a device or a notification: "I have it"
REMOVAL = 9  # items that ended before their time
KINDS = {
    SUBSCRIPTION: "subscription",
    NOTIFICATION: "notification",
    DELIVERED: "delivered",
    VOCABULARY: "vocabulary",
    REVOCATION: "revocation",
    ANNOUNCEMENT: "announcement",
    PREFERENCE: "preference",
    CLAIM: "claim",
    REMOVAL: "removal",
}
MAX_BODY = 65536
MAX_SIGNATURE = 128
NEVER = 0
FORMATS = ("json", "cbor")  # of notifications, for a subscriber
PROOF = 8  # bytes
# How the values of several subscriptions that a notification matches become one.
COMBINATIONS = ("maximum", "minimum", "mean", "sum")
BY = "by"  # the option of a subscription that names its person's key, and has its signature
STORIES = "story "  # how the origin of a told story begins (`told_stories.py`)


class Dot(NamedTuple):
    """Where an item was made, in which run of that node, and as which of its items there."""

    origin: str
    epoch: int
    sequence: int

    @property
    def run(self) -> tuple[str, int]:
        """Origin and epoch: what the sequence counts in."""
        return self.origin, self.epoch

    @property
    def is_told(self) -> bool:
        """Whether it names a told story, which is no item: runs of nodes count from 1."""
        return self.epoch == 0 and self.origin.startswith(STORIES)

    @property
    def key(self) -> bytes:
        """The dot as bytes that sort by origin, epoch, sequence."""
        return _begin_key(self.origin, self.epoch) + self.sequence.to_bytes(8, "big")

    @property
    def id(self) -> int:
        """The 64-bit number by which people and logs call the item."""
        return int.from_bytes(hashlib.blake2b(self.key, digest_size=8).digest(), "big")


@lru_cache(maxsize=1024)
def _begin_key(origin: str, epoch: int) -> bytes:
    """Return how all keys of a run begin."""
    name = origin.encode()
    return bytes([len(name)]) + name + epoch.to_bytes(4, "big")


@lru_cache(maxsize=1024)
def _read_run(start: bytes) -> tuple[str, int]:
    """Return the run whose keys begin so."""
    end = 1 + start[0]
    return start[1:end].decode(), int.from_bytes(start[end:], "big")


def name_story(subscription: int, closing: int) -> Dot:
    """Return the dot of a told story, the same at every node, by the reading that closes it."""
    digest = hashlib.blake2b(closing.to_bytes(8, "big"), digest_size=SEQUENCE_BITS // 8).digest()
    return Dot(f"{STORIES}{subscription:016x}", 0, int.from_bytes(digest, "big"))


def read_dot(key: bytes) -> Dot:
    """Return the dot of `Dot.key`."""
    end = 5 + key[0]
    return Dot(*_read_run(key[:end]), int.from_bytes(key[end:], "big"))


@dataclass(frozen=True)
class Item:
    """One thing that nodes share. `expires` is in ms, NEVER for no end."""

    dot: Dot
    kind: int
    expires: int
    body: bytes = field(repr=False)
    signature: bytes = field(default=b"", repr=False)
    said: object = field(default=None, repr=False, compare=False)  # the body, if it is at hand

    @cached_property
    def id(self) -> int:
        """The global number."""
        return self.dot.id

    @property
    def signed(self) -> bytes:
        """What the origin's signature covers."""
        return cbor2.dumps(["denwatch item", *self.dot, self.kind, self.expires, self.body])

    def encode(self) -> bytes:
        """Return the item as bytes, without its dot, which is the key it is stored under."""
        if self.kind < 24 and self.expires > _MAX_EPOCH and not self.signature:
            # What a node makes most of: a notification that was not signed yet, as CBOR has it.
            start = bytes((0x84, self.kind, 0x1B)) + self.expires.to_bytes(8, "big")
            return b"".join((start, _write_length(len(self.body)), self.body, b"\x40"))
        return cbor2.dumps([self.kind, self.expires, self.body, self.signature])


@lru_cache(maxsize=1024)
def _write_length(size: int) -> bytes:
    """Return what stands before so many bytes."""
    return cbor2.dumps(bytes(size))[:-size] if size else b"\x40"


def prove_item(signature: bytes) -> bytes:
    """Return what only somebody who had the item can know: a hash of its origin's signature."""
    return hashlib.blake2b(signature, digest_size=PROOF).digest()


def decode_item(key: bytes, value: bytes) -> Item:
    """Return an item that was stored."""
    if value[:1] == b"\x84" and value[1] < 24 and value[2] == 0x1B and value[11] == 0x58:
        # As most are: an array, its kind, an end of eight bytes, a body of up to 255.
        end = 13 + value[12]
        rest = value[end:]
        if rest == b"\x40" or (rest[:1] == b"\x58" and len(rest) == 2 + rest[1]):
            expires = int.from_bytes(value[3:11], "big")
            return Item(read_dot(key), value[1], expires, value[13:end], rest[2:])
    kind, expires, body, signature = cbor2.loads(value)
    return Item(read_dot(key), kind, expires, body, signature)


def read_expires(value: bytes) -> int:
    """Return when a stored item expires; a start with a million of them reads no more than that."""
    if value[0] == 0x84 and value[1] < 24 and value[2] == 0x1B:  # an array, its kind, eight bytes
        return int.from_bytes(value[3:11], "big")
    return int(cbor2.loads(value)[1])


# Bodies ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SubscriptionBody:
    """What a subscriber asked for, and who that is; the signature covers owner and role."""

    owner: str
    role: str
    words: str  # as it was written
    created: int  # ms
    language: int  # of the matcher: fuzzy or content
    vocabulary: bytes  # 8 bytes of its hash
    vector: bytes  # a subscription vector with handle 0; CBOR for the content language
    options: dict[str, Any]  # name, score, top, prefer, format…


@dataclass(frozen=True)
class NotificationBody:
    """One reading that somebody asked for."""

    device: str
    device_epoch: int
    device_sequence: int
    at: int  # when it was read, ms
    doubt: int  # by how much `at` may be wrong, ms
    vocabulary: bytes
    vector: bytes  # a notification vector


@dataclass(frozen=True)
class AnnouncementBody:
    """What a device senses, as its node knows: so that others can say who may answer."""

    device: str
    vocabulary: bytes
    senses: list[list[int]]  # event and features of each


@dataclass(frozen=True)
class DeliveredBody:
    """A subscriber has these notifications.

    Who delivered one of another node shows by its proof (`prove_item`) that it had it: nobody can
    make a receipt of a notification that does not exist yet, or that it never received.
    """

    subscriber: str
    # [origin, epoch, sequence, proof, counted]; no proof of the signer's own. `counted` is a
    # `CountedNote`, and stands there if the notification counts against a top-k.
    notes: list[list[Any]]

    @property
    def dots(self) -> list[Dot]:
        """The notifications' dots."""
        return [Dot(*note[:3]) for note in self.notes]

    @property
    def proofs(self) -> list[tuple[Dot, bytes]]:
        """The notifications' dots, each with its proof, which may be empty."""
        return [(Dot(*note[:3]), note[3] if len(note) > 3 else b"") for note in self.notes]

    @property
    def counted(self) -> dict[Dot, CountedNote]:
        """The notifications that count against a top-k."""
        return {Dot(*note[:3]): CountedNote(*note[4]) for note in self.notes if len(note) > 4}


class CountedNote(NamedTuple):
    """A delivered notification that counts against a top-k, as it was signed.

    Whoever gets the receipt matches and ranks it for itself, and believes nobody's rank.
    """

    decided: int  # when it was decided to deliver it, ms
    turn: int  # which of the subscriber's matches it was
    ids: list[int]  # of the subscriptions for which it was delivered
    expires: int  # the notification's end, body and signature
    body: bytes
    signature: bytes

    def build_item(self, dot: Dot) -> Item:
        """Return the notification as an item."""
        return Item(dot, NOTIFICATION, self.expires, self.body, self.signature)


@dataclass(frozen=True)
class PreferenceBody:
    """What a subscriber prefers, of all their subscriptions; the latest one holds."""

    owner: str
    created: int  # ms
    options: dict[str, Any]  # top, last, within, fading, by, specific, weights, prefer


@dataclass(frozen=True)
class ClaimBody:
    """Somebody has a subject: a device, or a notification (`#` and its id); the latest holds."""

    subject: str
    holder: str
    said_by: str
    since: int  # ms
    created: int  # ms, when it was last changed
    silence: int  # ms from then on, during which its alarms make no sound


@dataclass(frozen=True)
class RemovalBody:
    """These items are removed, says the node that made them, or a person (`trust.py`)."""

    removed: list[list[Any]]  # [origin, epoch, sequence]
    by: str  # a person's key and signature; empty: the node itself

    @property
    def dots(self) -> list[Dot]:
        """The items' dots."""
        return [Dot(*each) for each in self.removed]


@dataclass(frozen=True)
class VocabularyBody:
    """A vocabulary's document, by its hash."""

    hash: bytes
    document: str  # JSON


_Body = TypeVar(
    "_Body",
    SubscriptionBody,
    NotificationBody,
    DeliveredBody,
    VocabularyBody,
    AnnouncementBody,
    PreferenceBody,
    ClaimBody,
    RemovalBody,
)


def encode_body(
    body: SubscriptionBody
    | NotificationBody
    | DeliveredBody
    | VocabularyBody
    | AnnouncementBody
    | PreferenceBody
    | ClaimBody
    | RemovalBody,
) -> bytes:
    """Return a body as bytes."""
    if type(body) is NotificationBody and body.at >= 0 and body.doubt >= 0:
        return _encode_notification(body)
    # Without maps and floats there is only one encoding, and finding it is cheaper.
    has_maps = type(body) in (SubscriptionBody, PreferenceBody)
    return cbor2.dumps(list(_READERS[type(body)](body)), canonical=has_maps)


def _encode_notification(body: NotificationBody) -> bytes:
    """Return what a node makes most of, as CBOR has it."""
    return b"".join(
        (
            _begin_notification(body.device, body.device_epoch),
            _write_number(body.device_sequence),
            _write_number(body.at),
            _write_number(body.doubt),
            _write_length(len(body.vocabulary)),
            body.vocabulary,
            _write_length(len(body.vector)),
            body.vector,
        )
    )


@lru_cache(maxsize=1024)
def _begin_notification(device: str, epoch: int) -> bytes:
    """Return how all bodies of a run of a device begin: seven fields, two of them these."""
    return b"\x87" + cbor2.dumps(device) + cbor2.dumps(epoch)


def _write_number(number: int) -> bytes:
    """Return a number from 0 on as CBOR has it."""
    if number > _MAX_EPOCH:
        return b"\x1b" + number.to_bytes(8, "big")
    if number > 0xFFFF:
        return b"\x1a" + number.to_bytes(4, "big")
    if number > 0xFF:
        return b"\x19" + number.to_bytes(2, "big")
    return bytes((number,)) if number < 24 else bytes((0x18, number))


def decode_body(kind: type[_Body], data: bytes) -> _Body:
    """Return a body of a kind; ProtocolError names the field that is wrong."""
    values = load_cbor(data)
    rules = _RULES[kind]
    if not isinstance(values, list) or len(values) != len(rules):
        raise ProtocolError(f"{kind.__name__} has {len(rules)} fields")
    for (name, rule), value in zip(rules.items(), values, strict=True):
        fault = rule(value)
        if fault:
            raise ProtocolError(f"{kind.__name__}: {name} is not {fault}")
    if kind is SubscriptionBody:
        check_options(values[-1])
    elif kind is PreferenceBody:
        check_preferences(values[-1])
    return kind(*values)


def load_cbor(data: bytes) -> Any:
    """Return what CBOR holds; ProtocolError for everything that a decoder stumbles over.

    Tags are refused: nobody needs them here, and by references to shared values a few hundred bytes
    become more than a machine can hold.
    """
    if _has_tags(data):
        raise ProtocolError("this has tags, which are not read")
    try:
        return cbor2.loads(data)
    except Exception as error:  # noqa: BLE001 - a decoder's errors are of many types
        raise ProtocolError(f"this is no CBOR: {type(error).__name__}") from None


def _has_tags(data: bytes) -> bool:
    """Return whether a head of CBOR is a tag's; heads follow each other, or texts and bytes."""
    place, end = 0, len(data)
    while place < end:
        kind, info = data[place] >> 5, data[place] & 31
        if kind == 6:
            return True
        place += 1
        length = info if info < 24 else 0
        if 24 <= info < 28:
            size = 1 << info - 24
            length = int.from_bytes(data[place : place + size], "big")
            place += size
        if kind in (2, 3):
            place += length
    return False


# Schemas: every field of what comes from outside has a rule, which returns what it is not. Times
# are those of clocks nobody can trust, which may wake up in 1970; none shows the year 2100.

EARLIEST = 1_577_836_800_000  # ms, 2020-01-01: a machine's clock that shows less is not set
LATEST = 4_102_444_800_000  # ms, 2100-01-01
MAX_NAME = 64  # characters of the name of a node, or of a subscription
MAX_SUBSCRIBER = 128
SEQUENCE_BITS = 40  # of a notification that somebody waits for: no run makes more
_MAX_NAME_BYTES = 255  # a key on the disk has one byte for the length
_MAX_EPOCH = (1 << 32) - 1
_MAX_SEQUENCE = (1 << 63) - 1  # what the log and sets of dots hold
_MAX_VECTOR = 16_384
_MAX_EVENTS = 64
_MAX_NOTES = 4_096
_MAX_RECEIPTS = 512  # in one item; nodes make them of 64
_MAX_COUNTED = 1_024  # bytes of a notification that a receipt brings along
_MAX_TOP = 10_000
_MAX_WINDOW = 1_000_000
_MAX_WEIGHT = 1_000
_MAX_SECONDS = 1e9
MAX_SILENCE = 86_400_000  # ms
_BY = re.compile("[A-Za-z0-9_-]{128}")  # 96 bytes
_NO_NAME = frozenset("/+#\0")
_Rule = Callable[[Any], str]


def is_name(value: object, longest: int = MAX_NAME) -> bool:
    """Return whether a value may be the name of a node or a subscriber."""
    return (
        type(value) is str
        and 0 < len(value) <= longest
        and _NO_NAME.isdisjoint(value)
        and not has_surrogates(value)
    )


def has_surrogates(text: str) -> bool:
    """Return whether a text has halves of characters, which JSON can write and UTF-8 cannot."""
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def check_run(origin: object, epoch: object) -> str:
    """Return why there is no such run of a node; "" if there may be."""
    if not is_name(origin) or len(str(origin).encode()) > _MAX_NAME_BYTES:
        return f"no node has the name {str(origin)[:MAX_NAME]!r}"
    if not _is_int(epoch, 0, _MAX_EPOCH):
        return f"there is no epoch {str(epoch)[:24]}"
    return ""


def check_item(item: Item) -> str:
    """Return why an item cannot be, whatever is in it; "" if it can."""
    fault = check_run(*item.dot.run)
    if fault:
        return fault
    if not _is_int(item.dot.sequence, 1, _MAX_SEQUENCE):
        return f"there is no sequence {str(item.dot.sequence)[:24]}"
    if item.kind not in KINDS:
        return f"there is no kind {item.kind}"
    if not _is_int(item.expires, NEVER, _MAX_SEQUENCE):
        return f"there is no end at {str(item.expires)[:24]}"
    if len(item.body) > MAX_BODY or len(item.signature) > MAX_SIGNATURE:
        return "the item is too long"
    return ""


def _is_int(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _number(low: int, high: int) -> _Rule:
    return lambda value: "" if _is_int(value, low, high) else f"a number from {low} to {high}"


def _text(longest: int) -> _Rule:
    def check(value: Any) -> str:
        is_right = type(value) is str and len(value) <= longest and not has_surrogates(value)
        return "" if is_right else f"a text of {longest} characters at most"

    return check


def _bytes(shortest: int, longest: int) -> _Rule:
    def check(value: Any) -> str:
        is_right = type(value) is bytes and shortest <= len(value) <= longest
        return "" if is_right else f"{shortest} to {longest} bytes"

    return check


def _check_notes(notes: Any) -> str:
    if type(notes) is not list or len(notes) > _MAX_RECEIPTS:
        return f"a list of {_MAX_RECEIPTS} at most"
    for note in notes:
        if type(note) is not list or not _is_note(note):
            return "[origin, epoch, sequence, proof] each, and what counts"
        fault = check_run(*note[:2])
        if fault or not _is_int(note[2], 0, (1 << SEQUENCE_BITS) - 1):
            return f"[origin, epoch, sequence, proof] each: {fault or 'there is no such sequence'}"
    return ""


def _check_removed(removed: Any) -> str:
    if type(removed) is not list or not 0 < len(removed) <= _MAX_NOTES:
        return f"a list of 1 to {_MAX_NOTES}"
    for dot in removed:
        is_dot = type(dot) is list and len(dot) == 3 and not check_run(*dot[:2])
        if not is_dot or not _is_int(dot[2], 1, _MAX_SEQUENCE):
            return "[origin, epoch, sequence] each"
    return ""


def _check_senses(senses: Any) -> str:
    is_right = type(senses) is list and len(senses) <= _MAX_EVENTS
    for pair in senses if is_right else ():
        is_right &= type(pair) is list and len(pair) == 2
        is_right = is_right and _is_int(pair[0], 0, 63) and _is_int(pair[1], 1, 0xFFFF)
    return "" if is_right else "[event, features] each"


def _is_note(note: list[Any]) -> bool:
    if len(note) == 5:
        return (note[3] == b"" or _is_proof(note[3])) and _is_counted(note[4])
    return len(note) == 3 or (len(note) == 4 and _is_proof(note[3]))


def _is_counted(value: object) -> bool:
    rules = (
        _time,
        _number(0, _MAX_SEQUENCE),
        _check_ids,
        _time,
        _bytes(1, _MAX_COUNTED),
        _bytes(1, MAX_SIGNATURE),
    )
    return (
        type(value) is list
        and len(value) == len(rules)
        and not any(rule(part) for rule, part in zip(rules, value, strict=True))
    )


def _check_ids(value: Any) -> str:
    is_right = type(value) is list and len(value) <= _MAX_NOTES
    return "" if is_right and all(_is_int(id, 0, (1 << 64) - 1) for id in value) else "ids"


def _check_subject(value: Any) -> str:
    is_right = type(value) is str and is_name(value.removeprefix("#"), MAX_SUBSCRIBER)
    return "" if is_right else "a device, or # and the id of a notification"


def _is_by(value: object) -> bool:
    return type(value) is str and _BY.fullmatch(value) is not None


def _is_proof(value: object) -> bool:
    return type(value) is bytes and len(value) == PROOF


_subscriber: _Rule = lambda value: "" if is_name(value, MAX_SUBSCRIBER) else "a name"  # noqa: E731
_map: _Rule = lambda value: "" if type(value) is dict else "a map"  # noqa: E731
_time, _hash = _number(0, LATEST - 1), _bytes(8, 8)
_RULES: dict[type, dict[str, _Rule]] = {
    SubscriptionBody: {
        "owner": _subscriber,
        "role": _text(MAX_SUBSCRIBER),
        "words": _text(MAX_BODY),
        "created": _time,
        "language": _number(0, 255),
        "vocabulary": _hash,
        "vector": _bytes(0, _MAX_VECTOR),
        "options": _map,
    },
    NotificationBody: {
        "device": _subscriber,
        "device_epoch": _number(0, _MAX_EPOCH),
        "device_sequence": _number(0, _MAX_EPOCH),
        "at": _time,
        "doubt": _number(0, LATEST),
        "vocabulary": _hash,
        "vector": _bytes(0, _MAX_VECTOR),
    },
    DeliveredBody: {"subscriber": _subscriber, "notes": _check_notes},
    AnnouncementBody: {"device": _subscriber, "vocabulary": _hash, "senses": _check_senses},
    VocabularyBody: {"hash": _hash, "document": _text(MAX_BODY)},
    PreferenceBody: {"owner": _subscriber, "created": _time, "options": _map},
    ClaimBody: {
        "subject": _check_subject,
        "holder": _subscriber,
        "said_by": _subscriber,
        "since": _time,
        "created": _time,
        "silence": _number(0, MAX_SILENCE),
    },
    RemovalBody: {
        "removed": _check_removed,
        "by": lambda value: "" if value == "" or _is_by(value) else "a key and a signature",
    },
}
_READERS = {kind: attrgetter(*rules) for kind, rules in _RULES.items()}


_OptionRules = dict[str, tuple[Callable[[Any], bool], str]]


def check_options(options: dict[str, Any]) -> None:
    """Check the options of a subscription, in a request and in an item; ProtocolError names one."""
    _check_all(options, _OPTIONS)


def check_preferences(options: dict[str, Any]) -> None:
    """Check what a subscriber prefers, in a request and in an item; ProtocolError names one."""
    _check_all(options, _PREFERENCES)
    if "last" in options and "within" in options:
        raise ProtocolError("a window is of the last notifications or of a time, not of both")


def _check_all(options: dict[str, Any], rules: _OptionRules) -> None:
    for name, value in options.items():
        rule = rules.get(name) if isinstance(name, str) else None
        if rule is None:
            raise ProtocolError(f"options: there is no {str(name)[:MAX_NAME]!r}")
        is_right, text = rule
        if not is_right(value):
            raise ProtocolError(text)


def is_number(value: object) -> bool:
    """Return whether a value is a number that can be compared with others."""
    if type(value) is int:
        return abs(value) <= _MAX_SEQUENCE
    return type(value) is float and math.isfinite(value)


def _is_label(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_label, value))


def _is_time(value: object) -> bool:
    return is_number(value) and 0 < value < _MAX_SECONDS  # type: ignore[operator]


def _is_weight(name: object, value: object) -> bool:
    return _is_label(name) and is_number(value) and 0 <= value <= _MAX_WEIGHT  # type: ignore[operator]


_OPTIONS: _OptionRules = {
    "name": (_is_label, f"a name has 1 to {MAX_NAME} printable characters"),
    "score": (lambda value: is_number(value) and 0 <= value <= 1, "score is between 0 and 1"),
    "top": (
        lambda value: _is_int(value, 1, _MAX_TOP),
        f"top is a whole number, 1 to {_MAX_TOP}",
    ),
    "prefer": (
        lambda value: (
            isinstance(value, list) and len(value) <= _MAX_NOTES and all(map(_is_pair, value))
        ),
        'prefer takes pairs of names: [["better", "worse"]]',
    ),
    "expiry": (_is_time, "expiry is in seconds, above 0"),
    "whole": (lambda value: value is True, "whole is true, or left out"),
    "format": (lambda value: value in FORMATS, 'format is "json" or "cbor"'),
    "muted": (lambda value: value is True, "muted is true, or left out"),
    "escalate": (
        lambda value: (
            isinstance(value, list)
            and len(value) == 2
            and is_name(value[0], MAX_SUBSCRIBER)
            and _is_time(value[1])
        ),
        "escalate is to somebody, after some seconds: [name, seconds]",
    ),
    # Of the subscription that an escalation makes for somebody else: whose, and after how long.
    "behalf": (lambda value: is_name(value, MAX_SUBSCRIBER), "behalf is a name"),
    "after": (_is_time, "after is in seconds, above 0"),
    BY: (_is_by, "by is a key and a signature"),
}
_PREFERENCES: _OptionRules = {
    "top": _OPTIONS["top"],
    "prefer": _OPTIONS["prefer"],
    "last": (
        lambda value: _is_int(value, 1, _MAX_WINDOW),
        f"last is a number of notifications, 1 to {_MAX_WINDOW}",
    ),
    "within": (_is_time, "within is in seconds, above 0"),
    "fading": (_is_time, "fading is in seconds, above 0"),
    "by": (
        lambda value: value in COMBINATIONS,
        f"by is one of {', '.join(COMBINATIONS)}",
    ),
    "specific": (lambda value: type(value) is bool, "specific is true or false"),
    "weights": (
        lambda value: (
            isinstance(value, dict)
            and len(value) <= _MAX_NOTES
            and all(_is_weight(*pair) for pair in value.items())
        ),
        f"weights are numbers from 0 to {_MAX_WEIGHT} by names of subscriptions",
    ),
}
