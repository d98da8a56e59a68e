"""What people report: stored as theirs, answered after that, delivered to who wants it."""

from __future__ import annotations

import json
from typing import Any

import cbor2
import pytest
from denwatch.node.core.events import NOTES, REPORTS, Message, Write
from denwatch.node.core.items import NOTIFICATION, NotificationBody, decode_body
from denwatch.node.core.subscriptions import SubscriberSettings

from tests.subscribers.subscriber_node import SubscriberNode

WORDS = "patient: temperature is high, pulse about 120, pain 6 to 8"


def report(node: SubscriberNode, name: str, payload: str | bytes | dict[str, Any]) -> Any:
    return node.ask(name, payload, topic=REPORTS)


def list_notes(node: SubscriberNode, name: str) -> list[dict[str, Any]]:
    return [json.loads(p.payload) for p in node.sent if p.topic == NOTES + name]


def test_a_report_reaches_who_asked_and_says_who_said_it() -> None:
    node = SubscriberNode()
    node.ask("chief", "patient_temperature is high, named fever")
    node.listen(NOTES + "chief")
    reply = report(node, "medic7", WORDS)
    assert reply["ok"]
    assert reply["reported"] == (
        "patient: patient_temperature 37.5 to 50.5 °C, heart_rate 110.0 to 130.0 bpm,"
        " pain 6.0 to 8.0"
    )
    (note,) = list_notes(node, "chief")
    assert (note["id"], note["device"], note["reporter"]) == (reply["id"], "medic7", "medic7")
    assert (note["possible"], note["certain"]) == (1.0, pytest.approx(0.5, abs=0.01))
    assert note["values"]["heart_rate"] == {"value": 120, "unit": "bpm", "low": 110, "high": 130}


def test_a_late_subscription_finds_a_report() -> None:
    node = SubscriberNode()
    report(node, "medic7", {"report": WORDS, "age": 30})
    node = node.reopen()
    assert node.item_store.count(NOTIFICATION) == 1


def test_the_same_reference_is_the_same_report() -> None:
    node = SubscriberNode()
    first = report(node, "medic7", {"report": WORDS, "request": "7"})
    assert (first["known"], first["request"]) == (False, "7")
    again = report(node, "medic7", cbor2.dumps({"report": WORDS, "request": "7"}))
    assert (again["known"], again["id"]) == (True, first["id"])
    node = node.reopen()
    assert report(node, "medic7", {"report": WORDS, "request": "7"})["id"] == first["id"]
    assert not report(node, "medic8", {"report": WORDS, "request": "7"})["known"]
    assert not report(node, "medic7", WORDS)["known"]
    assert node.item_store.count(NOTIFICATION) == 3
    items = node.item_store.iterate(node.store, NOTIFICATION)
    bodies = [decode_body(NotificationBody, item.body) for item in items]
    assert len({(body.device, body.device_epoch, body.device_sequence) for body in bodies}) == 3


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"{",
        b"{}",
        b"[]",
        b'{"report": 7}',
        b'{"report": "patient: pulse 120", "age": -1}',
        b'{"report": "patient: pulse 120", "age": 1e9}',
        b'{"report": "patient: pulse 120", "extra": 1}',
        b'{"report": "patient: \\ud800 120"}',
        b"patient: pules 120",
        b"patient: pulse 1e999",
        b"patient: " + b"pulse 120, " * 200,
        cbor2.dumps({"report": b"patient"}),
        cbor2.dumps({1: 2}),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(payload: bytes) -> None:
    node = SubscriberNode()
    reply = report(node, "medic7", payload)
    assert reply["ok"] is False
    assert reply["error"]
    assert not any(isinstance(action, Write) for action in node.trace[-1])
    assert node.find_logs("refuse")[-1]["who"] == "medic7"


def test_nobody_reports_in_the_name_of_another() -> None:
    node = SubscriberNode()
    node.do(Message("mallory", REPORTS + "medic7", WORDS.encode()))
    assert not node.item_store.count(NOTIFICATION)
    assert node.find_logs("refuse")[-1]["who"] == "mallory"


def test_a_full_node_refuses_in_words() -> None:
    node = SubscriberNode(settings=SubscriberSettings(held_limit=1))
    assert report(node, "medic7", WORDS)["ok"]
    assert "no room" in report(node, "medic7", WORDS)["error"]
