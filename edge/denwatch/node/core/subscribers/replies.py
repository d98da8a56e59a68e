"""Replies to requests: JSON on the subscriber's reply topic, kept while nobody listens there.

Whoever uses two plain clients, one to ask and one to listen, still gets the answer.
"""

from __future__ import annotations

from typing import Any

import msgspec
from denwatch.client.errors import LanguageError
from denwatch.node.core.interface import REPLIES, Reader
from denwatch.node.core.subscribers.settings import SubscriberSettings
from denwatch.node.core.subscribers.tables import Tables, join_name, split_name
from denwatch.node.core.transaction import Transaction


def describe_error(error: LanguageError) -> dict[str, Any]:
    """Return the body of a refusal."""
    body: dict[str, Any] = {**error.to_reply()}
    if error.at is not None:
        body["length"] = error.length
    if error.suggestions:
        body["suggestions"] = list(error.suggestions)
    if error.hint:
        body["hint"] = error.hint
    return body


def encode_question(node: str) -> bytes:
    """Return what asks an app whether it listens; our library answers with a report."""
    return msgspec.json.encode({"ok": True, "ask": "listening", "node": node})


class Replies:
    """What was answered, and who listens."""

    def __init__(self, tables: Tables, settings: SubscriberSettings) -> None:
        self._table = tables.reply
        self._limit = settings.kept_replies
        self._listening: set[str] = set()
        self._kept: dict[str, list[int]] = {}  # numbers of the replies that wait
        self._next = 1

    def restore(self, reader: Reader) -> None:
        """Take up the replies that wait."""
        for key, _ in self._table.scan(reader):
            name, rest = split_name(key)
            number = int.from_bytes(rest, "big")
            self._kept.setdefault(name, []).append(number)
            self._next = max(self._next, number + 1)

    def send(
        self,
        transaction: Transaction,
        name: str,
        body: dict[str, Any],
        reference: str | None = None,
    ) -> None:
        """Answer a subscriber."""
        if reference is not None:
            body = {**body, "request": reference}
        message = msgspec.json.encode(body)
        if name in self._listening:
            transaction.publish(REPLIES + name, message)
            return
        numbers = self._kept.setdefault(name, [])
        numbers.append(self._next)
        self._table.put(transaction, _key(name, self._next), message)
        self._next += 1
        while len(numbers) > self._limit:
            self._table.put(transaction, _key(name, numbers.pop(0)), None)

    def listen(self, transaction: Transaction, name: str, is_up: bool) -> None:
        """Note who listens; send what waits."""
        if not is_up:
            self._listening.discard(name)
            return
        self._listening.add(name)
        for number in self._kept.pop(name, ()):
            message = self._table.get(transaction, _key(name, number))
            if message is not None:
                transaction.publish(REPLIES + name, message)
                self._table.put(transaction, _key(name, number), None)


def _key(name: str, number: int) -> bytes:
    return join_name(name, number.to_bytes(8, "big"))
