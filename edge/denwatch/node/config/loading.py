"""Reads `node.toml`: from text to a checked `NodeConfig`, with messages that name key and line.

msgspec checks that every key is known and every value has its type; this file puts its findings
into words, with the line and what may have been meant. Then it checks what no single key can show,
such as TLS beyond this machine. `load_config` also checks the files that the configuration names; a
broker's password is read by both functions.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
from denwatch.node.config.model import (
    Broker,
    Document,
    HomeAssistantConfig,
    NodeConfig,
    NodeConfigError,
    PeerAddress,
    Replication,
    RoleSection,
    ServerAddress,
    Tls,
)
from denwatch.node.security.access import ROOT, Role, RoleTable, is_sharable, overlaps
from denwatch.node.security.credentials import SecurityError, check_name
from denwatch.node.security.site import read_secret_file

STRATEGIES = ("auto", "epidemic", "spray", "utility")
MAX_COPIES = 64
_ITEM_BYTES = 66_560  # of the longest item in a frame, and the frame itself
_OFF_LOOPBACK = (
    "reaches beyond this machine without TLS; write mqtts:// (`denwatch keys renew --address HOST` "
    "makes the certificate), or listen on 127.0.0.1"
)


def load_config(path: Path, broker_url: str = "") -> NodeConfig:
    """Return the configuration of a file; check that the files that it names are readable.

    `broker_url` replaces that of the file, whose login and authority stay.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise NodeConfigError("", error.strerror or "cannot be read", source=str(path)) from None
    except UnicodeDecodeError as error:
        raise NodeConfigError("", f"byte {error.start} is not UTF-8", source=str(path)) from None
    try:
        reader = _ConfigReader(text, path.resolve().parent, broker_url)
        config = reader.build()
        reader.check_files(config)
    except NodeConfigError as error:
        raise NodeConfigError(error.key, error.what, error.line, str(path)) from None
    return config


def parse_config(text: str, folder: Path) -> NodeConfig:
    """Return the configuration of a text, without checking certificates and vocabularies."""
    return _ConfigReader(text, folder).build()


class _ConfigReader:
    """Builds the configuration of one text."""

    def __init__(self, text: str, folder: Path, broker_url: str = "") -> None:
        self._text = text
        self._folder = folder
        self._document = parse_document(text)
        if broker_url:
            broker = msgspec.structs.replace(self._document.broker, url=broker_url)
            self._document = msgspec.structs.replace(self._document, broker=broker)

    def build(self) -> NodeConfig:
        """Return the configuration."""
        document = self._document
        self._check_name(document.name, ("name",))
        roles = self._read_roles()
        listen = self._read_listen()
        self._check_limits()
        return NodeConfig(
            name=document.name,
            folder=self._folder,
            data=self._folder / self._take(document.data, ("data",)),
            vocabulary=self._read_vocabulary(),
            organisation=document.organisation or None,
            listen=listen,
            tls=Tls(
                self._folder / self._take(document.tls.certificate, ("tls", "certificate")),
                self._folder / self._take(document.tls.key, ("tls", "key")),
                self._folder / self._take(document.tls.ca, ("tls", "ca")),
            ),
            anonymous_role=self._read_anonymous(listen, roles),
            shared=self._read_shared(),
            unshared=tuple(self._read_filters("unshared", self._document.access.unshared)),
            origins=self._read_origins(),
            peers=self._read_peers(),
            has_zeroconf=document.discovery.zeroconf,
            broker=self._read_broker(),
            replication=self._read_replication(),
            limits=document.limits,
            expiry=document.expiry,
            log=document.log,
            metrics=self._read_metrics(),
            status=document.status,
            home_assistant=self._read_home_assistant(roles),
            roles=roles,
        )

    def _fail(self, steps: Steps, what: str) -> NoReturn:
        raise locate(self._text, steps, what)

    def _take(self, value: str, steps: Steps) -> str:
        if not value.strip():
            self._fail(steps, "is empty")
        return value

    def _check_name(self, name: str, steps: Steps) -> None:
        try:
            check_name(name, "name")
        except SecurityError as error:
            self._fail(steps, str(error).removeprefix("name").lstrip(": "))

    def _read_address(self, found: ServerAddress | str, steps: Steps) -> ServerAddress:
        if isinstance(found, str):
            self._fail(steps, found)
        return found

    def _read_listen(self) -> tuple[ServerAddress, ...]:
        found: list[ServerAddress] = []
        for url in self._document.listen:
            address = self._read_address(read_url(url), ("listen",))
            if not address.has_tls and not is_loopback(address.host):
                self._fail(("listen",), f"{url} {_OFF_LOOPBACK}")
            if address.is_websocket and url.rstrip("/").rpartition(":")[2] != str(address.port):
                self._fail(("listen",), f"{url} has no port")
            here = (address.host, address.port)
            if address.port and any(here == (other.host, other.port) for other in found):
                self._fail(("listen",), f"{url} is listed twice")
            found.append(address)
        if not found and not self._document.broker.url:
            self._fail(
                ("listen",), "is empty and there is no broker, so nobody could reach the node"
            )
        return tuple(found)

    def _read_vocabulary(self) -> tuple[str, ...]:
        names = self._document.vocabulary
        if not names:
            self._fail(("vocabulary",), "at least one vocabulary is needed")
        # A name without ".toml" is a shipped one; paths are relative to the folder of node.toml.
        return tuple(
            str(self._folder / name)
            if name.endswith(".toml")
            else self._take(name, ("vocabulary",))
            for name in names
        )

    def _read_anonymous(
        self, listen: tuple[ServerAddress, ...], roles: dict[str, Role]
    ) -> str | None:
        access = self._document.access
        if not access.anonymous:
            return None
        for address in listen:
            if not is_loopback(address.host):
                self._fail(
                    ("access", "anonymous"),
                    f"clients without a name are allowed on this machine only, and {address.host} "
                    "reaches beyond it; set it to false",
                )
        if access.anonymous_role not in roles:
            self._fail(
                ("access", "anonymous_role"),
                f'there is no role "{access.anonymous_role}" in [roles]',
            )
        return access.anonymous_role

    def _read_shared(self) -> tuple[str, ...]:
        for pattern in self._read_filters("shared", self._document.access.shared):
            if not is_sharable(pattern):
                self._fail(("access", "shared"), f'"{pattern}" includes topics of {ROOT} or $SYS')
        return tuple(self._document.access.shared)

    def _read_filters(self, key: str, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            levels = pattern.split("/")
            if (
                not pattern
                or "#" in levels[:-1]
                or any(len(level) > 1 and ("+" in level or "#" in level) for level in levels)
            ):
                self._fail(("access", key), f'"{pattern}" is not a topic filter')
        return patterns

    def _read_origins(self) -> tuple[str, ...]:
        for origin in self._document.access.origins:
            if not _ORIGIN.fullmatch(origin):
                self._fail(
                    ("access", "origins"), f'"{origin}" is not https://HOST or http://HOST:PORT'
                )
        return tuple(self._document.access.origins)

    def _read_peers(self) -> tuple[PeerAddress, ...]:
        found: dict[str, PeerAddress] = {}
        for i, peer in enumerate(self._document.peers):
            self._check_name(peer.name, ("peers", i, "name"))
            if peer.name == self._document.name:
                self._fail(("peers", i, "name"), f"{peer.name} is this node itself")
            if peer.name in found:
                self._fail(("peers", i, "name"), f"{peer.name} is listed twice")
            address = self._read_remote(peer.url, ("peers", i, "url"))
            found[peer.name] = PeerAddress(peer.name, address)
        return tuple(found.values())

    def _read_remote(self, url: str, steps: Steps) -> ServerAddress:
        """Return the address of a server elsewhere: with TLS, or on this machine."""
        address = self._read_address(read_url(url), steps)
        if address.is_websocket:
            self._fail(steps, f"{url} is for browsers; write mqtt:// or mqtts://")
        if not address.port:
            self._fail(steps, "port 0 is not an address")
        if not address.has_tls and not is_loopback(address.host):
            self._fail(steps, f"{url} reaches beyond this machine without TLS; write mqtts://")
        return address

    def _read_broker(self) -> Broker | None:
        broker = self._document.broker
        if not broker.url:
            for key in ("user", "password_file", "ca"):
                if getattr(broker, key):
                    self._fail(("broker", key), "is set, but broker.url is empty")
            return None
        address = self._read_remote(broker.url, ("broker", "url"))
        if bool(broker.user) != bool(broker.password_file):
            self._fail(("broker",), "set both user and password_file, or neither")
        password = ""
        if broker.password_file:
            try:
                data = read_secret_file(self._folder / broker.password_file)
                password = data.decode().rstrip("\r\n")
            except (SecurityError, UnicodeDecodeError) as error:
                self._fail(("broker", "password_file"), str(error))
        ca = self._folder / broker.ca if broker.ca else None
        return Broker(address, broker.user, password, ca)

    def _read_replication(self) -> Replication:
        section = self._document.replication
        name, colon, number = section.strategy.partition(":")
        steps = ("replication", "strategy")
        if name not in STRATEGIES:
            near = difflib.get_close_matches(name, STRATEGIES, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            named = "auto, utility, utility:COPIES, spray:COPIES or epidemic"
            self._fail(steps, f'"{section.strategy}" is not {named}{hint}')
        copies = 0
        if name == "spray" or (name == "utility" and colon):
            if not number.isdecimal() or not 2 <= int(number) <= MAX_COPIES:
                self._fail(steps, f"{name} needs 2 to {MAX_COPIES} copies, such as {name}:6")
            copies = int(number)
        elif colon:
            self._fail(steps, f"{name} takes no number")
        return Replication(name, copies, section.chunk_bytes, section.follow_plan)

    def _check_limits(self) -> None:
        limits = self._document.limits
        if limits.packet_bytes < self._document.replication.chunk_bytes + _ITEM_BYTES:
            self._fail(("limits", "packet_bytes"), "is less than a peer's frame may have")
        if limits.connect_bytes > limits.packet_bytes:
            self._fail(("limits", "connect_bytes"), "is more than packet_bytes")
        if limits.buffer_bytes > limits.buffer_limit_bytes:
            self._fail(("limits", "buffer_limit_bytes"), "is less than buffer_bytes")
        if limits.packet_bytes > limits.queue_bytes:
            self._fail(
                ("limits", "queue_bytes"),
                "is less than packet_bytes: the queue could not hold one packet",
            )
        if limits.queue_bytes > limits.total_queue_bytes:
            self._fail(("limits", "total_queue_bytes"), "is less than one client's queue_bytes")

    def _read_metrics(self) -> ServerAddress | None:
        text = self._document.metrics.address
        if not text:
            return None
        address = self._read_address(read_address(text), ("metrics", "address"))
        if not is_loopback(address.host):
            self._fail(
                ("metrics", "address"),
                f"{address.host} reaches beyond this machine, and metrics have no password; "
                "listen on 127.0.0.1 behind a proxy or tunnel that has one",
            )
        return address

    def _read_home_assistant(self, roles: dict[str, Role]) -> HomeAssistantConfig | None:
        home = self._document.home_assistant
        prefix = self._take(home.prefix, ("home_assistant", "prefix"))
        if any(sign in prefix for sign in "+#$") or overlaps(f"{prefix}/#", f"{ROOT}#"):
            self._fail(
                ("home_assistant", "prefix"), f'"{prefix}" is not a topic outside {ROOT} and $SYS'
            )
        if home.user:
            self._check_name(home.user, ("home_assistant", "user"))
        if home.role and home.role not in roles:
            self._fail(("home_assistant", "role"), f'there is no role "{home.role}" in [roles]')
        if not home.enabled:
            return None
        seen = (home.role,) if home.role else tuple(roles)
        return HomeAssistantConfig(prefix, home.user, seen, home.expire_after_seconds)

    def _read_roles(self) -> dict[str, Role]:
        roles = {}
        for name, section in self._document.roles.items():
            self._check_name(name, ("roles", name))
            role = Role(tuple(section.events), tuple(section.attributes), tuple(section.deny))
            try:
                RoleTable({name: role})
            except SecurityError as error:
                place, _, what = str(error).partition(": ")
                self._fail(("roles", name, place.rpartition(".")[2]), what)
            roles[name] = role
        return roles

    # Files --------------------------------------------------------------------------------------

    def check_files(self, config: NodeConfig) -> None:
        """Fail at start-up if a configured file is missing."""
        from denwatch.client.vocabulary.loading import SHIPPED

        for name in config.vocabulary:
            if not name.endswith(".toml") and name not in SHIPPED:
                known = ", ".join(SHIPPED)
                self._fail(("vocabulary",), f'"{name}" is unknown; use {known} or a .toml file')
            if name.endswith(".toml") and not Path(name).is_file():
                self._fail(("vocabulary",), f"{name} does not exist")
        needed: list[tuple[Steps, Path]] = []
        if any(address.has_tls for address in config.listen) and config.broker is None:
            needed += [
                (("tls", "certificate"), config.tls.certificate),
                (("tls", "key"), config.tls.key),
            ]
        if any(peer.address.has_tls for peer in config.peers):
            needed.append((("tls", "ca"), config.tls.ca))
        if config.broker is not None and config.broker.ca is not None:
            needed.append((("broker", "ca"), config.broker.ca))
        for steps, path in needed:
            if not path.is_file():
                self._fail(
                    steps, f"{path} does not exist; `denwatch keys renew` makes certificates"
                )
        if any(steps == ("tls", "key") for steps, _ in needed):
            try:
                read_secret_file(config.tls.key)
            except SecurityError as error:
                self._fail(("tls", "key"), str(error))


# From TOML to a `Document` -------------------------------------------------------------------

_MESSAGE = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `([a-z]+)`(?:, got `([a-z]+)`| ([<>]=) ([0-9]+))")
_KINDS = {
    "int": "a whole number",
    "float": "a number with a fraction",
    "str": "a text in quotes",
    "bool": "true or false",
    "array": "a list in [ ]",
    "object": "a table",
}
_BOUNDS = {">=": "at least", "<=": "at most"}

_Section = TypeVar("_Section", bound=msgspec.Struct)
Steps = tuple[str | int, ...]


def parse_document(text: str) -> Document:
    """Return the document of a text; NodeConfigError otherwise."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line ([0-9]+)", str(error))
        line = int(found[1]) if found else len(text.splitlines())  # "at end of document"
        what = re.sub(r" \(at .*\)$", "", str(error))
        raise NodeConfigError("", f"not TOML: {what}", line) from None
    roles = raw.pop("roles", {})
    document = _convert(raw, Document, (), text)
    if not isinstance(roles, dict):
        raise locate(text, ("roles",), f"{_name_kind(roles)} instead of a table")
    # One by one: msgspec does not report which key of a dictionary was wrong.
    sections = {
        name: _convert(role, RoleSection, ("roles", name), text) for name, role in roles.items()
    }
    return msgspec.structs.replace(document, roles=sections)


def locate(text: str, steps: Steps, what: str) -> NodeConfigError:
    """Return the error of a key, with its line."""
    return NodeConfigError(write_steps(steps), what, find_line(text, steps))


def write_steps(steps: Steps) -> str:
    """Return a path as people write it: peers[2].url, counted from 1."""
    words = ""
    for step in steps:
        words += f"[{step + 1}]" if isinstance(step, int) else f".{step}" if words else step
    return words


def _convert(raw: Any, kind: type[_Section], start: Steps, text: str) -> _Section:
    try:
        return msgspec.convert(raw, kind, strict=True)
    except msgspec.ValidationError as error:
        found = _MESSAGE.fullmatch(str(error))
        assert found is not None  # it matches everything
        within: Steps = tuple(name or int(number) for name, number in _STEP.findall(found[2] or ""))
        steps, what = _explain(found[1], start + within, _find_section(kind, within))
        raise locate(text, steps, what) from None


def _explain(message: str, steps: Steps, section: type[msgspec.Struct] | None) -> tuple[Steps, str]:
    """Return the path of the mistake and a message for people."""
    if unknown := _UNKNOWN.fullmatch(message):
        known = list(section.__struct_fields__) if section else []
        if section is Document:
            known.append("roles")
        near = difflib.get_close_matches(unknown[1], known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known keys: {', '.join(known)}"
        return (*steps, unknown[1]), f"unknown key; {hint}"
    if missing := _MISSING.fullmatch(message):
        return (*steps, missing[1]), "is missing"
    expected = _EXPECTED.fullmatch(message)
    if expected is None:
        return steps, message
    kind, got, sign, bound = expected.groups()
    if got:
        return steps, f"{_KINDS.get(got, got)} instead of {_KINDS.get(kind, kind)}"
    return steps, f"{_BOUNDS[sign]} {int(bound):,} is allowed"


def _find_section(kind: type[msgspec.Struct], steps: Steps) -> type[msgspec.Struct] | None:
    """Return the struct that a path leads to."""
    section: Any = kind
    for step in steps:
        if isinstance(step, int):
            continue
        fields = {field.name: field.type for field in msgspec.structs.fields(section)}
        section = fields.get(step)
        arguments = getattr(section, "__args__", ())
        section = arguments[0] if arguments else section
        if not (isinstance(section, type) and issubclass(section, msgspec.Struct)):
            return None
    return section  # type: ignore[no-any-return]


def _name_kind(value: object) -> str:
    names = {int: "int", float: "float", str: "str", bool: "bool", list: "array"}
    return _KINDS.get(names.get(type(value), ""), "something")


# The line of a key: `tomllib` does not keep places -------------------------------------------


_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"^\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=")
_STRING = re.compile(r"'''|\"\"\"")


def find_line(text: str, path: Steps) -> int:
    """Return the number of the line, from 1, of a key; 0 if it is not found.

    Headers and keys at the start of lines are recognised, which is how `node.toml` is written. For
    anything else (a key inside an inline table) it is the line of the nearest table around it.
    """
    best_line, best_depth = 0, 0
    for line, found in _list_places(text):
        depth = _common(found, path)
        # The first line of the longest prefix: the key itself, or the table around it.
        if depth > best_depth and depth == len(found):
            best_line, best_depth = line, depth
    return best_line


def _list_places(text: str) -> list[tuple[int, list[str | int]]]:
    """Return every header and key with its line and whole path."""
    places: list[tuple[int, list[str | int]]] = []
    table: list[str | int] = []
    counts: dict[tuple[str, ...], int] = {}
    quote = ""
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            quote = "" if line.count(quote) % 2 else quote
            continue
        header = _HEADER.match(line)
        if header:
            names = _split(header[2])
            table = list(names)
            if header[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
                table = [*names, counts[names]]
            places.append((number, table))
            continue
        key = _KEY.match(line)
        if key:
            places.append((number, [*table, *_split(key[1])]))
            opened = _STRING.findall(line)
            quote = opened[0] if len(opened) % 2 else ""
    return places


def _split(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _common(found: Sequence[str | int], path: Steps) -> int:
    """Return how many steps two paths share from the start."""
    length = 0
    for one, other in zip(found, path, strict=False):
        if one != other:
            break
        length += 1
    return length


# Addresses -----------------------------------------------------------------------------------

_ORIGIN = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_URL = re.compile(r"(mqtts?|wss?)://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?/?")
_PLAIN_PORT, _TLS_PORT = 1883, 8883


def read_url(url: str) -> ServerAddress | str:
    """Return the address of a URL, or what is wrong with it."""
    found = _URL.fullmatch(url)
    if found is None:
        return f'"{url}" is not mqtt://HOST:PORT or mqtts://HOST:PORT, nor ws:// or wss://'
    has_tls = found[1] in ("mqtts", "wss")
    port = int(found[3]) if found[3] else (_TLS_PORT if has_tls else _PLAIN_PORT)
    if port > 65535:
        return f"port {port} does not exist"
    return ServerAddress(found[2].strip("[]"), port, has_tls, found[1].startswith("ws"))


def read_address(text: str) -> ServerAddress | str:
    """Return the address of HOST:PORT, or what is wrong with it."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        return f'"{text}" is not HOST:PORT'
    return ServerAddress(host.strip("[]"), int(port))


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host. Of names, only "localhost" counts."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
