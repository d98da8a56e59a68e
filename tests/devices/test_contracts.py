"""The devices' protocol with the real vocabulary and the real keys."""

from __future__ import annotations

from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.notifications import Vocabularies, list_sensed, shorten_hash

from tests.devices.device_node import DeviceNode, Watchdog, meet


def test_a_vocabulary_says_what_can_be_sensed() -> None:
    rescue = load_shipped("rescue")
    senses = list_sensed(rescue)
    for event in rescue.events.values():
        features, wides = senses[event.number]
        assert features.bit_count() == len(event.attributes)
        for attribute in event.attributes.values():
            assert features >> attribute.bit & 1
            assert bool(wides >> attribute.bit & 1) == attribute.wide


def test_vocabularies_are_found_when_they_are_there() -> None:
    rescue = load_shipped("rescue")
    hash = shorten_hash(rescue)
    vocabularies = Vocabularies(load_shipped("weather"))
    assert vocabularies.find_sensed(hash) is None
    vocabularies.add(rescue)
    assert vocabularies.find_sensed(hash) == list_sensed(rescue)
    assert vocabularies.agree(hash, hash, 1, 1)
    assert not vocabularies.agree(hash, vocabularies.own_hash, 1, 1)


def test_a_device_of_the_shipped_vocabulary_is_welcome() -> None:
    rescue = load_shipped("rescue")
    hash = shorten_hash(rescue)
    node = DeviceNode()
    node.vocabularies.known[hash] = list_sensed(rescue)
    watchdog = Watchdog(list_sensed(rescue), vocabulary=hash, capacity=4096)
    meet(node, watchdog)
    assert node.devices.list_devices()[0].vocabulary == hash
