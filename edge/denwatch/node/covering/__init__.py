"""Covering: which subscriptions add something new, and which others already cover.

    table = Covering(Domains(special={3: (0, 65535)}), Exact())
    table.subscribe("medic7", BoxedSubscription(0b1001, ({0: (40, 255), 3: (100, 200)},))).active

The rest of the system imports from here and, to turn vectors into boxes, from `boxes`. `README.md`
explains the theory.
"""

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
