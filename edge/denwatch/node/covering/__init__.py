"""Covering: which subscriptions add something new, and which others already cover.

    table = Covering(Domains(special={3: (0, 65535)}), Exact())
    table.subscribe("medic7", BoxedSubscription(0b1001, ({0: (40, 255), 3: (100, 200)},))).active

The rest of the system imports from here and, to turn vectors into boxes, from `boxes`. `Covering`
is loaded on first use, because it needs numba and a program that only describes subscriptions does
not. `README.md` explains the theory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from denwatch.node.covering.boxes import (
    Approximate,
    BoxedSubscription,
    Domains,
    Exact,
    Interval,
    Metric,
    PairWise,
    Policy,
    covers,
)

if TYPE_CHECKING:
    from denwatch.node.covering.table import Covering, CoveringChange, Placement

__all__ = [
    "Approximate",
    "BoxedSubscription",
    "Covering",
    "CoveringChange",
    "Domains",
    "Exact",
    "Interval",
    "Metric",
    "PairWise",
    "Placement",
    "Policy",
    "covers",
]


def __getattr__(name: str) -> Any:
    if name in ("CoveringChange", "Covering", "Placement"):
        from denwatch.node.covering import table

        return getattr(table, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
