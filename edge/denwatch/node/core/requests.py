"""Requests of subscribers: decoding them, and compiling what they subscribe to. Pure.

Words, XML (starts with "<"), JSON (starts with "{") or CBOR (a map). Anything that is not one of
the commands is a subscription. A command in JSON or CBOR may carry a `request` that its reply
repeats.

    unsubscribe fever · list · mute · unmute                         words
    {"unsubscribe": "fever"} {"list": true} {"mute": true}           JSON, CBOR
    my top 3 · my top 3 of the last 20, by mean · my top off         words (`preferences.py`)
    {"my_top": 3} {"my_top": {"top": 3, "last": 20, "by": "mean"}} {"my_top": false}
    find heart_rate and pain, without smoke, near north              words: who can
    {"find": ["heart_rate", "pain"], "against": ["smoke"], "near": "north", "watch": true}
    explain fever · {"explain": "fever"}                             why is it not on the sensors?
    I have bed-1, silent for 10 min · hand bed-1 to ada · release bed-1 · who has what
    {"have": "bed-1", "silence": "10 min"} {"have": "1f…", "to": "ada"} {"release": "bed-1"}
    mute fever · {"change": "fever", "score": 0.5, "top": 3, "muted": true}
    pain is severe, escalate to ada after 5 min                      if nobody has it until then
    {"subscribe": "pain is severe", "escalate": {"to": "ada", "after": "5 min"}}
    {"prefer": [["fever", "burns"]]} {"received": ["1f…", …]} {"probe": ["pain is severe"]}
    {"subscribe": "pain is severe", "name": "pain", "format": "cbor", "request": "7"}
    {"subscribe": "pain is very severe and heart_rate is very high", "exact": true}
    {"content": [["event", "=", "patient"], ["triage", "=", "red"]], "name": "red", "top": 3}
    {"story": {"none": "pain is mild", "for": "about 10 min"}, "name": "silence"}

A report is what a person has seen: words, or JSON or CBOR with an age and a reference.

    patient: temperature is high, pulse about 120, pain 6 to 8
    {"report": "patient: pain 6 to 8", "age": 60, "request": "8"}
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import detect_surface
from denwatch.client.language.lexicon import read_quantity
from denwatch.client.language.preferences import (
    is_preference,
    parse_preference,
    read_preference,
)
from denwatch.client.language.reports import parse_reading
from denwatch.client.vocabulary import EventType, Vocabulary
from denwatch.client.vocabulary.values import read_duration
from denwatch.node.core.device_finder import FEW, MAX_FOUND, MAX_NAMES, ServiceNeed
from denwatch.node.core.items import (
    FORMATS,
    MAX_SILENCE,
    MAX_SUBSCRIBER,
    NEVER,
    SubscriptionBody,
    check_options,
    check_preferences,
    has_surrogates,
    is_name,
    is_number,
    load_cbor,
)
from denwatch.node.core.languages import EXACT_LANGUAGE, load_languages
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.subscriptions import Roles
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.vectors import NotificationVector

SUBSCRIBE = "subscribe"
UNSUBSCRIBE = "unsubscribe"
LIST = "list"
MUTE = "mute"
PREFER = "prefer"
RECEIVED = "received"
PROBE = "probe"
MY_TOP = "my_top"
FIND = "find"
EXPLAIN = "explain"
HAVE = "have"
RELEASE = "release"
CHANGE = "change"
_COMMANDS = (
    UNSUBSCRIBE,
    LIST,
    MUTE,
    PREFER,
    RECEIVED,
    PROBE,
    MY_TOP,
    FIND,
    EXPLAIN,
    HAVE,
    RELEASE,
    CHANGE,
)
_BESIDE = ("name", "format", "exact", "escalate")
_BESIDE_OTHERS = (
    "name",
    "format",
    "score",
    "top",
    "expiry",
    "valid_for",
    "whole",
    "escalate",
)  # the fuzzy language says most of them
_BESIDE_COMMANDS = {
    FIND: ("against", "near", "limit", "watch"),
    HAVE: ("silence", "to"),
    CHANGE: ("name", "score", "top", "expiry", "format", "whole", "muted", "prefer", "escalate"),
}
_CLAIMS = (
    (HAVE, re.compile(r"who\s+has\s+what\s*\??", re.IGNORECASE)),
    (
        HAVE,
        re.compile(
            r"(?:i\s+)?have\s+(?P<what>[^\s,]+)(?:[\s,]+silent\s+for\s+(?P<silence>.+?))?\.?",
            re.IGNORECASE,
        ),
    ),
    (HAVE, re.compile(r"hand\s+(?P<what>[^\s,]+)\s+to\s+(?P<to>\S+?)\.?", re.IGNORECASE)),
    (RELEASE, re.compile(r"release\s+(?P<what>[^\s,]+?)\.?", re.IGNORECASE)),
)
_ESCALATE = re.compile(
    r"[\s,]+escalate\s+to\s+(?P<to>\S+)\s+after\s+(?P<after>[^,]+?)\s*\.?\s*\Z", re.IGNORECASE
)
_NEED = re.compile(
    r"find\s+(?P<find>.+?)(?:[\s,]+without\s+(?P<against>.+?))?"
    r"(?:[\s,]+near\s+(?P<near>\S+?))?(?P<watch>[\s,]+and\s+watch)?\.?",
    re.IGNORECASE,
)
_MAX_LIST = 4096
_MAX_PROBE = 16  # texts: each is compiled, about half a millisecond during which nobody is served
_MAX_REFERENCE = 64  # characters
_MAX_GAP = 256  # characters
_LONG_GAP = re.compile(rf"[\s,]{{{_MAX_GAP + 1}}}")
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Request:
    """What somebody asks a node for. `argument` is as the command needs it."""

    command: str
    argument: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    reference: str | None = None
    language: int = FUZZY  # of a subscription


class ClaimRequest(NamedTuple):
    """Who is to have what, and for how long it is silent (ms); "" is whoever asks."""

    subject: str
    holder: str = ""
    silence: int = 0


def read_request(payload: bytes) -> Request:
    """Return the request of a payload; LanguageError says what is wrong with it."""
    if payload[:1] and 0xA0 <= payload[0] <= 0xBF:
        members = _load_cbor(payload)
        _check_texts(members)
        return _read_map(members, None)
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
    return Request(SUBSCRIBE, text, language=load_languages().find_language(text))


def read_reference(payload: bytes) -> str | None:
    """Return what a reply to a payload is to repeat, even if the payload is refused."""
    try:
        members = load_cbor(payload) if 0xA0 <= payload[0] <= 0xBF else json.loads(payload)
        found = members["request"]
    except Exception:  # noqa: BLE001 - whatever is wrong is said by `read_request`
        return None
    is_right = isinstance(found, str) and not has_surrogates(found)
    return found[:_MAX_REFERENCE] if is_right else None


def _check_texts(value: Any, at: str = "") -> None:
    """Refuse halves of characters, which JSON can write and nothing else can, and long gaps."""
    if isinstance(value, str):
        if has_surrogates(value):
            raise LanguageError(f"half a character (\\ud800 to \\udfff) in {at or 'a text'}")
        _check_gaps(value, at)
    elif isinstance(value, dict):
        for key, member in value.items():
            _check_texts(key, at or "a key")
            _check_texts(member, at or f'"{key}"')
    elif isinstance(value, list):
        for member in value:
            _check_texts(member, at)


def _check_gaps(text: str, at: str = "") -> None:
    """Refuse what patterns take time for that grows with the square of its length."""
    gap = _LONG_GAP.search(text)
    if gap is not None:
        what = f"{_MAX_GAP} blanks and commas in a row at most" + (f", in {at}" if at else "")
        raise LanguageError(what, gap.start() + 1)


def _load_cbor(payload: bytes) -> dict[str, Any]:
    try:
        members = load_cbor(payload)
    except ProtocolError as error:
        raise LanguageError(str(error)) from None
    if not isinstance(members, dict) or not all(isinstance(key, str) for key in members):
        raise LanguageError("a CBOR map with texts as keys is expected")
    return members


def _read_words(text: str) -> Request:
    _check_gaps(text)
    words = text.strip().rstrip(".").split()
    if not words:
        raise LanguageError("the request is empty", 1)
    first = words[0].casefold()
    if first in (LIST, MUTE, "unmute") and len(words) == 1:
        return Request(LIST) if first == LIST else Request(MUTE, first == MUTE)
    if first in (MUTE, "unmute"):
        name = " ".join(words[1:]).strip('"')
        return Request(CHANGE, name, {"muted": True if first == MUTE else None})
    for command, pattern in _CLAIMS:
        match = pattern.fullmatch(text.strip())
        if match is not None:
            said = {key: value for key, value in match.groupdict().items() if value}
            what = said.pop("what", True)
            return Request(command, _take_claim(command, what, said))
    if first == UNSUBSCRIBE:
        if len(words) == 1:
            raise LanguageError("unsubscribe from what? a name or an id is expected", len(text) + 1)
        return Request(UNSUBSCRIBE, " ".join(words[1:]).strip('"'))
    if first == EXPLAIN and len(words) > 1:
        return Request(EXPLAIN, " ".join(words[1:]).strip('"'))
    if first == FIND and len(words) > 1:
        return _read_need(text)
    if is_preference(text):
        return Request(MY_TOP, _check_preference(parse_preference(text)))
    escalation = _ESCALATE.search(text)
    beside: dict[str, Any] = {}
    if escalation is not None:
        beside["escalate"] = _take_escalation(escalation.groupdict())
        text = text[: escalation.start()]
    return Request(SUBSCRIBE, text, beside, language=load_languages().find_language(text))


def _read_map(members: Any, text: str | None) -> Request:
    """Read a JSON object or CBOR map; `text` is the JSON as it was written."""
    if not isinstance(members, dict):
        raise LanguageError("an object is expected", 1)
    if "when" in members:
        found = {"escalate": _take_escalation(members["escalate"])} if "escalate" in members else {}
        if found or text is None:
            text = _dump({key: value for key, value in members.items() if key != "escalate"})
        return Request(SUBSCRIBE, text, found)
    languages = {language.key: language.id for language in load_languages()}
    commands = (*languages, *_COMMANDS)
    said = [key for key in commands if key in members]
    if len(said) != 1:
        if said:
            raise LanguageError(f'"{said[0]}" and "{said[1]}" do not go together')
        known = ("when", *commands)
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
    language = languages.get(command, -1)
    if command == SUBSCRIBE:  # its text may be in any language, as without the object around it
        members = {**members, SUBSCRIBE: _take_argument(SUBSCRIBE, members[SUBSCRIBE])}
        language = load_languages().find_language(members[SUBSCRIBE])
    allowed: tuple[str, ...] = _BESIDE_COMMANDS.get(command, ())
    if language >= 0:
        allowed = _BESIDE if language == FUZZY else _BESIDE_OTHERS
    for key in beside:
        if key not in allowed:
            raise LanguageError(
                f'unknown key "{key}" beside "{command}"', suggestions=suggest_names(key, allowed)
            )
    if command == FIND:
        return Request(FIND, _take_need(members[FIND], beside), beside, reference)
    if command in (HAVE, RELEASE):
        claim = _take_claim(command, members[command], beside)
        return Request(command, claim, {}, reference)
    if beside.get("escalate") is not None:
        beside["escalate"] = _take_escalation(beside["escalate"])
    if command == CHANGE:
        if not beside:
            raise LanguageError(f"change what? one of {', '.join(allowed)}")
        return Request(CHANGE, _take_argument(EXPLAIN, members[CHANGE]), beside, reference)
    _check_options(beside)
    if language > FUZZY:
        return Request(SUBSCRIBE, members[command], beside, reference, language)
    argument = _take_argument(command, members[command])
    if command == SUBSCRIBE and not beside.get("exact"):  # words may tell a story
        language = load_languages().find_language(argument)
    return Request(command, argument, beside, reference, max(language, FUZZY))


def _check_options(options: dict[str, Any]) -> None:
    if "name" in options and not (isinstance(options["name"], str) and options["name"].strip()):
        raise LanguageError('"name" is a text')
    if options.get("format", "json") not in FORMATS:
        raise LanguageError('"format" is "json" or "cbor"')
    if not isinstance(options.get("exact", False), bool):
        raise LanguageError('"exact" is true or false')


def _take_argument(command: str, value: Any) -> Any:
    if command == SUBSCRIBE:
        if isinstance(value, dict):
            return _dump(value)
        if isinstance(value, str) and value.strip():
            return value
        raise LanguageError('"subscribe" takes a text or an object')
    if command in (UNSUBSCRIBE, EXPLAIN):
        if isinstance(value, str) and value.strip():
            return value.strip()
        raise LanguageError(f'"{command}" takes a name or an id')
    if command in (LIST, MUTE):
        if isinstance(value, bool):
            return value
        raise LanguageError(f'"{command}" takes true or false')
    if command == MY_TOP:
        return _check_preference(read_preference(value))
    return _take_list(command, value)


def _take_claim(command: str, value: Any, beside: dict[str, Any]) -> ClaimRequest | None:
    """Return who is to have what; None asks who has what."""
    if command == HAVE and value is True and not beside:
        return None
    if not isinstance(value, str) or not is_name(value.strip(), MAX_SUBSCRIBER):
        raise LanguageError(f'"{command}" takes a device, or the id of a notification')
    subject, holder = value.strip(), beside.get("to", "")
    if _ID.fullmatch(subject.casefold()):
        subject = f"#{subject.casefold()}"
    if not (holder == "" or is_name(holder, MAX_SUBSCRIBER)):
        raise LanguageError('"to" is the name of a person')
    silence = _take_time("silence", beside["silence"]) if "silence" in beside else 0
    if 1000 * silence > MAX_SILENCE:
        raise LanguageError(f'"silence" is {MAX_SILENCE // 3_600_000} h at most')
    return ClaimRequest(subject, holder, int(1000 * silence))


def _take_escalation(value: Any) -> list[Any]:
    """Return who is to hear of it and after how many seconds, as options have it."""
    is_whole = isinstance(value, dict) and value.keys() == {"to", "after"}
    if not is_whole or not is_name(value["to"], MAX_SUBSCRIBER):
        raise LanguageError('"escalate" takes {"to": a name, "after": a time}')
    return [value["to"], _take_time("after", value["after"])]


def _take_time(key: str, value: Any) -> float:
    """Return the seconds that a number or a text like "5 min" says."""
    if isinstance(value, str):
        value = read_duration(read_quantity(value.strip(), None))
    if not (is_number(value) and 0 < value < _MAX_LIFE):
        raise LanguageError(f'"{key}" is a time, such as "5 min", or in seconds')
    return float(value)


def _read_need(text: str) -> Request:
    """Read "find heart_rate and pain without camera near north"; "find nothing" ends a watch."""
    match = _NEED.fullmatch(text.strip())
    if match is None:
        raise LanguageError("find what? find heart_rate and pain, without smoke, near north", 6)
    wanted, against, near = match["find"], match["against"], match["near"]
    if wanted.casefold() == "nothing":
        return Request(FIND, None)
    beside: dict[str, Any] = {"watch": bool(match["watch"])}
    if against:
        beside["against"] = _split_names(against)
    if near:
        beside["near"] = near.strip('"')
    return Request(FIND, _take_need(_split_names(wanted), beside), beside)


def _split_names(text: str) -> list[str]:
    parts = re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s+or\s+", text.strip(" ,"))
    return [part.strip().strip('"') for part in parts if part.strip()]


def _take_need(value: Any, beside: dict[str, Any]) -> ServiceNeed | None:
    if value is False:
        return None
    names = _take_names(FIND, value)
    if not names:
        raise LanguageError('"find" names at least one attribute')
    near, limit = beside.get("near", ""), beside.get("limit", FEW)
    if not (near == "" or is_name(near, MAX_SUBSCRIBER)):
        raise LanguageError('"near" is the name of a node, a person or a device')
    if not (type(limit) is int and 1 <= limit <= MAX_FOUND):
        raise LanguageError(f'"limit" is a whole number, 1 to {MAX_FOUND}')
    if not isinstance(beside.get("watch", False), bool):
        raise LanguageError('"watch" is true or false')
    return ServiceNeed(names, _take_names("against", beside.get("against", [])), near, limit)


def _take_names(key: str, value: Any) -> list[str]:
    is_list = isinstance(value, list) and len(value) <= MAX_NAMES
    if not is_list or not all(isinstance(name, str) and name.strip() for name in value):
        raise LanguageError(f'"{key}" takes a list of {MAX_NAMES} names of attributes at most')
    return [str(name) for name in value]


def _check_preference(options: dict[str, Any]) -> dict[str, Any]:
    """Return options that are right; LanguageError says which is not."""
    try:
        check_preferences(options)
    except ProtocolError as error:
        raise LanguageError(str(error)) from None
    if "prefer" in options:
        raise LanguageError('"prefer" is a request of its own')
    return options


def _take_list(command: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MAX_LIST:
        raise LanguageError(f'"{command}" takes a list of {_MAX_LIST} at most')
    if command == RECEIVED:
        return [_take_id(entry) for entry in value]
    if command == PROBE:
        if len(value) > _MAX_PROBE or not all(isinstance(entry, str) for entry in value):
            raise LanguageError(f'"probe" takes {_MAX_PROBE} texts at most')
        return value
    for pair in value:
        if not (
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(n, str) for n in pair)
        ):
            raise LanguageError('"prefer" takes pairs of names: [["better", "worse"]]')
    return [tuple(pair) for pair in value]


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


# Reports: what somebody says that they have seen --------------------------------------------

_MAX_AGE = 7 * 86_400  # s
_MAX_REPORT = 1024  # characters


@dataclass(frozen=True)
class PersonalReport:
    """A report as it was understood; the vector has no number yet."""

    event: EventType
    vector: NotificationVector
    age: int  # ms


def compile_report(
    payload: bytes, vocabulary: Vocabulary, roles: Roles, subscriber: str
) -> PersonalReport:
    """Return what a payload reports; LanguageError or RequestRefused if it is nothing."""
    words, age = _read_report(payload)
    if len(words) > _MAX_REPORT:
        raise LanguageError(f"a report has {_MAX_REPORT} characters at most")
    vector = parse_reading(words, vocabulary)
    event = vocabulary.find_number(vector.event)
    assert event is not None, "the event was found by its name"
    features = vector.features | vector.faults
    names = [a.name for a in event.attributes.values() if features >> a.bit & 1]
    _check_role(roles, subscriber, event.name, names)
    return PersonalReport(event, vector, int(1000 * age))


def _read_report(payload: bytes) -> tuple[str, float]:
    """Return the words of a report, and how long ago that was, in seconds."""
    is_cbor = bool(payload) and 0xA0 <= payload[0] <= 0xBF
    if not is_cbor and payload.lstrip()[:1] != b"{":
        try:
            return payload.decode(), 0
        except UnicodeDecodeError as error:
            raise LanguageError(f"byte {error.start + 1} is no text (UTF-8)") from None
    try:
        members = _load_cbor(payload) if is_cbor else json.loads(payload)
    except (ValueError, RecursionError):
        raise LanguageError("this is no JSON", 1) from None
    for key in members:
        if key not in ("report", "age", "request"):
            raise LanguageError(f'unknown key "{key}" beside "report"')
    words, age = members.get("report"), members.get("age", 0)
    if not isinstance(words, str) or has_surrogates(words):
        raise LanguageError('"report" takes a text')
    if not (is_number(age) and 0 <= age <= _MAX_AGE):
        raise LanguageError(f"age is in seconds, {_MAX_AGE} at most")
    return words, age


# Compiling: from a text to a subscription's body, checked by role, ready for an item ---------

_MAX_LIFE = 1e9  # s


class RequestRefused(Exception):
    """The subscriber's role does not allow it."""


@dataclass(frozen=True)
class CompiledRequest:
    """A subscription as it was understood; `reply` goes into the answer."""

    body: SubscriptionBody
    event: EventType
    expires: int
    reply: dict[str, Any]


def compile_request(
    request: Request,
    subscriber: str,
    now: int,
    vocabularies: Vocabularies,
    roles: Roles,
    organisation: str | None = None,
    sensed: Callable[[], Iterable[str]] = tuple,
) -> CompiledRequest:
    """Return what a request asks for; LanguageError or RequestRefused if there is none.

    `sensed` gives the attributes that devices sense, which decide where words mean several things.
    """
    languages = load_languages()
    vocabulary = vocabularies.own.prefer(organisation)
    asked = dict(request.options)
    is_exact = asked.pop("exact", False)
    language = EXACT_LANGUAGE if is_exact else languages.find(request.language)
    try:
        found = language.look_up(request.argument, vocabulary)
    except LanguageError as error:
        if not error.is_question:
            raise
        present = _list_present(vocabulary, roles, subscriber, sensed())
        found = language.look_up(request.argument, vocabulary.surround(present))
    options = {**found.options, **asked}
    if "escalate" in options:
        to = options["escalate"][0]
        if to == subscriber or not roles.role_of(to):
            raise LanguageError(f'"escalate": there is nobody else named "{to}"')
        _check_role(roles, to, found.event.name, found.attributes)
    life = _take_life(options) or found.life
    if "name" in request.options:
        options["name"] = options["name"].strip()
    if options.get("format") == "json":
        del options["format"]
    try:
        check_options(options)
    except ProtocolError as error:
        raise LanguageError(str(error)) from None
    role = _check_role(roles, subscriber, found.event.name, found.attributes)
    for event, attributes in found.others:
        _check_role(roles, subscriber, event, attributes)
    body = SubscriptionBody(
        owner=subscriber,
        role=role,
        words=found.source
        or (request.argument if isinstance(request.argument, str) else found.words),
        created=now,
        language=request.language,
        vocabulary=vocabularies.own_hash,
        vector=found.data,
        options=options,
    )
    notes = list(found.notes)
    if languages.lower(body, vocabulary) is None:
        notes.append(
            "sensors do not send for this: it names no attribute, or no value fits it;"
            " it gets what others ask for"
        )
    reply = {
        "understood": found.words,
        "event": found.event.name,
        "bytes": len(found.data),
        **({"vector": found.data.hex()} if request.language == FUZZY else {}),
        "approximations": notes,
        "taken": list(found.taken),
    }
    return CompiledRequest(body, found.event, now + int(1000 * life) if life else NEVER, reply)


def _list_present(
    vocabulary: Vocabulary, roles: Roles, subscriber: str, sensed: Iterable[str]
) -> frozenset[str]:
    """Return the attributes that a subscriber may see, of those that devices sense if any are."""
    role = roles.role_of(subscriber)
    visible = frozenset(
        attribute.path
        for attribute in vocabulary.iterate_attributes()
        if roles.check(role, attribute.event, [attribute.name]) is None
    )
    return visible & frozenset(sensed) or visible


def _check_role(roles: Roles, subscriber: str, event: str, names: Sequence[str]) -> str:
    """Return the role of a subscriber who may see these attributes."""
    role = roles.role_of(subscriber)
    reason = roles.check(role, event, names)
    if reason is not None:
        raise RequestRefused(str(reason))
    return role


def _take_life(options: dict[str, Any]) -> float:
    value = options.pop("valid_for", None)
    if value is not None and not (is_number(value) and 0 < value < _MAX_LIFE):
        raise LanguageError("valid_for is in seconds, above 0")
    return float(value or 0)
