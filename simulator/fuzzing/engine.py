"""Runs scripts on a target, names what goes wrong, and makes it small.

A *finding* is an exception that left the node: its type, and the innermost function of ours that it
came through. That is what known defects are compared by; it survives a change of lines and files.

Two ways to choose scripts. `fuzz_seeded` mutates the seeds with a seeded generator: the same
scripts on every machine, for tests. `guided.py` lets libFuzzer (atheris) keep what reaches new
code.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from simulator.fuzzing.corpus import list_seeds
from simulator.fuzzing.mutation import load_script, mutate_script, shrink_script
from simulator.fuzzing.targets import BoundError, Target

_OURS = f"{Path('denwatch')}/"
_KEPT = 400  # scripts that were mutated and may be mutated again


def try_script(target: Target, script: bytes) -> str:
    """Play a script; return the finding, "" if there is none."""
    try:
        target.play(load_script(script))
    except Exception as error:  # noqa: BLE001 - whatever leaves the node is what we look for
        return name_finding(error)
    return ""


def name_finding(error: Exception) -> str:
    """Return an exception's type and the innermost function of ours; raise it if it is none."""
    ours = _list_ours(error)
    if not ours and not isinstance(error, BoundError):
        raise error  # a defect of the target itself
    where = f" in {ours[-1]}" if ours else ""
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}{where}{notes}"


def is_ours(error: Exception) -> bool:
    """Return whether an exception came through code of ours."""
    return bool(_list_ours(error))


def _list_ours(error: Exception) -> list[str]:
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [code.co_qualname for code in codes if _OURS in Path(code.co_filename).as_posix()]


@dataclass
class FuzzReport:
    """What came of the scripts of one target."""

    target: str
    count: int = 0
    seconds: float = 0.0
    findings: dict[str, bytes] = field(default_factory=dict)  # the smallest script of each

    @property
    def rate(self) -> float:
        """Scripts in a second."""
        return self.count / self.seconds if self.seconds else 0.0


def fuzz_seeded(target: Target, count: int, seed: int, more: Sequence[bytes] = ()) -> FuzzReport:
    """Play the seeds and so many mutations of them; the same ones for the same arguments."""
    report = FuzzReport(target.name)
    rng = Random(seed)
    seeds = [*list_seeds(target.name), *more]
    kept = list(seeds)
    started = time.monotonic()
    for number in range(len(seeds) + count):
        if number < len(seeds):
            script = seeds[number]
        else:
            script = mutate_script(rng.choice(kept), rng, seeds)
            if len(kept) < _KEPT:
                kept.append(script)
            elif rng.random() < 0.1:
                kept[rng.randrange(len(seeds), _KEPT)] = script
        finding = try_script(target, script)
        report.count += 1
        if finding and len(script) < len(report.findings.get(finding, script + b"\0")):
            report.findings[finding] = script
    report.seconds = time.monotonic() - started
    return report


def shrink_finding(target: Target, script: bytes, finding: str) -> bytes:
    """Return the smallest script found that shows the same finding."""
    return shrink_script(script, lambda smaller: try_script(target, smaller) == finding)
