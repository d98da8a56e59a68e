"""JSON with places: every value knows the characters that it came from, so that errors can point.

Strict: duplicate keys, NaN, trailing text and nesting beyond a limit are refused. The standard
library's decoder reads strings; this file adds only the places, which it does not give.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias

from denwatch.client.errors import LanguageError
from denwatch.client.syntax import SourceSpan

MAX_CHARACTERS = 65536
MAX_DEPTH = 64

Content: TypeAlias = "dict[str, JsonMember] | list[JsonValue] | str | float | bool | None"

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_DECODER = json.JSONDecoder()
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class JsonValue:
    """A JSON value and where it stands."""

    value: Content
    span: SourceSpan


@dataclass(frozen=True)
class JsonMember:
    """A value of an object, and where its key stands."""

    item: JsonValue
    key: SourceSpan


def parse_source(text: str) -> JsonValue:
    """Return the one value of a JSON text."""
    if len(text) > MAX_CHARACTERS:
        message = f"{len(text)} characters, {MAX_CHARACTERS} is the limit"
        raise LanguageError(message, MAX_CHARACTERS + 1)
    start = 1 if text.startswith("\ufeff") else 0
    item, end = _parse(text, _skip(text, start), 0)
    end = _skip(text, end)
    if end < len(text):
        raise LanguageError("text after the end of the JSON value", end + 1)
    return item


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _parse(text: str, at: int, depth: int) -> tuple[JsonValue, int]:
    if depth > MAX_DEPTH:
        raise LanguageError(f"nested more than {MAX_DEPTH} deep", at + 1)
    head = text[at : at + 1]
    value: Content
    if head == "{":
        value, end = _parse_object(text, at, depth)
    elif head == "[":
        value, end = _parse_array(text, at, depth)
    elif head == '"':
        value, end = _parse_string(text, at)
    else:
        value, end = _parse_plain(text, at)
    return JsonValue(value, SourceSpan(at, end)), end


def _parse_object(text: str, at: int, depth: int) -> tuple[dict[str, JsonMember], int]:
    members: dict[str, JsonMember] = {}
    place = _skip(text, at + 1)
    if text[place : place + 1] == "}":
        return members, place + 1
    while True:
        if text[place : place + 1] != '"':
            raise LanguageError("a key in double quotes is expected", place + 1)
        key, end = _parse_string(text, place)
        span = SourceSpan(place, end)
        if key in members:
            raise LanguageError.at_span(f'the key "{key}" stands here twice', span)
        place = _skip(text, end)
        if text[place : place + 1] != ":":
            raise LanguageError('":" is expected after a key', place + 1)
        item, end = _parse(text, _skip(text, place + 1), depth + 1)
        members[key] = JsonMember(item, span)
        place = _skip(text, end)
        if text[place : place + 1] == "}":
            return members, place + 1
        if text[place : place + 1] != ",":
            raise LanguageError('"," or "}" is expected', place + 1)
        place = _skip(text, place + 1)


def _parse_array(text: str, at: int, depth: int) -> tuple[list[JsonValue], int]:
    items: list[JsonValue] = []
    place = _skip(text, at + 1)
    if text[place : place + 1] == "]":
        return items, place + 1
    while True:
        item, end = _parse(text, place, depth + 1)
        items.append(item)
        place = _skip(text, end)
        if text[place : place + 1] == "]":
            return items, place + 1
        if text[place : place + 1] != ",":
            raise LanguageError('"," or "]" is expected', place + 1)
        place = _skip(text, place + 1)


def _parse_string(text: str, at: int) -> tuple[str, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise LanguageError(error.msg.lower(), min(error.pos, len(text)) + 1) from None
    assert isinstance(value, str)
    return value, end


def _parse_plain(text: str, at: int) -> tuple[float | bool | None, int]:
    for word, value in _WORDS.items():
        if text.startswith(word, at):
            return value, at + len(word)
    match = _NUMBER.match(text, at)
    if match is None:
        raise LanguageError("a JSON value is expected", at + 1)
    number = float(match.group())
    if number in (float("inf"), float("-inf")):
        raise LanguageError.at_span("this number is too large", SourceSpan(at, match.end()))
    return number, match.end()
