"""`denwatch node`: makes a node's folder, or runs the node that a folder describes.

A folder has a commented `node.toml`, keys and certificates. The first node of a site founds it;
every further one joins with an invitation that `denwatch keys invite` made at the first. Modules
that need the packages of a node are imported only in functions, so that `--help` works without.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from denwatch.cli.common import add_option, build_parser, need_extra, reach, refuse
from denwatch.cli.errors import MISSING, WRONG_INPUT, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from denwatch.node.config import NodeConfig

CONFIG_FILE = "node.toml"
DEFAULT_LISTEN = "mqtt://127.0.0.1:1883"

_DESCRIPTION = """
Runs a DENS node: its own MQTT server (or a connection to an existing broker), its store, and its
links to other nodes. SIGTERM and Ctrl-C stop it cleanly; kill -9 loses nothing that was
acknowledged."""
_EXAMPLES = """
denwatch node --init north --name north
denwatch node north
denwatch node --check north
denwatch node north --install --dry-run
denwatch node north --broker mqtt://127.0.0.1:1883
denwatch node --init south --join south.invite --listen mqtt://127.0.0.1:1884"""


def run(argv: list[str]) -> int:
    """Make or run a node."""
    arguments = _parse(argv)
    with need_extra("node"):
        from denwatch.node.runtime.process import check_node, serve_node, start_logging
        from denwatch.node.store import StoreError
    if arguments.init:
        return run_init(Path(arguments.init), arguments)
    if arguments.install or arguments.uninstall:
        return _run_service(arguments)
    # Of the configuration, keys, store and ports.
    with refuse(ValueError, StoreError, OSError):
        path = Path(arguments.config)
        if not path.exists():
            raise CommandError(
                f"{path}: no such node: `denwatch node --init {shlex.quote(str(path))}`", MISSING
            )
        config = _load(path / CONFIG_FILE if path.is_dir() else path, arguments.broker or "")
        start_logging(config.name, arguments.log, arguments.level)
        if arguments.check:
            return _report_check(config.name, check_node(config), arguments.json)
        serve_node(config)
    return 0


def _run_service(arguments: argparse.Namespace) -> int:
    """Make the node a service of this machine, or end that."""
    from denwatch.cli import service
    from denwatch.node.config import NodeConfigError, load_config

    root, path = Path(arguments.root), Path(arguments.config)
    if arguments.uninstall:
        return service.uninstall(path.name, root, arguments.dry_run)
    folder = path if path.is_dir() else path.parent
    with refuse(NodeConfigError, OSError):
        name = load_config(folder / CONFIG_FILE).name
    return service.install(name, folder, root, arguments.dry_run)


def _report_check(name: str, found: list[str], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"ok": not found, "node": name, "damaged": found}, ensure_ascii=False))
        return WRONG_INPUT if found else 0
    for line in found:
        print(line)
    if found:
        print(f"{name}: {len(found)} damaged; when the node is started it goes on without these")
        return WRONG_INPUT
    print(f"{name}: configuration, keys, store and log are valid")
    return 0


def _load(path: Path, url: str) -> NodeConfig:
    """Return the configuration; what --broker says goes before what the file says."""
    from denwatch.node.config import load_config

    if not url:
        return load_config(path)
    try:
        parts = urlsplit(url)
        port = parts.port or 0
    except ValueError as error:
        raise CommandError(f'--broker: "{url}": {error}', WRONG_USAGE) from None
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
        raise CommandError(f'--broker: "{url}" is not mqtt://HOST:PORT', WRONG_USAGE)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    plain = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    config = load_config(path, plain)
    assert config.broker is not None, "it has a URL"
    user = unquote(parts.username) if parts.username else config.broker.user
    password = os.environ.get("DENWATCH_BROKER_PASSWORD") or config.broker.password
    if parts.password is not None:
        password = unquote(parts.password)
    broker = dataclasses.replace(config.broker, user=user, password=password)
    return dataclasses.replace(config, broker=broker)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = build_parser("node", "Make or run a DENS node.", _DESCRIPTION, _EXAMPLES)
    parser.add_argument(
        "config",
        nargs="?",
        default="node.toml",
        help="its configuration, or its folder (node.toml)",
    )
    add_option(parser, "--init FOLDER", "make a node's folder, and exit")
    add_option(parser, "--check", "check configuration, keys, store and log, and exit")
    add_option(parser, "--broker URL", "use this broker instead of an own server")
    add_option(
        parser, "--log", "log format on stderr (text)", choices=("text", "json"), default="text"
    )
    add_option(
        parser,
        "--level",
        "log level (info)",
        choices=("debug", "info", "warning", "error"),
        default="info",
    )
    service = parser.add_argument_group("as a service of this machine (systemd)")
    add_option(service, "--install", "copy the folder to /var/lib/denwatch, and start it at boot")
    add_option(service, "--uninstall", "end that; `config` is the node's name; its folder stays")
    add_option(service, "--dry-run", "only print the steps")
    add_option(service, "--root FOLDER", "install below this folder (/)", default="/")
    add_init_arguments(parser.add_argument_group("with --init"))
    return parser.parse_args(argv)


# `denwatch node --init` ---------------------------------------------------------------------


def add_init_arguments(group: argparse._ActionsContainer) -> None:
    """Add the options of `--init`."""
    add_option(group, "--json", "one JSON object (with --check, too)")
    add_option(group, "--name NAME", "the node's name (this machine's host name)")
    add_option(
        group,
        "--listen URL ...",
        f"where to listen; mqtts:// beyond this machine ({DEFAULT_LISTEN})",
    )
    add_option(group, "--address HOST ...", "a name that others reach it by")
    add_option(
        group,
        "--peer NAME=URL ...",
        "another node to connect to; the inviting node is added anyway",
    )
    add_option(group, "--join FILE", "the invitation from `denwatch keys invite`")


def init_node(
    folder: Path,
    name: str | None = None,
    listen: Sequence[str] = (),
    addresses: Sequence[str] = (),
    invitation: Path | None = None,
    peers: Mapping[str, str] | None = None,
) -> Path:
    """Make a node's folder and return the path of its configuration.

    Everything is made in a temporary folder and moved into its place: on a CommandError nothing is
    left behind.
    """
    from denwatch.node.config import NodeConfigError, parse_config
    from denwatch.node.config.model import write_config
    from denwatch.node.security import site
    from denwatch.node.security.credentials import SecurityError

    listen = list(listen) or [DEFAULT_LISTEN]
    with refuse(SecurityError, NodeConfigError), reach(folder):
        invited = site.read_invitation(invitation) if invitation else None
        _refuse_present(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            if invited is None:
                name = name or socket.gethostname().partition(".")[0]
                hosts = _collect_addresses(listen, addresses)
                site.found_site(beside, name, hosts, datetime.now(UTC))
            else:
                name = site.join_site(beside, invited).name
                peers = {**invited.peers, **(peers or {})}
            text = write_config(name, listen, dict(peers or {}))
            parse_config(text, beside)
            site.write_file(beside / CONFIG_FILE, text.encode(), 0o644)
            if folder.exists():
                folder.rmdir()  # empty: checked before
            beside.rename(folder)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    return folder / CONFIG_FILE


def run_init(folder: Path, arguments: argparse.Namespace) -> int:
    """Run `denwatch node --init FOLDER`, and print the next steps."""
    if arguments.join and (arguments.name or arguments.address):
        raise CommandError("--join: name and addresses come from the invitation", WRONG_USAGE)
    path = init_node(
        folder,
        arguments.name,
        arguments.listen,
        arguments.address,
        Path(arguments.join) if arguments.join else None,
        dict(map(_split_peer, arguments.peer)),
    )
    if arguments.json:
        print(json.dumps({"ok": True, "folder": str(folder), "config": str(path)}))
    else:
        print(describe_next_steps(path, is_first=not arguments.join))
    return 0


def _split_peer(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals:
        raise CommandError(f'--peer: "{text}" is not NAME=URL', WRONG_USAGE)
    return name, url


def describe_next_steps(path: Path, is_first: bool) -> str:
    """Return what an operator does after --init."""
    from denwatch.node.config import parse_config

    folder = path.parent
    where = shlex.quote(str(folder))
    name = parse_config(path.read_text(encoding="utf-8"), folder).name
    lines = [f"made {name} in {folder}: node.toml, keys.json, tls/"]
    if is_first:
        lines += [
            f"  {folder}/authority.json adds and revokes nodes: keep it safe, offline if you can",
            "next:",
            f"  denwatch keys --directory {where} add subscriber medic7 --role medic",
            f"  denwatch keys --directory {where} add device dog-1",
            f"  denwatch keys --directory {where} invite south --output south.invite",
        ]
    else:
        lines += ["delete the invitation: it holds this node's keys", "next:"]
    return "\n".join([*lines, f"  denwatch node {where}"])


def _refuse_present(folder: Path) -> None:
    """Refuse a folder that is not empty: no file is overwritten."""
    from denwatch.node.security.site import refuse_present

    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is not a folder")
    refuse_present(folder)
    if (folder / CONFIG_FILE).exists():
        raise CommandError(f"{folder / CONFIG_FILE} exists already; nothing was changed")
    if folder.exists() and any(folder.iterdir()):
        raise CommandError(f"{folder} is not empty; nothing was changed")


def _collect_addresses(listen: list[str], addresses: Sequence[str]) -> list[str]:
    """Return the names for the certificate: those given, where it listens, and this machine."""
    from denwatch.node.config.loading import is_loopback, read_url

    hosts = []
    for url in listen:
        address = read_url(url)
        if isinstance(address, str):
            raise CommandError(f"--listen: {address}", WRONG_USAGE)
        hosts.append(address.host)
    fixed = [host for host in hosts if host not in ("0.0.0.0", "::") and not is_loopback(host)]
    return [*addresses, *fixed, "localhost", "127.0.0.1"]
