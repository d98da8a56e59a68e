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
    "surrogate-in-reply": _stop(
        "UnicodeEncodeError in send",
        "a reply repeats a text that cannot be encoded: a lone surrogate in `request`, a name or a"
        " word; five times in a minute end the process",
        *("lying-subscriber", 3332, 1),
    ),
    "prefer-not-pairs": _stop(
        "TypeError in <genexpr>",
        "a signed subscription whose option `prefer` is no list of pairs stops every node it"
        " comes to",
        *("lying-items", 93, 15572),
    ),
    "receipt-epoch": _stop(
        "OverflowError in _begin_key",
        "a receipt of a note whose epoch does not fit into 32 bits stops every node it comes to;"
        " so does the own epoch of a node that was started after 2106",
        *("lying-items", 0, 1),
    ),
    "receipt-name": _stop(
        "ValueError in _begin_key",
        "a receipt of a note whose origin has a name of more than 255 bytes stops every node",
        *("lying-items", 427, 39078),
    ),
    "receipt-sequence": _stop(
        "OverflowError in key",
        "a receipt of a note whose sequence does not fit into 64 bits stops every node",
        *("lying-items", 245, 39612),
    ),
    "receipt-code": _stop(
        "IndexError in make_key",
        "a receipt of a note whose sequence does not fit into 40 bits is taken for one of another"
        " run and stops the node",
        *("lying-items", 118, 16939),
    ),
    "note-number": _stop(
        "LogRecordError in encode_record",
        "a notification with numbers that the log cannot hold stops every node it comes to",
        *("lying-items", 10, 13655),
    ),
    "note-time": _stop(
        "OverflowError in flush",
        "a notification with times that a row cannot hold stops every node it comes to",
        *("lying-items", 199, 3018),
    ),
    "far-epoch": _stop(
        "ProtocolError in check_range",
        "a node that was started with its clock after 2106 has an epoch that its frames cannot"
        " hold, for ever",
        *("far-clock", 0, 1),
    ),
    "full-at-opening": Defect(
        "back",
        "a process that finds its disk full when it opens the store ends, and does not try again",
        _lie("full-disk", 0, 1),
        frozenset({"StoreFull"}),
    ),
    "too-many-files": Defect(
        "back",
        "a process that cannot open a file of its log or its key file ends",
        _lie("too-many-files", 1, 7920),
        frozenset({"OSError"}),
    ),
    "name-taken": Defect(
        "own-voice",
        "any member registers a subscriber or device of another node anew, with a higher version,"
        " its own password and any role",
        make_small(
            1,
            Happening(1_000, "meet", 2, 0),  # the liar hears of the others
            Happening(_EARLY, "lying-registrations", 1, 1),
            nodes=3,
            whole=1,
        ),
        frozenset({"registered"}),
    ),
    "name-revoked": Defect(
        "own-voice",
        "any member revokes subscribers and devices that other nodes registered",
        _lie("lying-revocations", 0, 1),
        frozenset({"revoked"}),
    ),
    "silenced-by-receipts": Defect(
        "unsilenced",
        "a receipt of notes that do not exist yet keeps them from their subscriber",
        make_small(2, Happening(_EARLY, "lying-receipts", 0, 0), nodes=3, silent=0, minutes=3),
        frozenset({"receipts"}),
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
        "a value that changed on the disk is not found to be damaged: an exception leaves the"
        " event loop",
        _lie("torn-value", 4, 31677),
        frozenset({"while it runs"}),
    ),
    "decayed-start": Defect(
        "damaged",
        "a node does not start from a disk on which one value changed, and does not say which",
        _lie("torn-value", 0, 9),
        frozenset({"at its start"}),
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
