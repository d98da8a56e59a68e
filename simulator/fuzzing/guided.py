"""One target under libFuzzer, in a process of its own; `__main__.py` reads its report.

atheris instruments our modules as they are imported, so that libFuzzer sees which branches a script
reaches and keeps the scripts that reach new ones. The mutations are ours (mutation.py). A finding
does not end the run: it is written into the report, and the search goes on beyond it. libFuzzer
ends the process itself, after the time, or with an error when memory passes its limit.

Compiled modules are not instrumented: numba cannot compile what atheris adds.
"""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it must not be imported before it can be instrumented
    from simulator.fuzzing.engine import FuzzReport

_COMPILED = ("denwatch.node.matching", "denwatch.node.covering", "denwatch.node.services")
MEMORY = 1_024  # MiB of the process, numba and the vocabulary included
SLOW = 60  # s that one script may take
_EVERY = 1.0  # s between two reports


def main() -> None:
    """Run `guided TARGET CORPUS REPORT SECONDS SEED`."""
    import atheris

    name, corpus, report_path, seconds, seed = sys.argv[1:]
    with atheris.instrument_imports(include=["denwatch"], exclude=list_compiled()):
        from simulator.fuzzing import corpus as scripts
        from simulator.fuzzing import engine, mutation, targets
    target = next(target for target in targets.list_targets() if target.name == name)
    seeds = scripts.list_seeds(name)
    report = engine.FuzzReport(name)
    folder = Path(corpus)
    folder.mkdir(parents=True, exist_ok=True)
    for number, script in enumerate(seeds):
        (folder / f"seed-{number:03}").write_bytes(script)
    for script in seeds:  # what numba compiles now, libFuzzer does not call a script that hangs
        engine.try_script(target, script)
    started = last = time.monotonic()

    def play(script: bytes) -> None:
        nonlocal last
        finding = engine.try_script(target, script)
        report.count += 1
        now = time.monotonic()
        is_new = bool(finding) and finding not in report.findings
        if finding and len(script) < len(report.findings.get(finding, script + b"\0")):
            report.findings[finding] = script
        if is_new or now - last > _EVERY:
            last, report.seconds = now, now - started
            write_report(Path(report_path), report)

    def mutate(script: bytes, max_size: int, number: int) -> bytes:
        changed = mutation.mutate_script(script, Random(number), seeds)
        return changed if len(changed) <= max_size else script

    atheris.Setup(
        [
            *(sys.argv[0], corpus, f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=65536"),
            *(
                f"-rss_limit_mb={MEMORY}",
                f"-timeout={SLOW}",
                "-verbosity=0",
                "-print_final_stats=0",
            ),
            f"-artifact_prefix={folder}/",
        ],
        play,
        custom_mutator=mutate,
    )
    atheris.Fuzz()


def list_compiled() -> list[str]:
    """Return the modules that are left as they are."""
    names = []
    for package in _COMPILED:
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.submodule_search_locations is not None
        folders = found.submodule_search_locations
        names += [package, *(f"{package}.{name}" for _, name, _ in pkgutil.iter_modules(folders))]
    return names


def write_report(path: Path, report: FuzzReport) -> None:
    """Write what was found so far, whole or not at all."""
    found = {finding: script.hex() for finding, script in report.findings.items()}
    fields = {"count": report.count, "seconds": report.seconds, "findings": found}
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(fields), encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    main()
