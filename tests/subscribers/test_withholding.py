"""What is not delivered, or not yet: expiry, removal, top-k, quiet time, roles, a full node."""

from __future__ import annotations

from collections.abc import Iterable

from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.events import NOTES
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    VOCABULARY,
    Dot,
)
from denwatch.node.core.subscriptions import SubscriberSettings

from tests.subscribers.wording import compile_words, show
from tests.subscribers.world import (
    DAY,
    START,
    World,
    list_ids,
    load,
    make_subscription,
    patient,
)


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
    assert len(world.medium.spaces["sub.late"]) == 1
    world.attach("m")
    world.tick()
    world.now -= 1000
    world = world.reopen()  # in the middle of it
    published = world.attach("m")
    for _ in range(5):
        published += world.tick(1)
    assert sorted(set(list_ids(published, "m"))) == sorted([show(new.id), show(newer.id)])
    assert world.subscribers.wanted(world.store, old.dot) == {}
    assert not world.medium.spaces["sub.late"]


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
    assert world.item_store.count(SUBSCRIPTION) == 2
    world.ask("n", "unsubscribe a")
    world.ask("r", "glucose is low, named a")
    world.read(patient(heart_rate=180))  # for nobody
    world = world.reopen()
    assert list_ids(world.attach("m"), "m") == [show(item.id)]
    assert world.attach("n") == []
    assert list_ids(world.attach("r"), "r") == [show(item.id)]
    world.tick(8 * DAY)
    assert not world.medium.spaces["sub.ended"]


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
    assert world.subscribers.count_subscriptions() == 1


def test_top_k_holds_back_and_survives_a_restart() -> None:
    world = World()
    world.ask("m", "heart_rate is high, top 1, named best")
    world.attach("m")
    _, published = world.read(patient(heart_rate=130))
    world.ack(published[0])
    world = world.reopen()
    world.attach("m")
    lower, published = world.read(patient(heart_rate=124))
    assert published == []
    assert world.find_logs("suppress")[-1]["reason"] == "top-k"
    assert world.subscribers.wanted(world.store, lower.dot) == {}
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
    world = world.reopen()
    for name in "mno":
        world.attach(name)
    assert told(170, 30_000) == "mo"
    assert told(171, 40_000) == "no"
    assert told(171, 290_000) == "mno"  # the heartbeat
    assert {log["reason"] for log in world.find_logs("suppress")} == {"quiet"}
    world.ask("m", "unsubscribe band")
    assert len(world.medium.spaces["sub.last"]) == 2  # the other subscription's, two devices


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
    assert 0 < max(world.subscribers.wanted(world.store, weak.dot).values()) < 255
    assert world.subscribers.is_full
    world.tick(9000)
    drops = world.find_logs("drop")
    assert [(d["item"], d["degree"]) for d in drops] == [(unwanted.id, 0), (ending.id, 255)]
    held = {item.id for item in world.item_store.iterate(world.store, NOTIFICATION)}
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
        assert world.item_store.count(NOTIFICATION) == 1
        world.tick(2000)
        assert world.item_store.count(NOTIFICATION) == left
        assert len(world.medium.spaces["sub.want"]) == left


def test_the_own_vocabulary_is_told_once_and_others_are_learnt() -> None:
    world = World()
    world.tick()
    world.tick()
    world = world.reopen()
    world.tick()
    assert world.item_store.count(VOCABULARY) == 1
    other = World(vocabulary=load_shipped("weather"))
    other.bring(*world.item_store.iterate(world.store, VOCABULARY))
    assert world.vocabularies.own_hash in other.vocabularies
    other = other.reopen()
    assert world.vocabularies.own_hash in other.vocabularies
    assert other.vocabularies.find_event(world.vocabularies.own_hash, 1) is not None
