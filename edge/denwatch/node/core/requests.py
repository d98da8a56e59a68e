"""Requests of subscribers: decoding them, and compiling what they subscribe to. Pure.

Words, XML (starts with "<"), JSON (starts with "{") or CBOR (a map). Anything that is not one of
the commands is a subscription. A command in JSON or CBOR may carry a `request` that its reply
repeats.

    unsubscribe fever · list · mute · unmute                         words
    {"unsubscribe": "fever"} {"list": true} {"mute": true}           JSON, CBOR
    {"prefer": [["fever", "burns"]]} {"received": ["1f…", …]} {"probe": ["pain is severe"]}
    {"subscribe": "pain is severe", "name": "pain", "format": "cbor", "request": "7"}
    {"content": [["event", "=", "patient"], ["triage", "=", "red"]], "name": "red", "top": 3}
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import cbor2
from denwatch.client.compiler import CompiledSubscription, compile_subscription, decompile
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import detect_surface, parse, print_as
from denwatch.client.vocabulary import EventType, Vocabulary
from denwatch.node.core.items import (
    FORMATS,
    NEVER,
    SubscriptionBody,
    check_options,
    has_surrogates,
    is_number,
    load_cbor,
)
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.subscriptions import Roles
from denwatch.node.matching.plugins import CONTENT, FUZZY
from denwatch.node.ranking.content import ContentError, ContentFilter
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.timecode import decode_duration

SUBSCRIBE = "subscribe"
CONTENT_REQUEST = "content"
UNSUBSCRIBE = "unsubscribe"
LIST = "list"
MUTE = "mute"
PREFER = "prefer"
RECEIVED = "received"
PROBE = "probe"
_COMMANDS = (SUBSCRIBE, CONTENT_REQUEST, UNSUBSCRIBE, LIST, MUTE, PREFER, RECEIVED, PROBE)
_BESIDE = {
    SUBSCRIBE: ("name", "format"),
    CONTENT_REQUEST: ("name", "format", "score", "top", "expiry", "valid_for"),
}
_MAX_LIST = 4096
_MAX_REFERENCE = 64  # characters
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Request:
    """What somebody asks a node for. `argument` is as the command needs it."""

    command: str
    argument: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None


def read_request(payload: bytes) -> Request:
    """Return the request of a payload; LanguageError says what is wrong with it."""
    if payload[:1] and 0xA0 <= payload[0] <= 0xBF:
        return _read_map(_load_cbor(payload), None)
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise LanguageError(
            f"byte {error.start + 1} is no text (UTF-8), XML, JSON or CBOR"
        ) from None
    if "\0" in text:
        raise LanguageError("a text without NUL is expected", text.index("\0") + 1)
    surface = detect_surface(text)
    if surface == "words":
        return _read_words(text)
    if surface == "json":
        try:
            members = json.loads(text.lstrip("\ufeff \t\r\n"))
        except (ValueError, RecursionError):
            return Request(SUBSCRIBE, text)  # the language says where
        _check_texts(members)
        return _read_map(members, text)
    return Request(SUBSCRIBE, text)


def read_reference(payload: bytes) -> str | None:
    """Return what a reply to a payload is to repeat, even if the payload is refused."""
    try:
        members = cbor2.loads(payload) if 0xA0 <= payload[0] <= 0xBF else json.loads(payload)
        found = members["request"]
    except Exception:  # noqa: BLE001 - whatever is wrong is said by `read_request`
        return None
    is_right = isinstance(found, str) and not has_surrogates(found)
    return found[:_MAX_REFERENCE] if is_right else None


def _check_texts(value: Any, at: str = "") -> None:
    """Refuse halves of characters, which JSON can write and nothing else can."""
    if isinstance(value, str):
        if has_surrogates(value):
            raise LanguageError(f"half a character (\\ud800 to \\udfff) in {at or 'a text'}")
    elif isinstance(value, dict):
        for key, member in value.items():
            _check_texts(key, at or "a key")
            _check_texts(member, at or f'"{key}"')
    elif isinstance(value, list):
        for member in value:
            _check_texts(member, at)


def _load_cbor(payload: bytes) -> dict[str, Any]:
    try:
        members = load_cbor(payload)
    except ProtocolError as error:
        raise LanguageError(str(error)) from None
    if not isinstance(members, dict) or not all(isinstance(key, str) for key in members):
        raise LanguageError("a CBOR map with texts as keys is expected")
    return members


def _read_words(text: str) -> Request:
    words = text.strip().rstrip(".").split()
    if not words:
        raise LanguageError("the request is empty", 1)
    first = words[0].casefold()
    if first in (LIST, MUTE, "unmute") and len(words) == 1:
        return Request(LIST) if first == LIST else Request(MUTE, first == MUTE)
    if first == UNSUBSCRIBE:
        if len(words) == 1:
            raise LanguageError("unsubscribe from what? a name or an id is expected", len(text) + 1)
        return Request(UNSUBSCRIBE, " ".join(words[1:]).strip('"'))
    return Request(SUBSCRIBE, text)


def _read_map(members: Any, text: str | None) -> Request:
    """Read a JSON object or CBOR map; `text` is the JSON as it was written."""
    if not isinstance(members, dict):
        raise LanguageError("an object is expected", 1)
    if "when" in members:
        return Request(SUBSCRIBE, text if text is not None else _dump(members))
    said = [key for key in _COMMANDS if key in members]
    if len(said) != 1:
        if said:
            raise LanguageError(f'"{said[0]}" and "{said[1]}" do not go together')
        known = ("when", *_COMMANDS)
        meant = [name for key in members for name in suggest_names(str(key), known)]
        raise LanguageError(
            '"when" is missing: the condition of a subscription, or a command',
            suggestions=meant[:3],
        )
    command = said[0]
    reference = members.get("request")
    if reference is not None and not (
        isinstance(reference, str) and len(reference) <= _MAX_REFERENCE
    ):
        raise LanguageError(
            f'"request" is a text of {_MAX_REFERENCE} characters at most, which the reply repeats'
        )
    beside = {k: v for k, v in members.items() if k not in (command, "request")}
    allowed = _BESIDE.get(command, ())
    for key in beside:
        if key not in allowed:
            raise LanguageError(
                f'unknown key "{key}" beside "{command}"', suggestions=suggest_names(key, allowed)
            )
    _check_options(beside)
    return Request(command, _take_argument(command, members[command]), beside, reference)


def _check_options(options: dict[str, Any]) -> None:
    if "name" in options and not (isinstance(options["name"], str) and options["name"].strip()):
        raise LanguageError('"name" is a text')
    if options.get("format", "json") not in FORMATS:
        raise LanguageError('"format" is "json" or "cbor"')


def _take_argument(command: str, value: Any) -> Any:
    if command == SUBSCRIBE:
        if isinstance(value, dict):
            return _dump(value)
        if isinstance(value, str) and value.strip():
            return value
        raise LanguageError('"subscribe" takes a text or an object')
    if command == UNSUBSCRIBE:
        if isinstance(value, str) and value.strip():
            return value.strip()
        raise LanguageError('"unsubscribe" takes a name or an id')
    if command in (LIST, MUTE):
        if isinstance(value, bool):
            return value
        raise LanguageError(f'"{command}" takes true or false')
    return _take_list(command, value)


def _take_list(command: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MAX_LIST:
        raise LanguageError(f'"{command}" takes a list of {_MAX_LIST} at most')
    if command == RECEIVED:
        return [_take_id(entry) for entry in value]
    if command == PROBE:
        if not all(isinstance(entry, str) for entry in value):
            raise LanguageError('"probe" takes texts')
        return value
    if command == PREFER:
        for pair in value:
            if not (
                isinstance(pair, list) and len(pair) == 2 and all(isinstance(n, str) for n in pair)
            ):
                raise LanguageError('"prefer" takes pairs of names: [["better", "worse"]]')
        return [tuple(pair) for pair in value]
    for entry in value:
        if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str)):
            raise LanguageError('"content" takes triples: [["attribute", "operator", value]]')
    return [tuple(entry) for entry in value]


def _take_id(value: Any) -> int:
    if isinstance(value, str) and _ID.fullmatch(value):
        return int(value, 16)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64:
        return value
    raise LanguageError('"received" takes ids as they stood in notifications')


def read_id(text: str) -> int | None:
    """Return the number of an id as it is shown, None for anything else."""
    return int(text, 16) if _ID.fullmatch(text.casefold()) else None


def _dump(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise LanguageError("a subscription in CBOR has what JSON has: no bytes, no tags") from None


# Compiling: from a text to a subscription's body, checked by role, ready for an item ---------

_MAX_LIFE = 1e9  # s
_SPECIAL = ("event", "device")
_MEMO = 256  # texts whose meaning is remembered: many people ask the same, and ask it again
_MEMO_LENGTH = 512  # characters; longer texts are seldom asked twice


class RequestRefused(Exception):
    """The subscriber's role does not allow it."""


@dataclass(frozen=True)
class CompiledRequest:
    """A subscription as it was understood; `reply` goes into the answer."""

    body: SubscriptionBody
    expires: int
    reply: dict[str, Any]


def compile_request(
    request: Request,
    subscriber: str,
    now: int,
    vocabularies: Vocabularies,
    roles: Roles,
    organisation: str | None = None,
) -> CompiledRequest:
    """Return what a request asks for; LanguageError or RequestRefused if there is none."""
    compiled, understood = _read(request.argument, vocabularies.own, organisation)
    options = compiled.options.to_dict()
    if "name" in request.options:
        options["name"] = request.options["name"].strip()
    if request.options.get("format", "json") != "json":
        options["format"] = request.options["format"]
    _check_values(options)
    role = roles.role_of(subscriber)
    features = compiled.vector.features
    names = _name_features(compiled.event, features)
    _check_role(roles, role, compiled.event.name, names)
    life = decode_duration(compiled.vector.validity) if compiled.vector.validity else 0
    body = SubscriptionBody(
        owner=subscriber,
        role=role,
        words=request.argument,
        created=now,
        language=FUZZY,
        vocabulary=vocabularies.own_hash,
        vector=compiled.data,
        options=options,
    )
    reply = {
        "understood": understood,
        "event": compiled.event.name,
        "bytes": len(compiled.data),
        "vector": compiled.data.hex(),
        "approximations": [str(approximation) for approximation in compiled.report],
    }
    return CompiledRequest(body, now + 1000 * life if life else NEVER, reply)


class _Same:
    """A vocabulary as the key of a memo: the very same one, whatever else looks like it."""

    __slots__ = ("vocabulary",)

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __hash__(self) -> int:
        return id(self.vocabulary)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.vocabulary is other.vocabulary


def _read(
    text: Any, vocabulary: Vocabulary, organisation: str | None
) -> tuple[CompiledSubscription, str]:
    """Return what a text means, as a vector and in words."""
    read = _read_again if isinstance(text, str) and len(text) <= _MEMO_LENGTH else _read_once
    return read(text, _Same(vocabulary), organisation)


def _read_once(
    text: Any, same: _Same, organisation: str | None
) -> tuple[CompiledSubscription, str]:
    compiled = compile_subscription(parse(text), same.vocabulary, organisation=organisation)
    return compiled, print_as("words", decompile(compiled.data, same.vocabulary))


_read_again = lru_cache(maxsize=_MEMO)(_read_once)


def compile_content(
    request: Request, subscriber: str, now: int, vocabularies: Vocabularies, roles: Roles
) -> CompiledRequest:
    """Return what a request in typed content asks for."""
    triples = request.argument
    try:
        content = ContentFilter.of(*triples)
        vector = cbor2.dumps([list(triple) for triple in triples])
    except (ContentError, TypeError, ValueError) as error:
        raise LanguageError(f"content: {error}") from None
    event = _find_event(content, vocabularies.own)
    names = sorted({c.name for c in content.constraints} - set(_SPECIAL))
    for name in names:
        if name not in event.attributes:
            raise LanguageError(
                f'content: unknown attribute "{name}" of event {event.name}',
                suggestions=suggest_names(name, [*event.attributes, "device"]),
            )
    options = {key: value for key, value in request.options.items() if key != "valid_for"}
    if options.get("format") == "json":
        del options["format"]
    _check_values(options)
    life = _take_life(request.options)
    role = roles.role_of(subscriber)
    _check_role(roles, role, event.name, names)
    words = str(content)
    body = SubscriptionBody(
        subscriber, role, words, now, CONTENT, vocabularies.own_hash, vector, options
    )
    notes = []
    if vocabularies.lower(body) is None:
        notes.append(
            "sensors do not send for this: it names no attribute, or no value fits it;"
            " it gets what others ask for"
        )
    reply = {
        "understood": words,
        "event": event.name,
        "bytes": len(vector),
        "approximations": notes,
    }
    return CompiledRequest(body, now + int(1000 * life) if life else NEVER, reply)


def _find_event(content: ContentFilter, vocabulary: Vocabulary) -> EventType:
    named = [c.value for c in content.constraints if c.name == "event" and c.op == "="]
    if len(named) != 1:
        raise LanguageError('content: one event is needed, ["event", "=", "patient"]')
    event = vocabulary.events.get(str(named[0]))
    if event is None:
        raise LanguageError(
            f'content: unknown event "{named[0]}"',
            suggestions=suggest_names(str(named[0]), vocabulary.events),
        )
    return event


def _check_role(roles: Roles, role: str, event: str, names: list[str]) -> None:
    reason = roles.check(role, event, names)
    if reason is not None:
        raise RequestRefused(str(reason))


def _name_features(event: EventType, features: int) -> list[str]:
    return [a.name for a in event.attributes.values() if features >> a.bit & 1]


def _check_values(options: dict[str, Any]) -> None:
    try:
        check_options(options)
    except ProtocolError as error:
        raise LanguageError(str(error)) from None


def _take_life(options: dict[str, Any]) -> float:
    value = options.get("valid_for")
    if value is not None and not (is_number(value) and 0 < value < _MAX_LIFE):
        raise LanguageError("valid_for is in seconds, above 0")
    return float(value or 0)
