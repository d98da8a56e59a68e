"""Defects that fuzzing shows and that nobody has mended yet, each with the input that shows it.

The list only shrinks: a test fails when an input here does no harm any more (then it moves to
corpus.py, so that it is played for ever), and when fuzzing finds anything that is not here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cbor2

from simulator.fuzzing.corpus import VECTOR, make_subscription


class KnownInput(NamedTuple):
    """A script, the finding that it shows, and what it means."""

    target: str
    finding: str
    script: Any
    meaning: str

    @property
    def encoded(self) -> bytes:
        """The script as targets take it."""
        return cbor2.dumps(self.script)


_PREFER = "a subscription whose `prefer` is no list of pairs ends the run, at every contact"
_NUMBERS = "a notification whose device number is beyond 64 bits cannot be logged, and ends the run"
_OPTIONS = "TypeError in Subscription.__init__"
_PAIRS = "TypeError in Subscription.__init__.<locals>.<genexpr>"
_UNLOGGED = "LogRecordError in encode_record"
_HUGE: list[Any] = [1, 0, 3, ["", 1, 10**40, 0, 10, b"", VECTOR]]
KNOWN_INPUTS = (
    KnownInput(
        "requests",
        "UnicodeEncodeError in Replies.send",
        [[0, b'{"list":true,"request":"\\ud800"}']],
        "any subscriber ends the run: the reply repeats half a surrogate pair, which has no bytes",
    ),
    KnownInput("peers", _OPTIONS, [15, 15, make_subscription({"prefer": 5})], _PREFER),
    KnownInput("peers", _PAIRS, [15, 15, make_subscription({"prefer": [5]})], _PREFER),
    KnownInput("peers", _UNLOGGED, [15, 15, _HUGE], _NUMBERS),
    KnownInput(
        "peers",
        "OverflowError in _begin_key",
        [15, 15, [2, 0, 4, ["", [["", 1 << 49, 0]]]]],
        "a receipt for a notification whose epoch is beyond 32 bits ends the run",
    ),
    KnownInput("operators", _OPTIONS, [[make_subscription({"prefer": 5})]], _PREFER),
    KnownInput("operators", _PAIRS, [[make_subscription({"prefer": [5]})]], _PREFER),
    KnownInput("operators", _UNLOGGED, [[_HUGE]], _NUMBERS),
)


def find_known(target: str) -> dict[str, KnownInput]:
    """Return the known findings of a target."""
    return {known.finding: known for known in KNOWN_INPUTS if known.target == target}
