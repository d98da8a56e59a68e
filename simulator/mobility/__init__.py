"""Mobility: who is where when, and the contacts that follow from it.

    paths = walk_randomly(50, 6 * HOUR, Random(7))
    contacts = find_contacts(paths, 6 * HOUR, reach=100.0)

Only sums, products and square roots of numbers: the same contacts on every machine.
"""

from __future__ import annotations

from simulator.mobility.disaster import list_areas, plan_disaster
from simulator.mobility.paths import Leg, Path, find_contacts, find_place
from simulator.mobility.sites import plan_chain, plan_convoy, plan_ferry
from simulator.mobility.waypoint import walk_randomly

__all__ = [
    "Leg",
    "Path",
    "find_contacts",
    "find_place",
    "list_areas",
    "plan_chain",
    "plan_convoy",
    "plan_disaster",
    "plan_ferry",
    "walk_randomly",
]
