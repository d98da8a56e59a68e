"""Closing the loop: two real nodes that never meet, and an operator who has both nodes' logs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from denwatch.cli import main
from denwatch.node.core.items import NOTIFICATION, SUBSCRIPTION, Dot, Item
from denwatch.spark.source.decoding import name_column, write_map
from denwatch.spark.stream.engine import StreamEngine, StreamSettings
from denwatch.spark.stream.operator_link import OperatorLink, read_subscription, split_frames
from pyspark.sql import SparkSession

from simulator.site import NodeProcess, Site, wait_for
from tests.node.app import App
from tests.spark.streams import be_quick
from tests.subscribers.subscriber_node import SubscriberNode

FEVER = "patient patient_temperature=40"
ASKED = "patient_temperature is high, at least 0.5"


class Loop(NamedTuple):
    north: NodeProcess
    south: NodeProcess
    key: Path  # of a device at north
    passwords: dict[str, str]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """South knows north's key and nothing else of it; who asks at north is not there."""
    site = Site(tmp_path)
    north, south = site.add_node("north"), site.add_node("south")
    link = f'[[peers]]\nname = "north"\nurl = "{north.url}"\n'
    south.configure(("follow_plan = false", "follow_plan = true"), (link, ""))
    key = site.add_device("bed-1")
    passwords = {"chief": north.add_subscriber("chief"), "medic7": south.add_subscriber("medic7")}
    passwords["ops"] = south.add_subscriber("ops", "operator")
    with site:
        yield Loop(north, south, key, passwords)


@pytest.mark.slow
def test_a_late_match_reaches_its_subscriber_once_and_the_plan_the_node(
    spark: SparkSession, tmp_path: Path, loop: Loop
) -> None:
    with App(loop.north.port, "chief", loop.passwords["chief"]) as chief:
        chief.subscribe("dens/1/reply/chief")
        assert chief.ask("chief", ASKED)["ok"]
    with App(loop.south.port, "medic7", loop.passwords["medic7"]) as medic:
        medic.subscribe("dens/1/reply/medic7", "dens/1/note/medic7", "dens/1/plan/+")
        assert medic.ask("medic7", ASKED)["ok"]
        time.sleep(0.1)  # so that it was asked before it is read, by one machine's clock
        assert main(["publish", "--key", str(loop.key), FEVER]) == 0
        folders = [node.folder / "data" / "log" for node in (loop.north, loop.south)]
        for folder in folders:
            wait_for("a log", lambda f=folder: any(f.iterdir()))
        time.sleep(1)  # the log's records are on their way from the store to the segments
        operator = OperatorLink(
            [loop.south.url, f"mqtt://127.0.0.1:{loop.north.port + 1}"],
            "ops",
            loop.passwords["ops"],
            tmp_path / "handed.json",
        )
        settings = StreamSettings(strategies=("direct", "epidemic"))
        engine = StreamEngine(spark, folders, tmp_path / "out", settings, loop=operator)
        with be_quick(spark):
            summary = engine.run(once=True)
        # The notification for medic7, and for chief, who was never seen anywhere in reach, also
        # what chief asked for: south may meet whoever meets chief.
        assert summary["loop"]["handed"] == 2
        (trouble,) = summary["loop"]["troubles"].values()
        assert "unreachable" in trouble
        (note,) = wait_for("the note", lambda: medic.notes("medic7"))
        assert (note["device"], note["values"]["patient_temperature"]["value"]) == ("bed-1", 40)
        # An operator who has forgotten what was handed over hands it again: nothing changes.
        forgetful = OperatorLink([loop.south.url], "ops", loop.passwords["ops"], tmp_path / "none")
        version = (tmp_path / "out" / "current").resolve()
        forgetful.publish(spark, version, engine.judged)
        assert forgetful.describe()["handed"] == 2
        time.sleep(2)
        assert len(medic.notes("medic7")) == 1
        # Nothing could be delivered by any strategy: nothing is recommended.
        assert forgetful.describe()["plans"] == {}
        judged = engine.judged
        judged.best, judged.advice = "direct", "Nobody needs to carry anything."
        forgetful.publish(spark, version, judged)
        (shown,) = wait_for("the plan", lambda: medic.find("dens/1/plan/south"))
        assert json.loads(shown)["strategy"] == "spray:1"
        assert json.loads(shown)["followed"] is True
        engine.close()
    with App(loop.south.port, "medic7", loop.passwords["medic7"], client_id="later") as later:
        later.subscribe("dens/1/plan/south", "dens/1/status/south")
        wait_for("the retained plan", lambda: later.find("dens/1/plan/south") == [shown])
        wait_for("the plan in the status", lambda: _find_planned(later) == "spray:1")
        assert not later.publish("dens/1/operator/south", b"\x80")  # the link is closed


def _find_planned(app: App) -> str | None:
    """Return the strategy of the plan in the newest status of south."""
    found = app.find("dens/1/status/south")
    plan = json.loads(found[-1])["plan"] if found else None
    return plan["strategy"] if plan else None


@pytest.mark.parametrize(
    "words",
    [
        "patient_temperature is very high, at least 0.5, named fever",
        "heart_rate is high, top 3, named rush",
        "heart_rate above 120 bpm and patient_temperature is high",
    ],
)
def test_a_subscription_is_rebuilt_from_the_log_as_it_was_signed(words: str) -> None:
    world = SubscriberNode()
    world.ask("medic7", words)
    (made,) = world.item_store.iterate(world.store, SUBSCRIPTION)
    (logged,) = world.find_logs("subscribe")
    row = {name_column(field): value for field, value in logged.items()}
    assert read_subscription({**row, "options": write_map(logged["options"])}) == made


def test_items_go_in_frames_that_a_node_takes() -> None:
    items = [Item(Dot("north", 1, n), NOTIFICATION, 1, bytes(n), bytes(64)) for n in range(250)]
    frames = list(split_frames(items))
    assert [item for frame in frames for item in frame] == items
    assert max(map(len, frames)) == 100
    large = [Item(Dot("north", 1, n), NOTIFICATION, 1, bytes(50_000)) for n in range(3)]
    assert [len(frame) for frame in split_frames(large)] == [1, 1, 1]
    assert list(split_frames([])) == []
