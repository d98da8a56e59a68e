"""What a run of one test file on one runtime gave, read from what the runtime printed.

The device's `unittest` (lib/unittest.py) prints one line per skip and a last summary line. A run
without that line, or whose exit code contradicts it, has failed whatever it printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
_SKIP = re.compile(r"^skip (.+?): (.*)$")


@dataclass(frozen=True)
class Outcome:
    """Counts of one run, each skip as (test, reason), and all that was printed."""

    passed: int
    failed: int
    skipped: int
    skips: tuple[tuple[str, str], ...]
    output: str

    @property
    def is_ok(self) -> bool:
        """True if nothing failed and something was found to run."""
        return self.failed == 0 and self.passed + self.skipped > 0


def read_outcome(output: str, exit_code: int) -> Outcome:
    """Return the outcome that the output tells; a crash or a contradiction counts as a failure."""
    lines = output.strip().splitlines()
    summary = _SUMMARY.match(lines[-1].strip()) if lines else None
    if summary is None:
        return Outcome(0, 1, 0, (), f"{output}\nno summary line; exit code {exit_code}")
    passed, failed, skipped = (int(group) for group in summary.groups())
    if (exit_code == 0) != (failed == 0):
        failed += 1
        output += f"\nexit code {exit_code} contradicts the summary"
    skips = tuple((m[1], m[2]) for m in map(_SKIP.match, lines) if m)
    return Outcome(passed, failed, skipped, skips, output)
