"""Defects that fuzzing shows and that nobody has mended yet, each with the input that shows it.

The list only shrinks: a test fails when an input here does no harm any more (then it moves to
corpus.py, so that it is played for ever), and when fuzzing finds anything that is not here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cbor2


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


KNOWN_INPUTS: tuple[KnownInput, ...] = ()


def find_known(target: str) -> dict[str, KnownInput]:
    """Return the known findings of a target."""
    return {known.finding: known for known in KNOWN_INPUTS if known.target == target}
