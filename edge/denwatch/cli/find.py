"""`denwatch find`: who can measure or report something, best first, and who can do it better."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from denwatch.cli import common
from denwatch.cli.errors import MISSING, WRONG_INPUT, CommandError
from denwatch.cli.profile import DEFAULT_NODE, fill_login, refuse_nameless
from denwatch.cli.subscribe import add_link, read_password, read_seconds

_DESCRIPTION = """
Asks a node which devices and people have these attributes, and none of those named with --without:
best first. The best lacks least, is near the node, person or device named with --near (or at the
node that is asked), and has little else. With --watch the node tells on dens/1/reply/NAME when
somebody better appears; --end stops that."""
_EXAMPLES = """
denwatch find heart_rate patient_temperature
denwatch find smoke --without carbon_monoxide --near north --as medic7 --json
denwatch find --end"""


def run(argv: list[str]) -> int:
    """Ask a node, and print who can."""
    arguments = _parse(argv)
    body: dict[str, Any] = {"find": arguments.attribute or False}
    if arguments.attribute:
        body |= {"against": arguments.without or [], "limit": arguments.limit}
        body |= {"watch": True} if arguments.watch else {}
        body |= {"near": arguments.near} if arguments.near else {}
    reply = ask_first(arguments, body)
    if arguments.json:
        print(json.dumps(reply, ensure_ascii=False))
    elif not reply["ok"]:
        raise CommandError(reply["error"], WRONG_INPUT)
    elif "found" in reply:
        _print_found(reply)
    return 0 if reply["ok"] else WRONG_INPUT


def ask_first(arguments: argparse.Namespace, body: dict[str, Any]) -> dict[str, Any]:
    """Ask the first of the nodes that answers; return its reply."""
    from denwatch.client.subscriber import LoginRefusedError, SubscriberError
    from denwatch.client.subscriber.link import Identity, exchange_requests

    refuse_nameless(arguments)
    tls = Path(arguments.ca) if arguments.ca else None
    identity = Identity(arguments.name, read_password(arguments), tls, arguments.insecure)
    faults = []
    for server in arguments.node or [DEFAULT_NODE]:
        try:
            (reply,) = exchange_requests(server, identity, "sub", [body], arguments.timeout)
        except LoginRefusedError as error:
            raise CommandError(str(error)) from None
        except SubscriberError as error:
            faults.append(str(error))
        else:
            return reply
    raise CommandError("; ".join(faults), MISSING)


def _print_found(reply: dict[str, Any]) -> None:
    rows = [["name", "kind", "at", "has", "lacks"]]
    for found in reply["found"]:
        kind = "person" if found["person"] else "device"
        has = ", ".join(found["has"]) + (f" and {found['also']} more" if found["also"] else "")
        lacks = ", ".join(found["lacks"])
        rows.append([found["name"], kind, ", ".join(found["nodes"]), has, lacks])
    if len(rows) > 1:
        print(*common.format_table(rows), sep="\n")
    print(f"{reply['node']}: {reply['words']}", file=sys.stderr)


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Find who can measure or report something."
    parser = common.build_parser("find", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("attribute", nargs="*", help="what is to be measured, such as heart_rate")
    common.add_option(parser, "--as NAME", "who you are", dest="name")
    add_link(parser)
    common.add_option(parser, "--without ATTRIBUTE ...", "what must not be there; may be repeated")
    common.add_option(parser, "--near NAME", "prefer those where this node, person or device is")
    common.add_option(parser, "--limit N", "how many (10)", type=int, default=10)
    common.add_option(parser, "--watch", "be told when somebody better appears")
    common.add_option(parser, "--end", "be told no more")
    common.add_option(parser, "--json", "print the node's reply as it is")
    common.add_option(
        parser, "--timeout SECONDS", "how long to wait (15)", type=read_seconds, default=15.0
    )
    arguments = fill_login(parser.parse_args(argv))
    if bool(arguments.attribute) == arguments.end:
        parser.error("name attributes, or --end")
    return arguments
