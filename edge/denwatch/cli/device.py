"""`denwatch device`: configures a watchdog, compiles it for a board, and puts it there."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from denwatch.cli import common
from denwatch.cli.devices import images
from denwatch.cli.devices.schema import check_board, check_config, check_radio, is_loopback
from denwatch.cli.errors import EXIT_STATUS, CommandError

_DESCRIPTION = """
`config` writes watchdog.json from the device's key and sentences that say what it senses. `build`
compiles the watchdog to .mpy files, laid out like a board's lib/. `install` builds, asks for the
configuration (or takes one), and copies everything over USB with mpremote. `update` sends new code
and changes of the configuration over the air: into the slot that does not run, tried until a node
answers, taken back if none does. `list` shows what every device runs. `log` shows what a node heard
of a device: battery, radio time, restarts, the last lines of its log, what was refused."""
_EXAMPLES = """
denwatch device config --key dog-1.json --sense 'patient_temperature from ds18x20 on pin 4'
denwatch device build --architecture xtensawin --output build/esp32
denwatch device build --role filter --architecture armv6m --output build/pico
denwatch device install --port /dev/ttyUSB0
denwatch device install --config watchdog.json --dry-run
denwatch device list --directory north
denwatch device update dog-1 --directory north
denwatch device update --all --staged 2 --directory north
denwatch device log dog-1 --directory north"""

_SENTENCES = """\
sentences: ATTRIBUTE from SENSOR, then in any order
  ds18x20 on pin N [sensor N of N]    dht11|dht22 on pin N [field humidity]
  FILE.csv, or csv file NAME, [column NAME] [in UNIT] [scale N]
  adc on pin N MEANING                gpio on pin N [inverted] [field changes] [MEANING]
  sht3x|scd4x|bme280 clock N data N [address N] [field humidity|pressure|temperature]
  adc_mv on pin N MEANING             pulses on pin N [field total] MEANING
  i2c clock N data N address N register N bytes N [signed] [little] [shift N] [bus N] MEANING
  NAME of --sources [field N] [column NAME] [MEANING]
  MEANING of a number: step 0.01 °C, or with 0 bar at 6553 and 300 bar at 58982
  of any sensor: every 10 s; accuracy 0.2 worst 0.5; range -20 to 60 (beyond is a fault)

examples:
  denwatch device config --key dog-1.json --sense 'patient_temperature from ds18x20 on pin 4' \\
    --sense 'air_temperature from dht22 on pin 15 every 10 s' --wifi tent --wifi-password-file w.key
  denwatch device config --key dog-1.json --senses ward.txt --spool partition:spool"""

_PARTS = {"sleep": "duty", "radio": "radio"}  # by the field that needs it
_MAIN = "import slots\n\nslots.run()\n"
_PLAIN_MAIN = "from denwatch.watchdog.boot import main\n\nmain()\n"  # without updates
_GATEWAY_MAIN = """import json, machine, sys, time
from denwatch.watchdog import board
from denwatch.watchdog.radio import exchange, open_modem

time.sleep(3)  # until the port is the bridge's, mpremote can interrupt
try:
    with open("gateway.json") as file:
        gateway = json.load(file)
    radio, line = open_modem(gateway["radio"], board), open_modem(gateway["serial"], board)
    while True:
        if not exchange(radio, line):
            time.sleep_ms(1)
except Exception as error:
    sys.print_exception(error)  # the bridge shows it
machine.reset()
"""


def run(argv: list[str]) -> int:
    """Configure, build or install."""
    arguments = _parse(argv)
    if arguments.action == "config":
        from denwatch.cli.devices.wizard import write_watchdog

        return write_watchdog(arguments)
    if arguments.action == "log":
        return _show_log(arguments)
    if arguments.action in ("list", "update"):
        from denwatch.cli.devices import updates

        show = arguments.action == "list"
        return (updates.show_fleet if show else updates.update_devices)(arguments)
    return _build(arguments) if arguments.action == "build" else _install(arguments)


def _show_log(arguments: argparse.Namespace) -> int:
    """Print what a node's log has of a device: its hellos with what they say, and refusals."""
    with common.need_extra("node"):
        from denwatch.node.log import build_mask, decode_records, read_name, read_segment
    lines = []
    kinds = ("device", "refuse")
    paths = [path for path in Path(arguments.directory).rglob("*") if read_name(path.name)]
    for path in sorted(paths):
        contents = read_segment(path.read_bytes(), is_closed=path.suffix != ".open")
        for block in contents.blocks:
            records = decode_records(block, kinds)[0] if block.may_hold(build_mask(kinds)) else []
            lines += [
                (record.time, text)
                for record in records
                if record.fields.get("device", record.fields.get("who")) == arguments.name
                for text in _describe_record(record.fields)
            ]
    if not lines:
        raise CommandError(f"{arguments.directory}: no log has anything of {arguments.name}")
    for time, text in sorted(lines, key=lambda line: line[0])[-arguments.last :]:
        print(f"{datetime.fromtimestamp(time / 1000, UTC):%Y-%m-%d %H:%M:%S} {text}")
    return 0


def _describe_record(fields: dict[str, Any]) -> list[str]:
    if "why" in fields:
        return [f"refused: {fields['why']}"]
    facts = dict(fields.get("settings") or {})
    lines = str(facts.pop("log", "")).splitlines()
    said = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    word = f"hello, epoch {fields['device_epoch']}" if fields["is_up"] else "gone"
    return [f"{word}{': ' if said else ''}{said}", *(f"  {line}" for line in lines)]


def _build(arguments: argparse.Namespace) -> int:
    target = Path(arguments.output)
    sizes = images.build_role(arguments.role, arguments.architecture, target)
    urls = [[name, name] for name in sizes]
    drivers = images.list_drivers(arguments.role)
    package = {"urls": urls, "deps": drivers, "version": "0.1.0"}
    common.write_file(target / "package.json", json.dumps(package, indent=1) + "\n")
    if arguments.romfs:
        images.build_romfs(target, Path(arguments.romfs))
    if arguments.json:
        print(json.dumps({"files": sizes, "bytes": sum(sizes.values())}))
    else:
        print(f"{len(sizes)} files, {sum(sizes.values())} bytes, in {target}")
    return 0


def _install(arguments: argparse.Namespace) -> int:
    if arguments.gateway:
        return _install_gateway(arguments)
    config = {"nodes": [], "sources": {}} if arguments.bare else _find_config(arguments)
    check_board(config)
    for node in config["nodes"]:
        if is_loopback(node.get("url", "")):
            words = f"{node['name']}: {node['url']} is this machine, a board cannot reach it"
            print(f"note: {words} (denwatch keys show --url)", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unused = [part for field, part in _PARTS.items() if not config.get(field)]
        without = [*arguments.without, *unused, "portal"]  # it has its configuration
        needless = images.list_needless(without, config["sources"])
        if arguments.bare:
            needless = images.list_needless(arguments.without)
        library = folder / "lib"
        architecture = _choose_architecture(arguments)
        sizes = images.build_role("full", architecture, library, needless, has_fallback=True)
        write_version(library, sizes)
        for node in config["nodes"]:
            if "ca" in node:
                node["ca"] = _copy_certificate(Path(node["ca"]), folder)
        if arguments.bare:
            password = secrets.token_hex(6)
            (folder / "portal.key").write_text(password, encoding="ascii")
        else:
            (folder / "watchdog.json").write_text(json.dumps(config), encoding="utf-8")
        main = _PLAIN_MAIN if "update" in without else _MAIN
        (folder / "main.py").write_text(main, encoding="utf-8")
        _copy(folder, config.get("radio"), arguments)
        if arguments.bare and not arguments.dry_run:
            print(f"the password of its access point: {password}")
    return 0


def _install_gateway(arguments: argparse.Namespace) -> int:
    """Install the board of a bridge: it passes on what its radio hears, and what comes over USB."""
    path = Path(arguments.gateway)
    with common.refuse(json.JSONDecodeError, CommandError, before=f"{path}: "):
        radio = json.loads(common.read_file(path))
        if isinstance(radio, dict) and radio.get("kind") == "espnow":
            radio.setdefault("gateway", "ff" * 6)  # to all: a gateway answers whoever there is
        check_radio(radio)
        if radio["kind"] == "serial":
            raise CommandError("a gateway has a radio: espnow or lora")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images.build_role("gateway", _choose_architecture(arguments), folder / "lib")
        gateway = {"radio": radio, "serial": {"kind": "serial"}}
        (folder / "gateway.json").write_text(json.dumps(gateway), encoding="utf-8")
        (folder / "main.py").write_text(_GATEWAY_MAIN, encoding="utf-8")
        _copy(folder, radio, arguments)
    return 0


def _copy(folder: Path, radio: dict[str, Any] | None, arguments: argparse.Namespace) -> None:
    """Copy a folder to the board, and the modem's driver of micropython-lib."""
    for command in list_commands(folder, arguments.port, radio):
        if arguments.dry_run:
            print("mpremote", *command)
        elif subprocess.run([images.find_program("mpremote"), *command], check=False).returncode:
            raise CommandError("mpremote failed; is the board connected?")


def write_version(library: Path, names: Iterable[str]) -> None:
    """Put a manifest beside the code, by which a board knows its version."""
    from denwatch.cli.devices.updates import write_manifest

    files = {name: (library / name).read_bytes() for name in names if name != "slots.mpy"}
    (library / "manifest").write_bytes(write_manifest(files))


_ASK = "import sys; print(getattr(sys.implementation, '_mpy', 0))"


def _choose_architecture(arguments: argparse.Namespace) -> str:
    """Return what was asked for, or what the board says that it is."""
    if arguments.architecture or arguments.dry_run:
        return arguments.architecture or "xtensawin"
    connect = ["connect", arguments.port] if arguments.port else []
    command = [images.find_program("mpremote"), *connect, "exec", _ASK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip().isdecimal():
        raise CommandError("mpremote failed; is the board connected?")
    found = images.read_architecture(int(done.stdout))
    print(f"the board is {found or 'of no architecture that is known here: without machine code'}")
    return found


def _find_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration of a file, or what the answers make."""
    if not arguments.config:
        from denwatch.cli.devices.wizard import ask_config

        return ask_config(common.load_vocabulary(arguments.vocabulary))
    path = Path(arguments.config)
    text = common.read_file(path)
    with common.refuse(json.JSONDecodeError, CommandError, before=f"{path}: "):
        config: dict[str, Any] = json.loads(text)
        check_config(config)
    return config


def _copy_certificate(path: Path, folder: Path) -> str:
    """Put a certificate beside the configuration; return the name that it has there."""
    with common.reach(path):
        shutil.copy(path, folder / path.name)
    return path.name


def list_commands(
    folder: Path, port: str | None, radio: dict[str, Any] | None = None
) -> list[list[str]]:
    """Return mpremote's arguments, one list a step.

    No firmware has LoRa's driver, so it is fetched; those of sensors are in the firmware of an
    ESP32 and a Pico.
    """
    drivers = []
    if radio is not None and radio["kind"] == "lora":
        drivers = ["lora-sync", f"lora-{radio['chip'][:5].lower()}x"]
    connect = ["connect", port] if port else []
    files = sorted(str(path) for path in folder.iterdir() if path.is_file())
    return [
        [*connect, "fs", "cp", "-r", str(folder / "lib"), ":"],
        [*connect, "fs", "cp", *files, ":"],
        *([[*connect, "mip", "install", *drivers]] if drivers else []),
        [*connect, "reset"],
    ]


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Configure a watchdog, compile it for a board, and put it there."
    parser = common.build_parser("device", summary, _DESCRIPTION, _EXAMPLES)
    actions = parser.add_subparsers(dest="action", required=True)
    for name, words, add in (
        (
            "config",
            "Write watchdog.json: which sensor gives which attribute, by whose key.",
            _add_config,
        ),
        ("build", "Compile the watchdog to .mpy files, without a board.", _add_build),
        (
            "install",
            "Build, configure, and copy everything to a board that is connected over USB.",
            _add_install,
        ),
        ("list", "Show what every device of a node runs, and how its update goes.", _add_list),
        (
            "update",
            "Update devices over the air: code, and fields of their configuration.",
            _add_update,
        ),
        ("log", "Show what a node heard of a device, newest last.", _add_log),
    ):
        action = actions.add_parser(name, help=words, description=words, allow_abbrev=False)
        action.epilog = EXIT_STATUS
        action.formatter_class = argparse.RawDescriptionHelpFormatter
        add(action)
    return parser.parse_args(argv)


def _add_config(action: argparse.ArgumentParser) -> None:
    action.epilog = f"{_SENTENCES}\n\n{EXIT_STATUS}"
    common.add_option(
        action,
        "--key FILE",
        "what `denwatch keys show NAME --secrets --output FILE` wrote",
        required=True,
    )
    common.add_option(
        action, "--sense SENTENCE ...", "an attribute and where it comes from; see below"
    )
    common.add_option(action, "--senses FILE ...", "sentences, one a line")
    common.add_option(
        action, "--sources FILE", "JSON with sources of your own, for sentences to name"
    )
    common.add_option(action, "--every TIME", 'where no sentence says "every" (5 s)', default="5 s")
    common.add_option(action, "--wifi NAME", "the wireless network")
    common.add_option(
        action,
        "--wifi-password-file FILE|-",
        "its password, of mode 0600, or from the pipe; empty for an open network",
    )
    common.add_option(
        action,
        "--radio serial[:PORT]|FILE",
        "a link by `denwatch bridge`: over USB, a serial port, or as JSON says (docs/watchdog.md)",
    )
    common.add_option(
        action,
        "--spool WHERE",
        "file:NAME[:BLOCKS], partition:NAME or flash:START:LENGTH (file:spool.bin)",
        default="file:spool.bin",
    )
    common.add_option(
        action, "--qr", "also a code that a phone scans to set up a board that has an access point"
    )
    common.add_option(
        action, "--ca FILE", "certificate of the nodes' authority, DER (the key file's)"
    )
    common.add_option(
        action,
        "-o, --output FILE",
        "written with mode 0600 (watchdog.json)",
        default="watchdog.json",
    )
    common.add_vocabulary(action)


def _add_build(action: argparse.ArgumentParser) -> None:
    _add_architecture(action)
    common.add_option(
        action,
        "--role",
        "full: the whole watchdog; filter: its filter alone (full)",
        choices=sorted(images.ROLES),
        default="full",
    )
    common.add_option(
        action, "--output DIR", "the folder to fill (build/device)", default="build/device"
    )
    common.add_option(action, "--romfs FILE", "also a ROM file system, for mpremote romfs deploy")
    common.add_option(action, "--json", "sizes as one JSON object")


def _add_install(action: argparse.ArgumentParser) -> None:
    _add_architecture(action, "", "what the board says that it is")
    common.add_option(action, "--config FILE", "a watchdog.json instead of questions")
    common.add_option(
        action,
        "--gateway FILE",
        "a bridge's board, not a device: the JSON is `radio` of its devices (docs/watchdog.md)",
    )
    common.add_option(
        action, "--bare", "no configuration: the board's access point asks for it (config --qr)"
    )
    common.add_option(
        action,
        "--vocabulary NAME|FILE ...",
        f"whose words the answers are in ({common.DEFAULT_VOCABULARY})",
    )
    common.add_option(action, "--port DEVICE", "the board's serial port (the first one found)")
    _add_without(action)
    common.add_option(action, "--dry-run", "print what mpremote would do")


def _add_without(action: argparse.ArgumentParser) -> None:
    common.add_option(
        action,
        "--without PART ...",
        f"leave out what may be: {', '.join(images.OPTIONAL)}",
        choices=images.OPTIONAL,
    )


def _add_list(action: argparse.ArgumentParser) -> None:
    common.add_option(action, "--directory DIRECTORY", "the node's folder (this one)", default=".")
    common.add_option(action, "--json", "one JSON list")


def _add_update(action: argparse.ArgumentParser) -> None:
    action.add_argument("names", nargs="*", metavar="NAME", help="devices, in this order")
    common.add_option(action, "--all", "every device that can be updated")
    common.add_option(
        action,
        "--staged N",
        "so many at a time: the next when these run it; stops if one goes back",
        type=int,
        default=0,
    )
    common.add_option(
        action, "--changes FILE", "JSON: fields of watchdog.json to replace; null removes one"
    )
    _add_without(action)
    common.add_option(action, "--no-wait", "do not wait for the devices")
    common.add_option(action, "--directory DIRECTORY", "the node's folder (this one)", default=".")
    common.add_option(action, "--authority FILE", "authority.json, if it is elsewhere")


def _add_log(action: argparse.ArgumentParser) -> None:
    action.add_argument("name", help="the device's name")
    common.add_option(action, "--directory DIRECTORY", "the node's folder (this one)", default=".")
    common.add_option(action, "--last N", "lines, at most (40)", type=int, default=40)


def _add_architecture(
    action: argparse.ArgumentParser, default: str = "xtensawin", words: str = "xtensawin"
) -> None:
    common.add_option(
        action,
        "--architecture",
        "xtensawin: ESP32; armv6m: RP2040; armv7m: RP2350, STM32; rv32imc: ESP32-C3, C6; "
        f"x64, x86: PC ({words})",
        choices=images.ARCHITECTURES,
        default=default,
    )
