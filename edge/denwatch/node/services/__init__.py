"""Service matching for mobile users: which services fit what a person at a place asks for.

All finders have `add`, `add_many`, `remove` and `find`: `ExactFinder` (bit masks), `BasicSvdFinder`
and `WeightedSvdFinder` (bSVDS and rwSVDS), `SumFinder` (SUMS), `RandomFinder` (RAND) and
`ExhaustiveFinder`. Spark searches with them over all nodes' logs; a node answers `find` by
`core.device_finder`. Needs numpy and numba.
"""

from denwatch.node.services.finder import ExactFinder, ExhaustiveFinder, Finder, RandomFinder
from denwatch.node.services.ranked import (
    BasicSvdFinder,
    ProjectedFinder,
    SumFinder,
    WeightedSvdFinder,
)
from denwatch.node.services.request import (
    FeasibilityRule,
    Result,
    ServiceMatch,
    ServiceRequest,
    Side,
)

__all__ = [
    "BasicSvdFinder",
    "ExactFinder",
    "ExhaustiveFinder",
    "FeasibilityRule",
    "Finder",
    "ProjectedFinder",
    "RandomFinder",
    "Result",
    "ServiceMatch",
    "ServiceRequest",
    "Side",
    "SumFinder",
    "WeightedSvdFinder",
]
