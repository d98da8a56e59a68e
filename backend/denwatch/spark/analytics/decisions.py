"""Top-k and the other decisions of a node, replayed for each subscriber by the node's own rules.

The node where a subscriber is decides by `node.core.subscribers.judging`; here the same code
decides again, for notifications offered in any order and at any time: as they were read, which is
what a network without delays would have done, or as they were offered in fact, which must give the
node's own decisions. Roles are not in the logs: everybody may see everything here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from denwatch.node.core.interface import Write
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    encode_body,
)
from denwatch.node.core.subscribers.judging import Found, Judge
from denwatch.node.core.subscribers.notes import Note
from denwatch.node.core.subscribers.people import Owner, Sub, read_subscription
from denwatch.node.core.subscribers.settings import OneClock, OpenRoles, SubscriberSettings
from denwatch.node.core.subscribers.tables import Tables
from denwatch.node.core.transaction import Transaction
from denwatch.protocol.vectors import SubscriptionVector
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

DECISIONS = "note_id bigint, subscription_id bigint, owner string, offered bigint, verdict string"
DELIVERED = "delivered"


def replay_decisions(offers: DataFrame, notes: DataFrame, windows: DataFrame) -> DataFrame:
    """Return for each match what a node decides: delivered, top-k, expired or quiet.

    `offers` has the matches (note_id, subscription_id, owner, possible, certain, attribute) and
    `offered`, when the node had to decide (ms); of one subscriber's, earlier ones go first, of
    those at one time the smaller id. `notes` and `windows` are those of `denwatch.spark.matching`.
    """
    note = F.struct(
        *("origin", "run", "sequence", "device", "device_epoch", "device_sequence"),
        *("at", "doubt", "expires", "vocabulary", "vector"),
    )
    asked = F.struct(
        *("origin", "run", "sequence", "role", "words", "begins", "language", "vocabulary"),
        *("vector", "options"),
    )
    joined = offers.join(notes.select("note_id", note.alias("note")), "note_id").join(
        windows.select("subscription_id", asked.alias("asked")), "subscription_id"
    )
    return joined.groupBy("owner").applyInPandas(_decide_all, DECISIONS)


def _decide_all(frame: pd.DataFrame) -> pd.DataFrame:
    """Decide for one subscriber."""
    replay = Replay(str(frame["owner"].iloc[0]))
    rows: list[tuple[int, int, str, int, str]] = []
    frame = frame.sort_values(["offered", "note_id", "subscription_id"], kind="stable")
    for (offered, note_id), hits in frame.groupby(["offered", "note_id"], sort=False):
        verdicts = replay.decide(int(offered), hits)
        rows += [
            (int(note_id), key, replay.owner.name, int(offered), verdicts[key]) for key in verdicts
        ]
    return pd.DataFrame(rows, columns=["note_id", "subscription_id", "owner", "offered", "verdict"])


class _Memory:
    """What a node would have on its disk."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, bytes], bytes] = {}

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


class Replay:
    """One subscriber's node, as far as decisions need one.

    `rows` is what an earlier replay remembered (`remember`): with the same subscriptions entered in
    the same order, the next decisions are those that it would have made.
    """

    def __init__(self, owner: str, rows: Mapping[tuple[str, bytes], bytes] | None = None) -> None:
        self.owner = Owner(owner)
        self._memory = _Memory()
        self._memory.rows.update(rows or {})
        self._judge = Judge(OpenRoles(), OneClock(), Tables(), SubscriberSettings())
        self._subs: dict[int, Sub] = {}

    def remember(self) -> dict[tuple[str, bytes], bytes]:
        """Return what later decisions depend on."""
        return dict(self._memory.rows)

    def list_entered(self) -> dict[int, Sub]:
        """Return the subscriptions in force, in the order in which they came."""
        return dict(self._subs)

    def decide(self, now: int, hits: pd.DataFrame) -> dict[int, str]:
        """Return what is decided for each of the matches of one notification, by subscription."""
        found: list[Found] = []
        keys: dict[int, int] = {}
        for hit in hits.itertuples(index=False):
            sub = self.enter(int(hit.subscription_id), hit.asked)
            keys[sub.id] = int(hit.subscription_id)
            found.append((sub, int(hit.possible), int(hit.certain), max(0, int(hit.attribute))))
        found.sort(key=lambda each: each[0].id)  # as a node lists them
        note = _read_note(hits["note"].iloc[0])
        transaction = Transaction(now, self._memory)
        _, _, refused = self._judge.decide(transaction, self.owner, note, found)
        self._memory.apply(transaction)
        why = {id: reason for reason, ids in refused.items() for id in ids}
        return {key: why.get(id, DELIVERED) for id, key in keys.items()}

    def enter(self, key: int, asked: Any) -> Sub:
        """Return a subscription, which is in force from now on."""
        sub = self._subs.get(key)
        if sub is None:
            body = SubscriptionBody(
                self.owner.name,
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
            sub = self._subs[key] = Sub(item, body, self.owner)
            if isinstance(content, SubscriptionVector):
                sub.adopt(content)
            self.owner.enter(sub)
            self.owner.assign_levels()
            self._judge.restore_gate(self._memory, sub)
        return sub


def _read_dot(row: Any) -> Dot:
    return Dot(row["origin"], int(row["run"]), int(row["sequence"]))


def _read_note(row: Any) -> Note:
    body = NotificationBody(
        row["device"],
        int(row["device_epoch"]),
        int(row["device_sequence"]),
        int(row["at"]),
        int(row["doubt"]),
        bytes(row["vocabulary"]),
        bytes(row["vector"]),
    )
    return Note(Item(_read_dot(row), NOTIFICATION, int(row["expires"]), encode_body(body)), 0)
