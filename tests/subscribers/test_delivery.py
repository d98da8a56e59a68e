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

from tests.subscribers.subscriber_node import (
    DAY,
    START,
    SubscriberNode,
    list_ids,
    load,
    make_notification,
    make_receipts,
    make_subscription,
    patient,
)
from tests.subscribers.wording import compile_words, show


def test_a_notification_is_told_with_units_degree_and_reason() -> None:
    node = SubscriberNode()
    node.ask("m", "patient_temperature is high and heart_rate is high, named fever, score 0.5")
    node.attach("m")
    item, published = node.read(
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
    node = SubscriberNode()
    node.ask("m", "patient_temperature above 39 °C")
    node.attach("m")
    _, published = node.read(patient(patient_temperature=(38.5, 38.9, 39.3, 39.7)))
    note = load(published[0])
    assert note["possible"] == 1
    assert note["certain"] < note["possible"]
    value = note["values"]["patient_temperature"]
    assert value["low"] < value["value"] < value["high"]


def test_the_reason_of_a_mean_is_its_least_predicate() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high and pain is severe, by arithmetic mean, at least 0.4")
    node.attach("m")
    _, published = node.read(patient(heart_rate=180, pain=0))
    note = load(published[0])
    assert note["why"]["attribute"] == "pain"
    assert note["why"]["degree"] == 0
    assert note["degree"] == pytest.approx(0.5, abs=0.01)


def test_cbor_if_asked_for() -> None:
    node = SubscriberNode()
    node.ask("m", {"subscribe": "heart_rate is high", "format": "cbor"})
    node.attach("m")
    item, published = node.read(patient(heart_rate=190))
    assert cbor2.loads(published[0].payload)["id"] == show(item.id)


def test_typed_content_is_matched_too() -> None:
    node = SubscriberNode()
    reply = node.ask(
        "m",
        {"content": [["event", "=", "patient"], ["triage", "=", "red"], ["heart_rate", ">", 99]]},
    )
    assert reply["ok"]
    node.attach("m")
    assert node.read(patient(triage="green", heart_rate=180))[1] == []
    item, published = node.read(patient(triage="red", heart_rate=180))
    assert list_ids(published, "m") == [show(item.id)]
    assert load(published[0])["why"] is None
    node = node.reopen()
    assert list_ids(node.attach("m"), "m") == [show(item.id)]


def test_once_to_each_and_only_to_those_who_asked() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high, named a")
    node.ask("m", "heart_rate above 100 bpm, named b")
    node.ask("n", "heart_rate is low")
    for name in ("m", "n", "stranger"):
        node.attach(name)
    item, published = node.read(patient(heart_rate=170))
    assert [p.topic for p in published] == [NOTES + "m"]
    assert sorted(load(published[0])["subscriptions"]) == ["a", "b"]
    assert node.subscribers.wanted(node.store, item.dot) == {"m": 255}
    assert node.ack(published[0]) == []
    assert node.subscribers.wanted(node.store, item.dot) == {}
    assert node.ack(published[0]) == []
    assert node.find_logs("duplicate")
    node.detach("m")
    assert node.attach("m") == []


def test_a_lost_link_sends_again_and_an_acknowledgement_ends_it() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high")
    node.attach("m")
    item, _ = node.read(patient(heart_rate=170))
    node.detach("m")
    again = node.attach("m")
    assert list_ids(again, "m") == [show(item.id)]
    assert [log["attempt"] for log in node.find_logs("send")] == [1, 2]
    node.ack(again[0])
    node = node.reopen()
    assert node.attach("m") == []


def test_the_library_may_acknowledge_by_id() -> None:
    node = SubscriberNode(settings=SubscriberSettings(window=1))
    node.ask("m", "heart_rate is high")
    node.attach("m")
    first, published = node.read(patient(heart_rate=170))
    second, none = node.read(patient(heart_rate=170))
    third, _ = node.read(patient(heart_rate=170))
    assert none == []
    before = len(node.sent)
    assert node.ask("m", {"received": [show(first.id), second.id, 7]}) is None
    assert list_ids(node.sent[before:], "m") == [show(third.id)]
    node.ack(published[0])  # its token means nothing any more
    assert node.subscribers.wanted(node.store, third.dot) == {"m": 255}


def test_the_window_bounds_what_is_on_its_way_and_the_best_go_first() -> None:
    node = SubscriberNode(settings=SubscriberSettings(window=2))
    node.ask("m", "heart_rate is high")
    rates = [121, 133, 127, 139, 124, 130]
    items = {rate: node.read(patient(heart_rate=rate))[0] for rate in rates}
    matched = [rate for rate in rates if node.subscribers.wanted(node.store, items[rate].dot)]
    assert len(matched) > 3
    published = node.attach("m")
    assert len(published) == 2
    got = []
    while published:
        first = published.pop(0)
        got.append(load(first)["id"])
        following = node.ack(first)
        assert len(following) <= 1
        published += following
    degrees = [world_degree(node, int(id, 16)) for id in got]
    assert degrees == sorted(degrees, reverse=True)
    assert sorted(got) == sorted(show(items[r].id) for r in matched)


def world_degree(node: SubscriberNode, note: int) -> int:
    return max(int(log["possible"]) for log in node.find_logs("match") if log["note"] == note)


def test_of_equals_the_fresher_goes_first() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high")
    ids = []
    for _ in range(4):
        node.now += 10
        ids.append(show(node.read(patient(heart_rate=180))[0].id))
    assert list_ids(node.attach("m"), "m") == ids[::-1]


def test_deliveries_are_told_in_one_item() -> None:
    node = SubscriberNode(settings=SubscriberSettings(is_announcing=False))
    node.ask("m", "heart_rate is high")
    node.attach("m")
    dots = []
    for _ in range(5):
        item, published = node.read(patient(heart_rate=180))
        dots.append(item.dot)
        node.ack(published[0])
    assert node.item_store.count(DELIVERED) == 0
    node = node.reopen()
    node.do(PeerUp("b"))
    marks = list(node.item_store.iterate(node.store, DELIVERED))
    assert len(marks) == 1
    assert sorted(decode_body(DeliveredBody, marks[0].body).dots) == sorted(dots)
    assert marks[0].expires == START + DAY
    assert not node.medium.spaces["sub.mark"]


def test_many_deliveries_are_told_before_a_tick() -> None:
    node = SubscriberNode(settings=SubscriberSettings(receipt_batch=3))
    node.ask("m", "heart_rate is high")
    node.attach("m")
    for _ in range(3):
        node.ack(node.read(patient(heart_rate=180))[1][0])
    assert node.item_store.count(DELIVERED) == 1


@pytest.mark.parametrize("is_mark_first", [True, False])
def test_what_another_node_delivered_is_not_delivered_here(is_mark_first: bool) -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high")
    node.ask("n", "heart_rate is high")
    note = make_notification(node, patient(heart_rate=180), Dot("b", 1, 1), at=START + 5)
    marks = make_receipts("m", [note.dot], Dot("b", 1, 2), note.expires)
    node.bring(*((marks, note) if is_mark_first else (note, marks)))
    assert node.subscribers.wanted(node.store, note.dot) == {"n": 255}
    assert not node.medium.spaces.get("sub.done")
    # A subscription of the same subscriber that comes later changes nothing.
    late = make_subscription(
        node, "m", compile_words("heart_rate above 90 bpm"), Dot("c", 1, 1), created=START
    )
    node.bring(late)
    node.tick()
    node = node.reopen()
    assert node.attach("m") == []
    assert list_ids(node.attach("n"), "n") == [show(note.id)]


def test_marks_of_what_never_came_are_forgotten_with_their_item() -> None:
    node = SubscriberNode()
    node.bring(make_receipts("m", [Dot("b", 1, 1)], Dot("b", 1, 2), START + 1000))
    assert len(node.medium.spaces["sub.done"]) == 1
    node.tick(5000)
    assert not node.medium.spaces["sub.done"]
