"""A hosted node: the same core on the memory model and on SQLite, through deaths and restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from denwatch.node.core.events import NOTES, REPLIES, REQUESTS, Listening, Message
from denwatch.node.core.items import SUBSCRIPTION

from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import Ring, Roster

START = 1_800_000_000_000


@pytest.mark.parametrize("is_sqlite", [False, True])
def test_what_is_committed_survives_and_epochs_rise(tmp_path: Path, is_sqlite: bool) -> None:
    database = str(tmp_path / "north.db") if is_sqlite else None
    node = HostedNode("north", Ring("north", Roster()), settings=HostSettings(database=database))
    node.start(START)
    node.handle(Listening(REPLIES + "medic7", True), START)
    request = Message("medic7", REQUESTS + "medic7", b"heart_rate is high")
    (reply,) = node.handle(request, START)
    assert json.loads(reply.payload)["ok"]
    (logged,) = node.find_logs("subscribe")
    assert logged["owner"] == "medic7"
    node.restart(START + 1_000)
    assert node.store.epoch == 2
    assert node.subscribers.count_subscriptions() == node.item_store.count(SUBSCRIPTION) == 1
    assert node.handle(Listening(NOTES + "medic7", True), START + 2_000) == []
    node.close(START + 3_000)
    assert not node.is_up


def test_a_protocol_without_settings_is_left_out() -> None:
    settings = HostSettings(subscribers=None, peers=None)
    node = HostedNode("north", Ring("north", Roster()), settings=settings)
    node.start(START)
    assert node.handle(Message("medic7", REQUESTS + "medic7", b"heart_rate is high"), START) == []
    assert node.logs == []
    assert node.devices.list_devices() == []
