"""Three nodes and the links between them, which a test cuts and heals.

Real interfaces where the machine allows it: a network namespace for each node and a veth pair for
each link. Elsewhere (no root, no `ip`) each link is a relay on the loopback. Either way links speak
TLS with the nodes' own certificates. The only file of the tests that calls `ip`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Protocol

from denwatch.node.runtime.links import list_addresses

from demo.bridges import Bridges
from simulator.site import Site, find_free_ports, wait_for
from tests.node.app import App
from tests.node.clients import Person

_PREFIX = "denwatch-"  # of the namespaces, then the process that made them, then the place
_PORT = 8883  # nobody else is in a namespace
_PEOPLE = "people"  # the interface of a namespace towards this process


class Links(Protocol):
    """A network of places, and of people who reach each of them."""

    kind: str

    def listen(self, place: str) -> str:
        """Return where the server of a place listens."""

    def list_addresses(self, place: str) -> list[str]:
        """Return the addresses by which others reach a place."""

    def find_url(self, place: str, caller: str | None = None) -> str:
        """Return where a place is reached from another; from here if that is None."""

    def find_own_address(self, place: str) -> str:
        """Return the address of this process, as a place sees it."""

    def find_prefix(self, place: str) -> tuple[str, ...]:
        """Return what goes before a command that shall run in a place."""

    def cut(self, one: str, other: str) -> None:
        """Break a link."""

    def heal(self, one: str, other: str) -> None:
        """Mend a link."""

    def close(self) -> None:
        """Take everything down."""


class Namespaces:
    """A network namespace for each place, and a pair of interfaces for each link."""

    kind = "namespaces"

    def __init__(self, places: Sequence[str]) -> None:
        _remove_stale()
        self._names = {place: f"{_PREFIX}{os.getpid()}-{place}" for place in places}
        self._addresses: dict[tuple[str, str], str] = {}  # (place, whom it faces): its address
        self._net = _find_free_net()
        self._blocks = iter(range(0, 256, 4))
        try:
            for place in places:
                self._add_place(place, f"dw{os.getpid()}-{places.index(place)}")
            for one, other in combinations(places, 2):
                self._add_link(one, other)
        except BaseException:
            self.close()
            raise

    def _add_place(self, place: str, here: str) -> None:
        """Make a namespace, and an interface `here` for those who go there."""
        name = self._names[place]
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("link", "add", here, "type", "veth", "peer", "name", _PEOPLE, "netns", name)
        ours, self._addresses[place, _PEOPLE] = self._draw_addresses()
        self._addresses[_PEOPLE, place] = ours
        _ip("addr", "add", f"{ours}/30", "dev", here)
        _ip("link", "set", here, "up")
        self._raise_interface(place, _PEOPLE, _PEOPLE)

    def _add_link(self, one: str, other: str) -> None:
        near, far = self._names[one], self._names[other]
        veth = ("type", "veth", "peer", "name", f"to-{one}", "netns", far)
        _ip("-n", near, "link", "add", f"to-{other}", *veth)
        self._addresses[one, other], self._addresses[other, one] = self._draw_addresses()
        self._raise_interface(one, f"to-{other}", other)
        self._raise_interface(other, f"to-{one}", one)

    def _raise_interface(self, place: str, interface: str, faced: str) -> None:
        name, address = self._names[place], self._addresses[place, faced]
        _ip("-n", name, "addr", "add", f"{address}/30", "dev", interface)
        _ip("-n", name, "link", "set", interface, "up")

    def _draw_addresses(self) -> tuple[str, str]:
        """Return the two addresses of one more link."""
        block = next(self._blocks)
        return f"{self._net}.{block + 1}", f"{self._net}.{block + 2}"

    def listen(self, place: str) -> str:  # noqa: ARG002 - a namespace has ports of its own
        return f"mqtts://0.0.0.0:{_PORT}"

    def list_addresses(self, place: str) -> list[str]:
        return [address for (where, _), address in self._addresses.items() if where == place]

    def find_url(self, place: str, caller: str | None = None) -> str:
        return f"mqtts://{self._addresses[place, caller or _PEOPLE]}:{_PORT}"

    def find_own_address(self, place: str) -> str:
        return self._addresses[_PEOPLE, place]

    def find_prefix(self, place: str) -> tuple[str, ...]:
        return "ip", "netns", "exec", self._names[place]

    def cut(self, one: str, other: str) -> None:
        _ip("-n", self._names[one], "link", "set", f"to-{other}", "down")

    def heal(self, one: str, other: str) -> None:
        _ip("-n", self._names[one], "link", "set", f"to-{other}", "up")

    def close(self) -> None:
        for name in self._names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Relays:
    """A relay on the loopback for each link; who comes later in the list calls."""

    kind = "relays"

    def __init__(self, places: Sequence[str]) -> None:
        pairs = [*combinations(places, 2)]
        ports = iter(find_free_ports(len(places) + len(pairs)))
        self._ports = {place: next(ports) for place in places}
        self._bridges = Bridges()
        self._relays: dict[tuple[str, str], int] = {}
        for called, caller in pairs:
            self._relays[called, caller] = next(ports)
            self._bridges.add(
                f"{called}-{caller}", self._relays[called, caller], self._ports[called]
            )

    def listen(self, place: str) -> str:
        return self.find_url(place)

    def list_addresses(self, place: str) -> list[str]:  # noqa: ARG002 - the loopback is in any case
        return []

    def find_url(self, place: str, caller: str | None = None) -> str:
        port = self._ports[place] if caller is None else self._relays[place, caller]
        return f"mqtts://127.0.0.1:{port}"

    def find_own_address(self, place: str) -> str:  # noqa: ARG002 - it is one machine
        return list_addresses()[0]

    def find_prefix(self, place: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def cut(self, one: str, other: str) -> None:
        self._bridges.cut(f"{one}-{other}")

    def heal(self, one: str, other: str) -> None:
        self._bridges.heal(f"{one}-{other}")

    def close(self) -> None:
        self._bridges.close()


def open_links(places: Sequence[str], has_relays: bool = False) -> tuple[Links, str]:
    """Return a network, and why it is not one of namespaces; "" if it is."""
    if has_relays:
        return Relays(places), "relays were asked for"
    if shutil.which("ip") is None:
        return Relays(places), "there is no `ip` here"
    try:
        return Namespaces(places), ""
    except subprocess.CalledProcessError as error:
        return Relays(places), f"no network namespaces here: {error.stderr.strip()}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _find_free_net() -> str:
    """Return the beginning of addresses that nobody has here, in the range for network tests."""
    listed = subprocess.run(["ip", "-4", "addr"], check=True, capture_output=True, text=True)
    nets = (f"198.18.{(os.getpid() + k) % 256}" for k in range(256))
    return next(net for net in nets if f" {net}." not in listed.stdout)


def _remove_stale() -> None:
    """Remove namespaces of a process that was killed before it could."""
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        name = line.partition(" ")[0]
        owner = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and not Path(f"/proc/{owner}").exists():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class LinkedSite(Site):
    """A node in each place, all of them peers of each other."""

    def __init__(self, folder: Path, places: Sequence[str], *, has_relays: bool = False) -> None:
        super().__init__(folder)
        self.links, self.excuse = open_links(places, has_relays)
        for place in places:
            self._make_node(place)

    def _make_node(self, place: str) -> None:
        """Found the site, or join it and call everybody who was there before."""
        links, before = self.links, [*self.nodes]
        peers = [f"--peer={other}={links.find_url(other, place)}" for other in before[1:]]
        self.add_node(
            place,
            *peers,
            url=links.listen(place),
            via=links.find_url(before[0], place) if before else None,
            addresses=links.list_addresses(place),
            prefix=links.find_prefix(place),
        )

    @property
    def ca(self) -> Path:
        return self.first.folder / "tls" / "ca.pem"

    def add_people(self, *names: str) -> None:
        """Register subscribers at the first node, for all nodes."""
        for name in names:
            self.add_subscriber(name)

    def add_watchdog(self, name: str, place: str) -> dict[str, object]:
        """Register a device at a node; return its part of watchdog.json, for that node alone."""
        device = self.nodes[place].add_device(name)
        entry = {**device["nodes"][0], "url": self.links.find_url(place)}
        return {"device": name, "nodes": [{**entry, "ca": str(self.ca.with_suffix(".der"))}]}

    def person(self, name: str, place: str, past: Iterable[int] = ()) -> Person:
        """Return somebody with the subscriber library, at a node."""
        url = self.links.find_url(place)
        return Person(name, self.passwords[name], url, self.folder, self.ca, past)

    def app(self, name: str, place: str) -> App:
        """Return a plain client at a node, once the node knows the name."""

        def connect() -> App | None:
            host, port = self.links.find_url(place).removeprefix("mqtts://").split(":")
            self.nodes[place].check_running()
            app = App(
                int(port),
                name,
                self.passwords[name],
                client_id=f"plain-{name}-{place}",
                ca=str(self.ca),
                host=host,
            ).wait()
            if not app.refused:
                return app
            app.close()
            return None

        found: App = wait_for(f"{place} to know {name}", connect)
        return found

    def close(self) -> None:
        """End all nodes, and the network."""
        try:
            self.kill()
        finally:
            self.links.close()
