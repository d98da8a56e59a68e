"""`denwatch node`: makes a node's folder, or runs the node that a folder describes.

A folder has a commented `node.toml`, keys and certificates. The first node of a site founds it;
every further one joins with an invitation that `denwatch keys invite` made at the first. Modules
that need the packages of a node are imported only in functions, so that `--help` works without.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from denwatch.cli.common import build_parser
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from denwatch.node.config import Broker
    from denwatch.node.security.site import Invitation

CONFIG_FILE = "node.toml"
DEFAULT_LISTEN = "mqtt://127.0.0.1:1883"

_DESCRIPTION = """
Runs a DENS node: its own MQTT server (or a connection to an existing broker), its store, and its
links to other nodes. SIGTERM and Ctrl-C stop it cleanly; kill -9 loses nothing that was
acknowledged."""
_EXAMPLES = """
denwatch node --init north --name north
denwatch node north/node.toml
denwatch node north/node.toml --broker mqtt://127.0.0.1:1883
denwatch node --init south --join south.invite --listen mqtt://127.0.0.1:1884"""


def run(argv: list[str]) -> int:
    """Make or run a node."""
    arguments = _parse(argv)
    try:
        from denwatch.node.config import load_config
        from denwatch.node.runtime.process import check_node, serve_node, start_logging
        from denwatch.node.store import StoreError
    except ModuleNotFoundError as error:
        raise CommandError(
            f'a node needs the package {error.name}: pip install "denwatch[node]"', MISSING
        ) from None
    if arguments.init:
        return run_init(Path(arguments.init), arguments)
    try:
        config = load_config(Path(arguments.config))
        if arguments.broker:
            config = dataclasses.replace(config, broker=_read_broker(arguments.broker))
        start_logging(config.name, arguments.log, arguments.level)
        if arguments.check:
            check_node(config)
            print(f"{config.name}: configuration, keys and store are valid")
        else:
            serve_node(config)
    except (ValueError, StoreError, OSError) as error:  # of the configuration, keys, store, ports
        raise CommandError(str(error)) from None
    return 0


def _read_broker(url: str) -> Broker:
    from denwatch.node.config import Broker, ServerAddress

    parts = urlsplit(url)
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
        raise CommandError(f'--broker: "{url}" is not mqtt://HOST:PORT', WRONG_USAGE)
    has_tls = parts.scheme == "mqtts"
    password = parts.password or os.environ.get("DENWATCH_BROKER_PASSWORD", "")
    address = ServerAddress(parts.hostname, parts.port or (8883 if has_tls else 1883), has_tls)
    return Broker(address, parts.username or "", password, None)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = build_parser("node", "Make or run a DENS node.", _DESCRIPTION, _EXAMPLES)
    parser.add_argument(
        "config", nargs="?", default="node.toml", help="its configuration (node.toml)"
    )
    parser.add_argument("--init", metavar="FOLDER", help="make a node's folder, and exit")
    parser.add_argument(
        "--check", action="store_true", help="check configuration, keys and store, and exit"
    )
    parser.add_argument("--broker", metavar="URL", help="use this broker instead of an own server")
    parser.add_argument(
        "--log", choices=("text", "json"), default="text", help="log format on stderr (text)"
    )
    parser.add_argument(
        "--level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="log level (info)",
    )
    add_init_arguments(parser.add_argument_group("with --init"))
    return parser.parse_args(argv)


# `denwatch node --init` ---------------------------------------------------------------------


def add_init_arguments(group: argparse._ActionsContainer) -> None:
    """Add the options of `--init`."""
    group.add_argument("--name", help="the node's name (this machine's host name)")
    group.add_argument(
        "--listen",
        action="append",
        metavar="URL",
        help=f"where to listen; mqtts:// beyond this machine ({DEFAULT_LISTEN})",
    )
    group.add_argument(
        "--address",
        action="append",
        default=[],
        metavar="HOST",
        help="a name that others reach it by",
    )
    group.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="another node to connect to; the inviting node is added anyway",
    )
    group.add_argument("--join", metavar="FILE", help="the invitation from `denwatch keys invite`")


def init_node(
    folder: Path,
    name: str | None = None,
    listen: list[str] | None = None,
    addresses: list[str] | None = None,
    invitation: Path | None = None,
    peers: dict[str, str] | None = None,
) -> Path:
    """Make a node's folder and return the path of its configuration.

    On a CommandError nothing is left behind.
    """
    from denwatch.node.config import NodeConfigError
    from denwatch.node.security.credentials import SecurityError
    from denwatch.node.security.site import read_invitation

    today = datetime.now(UTC)
    try:
        invited = read_invitation(invitation) if invitation else None
        _refuse_present(folder)
        return _fill(
            folder, name, listen or [DEFAULT_LISTEN], addresses or [], peers or {}, invited, today
        )
    except (SecurityError, NodeConfigError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{folder}: {error.strerror}", MISSING) from None


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
    name = parse_config(path.read_text(encoding="utf-8"), folder).name
    lines = [f"made {name} in {folder}: node.toml, keys.json, tls/"]
    if is_first:
        lines += [
            f"  {folder}/authority.json adds and revokes nodes: keep it safe, offline if you can",
            "next:",
            f"  denwatch keys --directory {folder} add subscriber medic7 --role medic",
            f"  denwatch keys --directory {folder} add device dog-1",
            f"  denwatch keys --directory {folder} invite NODE --address HOST --output NODE.invite",
        ]
    else:
        lines += ["delete the invitation: it holds this node's keys", "next:"]
    return "\n".join([*lines, f"  denwatch node {path}"])


def _fill(
    folder: Path,
    name: str | None,
    listen: list[str],
    addresses: list[str],
    peers: dict[str, str],
    invited: Invitation | None,
    today: datetime,
) -> Path:
    """Make everything in a temporary folder, and move it into its place."""
    from denwatch.node.config import parse_config
    from denwatch.node.config.model import write_config
    from denwatch.node.security.site import found_site, join_site, write_file

    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        if invited is None:
            name = name or socket.gethostname().partition(".")[0]
            found_site(beside, name, _collect_addresses(listen, addresses), today)
        else:
            name = join_site(beside, invited).name
            peers = {**invited.peers, **peers}
        text = write_config(name, listen, peers)
        parse_config(text, beside)
        write_file(beside / CONFIG_FILE, text.encode(), 0o644)
        if folder.exists():
            folder.rmdir()  # empty: checked before
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return folder / CONFIG_FILE


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


def _collect_addresses(listen: list[str], addresses: list[str]) -> list[str]:
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
