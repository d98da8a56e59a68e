"""What Java says while Spark starts, without the lines that tell nobody anything.

The only file that touches the error stream. A virtual machine that is started within
`filter_errors` writes into a pipe for all its life; a thread hands on every line that is not in
`NOISE`, and every traceback but one: a Python process of Spark's own that was idle for a minute is
closed, and complains that it cannot say so any more (for our own workers `daemon` sees to that).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

NOISE = (  # what no setting of Spark's or Java's keeps back
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
)
_TRACEBACK = b"Traceback (most recent call last):"
_CLOSED = b"BrokenPipeError:"
_DAEMON = b"/pyspark/daemon.py"
_ERRORS = 2


@contextmanager
def filter_errors() -> Iterator[None]:
    """Let processes that start here write their errors through the filter."""
    mine = os.dup(_ERRORS)
    reader, writer = os.pipe()
    os.dup2(writer, _ERRORS)
    os.close(writer)
    thread = threading.Thread(target=_hand_on, args=(reader, mine), daemon=True, name="errors")
    thread.start()
    try:
        yield
    finally:
        os.dup2(mine, _ERRORS)


def _hand_on(reader: int, target: int) -> None:
    """Write whole lines as they come, until everybody who writes has ended."""
    with os.fdopen(reader, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in drop_noise(lines):
            try:
                out.write(line)
            except OSError:  # nobody reads errors any more; Spark must not stop for that
                continue


def drop_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that somebody can use; a traceback when its last line is there."""
    kept: list[bytes] = []
    for line in lines:
        if line.startswith(_TRACEBACK):
            yield from kept
            kept = [line]
        elif kept and line.startswith(b" "):
            kept.append(line)
        else:
            if not (line.startswith(_CLOSED) and _is_of_daemon(kept)):
                yield from kept
                if not line.startswith(NOISE):
                    yield line
            kept = []
    yield from kept


def _is_of_daemon(traceback: list[bytes]) -> bool:
    """Return whether all of a traceback is in the process that only starts others."""
    places = [line for line in traceback[1:] if line.startswith(b"  File ")]
    return bool(places) and all(_DAEMON in place for place in places)
