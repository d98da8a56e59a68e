"""One stand: a server, an app, senders; rounds of `kill -9` under load, and what is left after all.

The same rounds and the same judgement for every server. What was acknowledged is known to the
senders, what arrived is on the app's disk; `Verdict` is the difference.
"""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.durability_log import check_log
from benchmarks.durability_senders import Device, Planner, Sender, Teller
from benchmarks.durability_site import (
    APP,
    PLANNER,
    WORDS,
    DurabilitySite,
    make_durable_mosquitto,
)
from simulator.site import ServerProcess

VICTIMS = ("server", "app", "both", "starting")
_WEIGHTS = (40, 40, 10, 10)
_DELAYS = (0.0, 0.4)  # s under load before a kill
_STARTING = (0.1, 2.5)  # s after a start, for kills while a server starts
_PATIENCE = 120.0  # s for load to flow again after a kill, on a busy machine
_QUIET = 20.0  # s without any arrival after which nothing more will come


@dataclass
class Verdict:
    """What a stand has shown."""

    name: str
    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    twice: int = 0  # through the library
    again: int = 0  # plain messages of QoS 1, which may come again
    log_records: int = 0
    log_faults: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)

    def note_lost(self, kind: str, what: list[str]) -> None:
        """Count what is not there, and keep an example."""
        self.lost[kind] += len(what)
        if what:
            self.examples.append(f"{self.name}: {kind}: {', '.join(what[:5])}")


class Stand:
    """A server with plain MQTT: a teller, and an app that receives."""

    def __init__(
        self,
        name: str,
        folder: Path,
        server: ServerProcess,
        rng: random.Random,
        app: str = "benchmarks.durability_app",
    ) -> None:
        self.verdict = Verdict(name)
        self.folder = folder
        self.server = server
        self.rng = rng
        self.senders: list[Sender] = []
        self.lives = 0
        command = [sys.executable, "-m", app, str(folder / "app.json")]
        self.app = ServerProcess("app", command, folder / "app.log")
        self.received = folder / "received.txt"
        self.received.touch()
        self.add_senders()
        (folder / "app.json").write_text(json.dumps(self.configure_app()), encoding="utf-8")

    def add_senders(self) -> None:
        """Make those who publish."""
        self.teller = Teller(self.server.port, random.Random(self.rng.random()))
        self.senders.append(self.teller)

    def configure_app(self) -> dict[str, object]:
        """Return what the app is told."""
        return {
            "port": self.server.port,
            "user": "",
            "password": "",
            "received": str(self.received),
            "store": "",
        }

    # Rounds ---------------------------------------------------------------------------------

    def run(self, rounds: int) -> Verdict:
        """Kill as often as asked, at random."""
        return self.run_with(self.rng.choices(VICTIMS, _WEIGHTS, k=rounds))

    def run_with(self, victims: Sequence[str]) -> Verdict:
        """Kill in this order, let everything settle, and judge."""
        started = time.monotonic()
        try:
            self.open()
            for victim in victims:
                self.wait_for_load()
                time.sleep(self.rng.uniform(*_DELAYS))
                self.kill(victim)
            self.wait_for_load()
            for sender in self.senders:
                sender.stop()
            self.settle()
            self.judge()
        finally:
            self.server.kill()
            self.app.kill()
        self.verdict.seconds = time.monotonic() - started
        return self.verdict

    def open(self) -> None:
        """Start everybody; the app first, so that its session is there before anything is said."""
        self.server.start()
        self.start_app()
        self.wait_until_ready()
        for sender in self.senders:
            sender.start()

    def kill(self, victim: str) -> None:
        """Kill, and start again at once."""
        if victim in ("app", "both"):
            self.app.check_running()
            self.app.kill()
            self.verdict.kills["app"] += 1
        if victim != "app":
            self._kill_server()
        if victim in ("app", "both"):
            self.start_app()
        if victim == "starting":
            time.sleep(self.rng.uniform(*_STARTING))
            self._kill_server()

    def _kill_server(self) -> None:
        """Kill the server, which must run, and launch it again."""
        self.server.check_running()
        self.server.kill()
        self.verdict.kills["server"] += 1
        self.server.launch()

    def start_app(self) -> None:
        """Begin another life of the app."""
        self.lives += 1
        self.app.launch(str(self.lives))

    def wait_until_ready(self) -> None:
        """Return when the app's session is at the server: a message that is sent now arrives."""
        probe = Teller(self.server.port, random.Random(0), *self.credentials)
        probe.start()
        self.wait_for(lambda: bool(self.received.stat().st_size), "the app's session")
        probe.stop()
        self.received.write_bytes(b"")

    @property
    def credentials(self) -> tuple[str, str]:
        """Name and password for plain messages."""
        return "", ""

    def wait_for_load(self) -> None:
        """Return when everybody has been acknowledged something since, and the app has received."""
        before = {sender: sender.progress for sender in self.senders}
        size = self.received.stat().st_size
        self.server.wait_until_ready()
        for sender in self.senders:
            self.wait_for(
                lambda sender=sender: sender.progress > before[sender],  # type: ignore[misc]
                f"acknowledgement of {sender.name}",
            )
        self.wait_for(lambda: self.received.stat().st_size > size, "message to the app")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, with both processes alive."""
        end = time.monotonic() + _PATIENCE
        while not condition():
            self.server.check_running()
            self.app.check_running()
            if time.monotonic() > end:
                raise RuntimeError(f"{self.verdict.name}: no {what} in {_PATIENCE:.0f} s")
            time.sleep(0.01)

    # After all ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until all that was acknowledged is there, or nothing comes any more."""
        last, since = self.count_arrived(), time.monotonic()
        while self.list_missing() and time.monotonic() - since < _QUIET:
            time.sleep(0.25)
            arrived = self.count_arrived()
            if arrived != last:
                last, since = arrived, time.monotonic()
        time.sleep(1.0)  # a second time would follow at once

    def count_arrived(self) -> int:
        """Return how much is there."""
        return self.received.stat().st_size

    def list_missing(self) -> list[str]:
        """Return what was acknowledged and is not there."""
        return [str(n) for n in sorted(self.teller.acknowledged - set(self.read_received()))]

    def read_received(self) -> list[int]:
        """Return the numbers of plain messages that the app has."""
        return [int(line) for line in self.received.read_text().split()]

    def judge(self) -> None:
        """Say what is lost."""
        received = self.read_received()
        self.verdict.acknowledged["messages"] += len(self.teller.acknowledged)
        missing = self.teller.acknowledged - set(received)
        self.verdict.note_lost("messages", [str(number) for number in sorted(missing)])
        self.verdict.again += len(received) - len(set(received))


class NodeStand(Stand):
    """A DENS node: beside plain MQTT, devices' notifications and people's subscriptions."""

    def __init__(
        self, name: str, folder: Path, site: DurabilitySite, rng: random.Random, app: str = ""
    ) -> None:
        self.site = site
        self.store = folder / "app.db"
        self.answered = folder / "answered.txt"
        self.answered.touch()
        super().__init__(name, folder, site.server, rng, app or "benchmarks.durability_app")

    @property
    def credentials(self) -> tuple[str, str]:
        """Name and password for plain messages."""
        return PLANNER, self.site.passwords[PLANNER]

    def add_senders(self) -> None:
        """Make devices, a planner and a teller."""
        port, seed = self.server.port, self.rng.random
        self.teller = Teller(port, random.Random(seed()), *self.credentials)
        self.planner = Planner(*self.credentials, port, random.Random(seed()))
        self.devices = [
            Device(secrets, self.site.vocabulary, port, random.Random(seed()))
            for secrets in self.site.devices
        ]
        self.senders += [self.teller, self.planner, *self.devices]

    def configure_app(self) -> dict[str, object]:
        """Return what the app is told."""
        return {
            **super().configure_app(),
            "user": APP,
            "password": self.site.passwords[APP],
            "store": str(self.store),
            "answered": str(self.answered),
            "words": WORDS,
        }

    def wait_until_ready(self) -> None:
        """Return when also the subscription is answered: the first was asked for before."""
        super().wait_until_ready()
        self.wait_for(lambda: bool(self.answered.stat().st_size), "answer to the app")

    def read_seen(self) -> Counter[tuple[str, int]]:
        """Return how often the app has handled each notification, by its own table."""
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=30)) as found:
            return Counter(found.execute("SELECT device, number FROM seen"))

    def count_arrived(self) -> int:
        """Return how much is there."""
        return super().count_arrived() + self.read_seen().total()

    def list_missing(self) -> list[str]:
        """Return what was acknowledged and is not there."""
        seen = self.read_seen()
        lost = [f"{device} {number}" for device, number in self._list_told() - seen.keys()]
        return super().list_missing() + sorted(lost)

    def _list_told(self) -> set[tuple[str, int]]:
        return {
            (device.name, number)
            for device in self.devices
            for number in range(1, device.acknowledged + 1)
        }

    def judge(self) -> None:
        """Say what is lost, and what came twice."""
        super().judge()
        verdict, seen, told = self.verdict, self.read_seen(), self._list_told()
        verdict.acknowledged["notifications"] += len(told)
        missing = sorted(told - seen.keys())
        verdict.note_lost("notifications", [f"{device} {number}" for device, number in missing])
        twice = [f"{each} {count} times" for each, count in seen.items() if count > 1]
        verdict.twice += len(twice)
        verdict.examples += [f"{verdict.name}: handled: {', '.join(twice[:5])}"] if twice else []
        self._judge_requests()
        self.app.check_running()
        self.app.end(signal.SIGTERM)
        self.server.check_running()
        self.server.stop()
        self._judge_log()

    def _judge_requests(self) -> None:
        """Ask the node what it has, and compare with what it had answered."""
        planner = self.planner
        answered = self.answered.read_text().split()
        self.verdict.acknowledged["subscriptions"] += (
            len(planner.wanted) + len(planner.ended) + len(answered)
        )
        held = self._list_subscriptions(PLANNER)
        lost = sorted(planner.wanted - held) + [f"{n} again" for n in planner.ended & held]
        lost += sorted(set(answered) - self._list_subscriptions(APP))
        self.verdict.note_lost("subscriptions", lost + planner.refusals)

    def _list_subscriptions(self, person: str) -> set[str]:
        port, password = self.server.port, self.site.passwords[person]
        asker = Planner(person, password, port, random.Random(self.rng.random()))
        asker.connect()
        answer = asker.ask({"list": True})
        asker.stop()
        if answer is None:
            raise RuntimeError(f"{self.verdict.name}: the node does not answer {person}")
        return {str(each["name"]) for each in answer["subscriptions"]}

    def _judge_log(self) -> None:
        """The log has every number once, over all lives of the node."""
        check = check_log({path.name: path.read_bytes() for path in self.site.list_segments()})
        self.verdict.log_records += check.records
        self.verdict.log_faults += len(check.faults)
        self.verdict.examples += [f"{self.verdict.name}: log: {each}" for each in check.faults[:5]]


def make_node_stand(name: str, folder: Path, seed: str, devices: int = 3) -> NodeStand:
    """Make a stand with a node."""
    folder.mkdir(parents=True)
    return NodeStand(name, folder, DurabilitySite(folder, devices), random.Random(seed))


def make_mosquitto_stand(name: str, folder: Path, seed: str, settings: list[str]) -> Stand:
    """Make a stand with a Mosquitto."""
    folder.mkdir(parents=True)
    return Stand(name, folder, make_durable_mosquitto(folder, settings), random.Random(seed))
