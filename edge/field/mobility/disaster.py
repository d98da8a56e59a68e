"""A disaster area: an incident, where casualties wait and are treated, and who shuttles between.

After the areas and roles of Aschenbruck, Gerhards-Padilla and Martini, "Modeling mobility in
disaster area scenarios" (2009): incident location, patients waiting for treatment, casualties
clearing station, technical command, ambulance parking, and a hospital out of everybody's reach.
Nobody's radio spans it: news travels with those who carry stretchers and drive ambulances.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from edge.field.mobility.paths import Path, begin_path

_WALK = (1.0, 2.0)  # m/s
_DRIVE = (5.0, 12.0)


class Area(NamedTuple):
    """A rectangle, in m."""

    x: float
    y: float
    width: float
    height: float

    def pick(self, rng: Random) -> tuple[float, float]:
        """Return a place in it."""
        return self.x + self.width * rng.random(), self.y + self.height * rng.random()


AREAS = {
    "incident": Area(0, 200, 300, 300),
    "waiting": Area(450, 300, 120, 120),
    "clearing": Area(750, 250, 150, 150),
    "command": Area(800, 550, 80, 60),
    "parking": Area(1_050, 200, 120, 100),
    "hospital": Area(1_500, 850, 150, 100),
}
# By group: share of all, its tour of areas, whether it drives on the last ones.
_ROLES: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("rescuer", 0.34, ("incident",)),
    ("bearer", 0.22, ("incident", "waiting")),
    ("medic", 0.14, ("waiting",)),
    ("doctor", 0.10, ("clearing",)),
    ("porter", 0.06, ("waiting", "clearing")),
    ("commander", 0.04, ("command", "clearing")),
    ("ambulance", 0.10, ("parking", "clearing", "hospital")),
)


def plan_disaster(count: int, duration: int, rng: Random) -> list[Path]:
    """Return the paths of hosts by role, for `duration` ms."""
    paths: list[Path] = []
    for place, (group, share, tour) in enumerate(_ROLES):
        number = max(1, round(count * share))
        if place == len(_ROLES) - 1:
            number = max(0, count - len(paths))
        for _ in range(min(number, count - len(paths))):
            paths.append(_plan_one(group, tour, duration, rng))
    return paths


def _plan_one(group: str, tour: tuple[str, ...], duration: int, rng: Random) -> Path:
    speeds = _DRIVE if group == "ambulance" else _WALK
    path = begin_path(group, *AREAS[tour[0]].pick(rng))
    stop = rng.randrange(len(tour))
    while path.end < duration:
        stop = (stop + 1) % len(tour)
        speed = speeds[0] + (speeds[1] - speeds[0]) * rng.random()
        path.go(*AREAS[tour[stop]].pick(rng), speed)
        path.rest(path.end + rng.randrange(30_000, 240_001 if group == "ambulance" else 90_001))
    return path
