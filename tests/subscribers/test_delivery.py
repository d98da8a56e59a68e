"""What subscribers get: content, reasons, order, and each of it once."""

from __future__ import annotations

import cbor2
import pytest
from denwatch.node.core.events import NOTES, PeerUp
from denwatch.node.core.items import (
    DELIVERED,
    DeliveredBody,
    Dot,
    decode_body,
)
from denwatch.node.core.subscriptions import SubscriberSettings

from tests.subscribers.wording import compile_words, show
from tests.subscribers.world import (
    DAY,
    START,
    World,
    list_ids,
    load,
    make_marks,
    make_note,
    make_subscription,
    patient,
)


def test_a_notification_is_told_with_units_degree_and_reason() -> None:
    world = World()
    world.ask("m", "patient_temperature is high and heart_rate is high, named fever, score 0.5")
    world.attach("m")
    item, published = world.read(
        patient(patient_temperature=39.0, heart_rate=124, triage="red", faults=("glucose",)),
    )
    note = load(published[0])
    assert published[0].token > 0
    assert published[0].qos == 1
    assert note["id"] == show(item.id)
    assert (note["event"], note["device"], note["node"]) == ("patient", "wd1", "a")
    assert note["values"]["patient_temperature"]["unit"] == "°C"
    assert note["values"]["patient_temperature"]["value"] == pytest.approx(39.0, abs=0.06)
    assert note["values"]["triage"] == {"value": "red"}
    assert note["faults"] == ["glucose"]
    assert 0.5 <= note["degree"] < 1
    assert note["why"]["attribute"] == "heart_rate"
    assert note["why"]["degree"] == note["degree"] == note["possible"] == note["certain"]
    assert "bpm fits to 0." in note["why"]["words"]
    assert note["subscription"] == "fever"
    assert note["at"] == "2027-01-15T08:00:00.000Z"
    assert note["expires"] == "2027-01-16T08:00:00.000Z"
    assert note["score"] == pytest.approx(0.5 * note["degree"], abs=0.002)


def test_an_uncertain_reading_is_possible_and_less_certain() -> None:
    world = World()
    world.ask("m", "patient_temperature above 39 °C")
    world.attach("m")
    _, published = world.read(patient(patient_temperature=(38.5, 38.9, 39.3, 39.7)))
    note = load(published[0])
    assert note["possible"] == 1
    assert note["certain"] < note["possible"]
    value = note["values"]["patient_temperature"]
    assert value["low"] < value["value"] < value["high"]


def test_the_reason_of_a_mean_is_its_least_predicate() -> None:
    world = World()
    world.ask("m", "heart_rate is high and pain is severe, by arithmetic mean, at least 0.4")
    world.attach("m")
    _, published = world.read(patient(heart_rate=180, pain=0))
    note = load(published[0])
    assert note["why"]["attribute"] == "pain"
    assert note["why"]["degree"] == 0
    assert note["degree"] == pytest.approx(0.5, abs=0.01)


def test_cbor_if_asked_for() -> None:
    world = World()
    world.ask("m", {"subscribe": "heart_rate is high", "format": "cbor"})
    world.attach("m")
    item, published = world.read(patient(heart_rate=190))
    assert cbor2.loads(published[0].payload)["id"] == show(item.id)


def test_typed_content_is_matched_too() -> None:
    world = World()
    reply = world.ask(
        "m",
        {"content": [["event", "=", "patient"], ["triage", "=", "red"], ["heart_rate", ">", 99]]},
    )
    assert reply["ok"]
    world.attach("m")
    assert world.read(patient(triage="green", heart_rate=180))[1] == []
    item, published = world.read(patient(triage="red", heart_rate=180))
    assert list_ids(published, "m") == [show(item.id)]
    assert load(published[0])["why"] is None
    world = world.reopen()
    assert list_ids(world.attach("m"), "m") == [show(item.id)]


def test_once_to_each_and_only_to_those_who_asked() -> None:
    world = World()
    world.ask("m", "heart_rate is high, named a")
    world.ask("m", "heart_rate above 100 bpm, named b")
    world.ask("n", "heart_rate is low")
    for name in ("m", "n", "stranger"):
        world.attach(name)
    item, published = world.read(patient(heart_rate=170))
    assert [p.topic for p in published] == [NOTES + "m"]
    assert sorted(load(published[0])["subscriptions"]) == ["a", "b"]
    assert world.subscribers.wanted(world.store, item.dot) == {"m": 255}
    assert world.ack(published[0]) == []
    assert world.subscribers.wanted(world.store, item.dot) == {}
    assert world.ack(published[0]) == []
    assert world.find_logs("duplicate")
    world.detach("m")
    assert world.attach("m") == []


def test_a_lost_link_sends_again_and_an_acknowledgement_ends_it() -> None:
    world = World()
    world.ask("m", "heart_rate is high")
    world.attach("m")
    item, _ = world.read(patient(heart_rate=170))
    world.detach("m")
    again = world.attach("m")
    assert list_ids(again, "m") == [show(item.id)]
    assert [log["attempt"] for log in world.find_logs("send")] == [1, 2]
    world.ack(again[0])
    world = world.reopen()
    assert world.attach("m") == []


def test_the_library_may_acknowledge_by_id() -> None:
    world = World(settings=SubscriberSettings(window=1))
    world.ask("m", "heart_rate is high")
    world.attach("m")
    first, published = world.read(patient(heart_rate=170))
    second, none = world.read(patient(heart_rate=170))
    third, _ = world.read(patient(heart_rate=170))
    assert none == []
    before = len(world.sent)
    assert world.ask("m", {"received": [show(first.id), second.id, 7]}) is None
    assert list_ids(world.sent[before:], "m") == [show(third.id)]
    world.ack(published[0])  # its token means nothing any more
    assert world.subscribers.wanted(world.store, third.dot) == {"m": 255}


def test_the_window_bounds_what_is_on_its_way_and_the_best_go_first() -> None:
    world = World(settings=SubscriberSettings(window=2))
    world.ask("m", "heart_rate is high")
    rates = [121, 133, 127, 139, 124, 130]
    items = {rate: world.read(patient(heart_rate=rate))[0] for rate in rates}
    matched = [rate for rate in rates if world.subscribers.wanted(world.store, items[rate].dot)]
    assert len(matched) > 3
    published = world.attach("m")
    assert len(published) == 2
    got = []
    while published:
        first = published.pop(0)
        got.append(load(first)["id"])
        following = world.ack(first)
        assert len(following) <= 1
        published += following
    degrees = [world_degree(world, int(id, 16)) for id in got]
    assert degrees == sorted(degrees, reverse=True)
    assert sorted(got) == sorted(show(items[r].id) for r in matched)


def world_degree(world: World, note: int) -> int:
    return max(int(log["possible"]) for log in world.find_logs("match") if log["note"] == note)


def test_of_equals_the_fresher_goes_first() -> None:
    world = World()
    world.ask("m", "heart_rate is high")
    ids = []
    for _ in range(4):
        world.now += 10
        ids.append(show(world.read(patient(heart_rate=180))[0].id))
    assert list_ids(world.attach("m"), "m") == ids[::-1]


def test_deliveries_are_told_in_one_item() -> None:
    world = World(settings=SubscriberSettings(is_announcing=False))
    world.ask("m", "heart_rate is high")
    world.attach("m")
    dots = []
    for _ in range(5):
        item, published = world.read(patient(heart_rate=180))
        dots.append(item.dot)
        world.ack(published[0])
    assert world.item_store.count(DELIVERED) == 0
    world = world.reopen()
    world.do(PeerUp("b"))
    marks = list(world.item_store.iterate(world.store, DELIVERED))
    assert len(marks) == 1
    assert sorted(decode_body(DeliveredBody, marks[0].body).dots) == sorted(dots)
    assert marks[0].expires == START + DAY
    assert not world.medium.spaces["sub.mark"]


def test_many_deliveries_are_told_before_a_tick() -> None:
    world = World(settings=SubscriberSettings(receipt_batch=3))
    world.ask("m", "heart_rate is high")
    world.attach("m")
    for _ in range(3):
        world.ack(world.read(patient(heart_rate=180))[1][0])
    assert world.item_store.count(DELIVERED) == 1


@pytest.mark.parametrize("is_mark_first", [True, False])
def test_what_another_node_delivered_is_not_delivered_here(is_mark_first: bool) -> None:
    world = World()
    world.ask("m", "heart_rate is high")
    world.ask("n", "heart_rate is high")
    note = make_note(world, patient(heart_rate=180), Dot("b", 1, 1), at=START + 5)
    marks = make_marks("m", [note.dot], Dot("b", 1, 2), note.expires)
    world.bring(*((marks, note) if is_mark_first else (note, marks)))
    assert world.subscribers.wanted(world.store, note.dot) == {"n": 255}
    assert not world.medium.spaces.get("sub.done")
    # A subscription of the same subscriber that comes later changes nothing.
    late = make_subscription(
        world, "m", compile_words("heart_rate above 90 bpm"), Dot("c", 1, 1), created=START
    )
    world.bring(late)
    world.tick()
    world = world.reopen()
    assert world.attach("m") == []
    assert list_ids(world.attach("n"), "n") == [show(note.id)]


def test_marks_of_what_never_came_are_forgotten_with_their_item() -> None:
    world = World()
    world.bring(make_marks("m", [Dot("b", 1, 1)], Dot("b", 1, 2), START + 1000))
    assert len(world.medium.spaces["sub.done"]) == 1
    world.tick(5000)
    assert not world.medium.spaces["sub.done"]
