"""What a subscriber and a node say to each other: topics, requests, replies, notes.

No I/O, no clock. Only this file knows how these messages look as bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from denwatch.client.subscriber.errors import RefusedError, SubscriberError

if TYPE_CHECKING:
    from denwatch.client.syntax import SubscriptionTree as Tree

ROOT = "dens/1/"
STATUS = ROOT + "status/"
MAX_PAYLOAD = 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[^\x00-\x1f\x7f/+#$]{1,64}")


def check_name(name: str) -> str:
    """Return a subscriber's name if it can stand in a topic."""
    if not _NAME.fullmatch(name):
        raise SubscriberError(f"{name!r} is no name: 1 to 64 characters, without / + # and $")
    return name


@dataclass(frozen=True)
class Topics:
    """The three topics of one subscriber."""

    requests: str
    replies: str
    notes: str

    @classmethod
    def of(cls, name: str) -> Topics:
        """Return the topics of a name."""
        check_name(name)
        return cls(f"{ROOT}sub/{name}", f"{ROOT}reply/{name}", f"{ROOT}note/{name}")


# Requests -----------------------------------------------------------------------------------


def write_text(wanted: str | Tree | Mapping[str, Any]) -> str:
    """Return what was asked for as text: words, XML and JSON as they are, a tree as JSON."""
    if isinstance(wanted, str):
        return wanted
    if isinstance(wanted, Mapping):
        return json.dumps(wanted, ensure_ascii=False, allow_nan=False)
    from denwatch.client.language.json import print_json

    return print_json(wanted)


def derive_name(text: str) -> str:
    """Return the name of a subscription that was given none: the same for the same text."""
    return "s" + hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def write_subscribe(request: str, name: str, text: str) -> bytes:
    """Return the request for a subscription; asked twice it changes nothing."""
    return _write({"subscribe": text, "name": name, "request": request})


def write_unsubscribe(request: str, name: str) -> bytes:
    """Return the request to end a subscription."""
    return _write({"unsubscribe": name, "request": request})


def write_list(request: str) -> bytes:
    """Return the question which subscriptions a node knows."""
    return _write({"list": True, "request": request})


def write_probe(request: str, texts: Iterable[str], limit: int) -> bytes:
    """Return the question what these subscriptions would add to a node: the first ones, if all
    are more than `limit` bytes."""
    asked: list[str] = []
    for text in texts:
        limit -= len(json.dumps(text))
        if limit < 0:
            break
        asked.append(text)
    return _write({"probe": asked, "request": request})


def write_received(keys: Iterable[str]) -> bytes:
    """Return the report of notes that are on our disk, their ids as they came."""
    return _write({"received": [json.loads(key) for key in keys]})


def _write(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


# Replies ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """A node's answer. `request` is "" for an answer to somebody who gave no number."""

    request: str
    is_ok: bool
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_question(self) -> bool:
        """Whether it is no answer, but a node that asks whether we listen."""
        return self.fields.get("ask") == "listening"

    def build_error(self) -> RefusedError:
        """Return what the node has against the request."""
        hints = self.fields.get("suggestions")
        return RefusedError(
            _take_text(self.fields, "error") or "the node refused, and did not say why",
            _take_count(self.fields, "at"),
            _take_count(self.fields, "length") or 1,
            _take_text(self.fields, "hint"),
            [str(hint) for hint in hints] if isinstance(hints, list) else (),
        )


def read_reply(payload: bytes) -> Reply | None:
    """Return a reply; None for bytes that are none."""
    document = read_object(payload)
    if document is None or not isinstance(document.get("ok"), bool):
        return None
    return Reply(_take_text(document, "request"), document["ok"], document)


# Notes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Note:
    """A notification for us. Times are ms since 1970; degrees and scores as the node says them.

    `key` is the id as JSON, by which notes are told apart; `fields` is all that the node sent.
    """

    key: str
    event: str
    values: Mapping[str, Any]
    degree: float
    possible: float
    certain: float
    why: Any
    at: int | None
    expires: int | None
    score: float
    fields: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def id(self) -> int | str:
        """The id as the node sent it."""
        found: int | str = json.loads(self.key)
        return found

    @property
    def reading(self) -> str | None:
        """What was read, by device, start and number: the same through whichever node it came."""
        found = self.fields.get("reading")
        return found if isinstance(found, str) and found else None

    @property
    def is_certain(self) -> bool:
        """Whether the reading surely meets what was asked; else it possibly does.

        Sure is a reading without doubt, whose two degrees are one, and one that meets it at least
        by half even at its worst.
        """
        return self.certain >= min(self.possible, 0.5)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The names of our subscriptions that it answers, where the node says them."""
        for key in ("subscriptions", "subscription"):
            found = self.fields.get(key)
            if isinstance(found, str):
                return (found,)
            if isinstance(found, list):
                return tuple(str(name) for name in found)
        return ()

    def is_expired(self, now: int) -> bool:
        """Return whether it no longer counts."""
        return self.expires is not None and self.expires <= now


def read_note(payload: bytes) -> Note | None:
    """Return a note; None for bytes that are none, or without an id."""
    document = read_object(payload)
    if document is None:
        return None
    key = document.get("id")
    if isinstance(key, bool) or not isinstance(key, int | str) or key == "":
        return None
    values = document.get("values")
    degree = _take_number(document, "degree", 0.0)
    return Note(
        json.dumps(key),
        _take_text(document, "event"),
        values if isinstance(values, dict) else {},
        degree,
        _take_number(document, "possible", degree),
        _take_number(document, "certain", 0.0),
        document.get("why"),
        _take_time(document, "at"),
        _take_time(document, "expires"),
        _take_number(document, "score", 0.0),
        document,
    )


def read_object(payload: bytes) -> dict[str, Any] | None:
    """Return a JSON (or CBOR) object; None for anything else, however it is broken."""
    if not payload or len(payload) > MAX_PAYLOAD:
        return None
    try:
        if payload[:1] == b"{":
            document = json.loads(payload)
        else:
            import cbor2

            document = cbor2.loads(payload)
    except Exception:  # noqa: BLE001 - whatever a decoder makes of foreign bytes, it is no message
        return None
    return document if isinstance(document, dict) else None


def _take_text(document: Mapping[str, Any], key: str) -> str:
    found = document.get(key)
    return found if isinstance(found, str) else ""


def _take_count(document: Mapping[str, Any], key: str) -> int | None:
    found = _take_number(document, key, -1.0)
    return None if found < 0 else int(found)


def _take_time(document: Mapping[str, Any], key: str) -> int | None:
    """Return a time in ms: a number is one; a text is a date and time, in UTC unless it says."""
    found = document.get(key)
    if not isinstance(found, str):
        return _take_count(document, key)
    try:
        moment = datetime.fromisoformat(found)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _take_number(document: Mapping[str, Any], key: str, default: float) -> float:
    found = document.get(key)
    if not isinstance(found, int | float) or not math.isfinite(found):
        return default
    return float(found)
