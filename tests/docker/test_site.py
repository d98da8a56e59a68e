"""docker/compose.yaml, run for real but for the engine: each service in namespaces of its own.

Mosquitto over TLS with the keys of the first start, three nodes, watchdogs on MicroPython; somebody
asks with plain Mosquitto clients and hears from all three. Health checks are the file's own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.site import ENVIRONMENT, wait_for
from tests.docker.engine import Engine, Image, find_obstacle, read_composition

NODES = ("north", "middle", "south")
DOGS = ("bed-1", "bed-2", "mast-1")
WORDS = ("patient.heart_rate above 20 bpm, named pulse", "wind_speed at least 0 m/s, named wind")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    obstacle = find_obstacle()
    if obstacle and "CI" not in os.environ:
        pytest.skip(f"services cannot be run here: {obstacle}")
    assert not obstacle
    made = Engine(tmp_path_factory.mktemp("site"), read_composition(), Image())
    try:
        assert made.run("init") == 0, made.read_log("init")
        _fill_kernels(made)
        made.start("broker")
        made.wait_until_healthy("broker")
        made.start(*NODES)
        made.wait_until_healthy(*NODES, patience=300)
        made.start(*DOGS)
        made.wait_until_healthy(*DOGS)
        yield made
    finally:
        made.close()


def _fill_kernels(engine: Engine) -> None:
    """Let nodes start as they do the second time: with the matcher compiled."""
    kernels = engine.find_volume("kernels")
    cache = Path(ENVIRONMENT["NUMBA_CACHE_DIR"])
    if cache.is_dir():
        shutil.copytree(cache, kernels, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        subprocess.run(["chown", "-R", engine.image.user, str(kernels)], check=True)


class Medic:
    """Mosquitto's clients with medic7's key, on the network of the services."""

    def __init__(self, engine: Engine, host: str) -> None:
        password = (engine.find_volume("people") / "medic7.key").read_text("utf-8").strip()
        self._engine = engine
        self._account = ["-h", host, "-p", "8883", "-u", "medic7", "-P", password, "-q", "1"]
        self._account += ["--cafile", "/site/probe/ca.pem"]

    def publish(self, topic: str, message: str) -> subprocess.CompletedProcess[str]:
        """Publish as anybody can."""
        words = ("mosquitto_pub", *self._account, "-t", topic, "-m", message)
        return self._engine.call("south", *words)

    def listen(self, topic: str, count: int, seconds: int) -> list[dict[str, Any]]:
        """Return so many messages, or as many as came in that time."""
        words = ("mosquitto_sub", *self._account, "-t", topic, "-C", str(count), "-W", str(seconds))
        done = self._engine.call("south", *words, timeout=seconds + 30)
        return [json.loads(line) for line in done.stdout.splitlines()]


def test_readings_of_all_three_nodes_reach_somebody_at_the_broker(engine: Engine) -> None:
    medic = Medic(engine, "broker")
    for words in WORDS:
        assert medic.publish("dens/1/sub/medic7", words).returncode == 0
    heard: dict[str, dict[str, Any]] = {}

    def hear() -> bool:
        for note in medic.listen("dens/1/note/medic7", 20, 5):
            heard[note["device"]] = note
        medic.publish("dens/1/sub/medic7", "list")  # behind a broker, who asks is served
        return set(DOGS) <= set(heard)

    wait_for("notes of all watchdogs", hear, 120)
    assert heard["bed-1"]["values"]["heart_rate"]["unit"] == "bpm"
    assert heard["bed-1"]["why"]["attribute"] == "heart_rate"
    assert heard["mast-1"]["subscription"] == "wind"
    assert {note["node"] for note in heard.values()} == {"north"}


def test_a_nodes_own_server_knows_the_same_people(engine: Engine) -> None:
    medic = Medic(engine, "middle")
    assert medic.publish("dens/1/sub/medic7", "list").returncode == 0
    (reply,) = medic.listen("dens/1/reply/medic7", 1, 20)
    assert {row["name"] for row in reply["subscriptions"]} == {"pulse", "wind"}
    assert reply["subscriptions"][0]["origin"] == "north"


def test_mosquitto_lets_nobody_in_without_name_and_tls_and_keeps_topics_apart(
    engine: Engine,
) -> None:
    base = ["mosquitto_pub", "-h", "broker", "-p", "8883", "-q", "1", "-t", "t", "-m", "x"]
    assert engine.call("south", *base).returncode != 0
    assert engine.call("south", *base, "--cafile", "/site/probe/ca.pem").returncode != 0
    medic = Medic(engine, "broker")
    assert medic.listen("dens/1/note/probe", 1, 2) == []
    assert medic.listen("dens/1/wd/+/nv", 1, 2) == []
    medic.publish("dens/1/status/north", "forged")
    (status,) = medic.listen("dens/1/status/north", 1, 15)
    assert status["node"] == "north"
    assert set(status["peers"]) == {"middle", "south"}


def test_a_service_sees_its_own_keys_and_can_change_nothing_else(engine: Engine) -> None:
    seen = engine.call("bed-1", "ls", "/site")
    assert seen.stdout.split() == ["bed-1"]
    assert engine.call("bed-1", "touch", "/opt/denwatch/x").returncode != 0
    assert engine.call("broker", "touch", "/site/broker/x").returncode != 0
    assert engine.call("middle", "id", "-u").stdout.strip() == "10001"


def test_a_second_start_changes_no_key(engine: Engine) -> None:
    def read_all() -> dict[str, bytes]:
        found = {}
        for name in ("north", "middle", "broker", "people", "probe", "bed-1"):
            for path in sorted(engine.find_volume(name).rglob("*")):
                if path.is_file() and path.name != "spool.bin":
                    found[str(path)] = path.read_bytes()
        return found

    before = read_all()
    assert engine.run("init") == 0
    assert "the site is there already" in engine.read_log("init")
    assert read_all() == before


def test_health_checks_tell_who_is_not_well(engine: Engine) -> None:
    assert engine.stop("south") == 0
    wait_for("the watchdog of a node that is gone", lambda: not engine.is_healthy("mast-1"), 60)
    assert engine.call("middle", "docker/healthy.sh", "node", "south", "south").returncode != 0
    assert engine.is_healthy("middle")
    engine.start("south")
    engine.wait_until_healthy("south", "mast-1", patience=300)


def test_the_console_is_served_with_the_sites_certificate(engine: Engine) -> None:
    engine.start("console")
    engine.wait_until_healthy("console")
    login = ("docker/healthy.sh", "page", "https://console:8443/login")
    assert engine.call("middle", *login).returncode == 0  # by name, and with the site's authority
    assert engine.stop("console") in (0, -15)


@pytest.mark.slow
def test_spark_reads_what_the_nodes_wrote(engine: Engine) -> None:
    """Master, two workers and a driver, each in its place: five Java machines."""
    workers = ("spark-worker-1", "spark-worker-2")
    engine.start("spark-master")
    engine.wait_until_healthy("spark-master")
    engine.start(*workers)
    engine.wait_until_healthy(*workers)
    assert engine.run("analyze", timeout=1800) == 0, engine.read_log("analyze")
    report = engine.find_volume("reports") / "latest" / "report.html"
    assert "<svg" in report.read_text(encoding="utf-8")
    for name in (*workers, "spark-master"):
        engine.stop(name)
