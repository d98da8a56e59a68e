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


DEFECTS |= {
    "top-k-anew": Defect(
        "top-k-anywhere",
        "a top-k begins anew at the node that a person walks to",
        make_small(
            1,
            make_request(
                1_000, {"subscribe": "heart_rate is rising(40, 220), at least 0.1, top 1"}
            ),
            stroll=1,
        ),
        frozenset({"walked"}),
    ),
    "listed-after-goodbye": Defect(
        "present",
        "a device that disconnected in order stays listed as present",
        make_small(1, Happening(10_000, "carry", 0, 17), minutes=4),
        frozenset({"goodbye"}),
        frozenset({"there"}),
    ),
    "listed-without-will": Defect(
        "present",
        "an app that publishes readings has no will: once it is killed it stays listed as present",
        make_small(1, Happening(10_000, "device-killed", 0, 50_000), minutes=4, apps=1),
        frozenset({"no will"}),
        frozenset({"there"}),
    ),
    "erased-passes-for-old": Defect(
        "held-back",
        "an erased device says hello until its count passes that of its last hello before; then it"
        " is taken for its old self: it never gets its subscriptions, and the node acknowledges"
        " its readings without taking them",
        make_small(
            1,
            make_request(1_000, {"subscribe": "heart_rate above 10"}),
            Happening(50_000, "reflash", 0, 3 << 12),
            minutes=4,
        ),
        frozenset({"passes for its old self"}),
        others=("covered", "acknowledged", "arrived"),
    ),
    "number-used-again": Defect(
        "arrived",
        "the readings of an erased device, which an operator lets begin anew, have numbers that"
        " were used before: our library takes them for old ones",
        make_small(
            1,
            make_request(1_000, {"subscribe": "heart_rate above 10"}),
            Happening(50_000, "reflash", 0, 0),
        ),
        frozenset({"taken for another"}),
    ),
}


__all__ = ["Defect", "find_defect", "make_request", "make_small"]
