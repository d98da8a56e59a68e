"""Topic names and filters: which are valid, who subscribed to what, and which are special to DENS.

A subscription's *grant* is one number: its QoS, two options of MQTT 5 as bits (`NO_LOCAL`,
`AS_PUBLISHED`), and from bit 8 on the number that its messages carry. Below 4 it is a plain QoS.

`FilterIndex` finds the subscribers of a topic: filters without wildcards by one dictionary look-up,
the others in a tree with one node for each level. `TopicTree` finds the opposite: the topics that
a filter matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from denwatch.node.core.events import DEVICES, HOME, NOTES, PEERS, REPLIES, ROOT, STATUS

Key = TypeVar("Key")
Value = TypeVar("Value")

QOS, NO_LOCAL, AS_PUBLISHED = 3, 4, 8  # bits of a grant, as in the options of SUBSCRIBE
_OPTIONS, _NUMBER = 15, 8
_SHARE = "$share/"
_RESERVED = ("$", "dens/")

Grants = int | tuple[int, ...]  # of one subscriber: several if filters overlap and one is not plain

_LISTENED_PREFIXES = (NOTES, REPLIES, PEERS, HOME)
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


def is_reserved(topic: str) -> bool:
    """Return whether a wildcard in the first level of a filter does not match a topic.

    MQTT has that for `$SYS` and its like. Here it holds for the protocol's own topics, too: who may
    subscribe to everything (`#`) still does not see what the node tells somebody else.
    """
    return topic.startswith(_RESERVED) or topic == "dens"


def has_wildcard(name: str) -> bool:
    """Return whether a filter can match more than one topic."""
    return "+" in name or "#" in name


def make_grant(options: int, number: int) -> int:
    """Return the grant of a subscription with these options of SUBSCRIBE, and its number or 0."""
    return options & _OPTIONS | number << _NUMBER


class GrantedDelivery(NamedTuple):
    """How a message goes to somebody: with which QoS, retained or not, with which numbers."""

    qos: int
    retain: bool
    numbers: tuple[int, ...]


def combine_grants(grants: Grants, qos: int, retain: bool, is_own: bool) -> GrantedDelivery | None:
    """Return how a message of this QoS is delivered; None: its own publisher does not want it."""
    if isinstance(grants, int):
        grants = (grants,)
    if is_own:
        grants = tuple(grant for grant in grants if not grant & NO_LOCAL)
        if not grants:
            return None
    best = max(grant & QOS for grant in grants)
    keeps = retain and any(grant & AS_PUBLISHED for grant in grants)
    numbers = tuple(grant >> _NUMBER for grant in grants if grant >> _NUMBER)
    return GrantedDelivery(min(qos, best), keeps, numbers)


def split_shared(name: str) -> tuple[str, str]:
    """Return the group and the filter of a shared subscription; the group is "" otherwise."""
    if not name.startswith(_SHARE):
        return "", name
    group, _, inner = name[len(_SHARE) :].partition("/")
    return group, inner


def find_filter_fault(name: str) -> str:
    """Return what is wrong with a filter, apart from its length; "" if nothing is."""
    if name.startswith(_SHARE):
        group, inner = split_shared(name)
        if not group or has_wildcard(group) or not inner:
            return "a shared subscription is $share/GROUP/FILTER"
        return find_filter_fault(inner)
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
    """Subscribers by filter, each with its grant."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[Key, int]] = {}
        self._root: _FilterLevel[Key] = _FilterLevel()
        self._wild = 0  # filters in the tree

    def add(self, name: str, key: Key, grant: int) -> None:
        """Subscribe, or change the grant of a subscription."""
        if not has_wildcard(name):
            self._exact.setdefault(name, {})[key] = grant
            return
        branch = self._root
        levels = name.split("/")
        is_below = levels[-1] == "#"
        for level in levels[:-1] if is_below else levels:
            branch = branch.branches.setdefault(level, _FilterLevel())
        ends = branch.below if is_below else branch.here
        self._wild += key not in ends
        ends[key] = grant

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

    def find_all(self, topic: str) -> Mapping[Key, Grants]:
        """Return everybody whose filters match: with their best QoS if all grants are plain."""
        exact = self._exact.get(topic)
        if not self._wild:
            return exact or {}
        found: dict[Key, Grants] = dict(exact) if exact else {}
        self._collect(self._root, topic.split("/"), 0, is_reserved(topic), found)
        return found

    def _collect(
        self,
        branch: _FilterLevel[Key],
        levels: list[str],
        depth: int,
        is_special: bool,
        found: dict[Key, Grants],
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
        if not is_special:
            following = branch.branches.get("+")
            if following is not None:
                self._collect(following, levels, depth + 1, False, found)


def _merge(ends: dict[Key, int], found: dict[Key, Grants]) -> None:
    for key, grant in ends.items():
        before = found.get(key)
        if before is None:
            found[key] = grant
        elif isinstance(before, tuple):
            found[key] = (*before, grant)
        elif grant > QOS or before > QOS:
            found[key] = (before, grant)
        elif before < grant:
            found[key] = grant


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
                if depth or not is_reserved(name):
                    yield from self._find(following, levels, depth + 1)
        else:
            named = stem.stems.get(level)
            if named is not None:
                yield from self._find(named, levels, depth + 1)

    def _walk(self, stem: _TopicLevel[Value], is_root: bool) -> Iterator[Value]:
        if stem.value is not None:
            yield stem.value
        for name, following in stem.stems.items():
            if not (is_root and is_reserved(name)):
                yield from self._walk(following, is_root=False)
