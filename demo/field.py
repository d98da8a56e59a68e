"""The field: fifty emulated nodes for six hours, and what Spark finds in their logs.

    python -m demo.field

A disaster area with an incident, casualties, ambulances and a hospital; real node and watchdog
cores in simulated time. The day is the same each time. Ends in the report of `denwatch analyze`
and an animated map; takes a few minutes, no terminal and no network.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from denwatch.cli import main as denwatch

from demo.cast import make_folder
from simulator.__main__ import run as simulate


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="python -m demo.field", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".cache/demo-field"))
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--strategy", default="spray:8")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="no report")
    options = parser.parse_args(argv)
    folder = make_folder(options.folder)
    picture, logs = folder / "map.svg", folder / "logs"
    words = ["--nodes", options.nodes, "--hours", options.hours, "--seed", options.seed]
    words += ["--strategy", options.strategy, "--map", picture, "--logs", logs]
    _run("1  A day in the field", "python -m simulator", simulate, list(map(str, words)))
    if options.spark and find_spec("pyspark") is not None and shutil.which("java") is not None:
        report = ["analyze", str(logs), "--out", str(folder / "report")]
        _run("2  All nodes' logs together, on Spark", "denwatch", denwatch, report)
        print(f"\nThe report: {folder / 'report' / 'report.html'}")
    else:
        print("\n2  Spark is left out: it needs Java and `pip install denwatch[spark]`")
    print(f"The map:    {picture}")
    print(f"The logs:   {logs}")


def _run(title: str, name: str, program: Callable[[list[str]], int], words: list[str]) -> None:
    print(f"\n{title}\n\n   {name} {' '.join(words)}\n", flush=True)
    began = time.monotonic()
    status = program(words)
    if status:
        sys.exit(f"{name} {words[0]}: exit status {status}")
    print(f"   ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
