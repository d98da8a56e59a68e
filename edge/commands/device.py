"""`denwatch device`: compiles the watchdog for a board, and puts it there."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from edge.commands.common import build_parser, read_file, write_file
from edge.commands.failures import EXIT_STATUS, MISSING, CommandError
from edge.commands.images import ARCHITECTURES, ROLES, build_role, build_romfs, find_mpremote

_DESCRIPTION = """
`build` compiles the watchdog to .mpy files, laid out like a board's lib/. `install` builds, asks
for the configuration (or takes one), and copies everything over USB with mpremote."""
_EXAMPLES = """
denwatch device build --architecture xtensawin --output build/esp32
denwatch device build --role filter --architecture armv6m --output build/pico
denwatch device install --port /dev/ttyUSB0
denwatch device install --config watchdog.json --dry-run"""

_ACTIONS = {
    "build": "Compile the watchdog to .mpy files, without a board.",
    "install": "Build, configure, and copy everything to a board that is connected over USB.",
}

_MAIN = "from watchdog.boot import main\n\nmain()\n"


def run(argv: list[str]) -> int:
    """Build or install."""
    arguments = _parse(argv)
    if arguments.action == "build":
        return _build(arguments)
    return _install(arguments)


def _build(arguments: argparse.Namespace) -> int:
    target = Path(arguments.output)
    sizes = build_role(arguments.role, arguments.architecture, target)
    urls = [[name, name] for name in sizes]
    package = {"urls": urls, "deps": [], "version": "0.1.0"}
    write_file(target / "package.json", json.dumps(package, indent=1) + "\n")
    if arguments.romfs:
        build_romfs(target, Path(arguments.romfs))
    if arguments.json:
        print(json.dumps({"files": sizes, "bytes": sum(sizes.values())}))
    else:
        print(f"{len(sizes)} files, {sum(sizes.values())} bytes, in {target}")
    return 0


def _install(arguments: argparse.Namespace) -> int:
    from edge.commands.wizard import ask_config, check_config

    if arguments.config:
        config: dict[str, Any] = json.loads(read_file(Path(arguments.config)))
        check_config(config)
    else:
        config = ask_config()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_role("full", arguments.architecture, folder / "lib")
        for node in config["nodes"]:
            if "ca" in node:
                node["ca"] = _copy_certificate(Path(node["ca"]), folder)
        (folder / "watchdog.json").write_text(json.dumps(config), encoding="utf-8")
        (folder / "main.py").write_text(_MAIN, encoding="utf-8")
        for command in list_commands(folder, arguments.port):
            if arguments.dry_run:
                print("mpremote", *command)
            elif subprocess.run([find_mpremote(), *command], check=False).returncode:
                raise CommandError("mpremote failed; is the board connected?")
    return 0


def _copy_certificate(path: Path, folder: Path) -> str:
    """Put a certificate beside the configuration; return the name that it has there."""
    try:
        shutil.copy(path, folder / path.name)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", MISSING) from None
    return path.name


def list_commands(folder: Path, port: str | None) -> list[list[str]]:
    """Return mpremote's arguments, one list a step."""
    connect = ["connect", port] if port else []
    files = sorted(str(path) for path in folder.iterdir() if path.is_file())
    return [
        [*connect, "fs", "cp", "-r", str(folder / "lib"), ":"],
        [*connect, "fs", "cp", *files, ":"],
        [*connect, "reset"],
    ]


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Compile the watchdog for a board, and put it there."
    parser = build_parser("device", summary, _DESCRIPTION, _EXAMPLES)
    actions = parser.add_subparsers(dest="action", required=True)
    for name, words in _ACTIONS.items():
        action = actions.add_parser(name, help=words, description=words, epilog=EXIT_STATUS)
        action.formatter_class = argparse.RawDescriptionHelpFormatter
        action.add_argument(
            "--architecture",
            choices=ARCHITECTURES,
            default="xtensawin",
            help="xtensawin: ESP32 (default); armv6m: RP2040; armv7m: RP2350, STM32; x64, x86: PC",
        )
        if name == "build":
            action.add_argument(
                "--role",
                choices=sorted(ROLES),
                default="full",
                help="full: the whole watchdog; filter: its filter alone (full)",
            )
            action.add_argument(
                "--output",
                metavar="DIR",
                default="build/device",
                help="the folder to fill (build/device)",
            )
            action.add_argument(
                "--romfs", metavar="FILE", help="also a ROM file system, for mpremote romfs deploy"
            )
            action.add_argument("--json", action="store_true", help="sizes as one JSON object")
        else:
            action.add_argument(
                "--config", metavar="FILE", help="a watchdog.json instead of questions"
            )
            action.add_argument(
                "--port", metavar="DEVICE", help="the board's serial port (the first one found)"
            )
            action.add_argument(
                "--dry-run", action="store_true", help="print what mpremote would do"
            )
    return parser.parse_args(argv)
