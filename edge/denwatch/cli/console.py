"""`denwatch console`: the rescue console, a web page that this machine serves."""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import sys
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from denwatch.cli import common
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError
from denwatch.cli.profile import DEFAULT_NODE, fill_login
from denwatch.cli.subscribe import add_link, read_password

if TYPE_CHECKING:
    from denwatch.client.console.auth import ConsoleUsers
    from denwatch.client.console.drawing import PlanPicture
    from denwatch.client.console.phone import Doorstep, PhoneCertificate
    from denwatch.client.console.server import ListenAddress

_DESCRIPTION = """
Serves a page for subscribing in words. It shows what matches while it is valid, best first, with
the reason, and the nodes and devices. Everything is served from this machine; the page loads
nothing from elsewhere, and works without the internet.

With --as, or after `denwatch login`, the console belongs to one subscriber: it prints a link with a
secret, and whoever opens the link is that subscriber. With --node and without --as, users log in
with their name and key, which a node checks; each sees only their own notifications. A subscription
made while no node is in range is stored, and sent when one is.

It listens on the loopback unless --listen says otherwise; beyond it, only with --certificate and
--key. With --phone it listens in this network with a certificate that it makes itself, prints the
address and a QR code, and hands out what a phone must install once. Ctrl-C ends it: subscriptions
stay, and the nodes store what matches meanwhile."""
_EXAMPLES = """
denwatch console                                  (the console of who has logged in)
denwatch console --as medic7 --node mqtts://tent --node mqtts://truck --ca site.pem
denwatch console --node mqtts://tent --ca site.pem                (users log in)
denwatch console --listen 0.0.0.0:8443 --certificate web.pem --key web.key --host-name tent.local
denwatch console --as medic7 --password-file medic7.key --phone
denwatch console --as medic7 --password-file medic7.key --plan ward.png@0,0,120,80
denwatch console --as pilot --vocabulary rescue --vocabulary weather --listen 127.0.0.1:0"""

_PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
}


def run(argv: list[str]) -> int:
    """Serve until stopped."""
    arguments = _parse(argv)
    listen_at = _read_listen(arguments)
    with common.need_extra("console"):
        from denwatch.client.console.auth import ConsoleUsers
        from denwatch.client.console.preview import preview
        from denwatch.client.console.server import ListenAddress
        from denwatch.client.console.user_session import NodeServers, close_folder
        from denwatch.client.subscriber import SubscriberError
        from denwatch.client.subscriber.link import Identity
        from denwatch.client.subscriber.servers import parse_server
    vocabulary = common.load_vocabulary(arguments.vocabulary)
    folder = common.make_folder(Path(arguments.store or common.find_data_home() / "console"), 0o700)
    servers = tuple(arguments.node or [DEFAULT_NODE])
    with common.refuse(SubscriberError, OSError):
        for what in close_folder(folder):
            print(f"denwatch console: {what}; not any more", file=sys.stderr)
        nodes = NodeServers(servers, arguments.ca, arguments.insecure)
        for server in servers:  # refuse now, not at a login, to send keys in the clear
            identity = Identity("name", "key", nodes.tls, nodes.is_insecure)
            identity.build_context(parse_server(server))
        users = ConsoleUsers(
            nodes, folder, vocabulary.prefer(arguments.organisation), plan=_read_plan(arguments)
        )
        listen = ListenAddress(
            *listen_at, arguments.certificate, arguments.key, tuple(arguments.host_name)
        )
        phone = _prepare_phone(arguments, listen, folder) if arguments.phone else None
        if phone is not None:
            listen = phone.listen
        preview("heart_rate is high", vocabulary)  # loads the grammar
        return _serve(arguments, users, listen, folder, phone)


@dataclass
class _Phone:
    """Where phones find the console: what it listens to, its address, what they install."""

    listen: ListenAddress
    address: str
    certificate: PhoneCertificate
    doorstep: Doorstep | None = None

    def report(self, port: int, path: str) -> None:
        """Print the addresses and their codes, and hand out the certificate."""
        from denwatch.client.console.phone import Doorstep, draw_code

        home = f"https://{self.address}:{port}"
        self.doorstep = Doorstep(self.listen.host, 0, self.certificate, f"{home}/")
        self.doorstep.start()
        first = f"http://{self.address}:{self.doorstep.port}/"
        print(f"on a phone, once: {first} explains and hands out the certificate")
        print(f"its fingerprint: {self.certificate.fingerprint}\n{draw_code(first)}")
        print(f"then: {home}{path}\n{draw_code(home + path)}", flush=True)

    def close(self) -> None:
        if self.doorstep is not None:
            self.doorstep.close()


def _prepare_phone(arguments: argparse.Namespace, listen: ListenAddress, folder: Path) -> _Phone:
    from denwatch.client.console.phone import (
        PhoneCertificate,
        list_addresses,
        list_names,
        make_certificate,
    )

    own = list_addresses() if listen.host in ("0.0.0.0", "::") else [listen.host]
    if not own:
        raise CommandError("--phone: this machine has no address in a network", MISSING)
    names = (*own, *list_names(), *listen.names)
    if listen.certificate is not None and listen.key is not None:
        authority = Path(arguments.ca) if arguments.ca else listen.certificate
        found = PhoneCertificate(listen.certificate, listen.key, authority)
    else:
        now = datetime.datetime.now(datetime.UTC)
        found = make_certificate(folder, (*names, "localhost", "127.0.0.1"), now)
    listen = replace(listen, certificate=found.certificate, key=found.key, names=names)
    return _Phone(listen, f"[{own[0]}]" if ":" in own[0] else own[0], found)


def _serve(
    arguments: argparse.Namespace,
    users: ConsoleUsers,
    listen: ListenAddress,
    folder: Path,
    phone: _Phone | None,
) -> int:
    from denwatch.client.console.auth import ask_nodes
    from denwatch.client.console.server import build_server
    from denwatch.client.subscriber.servers import DENIED

    token = ""
    if arguments.name is not None:
        password = read_password(arguments)
        refusal = ask_nodes(users.nodes.identify(arguments.name, password), users.nodes)
        if refusal == DENIED:  # now, not on a page that waits for a node in range
            raise CommandError(f"{arguments.name}: {refusal}")
        if refusal is not None:
            print(
                f"denwatch console: no node serves {arguments.name} yet: {refusal}", file=sys.stderr
            )
        token = users.open_single(arguments.name, password, folder / f"{arguments.name}.db")

    def report(address: str) -> None:
        path = f"/enter?token={token}" if token else "/"
        if phone is not None:
            phone.report(int(address.rpartition(":")[2]), path)
        where = address + path
        whose = f"the console of {arguments.name}" if token else "the console, with login,"
        print(f"{whose} is at {where}", flush=True)

    common.stop_at_sigterm()  # uvicorn stops cleanly and then raises the signal again
    try:
        build_server(users, listen, report).run()
    except SystemExit:  # uvicorn's, when it cannot listen; it has printed why
        raise CommandError(f"cannot listen on {listen.host}:{listen.port}", MISSING) from None
    except KeyboardInterrupt:
        print("stopped; subscriptions stay", file=sys.stderr)
    finally:
        users.close()
        if phone is not None:
            phone.close()
    return 0


# Arguments ----------------------------------------------------------------------------------


def _read_listen(arguments: argparse.Namespace) -> tuple[str, int]:
    usual = "0.0.0.0:8443" if arguments.phone else "127.0.0.1:8080"
    arguments.listen = arguments.listen or usual
    host, separator, port = arguments.listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise CommandError(f"--listen {arguments.listen}: HOST:PORT is expected", WRONG_USAGE)
    if (arguments.certificate is None) != (arguments.key is None):
        raise CommandError("--certificate and --key go together", WRONG_USAGE)
    for path in (arguments.certificate, arguments.key):
        if path is not None and not path.is_file():
            raise CommandError(f"{path}: no such file", MISSING)
    if not _is_loopback(host) and arguments.certificate is None and not arguments.phone:
        raise CommandError(
            f"--listen {arguments.listen}: keys and notifications would be sent in the clear: "
            "give --certificate and --key",
            WRONG_USAGE,
        )
    return host, int(port)


def _read_plan(arguments: argparse.Namespace) -> PlanPicture | None:
    """Return the picture that --plan names, with the metres that it covers."""
    if arguments.plan is None:
        return None
    from denwatch.client.console.drawing import PlanPicture

    name, _, numbers = arguments.plan.rpartition("@")
    path = Path(name)
    try:
        west, south, east, north = (float(number) for number in numbers.split(","))
        is_area = west < east and south < north and isfinite(east - west + north - south)
    except ValueError:
        is_area = False
    if not is_area or path.suffix.lower() not in _PICTURES:
        words = (
            f"--plan {arguments.plan}: a PNG, JPEG or WebP file @WEST,SOUTH,EAST,NORTH in metres"
        )
        raise CommandError(words, WRONG_USAGE)
    if not path.is_file():
        raise CommandError(f"{path}: no such file", MISSING)
    return PlanPicture(path, _PICTURES[path.suffix.lower()], (west, south, east, north))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Serve the rescue console: subscribe in words and see what matches, in a browser."
    parser = common.build_parser("console", summary, _DESCRIPTION, _EXAMPLES)
    common.add_option(parser, "--as NAME", "the subscriber whose console it is", dest="name")
    add_link(parser)
    common.add_vocabulary(parser)
    common.add_option(
        parser,
        "--listen HOST:PORT",
        "address of the page; with port 0 the system chooses (127.0.0.1:8080; with --phone,"
        " 0.0.0.0:8443)",
    )
    common.add_option(
        parser,
        "--phone",
        "serve phones in this network: print an address and a QR code, hand out a certificate",
    )
    common.add_option(
        parser, "--certificate FILE", "certificate of the page, for https (PEM)", type=Path
    )
    common.add_option(parser, "--key FILE", "the certificate's key (PEM)", type=Path)
    common.add_option(
        parser, "--host-name NAME ...", "a further host name for browsers; may be repeated"
    )
    common.add_option(
        parser, "--store FOLDER", "folder for notifications (~/.local/share/denwatch/console)"
    )
    common.add_option(
        parser,
        "--plan FILE@AREA",
        "a picture for the plan, and the metres that it covers: west,south,east,north",
    )
    arguments = parser.parse_args(argv)
    is_open = arguments.node and not arguments.name and not arguments.profile
    return arguments if is_open else fill_login(arguments)
