"""Nodes find each other by zeroconf: nobody wrote down where the other one is.

In two network namespaces with one wire between them; where there are none, on this machine's own
interfaces, if multicast comes back on them.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from denwatch.node.runtime.links import SERVICE
from zeroconf import ServiceInfo, Zeroconf

from simulator.site import NodeProcess, wait_for
from tests.node.namespaces import LinkedSite, Namespaces

pytestmark = pytest.mark.xdist_group("network")  # namespaces are made by one at a time

ALPHA, BRAVO = "alpha", "bravo"
GHOST = "ghost"  # belongs to the site, and never comes


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedSite]:
    folder = tmp_path_factory.mktemp("discovery")
    with ExitStack() as stack:
        site = LinkedSite(folder, (ALPHA, BRAVO))
        stack.callback(site.close)
        if not isinstance(site.links, Namespaces) and not has_multicast():
            pytest.skip(f"{site.excuse}, and multicast does not come back on its own interfaces")
        site.add_people("watcher")
        site.nodes[ALPHA].keys("invite", GHOST, "--output", str(folder / "ghost.invite"))
        for node in site.nodes.values():
            forget_peers(node)
            node.configure(("zeroconf = false", "zeroconf = true"))
        site.start()
        yield site


def forget_peers(node: NodeProcess) -> None:
    """Take all peers out of a node's configuration."""
    path = node.folder / "node.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"(?m)^\[\[peers\]\]\n(?:\w.*\n)*", "", text), encoding="utf-8")


def has_multicast() -> bool:
    """Return whether what is sent to a group comes back to others on this machine."""
    group = "224.0.0.251"
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as receiver:
        receiver.settimeout(1)
        receiver.bind(("", 0))
        try:
            request = struct.pack("=4sl", socket.inet_aton(group), socket.INADDR_ANY)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
                sender.sendto(b"?", (group, receiver.getsockname()[1]))
            return receiver.recv(1) == b"?"
        except OSError:
            return False


def wait_for_peer(site: LinkedSite, place: str, other: str) -> None:
    """Wait until a node says that another one is its peer."""
    topic = f"dens/1/status/{place}"
    with site.app("watcher", place) as app:
        app.subscribe(topic)
        wait_for(
            f"{place} to find {other}",
            lambda: (found := app.find(topic)) and json.loads(found[-1])["peers"] == [other],
            60,
        )


@dataclass
class Trap:
    """Somebody who says that they are a node: takes calls, and keeps how each of them begins."""

    host: str
    heard: list[bytes] = field(default_factory=list)

    def __enter__(self) -> Trap:
        self._server = socket.create_server((self.host, 0))
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()
        self._zeroconf = Zeroconf(interfaces=[self.host])
        return self

    def __exit__(self, *_: object) -> None:
        self._zeroconf.close()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)

    def announce(self, name: str, has_tls: bool) -> None:
        """Say that a node is here."""
        info = ServiceInfo(
            SERVICE,
            f"{name}.{SERVICE}",
            parsed_addresses=[self.host],
            port=self._server.getsockname()[1],
            properties={"tls": "1" if has_tls else "0"},
            server=f"{name}-{has_tls}.local.",
        )
        self._zeroconf.unregister_all_services()
        self._zeroconf.register_service(info, cooperating_responders=True)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._server.accept()
                with contextlib.closing(link):
                    link.settimeout(5)
                    self.heard.append(link.recv(4096))


def test_two_nodes_find_each_other(site: LinkedSite) -> None:
    for node in site.nodes.values():
        assert "\n[[peers]]" not in (node.folder / "node.toml").read_text(encoding="utf-8")
    wait_for_peer(site, ALPHA, BRAVO)
    wait_for_peer(site, BRAVO, ALPHA)
    assert f"found {BRAVO} at" in site.nodes[ALPHA].journal


def test_a_false_announcement_learns_nothing(site: LinkedSite) -> None:
    """A password goes to nobody who does not have the site's certificate."""
    node = site.nodes[ALPHA]
    host = site.links.find_own_address(ALPHA)
    if host.startswith("127."):
        pytest.skip("there is no network but the loopback, on which no TLS is asked for")
    with Trap(host) as trap:
        trap.announce("stranger", has_tls=True)
        trap.announce(GHOST, has_tls=False)
        wait_for("the refusal", lambda: f"ignoring {GHOST} at {host}," in node.journal)
        assert trap.heard == []
        trap.announce(GHOST, has_tls=True)
        wait_for("a call", lambda: trap.heard, 60)
        assert f"found {GHOST} at {host}" in node.journal
    assert "found stranger at" not in node.journal
    for beginning in trap.heard:
        assert beginning[:1] == b"\x16"  # a TLS handshake, and no MQTT
        assert b"MQTT" not in beginning


def test_a_node_that_comes_back_elsewhere_is_found_again(site: LinkedSite) -> None:
    wait_for_peer(site, ALPHA, BRAVO)
    alpha, bravo = site.nodes[ALPHA], site.nodes[BRAVO]
    before = alpha.journal.count(f"found {BRAVO} at")
    bravo.kill()
    url = site.links.listen(BRAVO)
    other = "8884" if site.links.kind == "namespaces" else "0"
    bravo.configure((json.dumps([url]), json.dumps([f"{url.rpartition(':')[0]}:{other}"])))
    bravo.start()
    wait_for("the news", lambda: alpha.journal.count(f"found {BRAVO} at") > before, 60)
    wait_for_peer(site, ALPHA, BRAVO)
