"""Places that seldom meet: two sites with a ferry, a chain of villages, columns on one road.

In each of them most hosts never meet most others, and news travels with the few who go between.
"""

from __future__ import annotations

from random import Random

from simulator.mobility.paths import Path, begin_path

_WALK = (0.5, 2.0)  # m/s
_LONGEST_REST = 180_000  # ms
_CROSSING = 6_000.0  # m from site to site
_ALONG = 1_500.0  # m from village to village
_RESIDENTS = 3  # of a village
_COLUMN = 12  # vehicles
_SPACING = 80.0  # m from vehicle to vehicle


def plan_ferry(count: int, duration: int, rng: Random, period: int) -> list[Path]:
    """Return two sites of walkers, and one ferry that is back every `period` ms."""
    paths = [
        _walk_about(_CROSSING * (number % 2), 0.0, 500.0, duration, rng)
        for number in range(count - 1)
    ]
    stay = period // 12
    speed = 1000 * _CROSSING / (period // 2 - stay)
    ferry = begin_path("ferry", 250.0, 250.0)
    ferry.rest(rng.randrange(1, period))
    side = 0
    while ferry.end < duration:
        side = 1 - side
        ferry.go(250.0 + _CROSSING * side, 250.0, speed)
        ferry.rest(ferry.end + stay)
    return [*paths, ferry]


def plan_chain(count: int, duration: int, rng: Random) -> list[Path]:
    """Return villages in a row, and between any two neighbours one courier."""
    villages = max(2, (count + 1) // (_RESIDENTS + 1))
    paths: list[Path] = []
    for first in range(villages - 1):
        path = begin_path("courier", _ALONG * first + 75.0, 75.0)
        path.rest(rng.randrange(1, 600_000))
        at = 0
        while path.end < duration:
            at = 1 - at
            path.go(_ALONG * (first + at) + 75.0, 75.0, 2.0 + 4.0 * rng.random())
            path.rest(path.end + rng.randrange(60_000, 300_001))
        paths.append(path)
    for number in range(count - len(paths)):
        paths.append(_walk_about(_ALONG * (number % villages), 0.0, 150.0, duration, rng))
    return paths


def plan_convoy(count: int, duration: int, rng: Random) -> list[Path]:
    """Return columns that drive up and down a road of 20 km, and a post at every fifth of it."""
    posts = 6
    paths = [_walk_about(4_000.0 * number, 0.0, 60.0, duration, rng) for number in range(posts)]
    road = 4_000.0 * (posts - 1)
    columns = max(1, (count - posts) // _COLUMN)
    for column in range(columns):
        speed = 4.0 + 6.0 * rng.random()
        rest = rng.randrange(300_000, 1_200_001)
        start = rng.randrange(1, 3_600_000)
        size = (count - posts) * (column + 1) // columns - (count - posts) * column // columns
        for place in range(size):
            path = begin_path("vehicle", _SPACING * place, 30.0)
            path.rest(start)
            is_out = False
            while path.end < duration:
                is_out = not is_out
                behind = _SPACING * (place + rng.random() - 0.5)
                path.go(
                    road - behind if is_out else behind, 30.0, speed * (0.97 + 0.06 * rng.random())
                )
                path.rest(path.end + rest)
            paths.append(path)
    return paths


def _walk_about(x: float, y: float, side: float, duration: int, rng: Random) -> Path:
    """Return the path of somebody who stays in one square."""
    path = begin_path("resident", x + side * rng.random(), y + side * rng.random())
    while path.end < duration:
        speed = _WALK[0] + (_WALK[1] - _WALK[0]) * rng.random()
        path.go(x + side * rng.random(), y + side * rng.random(), speed)
        path.rest(path.end + rng.randrange(_LONGEST_REST + 1))
    return path
