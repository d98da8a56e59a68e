"""What programs that read the logs of all nodes may use of a node's core.

The backend imports this file and `core.items`, and nothing else of the core: so what it relies on
is listed in one place, and the core can change behind it. It gives

- `DecisionReplay`, the node's own decisions about matches (top-k, dead bands, expiry), made again;
- `describe_content`, a notification as typed content, and `load_languages`, who matches it;
- `Vocabularies`, which codes mean the same, and `shorten_hash`;
- the frames and topics by which an operator writes to a node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from denwatch.client.vocabulary import EventType
from denwatch.node.core.delivery import DeliveryPolicy
from denwatch.node.core.events import OPERATORS, STATUS, Write
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    encode_body,
)
from denwatch.node.core.languages import load_languages
from denwatch.node.core.notifications import (
    Notification,
    Vocabularies,
    describe_content_values,
    shorten_hash,
)
from denwatch.node.core.operator_protocol import Plan, encode_items, encode_plan
from denwatch.node.core.preferences import FoundMatch
from denwatch.node.core.subscriptions import (
    OpenRoles,
    SingleClock,
    SubscriberSettings,
    SubscriberState,
    Subscription,
    read_subscription,
)
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector

__all__ = [
    "OPERATORS",
    "STATUS",
    "DecisionReplay",
    "OfferedMatch",
    "Plan",
    "Vocabularies",
    "describe_content",
    "encode_items",
    "encode_plan",
    "load_languages",
    "shorten_hash",
]
DELIVERED = "delivered"


def describe_content(
    vector: NotificationVector, event: EventType | None, device: str
) -> dict[str, object]:
    """Return a notification as typed content: event, device, and each exact value by name."""
    shown = SimpleNamespace(vector=vector, event=event, device=device)
    return describe_content_values(cast(Notification, shown))


class OfferedMatch(NamedTuple):
    """A subscription that a notification matches; `asked` are the fields of its log record."""

    subscription_id: int
    possible: int
    certain: int
    attribute: int
    asked: Mapping[str, Any]


class _ReplayStore:
    """The rows that a node would have in its store."""

    def __init__(self, rows: Mapping[tuple[str, bytes], bytes]) -> None:
        self.rows = dict(rows)

    def get(self, space: str, key: bytes) -> bytes | None:
        return self.rows.get((space, key))

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for (held, key), value in sorted(self.rows.items()):
            if held == space and key.startswith(prefix):
                yield key, value

    def apply(self, transaction: Transaction) -> None:
        for action in transaction.actions:
            if isinstance(action, Write):
                if action.value is None:
                    self.rows.pop((action.space, action.key), None)
                else:
                    self.rows[action.space, action.key] = action.value


class DecisionReplay:
    """Makes the decisions about one subscriber's matches again, by the node's own code.

    `rows` is what an earlier replay returned from `remember`: with the same subscriptions entered
    in the same order, the next decisions are those that it would have made.
    """

    def __init__(
        self, subscriber: str, rows: Mapping[tuple[str, bytes], bytes] | None = None
    ) -> None:
        self._owner = SubscriberState(subscriber)
        self._store = _ReplayStore(rows or {})
        self._judge = DeliveryPolicy(OpenRoles(), SingleClock(), SubscriberSettings())
        self._subscriptions: dict[int, Subscription] = {}

    def remember(self) -> dict[tuple[str, bytes], bytes]:
        """Return the rows that later decisions depend on."""
        return dict(self._store.rows)

    def list_entered(self) -> dict[int, int]:
        """Return the node's ids of the entered subscriptions, in the order of entering."""
        return {key: sub.id for key, sub in self._subscriptions.items()}

    def decide(
        self, now: int, note: Mapping[str, Any], matches: Sequence[OfferedMatch]
    ) -> dict[int, str]:
        """Decide about the matches of one notification: `delivered` or the reason against it.

        `note` are the fields of the notification's log record.
        """
        found: list[FoundMatch] = []
        keys: dict[int, int] = {}
        for match in matches:
            sub = self._enter(match.subscription_id, match.asked)
            keys[sub.id] = match.subscription_id
            found.append((sub, match.possible, match.certain, max(0, match.attribute)))
        found.sort(key=lambda each: each[0].id)  # as a node lists them
        transaction = Transaction(now, self._store)
        _, _, refused = self._judge.decide(transaction, self._owner, _read_note(note), found)
        self._store.apply(transaction)
        why = {id_: reason for reason, ids in refused.items() for id_ in ids}
        return {key: why.get(id_, DELIVERED) for id_, key in keys.items()}

    def enter(self, key: int, asked: Mapping[str, Any]) -> None:
        """Put a subscription into force; `asked` are the fields of its log record."""
        self._enter(key, asked)

    def _enter(self, key: int, asked: Mapping[str, Any]) -> Subscription:
        sub = self._subscriptions.get(key)
        if sub is None:
            body = SubscriptionBody(
                self._owner.name,
                asked["role"],
                asked["words"],
                int(asked["begins"]),
                int(asked["language"]),
                bytes(asked["vocabulary"]),
                bytes(asked["vector"]),
                json.loads(asked["options"] or "{}"),
            )
            item = Item(_read_dot(asked), SUBSCRIPTION, 0, encode_body(body))
            _, content = read_subscription(item)
            sub = self._subscriptions[key] = Subscription(item, body, self._owner)
            if isinstance(content, SubscriptionVector):
                sub.adopt(content)
            self._owner.enter(sub)
            self._owner.assign_levels()
            self._judge.restore_top_k(self._store, sub)
        return sub


def _read_dot(row: Mapping[str, Any]) -> Dot:
    return Dot(row["origin"], int(row["run"]), int(row["sequence"]))


def _read_note(row: Mapping[str, Any]) -> Notification:
    body = NotificationBody(
        row["device"],
        int(row["device_epoch"]),
        int(row["device_sequence"]),
        int(row["at"]),
        int(row["doubt"]),
        bytes(row["vocabulary"]),
        bytes(row["vector"]),
    )
    item = Item(_read_dot(row), NOTIFICATION, int(row["expires"]), encode_body(body))
    return Notification(item, 0)
