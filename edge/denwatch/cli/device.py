"""`denwatch device`: configures a watchdog, compiles it for a board, and puts it there."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from denwatch.cli.common import (
    DEFAULT_VOCABULARY,
    add_vocabulary,
    build_parser,
    load_vocabulary,
    read_file,
    write_file,
)
from denwatch.cli.devices.images import (
    ARCHITECTURES,
    ROLES,
    build_role,
    build_romfs,
    find_mpremote,
)
from denwatch.cli.devices.schema import check_config, is_loopback
from denwatch.cli.errors import EXIT_STATUS, MISSING, CommandError

_DESCRIPTION = """
`config` writes watchdog.json from the device's key and sentences that say what it senses. `build`
compiles the watchdog to .mpy files, laid out like a board's lib/. `install` builds, asks for the
configuration (or takes one), and copies everything over USB with mpremote."""
_EXAMPLES = """
denwatch device config --key dog-1.json --sense 'patient_temperature from ds18x20 on pin 4'
denwatch device build --architecture xtensawin --output build/esp32
denwatch device build --role filter --architecture armv6m --output build/pico
denwatch device install --port /dev/ttyUSB0
denwatch device install --config watchdog.json --dry-run"""

_ACTIONS = {
    "config": "Write watchdog.json: which sensor gives which attribute, by whose key.",
    "build": "Compile the watchdog to .mpy files, without a board.",
    "install": "Build, configure, and copy everything to a board that is connected over USB.",
}

_SENTENCES = """\
sentences: ATTRIBUTE from SENSOR, then in any order
  ds18x20 on pin N [sensor N of N]    dht11|dht22 on pin N [field humidity]
  FILE.csv, or csv file NAME, [column NAME] [in UNIT] [scale N]
  adc on pin N MEANING                gpio on pin N [inverted] [field changes] [MEANING]
  i2c clock N data N address N register N bytes N [signed] [little] [shift N] [bus N] MEANING
  NAME of --sources [field N] [column NAME] [MEANING]
  MEANING of a number: step 0.01 °C, or with 0 bar at 6553 and 300 bar at 58982
  of any sensor: every 10 s; accuracy 0.2 worst 0.5; range -20 to 60 (beyond is a fault)

examples:
  denwatch device config --key dog-1.json --sense 'patient_temperature from ds18x20 on pin 4' \\
    --sense 'air_temperature from dht22 on pin 15 every 10 s' --wifi tent --wifi-password-file w.key
  denwatch device config --key dog-1.json --senses ward.txt --spool partition:spool"""

_MAIN = "from denwatch.watchdog.boot import main\n\nmain()\n"


def run(argv: list[str]) -> int:
    """Configure, build or install."""
    arguments = _parse(argv)
    if arguments.action == "config":
        from denwatch.cli.devices.wizard import write_watchdog

        return write_watchdog(arguments)
    return _build(arguments) if arguments.action == "build" else _install(arguments)


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
    config = _find_config(arguments)
    for node in config["nodes"]:
        if is_loopback(node["url"]):
            words = f"{node['name']}: {node['url']} is this machine, a board cannot reach it"
            print(f"note: {words} (denwatch keys show --url)", file=sys.stderr)
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


def _find_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration of a file, or what the answers make."""
    if not arguments.config:
        from denwatch.cli.devices.wizard import ask_config

        return ask_config(load_vocabulary(arguments.vocabulary))
    path = Path(arguments.config)
    try:
        config: dict[str, Any] = json.loads(read_file(path))
    except json.JSONDecodeError as error:
        raise CommandError(f"{path}: {error}") from None
    try:
        check_config(config)
    except CommandError as error:
        raise CommandError(f"{path}: {error}") from None
    return config


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
    summary = "Configure a watchdog, compile it for a board, and put it there."
    parser = build_parser("device", summary, _DESCRIPTION, _EXAMPLES)
    actions = parser.add_subparsers(dest="action", required=True)
    for name, words in _ACTIONS.items():
        action = actions.add_parser(name, help=words, description=words, allow_abbrev=False)
        action.epilog = EXIT_STATUS
        action.formatter_class = argparse.RawDescriptionHelpFormatter
        {"config": _add_config, "build": _add_build, "install": _add_install}[name](action)
    return parser.parse_args(argv)


def _add_config(action: argparse.ArgumentParser) -> None:
    action.epilog = f"{_SENTENCES}\n\n{EXIT_STATUS}"
    action.add_argument(
        "--key",
        metavar="FILE",
        required=True,
        help="what `denwatch keys show NAME --secrets --output FILE` wrote",
    )
    action.add_argument(
        "--sense",
        action="append",
        default=[],
        metavar="SENTENCE",
        help="an attribute and where it comes from; see below",
    )
    action.add_argument(
        "--senses", action="append", default=[], metavar="FILE", help="sentences, one a line"
    )
    action.add_argument(
        "--sources", metavar="FILE", help="JSON with sources of your own, for sentences to name"
    )
    action.add_argument(
        "--every", metavar="TIME", default="5 s", help='where no sentence says "every" (5 s)'
    )
    action.add_argument("--wifi", metavar="NAME", help="the wireless network")
    action.add_argument(
        "--wifi-password-file",
        metavar="FILE|-",
        help="its password, of mode 0600, or from the pipe; empty for an open network",
    )
    action.add_argument(
        "--spool",
        metavar="WHERE",
        default="file:spool.bin",
        help="file:NAME[:BLOCKS], partition:NAME or flash:START:LENGTH (file:spool.bin)",
    )
    action.add_argument(
        "--ca", metavar="FILE", help="certificate of the nodes' authority, DER (the key file's)"
    )
    action.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="watchdog.json",
        help="written with mode 0600 (watchdog.json)",
    )
    add_vocabulary(action)


def _add_build(action: argparse.ArgumentParser) -> None:
    _add_architecture(action)
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


def _add_install(action: argparse.ArgumentParser) -> None:
    _add_architecture(action)
    action.add_argument("--config", metavar="FILE", help="a watchdog.json instead of questions")
    action.add_argument(
        "--vocabulary",
        action="append",
        metavar="NAME|FILE",
        help=f"whose words the answers are in ({DEFAULT_VOCABULARY})",
    )
    action.add_argument(
        "--port", metavar="DEVICE", help="the board's serial port (the first one found)"
    )
    action.add_argument("--dry-run", action="store_true", help="print what mpremote would do")


def _add_architecture(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--architecture",
        choices=ARCHITECTURES,
        default="xtensawin",
        help="xtensawin: ESP32 (default); armv6m: RP2040; armv7m: RP2350, STM32; x64, x86: PC",
    )
