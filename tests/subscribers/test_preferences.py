"""The best of all of a person's subscriptions: by words and JSON, over windows, after walking."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from denwatch.node.core.events import NOTES, PeerUp
from denwatch.node.core.items import (
    DELIVERED,
    NOTIFICATION,
    PREFERENCE,
    SUBSCRIPTION,
    DeliveredBody,
    Item,
    decode_body,
    encode_body,
)

from simulator.keys import Roster
from tests.subscribers.preference_oracle import PersonOracle
from tests.subscribers.subscriber_node import SubscriberNode, list_ids, load, patient

MINUTE = 60_000
HISTORIES = 300
COLOURS = ("green", "yellow", "red", "black")


def ask_colour(node: SubscriberNode, colour: str, score: float, **options: Any) -> Any:
    content = [["event", "=", "patient"], ["triage", "=", colour]]
    reply = node.ask("m", {"content": content, "score": score, "name": colour, **options})
    assert reply["ok"]
    return reply


def see(node: SubscriberNode, **values: Any) -> bool:
    """Let a patient be read; return whether the person got it, and acknowledge it."""
    _, published = node.read(patient(**values))
    notes = [each for each in published if each.topic == NOTES + "m"]
    for note in notes:
        node.ack(note)
    return bool(notes)


def make_two() -> tuple[SubscriberNode, SubscriberNode]:
    roster = Roster()
    roster.nodes = {"a": None, "b": None}
    return tuple(SubscriberNode(name=name, roster=roster) for name in "ab")  # type: ignore[return-value]


def tell(one: SubscriberNode, other: SubscriberNode, kinds: tuple[int, ...] = ()) -> None:
    """Let a node give another one what it has and the other lacks: receipts first."""
    one.do(PeerUp(other.name))
    for kind in kinds or (DELIVERED, PREFERENCE, SUBSCRIPTION):
        for item in list(one.item_store.iterate(one.store, kind)):
            if not other.item_store.context.holds(*item.dot):
                other.now = one.now
                other.bring(item if item.signature else one.item_store.sign(item))


def walk(one: SubscriberNode, other: SubscriberNode) -> None:
    one.detach("m")
    tell(one, other)
    other.now = one.now
    other.attach("m")


@pytest.mark.parametrize(
    ("words", "english"),
    [
        ("meine besten 3", "my top 3"),
        ("Meine besten 3 der letzten 20 Meldungen", "my top 3 of the last 20"),
        (
            "meine besten 3 der letzten 10 Minuten, nach Mittelwert",
            "my top 3 of the last 600 s, by mean",
        ),
        ("meine besten 5, verblassend über 1 Stunde", "my top 5, fading over 3600 s"),
        ("meine besten 5 nach den speziellsten", "my top 5, by most specific"),
        ("meine besten aus", "my top off"),
    ],
)
def test_german_words_mean_the_same(words: str, english: str) -> None:
    node = SubscriberNode()
    assert node.ask("m", words)["understood"] == english
    assert node.ask("m", english)["understood"] == english


@pytest.mark.parametrize("words", ["my top 2", {"my_top": 2}, {"my_top": {"top": 2}}])
def test_figure_5(words: Any) -> None:
    """Comedies 0.9, dramas 0.8, top 2, no expiry: n4 to n6 never come."""
    node = SubscriberNode()
    ask_colour(node, "red", 0.9)
    ask_colour(node, "yellow", 0.8)
    assert node.ask("m", words)["understood"] == "my top 2"
    node.attach("m")
    colours = ("red", "yellow", "red", "yellow", "yellow", "yellow", "red")
    assert [see(node, triage=colour) for colour in colours] == [1, 1, 1, 0, 0, 0, 1]


def test_figure_6() -> None:
    """The same, and each counts for an hour: n4 to n6 come."""
    node = SubscriberNode()
    ask_colour(node, "red", 0.9, expiry=3600)
    ask_colour(node, "yellow", 0.8, expiry=3600)
    node.ask("m", "my top 2")
    node.attach("m")
    assert [see(node, triage=colour) for colour in ("red", "yellow", "red")] == [1, 1, 1]
    assert not see(node, triage="yellow")
    node.now += 61 * MINUTE
    assert [see(node, triage="yellow") for _ in range(3)] == [1, 1, 1]


def test_the_top_of_a_person_stands_beside_that_of_a_subscription() -> None:
    node = SubscriberNode()
    ask_colour(node, "red", 0.9, top=1)
    ask_colour(node, "yellow", 0.8)
    node.ask("m", "my top 2")
    node.attach("m")
    assert see(node, triage="yellow")
    assert see(node, triage="red")
    assert see(node, triage="yellow")  # one better one only
    assert see(node, triage="red")  # as good as the one before
    assert not see(node, triage="yellow")


def test_what_a_person_does_not_get_counts_for_no_subscription() -> None:
    """Refused over all subscriptions, it must not hold back others of its own."""
    node = SubscriberNode()
    node.ask("m", "heart_rate is rising(0, 200), at least 0.1, named pulse, score 0.5, top 1")
    ask_colour(node, "red", 1.0)
    node.ask("m", "my top 1 of the last 1 minute")
    node.attach("m")
    assert see(node, triage="red")
    assert not see(node, heart_rate=190)
    node.now += 2 * MINUTE
    assert see(node, heart_rate=60)


def test_priorities_decide_who_is_heard() -> None:
    node = SubscriberNode()
    ask_colour(node, "red", 0.1)
    ask_colour(node, "yellow", 0.9)
    node.ask("m", {"prefer": [["red", "yellow"]]})
    node.ask("m", "my top 1")
    node.attach("m")
    assert [see(node, triage=c) for c in ("yellow", "red", "yellow", "red")] == [1, 1, 0, 1]


def test_a_window_of_the_last_matches() -> None:
    node = SubscriberNode()
    ask_colour(node, "red", 0.9)
    ask_colour(node, "yellow", 0.8)
    node.ask("m", "my top 1 of the last 3")
    node.attach("m")
    colours = ("red", "yellow", "yellow", "yellow")
    assert [see(node, triage=colour) for colour in colours] == [1, 0, 0, 1]


def test_fading_gives_way_little_by_little() -> None:
    node = SubscriberNode()
    ask_colour(node, "red", 0.8)
    ask_colour(node, "yellow", 0.5)
    ask_colour(node, "green", 0.3)
    node.ask("m", "my top 1, fading over 10 minutes")
    node.attach("m")
    assert see(node, triage="red")
    node.now += 3 * MINUTE  # 0.56
    assert not see(node, triage="yellow")
    node.now += MINUTE  # 0.48
    assert not see(node, triage="green")
    assert see(node, triage="yellow")


@pytest.mark.parametrize(
    ("rule", "score"),
    [
        ("", 0.8),
        (", by mean", 0.6),
        (", by minimum", 0.4),
        (", by weighted sum, weight 0.5 for red", 0.8),
        (", by most specific", 0.4),
    ],
)
def test_several_subscriptions_make_one_score(rule: str, score: float) -> None:
    """The second is more specific than the first, as in the paper's example."""
    node = SubscriberNode()
    ask_colour(node, "red", 0.8)
    content = [["event", "=", "patient"], ["triage", "=", "red"], ["heart_rate", ">", 100]]
    node.ask("m", {"content": content, "score": 0.4, "name": "fast"})
    assert node.ask("m", f"my top 3{rule}")["ok"]
    node.attach("m")
    _, published = node.read(patient(triage="red", heart_rate=150))
    assert load(published[0])["score"] == pytest.approx(score)


def test_the_most_specific_of_fuzzy_subscriptions() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate above 100, named wide, score 0.9")
    node.ask("m", "heart_rate above 150, named narrow, score 0.2")
    node.ask("m", "my top 3, by most specific")
    node.attach("m")
    _, published = node.read(patient(heart_rate=200))
    assert load(published[0])["score"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ("my top", "a number or off"),
        ("meine besten", "a number or off"),
        ("meine besten 3 nach Laune", 'no combination "laune"'),
        ("my top 0", "top is a whole number"),
        ("my top 3 by median", 'no combination "median"'),
        ("my top 3, weight 2 for nothing", 'no subscription named "nothing"'),
        ("my top 3 of the last 5, of the last 5 min", "not of both"),
        ({"my_top": {"last": 3}}, '"top"'),
        ({"my_top": {"top": 3, "fading": -1}}, "fading is in seconds"),
        ({"my_top": {"top": 3, "odd": 1}}, "odd"),
        ({"my_top": "3 of the last few"}, "expected"),
        ({"my_top": [3]}, "takes a number"),
    ],
)
def test_a_wrong_preference_is_refused_and_changes_nothing(request_: Any, error: str) -> None:
    node = SubscriberNode()
    node.ask("m", "my top 7")
    reply = node.ask("m", request_)
    assert not reply["ok"]
    assert error in reply["error"]
    assert node.ask("m", "list")["my_top"] == "my top 7"


def test_it_is_listed_changed_and_ended() -> None:
    node = SubscriberNode()
    assert node.ask("m", "list")["my_top"] is None
    node.ask("m", {"my_top": {"top": 3, "within": "10 min", "by": "mean"}})
    assert node.ask("m", "list")["my_top"] == "my top 3 of the last 600 s, by mean"
    node = node.reopen()
    node.ask("m", "my top 1")
    assert node.ask("m", "list")["my_top"] == "my top 1"
    assert node.item_store.count(PREFERENCE) == 1
    assert node.ask("m", "my top off")["my_top"] is None
    assert node.item_store.count(PREFERENCE) == 0


def test_after_a_crash_nothing_starts_anew() -> None:
    node = SubscriberNode()
    ask_colour(node, "red", 0.9)
    ask_colour(node, "yellow", 0.8)
    node.ask("m", "my top 1")
    node.attach("m")
    assert see(node, triage="red")
    node = node.reopen()
    node.attach("m")
    assert not see(node, triage="yellow")
    assert see(node, triage="red")


def test_it_follows_a_person_to_a_node_that_never_had_the_notification() -> None:
    a, b = make_two()
    ask_colour(a, "red", 0.9)
    ask_colour(a, "yellow", 0.8)
    a.ask("m", "my top 1")
    a.attach("m")
    assert see(a, triage="red")
    walk(a, b)
    assert not see(b, triage="yellow")
    assert b.item_store.count(NOTIFICATION) == 1
    b = b.reopen()
    b.attach("m")
    assert not see(b, triage="yellow")
    assert see(b, triage="red")


def test_the_top_of_one_subscription_follows_too() -> None:
    a, b = make_two()
    a.ask("m", "heart_rate is rising(0, 200), at least 0.1, named pulse, top 1")
    a.attach("m")
    assert see(a, heart_rate=150)
    walk(a, b)
    assert not see(b, heart_rate=100)
    assert see(b, heart_rate=180)


def test_the_time_counts_from_the_decision_at_the_other_node() -> None:
    a, b = make_two()
    ask_colour(a, "red", 0.9, expiry=600)
    ask_colour(a, "yellow", 0.8, expiry=600)
    a.ask("m", "my top 1")
    a.attach("m")
    assert see(a, triage="red")
    a.now += 6 * MINUTE
    walk(a, b)
    assert not see(b, triage="yellow")
    b.now += 5 * MINUTE
    assert see(b, triage="yellow")


def test_a_notification_that_its_origin_did_not_sign_does_not_count() -> None:
    a, b = make_two()
    ask_colour(a, "red", 0.9)
    ask_colour(a, "yellow", 0.8)
    a.ask("m", "my top 1")
    a.attach("m")
    assert see(a, triage="red")
    a.do(PeerUp("b"))
    (receipt,) = a.item_store.iterate(a.store, DELIVERED)
    body = decode_body(DeliveredBody, receipt.body)
    body.notes[0][4][-1] = bytes(64)
    forged = Item(receipt.dot, DELIVERED, receipt.expires, encode_body(body), b"signed")
    tell(a, b, (SUBSCRIPTION, PREFERENCE))
    b.bring(forged)
    b.attach("m")
    assert see(b, triage="yellow")


def test_of_two_preferences_made_apart_the_latest_holds_everywhere() -> None:
    a, b = make_two()
    a.ask("m", "my top 1")
    b.now = a.now + 5
    b.ask("m", "my top 2")
    tell(a, b)
    tell(b, a)
    assert a.ask("m", "list")["my_top"] == b.ask("m", "list")["my_top"] == "my top 2"
    assert a.item_store.count(PREFERENCE) == b.item_store.count(PREFERENCE) == 1


# Random histories ------------------------------------------------------------------------------


def draw_rules(rng: Random) -> dict[str, Any]:
    rules: dict[str, Any] = {"top": rng.randrange(1, 4)}
    kind = rng.randrange(5)
    if kind == 1:
        rules["last"] = rng.randrange(1, 6)
    elif kind == 2:
        rules["within"] = 64 * rng.randrange(1, 4)
    elif kind == 3:
        rules["fading"] = 64 * rng.randrange(1, 5)
    by = rng.choice(("maximum", "maximum", "mean", "minimum", "sum"))
    if by != "maximum":
        rules["by"] = by
    if by == "sum":
        rules["weights"] = {"red": 0.5, "fast": 2.0}
    return rules


def share_delivered(one: SubscriberNode, other: SubscriberNode) -> None:
    """Let another node have the notifications that the person has got here."""
    one.do(PeerUp(other.name))
    for receipt in one.item_store.iterate(one.store, DELIVERED):
        for dot in decode_body(DeliveredBody, receipt.body).dots:
            item = one.item_store.get(one.store, NOTIFICATION, dot)
            if item is not None and not other.item_store.context.holds(*dot):
                other.now = one.now
                other.bring(one.item_store.sign(item))


@pytest.mark.parametrize("block", range(10))
def test_random_histories_equal_the_oracle(block: int) -> None:
    """The person walks, nodes crash, notifications go along or not: as if it were one place."""
    for number in range(HISTORIES // 10):
        play_history(Random(f"history {block} {number}"))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_three_thousand_histories_equal_the_oracle(block: int) -> None:
    for number in range(300):
        play_history(Random(f"long history {block} {number}"))


def play_history(rng: Random) -> None:
    nodes = dict(zip("ab", make_two(), strict=True))
    node = nodes["a"]
    scores = {name: rng.randrange(1, 9) / 8 for name in (*COLOURS[:3], "fast")}
    life = rng.choice((0, 0, 64, 128))  # s
    options = {"expiry": life} if life else {}
    for colour in COLOURS[:3]:
        ask_colour(node, colour, scores[colour], **options)
    fast = [["event", "=", "patient"], ["heart_rate", ">", 100]]
    node.ask("m", {"content": fast, "score": scores["fast"], "name": "fast", **options})
    levels = dict.fromkeys(scores, 1)
    if rng.random() < 0.3:
        node.ask("m", {"prefer": [["yellow", "red"]]})
        levels["red"] = 2
    rules = draw_rules(rng)
    assert node.ask("m", {"my_top": rules})["ok"]
    oracle = PersonOracle(
        rules["top"],
        rules.get("last", 0),
        1000 * rules.get("within", 0),
        1000 * rules.get("fading", 0),
        rules.get("by", "maximum"),
        rules.get("weights"),
    )
    node.attach("m")
    expected, got, trace = [], [], []
    for _ in range(rng.randrange(8, 16)):
        kind = rng.random()
        if kind < 0.12:
            name = "b" if node is nodes["a"] else "a"
            if rng.random() < 0.3:  # some have what was delivered as well
                share_delivered(node, nodes[name])
            walk(node, nodes[name])
            node = nodes[name]
            oracle.walk(name)
            trace.append(f"walk {name}")
        elif kind < 0.2:
            name = node.name
            node = nodes[name] = node.reopen()
            node.attach("m")
            trace.append("crash")
        else:
            node.now += 1000 * rng.choice((1, 8, 32, 64))
            colour, pulse = rng.choice(COLOURS[:3]), rng.choice((80, 150))
            names = (colour, "fast") if pulse > 100 else (colour,)
            matches = [(name, scores[name], levels[name]) for name in names]
            until = node.now + 1000 * life if life else float("inf")
            expected.append(oracle.offer(matches, node.now, until))
            got.append(see(node, triage=colour, heart_rate=pulse))
            trace.append(f"{node.now % 10**6} {colour} {pulse}")
    assert got == expected, (rules, scores, life, trace)


def test_the_order_of_what_waits_is_that_of_the_preference() -> None:
    node = SubscriberNode()
    ask_colour(node, "red", 0.8)
    ask_colour(node, "yellow", 0.6)
    content = [["event", "=", "patient"], ["heart_rate", ">", 100]]
    node.ask("m", {"content": content, "score": 0.1, "name": "fast"})
    node.ask("m", "my top 5, by minimum")
    low, _ = node.read(patient(triage="red", heart_rate=150))
    high, _ = node.read(patient(triage="yellow", heart_rate=60))
    ids = list_ids(node.attach("m"), "m")
    assert ids == [f"{high.id:016x}", f"{low.id:016x}"]
