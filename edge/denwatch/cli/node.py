"""`denwatch node`: makes a node's folder, or runs the node that a folder describes."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from denwatch.cli.common import build_parser
from denwatch.cli.failures import MISSING, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from denwatch.node.config import Broker

_DESCRIPTION = """
Runs a DENS node: its own MQTT server (or a place at somebody else's broker), its store, its links
to other nodes. SIGTERM and Ctrl-C end it in order; kill -9 loses nothing that was acknowledged."""
_EXAMPLES = """
denwatch node --init north --name north
denwatch node north/node.toml
denwatch node north/node.toml --broker mqtt://127.0.0.1:1883
denwatch node --init south --join south.invite --listen mqtt://127.0.0.1:1884"""


def run(argv: list[str]) -> int:
    """Make or run a node."""
    arguments = _parse(argv)
    try:
        from denwatch.cli.node_init import run_init
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
            print(f"{config.name}: configuration, keys and store are good")
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
    parser.add_argument("--init", metavar="FOLDER", help="make a node's folder, and stop")
    parser.add_argument(
        "--check", action="store_true", help="look at configuration, keys and store, and stop"
    )
    parser.add_argument(
        "--broker", metavar="URL", help="use this broker in the place of an own server"
    )
    parser.add_argument(
        "--log", choices=("text", "json"), default="text", help="style of stderr (text)"
    )
    parser.add_argument(
        "--level", choices=("debug", "info", "warning", "error"), default="info", help="of stderr"
    )
    # Their own file has the rest: they need packages that `--help` does not.
    group = parser.add_argument_group("with --init")
    group.add_argument("--name", help="the node's name (this machine's host name)")
    group.add_argument(
        "--listen", action="append", metavar="URL", help="mqtt://HOST:PORT or mqtts://…, several"
    )
    group.add_argument(
        "--address", action="append", default=[], metavar="HOST", help="by which others reach it"
    )
    group.add_argument(
        "--peer", action="append", default=[], metavar="NAME=URL", help="a node to link to"
    )
    group.add_argument("--join", metavar="FILE", help="an invitation of `denwatch keys invite`")
    return parser.parse_args(argv)
