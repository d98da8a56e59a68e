"""Three nodes and the links between them, which a test cuts and heals.

Real interfaces where the machine allows it: a network namespace for each node and a veth pair for
each link. Elsewhere (no root, no `ip`) each link is a relay on the loopback. Either way links speak
TLS with the nodes' own certificates. The only file of the tests that calls `ip`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Protocol

from demo.bridges import Bridges
from demo.site import call, find_free_ports
from tests.node.app import App
from tests.node.hosting import HostedNode, Person, wait_for

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

    def find_prefix(self, place: str) -> tuple[str, ...]:
        """Return what goes before a command that shall run in a place."""

    def cut(self, one: str, other: str) -> None:
        """Break a link."""

    def heal(self, one: str, other: str) -> None:
        """Mend a link."""

    def close(self) -> None:
        """Take everything down."""


class Namespaces:
    """A network namespace for each place; `has_shared` adds one wire on which all of them are."""

    kind = "namespaces"

    def __init__(self, places: Sequence[str], *, has_wire: bool = False) -> None:
        _remove_stale()
        self._names = {place: f"{_PREFIX}{os.getpid()}-{place}" for place in places}
        self._net = f"198.18.{os.getpid() % 256}"  # of the range that is for tests of networks
        self._addresses: dict[tuple[str, str], str] = {}  # (place, whom it faces): its address
        try:
            self._build(places, has_wire)
        except BaseException:
            self.close()
            raise

    def _build(self, places: Sequence[str], has_wire: bool) -> None:
        for place, name in self._names.items():
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
            here = f"dw{os.getpid()}-{places.index(place)}"
            _ip("link", "add", here, "type", "veth", "peer", "name", _PEOPLE, "netns", name)
            ours, theirs = self._draw_addresses()
            self._addresses[place, _PEOPLE] = theirs
            _ip("addr", "add", f"{ours}/30", "dev", here)
            _ip("link", "set", here, "up")
            self._raise_interface(place, _PEOPLE, f"{theirs}/30")
        for one, other in combinations(places, 2):
            ends = (self._names[one], f"to-{other}"), (self._names[other], f"to-{one}")
            veth = ("type", "veth", "peer", "name", ends[1][1], "netns", ends[1][0])
            _ip("-n", ends[0][0], "link", "add", ends[0][1], *veth)
            self._addresses[one, other], self._addresses[other, one] = self._draw_addresses()
            for place, faced in ((one, other), (other, one)):
                self._raise_interface(place, f"to-{faced}", f"{self._addresses[place, faced]}/30")

    def _raise_interface(self, place: str, interface: str, address: str) -> None:
        name = self._names[place]
        _ip("-n", name, "addr", "add", address, "dev", interface)
        _ip("-n", name, "link", "set", interface, "up")

    def _draw_addresses(self) -> tuple[str, str]:
        """Return the two addresses of one more link."""
        self._drawn = getattr(self, "_drawn", 0) + 4
        return f"{self._net}.{self._drawn - 3}", f"{self._net}.{self._drawn - 2}"

    def listen(self, place: str) -> str:  # noqa: ARG002 - a namespace has ports of its own
        return f"mqtts://0.0.0.0:{_PORT}"

    def list_addresses(self, place: str) -> list[str]:
        return [address for (where, _), address in self._addresses.items() if where == place]

    def find_url(self, place: str, caller: str | None = None) -> str:
        return f"mqtts://{self._addresses[place, caller or _PEOPLE]}:{_PORT}"

    def find_prefix(self, place: str) -> tuple[str, ...]:
        return "ip", "netns", "exec", self._names[place]

    def cut(self, one: str, other: str) -> None:
        _ip("-n", self._names[one], "link", "set", f"to-{other}", "down")

    def heal(self, one: str, other: str) -> None:
        _ip("-n", self._names[one], "link", "set", f"to-{other}", "up")

    def close(self) -> None:
        for name in self._names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
