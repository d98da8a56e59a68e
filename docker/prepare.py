"""Makes the site of docker/compose.yaml on its first start: names, keys, certificates, settings.

Runs once, in the service `init`, before everything else; each folder below SITE is the volume of
one service, which sees nothing else. It uses what an operator has: `denwatch node --init`,
`denwatch keys invite`, `add`, `show` and `acl`. A second start changes nothing; a first one that
was interrupted begins again, because nobody has used anything of it yet.

usage: prepare.py SITE
"""

from __future__ import annotations

import contextlib
import io
import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from denwatch.cli import main as denwatch
from denwatch.client.vocabulary import Vocabulary, load_shipped
from denwatch.client.vocabulary.loading import merge_vocabularies
from denwatch.node.core.notifications import shorten_hash
from denwatch.node.security.site import load_authority, write_file

VOCABULARIES = ("rescue", "weather")
PORT = 8883
FIRST, SECOND, THIRD = "north", "middle", "south"  # the first is at the broker
PEOPLE = {"medic7": "medic", "probe": "observer"}  # the probe asks whether nodes are well
# Each device: its node, its event, and the attributes that it senses.
DEVICES = {
    "bed-1": (FIRST, "patient", ("patient_temperature", "heart_rate", "oxygen_saturation")),
    "bed-2": (SECOND, "patient", ("patient_temperature", "heart_rate", "oxygen_saturation")),
    "mast-1": (THIRD, "weather", ("wind_speed", "temperature", "humidity")),
}
# What node.toml of the first node says otherwise.
AT_THE_BROKER = [
    (
        '[broker]\nurl = ""\nuser = ""',
        f'[broker]\nurl = "mqtts://broker:{PORT}"\nuser = "{FIRST}"',
    ),
    ('password_file = ""', 'password_file = "broker.key"'),
    ('operating system.\nca = ""', 'operating system.\nca = "tls/ca.pem"'),
]
PERIOD = 1000  # ms from one reading to the next
_SCALE = 100  # steps of a sensor in one unit
_DONE = ".prepared"


def main(arguments: list[str]) -> int:
    """Make the site in a folder unless it is there."""
    site = Path(arguments[0])
    folders = [FIRST, SECOND, THIRD, "broker", "console", "people", "probe", *DEVICES]
    missing = [name for name in folders if not (site / name).is_dir()]
    if missing:
        print(f"prepare: {site} has no {', '.join(missing)}: volumes of compose.yaml")
        return 1
    if (site / FIRST / _DONE).exists():
        print("prepare: the site is there already")
        return 0
    for name in folders:
        empty(site / name)
    make_nodes(site)
    passwords = make_people(site)
    passwords |= make_devices(site)
    make_broker(site, passwords)
    issue_certificate(site, "console", site / "console")
    write_file(site / FIRST / _DONE, b"")
    print(f"prepare: made {', '.join(folders)}")
    return 0


def empty(folder: Path) -> None:
    """Remove what an interrupted start left; the folder itself is a mount."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def call(*words: object) -> str:
    """Run a `denwatch` command and return what it printed."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        status = denwatch([str(word) for word in words])
    if status:
        raise SystemExit(f"prepare: denwatch {words[0]} {words[1]}: exit status {status}")
    return told.getvalue()


def keys(site: Path, *words: object) -> str:
    """Run `denwatch keys` at the first node, which founded the site."""
    return call("keys", "--directory", site / FIRST / "node", *words)


# Nodes ------------------------------------------------------------------------------------------


def make_nodes(site: Path) -> None:
    """Found the site at the first node, and let the others join."""
    listen = ("--listen", f"mqtts://0.0.0.0:{PORT}")
    peers = [word for name in (SECOND, THIRD) for word in ("--peer", f"{name}={find_url(name)}")]
    call("node", "--init", site / FIRST / "node", "--name", FIRST, *listen, *peers)
    for name in (SECOND, THIRD):
        invitation = site / name / "invitation"
        keys(site, "invite", name, "--address", name, "--output", invitation)
        more = ("--peer", f"{SECOND}={find_url(SECOND)}") if name == THIRD else ()
        call("node", "--init", site / name / "node", "--join", invitation, *listen, *more)
        invitation.unlink()
    for name in (FIRST, SECOND, THIRD):
        changes = [
            ('data = "data"', 'data = "/data"'),
            ('vocabulary = ["rescue"]', f"vocabulary = {json.dumps(VOCABULARIES)}"),
        ]
        if name == FIRST:
            password = site / FIRST / "node" / "broker.key"
            write_file(password, f"{secrets.token_urlsafe(24)}\n".encode())
            changes += AT_THE_BROKER
        else:
            # The first node has no server that others could call: it calls them.
            changes.append((f'\n[[peers]]\nname = "{FIRST}"\nurl = "{find_url(FIRST)}"\n', ""))
        change_lines(site / name / "node" / "node.toml", changes)


def find_url(name: str) -> str:
    """Return where a node with a server of its own is reached."""
    return f"mqtts://{name}:{PORT}"


def change_lines(path: Path, changes: list[tuple[str, str]]) -> None:
    """Change lines of a configuration, each of which must be there once."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        if text.count(old) != 1:
            raise SystemExit(f"prepare: {path}: {old!r} is there {text.count(old)} times")
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


# People -----------------------------------------------------------------------------------------


def make_people(site: Path) -> dict[str, str]:
    """Register those who ask, and return their passwords."""
    passwords = {}
    for name, role in PEOPLE.items():
        folder = site / ("probe" if name == "probe" else "people")
        path = folder / f"{name}.key"
        keys(site, "add", "subscriber", name, "--role", role, "--output", path)
        passwords[name] = path.read_text(encoding="utf-8").strip()
        shutil.copy(site / FIRST / "node" / "tls" / "ca.pem", folder / "ca.pem")
    # mosquitto_sub reads its options from here, so that no password stands in a command line.
    options = f"-u probe\n-P {passwords['probe']}\n--cafile /site/probe/ca.pem\n"
    write_file(site / "probe" / "mosquitto_sub", options.encode())
    return passwords


# Devices ----------------------------------------------------------------------------------------


def make_devices(site: Path) -> dict[str, str]:
    """Register the watchdogs, write what they need, and return their passwords at the broker."""
    first, second = (load_shipped(name) for name in VOCABULARIES)
    vocabulary = merge_vocabularies(first, second)
    passwords = {}
    for name, (node, event, names) in DEVICES.items():
        keys(site, "add", "device", name, "--nodes", node)
        shown: dict[str, Any] = json.loads(keys(site, "show", name, "--secrets"))
        (entry,) = [entry for entry in shown["nodes"] if entry["name"] == node]
        entry["url"] = f"mqtts://{'broker' if node == FIRST else node}:{PORT}"
        entry["ca"] = f"/site/{name}/ca.der"
        shutil.copy(site / FIRST / "node" / "tls" / "ca.der", site / name / "ca.der")
        config = describe_watchdog(name, entry, vocabulary, event, names)
        write_file(site / name / "watchdog.json", json.dumps(config, indent=2).encode())
        if node == FIRST:
            passwords[name] = entry["password"]
    return passwords


def describe_watchdog(
    name: str,
    node: Mapping[str, Any],
    vocabulary: Vocabulary,
    event: str,
    names: tuple[str, ...],
) -> dict[str, Any]:
    """Return the configuration of a watchdog whose sensors are a CSV file (docs/watchdog.md)."""
    attributes = [vocabulary.events[event].attributes[attribute] for attribute in names]
    return {
        "device": name,
        "vocabulary": shorten_hash(vocabulary).hex(),
        "nodes": [node],
        "spool": {"file": f"/site/{name}/spool.bin", "blocks": 64},
        "sources": {
            "sensors": {
                "kind": "csv",
                "path": "/tmp/readings.csv",
                "columns": list(names),
                "scales": [_SCALE] * len(names),
            }
        },
        "events": [
            {
                "event": vocabulary.events[event].number,
                "period": PERIOD,
                "channels": [
                    {
                        "source": "sensors",
                        "field": place,
                        "attribute": attribute.bit,
                        "low": round(attribute.low * _SCALE),
                        "high": round(attribute.high * _SCALE),
                        "wide": attribute.wide,
                    }
                    for place, attribute in enumerate(attributes)
                ],
            }
        ],
        "link": {"longest_delay": 10},
    }


# The broker and the page ------------------------------------------------------------------------


def issue_certificate(site: Path, name: str, folder: Path) -> None:
    """Let the site's authority vouch for a server that is no node, here and on this machine."""
    authority = load_authority(site / FIRST / "node")
    addresses = [name, "localhost", "127.0.0.1"]
    issued = authority.issue_certificate(name, addresses, datetime.now(UTC))
    write_file(folder / "server.pem", issued.certificate)
    write_file(folder / "server.key", issued.key)


def make_broker(site: Path, passwords: dict[str, str]) -> None:
    """Give Mosquitto a certificate, the names that may come, and what each of them may do."""
    folder, node = site / "broker", site / FIRST / "node"
    issue_certificate(site, "broker", folder)
    everybody = {**passwords, FIRST: (node / "broker.key").read_text(encoding="utf-8").strip()}
    path = folder / "passwords"
    write_file(path, "".join(f"{user}:{word}\n" for user, word in everybody.items()).encode())
    subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True)  # hashes them in place
    rules = keys(site, "acl") + "\nuser probe\ntopic read $SYS/broker/version\n"
    write_file(folder / "acl", rules.encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
