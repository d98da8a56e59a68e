"""Defects that the campaign finds and that are not mended yet.

A violation that an entry recognises is counted as known, and the campaign goes on. Every entry has
a scenario in which it shows; once it does not show there any more, the campaign fails until the
entry is removed. So the list can only become shorter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from simulator.registry import DEFECTS, Violation
from simulator.scenario import ASK, MINUTE, Happening, Scenario

_UNNAMED = 256  # in the first number of a happening: the subscription has no name


@dataclass(frozen=True)
class Defect:
    """A defect, and how to recognise it."""

    check: str  # that notices it
    meaning: str  # when it shows
    scenario: Scenario  # in which it shows
    facts: frozenset[str]  # that a violation of the check has if it is this one
    other_facts: frozenset[str] = frozenset()  # and those that it does not have
    others: tuple[str, ...] = ()  # checks that notice it too


def find_defect(violation: Violation) -> str:
    """Return the name of the known defect that a violation shows, or ""."""
    for name, defect in DEFECTS.items():
        is_like = defect.facts <= violation.facts and not defect.other_facts & violation.facts
        if violation.rule in (defect.check, *defect.others) and is_like:
            return name
    return ""


def make_request(time: int, request: dict[str, Any]) -> Happening:
    """Return a happening: the first person asks for something."""
    return Happening(time, ASK, _UNNAMED, 0, json.dumps(request))


def make_small(
    seed: int, *happenings: Happening, minutes: int = 2, nodes: int = 2, **dials: int
) -> Scenario:
    """Return a small scenario: one person, one device, nobody asks for anything else."""
    dials = {"silent": 1, **dials}
    trouble = minutes * MINUTE
    drawn = tuple(sorted(dials.items()))
    return Scenario(seed, nodes, 1, 1, "epidemic", 100_000, happenings, trouble, dials=drawn)


__all__ = ["Defect", "find_defect", "make_request", "make_small"]
