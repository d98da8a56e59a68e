"""Run the benchmarks one after the other, each in a process of its own.

python -m benchmarks [--quick] [--save] [--papers] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.common import format_table, say

MEASUREMENTS = (
    *("house", "wire", "match", "doubt", "stories", "find", "peers", "rivals", "device", "air"),
    "radio",
    *("reconcile", "durability", "start", "node", "replication", "campaign", "field"),
    *("siege", "spark", "analyze", "console"),
)
PAPERS = ("dens", "atopss", "subsumption", "prefsiena", "svds")


def find_module(name: str) -> str:
    """Return the module of a benchmark: `match` is ours, `papers.dens` rebuilds a paper's."""
    paper = name.removeprefix("papers.")
    return f"benchmarks.{name}" if paper == name else f"papers.evaluations.{paper}"


def run_one(name: str, flags: list[str]) -> dict[str, object]:
    """Run one benchmark, its progress shown, and return its result."""
    say(f"== {name}")
    command = [sys.executable, "-m", find_module(name), "--json", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    """Run what the command line names, and print the headline figures as one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run (all)")
    parser.add_argument("--papers", action="store_true", help="the papers' evaluations only")
    parser.add_argument("--quick", action="store_true", help="smaller runs, under a minute each")
    parser.add_argument("--save", action="store_true", help="write tables and plots to results/")
    options = parser.parse_args()
    papers = [f"papers.{name}" for name in PAPERS]
    names = options.names or (papers if options.papers else [*MEASUREMENTS, *papers])
    flags = [flag for flag in ("--quick", "--save") if getattr(options, flag[2:])]
    rows = [(name, key, value) for name in names for key, value in run_one(name, flags).items()]
    print(format_table(("benchmark", "figure", "value"), rows))


if __name__ == "__main__":
    main()
