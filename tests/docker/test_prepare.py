"""The first start of the containers: what it makes, and that an interrupted one begins again."""

from __future__ import annotations

import importlib.util
import json
import stat
from pathlib import Path
from types import ModuleType

import pytest
from denwatch.node.config import load_config

from tests.docker.images import DOCKER, Image


def load(name: str) -> ModuleType:
    """Import a script of docker/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docker_{name}", DOCKER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prepare = load("prepare")
sensors = load("sensors")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site whose first preparation was interrupted."""
    folder = tmp_path_factory.mktemp("prepare") / "site"
    for name in Image().folders:
        if name.startswith("/site/"):
            (folder / name.removeprefix("/site/")).mkdir(parents=True)
    prepare.make_nodes(folder)  # and then the power went
    (folder / "broker" / "half").write_text("x", encoding="utf-8")
    assert prepare.main([str(folder)]) == 0
    return folder


def test_an_interrupted_start_begins_again(site: Path) -> None:
    assert not (site / "broker" / "half").exists()
    keys = (site / "north" / "node" / "keys.json").read_bytes()
    assert prepare.main([str(site)]) == 0
    assert (site / "north" / "node" / "keys.json").read_bytes() == keys


def test_nodes_find_each_other_and_the_first_is_at_the_broker(site: Path) -> None:
    north, middle, south = (
        load_config(site / name / "node" / "node.toml") for name in ("north", "middle", "south")
    )
    assert north.broker is not None
    assert (north.broker.address.host, north.broker.address.has_tls) == ("broker", True)
    assert {peer.name for peer in north.peers} == {"middle", "south"}
    assert middle.peers == ()
    assert {peer.name for peer in south.peers} == {"middle"}
    assert all(config.data == Path("/data") for config in (north, middle, south))


def test_no_secret_can_be_read_by_others_and_no_invitation_is_left(site: Path) -> None:
    open_files = {"ca.pem", "ca.der", "node.pem", "node.toml"}
    for path in site.rglob("*"):
        if path.is_file() and path.name not in open_files:
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
        assert path.name != "invitation"


def test_mosquitto_has_hashes_only(site: Path) -> None:
    lines = (site / "broker" / "passwords").read_text(encoding="utf-8").splitlines()
    assert {line.partition(":")[0] for line in lines} == {"north", "medic7", "probe", "bed-1"}
    assert all(line.partition(":")[2].startswith("$7$") for line in lines)


def test_watchdogs_sense_what_the_sensors_give(site: Path) -> None:
    for name, (_, _, columns) in prepare.DEVICES.items():
        config = json.loads((site / name / "watchdog.json").read_text(encoding="utf-8"))
        assert config["sources"]["sensors"]["columns"] == list(columns)
        assert set(columns) <= set(sensors.WALKS)
        for channel in config["events"][0]["channels"]:
            usual, _, episode = sensors.WALKS[columns[channel["field"]]]
            assert channel["low"] <= 100 * min(usual, episode)
            assert channel["high"] >= 100 * max(usual, episode)


def test_an_episode_comes_and_goes() -> None:
    import random

    walk = sensors.walk(["heart_rate"], random.Random(1))
    rates = [next(walk)[0] for _ in range(2 * sensors.EVERY)]
    quiet, wild = rates[: sensors.EVERY - sensors.LASTS], rates[sensors.EVERY - 10 : sensors.EVERY]
    assert max(quiet) < 110 < min(wild)
    assert min(rates[sensors.EVERY + 20 : sensors.EVERY + 60]) < 100


def test_folders_that_are_missing_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare.main([str(tmp_path)]) == 1
    assert "north" in capsys.readouterr().out
