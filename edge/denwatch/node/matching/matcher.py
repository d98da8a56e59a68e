"""What a node matches fuzzy subscriptions with: columns at once, the compiled index once it pays.

A node must answer in its first second, and most have few subscriptions: they are served by
`ColumnIndex`, which needs no compiler. Where there are many (WORTH_COMPILING), and the process has
loaded the kernels in the background (`compiling.is_ready`), `go_on` moves subscriptions to a
`FuzzyIndex`, some at a time, between two events. Meanwhile both answer, each for its own, so no
event waits for the move and none sees a subscription twice or not at all.

INVARIANT  Every subscription is in exactly one of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from denwatch.node.matching import compiling
from denwatch.node.matching.columns import Answer, ColumnIndex
from denwatch.node.matching.facts import Facts
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.node.matching.records import pack_subscriptions
from denwatch.node.matching.search import pack_notifications
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector

if TYPE_CHECKING:
    from denwatch.node.matching.index import FuzzyIndex

WORTH_COMPILING = 2_000  # subscriptions: fewer take columns as long as the rest of a delivery
STEP = 500  # subscriptions moved between two events: a few ms


class FuzzyMatcher:
    """A set of fuzzy subscriptions that answers which of them a notification matches."""

    def __init__(self) -> None:
        self._columns = ColumnIndex()
        self._index: FuzzyIndex | None = None

    def __len__(self) -> int:
        return len(self._columns) + (0 if self._index is None else len(self._index))

    def __contains__(self, id: int) -> bool:
        return id in self._columns or (self._index is not None and id in self._index)

    @property
    def compiled(self) -> int:
        """How many subscriptions the compiled index has."""
        return 0 if self._index is None else len(self._index)

    def add(self, id: int, subscription: SubscriptionVector) -> None:
        """Add a subscription, or replace the one with this id."""
        if self._index is None:
            self._columns.add(id, subscription)
        else:
            self._index.add(id, subscription)
            if id in self._columns:
                self._columns.remove(id)

    def add_facts(self, ids: Sequence[int], facts: Facts, vectors: Sequence[bytes]) -> None:
        """Add new subscriptions by the facts of their vectors (`facts.py`): at a start, all."""
        self._columns.add_facts(ids, facts, vectors)

    def remove(self, id: int) -> None:
        """Remove a subscription; KeyError if there is none with this id."""
        if self._index is not None and id in self._index:
            self._index.remove(id)
        else:
            self._columns.remove(id)

    def go_on(self) -> None:
        """Move some subscriptions to the compiled index, if it is there and worth it."""
        if not compiling.is_ready() or not len(self._columns):
            return
        if self._index is None:
            if len(self._columns) < WORTH_COMPILING:
                return
            from denwatch.node.matching.index import FuzzyIndex  # it is not needed before

            self._index = FuzzyIndex()
        self._index.add_batch(pack_subscriptions(self._columns.take(STEP)))

    def match(self, notification: NotificationVector, age: int = 0) -> list[SubscriptionMatch]:
        """Return the matches by rising id; `age` is the notification's, in seconds."""
        return [
            SubscriptionMatch(*row) for row in sorted(self.match_many([notification], [age])[0])
        ]

    def match_many(
        self, notifications: Sequence[NotificationVector], ages: Sequence[int]
    ) -> list[list[Answer]]:
        """Return the matches of each notification, in no order."""
        if self._index is None:
            return self._columns.match_many(notifications, ages)
        found = self._index.match_batch(pack_notifications(notifications, ages))
        attributes = (found.attributes & 15).tolist()
        columns = (found.ids.tolist(), found.possible.tolist(), found.certain.tolist(), attributes)
        rows: list[Answer] = list(zip(*columns, strict=True))
        starts = found.starts.tolist()
        answers = [rows[start:stop] for start, stop in pairwise(starts)]
        if len(self._columns):
            others = self._columns.match_many(notifications, ages)
            answers = [mine + other for mine, other in zip(answers, others, strict=True)]
        return answers
