"""A hierarchy of PrefSIENA servers that counts its messages. Simulated time, no sockets.

As in hierarchical SIENA: a server passes a subscription up unless one that it passed before covers
it; a notification goes up to the top, and down to each child with a matching subscription.
Subscribers get what their top-k lets through. Every hop between two nodes is one message.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from denwatch.node.ranking import (
    ContentFilter,
    Forwarder,
    Preference,
    RankingPolicy,
    SubscriptionGraph,
    choose_server,
    covers,
    measure_degree,
    probe_server,
)

from papers.evaluations.prefsiena_movies import Movie

Graph = SubscriptionGraph[ContentFilter, Movie]


@dataclass
class Server:
    """One server: its clients' forwarding, what each child asked for, and its whole graph."""

    number: int
    clients: Forwarder[ContentFilter, Movie] = field(
        default_factory=lambda: Forwarder(covers, measure_degree)
    )
    children: dict[int, Graph] = field(default_factory=dict)
    graph: Graph = field(default_factory=lambda: SubscriptionGraph(covers, measure_degree))


class Hierarchy:
    """A complete tree of servers; server 0 is the top, `messages` counts by kind."""

    def __init__(self, depth: int, fanout: int) -> None:
        count = sum(fanout**level for level in range(depth))
        self.servers = [Server(number) for number in range(count)]
        self.parents: list[int | None] = [
            None,
            *((number - 1) // fanout for number in range(1, count)),
        ]
        for number, parent in enumerate(self.parents):
            if parent is not None:
                graph: Graph = SubscriptionGraph(covers, measure_degree)
                self.servers[parent].children[number] = graph
        self.leaves = [server.number for server in self.servers if not server.children]
        self.messages: Counter[str] = Counter()

    def choose(self, filters: Sequence[ContentFilter], among: Sequence[int]) -> int:
        """Probe servers and return the one that the two criteria prefer."""
        self.messages["probe"] += 2 * len(among)
        # Names of equal length, so that the last tie goes to the first server.
        offers = [
            probe_server(f"{number:06d}", self.servers[number].graph, filters) for number in among
        ]
        return int(choose_server(offers).server)

    def connect(
        self,
        subscriber: int,
        place: int,
        filters: Sequence[ContentFilter],
        policy: RankingPolicy,
        rng: random.Random,
    ) -> None:
        """Connect a subscriber to a server and spread its subscriptions with random scores."""
        server = self.servers[place]
        server.clients.connect(subscriber, policy)
        for number, subscription in enumerate(filters):
            key = (subscriber, number)
            self.messages["subscribe"] += 1
            server.clients.subscribe(Preference(key, subscriber, subscription, rng.random()))
            self._ask_above(place, key, subscription)

    def _ask_above(self, place: int, key: tuple[int, int], subscription: ContentFilter) -> None:
        """Pass a subscription up until a server already asked for as much."""
        here = place
        while self.servers[here].graph.insert(key, subscription):
            parent = self.parents[here]
            if parent is None:
                break
            self.messages["propagate"] += 1
            self.servers[parent].children[here].insert(key, subscription)
            here = parent

    def publish(self, note_id: int, movie: Movie, place: int, now: float, expires: float) -> None:
        """Publish at a server: up to the top, and down wherever somebody asked."""
        self.messages["publish"] += 1
        came_from: int | None = None
        here: int | None = place
        while here is not None:
            self._deliver(here, came_from, note_id, movie, now, expires)
            came_from, here = here, self.parents[here]
            self.messages["up"] += here is not None

    def _deliver(
        self, place: int, skip: int | None, note_id: int, movie: Movie, now: float, expires: float
    ) -> None:
        todo = [place]
        for number in todo:  # grows while it is read
            server = self.servers[number]
            decisions = server.clients.forward(note_id, movie, now, expires=expires)
            self.messages["notify"] += sum(decision.is_delivered for decision in decisions)
            for child, graph in server.children.items():
                if child != skip and graph.has_match(movie):
                    self.messages["down"] += 1
                    todo.append(child)


@dataclass(frozen=True)
class Plan:
    """One clustering experiment: who is there, and what is published at which server."""

    depth: int
    fanout: int
    subscribers: Sequence[Sequence[ContentFilter]]
    movies: Sequence[Movie]
    k: int = 1
    life: float = 20.0
    anywhere: bool = False  # clients may join any server, not only the leaves


@dataclass(frozen=True)
class Outcome:
    """What one play cost: messages by kind, and the share of subscribers on the fullest server."""

    messages: Counter[str]
    largest_crowd: float

    @property
    def total(self) -> int:
        """All messages between nodes, those of the start included."""
        return self.messages.total()

    @property
    def between_servers(self) -> int:
        """The messages that a choice of servers can change at all, with what choosing costs."""
        return sum(self.messages[kind] for kind in ("probe", "propagate", "up", "down"))


def play_plan(plan: Plan, is_clustered: bool, seed: int) -> Outcome:
    """Play the plan, with servers chosen at random or by the two criteria."""
    rng = random.Random(seed)
    tree = Hierarchy(plan.depth, plan.fanout)
    places = list(range(len(tree.servers))) if plan.anywhere else tree.leaves
    policy = RankingPolicy(k=plan.k)
    crowd: Counter[int] = Counter()
    for subscriber, filters in enumerate(plan.subscribers):
        place = rng.choice(places)  # drawn in both cases, so that all else is equal
        if is_clustered:
            place = tree.choose(filters, places)
        crowd[place] += 1
        tree.connect(subscriber, place, filters, policy, rng)
    for note_id, movie in enumerate(plan.movies):
        tree.publish(note_id, movie, rng.choice(places), float(note_id), note_id + plan.life)
    return Outcome(tree.messages, max(crowd.values()) / len(plan.subscribers))
