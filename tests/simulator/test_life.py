"""What the world of a campaign is made of: subscriptions from the grammar, devices, people."""

from __future__ import annotations

from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError
from denwatch.client.language import parse
from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.events import DEVICES
from denwatch.protocol.vectors import NotificationVector, Reading

from examples.where_language.denwatch_where import LANGUAGE
from simulator.device import Sense
from simulator.evidence import rate_content
from simulator.person import LIBRARY, PLAIN
from simulator.requests import POOL, draw_request, drop_parts, find_terms
from simulator.world import CLEAN, KEPT_ALIVE, SILENT, World

MINUTE = 60_000
PULSE = Sense(1, (1,), period=5_000)


def build_world(*nodes: str) -> World:
    world = World(1, load_shipped("rescue"))
    world.has_wills = world.keeps_readings = True
    for name in nodes:
        world.add_node(name)
    return world


def is_listed(world: World, node: str, device: str) -> bool:
    devices = {each.name: each for each in world.hosts[node].devices.list_devices()}
    return devices[device].is_present


# Subscriptions ----------------------------------------------------------------------------------


def test_most_subscriptions_that_are_drawn_are_right() -> None:
    vocabulary = load_shipped("rescue")
    right = wrong = content = where = 0
    for number in range(POOL):
        request = draw_request(number)
        assert request == draw_request(number + POOL)
        if "content" in request:
            content += 1
            continue
        if "where" in request:
            LANGUAGE.look_up(request["where"], vocabulary)
            where += 1
            continue
        try:
            compile_subscription(parse(request["subscribe"]), vocabulary)
            right += 1
        except LanguageError:
            wrong += 1
    assert content > POOL / 20
    assert where > POOL / 25
    assert right > 8 * wrong > 0


def test_the_terms_of_a_subscription_are_found() -> None:
    assert find_terms({"subscribe": "pain is severe, top 3, expires after 20 s"}) == (3, 20_000)
    assert find_terms({"subscribe": "pain is severe"}) == (0, 0)
    assert find_terms({"content": [], "top": 2, "expiry": 30}) == (2, 30_000)


def test_a_subscription_gets_simpler_part_by_part() -> None:
    assert drop_parts({"subscribe": "pain is severe, top 3, why"}) == [
        {"subscribe": "pain is severe, why"},
        {"subscribe": "pain is severe, top 3"},
    ]
    assert drop_parts({"unsubscribe": "pain"}) == []


def test_typed_content_is_judged_by_possible_values_of_its_own_kind() -> None:
    event, pulse = ("event", "=", "patient"), ("heart_rate", ">", 100.5)
    readings = [Reading(1, (101,) * 4), Reading(8, (2,) * 4)]
    note = NotificationVector(1, readings)
    for rest in ([pulse], [("triage", "=", "red"), ("device", "=", "dog")]):
        assert rate_content(((event, *rest),), note, "dog") == 255
    for triples in ([event, ("triage", "!=", "red")], [event, ("triage", "<", 5)]):
        assert rate_content((tuple(triples),), note, "dog") == 0
    assert rate_content(((("event", "=", "fire"),),), note, "dog") == 0
    uncertain = NotificationVector(1, [Reading(1, (91, 99, 99, 103))])
    assert rate_content(((event, pulse),), uncertain, "dog") == 128  # 101 of 99 to 103


# Devices ----------------------------------------------------------------------------------------


def test_a_device_keeps_every_reading_whether_told_or_not() -> None:
    world = build_world("a")
    world.add_person("medic", "a")
    device = world.add_device("dog", "a", [Sense(1, (1,), period=5_000, accuracies={1: (2, 9)})])
    world.run(MINUTE)
    assert not device.told
    assert len(device.taken) == 13
    world.ask("medic", {"subscribe": "heart_rate above 0"})
    world.run(2 * MINUTE)
    told = [taken for taken in device.taken if taken.told is not None]
    assert {taken.told.vector[6:] for taken in told if taken.told} == {
        each.vector[6:] for each in device.told.values()
    }
    assert all(taken.node == "a" for taken in device.taken)
    assert all(taken.vector[1] & 2 for taken in told)  # with their accuracy


def test_a_device_that_sleeps_deeply_keeps_subscriptions_and_notifications() -> None:
    world = build_world("a")
    world.add_person("medic", "a")
    world.ask("medic", {"subscribe": "heart_rate above 0"})
    device = world.add_device("dog", "a", [PULSE])
    world.run(MINUTE)
    epoch, told = device.spool.epoch, len(device.told)
    world.move_device("dog", "")
    world.put_to_sleep("dog", 30_000)
    world.run(MINUTE + 29_000)
    assert not device.is_up
    assert len(device.told) == told
    world.run(2 * MINUTE)  # nobody has told it anything since
    assert device.spool.epoch == epoch, "its numbers go on"
    assert len(device.told) > told
    vectors = world.hosts["a"].counts["device_vectors"]
    world.move_device("dog", "a")
    world.run(3 * MINUTE + 1_000)
    assert world.hosts["a"].counts["device_vectors"] == vectors, "it has what it had"
    assert len(world.people["medic"].notes) == len(device.told)


def test_an_erased_device_begins_above_its_old_numbers() -> None:
    world = build_world("a")
    world.add_person("medic", "a")
    world.ask("medic", {"subscribe": "heart_rate above 0"})
    device = world.add_device("dog", "a", [PULSE])
    world.run(10_000)
    world.kill_device("dog", 1_000)
    world.run(20_000)
    assert device.spool.epoch == 2
    world.kill_device("dog", 1_000)
    device.erase()
    hellos = world.hosts["a"].counts["device_hellos"]
    world.run(MINUTE)
    host = world.hosts["a"]
    assert host.counts["device_refused.replay"] == 1
    assert host.counts["device_hellos"] == hellos + 1
    assert device.spool.epoch == 3
    world.run(2 * MINUTE)
    assert len(world.people["medic"].notes) == len(device.told_before) + len(device.told)


def test_a_server_notices_a_silent_end_late_and_a_goodbye_at_once() -> None:
    world = build_world("a", "b")
    device = world.add_device("dog", "a", [PULSE])
    world.run(10_000)
    assert is_listed(world, "a", "dog")
    world.move_device("dog", "b", SILENT)
    world.run(20_000)
    assert is_listed(world, "a", "dog")
    world.run(20_000 + KEPT_ALIVE)
    assert not is_listed(world, "a", "dog")
    assert is_listed(world, "b", "dog")
    world.move_device("dog", "a", CLEAN)  # no will is published for who said goodbye
    world.run(30_000 + KEPT_ALIVE)
    assert world.left == {("b", "dog"): world.left["b", "dog"]}
    assert ("b", "dog") in world.goodbyes
    assert device.uplink.will == (f"{DEVICES}dog/hello", b"")


# People -----------------------------------------------------------------------------------------


def test_our_library_asks_again_where_it_goes_and_a_plain_client_does_not() -> None:
    world = build_world("a", "b")
    for name, client in (("app", LIBRARY), ("plain", PLAIN)):
        world.add_person(name, "a", client=client)
        world.ask(name, {"subscribe": "heart_rate above 100", "name": "pulse"})
    world.run(10_000)
    for name in ("app", "plain"):
        world.move_person(name, "b")
    world.run(20_000)
    asked = {name: [r.node for r in p.requests.values()] for name, p in world.people.items()}
    assert asked == {"app": ["a", "b"], "plain": ["a"]}
    world.move_person("app", "a")
    world.run(30_000)
    assert len(world.people["app"].requests) == 2
