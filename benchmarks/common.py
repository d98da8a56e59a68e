"""What every benchmark shares: its command line, its clock, its results folder, its plots.

A benchmark is a module with `main()` that calls `run(measure)`; `measure(options)` prints what a
person reads and returns one flat dictionary, which `--json` prints as the last line.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def run(
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    doc: str | None,
    add: Callable[[argparse.ArgumentParser], object] = lambda parser: parser,
) -> None:
    """Parse the common options, measure, and print the result as the last line if asked.

    `add` adds a benchmark's own options.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as last line")
    parser.add_argument("--quick", action="store_true", help="a smaller run, under a minute")
    parser.add_argument("--save", action="store_true", help="write tables and plots to results/")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")
    add(parser)
    options = parser.parse_args()
    result = measure(options)
    if options.json:
        print(json.dumps(result))


def say(*words: object) -> None:
    """Report progress to a person: on stderr, so that stdout stays a result."""
    print(*words, file=sys.stderr, flush=True)


def time_calls(call: Callable[[Any], object], items: Iterable[Any]) -> list[float]:
    """Return the seconds that each `call(item)` took."""
    seconds = []
    for item in items:
        start = time.perf_counter()
        call(item)
        seconds.append(time.perf_counter() - start)
    return seconds


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0..1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def describe_machine() -> str:
    """Name what a measurement was taken on, without naming whose it was."""
    return f"Python {platform.python_version()}, {platform.machine()}, {platform.system()}"


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return statistics.median(values)


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; floats are shown with three significant digits."""

    def cell(value: object) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def save_text(name: str, text: str) -> None:
    """Write one committed result, for example `wire.md`."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(text.rstrip() + "\n", encoding="utf-8")


def new_figure(columns: int = 1, rows: int = 1, width: float = 6.0, height: float = 3.6) -> Any:
    """Return (figure, axes) of one look for all plots; matplotlib is imported only here."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "denwatch"  # the same plot gives the same file
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows))
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    return figure, axes


def save_figure(figure: Any, name: str) -> None:
    """Write one committed plot, for example `papers-svds.svg`."""
    RESULTS.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(RESULTS / name, metadata={"Date": None} if name.endswith(".svg") else None)
