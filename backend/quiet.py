"""What Java says while Spark starts, without the lines that tell nobody anything.

The only file that touches the error stream. A virtual machine that is started within
`filter_errors` writes into a pipe for all its life; a thread hands on every line that is not in
`NOISE`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NOISE = (  # what no setting of Spark's or Java's keeps back
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
)
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
        for line in lines:
            if not line.startswith(NOISE):
                try:
                    out.write(line)
                except OSError:  # nobody reads errors any more; Spark must not stop for that
                    continue
