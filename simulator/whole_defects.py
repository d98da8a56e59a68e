"""Known defects that whole nodes and lies with good keys show: see `known_defects.py`."""

from __future__ import annotations

from simulator.known_defects import Defect, make_small
from simulator.registry import DEFECTS
from simulator.scenario import Happening

_EARLY = 20_000  # ms


_WHOLE_DEFECTS = {
    "silenced-by-deaths": Defect(
        "unsilenced",
        "a member removes the subscriptions of others by saying that they were removed",
        make_small(1, Happening(_EARLY, "lying-deaths", 0, 1), silent=0),
        frozenset({"deaths"}),
    ),
}
DEFECTS |= _WHOLE_DEFECTS
NAMES = tuple(_WHOLE_DEFECTS)
