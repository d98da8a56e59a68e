"""Services and users by region: a user pulls a service, a service pushes to users.

The only file that knows of regions. Each region has its own two finders, one over the services
published there and one over the needs of the users who are there now; a region without either
is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from denwatch.node.services.finder import Finder
from denwatch.node.services.request import FeasibilityRule, Result, ServiceRequest, Side


@dataclass
class _Region:
    services: Finder
    users: Finder


class ServiceDirectory:
    """Who offers what and who wants what, region by region, under one rule."""

    def __init__(
        self, make_finder: Callable[[], Finder], rule: FeasibilityRule = FeasibilityRule.POSITIVE
    ) -> None:
        self.rule = rule
        self._make_finder = make_finder
        self._regions: dict[Hashable, _Region] = {}
        self._need_of: dict[Hashable, tuple[Hashable, tuple[int, ...]]] = {}

    def list_regions(self) -> list[Hashable]:
        """Return the regions that have a service or a user, in order of arrival."""
        return list(self._regions)

    def publish_service(self, region: Hashable, service: Hashable, values: Sequence[int]) -> None:
        """Offer a service in a region; a service may be offered in many regions."""
        self._change(region, lambda here: here.services.add(service, values))

    def withdraw_service(self, region: Hashable, service: Hashable) -> None:
        """Take a service back; KeyError if it is not offered there."""
        if region not in self._regions:
            raise KeyError(f"no service {service!r} in region {region!r}")
        self._change(region, lambda here: here.services.remove(service))

    def register_user(self, region: Hashable, user: Hashable, values: Sequence[int]) -> None:
        """Store the need of a user who is in a region; a user is in one region at a time."""
        if user in self._need_of:
            raise ValueError(f"user {user!r} is already in region {self._need_of[user][0]!r}")
        self._change(region, lambda here: here.users.add(user, values))
        self._need_of[user] = (region, tuple(values))

    def move_user(self, user: Hashable, region: Hashable) -> None:
        """Move a user to another region, with the same need."""
        need = self.forget_user(user)
        self.register_user(region, user, need)

    def forget_user(self, user: Hashable) -> tuple[int, ...]:
        """Remove a user and return the need; KeyError if there is none."""
        if user not in self._need_of:
            raise KeyError(f"user {user!r} is in no region")
        region, need = self._need_of.pop(user)
        self._change(region, lambda here: here.users.remove(user))
        return need

    def pull_services(
        self,
        region: Hashable,
        values: Sequence[int],
        rng: np.random.Generator,
        limit: int | None = 1,
    ) -> Result:
        """Find the services of a region for a need."""
        here = self._regions.get(region)
        request = ServiceRequest(tuple(values), self.rule, Side.PULL, limit)
        return here.services.find(request, rng) if here else Result((), 0, 0)

    def pull_for_user(
        self, user: Hashable, rng: np.random.Generator, limit: int | None = 1
    ) -> Result:
        """Find services for a registered user, where that user is now."""
        if user not in self._need_of:
            raise KeyError(f"user {user!r} is in no region")
        region, need = self._need_of[user]
        return self.pull_services(region, need, rng, limit)

    def push_service(
        self,
        region: Hashable,
        values: Sequence[int],
        rng: np.random.Generator,
        limit: int | None = None,
    ) -> Result:
        """Find the users of a region for whom a service is feasible: all, unless limited."""
        here = self._regions.get(region)
        request = ServiceRequest(tuple(values), self.rule, Side.PUSH, limit)
        return here.users.find(request, rng) if here else Result((), 0, 0)

    def _change(self, region: Hashable, change: Callable[[_Region], None]) -> None:
        """Change one region; it is kept only if the change succeeds and leaves something."""
        here = self._regions.get(region)
        if here is None:
            here = _Region(self._make_finder(), self._make_finder())
        change(here)
        if len(here.services) or len(here.users):
            self._regions[region] = here
        else:
            self._regions.pop(region, None)
