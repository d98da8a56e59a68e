"""Devices on the air: what they tell arrives through losses and collisions, within their share."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from denwatch.cli.bridge import RadioGateway
from denwatch.client.vocabulary.loading import load_shipped
from denwatch.watchdog.radio import AirBudget, find_lora_airtime

from simulator.device import Sense
from simulator.radio import RadioAir, RadioSettings, find_excess
from simulator.world import World

HOUR = 3_600_000


def play(loss: float = 0.2, hours: float = 2, seed: int = 1, period: int = 120_000) -> World:
    """Six devices on a slow radio; at first nobody asks, then everybody's readings are wanted."""
    world = World(seed, load_shipped("rescue"))
    world.add_node("north")
    settings = RadioSettings(51, lambda size: find_lora_airtime(size, 9), loss=loss)
    world.air = RadioAir(world, settings, Random(seed))
    world.add_person("medic", "north")
    for number in range(6):
        world.add_device(f"dog-{number}", "north", [Sense(1, (0, 1), period=period)])
    world.run(int(hours * HOUR) // 8)
    world.ask("medic", {"subscribe": "patient_temperature is not very_low", "name": "any"})
    world.run(int(hours * HOUR))
    return world


def test_what_is_wanted_arrives_once_and_nobody_exceeds_their_share() -> None:
    world = play()
    air = world.air
    assert air is not None
    assert air.collided, "the air was never busy"
    assert air.missed
    assert find_excess(air) == []
    for device in world.devices.values():
        assert device.language.filter.count == 1, device.name
        late = {number for number, told in device.told.items() if told.time > world.now - HOUR / 4}
        assert device.told.keys() - late <= device.freed
        assert len(device.freed) > 20
    assert not world.people["medic"].again


def test_a_node_that_restarts_hears_the_devices_again() -> None:
    world = play(hours=0.5)
    before = {name: len(device.freed) for name, device in world.devices.items()}
    world.kill("north")
    world.run(HOUR)
    for name, device in world.devices.items():
        assert len(device.freed) > before[name], name


def test_a_device_that_restarts_gets_its_subscriptions_again() -> None:
    world = play(hours=0.5)
    world.kill_device("dog-3")
    world.run(HOUR)
    assert world.devices["dog-3"].language.filter.count == 1


def test_without_the_budget_a_station_exceeds_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AirBudget, "is_free", lambda *_: True)
    world = play(period=10_000, hours=0.5)
    assert world.air is not None
    assert find_excess(world.air)


def test_with_the_budget_the_same_readings_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[Any] = []
    spend = AirBudget.spend
    monkeypatch.setattr(AirBudget, "spend", lambda *a: (spent.append(a), spend(*a))[1])
    world = play(period=10_000, hours=0.5)
    assert world.air is not None
    assert len(spent) >= len(world.air.sent) > 50
    assert find_excess(world.air) == []


def test_without_begin_a_lost_subscription_stays_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that gives a message up must have the device begin anew."""

    def count_subscribed() -> int:
        seeds = range(1, 4)
        worlds = [play(loss=0.6, hours=1, seed=seed, period=1_200_000) for seed in seeds]
        devices = [device for world in worlds for device in world.devices.values()]
        return sum(device.language.filter.count for device in devices)

    assert count_subscribed() == 18
    monkeypatch.setattr(RadioGateway, "begin", lambda *_: None)
    assert count_subscribed() < 18
