"""Nobody stops a node: silent connections, floods, guesses and one name's many links, on processes.

Whoever does these things waits or is refused, and an operator reads who it was; a medic is served
meanwhile, by the same process in the same run. No time is asserted, only who comes before whom.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator.client_packets import write_connect, write_publish, write_subscribe
from simulator.site import NodeProcess, Site, wait_for
from tests.node.app import App

pytestmark = pytest.mark.xdist_group("budgets")

FEW_FILES = 256
SILENT = 1_100
FLOOD = 400
PROBE = json.dumps({"probe": [f"heart_rate above {n}" for n in range(100, 116)]}).encode()


@dataclass
class Place:
    """A node with few files, and the passwords of some subscribers."""

    node: NodeProcess
    passwords: dict[str, str]

    def connect(self, user: str) -> App:
        return App(self.node.port, user, self.passwords[user])

    def check_serving(self) -> None:
        """Check that a medic who comes now is served, by the process that was started."""
        self.node.check_running()
        with self.connect("medic7") as app:
            assert app.refused == 0
            app.subscribe("dens/1/reply/medic7")
            assert app.ask("medic7", "list")["ok"]
        assert "starts again" not in self.node.journal


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    site = Site(tmp_path_factory.mktemp("budgets"))
    node = site.add_node("north")
    node.prefix = ("sh", "-c", f'ulimit -n {FEW_FILES}; exec "$@"', "sh")
    node.configure(("links_per_name = 100", "links_per_name = 20"))
    names = ("eve", "crowd", "medic7", "guessed", "watcher")
    found = Place(node, {name: node.add_subscriber(name) for name in names})
    node.start()
    yield found
    found.check_serving()
    node.stop()


# In a process of its own: paho's loop cannot use files beyond number 1,024.
STRANGER = """
import resource, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = [socket.socket() for _ in range(count)]
for each in held:
    each.settimeout(60)
    each.connect_ex(("127.0.0.1", port))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def hold_silent(port: int) -> Iterator[None]:
    """Hold connections that say nothing."""
    command = [sys.executable, "-c", STRANGER, str(port), str(SILENT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdin is not None
        assert stranger.stdout.readline() == b"held\n"
        yield
        stranger.stdin.close()


def log_in(stack: ExitStack, place: Place, client: str, user: str, password: str) -> int:
    """Return the code of CONNACK, and keep the connection."""
    link = stack.enter_context(socket.create_connection(("127.0.0.1", place.node.port), 60))
    link.sendall(write_connect(client, user, password))
    return link.recv(4)[3]


def read_memory(node: NodeProcess) -> int:
    """Return the node's memory in bytes."""
    status = Path(f"/proc/{node.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


def test_silent_connections_stop_nobody_and_cost_nothing(place: Place) -> None:
    place.check_serving()
    before = read_memory(place.node)
    with hold_silent(place.node.port):
        place.check_serving()
        assert len(list(Path(f"/proc/{place.node.pid}/fd").iterdir())) < FEW_FILES
        wait_for("a line", lambda: "too many connections without a name" in place.node.journal)
    assert read_memory(place.node) - before < 32 << 20
    place.check_serving()


def test_a_flood_of_probes_does_not_keep_others_waiting(place: Place) -> None:
    flood = [
        write_connect("eve", "eve", place.passwords["eve"]),
        write_subscribe(1, "dens/1/reply/eve", qos=0),
        *(write_publish("dens/1/sub/eve", PROBE, 1, n) for n in range(1, FLOOD + 1)),
    ]
    with ExitStack() as stack:
        medic = stack.enter_context(place.connect("medic7"))
        medic.subscribe("dens/1/reply/medic7")
        eve = stack.enter_context(socket.create_connection(("127.0.0.1", place.node.port), 60))
        eve.sendall(b"".join(flood))
        replies = b""
        while b"new_roots" not in replies:
            replies += eve.recv(1 << 20)
        assert medic.ask("medic7", "list")["ok"]
        eve.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                replies += eve.recv(1 << 20)
    assert replies.count(b"new_roots") < FLOOD // 2, "the medic waited for all of them"


def test_one_name_cannot_have_all_links(place: Place) -> None:
    with ExitStack() as stack:
        password = place.passwords["crowd"]
        codes = [log_in(stack, place, f"crowd-{n}", "crowd", password) for n in range(40)]
        assert codes.count(0) == 20
        assert codes[-1] == 3
        place.check_serving()
    wait_for("a line", lambda: "too many links of this name" in place.node.journal)
    assert "refused crowd at 127.0.0.1, client crowd-" in place.node.journal


def test_guesses_do_not_lock_out_a_right_password(place: Place) -> None:
    with ExitStack() as stack:
        codes = [log_in(stack, place, f"g-{n}", "guessed", f"guess-{n}") for n in range(30)]
        assert codes == [4] * 30
        assert log_in(stack, place, "right", "guessed", place.passwords["guessed"]) == 0


def test_refusals_are_sums_in_the_status_and_few_lines_in_the_log(place: Place) -> None:
    with place.connect("watcher") as watcher:
        watcher.subscribe("dens/1/status/north")
        with ExitStack() as stack:
            for number in range(200):
                log_in(stack, place, f"x-{number}", "nobody", "guess")

        def find_sum() -> bool:
            refused = json.loads(watcher.find("dens/1/status/north")[-1])["refused"]
            return any(each["who"] == "nobody" and each["times"] > 1 for each in refused)

        wait_for("the sum in the status", find_sum)
    lines = [line for line in place.node.journal.splitlines() if "refused nobody" in line]
    assert 0 < len(lines) < 20
