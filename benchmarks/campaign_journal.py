"""The journal of a campaign: what became of each seed and of each rule that was switched off.

A line of JSON each, so that a campaign that was stopped can go on.

A journal belongs to one state of the program, named by a hash of the sources that are loaded: after
a change everything is played again. Only this file knows how it looks.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from simulator.campaign import Catch, Outcome

_PACKAGES = ("denwatch", "simulator")


@cache
def hash_program() -> str:
    """Return what stands for the modules of ours that are loaded, by their sources."""
    hash = hashlib.sha256()
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in _PACKAGES and module.__file__:
            hash.update(name.encode() + b"\0" + Path(module.__file__).read_bytes())
    return hash.hexdigest()[:12]


class Journal:
    """Outcomes by seed, in memory and, with a path, in a file; `spent` has their seconds."""

    def __init__(self, path: Path | None) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self.catches: dict[str, Catch] = {}  # by rule
        self.spent: dict[int, float] = {}
        self._file: TextIO | None = None
        if path is not None:
            is_ours = self._read(path)
            self._file = path.open("a" if is_ours else "w", encoding="utf-8")
            if not is_ours:
                self._write({"program": hash_program()})

    def _read(self, path: Path) -> bool:
        """Take what is there; return whether it is of this program."""
        if not path.exists():
            return False
        lines = path.read_text(encoding="utf-8").split("\n")
        whole = [json.loads(line) for line in lines[:-1]]  # behind the last end is half a line
        if not whole or whole[0] != {"program": hash_program()}:
            return False
        for line in whole[1:]:
            if "rule" in line:
                self.catches[line["rule"]] = Catch(
                    line["rule"], tuple(line["broken"]), line["seed"]
                )
                continue
            self.spent[line["seed"]] = line.pop("seconds")
            lists = {name: tuple(line[name]) for name in ("faults", "broken", "known")}
            self.outcomes[line["seed"]] = Outcome(**{**line, **lists})
        if lines[-1]:
            path.write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
        return True

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def keep(self, outcome: Outcome, seconds: float) -> None:
        """Write down what became of a seed, and how long after the one before that was known."""
        self.outcomes[outcome.seed] = outcome
        self.spent[outcome.seed] = seconds
        self._write({**asdict(outcome), "seconds": seconds})

    def keep_catch(self, catch: Catch) -> None:
        """Write down who noticed that a rule was off."""
        self.catches[catch.rule] = catch
        self._write(asdict(catch))

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
