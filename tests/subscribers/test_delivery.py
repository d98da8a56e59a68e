"""What subscribers get: content, order, once; what holds it back, and what does not."""

from __future__ import annotations

from collections.abc import Iterable

import cbor2
import pytest

from edge.client.compiler import compile_subscription
from edge.client.language import parse
from edge.client.vocabulary import load_shipped
from edge.dens.core.interface import NOTES, PeerUp
from edge.dens.core.items import (
    DELIVERED,
    NOTIFICATION,
    SUBSCRIPTION,
    VOCABULARY,
    DeliveredBody,
    Dot,
    decode_body,
)
from edge.dens.core.subscribers import SubscriberSettings
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


def compile_words(words: str) -> bytes:
    return compile_subscription(parse(words), load_shipped("rescue")).data


def show(item_id: int) -> str:
    return f"{item_id:016x}"


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
    world = world.restart()
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
    assert world.part.wanted(item.dot) == {"m": 255}
    assert world.ack(published[0]) == []
    assert world.part.wanted(item.dot) == {}
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
    world = world.restart()
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
    assert world.part.wanted(third.dot) == {"m": 255}


def test_the_window_bounds_what_is_on_its_way_and_the_best_go_first() -> None:
    world = World(settings=SubscriberSettings(window=2))
    world.ask("m", "heart_rate is high")
    rates = [121, 133, 127, 139, 124, 130]
    items = {rate: world.read(patient(heart_rate=rate))[0] for rate in rates}
    matched = [rate for rate in rates if world.part.wanted(items[rate].dot)]
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
    assert world.holdings.count(DELIVERED) == 0
    world = world.restart()
    world.do(PeerUp("b"))
    marks = list(world.holdings.iterate(DELIVERED))
    assert len(marks) == 1
    assert sorted(decode_body(DeliveredBody, marks[0].body).dots) == sorted(dots)
    assert marks[0].expires == START + DAY
    assert not world.disk.spaces["sub.mark"]


def test_many_deliveries_are_told_before_a_tick() -> None:
    world = World(settings=SubscriberSettings(mark_batch=3))
    world.ask("m", "heart_rate is high")
    world.attach("m")
    for _ in range(3):
        world.ack(world.read(patient(heart_rate=180))[1][0])
    assert world.holdings.count(DELIVERED) == 1


@pytest.mark.parametrize("is_mark_first", [True, False])
def test_what_another_node_delivered_is_not_delivered_here(is_mark_first: bool) -> None:
    world = World()
    world.ask("m", "heart_rate is high")
    world.ask("n", "heart_rate is high")
    note = make_note(world, patient(heart_rate=180), Dot("b", 1, 1), at=START + 5)
    marks = make_marks("m", [note.dot], Dot("b", 1, 2), note.expires)
    world.bring(*((marks, note) if is_mark_first else (note, marks)))
    assert world.part.wanted(note.dot) == {"n": 255}
    assert not world.disk.spaces.get("sub.done")
    # A subscription of the same subscriber that comes later changes nothing.
    late = make_subscription(
        world, "m", compile_words("heart_rate above 90 bpm"), Dot("c", 1, 1), created=START
    )
    world.bring(late)
    world.tick()
    world = world.restart()
    assert world.attach("m") == []
    assert list_ids(world.attach("n"), "n") == [show(note.id)]


def test_marks_of_what_never_came_are_forgotten_with_their_item() -> None:
    world = World()
    world.bring(make_marks("m", [Dot("b", 1, 1)], Dot("b", 1, 2), START + 1000))
    assert len(world.disk.spaces["sub.done"]) == 1
    world.tick(5000)
    assert not world.disk.spaces["sub.done"]


def test_what_expired_is_not_delivered() -> None:
    world = World()
    world.ask("m", "heart_rate is high")
    world.ask("q", "heart_rate is high, expires after 10 s")
    world.read(patient(heart_rate=180), life=60_000)
    world.now += 30_000
    assert world.attach("q") == []
    assert world.find_logs("suppress")[-1]["reason"] == "expired"
    world.now += 30_000
    assert world.attach("m") == []


def test_recent_is_judged_when_it_is_delivered() -> None:
    world = World()
    world.ask("m", "heart_rate is high, in the last 30 s fading until 2 min")
    world.read(patient(heart_rate=180))
    world.now += 60_000
    assert 0.5 < load(world.attach("m")[0])["degree"] < 1
    world.detach("m")
    world.read(patient(heart_rate=180))
    world.now += 119_000
    resent = [load(p) for p in world.attach("m")]
    assert len(resent) == 1  # the first, which was decided; the second is too old by now
    assert world.find_logs("suppress")[-1]["reason"] == "expired"


def test_a_subscription_from_elsewhere_finds_what_is_held_and_not_older() -> None:
    world = World(settings=SubscriberSettings(catch_up=1))
    old, _ = world.read(patient(heart_rate=180), at=START - 1)
    new, _ = world.read(patient(heart_rate=180), at=START)
    newer, _ = world.read(patient(heart_rate=180), at=START + 1)
    vector = compile_words("heart_rate is high")
    world.bring(make_subscription(world, "m", vector, Dot("b", 1, 1), created=START))
    assert len(world.disk.spaces["sub.late"]) == 1
    world.attach("m")
    world.tick()
    world.now -= 1000
    world = world.restart()  # in the middle of it
    published = world.attach("m")
    for _ in range(5):
        published += world.tick(1)
    assert sorted(set(list_ids(published, "m"))) == sorted([show(new.id), show(newer.id)])
    assert world.part.wanted(old.dot) == {}
    assert not world.disk.spaces["sub.late"]


def test_doubt_about_the_time_counts_for_the_subscriber() -> None:
    world = World()
    world.ask("m", "heart_rate is high")
    world.attach("m")
    assert world.read(patient(heart_rate=180), at=START - 5, doubt=4)[1] == []
    assert len(world.read(patient(heart_rate=180), at=START - 5, doubt=5)[1]) == 1


def test_matches_of_an_expired_subscription_still_arrive_and_of_a_removed_one_not() -> None:
    world = World()
    world.ask("m", "heart_rate is high, valid for 60 s, named a")
    world.ask("n", "heart_rate is high, named a")
    world.ask("r", "heart_rate is high, named a")
    item, _ = world.read(patient(heart_rate=180))
    world.tick(100_000)
    assert world.holdings.count(SUBSCRIPTION) == 2
    world.ask("n", "unsubscribe a")
    world.ask("r", "glucose is low, named a")
    world.read(patient(heart_rate=180))  # for nobody
    world = world.restart()
    assert list_ids(world.attach("m"), "m") == [show(item.id)]
    assert world.attach("n") == []
    assert list_ids(world.attach("r"), "r") == [show(item.id)]
    world.tick(8 * DAY)
    assert not world.disk.spaces["sub.ended"]


def test_of_two_subscriptions_of_one_name_the_newer_stays() -> None:
    world = World()
    world.ask("m", "heart_rate is high, named a")
    vector = compile_words("pain is severe")
    world.bring(
        make_subscription(world, "m", vector, Dot("b", 1, 1), created=START - 9, name="a"),
        make_subscription(world, "m", vector, Dot("b", 1, 2), created=START + 9, name="a"),
    )
    world.tick()
    assert [row["origin"] for row in world.ask("m", "list")["subscriptions"]] == ["b"]
    assert world.part.count_subscriptions() == 1


def test_top_k_holds_back_and_survives_a_restart() -> None:
    world = World()
    world.ask("m", "heart_rate is high, top 1, named best")
    world.attach("m")
    _, published = world.read(patient(heart_rate=130))
    world.ack(published[0])
    world = world.restart()
    world.attach("m")
    lower, published = world.read(patient(heart_rate=124))
    assert published == []
    assert world.find_logs("suppress")[-1]["reason"] == "top-k"
    assert world.part.wanted(lower.dot) == {}
    assert len(world.read(patient(heart_rate=180))[1]) == 1
    world.ask("m", "heart_rate above 100 bpm, named all")  # has no top
    _, published = world.read(patient(heart_rate=124))
    assert load(published[0])["subscriptions"] == ["all"]


def test_dead_band_and_quiet_time_hold_for_each_device() -> None:
    world = World()
    world.ask("m", "heart_rate is high, dead band 10 bpm, heartbeat 5 min, named band")
    world.ask("n", "heart_rate is high, quiet for 1 min")
    world.ask("o", "heart_rate is high")
    for name in "mno":
        world.attach(name)

    def told(rate: int, ms: int, device: str = "wd1") -> str:
        world.now += ms
        _, published = world.read(patient(heart_rate=rate), device=device)
        for publish in published:
            world.ack(publish)
        return "".join(sorted(p.topic[-1] for p in published))

    assert told(150, 0) == "mno"
    assert told(152, 1000) == "o"
    assert told(152, 1000, "wd2") == "mno"
    world = world.restart()
    for name in "mno":
        world.attach(name)
    assert told(170, 30_000) == "mo"
    assert told(171, 40_000) == "no"
    assert told(171, 290_000) == "mno"  # the heartbeat
    assert {log["reason"] for log in world.find_logs("suppress")} == {"quiet"}
    world.ask("m", "unsubscribe band")
    assert len(world.disk.spaces["sub.last"]) == 2  # the other subscription's, two devices


class Medics:
    """Patients' data is for medics; others see where they are."""

    def role_of(self, owner: str) -> str:
        return "medic" if owner.startswith("medic") else "crew"

    def check(self, role: str, event: str, attributes: Iterable[str]) -> object | None:
        for name in attributes:
            if role != "medic" and name not in ("triage", "east", "north"):
                return f"role {role} may not see {event}.{name}"
        return None


def test_a_role_is_checked_when_asked_and_when_delivered() -> None:
    world = World(roles=Medics())
    refusal = world.ask("driver", "heart_rate is high")
    assert refusal == {"ok": False, "error": "role crew may not see patient.heart_rate", "at": None}
    assert world.ask("driver", "triage = red")["ok"]
    assert world.ask("medic1", "triage = red")["ok"]
    vector = compile_words("heart_rate is high")
    world.bring(make_subscription(world, "spy", vector, Dot("b", 1, 1), created=START, role="crew"))
    for name in ("driver", "medic1", "spy"):
        world.attach(name)
    _, published = world.read(patient(triage="red", heart_rate=180, faults=("glucose",)))
    notes = {p.topic[len(NOTES) :]: load(p) for p in published}
    assert set(notes) == {"driver", "medic1"}
    assert set(notes["driver"]["values"]) == {"triage"}
    assert "faults" not in notes["driver"]
    assert set(notes["medic1"]["values"]) == {"triage", "heart_rate"}
    suppressed = world.find_logs("suppress")[-1]
    assert (suppressed["owner"], suppressed["reason"]) == ("spy", "role")


def test_a_full_node_drops_what_is_worth_least_not_what_is_oldest() -> None:
    world = World(settings=SubscriberSettings(held_limit=3, is_announcing=False))
    world.ask("m", "heart_rate is high")
    oldest, _ = world.read(patient(heart_rate=200))
    weak, _ = world.read(patient(heart_rate=124))
    unwanted, _ = world.read(patient(heart_rate=60))
    ending, _ = world.read(patient(heart_rate=200), life=10_000)
    strong, _ = world.read(patient(heart_rate=200))
    assert 0 < world.part.degree(weak.dot) < 255
    assert world.part.is_full
    world.tick(9000)
    drops = world.find_logs("drop")
    assert [(d["item"], d["degree"]) for d in drops] == [(unwanted.id, 0), (ending.id, 255)]
    held = {item.id for item in world.holdings.iterate(NOTIFICATION)}
    assert held == {oldest.id, weak.id, strong.id}
    assert len(list_ids(world.attach("m"), "m")) == 3


def test_notifications_that_all_have_are_kept_unless_the_node_is_told_to_let_go() -> None:
    for after, left in ((None, 1), (5000, 0)):
        world = World(settings=SubscriberSettings(purge_after=after))
        world.ask("m", "heart_rate is high")
        world.attach("m")
        _, published = world.read(patient(heart_rate=180))
        world.ack(published[0])
        world.tick(4000)
        assert world.holdings.count(NOTIFICATION) == 1
        world.tick(2000)
        assert world.holdings.count(NOTIFICATION) == left
        assert len(world.disk.spaces["sub.want"]) == left


def test_the_own_vocabulary_is_told_once_and_others_are_learnt() -> None:
    world = World()
    world.tick()
    world.tick()
    world = world.restart()
    world.tick()
    assert world.holdings.count(VOCABULARY) == 1
    other = World(vocabulary=load_shipped("weather"))
    other.bring(*world.holdings.iterate(VOCABULARY))
    assert world.vocabularies.own_hash in other.vocabularies
    other = other.restart()
    assert world.vocabularies.own_hash in other.vocabularies
    assert other.vocabularies.find_event(world.vocabularies.own_hash, 1) is not None
