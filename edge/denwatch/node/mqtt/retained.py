"""Retained messages: the last one of each topic, bounded in number and bytes.

Those of topics that start with `$` live in memory only: the server states them anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from denwatch.node.core.interface import Reader, Write
from denwatch.node.mqtt.limits import Limits
from denwatch.node.mqtt.records import RETAINED, read_retained, write_retained
from denwatch.node.mqtt.session import Parcel
from denwatch.node.mqtt.step import Step
from denwatch.node.mqtt.topics import TopicTree


class Retained:
    """Gives out a `Write` for every change."""

    def __init__(self, limits: Limits, step: Step) -> None:
        self._limits = limits
        self._step = step
        self._tree: TopicTree[Parcel] = TopicTree()
        self.count = 0
        self.bytes = 0

    def has_room(self, parcel: Parcel) -> bool:
        """Tell whether a message can be retained; taking one away always can."""
        if not parcel.payload:
            return True
        before = self._tree.get(parcel.topic)
        count = self.count + (before is None)
        size = self.bytes + parcel.size - (before.size if before else 0)
        return count <= self._limits.retained and size <= self._limits.retained_bytes

    def put(self, parcel: Parcel) -> None:
        """Keep a message in place of its topic's last one; an empty one takes that away."""
        if parcel.payload:
            self._account(self._tree.put(parcel.topic, parcel), parcel)
            value = write_retained(parcel.qos, parcel.payload)
        else:
            before = self._tree.remove(parcel.topic)
            if before is None:
                return
            self._account(before, None)
            value = None
        if not parcel.topic.startswith("$"):
            self._step.add(Write(RETAINED, parcel.topic.encode(), value))

    def find_all(self, name: str) -> Iterator[Parcel]:
        """Yield the retained messages that a filter matches."""
        return self._tree.find_all(name)

    def restore(self, reader: Reader) -> None:
        """Take up what an earlier run retained."""
        for key, value in reader.scan(RETAINED):
            topic, qos, payload = read_retained(key, value)
            parcel = Parcel(topic, payload, qos)
            self._account(self._tree.put(topic, parcel), parcel)

    def _account(self, before: Parcel | None, after: Parcel | None) -> None:
        if before is not None:
            self.count -= 1
            self.bytes -= before.size
        if after is not None:
            self.count += 1
            self.bytes += after.size
