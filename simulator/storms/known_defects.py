"""Promises that a storm breaks and that nobody has mended yet; each storm reproduces its own.

The list only shrinks: the command and a test fail when a storm breaks anything that is not here,
and when a short form does not break what it is known to. (Whether a long one does may depend on how
fast the machine is.)
"""

from __future__ import annotations

from typing import NamedTuple


class KnownBreak(NamedTuple):
    """A storm, the promise that it breaks, and why. `is_short`: its short form shows it, too."""

    storm: str
    promise: str
    meaning: str
    is_short: bool = True


KNOWN_BREAKS: tuple[KnownBreak, ...] = ()


def find_known(storm: str, *, is_short: bool) -> set[str]:
    """Return the promises that a storm is known to break."""
    return {
        known.promise
        for known in KNOWN_BREAKS
        if known.storm == storm and (known.is_short or not is_short)
    }
