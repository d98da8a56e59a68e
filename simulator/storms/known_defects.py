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


_SILENT = (
    "links count only after their handshake: silent connections take all files, and the next"
    " status, which opens one, ends the process"
)
_HEAVY = "a silent connection to the TLS port holds 200 to 300 KiB, and nothing bounds their number"
KNOWN_BREAKS: tuple[KnownBreak, ...] = (
    KnownBreak("half-open-tls", "ended", _SILENT),
    KnownBreak("half-open-plain", "ended", _SILENT),
    KnownBreak("few-files", "ended", _SILENT),
    KnownBreak("half-open-tls", "memory", _HEAVY, is_short=False),
    KnownBreak("half-open-memory", "memory", _HEAVY, is_short=False),
    KnownBreak(
        "strangers",
        "disk",
        "a refused connect is a record and a commit: seven KiB each, until SQLite's log is full",
    ),
    KnownBreak(
        "full-disk",
        "ended",
        "a store that cannot be opened for lack of room ends the process instead of being retried",
    ),
    KnownBreak(
        "altered-reading",
        "altered",
        "no checksum covers what is stored: a flipped bit is served as another reading",
    ),
    KnownBreak(
        "clock-2107",
        "round trip",
        "a start in 2107 makes an epoch of more than four bytes, which every later start exceeds",
    ),
)


def find_known(storm: str, *, is_short: bool) -> set[str]:
    """Return the promises that a storm is known to break."""
    return {
        known.promise
        for known in KNOWN_BREAKS
        if known.storm == storm and (known.is_short or not is_short)
    }
