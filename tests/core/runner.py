"""A store in a dictionary, and the few lines that run a node's core on it: for tests of parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from denwatch.node.core.events import Action, Event, Log, Publish, Write
from denwatch.node.core.node import Node


class DictReader:
    """What was written, in a dictionary."""

    def __init__(self) -> None:
        self.spaces: dict[str, dict[bytes, bytes]] = {}

    def get(self, space: str, key: bytes) -> bytes | None:
        return self.spaces.get(space, {}).get(key)

    def scan(self, space: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for key, value in sorted(self.spaces.get(space, {}).items()):
            if key.startswith(prefix):
                yield key, value

    def apply(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Write):
                if action.value is None:
                    self.spaces.get(action.space, {}).pop(action.key, None)
                else:
                    self.spaces.setdefault(action.space, {})[action.key] = action.value


class Runner:
    """A node, its store, and what it published and logged."""

    def __init__(self, node: Node, reader: DictReader) -> None:
        self.node = node
        self.reader = reader
        self.published: list[Publish] = []
        self.logged: list[Log] = []

    def handle(self, event: Event, now: int) -> list[Publish]:
        actions = self.node.handle(event, now)
        self.reader.apply(actions)
        sent = [action for action in actions if isinstance(action, Publish)]
        self.published += sent
        self.logged += [action for action in actions if isinstance(action, Log)]
        return sent
