"""How a sub-command fails: a message of one line, and the exit status."""

from __future__ import annotations

WRONG_INPUT = 1
WRONG_USAGE = 2
MISSING = 3
INTERRUPTED = 130

EXIT_STATUS = """\
exit status:
  0    done
  1    refused: the input, the password, or what was checked; the message says why and where
  2    the command line was wrong
  3    something is missing: a file, an optional package, a node that answers
  130  interrupted"""


class CommandError(Exception):
    """A failure with a message of one line; `status` is the exit status."""

    def __init__(self, message: str, status: int = WRONG_INPUT) -> None:
        super().__init__(message)
        self.status = status
