"""`python -m simulator.fuzzing`: every target for a while, guided by the branches it reaches."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from denwatch.cli.common import build_parser
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError

from simulator.fuzzing.engine import FuzzReport, fuzz_seeded, shrink_finding
from simulator.fuzzing.known_defects import find_known
from simulator.fuzzing.mutation import load_script
from simulator.fuzzing.targets import Target, list_targets

_SUMMARY = "Mutated input into the real code of a node."
_DESCRIPTION = """
Nothing that a client, subscriber, operator, device or peer sends may raise an exception that
leaves its event, now or after a restart. Without --count, libFuzzer (the package atheris) keeps the
scripts that reach new branches, in the corpus folder; with it, that many scripts follow from the
seed alone. A finding that is not known is made small and printed as a script, and the exit status
is 1."""
_EXAMPLES = """
python -m simulator.fuzzing --seconds 600
python -m simulator.fuzzing requests peers --count 5000 --seed 3
python -m simulator.fuzzing mqtt --replay '[[0, 0, b"\\x10"]]'"""
CORPUS = Path(".cache/fuzzing")


def run(argv: list[str]) -> int:
    """Run one command line; return the exit status."""
    parser = build_parser("", _SUMMARY, _DESCRIPTION, _EXAMPLES)
    parser.prog = "python -m simulator.fuzzing"
    names = [target.name for target in list_targets()]
    parser.add_argument("target", nargs="*", metavar="TARGET", help=f"{', '.join(names)} (all)")
    parser.add_argument(
        "--seconds", type=int, default=60, metavar="S", help="for each target, guided (60)"
    )
    parser.add_argument("--count", type=int, metavar="N", help="scripts for each target, unguided")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the mutations (1)")
    parser.add_argument(
        "--corpus", type=Path, default=CORPUS, metavar="DIR", help=f"scripts kept ({CORPUS})"
    )
    parser.add_argument("--replay", metavar="SCRIPT", help="play one script, as it was printed")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    unknown = [name for name in options.target if name not in names]
    if unknown:
        raise CommandError(f"there is no target {unknown[0]}: {', '.join(names)}", WRONG_USAGE)
    targets = [t for t in list_targets() if t.name in (options.target or names)]
    if options.replay is not None:
        return replay(targets, options.replay)
    if options.count is None and importlib.util.find_spec("atheris") is None:
        raise CommandError("atheris is missing: `make fuzz` installs it, or use --count", MISSING)
    reports = []
    for target in targets:
        if options.count is not None:
            report = fuzz_seeded(target, options.count, options.seed)
        else:
            report = fuzz_guided(target.name, options.seconds, options.seed, options.corpus)
        reports.append(report)
        if not options.json:
            print_report(report, is_first=len(reports) == 1)
    if options.json:
        print(json.dumps([describe(report) for report in reports]))
    new = [
        (target, *found)
        for target, report in zip(targets, reports, strict=True)
        for found in list_new(report)
    ]
    for target, finding, script in new:
        small = shrink_finding(target, script, finding)
        print(f"{target.name}: {finding}\n  {load_script(small)!r}", file=sys.stderr)
    return 1 if new else 0


def replay(targets: Sequence[Target], text: str) -> int:
    """Play a script that was printed before, on one target, and let its exception through."""
    import ast

    if len(targets) != 1:
        raise CommandError("--replay takes one target", WRONG_USAGE)
    targets[0].play(ast.literal_eval(text))
    print(f"{targets[0].name}: nothing")
    return 0


def fuzz_guided(name: str, seconds: int, seed: int, corpus: Path) -> FuzzReport:
    """Run libFuzzer on a target, in a process that it may end."""
    corpus.mkdir(parents=True, exist_ok=True)
    path = corpus / f"{name}.json"
    path.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "simulator.fuzzing.guided", name, str(corpus / name), str(path)),
        *(str(seconds), str(seed)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    report = FuzzReport(name)
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        report.count, report.seconds = found["count"], found["seconds"]
        report.findings = {key: bytes.fromhex(text) for key, text in found["findings"].items()}
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "Error" in line]
        report.findings[f"libFuzzer ended: {lines[-1] if lines else done.returncode}"] = b""
    return report


def list_new(report: FuzzReport) -> list[tuple[str, bytes]]:
    """Return the findings that are not known defects."""
    known = find_known(report.target)
    return [found for found in sorted(report.findings.items()) if found[0] not in known]


def describe(report: FuzzReport) -> dict[str, Any]:
    """Return the figures of a report."""
    return {
        "target": report.target,
        "scripts": report.count,
        "seconds": round(report.seconds, 1),
        "scripts_per_second": round(report.rate),
        "known": len(report.findings) - len(list_new(report)),
        "new": [finding for finding, _ in list_new(report)],
    }


def print_report(report: FuzzReport, *, is_first: bool) -> None:
    """Print a line of the table."""
    if is_first:
        print("target     scripts  per second  known  new")
    fields = describe(report)
    print(
        f"{report.target:<9} {report.count:>8}  {fields['scripts_per_second']:>10}"
        f"  {fields['known']:>5}  {len(fields['new']):>3}",
        flush=True,
    )


def main() -> int:
    """Run the command line of this process; a refusal is one line."""
    try:
        return run(sys.argv[1:])
    except CommandError as error:
        print(f"fuzzing: {error}", file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
