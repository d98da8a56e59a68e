"""What kind of covering a table looks for, and what it may spend on it. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Metric(Enum):
    """Which negative rectangles deserve to be cut first when not all of them can be."""

    RATIO = "benefit/cost"  # volume removed for each piece left behind
    BENEFIT = "benefit"  # volume removed
    COST = "cost"  # fewest pieces left behind


@dataclass(frozen=True, slots=True)
class PairWise:
    """A subscription is passive if one active subscription covers it alone."""


@dataclass(frozen=True, slots=True)
class Exact:
    """A subscription is passive if and only if the active ones together cover it.

    The negative space can grow with the number of subscriptions to the power of the dimensions:
    meant for few attributes, or as the judge of the approximate form.
    """

    merging: bool = False  # join what a cut leaves with adjacent negative rectangles
    pairs: bool = True  # look first for one active subscription that covers it alone


@dataclass(frozen=True, slots=True)
class Approximate:
    """Like `Exact`, but a new subscription leaves at most a budget of pieces behind.

    It may take a covered subscription for active, never the reverse. The budget is `k`, or, when
    `dynamic`, what is left of `k` for each active subscription: k * i minus the rectangles there
    are before the i-th.
    """

    k: int = 50
    dynamic: bool = False
    metric: Metric = Metric.RATIO
    merging: bool = False
    pairs: bool = True
    handover: bool = True  # on unsubscription, give sections to others that cover them too

    def __post_init__(self) -> None:
        if self.k < 0:
            raise ValueError(f"k must not be negative, but is {self.k}")


Policy = PairWise | Exact | Approximate
