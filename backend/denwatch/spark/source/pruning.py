"""What a query's filters say about the records it can want. Pure.

Only the time and the node are used, to leave out blocks and files. Spark evaluates every filter
again: a block that is read may hold records outside of the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)


@dataclass(frozen=True)
class Bounds:
    """Since <= time < until, and the nodes; None: all."""

    since: int | None = None
    until: int | None = None
    nodes: frozenset[str] | None = None

    def narrow(self, since: int | None = None, until: int | None = None) -> Bounds:
        """Return bounds that also keep to these times."""
        lows = [bound for bound in (self.since, since) if bound is not None]
        highs = [bound for bound in (self.until, until) if bound is not None]
        return replace(self, since=max(lows, default=None), until=min(highs, default=None))

    def keep_nodes(self, nodes: Iterable[str]) -> Bounds:
        """Return bounds that also keep to these nodes."""
        wanted = frozenset(nodes)
        return replace(self, nodes=wanted if self.nodes is None else self.nodes & wanted)


def apply_filters(bounds: Bounds, filters: Iterable[Filter]) -> Bounds:
    """Return the bounds narrowed by filters, all of which hold."""
    for found in filters:
        column: tuple[str, ...] = getattr(found, "attribute", ())
        value: Any = getattr(found, "value", None)
        if column == ("node",):
            if isinstance(found, EqualTo):
                bounds = bounds.keep_nodes([value])
            elif isinstance(found, In):
                bounds = bounds.keep_nodes(value)
        elif column == ("time",) and type(value) is int:
            if isinstance(found, EqualTo):
                bounds = bounds.narrow(value, value + 1)
            elif isinstance(found, GreaterThanOrEqual):
                bounds = bounds.narrow(since=value)
            elif isinstance(found, GreaterThan):
                bounds = bounds.narrow(since=value + 1)
            elif isinstance(found, LessThan):
                bounds = bounds.narrow(until=value)
            elif isinstance(found, LessThanOrEqual):
                bounds = bounds.narrow(until=value + 1)
    return bounds
