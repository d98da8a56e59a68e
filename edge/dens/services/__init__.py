"""Service matching for mobile users: who offers what a person here asks for.

Finders (all with `add`, `add_many`, `remove`, `find`): `ExactFinder` by bit masks, `BasicSvdFinder`
and `WeightedSvdFinder` (bSVDS and rwSVDS), `SumFinder` (SUMS), `RandomFinder` (RAND) and
`ExhaustiveFinder`. `Directory` keeps them by region, for pull and push. Needs numpy and numba.
"""

from edge.dens.services.attributes import Kind, Rule, Schema
from edge.dens.services.directory import Directory
from edge.dens.services.exact import ExactFinder
from edge.dens.services.finder import ExhaustiveFinder, Finder, RandomFinder
from edge.dens.services.ranked import (
    BasicSvdFinder,
    ProjectedFinder,
    SumFinder,
    WeightedSvdFinder,
)
from edge.dens.services.request import Match, Request, Result, Side

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
