"""A node opened from its folder: it goes on in its own time, whatever its machine's clock shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from denwatch.cli.node import run
from denwatch.node.config import NodeConfig, load_config
from denwatch.node.config.model import Replication
from denwatch.node.core.items import EARLIEST
from denwatch.node.runtime import process
from denwatch.node.runtime.build import name_strategy
from denwatch.node.runtime.process import OpenedNode, open_node

RIGHT = 1_800_000_000.0  # s
MINUTE = 60_000


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    arguments = ["--init", str(tmp_path), "--name", "tent", "--listen", "mqtt://127.0.0.1:1"]
    assert run(arguments) == 0
    return load_config(tmp_path / "node.toml")


def open_at(config: NodeConfig, seconds: float, monkeypatch: pytest.MonkeyPatch) -> OpenedNode:
    """Open the node on a machine that shows this time."""
    monkeypatch.setattr(process.time, "time", lambda: seconds)
    opened = open_node(config)
    opened.built.durable_node.tick(opened.clock.read())
    opened.built.durable_node.commit()
    return opened


def test_time_goes_on_over_starts_and_the_status_says_how_far_the_machine_is_off(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_at(config, RIGHT, monkeypatch)
    now = opened.clock.read()
    described = opened.built.status.describe(now, 0)
    assert described["at"] == now
    assert (described["clock_ms"], described["doubt_ms"]) == (0, 0)
    assert described["lag_ms"] is None
    opened.store.close()
    again = open_at(config, 5.0, monkeypatch)
    later = again.clock.read()
    assert now <= later < now + MINUTE
    described = again.built.status.describe(later, 0)
    assert abs(int(str(described["at"])) - EARLIEST) < MINUTE
    assert abs(int(str(described["clock_ms"])) + RIGHT * 1000 - EARLIEST) < MINUTE
    again.store.close()


@pytest.mark.parametrize("seconds", [5.0, RIGHT])
def test_a_start_that_the_disk_forgot_does_not_give_its_epoch_to_the_next(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """On a machine without a clock, or with one that shows what it last saved."""
    leaps = iter((7, 2000, 31))
    monkeypatch.setattr(process, "randbelow", lambda limit: next(leaps) % limit)
    open_at(config, seconds, monkeypatch).store.close()
    path = config.data / process.DATABASE
    before = path.read_bytes()
    epochs = []
    for _ in range(2):
        opened = open_at(config, seconds, monkeypatch)
        epochs.append(opened.store.epoch)
        opened.store.close()
        path.write_bytes(before)
    assert len(set(epochs)) == 2


def test_a_clock_that_is_set_while_the_node_runs_is_kept_over_starts(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_at(config, 5.0, monkeypatch)
    monkeypatch.setattr(process.time, "time", lambda: RIGHT)
    before = opened.clock.read()
    jump = opened.clock.find_jump()
    opened.built.durable_node.set_clock(jump, opened.clock.read())
    opened.built.durable_node.commit()
    assert abs(opened.built.clocks.date(opened.clock.read()) - RIGHT * 1000) < MINUTE
    opened.store.close()
    again = open_at(config, RIGHT + 60, monkeypatch)
    assert 0 < again.clock.read() - before < 2 * MINUTE  # its own time is still of 2020
    assert again.built.clocks.wall > RIGHT * 1000 - EARLIEST - MINUTE
    again.store.close()


@pytest.mark.parametrize(
    ("strategy", "copies", "nodes", "named"),
    [
        ("auto", 0, 3, "epidemic"),
        ("auto", 0, 64, "epidemic"),
        ("auto", 0, 65, "utility"),
        ("spray", 6, 3, "spray:6"),
        ("utility", 20, 3, "utility:20"),
    ],
)
def test_small_sites_share_everything_unless_told_otherwise(
    strategy: str, copies: int, nodes: int, named: str
) -> None:
    assert name_strategy(Replication(strategy, copies, 1024), nodes) == named
