"""Service matching for mobile users: who offers what a person here asks for.

Finders (all with `add`, `add_many`, `remove`, `find`): `ExactFinder` by bit masks, `BasicSvdFinder`
and `WeightedSvdFinder` (bSVDS and rwSVDS), `SumFinder` (SUMS), `RandomFinder` (RAND) and
`ExhaustiveFinder`. `Directory` keeps them by region, for pull and push. Needs numpy and numba.
"""

from denwatch.node.services.attributes import Kind, Rule, Schema
from denwatch.node.services.directory import Directory
from denwatch.node.services.exact import ExactFinder
from denwatch.node.services.finder import ExhaustiveFinder, Finder, RandomFinder
from denwatch.node.services.ranked import (
    BasicSvdFinder,
    ProjectedFinder,
    SumFinder,
    WeightedSvdFinder,
)
from denwatch.node.services.request import Match, Request, Result, Side

__all__ = [
    "BasicSvdFinder",
    "Directory",
    "ExactFinder",
    "ExhaustiveFinder",
    "Finder",
    "Kind",
    "Match",
    "ProjectedFinder",
    "RandomFinder",
    "Request",
    "Result",
    "Rule",
    "Schema",
    "Side",
    "SumFinder",
    "WeightedSvdFinder",
]
