"""Random waypoint: everybody walks to a random place, rests, and walks on."""

from __future__ import annotations

from random import Random

from simulator.mobility.paths import Path, begin_path


def walk_randomly(
    count: int,
    duration: int,
    rng: Random,
    side: float = 2_000.0,
    speeds: tuple[float, float] = (0.5, 10.0),
    longest_rest: int = 120_000,
) -> list[Path]:
    """Return the paths of hosts in a square of `side` m, for `duration` ms."""
    paths = []
    for _ in range(count):
        path = begin_path("walker", side * rng.random(), side * rng.random())
        while path.end < duration:
            speed = speeds[0] + (speeds[1] - speeds[0]) * rng.random()
            path.go(side * rng.random(), side * rng.random(), speed)
            path.rest(path.end + rng.randrange(longest_rest + 1))
        paths.append(path)
    return paths
