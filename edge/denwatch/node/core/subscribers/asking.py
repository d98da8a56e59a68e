"""From a text to a subscription's body: compiled, checked by role, ready for an item. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cbor2
from denwatch.client.compiler import CompiledSubscription, compile_subscription, decompile
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import parse, print_as
from denwatch.client.vocabulary import EventType, Vocabulary
from denwatch.node.core.items import NEVER, SubscriptionBody
from denwatch.node.core.subscribers.requests import Request
from denwatch.node.core.subscribers.settings import Roles
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.node.matching.plugins import CONTENT, FUZZY
from denwatch.node.ranking.content import ContentError, ContentFilter
from denwatch.protocol.timecode import decode_duration

MAX_NAME = 64
_MAX_TOP = 10_000
_SPECIAL = ("event", "device")
_MEMO = 256  # texts whose meaning is remembered: many people ask the same, and ask it again
_MEMO_LENGTH = 512  # characters; longer texts are seldom asked twice


class Refused(Exception):
    """The subscriber's role does not allow it."""


@dataclass(frozen=True)
class Asked:
    """A subscription as it was understood; `told` goes into the reply."""

    body: SubscriptionBody
    expires: int
    told: dict[str, Any]


def compile_request(
    request: Request,
    owner: str,
    now: int,
    vocabularies: Vocabularies,
    roles: Roles,
    organisation: str | None = None,
) -> Asked:
    """Return what a request asks for; LanguageError if it says nothing, Refused if it may not."""
    compiled, understood = _read(request.argument, vocabularies.own, organisation)
    options = compiled.options.to_dict()
    if "name" in request.options:
        options["name"] = request.options["name"].strip()
    if request.options.get("format", "json") != "json":
        options["format"] = request.options["format"]
    _check_options(options)
    role = roles.role_of(owner)
    features = compiled.vector.features
    names = _name_features(compiled.event, features)
    _check_role(roles, role, compiled.event.name, names)
    life = decode_duration(compiled.vector.validity) if compiled.vector.validity else 0
    body = SubscriptionBody(
        owner=owner,
        role=role,
        words=request.argument,
        created=now,
        language=FUZZY,
        vocabulary=vocabularies.own_hash,
        vector=compiled.data,
        options=options,
    )
    told = {
        "understood": understood,
        "event": compiled.event.name,
        "bytes": len(compiled.data),
        "vector": compiled.data.hex(),
        "approximations": [str(approximation) for approximation in compiled.report],
    }
    return Asked(body, now + 1000 * life if life else NEVER, told)


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
    request: Request, owner: str, now: int, vocabularies: Vocabularies, roles: Roles
) -> Asked:
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
    _check_options(options)
    life = _take_positive(request.options, "valid_for")
    role = roles.role_of(owner)
    _check_role(roles, role, event.name, names)
    words = str(content)
    body = SubscriptionBody(
        owner, role, words, now, CONTENT, vocabularies.own_hash, vector, options
    )
    told = {"understood": words, "event": event.name, "bytes": len(vector), "approximations": []}
    return Asked(body, now + int(1000 * life) if life else NEVER, told)


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
        raise Refused(str(reason))


def _name_features(event: EventType, features: int) -> list[str]:
    return [a.name for a in event.attributes.values() if features >> a.bit & 1]


def _check_options(options: dict[str, Any]) -> None:
    name = options.get("name")
    if name is not None and not (0 < len(name) <= MAX_NAME and name.isprintable()):
        raise LanguageError(f"a name has 1 to {MAX_NAME} printable characters")
    score = options.get("score")
    if score is not None and not (_is_number(score) and 0 <= score <= 1):
        raise LanguageError("score is between 0 and 1")
    top = options.get("top")
    if top is not None and not (isinstance(top, int) and 1 <= top <= _MAX_TOP):
        raise LanguageError(f"top is a whole number, 1 to {_MAX_TOP}")
    _take_positive(options, "expiry")


def _take_positive(options: dict[str, Any], name: str) -> float:
    value = options.get(name)
    if value is None:
        return 0.0
    if not (_is_number(value) and 0 < value < 1e9):
        raise LanguageError(f"{name} is in seconds, above 0")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
