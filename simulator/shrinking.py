"""Makes a failing scenario shorter: fewer happenings, people, devices and nodes, plainer dials and
subscriptions. Knows nothing of what fails: it is given a function that says whether it still does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from simulator.requests import drop_parts
from simulator.scenario import Scenario

_LEAST = {"people": 1, "devices": 1, "nodes": 2}


class Shrinker:
    """One search; it ends when nothing can be left out, or `budget` scenarios were tried."""

    def __init__(self, fails: Callable[[Scenario], bool], budget: int) -> None:
        self._fails = fails
        self._budget = budget

    def shrink(self, scenario: Scenario) -> Scenario:
        """Return a scenario that fails alike, with as little as possible in it."""
        shorter = self._drop_happenings(scenario)
        for list_smaller in (_list_fewer, _list_plainer, _list_simpler):
            shorter = self._follow(shorter, list_smaller)
        return shorter

    def _try(self, candidate: Scenario) -> bool:
        self._budget -= 1
        return self._budget >= 0 and self._fails(candidate)

    def _drop_happenings(self, scenario: Scenario) -> Scenario:
        """Leave out halves, then quarters, and in the end one happening at a time."""
        happenings = list(scenario.happenings)
        size = max(1, len(happenings) // 2)
        while size and self._budget > 0:
            place = 0
            while place < len(happenings) and self._budget > 0:
                fewer = happenings[:place] + happenings[place + size :]
                if self._try(replace(scenario, happenings=tuple(fewer))):
                    happenings = fewer
                else:
                    place += size
            size //= 2
        return replace(scenario, happenings=tuple(happenings))

    def _follow(
        self, scenario: Scenario, list_smaller: Callable[[Scenario], Iterator[Scenario]]
    ) -> Scenario:
        """Take the first smaller one that still fails, and go on from there."""
        while self._budget > 0:
            found = next((each for each in list_smaller(scenario) if self._try(each)), None)
            if found is None:
                break
            scenario = found
        return scenario


def _list_fewer(scenario: Scenario) -> Iterator[Scenario]:
    for name, least in _LEAST.items():
        count = getattr(scenario, name)
        if count > least:
            yield replace(scenario, **{name: count - 1})


def _list_plainer(scenario: Scenario) -> Iterator[Scenario]:
    for name, _ in scenario.dials:
        if name != "silent":
            yield replace(scenario, dials=tuple(d for d in scenario.dials if d[0] != name))
    if not scenario.dial("silent"):
        yield replace(scenario, dials=(*scenario.dials, ("silent", 1)))


def _list_simpler(scenario: Scenario) -> Iterator[Scenario]:
    for place, happening in enumerate(scenario.happenings):
        for request in drop_parts(json.loads(happening.body)) if happening.body else ():
            simpler = happening._replace(body=json.dumps(request, ensure_ascii=False))
            happenings = [*scenario.happenings]
            happenings[place] = simpler
            yield replace(scenario, happenings=tuple(happenings))
