"""The preferential subscription graph: who covers whom, kept right under insert and delete.

A node is a class of subscriptions that cover each other; an edge goes from a subscription to one
that it covers with nothing between (PrefSIENA, Definition 9). A notification walks down from the
roots and meets a node only if all nodes above it matched, so whole parts are never tested.

Covering and matching are given by the caller, so typed content, fuzzy vectors and boxes work
alike. `covers(a, b)` must be reflexive and transitive and true only if all that matches b matches
a; `degree(s, n)` is 0 for "does not match", up to 255. If `covers` misses true covers the graph
has more roots and the walk still finds everything.

`choose_server` picks a server for a new subscriber by the two criteria of section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
N = TypeVar("N")
Key = Hashable


@dataclass(frozen=True, slots=True)
class Walk:
    """What one notification met: the matching keys with their degrees, and the work done."""

    matches: tuple[tuple[Key, int], ...]
    tested: int


class _Node(Generic[S]):
    """One class of equivalent subscriptions; dicts serve as sets that keep their order."""

    __slots__ = ("above", "below", "groups")

    def __init__(self, subscription: S) -> None:
        self.groups: dict[S, dict[Key, None]] = {subscription: {}}
        self.above: dict[_Node[S], None] = {}
        self.below: dict[_Node[S], None] = {}

    @property
    def subscription(self) -> S:
        """Any member: they all match the same notifications."""
        return next(iter(self.groups))


class SubscriptionGraph(Generic[S, N]):
    """Subscriptions by key, ordered by covering."""

    def __init__(
        self, covers: Callable[[S, S], bool], degree: Callable[[S, N], int] | None = None
    ) -> None:
        self.covers = covers
        self._degree = degree
        self._roots: dict[_Node[S], None] = {}
        self._nodes: dict[S, _Node[S]] = {}
        self._keys: dict[Key, S] = {}
        self._size = 0

    def __len__(self) -> int:
        """Return the number of nodes, which is the second criterion of server choice."""
        return self._size

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def insert(self, key: Key, subscription: S) -> bool:
        """Add a subscription; return whether it made a new root (its own message traffic)."""
        if key in self._keys:
            raise ValueError(f"subscription {key!r} is already in the graph")
        node = self._nodes.get(subscription)
        is_new_root = False
        if node is None:
            parents, twin = self._find_parents(subscription)
            if twin is not None:
                twin.groups[subscription] = {}
                node = twin
            else:
                node = self._link(subscription, parents)
                is_new_root = not parents
            self._nodes[subscription] = node
        node.groups[subscription][key] = None
        self._keys[key] = subscription
        return is_new_root

    def delete(self, key: Key) -> S:
        """Remove one key; its node goes with the last key that holds it."""
        try:
            subscription = self._keys.pop(key)
        except KeyError:
            raise KeyError(f"subscription {key!r} is not in the graph") from None
        node = self._nodes[subscription]
        del node.groups[subscription][key]
        if not node.groups[subscription]:
            del self._nodes[subscription]
            if len(node.groups) == 1:
                self._unlink(node)
            del node.groups[subscription]
        return subscription

    def find_matching(self, notification: N) -> Walk:
        """Return every key whose subscription matches, by the pruned walk."""
        measure = self._need_degree()
        matches: list[tuple[Key, int]] = []
        matched_above: dict[_Node[S], int] = {}
        ready = list(self._roots)
        tested = 0
        for node in ready:  # grows while it is read
            node_matches = False
            for subscription, keys in node.groups.items():
                tested += 1
                degree = measure(subscription, notification)
                if degree > 0:
                    node_matches = True
                    matches.extend((key, degree) for key in keys)
            if not node_matches:
                continue
            for child in node.below:
                matched_above[child] = matched_above.get(child, 0) + 1
                if matched_above[child] == len(child.above):
                    ready.append(child)
        return Walk(tuple(matches), tested)

    def has_match(self, notification: N) -> bool:
        """Return whether anything here matches: the roots alone tell."""
        measure = self._need_degree()
        return any(measure(root.subscription, notification) > 0 for root in self._roots)

    def is_covered(self, subscription: S) -> bool:
        """Return whether some subscription here covers this one, so that it adds no traffic."""
        if subscription in self._nodes:
            return True
        return any(self.covers(root.subscription, subscription) for root in self._roots)

    def list_roots(self) -> list[S]:
        """Return one subscription for each root: together they ask for all that is wanted."""
        return [root.subscription for root in self._roots]

    def list_edges(self) -> list[tuple[S, S]]:
        """Return all edges, each from the more general to the more special subscription."""
        return [
            (node.subscription, child.subscription)
            for node in self._walk_nodes()
            for child in node.below
        ]

    def list_classes(self) -> list[list[S]]:
        """Return the nodes, each as its mutually covering subscriptions."""
        return [list(node.groups) for node in self._walk_nodes()]

    def find_keys(self, subscription: S) -> list[Key]:
        """Return the keys that hold exactly this subscription."""
        node = self._nodes.get(subscription)
        return list(node.groups[subscription]) if node else []

    def _need_degree(self) -> Callable[[S, N], int]:
        if self._degree is None:
            raise TypeError("this graph was built without a degree of match")
        return self._degree

    def _walk_nodes(self) -> Iterator[_Node[S]]:
        return iter(dict.fromkeys(self._nodes.values()))

    def _find_parents(self, subscription: S) -> tuple[list[_Node[S]], _Node[S] | None]:
        """Return the most special nodes that cover it, and the node that is equivalent, if any."""
        parents: list[_Node[S]] = []
        covering: list[_Node[S]] = []
        seen: dict[_Node[S], bool] = {}

        def is_above(node: _Node[S]) -> bool:
            if node not in seen:
                seen[node] = self.covers(node.subscription, subscription)
                if seen[node]:
                    covering.append(node)
            return seen[node]

        for root in self._roots:
            is_above(root)
        for node in covering:  # grows while it is read
            # Counted, not any(): every child that covers has to be visited.
            if sum(map(is_above, node.below)) == 0:
                if self.covers(subscription, node.subscription):
                    return [], node
                parents.append(node)
        return parents, None

    def _find_children(self, subscription: S, parents: list[_Node[S]]) -> list[_Node[S]]:
        """Return the most general nodes that it covers."""
        seen: dict[_Node[S], bool] = {}

        def is_below(node: _Node[S]) -> bool:
            if node not in seen:
                seen[node] = self.covers(subscription, node.subscription)
            return seen[node]

        # What it covers, each of its parents covers: below one parent is everything to look at.
        narrow = min(parents, key=lambda node: len(node.below), default=None)
        todo: dict[_Node[S], None] = dict(self._roots if narrow is None else narrow.below)
        covered: list[_Node[S]] = []
        queue = list(todo)
        for node in queue:  # grows while it is read
            if is_below(node):
                covered.append(node)
                continue
            for child in node.below:
                if child not in todo:
                    todo[child] = None
                    queue.append(child)
        return [node for node in covered if not any(map(is_below, node.above))]

    def _link(self, subscription: S, parents: list[_Node[S]]) -> _Node[S]:
        children = self._find_children(subscription, parents)
        node = _Node(subscription)
        self._size += 1
        for parent in parents:
            for child in children:
                if child in parent.below:
                    self._cut(parent, child)
            self._join(parent, node)
        for child in children:
            self._roots.pop(child, None)
            self._join(node, child)
        if not parents:
            self._roots[node] = None
        return node

    def _unlink(self, node: _Node[S]) -> None:
        parents, children = list(node.above), list(node.below)
        self._size -= 1
        for parent in parents:
            self._cut(parent, node)
        for child in children:
            self._cut(node, child)
        for child in children:
            for parent in parents:
                if not self._has_cover(parent.below, child):
                    self._join(parent, child)
        self._roots.pop(node, None)
        self._roots.update((child, None) for child in children if not child.above)

    def _has_cover(self, candidates: Iterable[_Node[S]], node: _Node[S]) -> bool:
        return any(self.covers(other.subscription, node.subscription) for other in candidates)

    @staticmethod
    def _join(parent: _Node[S], child: _Node[S]) -> None:
        parent.below[child] = None
        child.above[parent] = None

    @staticmethod
    def _cut(parent: _Node[S], child: _Node[S]) -> None:
        del parent.below[child]
        del child.above[parent]


@dataclass(frozen=True, slots=True, order=True)
class ServerOffer:
    """A probed server's answer; the least is the best, and the name breaks the last tie."""

    new_roots: int  # criterion 1: new nodes on the highest level, so new traffic to the server
    nodes: int  # criterion 2: nodes in its graph, so the work of searching it
    server: str


def probe_server(
    server: str, graph: SubscriptionGraph[S, N], subscriptions: Iterable[S]
) -> ServerOffer:
    """Say what subscriptions would add to a server, without adding them."""
    wanted = [s for s in dict.fromkeys(subscriptions) if not graph.is_covered(s)]
    # Among themselves they count once: what another new one covers becomes no root.
    newcomers: SubscriptionGraph[S, N] = SubscriptionGraph(graph.covers)
    for number, subscription in enumerate(wanted):
        newcomers.insert(number, subscription)
    return ServerOffer(len(newcomers.list_roots()), len(graph), server)


def choose_server(offers: Iterable[ServerOffer]) -> ServerOffer:
    """Return the best of the probed servers."""
    try:
        return min(offers)
    except ValueError:
        raise ValueError("no server was probed") from None
