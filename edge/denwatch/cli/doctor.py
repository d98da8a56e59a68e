"""`denwatch doctor`: what is wrong with this machine, a node's folder, a device's configuration.

Every check yields findings: what was looked at, whether it is well, and what to do. Only what was
looked at is called well; what could not be looked at says so. Nothing is changed.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import resource
import shutil
import socket
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import NamedTuple
from urllib.parse import urlsplit

from denwatch.cli import common
from denwatch.cli.errors import MISSING, WRONG_INPUT, CommandError

_DESCRIPTION = """
Without an argument it looks at this machine and at the current login, and at the node or device in
this folder, if there is one. FOLDER is a node's folder; FILE is a device's watchdog.json. Each line
is `ok`, `note` (worth knowing) or `WRONG` (with what to do). A node that runs is asked; the store
of one that does not is read from end to end. Nothing is changed."""
_EXAMPLES = """
denwatch doctor
denwatch doctor north
denwatch doctor watchdog.json --json
denwatch doctor --running north                 (wrong unless it answers: for health checks)"""
OK, NOTE, WRONG = "ok", "note", "wrong"
_EXTRAS = {  # a package that nothing else brings
    "node": "zeroconf",
    "fast": "numba",
    "spark": "pyspark",
    "console": "nicegui",
    "plot": "matplotlib",
    "device": "mpremote",
    "alerts": "apprise",
}
_LEAST_SPACE = 50 << 20
_MUCH_SPACE = 1 << 30
_YEARS = (2020, 2100)  # outside of these a node does not use its clock
_SOON = 30 * 86_400  # s before a certificate ends
_PATIENCE = 3.0  # s for a connection


class Finding(NamedTuple):
    """What was looked at, how it is, and what to do about it."""

    state: str
    what: str
    advice: str = ""


def run(argv: list[str]) -> int:
    """Look, and report."""
    summary = "Say what is wrong with this machine, a node or a device."
    parser = common.build_parser("doctor", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("path", nargs="*", metavar="FOLDER|FILE", help="a node, or a device")
    common.add_option(parser, "--running", "wrong if the node does not answer; reads no store")
    common.add_option(parser, "--json", "one JSON list")
    arguments = parser.parse_args(argv)
    findings = [*_look(arguments.path, arguments.running)]
    if arguments.json:
        print(json.dumps([one._asdict() for one in findings], ensure_ascii=False))
    else:
        for one in findings:
            mark = one.state.upper() if one.state == WRONG else one.state
            print(f"{mark:<6}{one.what}" + (f"\n      {one.advice}" if one.advice else ""))
        count = sum(one.state == WRONG for one in findings)
        print(f"{count} wrong" if count else "nothing is wrong with what was looked at")
    return WRONG_INPUT if any(one.state == WRONG for one in findings) else 0


def _look(paths: list[str], is_running: bool) -> Iterator[Finding]:
    if not paths:
        yield from check_machine()
        yield from check_login()
        paths = [name for name in ("node.toml", "watchdog.json") if Path(name).exists()]
    for name in paths:
        path = Path(name)
        if path.suffix == ".json":
            yield from check_device(path)
        elif path.is_dir() and not (path / "node.toml").exists():
            raise CommandError(
                f"{path} has no node.toml: `denwatch node --init {quote(str(path))}`", MISSING
            )
        elif not path.exists():
            raise CommandError(f"{path}: no such folder or file", MISSING)
        else:
            yield from check_folder(path if path.is_dir() else path.parent, is_running)


# The machine --------------------------------------------------------------------------------


def check_machine() -> Iterator[Finding]:
    """Yield what the machine has, and what it lacks."""
    from denwatch.client.version import find_commit, find_version

    commit = find_commit()
    name = f"denwatch {find_version()}" + (f" ({commit})" if commit else "")
    yield Finding(OK, f"{name}, Python {platform.python_version()}, {platform.machine()}")
    found = [extra for extra, package in _EXTRAS.items() if importlib.util.find_spec(package)]
    missing = [extra for extra in _EXTRAS if extra not in found]
    advice = f"if you need one: pip install 'denwatch[{missing[0]}]'" if missing else ""
    words = f"extras installed: {', '.join(found) or 'none'}; not: {', '.join(missing) or 'none'}"
    yield Finding(OK, words, advice)
    if "spark" in found and not shutil.which("java"):
        yield Finding(WRONG, "Spark is installed, but no Java", "install Java 17 or 21")
    yield _check_clock()
    yield _check_space(common.find_data_home())
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = files < 1024
    yield Finding(NOTE if few else OK, f"{files} open files allowed", "ulimit -n 4096" * few)
    if sys.getfilesystemencoding().lower() != "utf-8":
        advice = "export LANG=C.UTF-8"
        yield Finding(NOTE, f"names of files are {sys.getfilesystemencoding()}", advice)


def _check_clock() -> Finding:
    year = time.gmtime().tm_year
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    if _YEARS[0] <= year < _YEARS[1]:
        return Finding(OK, f"the clock says {shown} (not compared with another one)")
    return Finding(WRONG, f"the clock says {shown}", "set it: nodes do not use such a clock")


def _check_space(folder: Path) -> Finding:
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    words = f"{free / 1e9:.1f} GB free at {folder}"
    if free < _LEAST_SPACE:
        return Finding(WRONG, words, "a node stores nothing on a full disk: make room")
    return Finding(OK if free > _MUCH_SPACE else NOTE, words)


def check_login() -> Iterator[Finding]:
    """Yield whether the current profile can be used."""
    from denwatch.cli.profile import Profiles
    from denwatch.client.subscriber import LoginRefusedError, SubscriberError
    from denwatch.client.subscriber.link import Identity, exchange_requests

    profiles = Profiles()
    name = profiles.current
    if name is None:
        yield Finding(NOTE, "nobody has logged in", "denwatch login NAME")
        return
    entry, file = profiles.find(name), profiles.name_password(name)
    again = f"denwatch login {entry['as']}"
    if not file.exists():
        yield Finding(WRONG, f"profile {name}: {file} is missing", again)
        return
    yield from _check_secrets([file])
    password = common.read_file(file).strip()
    identity = Identity(entry["as"], password, entry.get("ca"), bool(entry.get("insecure")))
    for server in entry["nodes"]:
        try:
            exchange_requests(server, identity, "sub", [{"explain": "login"}], _PATIENCE)
        except LoginRefusedError as error:
            yield Finding(WRONG, f"profile {name}: {error}", again)
        except SubscriberError as error:
            yield Finding(WRONG, f"profile {name}: {error}", "is it up, and in reach?")
        else:
            yield Finding(OK, f"profile {name}: {server} accepts {entry['as']}")


# A node -------------------------------------------------------------------------------------


def check_folder(folder: Path, is_running: bool) -> Iterator[Finding]:
    """Yield whether a node's folder is complete, safe and valid, and whether the node answers."""
    with common.need_extra("node"):
        from denwatch.node.config import NodeConfigError, load_config
        from denwatch.node.runtime.process import check_node
        from denwatch.node.security import site
        from denwatch.node.security.credentials import SecurityError
        from denwatch.node.store import StoreBusy, StoreError
    try:
        config = load_config(folder / "node.toml")
        registry = site.KeyFile(folder).load()
    except (NodeConfigError, SecurityError, OSError) as error:
        yield Finding(WRONG, str(error), "mend this first; the rest was not looked at")
        return
    yield Finding(OK, f"{folder / 'node.toml'}: {config.name}")
    if registry.name != config.name:
        yield Finding(WRONG, f"keys.json is for {registry.name}, node.toml for {config.name}")
    names = ("keys.json", "authority.json", site.KEY_FILE)
    yield from _check_secrets(folder / name for name in names if (folder / name).exists())
    if (folder / "authority.json").exists():
        words = f"{folder / 'authority.json'} is on this machine"
        yield Finding(NOTE, words, "who has it owns the site: keep it offline")
    yield _check_certificate(folder / site.CERTIFICATE_FILE)
    for name, app in sorted(registry.subscribers.items()):
        if app.role not in config.roles and app.role != "operator":
            words = f"{name} has the role {app.role}, which node.toml does not have"
            role = next(iter(config.roles))
            advice = f"denwatch keys --directory {quote(str(folder))} role {name} {role}"
            yield Finding(WRONG, words, advice)
    yield _check_space(config.data)
    answers = [_reach(address.host, address.port) for address in config.listen]
    for address, answer in zip(config.listen, answers, strict=True):
        words = f"{address.host}:{address.port}"
        if answer is None:
            yield Finding(OK, f"{words} answers")
        elif is_running:
            yield Finding(WRONG, f"{words}: {answer}", f"denwatch node {quote(str(folder))}")
    if not is_running:
        try:
            damaged = check_node(config)
        except StoreBusy:
            yield Finding(NOTE, "the node runs: its store was not looked at")
        except (StoreError, ValueError, OSError) as error:
            yield Finding(WRONG, str(error))
        else:
            yield from (Finding(WRONG, what) for what in damaged)
            if not damaged:
                yield Finding(OK, "store and log are valid; the node does not run")
            if any(answer is None for answer in answers):
                advice = "stop that one, or change `listen` in node.toml"
                yield Finding(WRONG, "another program has this node's port", advice)
    for peer in config.peers:
        place = peer.address
        answer = _reach(place.host, place.port)
        state = OK if answer is None else NOTE
        yield Finding(state, f"peer {peer.name}: {answer or 'answers'}")


def _check_secrets(paths: Iterable[Path]) -> Iterator[Finding]:
    for path in paths:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            yield Finding(
                WRONG, f"{path}: other users can read it", f"chmod 600 {quote(str(path))}"
            )
        else:
            yield Finding(OK, f"{path}: only its owner can read it")


def _check_certificate(path: Path) -> Finding:
    from cryptography.x509 import load_pem_x509_certificate

    try:
        end = load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        return Finding(WRONG, f"{path}: {error}")
    left = end.timestamp() - time.time()
    advice = (
        f"denwatch keys --directory {quote(str(path.parents[1]))} renew" if left < _SOON else ""
    )
    state = OK if left > _SOON else NOTE if left > 0 else WRONG
    return Finding(state, f"{path}: valid until {end:%Y-%m-%d}", advice)


def _reach(host: str, port: int) -> str | None:
    """Return why nobody answers there, or None."""
    place = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    try:
        socket.create_connection((place, port), _PATIENCE).close()
    except OSError as error:
        return str(error.strerror or error)
    return None


# A device -----------------------------------------------------------------------------------


def check_device(path: Path) -> Iterator[Finding]:
    """Yield whether a watchdog's configuration is valid, and whether its nodes answer."""
    from denwatch.cli.devices.schema import check_config, estimate_life

    try:
        config = json.loads(common.read_file(path))
        check_config(config)
    except ValueError as error:
        yield Finding(WRONG, f"{path}: {error}")
        return
    except CommandError as error:
        if error.status == MISSING:
            raise
        yield Finding(WRONG, f"{path}: {error}", "docs/watchdog.md describes every field")
        return
    years = f"{estimate_life(config):,.0f}"
    yield Finding(OK, f"{path}: {config['device']}; flash for {years} years")
    for name, source in config["sources"].items():
        file = source.get("path")
        if file and source.get("kind") == "csv":
            there = (path.parent / file).exists() or Path(file).exists()
            words = f"source {name}: {file}" + ("" if there else " is missing")
            yield Finding(OK if there else WRONG, words)
    for node in config["nodes"]:
        url = urlsplit(node["url"])
        port = url.port or (8883 if url.scheme == "mqtts" else 1883)
        answer = _reach(url.hostname or "", port)
        state = OK if answer is None else WRONG
        yield Finding(state, f"node {node['name']} at {node['url']}: {answer or 'answers'}")
        if node.get("ca") and not (path.parent / node["ca"]).exists():
            yield Finding(NOTE, f"{node['ca']} is not beside {path}; on the board it must be")
