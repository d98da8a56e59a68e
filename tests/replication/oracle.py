"""What must be true in the end, in plain sets: every item that was made, less what was removed.

Knows nothing of contexts, dots in ranges or exchanges: an observed-remove set of things that are
each added once is the set of those added and never removed by anybody who had them.
"""

from __future__ import annotations

from collections.abc import Hashable


class Truth:
    """The sets that all nodes must agree on."""

    def __init__(self) -> None:
        self.subscriptions: set[Hashable] = set()
        self.notes: set[Hashable] = set()
        self.marks: set[Hashable] = set()
        self.removed: set[Hashable] = set()

    def remove(self, subscription: Hashable) -> None:
        self.removed.add(subscription)

    @property
    def live(self) -> set[Hashable]:
        return self.subscriptions - self.removed
