"""`python -m simulator.storms`: storms over real node processes, and what they break."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from denwatch.cli.common import build_parser
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError

from simulator.storms.faults import FaultsMissing
from simulator.storms.known_defects import find_known
from simulator.storms.stand import Stand
from simulator.storms.storms import SHORT, STORMS, Scale, Storm

_SUMMARY = "Storms over real node processes."
_DESCRIPTION = """
Each storm has a node of its own, on the loopback: connections that stay silent, clients that come
and go or do not read, few files, full, failing and lying disks, a clock in 2107, and kills during
them. Afterwards the node runs, a medic's round trip works, nothing acknowledged is lost or altered,
and memory is bounded. The exit status is 1 if anything else than the known defects is broken."""
_EXAMPLES = """
python -m simulator.storms
python -m simulator.storms half-open-tls clock-2107 --json
python -m simulator.storms --short"""


@dataclass(frozen=True)
class StormReport:
    """What a storm did."""

    storm: Storm
    broken: dict[str, str]
    known: set[str]
    figures: dict[str, Any]
    seconds: float
    is_short: bool

    @property
    def new(self) -> list[str]:
        """What is broken and not known."""
        return sorted(set(self.broken) - self.known)

    @property
    def mended(self) -> list[str]:
        """What a short form is known to break and does not: it must leave the list."""
        return sorted(self.known - set(self.broken)) if self.is_short else []


def run_storm(storm: Storm, folder: Path, *, is_short: bool = False) -> StormReport:
    """Let a storm pass over a new node, and judge it."""
    scale = SHORT if is_short else Scale()
    started = time.monotonic()
    with Stand(folder, files=storm.files[is_short], with_faults=storm.has_faults) as stand:
        broken = dict(storm.run(stand, scale) or {})
        broken |= stand.judge(may_end=storm.may_end)
        figures = stand.describe()
    known = find_known(storm.name, is_short=is_short)
    return StormReport(storm, broken, known, figures, time.monotonic() - started, is_short)


def run(argv: list[str]) -> int:
    """Run one command line; return the exit status."""
    parser = build_parser("", _SUMMARY, _DESCRIPTION, _EXAMPLES)
    parser.prog = "python -m simulator.storms"
    names = [storm.name for storm in STORMS]
    parser.add_argument("storm", nargs="*", metavar="STORM", help=f"{', '.join(names)} (all)")
    parser.add_argument("--short", action="store_true", help="small numbers, as tests run them")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    unknown = [name for name in options.storm if name not in names]
    if unknown:
        raise CommandError(f"there is no storm {unknown[0]}: {', '.join(names)}", WRONG_USAGE)
    reports = []
    for storm in STORMS:
        if storm.name in (options.storm or names):
            with tempfile.TemporaryDirectory(prefix="denwatch-storm-") as folder:
                try:
                    report = run_storm(storm, Path(folder), is_short=options.short)
                except FaultsMissing as error:
                    raise CommandError(f"{storm.name}: {error}", MISSING) from None
            reports.append(report)
            if not options.json:
                print_report(report, is_first=len(reports) == 1)
    if options.json:
        print(json.dumps([describe(report) for report in reports]))
    return 1 if any(report.new or report.mended for report in reports) else 0


def describe(report: StormReport) -> dict[str, Any]:
    """Return the figures of a report."""
    return {
        "storm": report.storm.name,
        **report.figures,
        "seconds": round(report.seconds, 1),
        "broken": report.broken,
        "new": report.new,
        "mended": report.mended,
    }


def print_report(report: StormReport, *, is_first: bool) -> None:
    """Print a line of the table, and one for each promise that is broken."""
    if is_first:
        print("storm             kills  ends  acknowledged  received  MiB before  peak  result")
    figures = report.figures
    result = "as known" if report.broken else "kept"
    result = "BROKEN" if report.new else "MENDED" if report.mended else result
    print(
        f"{report.storm.name:<17} {figures['kills']:>5}  {figures['endings']:>4}"
        f"  {figures['acknowledged']:>12}  {figures['received']:>8}"
        f"  {figures['memory_before'] >> 20:>10}  {figures['memory_peak'] >> 20:>4}  {result}",
        flush=True,
    )
    for promise, seen in sorted(report.broken.items()):
        mark = "known" if promise in report.known else "NEW"
        print(f"    {mark}: {promise}: {seen}", flush=True)
    for promise in report.mended:
        print(f"    not broken any more: {promise}: take it off the list", flush=True)


def main() -> int:
    """Run the command line of this process; a refusal is one line."""
    try:
        return run(sys.argv[1:])
    except CommandError as error:
        print(f"storms: {error}", file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
