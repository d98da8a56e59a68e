"""The core, event by event, without link, disk and clock: requests, notes, reports."""

from __future__ import annotations

import json

import pytest
from denwatch.client.subscriber.core import (
    AcknowledgeMessage,
    CloseLink,
    CompleteRequest,
    ConnectionState,
    ConnectionStatus,
    MarkReported,
    PublishMessage,
    StoreNotification,
    StoreReply,
    SubscriberRequest,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.client.core_run import NOTES, REPLIES, A, B, C, Run, find, read_sent
from tests.client.sites import number

EVENTS = ("tick", "open", "listen", "fail", "note", "ask", "reply", "junk")


def test_a_request_is_repeated_until_it_is_answered() -> None:
    run = Run()
    run.go_online()
    run.core.ask(SubscriberRequest("1", "subscribe", "fever", "pain is severe"), run.now)
    sent = 0
    for _ in range(100):
        run.now += 1_000
        sent += len(read_sent(run.core.tick(run.now)))
    assert 3 <= sent <= 5  # after 5, 10, 20, 40 s
    actions = run.reply("1", id="ab", name="fever")
    assert [type(action) for action in actions] == [StoreReply, CompleteRequest, AcknowledgeMessage]
    assert run.core.tick(run.now + 1_000_000) == []


def test_a_request_of_any_kind_is_sent_and_answered_and_not_stored() -> None:
    run = Run()
    run.go_online()
    request = SubscriberRequest("7", "other", "", '{"have":"bed-1"}')
    (sent,) = run.core.ask(request, run.now)
    assert isinstance(sent, PublishMessage)
    assert json.loads(sent.payload) == {"have": "bed-1", "request": "7"}
    found = run.core.receive(REPLIES, b'{"ok":true,"have":"bed-1","request":"7"}', 3, run.now)
    assert [type(action) for action in found] == [CompleteRequest, AcknowledgeMessage]


def test_what_a_node_tells_unasked_is_handed_on() -> None:
    run = Run()
    run.go_online()
    found = run.core.receive(REPLIES, b'{"ok":true,"had":{"subject":"bed-1"}}', 3, run.now)
    assert isinstance(found[0], CompleteRequest)
    assert found[0].request == ""
    assert found[0].reply.fields["had"] == {"subject": "bed-1"}


def test_replies_to_others_change_nothing() -> None:
    run = Run()
    run.go_online()
    run.core.ask(SubscriberRequest("1", "list"), run.now)
    for payload in (b"", b"{", b"[]", b'{"ok":1}', b'{"ok":true}', b'{"ok":true,"request":"2"}'):
        assert run.core.receive(REPLIES, payload, 3, run.now) == [AcknowledgeMessage(3)]
    assert find(run.reply("1"), CompleteRequest)


def test_asking_again_for_a_name_replaces_what_was_asked() -> None:
    run = Run()
    run.core.ask(SubscriberRequest("1", "subscribe", "fever", "pain is severe"), run.now)
    run.core.ask(SubscriberRequest("2", "subscribe", "fever", "pain is mild"), run.now)
    run.core.ask(SubscriberRequest("3", "unsubscribe", "burns"), run.now)
    assert [r["request"] for r in read_sent(run.go_online())] == ["2", "3"]


def test_walking_to_another_node_asks_there_once() -> None:
    run = Run(A)
    run.go_online()
    run.core.ask(SubscriberRequest("1", "subscribe", "fever", "pain is severe"), run.now)
    run.reply("1", id="ab")
    run.core.failed("lost", run.now)
    run.now += 60_000
    assert not read_sent(run.go_online()), "A knows it"
    run.core.use_servers([B], run.now)
    run.core.opened(run.now)
    (asked,) = read_sent(run.core.listened(run.now))
    assert (asked["name"], asked["subscribe"]) == ("fever", "pain is severe")
    run.reply(asked["request"], id="ab")
    run.core.use_servers([A], run.now)
    run.core.opened(run.now)
    assert not read_sent(run.core.listened(run.now))


def test_one_nodes_no_does_not_end_what_another_agreed_to() -> None:
    run = Run(A)
    run.go_online()
    run.core.ask(SubscriberRequest("1", "subscribe", "fever", "pain is severe"), run.now)
    run.reply("1", id="ab")
    run.core.use_servers([B], run.now)
    run.core.opened(run.now)
    (asked,) = read_sent(run.core.listened(run.now))
    actions = run.reply(asked["request"], ok=False, error="not your role")
    assert not find(actions, StoreReply)
    assert "not your role" in find(actions, ConnectionStatus)[0].reason
    run.core.use_servers([C], run.now)
    run.core.opened(run.now)
    assert len(read_sent(run.core.listened(run.now))) == 1


def test_an_end_is_told_to_every_node_that_agreed() -> None:
    run = Run(A)
    run.go_online()
    run.core.ask(SubscriberRequest("1", "subscribe", "fever", "pain is severe"), run.now)
    run.reply("1", id="ab")
    run.core.use_servers([B], run.now)
    run.core.opened(run.now)
    (asked,) = read_sent(run.core.listened(run.now))
    run.reply(asked["request"], id="ab")
    run.core.ask(SubscriberRequest("2", "unsubscribe", "fever"), run.now)
    run.reply("2")
    run.core.use_servers([A], run.now)
    run.core.opened(run.now)
    (asked,) = read_sent(run.core.listened(run.now))
    assert asked["unsubscribe"] == "fever"
    run.reply(asked["request"])
    run.core.failed("lost", run.now)
    run.now += 60_000
    assert not read_sent(run.go_online())


def test_a_note_is_kept_then_acknowledged_then_reported_in_batches() -> None:
    run = Run()
    run.go_online()
    for index in range(250):
        kept, acknowledged = run.note(index, mid=index + 1)
        assert isinstance(kept, StoreNotification)
        assert acknowledged == AcknowledgeMessage(index + 1)
    (first,) = find(run.core.tick(run.now), PublishMessage)  # a full batch goes at once
    assert json.loads(first.payload)["received"] == [number(i) for i in range(200)]
    (second,) = find(run.core.tick(run.now + 1_000), PublishMessage)  # the rest after a while
    assert json.loads(second.payload)["received"] == [number(i) for i in range(200, 250)]
    (reported,) = run.core.sent(first.token)
    assert isinstance(reported, MarkReported)
    assert len(reported.keys) == 200
    assert run.core.sent(first.token) == []


def test_reports_that_nobody_has_acknowledged_are_repeated_after_a_loss() -> None:
    run = Run()
    run.go_online()
    run.note(1)
    run.core.tick(run.now + 1_000)
    run.core.failed("lost", run.now)
    run.now += 60_000
    assert read_sent(run.go_online()) == [{"received": [number(1)]}]


def test_leaving_says_what_is_still_to_be_said() -> None:
    run = Run()
    assert run.core.leave(run.now) == []
    run.go_online()
    run.note(1)
    actions = run.core.leave(run.now)
    assert read_sent(actions) == [{"received": [number(1)]}]
    assert actions[-1] == CloseLink()


def test_what_an_earlier_run_left_is_taken_up() -> None:
    run = Run()
    run.core.restore(
        [("fever", "pain is severe", [A.url]), ("burns", "pain is mild", [B.url])],
        [("old", [A.url])],
        [SubscriberRequest("9", "unsubscribe", "cold")],
        [json.dumps(number(3))],
    )
    said = read_sent(run.go_online())
    assert [s.get("name") or s.get("unsubscribe") or "report" for s in said] == [
        "report",
        "cold",
        "burns",
        "old",
    ]


@pytest.mark.parametrize(
    "payload",
    [b"", b"x", b"{", b"[1]", b"{}", b'{"id":true}', b'{"id":""}', b'{"id":[1]}', b"\xff"],
)
def test_what_is_no_note_is_acknowledged_and_not_kept(payload: bytes) -> None:
    run = Run()
    run.go_online()
    assert run.core.receive(NOTES, payload, 5, run.now) == [AcknowledgeMessage(5)]


@given(st.data())
def test_any_order_of_events_keeps_before_it_acknowledges(data: st.DataObject) -> None:
    """Whatever happens: every note is kept in the turn that acknowledges it, an unanswered request
    stays alive, and the core never waits for nothing."""
    run = Run(A, B)
    asked: dict[str, SubscriberRequest] = {}
    answered: set[str] = set()
    for step in range(data.draw(st.integers(1, 40))):
        run.now += data.draw(st.sampled_from([0, 1, 500, 3_000, 70_000]))
        event = data.draw(st.sampled_from(EVENTS))
        core = run.core
        if event == "tick":
            run.do(core.tick(run.now))
        elif event == "open" and core.server is not None:
            run.do(core.opened(run.now))
        elif event == "listen" and core.state in (
            ConnectionState.LISTENING,
            ConnectionState.PROBING,
        ):
            run.do(core.listened(run.now))
        elif event == "fail":
            run.do(core.failed("lost", run.now))
        elif event == "note":
            turn = run.note(data.draw(st.integers(0, 5)), mid=step + 1)
            assert [type(a) for a in turn] == [StoreNotification, AcknowledgeMessage]
        elif event == "ask":
            name = data.draw(st.sampled_from(["a", "b"]))
            request = SubscriberRequest(str(step), "subscribe", name, f"words {step}")
            asked = {i: r for i, r in asked.items() if r.name != name} | {request.id: request}
            run.do(core.ask(request, run.now))
        elif event == "reply" and asked:
            chosen = data.draw(st.sampled_from(sorted(asked)))
            if find(run.reply(chosen, id="x"), CompleteRequest):
                answered.add(chosen)
        elif event == "junk":
            run.do(core.receive(REPLIES, data.draw(st.binary(max_size=20)), 0, run.now))
        if core.state is not ConnectionState.ONLINE:
            assert core.find_next_time() < 1 << 62
    waiting = {w.request.id for w in run.core._requests.values()}
    assert set(asked) - answered <= waiting
