"""`node.toml` to a `NodeConfig`: what no single key can tell, such as TLS off the loopback.

`load_config` also looks at the files that it names; a broker's password is read by both functions.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import NoReturn

from denwatch.node.config.addresses import is_loopback, read_address, read_url
from denwatch.node.config.errors import ConfigError
from denwatch.node.config.model import (
    Address,
    Broker,
    HomeAssistant,
    NodeConfig,
    Peer,
    Replication,
    Tls,
)
from denwatch.node.config.parsing import Steps, locate, parse_document
from denwatch.node.security.errors import SecurityError
from denwatch.node.security.files import read_secret_file
from denwatch.node.security.names import check_name
from denwatch.node.security.roles import Role, Roles
from denwatch.node.security.topics import ROOT, overlaps

STRATEGIES = ("auto", "epidemic", "spray", "utility")
MAX_COPIES = 64
_OFF_LOOPBACK = (
    "reaches beyond this machine without TLS; write mqtts:// (`denwatch keys renew --address HOST` "
    "makes the certificate), or listen on 127.0.0.1"
)


def load_config(path: Path) -> NodeConfig:
    """Return the configuration of a file, with all files that it names there and readable."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("", error.strerror or "cannot be read", source=str(path)) from None
    except UnicodeDecodeError as error:
        raise ConfigError("", f"byte {error.start} is not UTF-8", source=str(path)) from None
    try:
        reader = _Reader(text, path.resolve().parent)
        config = reader.build()
        reader.check_files(config)
    except ConfigError as error:
        raise ConfigError(error.key, error.what, error.line, str(path)) from None
    return config


def parse_config(text: str, folder: Path) -> NodeConfig:
    """Return the configuration of a text, without a look at certificates and vocabularies."""
    return _Reader(text, folder).build()


class _Reader:
    """One text, and what it says."""

    def __init__(self, text: str, folder: Path) -> None:
        self._text = text
        self._folder = folder
        self._document = parse_document(text)

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

    def _read_address(self, found: Address | str, steps: Steps) -> Address:
        if isinstance(found, str):
            self._fail(steps, found)
        return found

    def _read_listen(self) -> tuple[Address, ...]:
        found: list[Address] = []
        for url in self._document.listen:
            address = self._read_address(read_url(url), ("listen",))
            if not address.has_tls and not is_loopback(address.host):
                self._fail(("listen",), f"{url} {_OFF_LOOPBACK}")
            if address.port and any(_place(address) == _place(other) for other in found):
                self._fail(("listen",), f"{url} is there twice")
            found.append(address)
        if not found and not self._document.broker.url:
            self._fail(("listen",), "is empty, and there is no broker: nobody could reach the node")
        return tuple(found)

    def _read_vocabulary(self) -> tuple[str, ...]:
        names = self._document.vocabulary
        if not names:
            self._fail(("vocabulary",), "at least one vocabulary is needed")
        # A bare name is a shipped one; the path of a file counts from node.toml.
        return tuple(
            str(self._folder / name)
            if name.endswith(".toml")
            else self._take(name, ("vocabulary",))
            for name in names
        )

    def _read_anonymous(self, listen: tuple[Address, ...], roles: dict[str, Role]) -> str | None:
        access = self._document.access
        if not access.anonymous:
            return None
        for address in listen:
            if not is_loopback(address.host):
                self._fail(
                    ("access", "anonymous"),
                    f"clients without a name are let in on this machine only, and {address.host} "
                    "reaches beyond it; set it to false",
                )
        if access.anonymous_role not in roles:
            self._fail(
                ("access", "anonymous_role"),
                f'there is no role "{access.anonymous_role}" in [roles]',
            )
        return access.anonymous_role

    def _read_shared(self) -> tuple[str, ...]:
        for pattern in self._document.access.shared:
            levels = pattern.split("/")
            if (
                not pattern
                or "#" in levels[:-1]
                or any(len(level) > 1 and ("+" in level or "#" in level) for level in levels)
            ):
                self._fail(("access", "shared"), f'"{pattern}" is no topic filter')
            if overlaps(pattern, f"{ROOT}#") or pattern.startswith("$"):
                self._fail(("access", "shared"), f'"{pattern}" reaches into {ROOT} or $SYS')
        return tuple(self._document.access.shared)

    def _read_peers(self) -> tuple[Peer, ...]:
        found: dict[str, Peer] = {}
        for i, peer in enumerate(self._document.peers):
            self._check_name(peer.name, ("peers", i, "name"))
            if peer.name == self._document.name:
                self._fail(("peers", i, "name"), f"{peer.name} is this node itself")
            if peer.name in found:
                self._fail(("peers", i, "name"), f"{peer.name} is there twice")
            address = self._read_remote(peer.url, ("peers", i, "url"))
            found[peer.name] = Peer(peer.name, address)
        return tuple(found.values())

    def _read_remote(self, url: str, steps: Steps) -> Address:
        """Return the address of a server elsewhere: with TLS, or on this machine."""
        address = self._read_address(read_url(url), steps)
        if not address.port:
            self._fail(steps, "there is no port 0")
        if not address.has_tls and not is_loopback(address.host):
            self._fail(steps, f"{url} is without TLS and beyond this machine; write mqtts://")
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
            self._fail(("broker",), "user and password_file: both or none")
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
        if limits.packet_bytes > limits.queue_bytes:
            self._fail(("limits", "queue_bytes"), "is less than packet_bytes: one could not wait")
        if limits.queue_bytes > limits.total_queue_bytes:
            self._fail(("limits", "total_queue_bytes"), "is less than one client's queue_bytes")

    def _read_metrics(self) -> Address | None:
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

    def _read_home_assistant(self, roles: dict[str, Role]) -> HomeAssistant | None:
        home = self._document.home_assistant
        prefix = self._take(home.prefix, ("home_assistant", "prefix"))
        if any(sign in prefix for sign in "+#$") or overlaps(f"{prefix}/#", f"{ROOT}#"):
            self._fail(
                ("home_assistant", "prefix"), f'"{prefix}" is no topic, or is {ROOT} or $SYS'
            )
        if home.user:
            self._check_name(home.user, ("home_assistant", "user"))
        if home.role and home.role not in roles:
            self._fail(("home_assistant", "role"), f'there is no role "{home.role}" in [roles]')
        if not home.enabled:
            return None
        seen = (home.role,) if home.role else tuple(roles)
        return HomeAssistant(prefix, home.user, seen, home.expire_after_seconds)

    def _read_roles(self) -> dict[str, Role]:
        roles = {}
        for name, section in self._document.roles.items():
            self._check_name(name, ("roles", name))
            role = Role(tuple(section.events), tuple(section.attributes), tuple(section.deny))
            try:
                Roles({name: role})
            except SecurityError as error:
                place, _, what = str(error).partition(": ")
                self._fail(("roles", name, place.rpartition(".")[2]), what)
            roles[name] = role
        return roles

    # Files --------------------------------------------------------------------------------------

    def check_files(self, config: NodeConfig) -> None:
        """Refuse a file that is named and not there, while somebody is there to read it."""
        from denwatch.client.vocabulary.loading import SHIPPED

        for name in config.vocabulary:
            if not name.endswith(".toml") and name not in SHIPPED:
                known = ", ".join(SHIPPED)
                self._fail(("vocabulary",), f'"{name}": shipped are {known}; or name a .toml file')
            if name.endswith(".toml") and not Path(name).is_file():
                self._fail(("vocabulary",), f"{name} is not there")
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
                self._fail(steps, f"{path} is not there; `denwatch keys renew` makes certificates")
        if any(steps == ("tls", "key") for steps, _ in needed):
            try:
                read_secret_file(config.tls.key)
            except SecurityError as error:
                self._fail(("tls", "key"), str(error))


def _place(address: Address) -> tuple[str, int]:
    return address.host, address.port
