"""How a sub-command fails: a message of one line, and the exit status."""

from __future__ import annotations

WRONG_INPUT = 1
WRONG_USAGE = 2
MISSING = 3

EXIT_STATUS = """\
exit status:
  0  done
  1  the input was refused: the message says why and where
  2  the command line was wrong
  3  something is missing: a file, or an optional package"""


class CommandError(Exception):
    """A failure with a message of one line; `status` is the exit status."""

    def __init__(self, message: str, status: int = WRONG_INPUT) -> None:
        super().__init__(message)
        self.status = status
