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

from tests.subscribers.subscriber_node import (
    DAY,
    START,
    SubscriberNode,
    list_ids,
    load,
    make_subscription,
    patient,
)
from tests.subscribers.wording import compile_words, show


def test_what_expired_is_not_delivered() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high")
    node.ask("q", "heart_rate is high, in the last 10 s")
    node.read(patient(heart_rate=180), life=60_000)
    node.now += 30_000
    assert node.attach("q") == []
    assert node.find_logs("suppress")[-1]["reason"] == "expired"
    node.now += 30_000
    assert node.attach("m") == []


def test_how_long_it_is_valid_counts_from_the_decision_and_is_shown() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high, expires after 10 s")
    node.read(patient(heart_rate=180), life=60_000)
    node.now += 30_000
    (published,) = node.attach("m")
    assert load(published)["at"] == "2027-01-15T08:00:00.000Z"
    assert load(published)["expires"] == "2027-01-15T08:00:40.000Z"


def test_recent_is_judged_when_it_is_delivered() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high, in the last 30 s fading until 2 min")
    node.read(patient(heart_rate=180))
    node.now += 60_000
    assert 0.5 < load(node.attach("m")[0])["degree"] < 1
    node.detach("m")
    node.read(patient(heart_rate=180))
    node.now += 119_000
    resent = [load(p) for p in node.attach("m")]
    assert len(resent) == 1  # the first, which was decided; the second is too old by now
    assert node.find_logs("suppress")[-1]["reason"] == "expired"


def test_a_subscription_from_elsewhere_finds_what_is_held_and_not_older() -> None:
    node = SubscriberNode(settings=SubscriberSettings(catch_up=1))
    old, _ = node.read(patient(heart_rate=180), at=START - 1)
    new, _ = node.read(patient(heart_rate=180), at=START)
    newer, _ = node.read(patient(heart_rate=180), at=START + 1)
    vector = compile_words("heart_rate is high")
    node.bring(make_subscription(node, "m", vector, Dot("b", 1, 1), created=START))
    assert len(node.medium.spaces["sub.late"]) == 1
    node.attach("m")
    node.tick()
    node.now -= 1000
    node = node.reopen()  # in the middle of it
    published = node.attach("m")
    for _ in range(5):
        published += node.tick(1)
    assert sorted(set(list_ids(published, "m"))) == sorted([show(new.id), show(newer.id)])
    assert node.subscribers.wanted(node.store, old.dot) == {}
    assert not node.medium.spaces["sub.late"]


def test_doubt_about_the_time_counts_for_the_subscriber() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high")
    node.attach("m")
    assert node.read(patient(heart_rate=180), at=START - 5, doubt=4)[1] == []
    assert len(node.read(patient(heart_rate=180), at=START - 5, doubt=5)[1]) == 1


def test_matches_of_an_expired_subscription_still_arrive_and_of_a_removed_one_not() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high, valid for 60 s, named a")
    node.ask("n", "heart_rate is high, named a")
    node.ask("r", "heart_rate is high, named a")
    item, _ = node.read(patient(heart_rate=180))
    node.tick(100_000)
    assert node.item_store.count(SUBSCRIPTION) == 2
    node.ask("n", "unsubscribe a")
    node.ask("r", "glucose is low, named a")
    node.read(patient(heart_rate=180))  # for nobody
    node = node.reopen()
    assert list_ids(node.attach("m"), "m") == [show(item.id)]
    assert node.attach("n") == []
    assert list_ids(node.attach("r"), "r") == [show(item.id)]
    node.tick(8 * DAY)
    assert not node.medium.spaces["sub.ended"]


def test_of_two_subscriptions_of_one_name_the_newer_stays() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high, named a")
    vector = compile_words("pain is severe")
    node.bring(
        make_subscription(node, "m", vector, Dot("b", 1, 1), created=START - 9, name="a"),
        make_subscription(node, "m", vector, Dot("b", 1, 2), created=START + 9, name="a"),
    )
    node.tick()
    assert [row["origin"] for row in node.ask("m", "list")["subscriptions"]] == ["b"]
    assert node.subscribers.count_subscriptions() == 1


def test_top_k_holds_back_and_survives_a_restart() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high, top 1, named best")
    node.attach("m")
    _, published = node.read(patient(heart_rate=130))
    node.ack(published[0])
    node = node.reopen()
    node.attach("m")
    lower, published = node.read(patient(heart_rate=124))
    assert published == []
    assert node.find_logs("suppress")[-1]["reason"] == "top-k"
    assert node.subscribers.wanted(node.store, lower.dot) == {}
    assert len(node.read(patient(heart_rate=180))[1]) == 1
    node.ask("m", "heart_rate above 100 bpm, named all")  # has no top
    _, published = node.read(patient(heart_rate=124))
    assert load(published[0])["subscriptions"] == ["all"]


def test_dead_band_and_quiet_time_hold_for_each_device() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high, dead band 10 bpm, heartbeat 5 min, named band")
    node.ask("n", "heart_rate is high, quiet for 1 min")
    node.ask("o", "heart_rate is high")
    for name in "mno":
        node.attach(name)

    def told(rate: int, ms: int, device: str = "wd1") -> str:
        node.now += ms
        _, published = node.read(patient(heart_rate=rate), device=device)
        for publish in published:
            node.ack(publish)
        return "".join(sorted(p.topic[-1] for p in published))

    assert told(150, 0) == "mno"
    assert told(152, 1000) == "o"
    assert told(152, 1000, "wd2") == "mno"
    node = node.reopen()
    for name in "mno":
        node.attach(name)
    assert told(170, 30_000) == "mo"
    assert told(171, 40_000) == "no"
    assert told(171, 290_000) == "mno"  # the heartbeat
    assert {log["reason"] for log in node.find_logs("suppress")} == {"quiet"}
    node.ask("m", "unsubscribe band")
    assert len(node.medium.spaces["sub.last"]) == 2  # the other subscription's, two devices


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
    node = SubscriberNode(roles=Medics())
    refusal = node.ask("driver", "heart_rate is high")
    assert refusal == {"ok": False, "error": "role crew may not see patient.heart_rate", "at": None}
    assert node.ask("driver", "triage = red")["ok"]
    assert node.ask("medic1", "triage = red")["ok"]
    vector = compile_words("heart_rate is high")
    node.bring(make_subscription(node, "spy", vector, Dot("b", 1, 1), created=START, role="crew"))
    for name in ("driver", "medic1", "spy"):
        node.attach(name)
    _, published = node.read(patient(triage="red", heart_rate=180, faults=("glucose",)))
    notes = {p.topic[len(NOTES) :]: load(p) for p in published}
    assert set(notes) == {"driver", "medic1"}
    assert set(notes["driver"]["values"]) == {"triage"}
    assert "faults" not in notes["driver"]
    assert set(notes["medic1"]["values"]) == {"triage", "heart_rate"}
    suppressed = node.find_logs("suppress")[-1]
    assert (suppressed["owner"], suppressed["reason"]) == ("spy", "role")


def test_a_full_node_drops_what_is_worth_least_not_what_is_oldest() -> None:
    node = SubscriberNode(settings=SubscriberSettings(held_limit=3, is_announcing=False))
    node.ask("m", "heart_rate is high")
    oldest, _ = node.read(patient(heart_rate=200))
    weak, _ = node.read(patient(heart_rate=124))
    unwanted, _ = node.read(patient(heart_rate=60))
    ending, _ = node.read(patient(heart_rate=200), life=10_000)
    strong, _ = node.read(patient(heart_rate=200))
    assert 0 < max(node.subscribers.wanted(node.store, weak.dot).values()) < 255
    assert node.subscribers.is_full
    node.tick(9000)
    drops = node.find_logs("drop")
    assert [(d["item"], d["degree"]) for d in drops] == [(unwanted.id, 0), (ending.id, 255)]
    held = {item.id for item in node.item_store.iterate(node.store, NOTIFICATION)}
    assert held == {oldest.id, weak.id, strong.id}
    assert len(list_ids(node.attach("m"), "m")) == 3


def test_notifications_that_all_have_are_kept_unless_the_node_is_told_to_let_go() -> None:
    for after, left in ((None, 1), (5000, 0)):
        node = SubscriberNode(settings=SubscriberSettings(purge_after=after))
        node.ask("m", "heart_rate is high")
        node.attach("m")
        _, published = node.read(patient(heart_rate=180))
        node.ack(published[0])
        node.tick(4000)
        assert node.item_store.count(NOTIFICATION) == 1
        node.tick(2000)
        assert node.item_store.count(NOTIFICATION) == left
        assert len(node.medium.spaces["sub.want"]) == left


def test_the_own_vocabulary_is_told_once_and_others_are_learnt() -> None:
    node = SubscriberNode()
    node.tick()
    node.tick()
    node = node.reopen()
    node.tick()
    assert node.item_store.count(VOCABULARY) == 1
    other = SubscriberNode(vocabulary=load_shipped("weather"))
    other.bring(*node.item_store.iterate(node.store, VOCABULARY))
    assert node.vocabularies.own_hash in other.vocabularies
    other = other.reopen()
    assert node.vocabularies.own_hash in other.vocabularies
    assert other.vocabularies.find_event(node.vocabularies.own_hash, 1) is not None
