"""Defects that fuzzing shows and that nobody has mended yet, each with the input that shows it.

The list only shrinks: a test fails when an input here does no harm any more (then it moves to
corpus.py, so that it is played for ever), and when fuzzing finds anything that is not here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cbor2

from simulator.fuzzing.corpus import make_subscription


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


KNOWN_INPUTS = (
    KnownInput(
        "requests",
        "UnicodeEncodeError in ReplySender.send",
        [[0, b'{"list":true,"request":"\\ud800"}']],
        "any subscriber ends the node's run: half a surrogate pair in `request` cannot be encoded",
    ),
    KnownInput(
        "peers",
        "TypeError in Subscription.__init__",
        [15, 15, make_subscription({"prefer": 5})],
        "a peer's subscription whose `prefer` is no list ends the run, again at every contact",
    ),
)


def find_known(target: str) -> dict[str, KnownInput]:
    """Return the known findings of a target."""
    return {known.finding: known for known in KNOWN_INPUTS if known.target == target}
