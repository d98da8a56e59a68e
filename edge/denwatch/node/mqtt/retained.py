"""Retained messages: the last message of each topic, bounded in number and bytes, on the disk.

Those of topics that start with `$` are in memory only: the server publishes them again.
"""

from __future__ import annotations

from collections.abc import Iterator

from denwatch.node.core.events import Reader, Write
from denwatch.node.mqtt import records
from denwatch.node.mqtt.interface import Limits, Outputs
from denwatch.node.mqtt.packets import SharedMessage
from denwatch.node.mqtt.topics import TopicTree


class RetainedMessages:
    """The retained messages of a server."""

    def __init__(self, limits: Limits, outputs: Outputs) -> None:
        self._limits = limits
        self._outputs = outputs
        self._tree: TopicTree[SharedMessage] = TopicTree()
        self.count = 0
        self.bytes = 0

    def has_room(self, message: SharedMessage) -> bool:
        """Return whether a message can be retained; an empty one, which deletes, always can."""
        if not message.payload:
            return True
        before = self._tree.get(message.topic)
        count = self.count + (before is None)
        size = self.bytes + message.size - (before.size if before else 0)
        return count <= self._limits.retained and size <= self._limits.retained_bytes

    def put(self, message: SharedMessage) -> None:
        """Replace the retained message of a topic; an empty payload deletes it."""
        if message.payload:
            self._account(self._tree.put(message.topic, message), message)
            value = records.write_retained(
                message.qos, message.payload, message.expires, message.properties
            )
            self._write(message.topic, value)
        else:
            self._remove(message.topic)

    def find_all(self, name: str) -> Iterator[SharedMessage]:
        """Yield the retained messages that a filter matches, also those that have expired."""
        return self._tree.find_all(name)

    def expire(self, now: int) -> None:
        """Remove what has expired."""
        late = [m.topic for m in self._tree.find_all("#") if 0 < m.expires < now]
        for topic in late:
            self._remove(topic)

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run retained."""
        for key, value in reader.scan(records.RETAINED):
            topic, qos, payload, expires, properties = records.read_retained(key, value)
            message = SharedMessage(topic, payload, qos, 0, expires, properties)
            self._account(self._tree.put(topic, message), message)

    def _remove(self, topic: str) -> None:
        before = self._tree.remove(topic)
        if before is not None:
            self._account(before, None)
            self._write(topic, None)

    def _write(self, topic: str, value: bytes | None) -> None:
        if not topic.startswith("$"):
            self._outputs.add(Write(records.RETAINED, topic.encode(), value))

    def _account(self, before: SharedMessage | None, after: SharedMessage | None) -> None:
        if before is not None:
            self.count -= 1
            self.bytes -= before.size
        if after is not None:
            self.count += 1
            self.bytes += after.size
