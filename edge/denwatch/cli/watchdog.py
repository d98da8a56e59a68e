"""`denwatch watchdog`: runs a watchdog on a PC or a Pi, under CPython or MicroPython."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from denwatch.cli.common import add_option, build_parser, read_file, refuse, stop_at_sigterm
from denwatch.cli.devices.images import link_library
from denwatch.cli.devices.schema import check_config, estimate_life
from denwatch.cli.errors import CommandError

_DESCRIPTION = """
Reads watchdog.json (docs/watchdog.md describes it), samples its sources, and sends what somebody
wants to the node. What could not be sent waits in the spool's file, over restarts, too."""
_EXAMPLES = """
denwatch watchdog watchdog.json
denwatch watchdog --report 10 watchdog.json
denwatch watchdog --micropython /usr/bin/micropython watchdog.json"""


def run(argv: list[str]) -> int:
    """Run until it is interrupted."""
    arguments = _parse(argv)
    path = Path(arguments.config)
    with refuse(json.JSONDecodeError, before=f"{path}: "):
        config = json.loads(read_file(path))
        check_config(config)
    if arguments.check:
        _report_check(path, estimate_life(config), arguments.json)
        return 0
    if arguments.micropython:
        return _run_micropython(arguments.micropython, path, arguments.report)
    from denwatch.watchdog.app import main

    stop_at_sigterm()
    try:
        main(str(path), arguments.report)
    except (KeyError, ValueError, OSError, RuntimeError) as error:
        raise CommandError(f"{path}: {type(error).__name__}: {error}") from None
    return 0


def _report_check(path: Path, years: float, is_json: bool) -> None:
    if is_json:
        print(json.dumps({"ok": True, "config": str(path), "spool_years": round(years, 1)}))
    else:
        print(f"{path}: good")
        print(f"spool: flash for {years:,.0f} years, if every reading is stored")


def _run_micropython(interpreter: str, path: Path, period: float) -> int:
    code = f"from denwatch.watchdog.boot import main; main({str(path.resolve())!r}, {period})"
    with tempfile.TemporaryDirectory(prefix="denwatch-") as folder:
        library = link_library(Path(folder))
        environment = {**os.environ, "MICROPYPATH": f"{library}:.frozen"}
        process = subprocess.Popen([interpreter, "-c", code], env=environment)
        # Who ends this command means the watchdog.
        signal.signal(signal.SIGTERM, lambda _number, _frame: process.terminate())
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Run a watchdog on this machine."
    parser = build_parser("watchdog", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("config", nargs="?", default="watchdog.json", help="the configuration")
    add_option(parser, "--check", "check the configuration and stop")
    add_option(parser, "--json", "with --check: one JSON object")
    add_option(parser, "--report SECONDS", "print all counters as JSON", type=float, default=0)
    add_option(parser, "--micropython PROGRAM", "run it under this MicroPython")
    return parser.parse_args(argv)
