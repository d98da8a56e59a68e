"""Topic names and filters: which are valid, who subscribed to what, and which are special to DENS.

`FilterIndex` finds the subscribers of a topic: filters without wildcards by one dictionary look-up,
the others in a tree with one node for each level. `TopicTree` finds the opposite: the topics that
a filter matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from denwatch.node.core.events import DEVICES, HOME, NOTES, PEERS, REPLIES, ROOT, STATUS

Key = TypeVar("Key")
Value = TypeVar("Value")

_LISTENED_PREFIXES = (NOTES, REPLIES, PEERS)
_FOR_ALL = (STATUS, HOME)  # ordinary topics with any number of listeners


def is_directed(topic: str) -> bool:
    """Return whether a topic is between the node and one client; then no queue is kept for it.

    The node itself keeps what it sends until somebody listens. What a watchdog sends to the node
    must not wait for the queue of a third client that subscribed too and went away.
    """
    return topic.startswith(ROOT) and not topic.startswith(_FOR_ALL)


def is_listened(topic: str) -> bool:
    """Return whether the node must be told who listens to exactly this topic."""
    if "+" in topic or "#" in topic:
        return False
    return topic.startswith(_LISTENED_PREFIXES) or (
        topic.startswith(DEVICES) and topic.endswith("/sv")
    )


def has_wildcard(name: str) -> bool:
    """Return whether a filter can match more than one topic."""
    return "+" in name or "#" in name


def find_filter_fault(name: str) -> str:
    """Return what is wrong with the wildcards of a filter; "" if nothing is."""
    if not has_wildcard(name):
        return ""
    levels = name.split("/")
    if "#" in levels[:-1]:
        return "# before the last level of a filter"
    for level in levels:
        if len(level) > 1 and has_wildcard(level):
            return "a wildcard within a level of a filter"
    return ""


class _FilterLevel(Generic[Key]):
    """A node of the filter tree: whose filters end here, whose end with # here, what follows."""

    __slots__ = ("below", "branches", "here")

    def __init__(self) -> None:
        self.branches: dict[str, _FilterLevel[Key]] = {}
        self.here: dict[Key, int] = {}
        self.below: dict[Key, int] = {}


class FilterIndex(Generic[Key]):
    """Subscribers by filter, each with the QoS that it was granted."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[Key, int]] = {}
        self._root: _FilterLevel[Key] = _FilterLevel()
        self._wild = 0  # filters in the tree

    def add(self, name: str, key: Key, qos: int) -> None:
        """Subscribe, or change the QoS of a subscription."""
        if not has_wildcard(name):
            self._exact.setdefault(name, {})[key] = qos
            return
        branch = self._root
        levels = name.split("/")
        is_below = levels[-1] == "#"
        for level in levels[:-1] if is_below else levels:
            branch = branch.branches.setdefault(level, _FilterLevel())
        ends = branch.below if is_below else branch.here
        self._wild += key not in ends
        ends[key] = qos

    def remove(self, name: str, key: Key) -> None:
        """Unsubscribe; levels that become empty are removed."""
        if not has_wildcard(name):
            subscribers = self._exact.get(name)
            if subscribers is not None:
                subscribers.pop(key, None)
                if not subscribers:
                    del self._exact[name]
            return
        levels = name.split("/")
        is_below = levels[-1] == "#"
        if is_below:
            levels.pop()
        path = [self._root]
        for level in levels:
            branch = path[-1].branches.get(level)
            if branch is None:
                return
            path.append(branch)
        ends = path[-1].below if is_below else path[-1].here
        self._wild -= ends.pop(key, None) is not None
        while levels and not (path[-1].branches or path[-1].here or path[-1].below):
            path.pop()
            del path[-1].branches[levels.pop()]

    def get_exact(self, topic: str) -> dict[Key, int] | None:
        """Return who subscribed to exactly this topic. The caller must not change it."""
        return self._exact.get(topic)

    def find_all(self, topic: str) -> dict[Key, int]:
        """Return everybody whose filters match, with their best QoS. Do not change it."""
        exact = self._exact.get(topic)
        if not self._wild:
            return exact or {}
        found: dict[Key, int] = dict(exact) if exact else {}
        self._collect(self._root, topic.split("/"), 0, topic.startswith("$"), found)
        return found

    def _collect(
        self,
        branch: _FilterLevel[Key],
        levels: list[str],
        depth: int,
        is_special: bool,
        found: dict[Key, int],
    ) -> None:
        if not is_special and branch.below:
            _merge(branch.below, found)
        if depth == len(levels):
            if branch.here:
                _merge(branch.here, found)
            return
        following = branch.branches.get(levels[depth])
        if following is not None:
            self._collect(following, levels, depth + 1, False, found)
        if not is_special:  # a leading wildcard does not match $SYS and its like
            following = branch.branches.get("+")
            if following is not None:
                self._collect(following, levels, depth + 1, False, found)


def _merge(ends: dict[Key, int], found: dict[Key, int]) -> None:
    for key, qos in ends.items():
        if found.get(key, -1) < qos:
            found[key] = qos


class _TopicLevel(Generic[Value]):
    __slots__ = ("stems", "value")

    def __init__(self) -> None:
        self.stems: dict[str, _TopicLevel[Value]] = {}
        self.value: Value | None = None


class TopicTree(Generic[Value]):
    """Values by topic, found by filter."""

    def __init__(self) -> None:
        self._root: _TopicLevel[Value] = _TopicLevel()

    def put(self, topic: str, value: Value) -> Value | None:
        """Set the value of a topic; return the one before."""
        stem = self._root
        for level in topic.split("/"):
            stem = stem.stems.setdefault(level, _TopicLevel())
        before, stem.value = stem.value, value
        return before

    def remove(self, topic: str) -> Value | None:
        """Remove a topic; return its value. Levels that become empty are removed."""
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            stem = path[-1].stems.get(level)
            if stem is None:
                return None
            path.append(stem)
        before, path[-1].value = path[-1].value, None
        while levels and path[-1].value is None and not path[-1].stems:
            path.pop()
            del path[-1].stems[levels.pop()]
        return before

    def get(self, topic: str) -> Value | None:
        """Return the value of a topic."""
        stem = self._root
        for level in topic.split("/"):
            following = stem.stems.get(level)
            if following is None:
                return None
            stem = following
        return stem.value

    def find_all(self, name: str) -> Iterator[Value]:
        """Yield the values of all topics that a filter matches."""
        if has_wildcard(name):
            yield from self._find(self._root, name.split("/"), 0)
        else:
            value = self.get(name)
            if value is not None:
                yield value

    def _find(self, stem: _TopicLevel[Value], levels: list[str], depth: int) -> Iterator[Value]:
        if depth == len(levels):
            if stem.value is not None:
                yield stem.value
            return
        level = levels[depth]
        if level == "#":
            yield from self._walk(stem, is_root=depth == 0)
        elif level == "+":
            for name, following in stem.stems.items():
                if depth or not name.startswith("$"):
                    yield from self._find(following, levels, depth + 1)
        else:
            named = stem.stems.get(level)
            if named is not None:
                yield from self._find(named, levels, depth + 1)

    def _walk(self, stem: _TopicLevel[Value], is_root: bool) -> Iterator[Value]:
        if stem.value is not None:
            yield stem.value
        for name, following in stem.stems.items():
            if not (is_root and name.startswith("$")):
                yield from self._walk(following, is_root=False)
