"""`denwatch watchdog`: runs a watchdog on a PC or a Pi, under CPython or MicroPython."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from types import FrameType

from denwatch.cli.common import build_parser, read_file
from denwatch.cli.devices.images import link_library
from denwatch.cli.devices.schema import check_config
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
    try:
        check_config(json.loads(read_file(path)))
    except json.JSONDecodeError as error:
        raise CommandError(f"{path}: {error}") from None
    if arguments.check:
        print(f"{path}: good")
        return 0
    if arguments.micropython:
        return _run_micropython(arguments.micropython, path, arguments.report)
    from denwatch.watchdog.app import main

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        main(str(path), arguments.report)
    except (KeyError, ValueError, OSError) as error:
        raise CommandError(f"{path}: {type(error).__name__}: {error}") from None
    return 0


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


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal's interface
    """End like Ctrl-C does: the spool is saved."""
    raise KeyboardInterrupt


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Run a watchdog on this machine."
    parser = build_parser("watchdog", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("config", nargs="?", default="watchdog.json", help="the configuration")
    parser.add_argument("--check", action="store_true", help="check the configuration and stop")
    parser.add_argument(
        "--report", type=float, default=0, metavar="SECONDS", help="print all counters as JSON"
    )
    parser.add_argument("--micropython", metavar="PROGRAM", help="run it under this MicroPython")
    return parser.parse_args(argv)
