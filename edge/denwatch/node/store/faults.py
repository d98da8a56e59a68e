"""Faults for the memory store: what goes wrong, and at which operation.

    faults = Faults()
    faults.plan("commit", 3, "crash-after")  # the third commit is on the disk, its caller dead
    faults.plan("any", 17, "crash")          # die at the seventeenth operation, whatever it is

Operations are counted from 1 over the life of the object, across reopening, so that a test can run
a scenario once to count them and then again with a fault at each.
"""

from __future__ import annotations

from typing import Literal, get_args

Operation = Literal["open", "get", "scan", "apply", "commit", "outbox", "any"]
Trouble = Literal["crash", "crash-after", "full", "failed"]


class Faults:
    """A plan of faults, and the count of operations so far."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(get_args(Operation), 0)
        self._plan: dict[tuple[str, int], Trouble] = {}

    def plan(self, operation: Operation, number: int, trouble: Trouble) -> None:
        """Make the operation with this number go wrong.

        "crash" dies before it has any effect, "crash-after" when its effect is complete, "full" and
        "failed" raise `StoreFull` and `StoreFailed`, with the group undone.
        """
        if trouble not in get_args(Trouble) or operation not in get_args(Operation):
            raise ValueError(f"no fault {trouble!r} at {operation!r}")
        self._plan[operation, number] = trouble

    def count(self, operation: Operation) -> Trouble | None:
        """Count one operation, and return what is to go wrong with it."""
        self.counts[operation] += 1
        self.counts["any"] += 1
        return self._plan.get((operation, self.counts[operation])) or self._plan.get(
            ("any", self.counts["any"])
        )
