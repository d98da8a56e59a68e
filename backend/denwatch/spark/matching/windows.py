"""The input of matching, from log records: subscriptions, notifications and vocabularies.

Many nodes log the same subscription: where it was made, and wherever it was carried. It begins when
it was made, and ends when it expires or when the first node removed it. Times are those of the
nodes' clocks; a caller that knows the clocks' errors corrects the columns first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import EventType, build_vocabulary
from denwatch.node.backend_api import Vocabularies, shorten_hash
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

FOREVER = (1 << 63) - 1  # the end of a subscription that has none
NOTE_COLUMNS = (  # of a record, as its origin made it
    *("origin", "run", "sequence", "device", "device_epoch", "device_sequence"),
    *("at", "doubt", "expires", "vocabulary", "vector"),
)
_SAME = ("subscriber", "role", "words", "language", "vocabulary", "vector", "created", "expires")


def find_windows(subscribe: DataFrame, unsubscribe: DataFrame) -> DataFrame:
    """Return one row a subscription, from the records of these kinds.

    Columns: subscription_id, origin, run, sequence, subscriber, role, words, language, vocabulary,
    vector, options, begins, ends (ms, FOREVER if it has not ended) and end_reason (null: in force).
    """
    order = F.struct("source", "time", "node", "epoch", "number")  # its own node's record first
    made = subscribe.groupBy(F.col("item").alias("subscription_id")).agg(
        *(F.min_by(F.col(name), order).alias(name) for name in ("origin", "run", "sequence")),
        *(F.min_by(F.col(name), order).alias(name) for name in (*_SAME, "options")),
    )
    # A node may log an expiry late; the subscription still ended at its expiry.
    ends = "min(time) as removed", "min_by(reason, struct(time, node, number)) as why"
    others = unsubscribe.where("reason != 'expired'")
    gone = others.groupBy(F.col("item").alias("subscription_id")).agg(*map(F.expr, ends))
    expires = F.when(F.col("expires") > 0, F.col("expires")).otherwise(F.lit(FOREVER))
    removed = F.coalesce(F.col("removed"), F.lit(FOREVER))
    is_removed = F.col("removed").isNotNull() & (F.col("removed") < expires)
    reason = F.when(is_removed, F.col("why")).when(F.col("expires") > 0, F.lit("expired"))
    return (
        made.join(gone, "subscription_id", "left")
        .withColumn("begins", F.col("created"))
        .withColumn("ends", F.least(expires, removed))
        .withColumn("end_reason", reason)
        .drop("created", "expires", "removed", "why")
    )


def find_notes(note: DataFrame) -> DataFrame:
    """Return one row a notification, from the records of the kind: it was logged wherever it came.

    Columns: notification_id, origin, run, sequence, device, device_epoch, device_sequence, at,
    doubt, expires, vocabulary, vector.
    """
    order = F.struct("source", "time", "node", "epoch", "number")
    return note.groupBy(F.col("item").alias("notification_id")).agg(
        *(F.min_by(F.col(name), order).alias(name) for name in NOTE_COLUMNS)
    )


class Meanings:
    """The vocabularies of a site, by the eight bytes of their hash: which codes mean the same.

    By the node's own rule, with the documents that any node has logged. A vocabulary whose document
    is in no log is taken to agree with all others, as on a node.
    """

    def __init__(self, documents: Mapping[bytes, str | None]) -> None:
        self.documents: dict[bytes, str] = {}
        self.errors: dict[bytes, str] = {}
        self._known: Vocabularies | None = None
        for hash_, document in sorted(documents.items()):
            if document is None:
                continue
            try:
                vocabulary = build_vocabulary(json.loads(document))
                if shorten_hash(vocabulary) != hash_:
                    raise ValueError("the document is not that of the hash")
            except (LanguageError, ValueError, AttributeError, TypeError) as error:
                self.errors[hash_] = str(error)
                continue
            self.documents[hash_] = document
            if self._known is None:
                self._known = Vocabularies(vocabulary)
            self._known.add(vocabulary)

    @property
    def known(self) -> list[bytes]:
        """The vocabularies whose documents are known."""
        return sorted(self.documents)

    def agree(self, one: bytes, other: bytes, event: int, features: int) -> bool:
        """Return whether two vocabularies give an event's codes the same meaning."""
        return self._known is None or self._known.agree(one, other, event, features)

    def find_event(self, vocabulary: bytes, number: int) -> EventType | None:
        """Return an event of a vocabulary; None if that is not known."""
        return None if self._known is None else self._known.find_event(vocabulary, number)
