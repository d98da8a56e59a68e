"""`denwatch node --init`: a node's folder with a commented `node.toml`, keys and certificates.

The first node of a site founds it. Every further one joins with an invitation, which `denwatch keys
invite` makes at the first.
"""

from __future__ import annotations

import argparse
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp

from denwatch.cli.failures import MISSING, WRONG_USAGE, CommandError
from denwatch.node.config import NodeConfigError, parse_config
from denwatch.node.config.loading import is_loopback, read_url
from denwatch.node.config.model import write_config
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.site import (
    Invitation,
    found_site,
    join_site,
    read_invitation,
    refuse_present,
    write_file,
)

CONFIG_FILE = "node.toml"
DEFAULT_LISTEN = "mqtt://127.0.0.1:1883"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `--init` takes besides the folder."""
    parser.add_argument("--name", help="the node's name (this machine's host name)")
    parser.add_argument(
        "--listen",
        action="append",
        metavar="URL",
        help=f"where to listen, mqtts:// beyond this machine ({DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--address",
        action="append",
        default=[],
        metavar="HOST",
        help="a name or address by which others reach it, for the certificate",
    )
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="another node to connect to; whoever invited this one is known already",
    )
    parser.add_argument("--join", metavar="FILE", help="the invitation from `denwatch keys invite`")


def init_node(
    folder: Path,
    name: str | None = None,
    listen: list[str] | None = None,
    addresses: list[str] | None = None,
    invitation: Path | None = None,
    peers: dict[str, str] | None = None,
) -> Path:
    """Make a node's folder and return its configuration; CommandError, and nothing is left."""
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
    """Do `denwatch node --init FOLDER` and say what comes next."""
    if arguments.join and (arguments.name or arguments.address):
        raise CommandError("--join: the invitation says the node's name and addresses", WRONG_USAGE)
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
    folder = path.parent
    name = parse_config(path.read_text(encoding="utf-8"), folder).name
    lines = [f"made {name} in {folder}: node.toml, keys.json, tls/"]
    if is_first:
        lines += [
            f"  {folder}/authority.json founds and revokes nodes: keep it safe, offline if you can",
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
    """Make everything in a folder beside, and move it into its place."""
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
            folder.rmdir()  # empty: looked at before
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return folder / CONFIG_FILE


def _refuse_present(folder: Path) -> None:
    """Refuse a folder with anything in it: not a file is overwritten."""
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is not a folder")
    refuse_present(folder)
    if (folder / CONFIG_FILE).exists():
        raise CommandError(f"{folder / CONFIG_FILE} is there already; nothing was changed")
    if folder.exists() and any(folder.iterdir()):
        raise CommandError(f"{folder} is not empty; nothing was changed")


def _collect_addresses(listen: list[str], addresses: list[str]) -> list[str]:
    """Return what a certificate is for: what was named, where it listens, and this machine."""
    hosts = []
    for url in listen:
        address = read_url(url)
        if isinstance(address, str):
            raise CommandError(f"--listen: {address}", WRONG_USAGE)
        hosts.append(address.host)
    fixed = [host for host in hosts if host not in ("0.0.0.0", "::") and not is_loopback(host)]
    return [*addresses, *fixed, "localhost", "127.0.0.1"]
