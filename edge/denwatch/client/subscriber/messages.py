"""The messages between a subscriber and a node: topics, requests, replies, notifications; errors.

No I/O, no clock. Only this file knows what these messages look like as bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from denwatch.client.errors import LanguageError

if TYPE_CHECKING:
    from denwatch.client.syntax import SubscriptionTree as Tree

_MOST_PROBED = 16  # texts in one question


class SubscriberError(Exception):
    """Base class of what can go wrong for a subscriber."""


class RequestRefusedError(LanguageError, SubscriberError):
    """The node refused a request: what is wrong with the text, at which column, and a hint.

    It is a LanguageError, so whatever underlines those underlines this one, too.
    """

    def describe(self) -> str:
        """Return the node's sentence, which contains its suggestions and its hint already."""
        return self.message


class UnconfirmedError(SubscriberError, TimeoutError):
    """No node has answered yet. The request is stored, and repeated until one does."""


class LoginRefusedError(SubscriberError):
    """All nodes refuse the name or password. The request is stored, and they are asked again."""


class SubscriberStoreError(SubscriberError):
    """The store cannot be used: another process has it open, or it is another program's file."""


class TransactionError(SubscriberError):
    """A callback ended the transaction that was lent to it, or used it after its end."""


ROOT = "dens/1/"
STATUS = ROOT + "status/"
MAX_PAYLOAD = 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[^\x00-\x1f\x7f/+#$]{1,64}")


def check_name(name: str) -> str:
    """Return a subscriber's name if it can stand in a topic."""
    if not _NAME.fullmatch(name):
        raise SubscriberError(f"{name!r} is not a name: 1 to 64 characters, without / + # and $")
    return name


class Topics:
    """The topics of one subscriber."""

    def __init__(self, name: str) -> None:
        check_name(name)
        self.requests = f"{ROOT}sub/{name}"
        self.reports = f"{ROOT}report/{name}"
        self.replies = f"{ROOT}reply/{name}"
        self.notifications = f"{ROOT}note/{name}"


# Requests -----------------------------------------------------------------------------------


def write_text(wanted: str | Tree | Mapping[str, Any]) -> str:
    """Return a subscription as text: words, XML and JSON unchanged, a tree as JSON."""
    if isinstance(wanted, str):
        return wanted
    if isinstance(wanted, Mapping):
        return json.dumps(wanted, ensure_ascii=False, allow_nan=False)
    from denwatch.client.language.json import print_json

    return print_json(wanted)


def derive_name(text: str) -> str:
    """Return the name of a subscription that was given none; the same text has the same name."""
    return "s" + hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def write_probe(request: str, texts: Iterable[str], limit: int) -> bytes:
    """Return the request that asks what these subscriptions would add to a node; only the first
    ones, if all are more than `limit` bytes or more than a node compiles at once."""
    asked: list[str] = []
    for text in islice(texts, _MOST_PROBED):
        limit -= len(json.dumps(text))
        if limit < 0:
            break
        asked.append(text)
    return write_document({"probe": asked, "request": request})


def write_received(keys: Iterable[str]) -> bytes:
    """Return the report that notifications are on our disk, by their ids as they came."""
    return write_document({"received": [json.loads(key) for key in keys]})


def write_document(document: Mapping[str, Any]) -> bytes:
    """Return a message as JSON."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


# Replies ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """A node's reply. `request` is "" if the request had no id."""

    request: str
    is_ok: bool
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_question(self) -> bool:
        """Whether it is not a reply, but the node asking whether we are listening."""
        return self.fields.get("ask") == "listening"

    def build_error(self) -> RequestRefusedError:
        """Return why the node refused the request."""
        names, hints = self.fields.get("suggestions"), self.fields.get("hints")
        return RequestRefusedError(
            _get_text(self.fields, "error") or "the node refused without giving a reason",
            _get_count(self.fields, "at"),
            _get_count(self.fields, "length") or 1,
            _get_text(self.fields, "hint"),
            [str(name) for name in names] if isinstance(names, list) else (),
            [str(hint) for hint in hints] if isinstance(hints, list) else (),
        )


def read_reply(payload: bytes) -> Reply | None:
    """Return a reply; None for bytes that are not one."""
    document = read_object(payload)
    if document is None or not isinstance(document.get("ok"), bool):
        return None
    return Reply(_get_text(document, "request"), document["ok"], document)


# Notifications ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReceivedNotification:
    """A notification as a subscriber receives it. Times are ms since 1970.

    `key` is the id as JSON, by which notifications are told apart; `fields` is all that was sent.
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
        """The reading's id (device, start, number): the same through whichever node it came."""
        found = self.fields.get("reading")
        return found if isinstance(found, str) and found else None

    @property
    def is_certain(self) -> bool:
        """Whether the reading certainly matches; otherwise it possibly does.

        Certain is a reading without doubt, whose two degrees are equal, and one that matches to at
        least one half even at its worst.
        """
        return self.certain >= min(self.possible, 0.5)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The names of our subscriptions that it matches, if the node sent them."""
        for key in ("subscriptions", "subscription"):
            found = self.fields.get(key)
            if isinstance(found, str):
                return (found,)
            if isinstance(found, list):
                return tuple(str(name) for name in found)
        return ()

    def is_expired(self, now: int) -> bool:
        """Return whether it has expired."""
        return self.expires is not None and self.expires <= now


def read_notification(payload: bytes) -> ReceivedNotification | None:
    """Return a notification; None for bytes that are not one, or without an id."""
    document = read_object(payload)
    if document is None:
        return None
    key = document.get("id")
    if isinstance(key, bool) or not isinstance(key, int | str) or key == "":
        return None
    values = document.get("values")
    degree = _get_number(document, "degree", 0.0)
    return ReceivedNotification(
        json.dumps(key),
        _get_text(document, "event"),
        values if isinstance(values, dict) else {},
        degree,
        _get_number(document, "possible", degree),
        _get_number(document, "certain", 0.0),
        document.get("why"),
        _get_time(document, "at"),
        _get_time(document, "expires"),
        _get_number(document, "score", 0.0),
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
    except Exception:  # noqa: BLE001 - a decoder may raise anything on foreign bytes
        return None
    return document if isinstance(document, dict) else None


def _get_text(document: Mapping[str, Any], key: str) -> str:
    found = document.get(key)
    return found if isinstance(found, str) else ""


def _get_count(document: Mapping[str, Any], key: str) -> int | None:
    found = _get_number(document, key, -1.0)
    return None if found < 0 else int(found)


def _get_time(document: Mapping[str, Any], key: str) -> int | None:
    found = document.get(key)
    return read_moment(found) if isinstance(found, str) else _get_count(document, key)


def read_moment(found: object) -> int | None:
    """Return an ISO date and time (UTC by default) in ms since 1970; None if it is none."""
    if not isinstance(found, str):
        return None
    try:
        moment = datetime.fromisoformat(found)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _get_number(document: Mapping[str, Any], key: str, default: float) -> float:
    found = document.get(key)
    if not isinstance(found, int | float) or not math.isfinite(found):
        return default
    return float(found)
