"""One turn of a node: the time it happens at, and the actions it collects."""

from __future__ import annotations

from denwatch.node.core.interface import Action, Count, Log, Publish, Write


class Transaction:
    """What the parts of a node write down while they handle one event.

    `now` is the node's own timeline: all times in its items are in it. Times of other nodes' items,
    and times for people, go through `denwatch.node.replication.clock`.
    """

    __slots__ = ("actions", "now")

    def __init__(self, now: int) -> None:
        self.now = now
        self.actions: list[Action] = []

    def write(self, space: str, key: bytes, value: bytes | None) -> None:
        """Change a key durably; None deletes it."""
        self.actions.append(Write(space, key, value))

    def publish(
        self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False, token: int = 0
    ) -> None:
        """Send a message, after everything in this transaction is on the disk."""
        self.actions.append(Publish(topic, payload, qos, retain, token))

    def log(self, kind: str, **fields: object) -> None:
        """Write one record of the node's log."""
        self.actions.append(Log(kind, fields))

    def count(self, name: str, amount: int = 1, label: str = "") -> None:
        """Count something for the metrics."""
        self.actions.append(Count(name, amount, label))
