"""The parts of all stories in one index: which parts of which stories does a reading fit?

It is the matcher of the stories' language. No reading fits a whole story, so `match` finds nothing;
`match_parts` is what a node asks. A part has the number of its story times `MAX_PARTS` plus its
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from denwatch.client.compiler.stories import MAX_PARTS, Story
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.plugins import SubscriptionMatch
from denwatch.node.matching.search import pack_notifications
from denwatch.protocol.vectors import NotificationVector

PartMatch = tuple[int, int, int, int]  # number of the story, possible, certain, part


class StoryParts:
    """The parts of stories, by the numbers of the stories."""

    def __init__(self) -> None:
        self._index = FuzzyIndex()
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, id: int, subscription: Story) -> None:
        """Add a story, or replace the one with this number."""
        if id in self._sizes:
            self.remove(id)
        self._sizes[id] = len(subscription.parts)
        for part, vector in enumerate(subscription.vectors):
            self._index.add(id * MAX_PARTS + part, vector)

    def remove(self, id: int) -> None:
        """Remove a story; KeyError if there is none with this number."""
        for part in range(self._sizes.pop(id)):
            self._index.remove(id * MAX_PARTS + part)

    def match(self, notification: Any, age: int = 0) -> list[SubscriptionMatch]:  # noqa: ARG002
        """Return nothing: one reading is no story."""
        return []

    def match_parts(self, vectors: Sequence[NotificationVector]) -> list[list[PartMatch]]:
        """Return, for each reading, the parts that it fits."""
        if not self._sizes:
            return [[] for _ in vectors]
        found = self._index.match_batch(pack_notifications(list(vectors), [0] * len(vectors)))
        numbers = found.ids.tolist()
        possible, certain = found.possible.tolist(), found.certain.tolist()
        starts = found.starts.tolist()
        return [
            [
                (numbers[at] // MAX_PARTS, possible[at], certain[at], numbers[at] % MAX_PARTS)
                for at in range(starts[place], starts[place + 1])
            ]
            for place in range(len(vectors))
        ]
