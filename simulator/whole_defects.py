"""Known defects that whole nodes and lies with good keys show: see `known_defects.py`."""

from __future__ import annotations

from simulator.known_defects import Defect, make_small
from simulator.registry import DEFECTS
from simulator.scenario import Happening, Scenario

_EARLY = 20_000  # ms


def _lie(kind: str, first: int, second: int, nodes: int = 2, **dials: int) -> Scenario:
    """Return a scenario of whole nodes in which one thing is said."""
    return make_small(1, Happening(_EARLY, kind, first, second), nodes=nodes, whole=1, **dials)


def _stop(where: str, meaning: str, kind: str, first: int, second: int) -> Defect:
    """Return a defect: an exception leaves a node's event loop."""
    return Defect("unstopped", meaning, _lie(kind, first, second), frozenset({where}))


_WHOLE_DEFECTS = {
    "far-epoch": _stop(
        "ProtocolError in check_range",
        "a node that was started with its clock after 2106 has an epoch that its frames cannot"
        " hold, for ever",
        *("far-clock", 0, 1),
    ),
    "far-epoch-row": Defect(
        "unstopped",
        "such an epoch does not fit into the rows and frames for devices either",
        make_small(1, Happening(30_000, "far-clock", 0, 0), silent=0, whole=1),
        frozenset({"OverflowError in _pack"}),
    ),
    "far-epoch-key": Defect(
        "unstopped",
        "nor into the keys of items",
        make_small(1, Happening(30_000, "far-clock", 0, 0), silent=0, whole=1),
        frozenset({"OverflowError in _begin_key"}),
    ),
    "full-at-opening": Defect(
        "back",
        "a process that finds its disk full when it opens the store ends, and does not try again",
        _lie("full-disk", 0, 1),
        frozenset({"StoreFull in open_node"}),
    ),
    "too-many-files": Defect(
        "back",
        "a process that cannot open a file of its log or its key file ends",
        _lie("too-many-files", 1, 7920),
        frozenset({"OSError"}),
    ),
    "silenced-by-deaths": Defect(
        "unsilenced",
        "a member removes the subscriptions of others by saying that they were removed",
        make_small(1, Happening(_EARLY, "lying-deaths", 0, 1), silent=0),
        frozenset({"deaths"}),
    ),
    "runs-made-up": Defect(
        "frugal",
        "a member makes others keep a row for each run that it makes up, up to 65,536",
        _lie("flood", 0, 1),
        frozenset({"runs"}),
    ),
    "receipts-made-up": Defect(
        "frugal",
        "a member makes others keep a row for each note that it makes up in receipts, without end",
        make_small(1, Happening(_EARLY, "flood", 0, 1)),
        frozenset({"receipts"}),
    ),
    "decayed-value": Defect(
        "damaged",
        "a value that changed on the disk is not found to be damaged: an exception leaves the event"
        " loop, or the node does not start and does not say which value it is",
        make_small(1, Happening(30_000, "bit-flip", 0, 28), silent=0),
        frozenset(),
    ),
    "narrow-packets": Defect(
        "understood",
        "limits.packet_bytes may be less than an item needs: then no peer can ever be heard",
        make_small(1, whole=1, limits=2),
        frozenset(),
    ),
}
DEFECTS |= _WHOLE_DEFECTS
NAMES = tuple(_WHOLE_DEFECTS)
