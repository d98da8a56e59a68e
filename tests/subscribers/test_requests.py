"""What subscribers ask for: every surface, every command, every mistake."""

from __future__ import annotations

import json
from contextlib import suppress

import cbor2
import pytest
from denwatch.client.errors import LanguageError
from denwatch.node.core.events import NOTES, REPLIES, REQUESTS, Message, Publish, Write
from denwatch.node.core.requests import read_request
from denwatch.node.core.subscriptions import SubscriberSettings
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.subscribers.subscriber_node import SubscriberNode, list_ids, load, patient

JSON = {"when": {"attribute": "patient_temperature", "hedges": ["very"], "is": "high"}}


def test_the_same_in_words_json_and_cbor_is_one_subscription() -> None:
    node = SubscriberNode()
    words = node.ask("medic7", "patient_temperature is very high")
    for payload in (json.dumps(JSON), cbor2.dumps(JSON), json.dumps({"subscribe": JSON})):
        reply = node.ask("medic7", payload)
        assert reply["ok"]
        assert (reply["id"], reply["known"]) == (words["id"], True)
    assert words["known"] is False
    assert words["understood"] == "patient_temperature is very high"
    assert len(words["id"]) == 16
    assert node.subscribers.count_subscriptions() == 1


def test_a_story_is_one_in_every_surface_that_an_app_may_send() -> None:
    node = SubscriberNode()
    text = "smoke is dense within about 5 min after carbon_monoxide is high"
    told = {"sequence": ["carbon_monoxide is high", "smoke is dense"], "within": ["about 5 min"]}
    words = node.ask("chief", text)
    assert words["ok"], words
    for asked in ({"story": text}, {"subscribe": text}, {"subscribe": {"story": told}}):
        reply = node.ask("chief", json.dumps(asked))
        assert reply["ok"], reply
        assert (reply["id"], reply["known"]) == (words["id"], True)
    refused = node.ask("chief", json.dumps({"subscribe": text, "exact": True}))
    assert "exact" in refused["error"]


def test_xml_is_compiled() -> None:
    from denwatch.client.language import parse, print_as

    node = SubscriberNode()
    xml = print_as("xml", parse("heart_rate is high and pain is severe, top 3"))
    assert xml.startswith("<")
    reply = node.ask("medic7", xml)
    assert reply["ok"]
    assert reply["understood"] == "heart_rate is high and pain is severe"


@pytest.mark.parametrize(
    ("payload", "at"),
    [
        ("patient_temperature is vry hgh", 24),
        ('{"when": {"attribute": "pulse_rte", "is": "high"}}', 24),
    ],
)
def test_an_error_says_where_and_what_was_meant(payload: str, at: int) -> None:
    node = SubscriberNode()
    reply = node.ask("medic7", payload)
    assert reply["ok"] is False
    assert reply["at"] == at
    assert reply["error"]
    assert not node.item_store.live[1]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"\xa1\x01\x02",
        b"\xbf",
        b"{",
        b"[1]",
        b"{}",
        b'{"list": 1}',
        b'{"list": true, "mute": true}',
        b'{"unsubscribe": 7}',
        b'{"received": ["x"]}',
        b'{"prefer": [["a"]]}',
        b'{"prefer": [["a", "b"]]}',
        b'{"content": [["a", "~", 1]]}',
        b'{"content": [["event", "=", "patient"], ["puls", "=", 1]]}',
        b'{"content": [["event", "=", "patient"]], "score": 7}',
        b'{"content": [["event", "=", "patient"]], "top": 0}',
        b'{"subscribe": "pain is severe", "format": "xml"}',
        b'{"subscribe": "pain is severe", "name": ""}',
        b'{"subscribe": "pain is severe", "exact": 1}',
        b'{"subscribe": "pain is severe", "extra": 1}',
        b'{"subscribe": {"subscribe": "pain is severe"}}',
        b'{"probe": ["pain is svere"]}',
        b'{"request": 7, "list": true}',
        b"<subscription",
        b"unsubscribe",
        b"unsubscribe nothing",
        b"\0",
        b"(" * 4000,
        b'{"when":' * 3000,
        cbor2.dumps({"subscribe": {"when": b"bytes"}}),
        b"x" * 20_000,
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(payload: bytes) -> None:
    node = SubscriberNode()
    reply = node.ask("medic7", payload)
    assert reply["ok"] is False
    assert isinstance(reply["error"], str)
    assert reply["error"]
    assert not any(isinstance(action, Write) for action in node.trace[-1])
    assert node.find_logs("refuse")[-1]["who"] == "medic7"


def test_a_shortened_term_says_by_how_much_and_exact_ones_stay() -> None:
    node = SubscriberNode()
    words = "patient_temperature is very high and heart_rate is very high and pain is severe"
    short = node.ask("medic7", words)
    assert short["bytes"] == 17
    assert all("% off" in each for each in short["approximations"])
    assert len(short["approximations"]) == 2
    exact = node.ask("medic7", {"subscribe": words, "exact": True})
    assert exact["bytes"] > 17
    assert not any("fitted away" in each for each in exact["approximations"])


def test_at_least_nothing_is_more_than_nothing() -> None:
    node = SubscriberNode()
    node.ask("medic7", "heart_rate is high, at least 0")
    node.attach("medic7")
    for rate, count in ((20, 0), (160, 1)):
        _, published = node.read(patient(heart_rate=rate))
        assert len(list_ids(published, "medic7")) == count


def test_a_notification_has_the_degree_of_each_subscription() -> None:
    node = SubscriberNode()
    node.ask("medic7", "heart_rate is about 100 within 20, at least 0.1, named near")
    node.ask("medic7", "heart_rate above 0, named any")
    node.attach("medic7")
    _, published = node.read(patient(heart_rate=110))
    (note,) = [load(each) for each in published if each.topic == NOTES + "medic7"]
    degrees = dict(zip(note["subscriptions"], note["degrees"], strict=True))
    assert degrees == {"near": pytest.approx(0.5, abs=0.01), "any": 1.0}


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=64),
        st.text(max_size=64).map(str.encode),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["when", "subscribe", "list", "prefer", "received", "name", "and"]
                    )
                    | st.text(max_size=4),
                    inner,
                    max_size=3,
                )
            ),
            max_leaves=8,
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_bytes_are_answered(payload: bytes) -> None:
    with suppress(LanguageError):
        read_request(payload)
    node = SubscriberNode()
    reply = node.ask("medic7", payload)
    assert reply is None or "ok" in reply
    if reply is not None and not reply["ok"]:
        assert not any(isinstance(action, Write) for action in node.trace[-1])


def test_a_request_to_anothers_topic_changes_nothing_and_is_not_answered() -> None:
    node = SubscriberNode()
    node.listen(REPLIES + "medic7")
    assert node.ask("medic7", "pain is severe", sender="mallory") is None
    assert node.trace[-1][-1].name == "requests_refused"  # type: ignore[union-attr]
    assert node.find_logs("refuse")[-1]["who"] == "mallory"
    assert node.ask("medic7", "pain is severe", sender="")["ok"]  # behind another broker
    assert node.subscribers.count_subscriptions() == 1


def test_a_name_replaces_and_ids_and_names_unsubscribe() -> None:
    node = SubscriberNode()
    first = node.ask("m", "pain is severe, named a")
    second = node.ask("m", "heart_rate is high, named a")
    assert second["replaced"] == [first["id"]]
    third = node.ask("m", {"subscribe": "glucose is low", "name": "b", "request": "r1"})
    assert (third["name"], third["request"]) == ("b", "r1")
    listed = node.ask("m", {"list": True, "request": "r2"})
    assert [row["name"] for row in listed["subscriptions"]] == ["a", "b"]
    assert listed["request"] == "r2"
    assert node.ask("m", f"unsubscribe {second['id']}")["removed"] == [second["id"]]
    assert node.ask("m", "unsubscribe b")["removed"] == [third["id"]]
    assert node.ask("m", {"unsubscribe": "b", "request": "r3"}) == {
        "ok": True,
        "removed": [],
        "name": "b",
        "request": "r3",
    }
    assert node.ask("m", "list")["subscriptions"] == []
    assert node.ask("other", "unsubscribe a")["ok"] is False


def test_others_subscriptions_are_out_of_reach() -> None:
    node = SubscriberNode()
    mine = node.ask("m", "pain is severe, named a")
    assert node.ask("n", f"unsubscribe {mine['id']}")["ok"] is False
    assert node.ask("n", "list")["subscriptions"] == []
    assert node.subscribers.count_subscriptions() == 1


def test_there_is_a_limit_for_each_subscriber() -> None:
    node = SubscriberNode(settings=SubscriberSettings(max_subscriptions=2))
    assert node.ask("m", "pain is severe, named a")["ok"]
    assert node.ask("m", "glucose is low")["ok"]
    assert "2 subscriptions" in node.ask("m", "heart_rate is high")["error"]
    assert node.ask("m", "heart_rate is high, named a")["ok"]  # takes the place of another
    assert node.ask("n", "heart_rate is high")["ok"]


def test_replies_wait_until_somebody_listens() -> None:
    node = SubscriberNode(settings=SubscriberSettings(kept_replies=2))
    for words in ("pain is severe", "pain is svere", "heart_rate is high"):
        assert node.do(Message("m", REQUESTS + "m", words.encode())) == []
    node = node.reopen()
    replies = [json.loads(p.payload) for p in node.listen(REPLIES + "m")]
    assert [reply["ok"] for reply in replies] == [False, True]
    node.leave(REPLIES + "m")
    assert node.listen(REPLIES + "m") == []
    assert not node.medium.spaces["sub.reply"]


def test_mute_holds_notifications_back() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high")
    node.attach("m")
    assert node.ask("m", "mute") == {"ok": True, "muted": True}
    item, published = node.read(patient(heart_rate=180))
    assert published == []
    node = node.reopen()
    assert node.attach("m") == []
    node.ask("m", "unmute")
    assert list_ids(node.sent, "m") == [f"{item.id:016x}"]


def test_priorities_are_checked_and_decide_the_order() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high, named pulse")
    node.ask("m", "pain is severe, named pain")
    assert 'named "pian"' in node.ask("m", {"prefer": [["pian", "pulse"]]})["error"]
    reply = node.ask("m", {"prefer": [["pain", "pulse"]]})
    assert reply["levels"] == {"pulse": 2, "pain": 1}
    assert "conflict" in node.ask("m", "glucose is low, prefer pulse over pain")["error"]
    better, _ = node.read(patient(pain=8, heart_rate=60))
    worse, _ = node.read(patient(pain=0, heart_rate=200))
    node = node.reopen()
    published = node.attach("m")
    assert list_ids(published, "m") == [f"{better.id:016x}", f"{worse.id:016x}"]
    assert [load(p)["subscription"] for p in published] == ["pain", "pulse"]


def test_a_probe_counts_what_would_be_new() -> None:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high")
    before = dict(node.medium.spaces["item.subscription"])
    reply = node.ask("n", {"probe": ["heart_rate is high", "pain is severe"], "request": "p"})
    assert reply == {
        "ok": True,
        "node": "a",
        "new_roots": 1,
        "nodes": 1,
        "waiting": 0,
        "devices": 0,
        "request": "p",
    }
    assert node.medium.spaces["item.subscription"] == before
    assert node.ask("n", {"probe": ["pain is severe"] * 16})["ok"]
    assert "16 texts at most" in node.ask("n", {"probe": ["pain is severe"] * 17})["error"]


def test_the_reply_goes_where_a_request_of_mqtt_5_wants_it() -> None:
    node = SubscriberNode()

    def ask(payload: bytes, response: str, correlation: bytes) -> list[Publish]:
        message = Message("medic7", REQUESTS + "medic7", payload, response, correlation)
        return node.do(message)

    (answer,) = ask(b"pain is severe", "answers/medic7", b"42")
    assert (answer.topic, answer.correlation) == ("answers/medic7", b"42")
    assert json.loads(answer.payload)["ok"], "though nobody listens to its replies"
    (answer,) = ask(b"pain is sevre", "answers/medic7", b"43")
    assert answer.correlation == b"43"
    assert not json.loads(answer.payload)["ok"]
    assert ask(b"list", REPLIES + "medic7", b"44") == [], "it is kept until somebody listens"
    assert len(node.listen(REPLIES + "medic7")) == 1
    (answer,) = ask(b"list", REPLIES + "medic7", b"45")
    assert (answer.topic, answer.correlation) == (REPLIES + "medic7", b"45")
    (plain,) = ask(b"list", "", b"")
    assert (plain.topic, plain.correlation) == (REPLIES + "medic7", b"")
