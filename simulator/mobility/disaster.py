"""A disaster area: an incident, where casualties wait and are treated, and who shuttles between.

After the areas and roles of Aschenbruck, Gerhards-Padilla and Martini, "Modeling mobility in
disaster area scenarios" (2009): incident location, patients waiting for treatment, casualties
clearing station, technical command, ambulance parking, and a hospital out of everybody's reach.
Nobody's radio spans it: news travels with those who carry stretchers and drive ambulances. A large
disaster is several such sites with a crew of about fifty each, and one hospital for all: ambulances
meet there, and carry news from one site to the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from simulator.mobility.paths import Path, begin_path

_CREW = 50  # of one site
_APART = (1_700.0, 1_100.0)  # m from site to site
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
    sites = max(1, round(count / _CREW))
    paths: list[Path] = []
    for site in range(sites):
        crew = count * (site + 1) // sites - count * site // sites
        paths += _plan_site(lay_out(site, sites), crew, duration, rng)
    return paths


def lay_out(site: int, sites: int) -> dict[str, Area]:
    """Return the areas of one of several sites, which stand in rows before one hospital."""
    rows = math.isqrt(sites)
    columns = -(-sites // rows)
    x, y = _APART[0] * (site % columns), _APART[1] * (site // columns)
    areas = {name: area._replace(x=area.x + x, y=area.y + y) for name, area in AREAS.items()}
    hospital = AREAS["hospital"]
    size = math.sqrt(sites)  # room for all
    areas["hospital"] = hospital._replace(
        x=hospital.x + _APART[0] * (columns - 1) / 2,
        y=hospital.y + _APART[1] * (rows - 1),
        width=hospital.width * size,
        height=hospital.height * size,
    )
    return areas


def list_areas(count: int) -> list[tuple[str, Area]]:
    """Return all areas of a disaster with so many hosts, the one hospital once."""
    sites = max(1, round(count / _CREW))
    layouts = [lay_out(site, sites) for site in range(sites)]
    found = [pair for areas in layouts for pair in areas.items() if pair[0] != "hospital"]
    return [*found, ("hospital", layouts[0]["hospital"])]


def _plan_site(areas: dict[str, Area], count: int, duration: int, rng: Random) -> list[Path]:
    paths: list[Path] = []
    for place, (group, share, tour) in enumerate(_ROLES):
        number = max(1, round(count * share))
        if place == len(_ROLES) - 1:
            number = max(0, count - len(paths))
        for _ in range(min(number, count - len(paths))):
            paths.append(_plan_one(group, [areas[name] for name in tour], duration, rng))
    return paths


def _plan_one(group: str, tour: Sequence[Area], duration: int, rng: Random) -> Path:
    speeds = _DRIVE if group == "ambulance" else _WALK
    path = begin_path(group, *tour[0].pick(rng))
    stop = rng.randrange(len(tour))
    while path.end < duration:
        stop = (stop + 1) % len(tour)
        speed = speeds[0] + (speeds[1] - speeds[0]) * rng.random()
        path.go(*tour[stop].pick(rng), speed)
        path.rest(path.end + rng.randrange(30_000, 240_001 if group == "ambulance" else 90_001))
    return path
