"""`denwatch login`, `denwatch profile`: who you are and which nodes you use, remembered.

A profile is a name, the nodes' addresses, the authority to trust, and a password in a file of its
own that only its owner can read. `fill_login` puts the profile's values where a command line gives
none: what is on the command line goes first, then DENWATCH_PASSWORD, then the profile. Only this
file reads and writes profiles.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from denwatch.cli import common
from denwatch.cli.errors import MISSING, WRONG_USAGE, CommandError

DEFAULT_NODE = "mqtt://127.0.0.1:1883"
_LOGIN_DESCRIPTION = """
Asks for the password (or reads it from a file or a pipe), checks it at a node, and remembers who
you are in a profile: afterwards `denwatch subscribe`, `status`, `find`, `publish` and `console`
need no --as, --node, --password-file, --ca or --store. The last login is the current profile; --as
NAME, or --profile NAME, uses another one. The password is in a file that only you can read."""
_LOGIN_EXAMPLES = """
denwatch login medic7
denwatch login medic7 --node mqtts://tent:8883 --node mqtts://truck:8883 --ca site.pem
denwatch login medic7 --password-file medic7.key --profile night-shift"""
_PROFILE_DESCRIPTION = """
A profile is what `denwatch login` remembers: a name, nodes, the authority to trust, a password. The
current one is used by every command that talks to a node; DENWATCH_PROFILE names another one for
one shell."""
_PROFILE_EXAMPLES = """
denwatch profile list
denwatch profile use night-shift
denwatch profile show --json
denwatch profile remove medic7"""


def find_config_home() -> Path:
    """Return the folder in which denwatch keeps this user's settings."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "denwatch"


class Profiles:
    """The profiles of this user: `profiles.json`, and a password file for each."""

    def __init__(self) -> None:
        self.folder = find_config_home()
        self.file = self.folder / "profiles.json"
        self.current: str | None = None
        self.entries: dict[str, dict[str, Any]] = {}
        if self.file.exists():
            self._load()

    def _load(self) -> None:
        try:
            found = json.loads(common.read_file(self.file))
            self.current, self.entries = found["current"], dict(found["profiles"])
            for entry in self.entries.values():
                if not isinstance(entry["as"], str) or not isinstance(entry["nodes"], list):
                    raise TypeError("a profile has a name and nodes")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            words = f"{self.file}: no list of profiles ({error}): remove it, and log in again"
            raise CommandError(words) from None

    def save(self) -> None:
        """Write the list of profiles."""
        document = {"current": self.current, "profiles": self.entries}
        text = json.dumps(document, indent=2, ensure_ascii=False)
        _write_private(self.file, f"{text}\n")

    def name_password(self, name: str) -> Path:
        """Return where the password of a profile is."""
        return self.folder / f"{name}.key"

    def add(self, name: str, entry: dict[str, Any], password: str) -> None:
        """Remember a login, and make it the current profile."""
        common.make_folder(self.folder, 0o700)
        _write_private(self.name_password(name), f"{password}\n")
        if entry.get("ca"):  # a copy: the file may have been on a stick
            with common.reach(Path(entry["ca"])):
                shutil.copyfile(entry["ca"], self.folder / f"{name}.pem")
            entry = {**entry, "ca": str(self.folder / f"{name}.pem")}
        self.entries[name], self.current = entry, name
        self.save()

    def remove(self, name: str) -> None:
        """Forget a profile, and its password."""
        self.find(name)
        del self.entries[name]
        for path in (self.name_password(name), self.folder / f"{name}.pem"):
            path.unlink(missing_ok=True)
        self.current = None if self.current == name else self.current
        self.save()

    def find(self, name: str) -> dict[str, Any]:
        """Return the profile of that name."""
        if name not in self.entries:
            known = ", ".join(sorted(self.entries)) or "none"
            raise CommandError(f'no profile "{name}"; there is: {known}', MISSING)
        return self.entries[name]


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read: whole, or not at all."""
    with common.reach(path):
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        beside.replace(path)


# What commands get of it --------------------------------------------------------------------


def add_profile(parser: argparse._ActionsContainer) -> None:
    """Add the option that chooses a profile."""
    common.add_option(parser, "--profile NAME", "whose login to use (the last; see `profile`)")


def fill_login(arguments: argparse.Namespace) -> argparse.Namespace:
    """Put the profile's login where the command line says nothing; see the head of this file."""
    arguments.spelled_login = _spell_login(arguments)
    profiles = Profiles()
    name = arguments.profile or os.environ.get("DENWATCH_PROFILE")
    if name is None and arguments.name is None:
        name = profiles.current
    elif name is None:  # by its own name, or by the name of the person
        named = [key for key, entry in profiles.entries.items() if entry["as"] == arguments.name]
        name = arguments.name if arguments.name in named else next(iter(named), None)
    if name is None:
        return arguments
    entry = profiles.find(name)
    if arguments.name not in (None, entry["as"]):
        words = f"--as {arguments.name}: the profile {name} is of {entry['as']}"
        raise CommandError(words, WRONG_USAGE)
    arguments.name = entry["as"]
    if not arguments.password_file and not os.environ.get("DENWATCH_PASSWORD"):
        arguments.password_file = str(profiles.name_password(name))
    if not arguments.node:
        nodes = list(entry["nodes"])
        arguments.node = nodes if isinstance(arguments.node, list) else nodes[0]
        arguments.insecure = arguments.insecure or bool(entry.get("insecure"))
    arguments.ca = arguments.ca or entry.get("ca")
    if name != entry["as"] and getattr(arguments, "store", "") is None:
        arguments.store = str(common.find_data_home() / f"{name}.db")  # another site, perhaps
    return arguments


def _spell_login(arguments: argparse.Namespace) -> list[str]:
    """Return the login's part of the command line, for hints that can be pasted."""
    words: list[str] = []
    for option, key in (
        *(("--as", "name"), ("--node", "node"), ("--password-file", "password_file")),
        *(("--ca", "ca"), ("--store", "store"), ("--profile", "profile")),
    ):
        value = getattr(arguments, key, None)
        for each in value if isinstance(value, list) else [value] if value else []:
            words += [option, str(each)]
    return [*words, "--insecure"] if arguments.insecure else words


def refuse_nameless(arguments: argparse.Namespace) -> None:
    """Report a command line that does not say who you are."""
    if arguments.name is None:
        raise CommandError("who are you? `denwatch login NAME`, or --as NAME", WRONG_USAGE)


# `denwatch login` ---------------------------------------------------------------------------


def run_login(argv: list[str]) -> int:
    """Check a password at a node, and remember it."""
    arguments = _parse_login(argv)
    password = _read_password(arguments)
    profile = arguments.profile_name or arguments.person
    if not re.fullmatch(r"\w[\w.-]{0,63}", profile):
        raise CommandError(f'"{profile}" is no name for a profile: letters, digits, - _ .')
    entry = {"as": arguments.person, "nodes": arguments.node or [DEFAULT_NODE]}
    if arguments.ca:
        entry["ca"] = arguments.ca
    if arguments.insecure:
        entry["insecure"] = True
    answered = "" if arguments.offline else _check_login(arguments, entry, password)
    profiles = Profiles()
    profiles.add(profile, entry, password)
    document = {"ok": True, "profile": profile, **entry, "checked_at": answered or None}
    where = f"{answered} accepts it" if answered else "not checked: no node was asked"
    print(
        json.dumps(document, ensure_ascii=False)
        if arguments.json
        else f"logged in as {arguments.person} (profile {profile}); {where}"
    )
    return 0


def _read_password(arguments: argparse.Namespace) -> str:
    if arguments.password_file:
        password = common.read_file(Path(arguments.password_file)).strip()
    elif os.environ.get("DENWATCH_PASSWORD"):
        password = os.environ["DENWATCH_PASSWORD"]
    elif sys.stdin.isatty():
        password = getpass.getpass(f"password of {arguments.person}: ").strip()
    else:
        password = sys.stdin.readline().strip()
    if not password:
        raise CommandError("no password: type it, pipe it, or give --password-file", WRONG_USAGE)
    return password


def _check_login(arguments: argparse.Namespace, entry: dict[str, Any], password: str) -> str:
    """Return the first of the nodes that accepts name and password."""
    from denwatch.client.subscriber import LoginRefusedError, SubscriberError
    from denwatch.client.subscriber.link import Identity, exchange_requests

    tls = Path(arguments.ca) if arguments.ca else None
    identity = Identity(arguments.person, password, tls, arguments.insecure)
    faults = []
    for server in entry["nodes"]:
        try:
            exchange_requests(server, identity, "sub", [{"explain": "login"}], arguments.timeout)
        except LoginRefusedError as error:
            raise CommandError(str(error)) from None
        except SubscriberError as error:
            faults.append(str(error))
        else:
            return str(server)
    raise CommandError(f"{'; '.join(faults)} (--offline remembers it unchecked)", MISSING)


def _parse_login(argv: list[str]) -> argparse.Namespace:
    summary = "Log in once: check a password, and remember it in a profile."
    parser = common.build_parser("login", summary, _LOGIN_DESCRIPTION, _LOGIN_EXAMPLES)
    parser.add_argument("person", metavar="NAME", help="who you are")
    words = f"mqtt://HOST[:PORT] or mqtts://…; may be repeated ({DEFAULT_NODE})"
    common.add_option(parser, "--node URL ...", words)
    common.add_option(parser, "--password-file FILE", "file with the password (or a pipe)")
    common.add_option(parser, "--ca FILE", "authority to trust (the system's)")
    common.add_option(parser, "--insecure", "allow the password in the clear to another machine")
    words = "call the profile otherwise (NAME)"
    common.add_option(parser, "--profile PROFILE", words, dest="profile_name")
    common.add_option(parser, "--offline", "remember it without asking a node")
    common.add_option(
        parser, "--timeout SECONDS", "how long to wait for a node (15)", type=float, default=15.0
    )
    common.add_option(parser, "--json", "one JSON object")
    return parser.parse_args(argv)


# `denwatch profile` -------------------------------------------------------------------------


def run_profile(argv: list[str]) -> int:
    """List, show, use or remove profiles."""
    arguments = _parse_profile(argv)
    for line in arguments.action(Profiles(), arguments):
        print(line)
    return 0


def _list(profiles: Profiles, arguments: argparse.Namespace) -> Iterator[str]:
    documents = [
        {"profile": name, "current": name == profiles.current, **entry}
        for name, entry in sorted(profiles.entries.items())
    ]
    if arguments.json:
        yield json.dumps(documents, ensure_ascii=False)
    elif not documents:
        yield "no profiles yet: denwatch login NAME"
    else:
        rows = [["", "profile", "as", "nodes"]]
        for found in documents:
            mark = "*" if found["current"] else ""
            rows.append([mark, found["profile"], found["as"], ", ".join(found["nodes"])])
        yield from common.format_table(rows)


def _show(profiles: Profiles, arguments: argparse.Namespace) -> Iterator[str]:
    name = arguments.which or profiles.current
    if name is None:
        raise CommandError("no current profile: `denwatch login NAME`", MISSING)
    entry = {"profile": name, **profiles.find(name)}
    entry["password_file"] = str(profiles.name_password(name))
    if arguments.json:
        yield json.dumps(entry, ensure_ascii=False)
    else:
        for key, value in entry.items():
            yield f"{key:<14}{', '.join(value) if isinstance(value, list) else value}"


def _use(profiles: Profiles, arguments: argparse.Namespace) -> Iterator[str]:
    profiles.find(arguments.which)
    profiles.current = arguments.which
    profiles.save()
    yield f"{arguments.which} is the current profile"


def _remove(profiles: Profiles, arguments: argparse.Namespace) -> Iterator[str]:
    profiles.remove(arguments.which)
    yield f"{arguments.which} is forgotten, and its password"


def _parse_profile(argv: list[str]) -> argparse.Namespace:
    summary = "List, show, use and remove what `denwatch login` remembers."
    parser = common.build_parser("profile", summary, _PROFILE_DESCRIPTION, _PROFILE_EXAMPLES)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, action, words in (
        ("list", _list, "all profiles; * marks the current one"),
        ("show", _show, "one profile (the current one)"),
        ("use", _use, "make a profile the current one"),
        ("remove", _remove, "forget a profile, and its password"),
    ):
        made = actions.add_parser(name, help=words, description=words)
        made.set_defaults(action=action)
        if action in (_list, _show):
            common.add_option(made, "--json", "as JSON")
        if action is not _list:
            count = "?" if action is _show else None
            made.add_argument("which", metavar="PROFILE", nargs=count, help="the profile's name")
    return parser.parse_args(argv)
