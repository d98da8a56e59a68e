"""Defects that the campaign finds and that are not mended yet.

A violation that an entry recognises is counted as known, and the campaign goes on. Every entry has
a scenario in which it shows; once it does not show there any more, the campaign fails until the
entry is removed. So the list can only become shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.registry import DEFECTS, Violation
from simulator.scenario import Scenario


@dataclass(frozen=True)
class Defect:
    """A defect, and how to recognise it."""

    check: str  # that notices it
    meaning: str  # when it shows
    scenario: Scenario  # in which it shows
    is_it: Callable[[Violation], bool]  # whether a violation of that check is this one


def find_defect(violation: Violation) -> str:
    """Return the name of the known defect that a violation shows, or ""."""
    for name, defect in DEFECTS.items():
        if defect.check == violation.rule and defect.is_it(violation):
            return name
    return ""


__all__ = ["Defect", "find_defect"]
