"""Requests as people and apps write them, to requests as a node takes them. Pure.

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
from typing import Any

import cbor2
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import detect_surface

SUBSCRIBE = "subscribe"
CONTENT = "content"
UNSUBSCRIBE = "unsubscribe"
LIST = "list"
MUTE = "mute"
PREFER = "prefer"
RECEIVED = "received"
PROBE = "probe"
_COMMANDS = (SUBSCRIBE, CONTENT, UNSUBSCRIBE, LIST, MUTE, PREFER, RECEIVED, PROBE)
_BESIDE = {
    SUBSCRIBE: ("name", "format"),
    CONTENT: ("name", "format", "score", "top", "expiry", "valid_for"),
}
_FORMATS = ("json", "cbor")
_MAX_LIST = 4096
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
        return _read_map(members, text)
    return Request(SUBSCRIBE, text)


def read_reference(payload: bytes) -> str | None:
    """Return what a reply to a payload is to repeat, even if the payload is refused."""
    try:
        members = cbor2.loads(payload) if 0xA0 <= payload[0] <= 0xBF else json.loads(payload)
        found = members["request"]
    except Exception:  # noqa: BLE001 - whatever is wrong is said by `read_request`
        return None
    return found[:64] if isinstance(found, str) else None


def _load_cbor(payload: bytes) -> dict[str, Any]:
    try:
        members = cbor2.loads(payload)
    except (cbor2.CBORDecodeError, ValueError, RecursionError, TypeError, OverflowError) as error:
        raise LanguageError(f"this is no CBOR: {error}") from None
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
    if reference is not None and not isinstance(reference, str):
        raise LanguageError('"request" is a text that the reply repeats')
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
    if options.get("format", "json") not in _FORMATS:
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
