"""The core's decisions, event by event: no link, no disk, no clock."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.client.subscriber.actions import (
    Acknowledge,
    Action,
    Answer,
    Close,
    KeepAnswer,
    KeepNote,
    KeepReported,
    Listen,
    Open,
    Request,
    Send,
    State,
    Tell,
)
from edge.client.subscriber.core import Core, Settings
from edge.client.subscriber.servers import BackOff, Server, parse_server
from tests.client.node import build_note, number

A, B, C = (parse_server(f"mqtt://10.0.0.{i}") for i in (1, 2, 3))
EVENTS = ("tick", "open", "listen", "fail", "note", "ask", "reply", "junk")
NOTES, REPLIES = "dens/1/note/medic7", "dens/1/reply/medic7"


class Run:
    """A core, and all that it asked for."""

    def __init__(self, *servers: Server, seed: int = 1) -> None:
        settings = Settings(BackOff(1_000, 8_000))
        self.core = Core("medic7", servers or (A,), random.Random(seed), settings)
        self.now = 1_000_000
        self.done: list[Action] = []

    def do(self, actions: list[Action]) -> list[Action]:
        self.done += actions
        return actions

    def go_online(self) -> list[Action]:
        self.do(self.core.tick(self.now))
        self.do(self.core.opened(self.now))
        return self.do(self.core.listened(self.now))

    def reply(self, request: str, **fields: Any) -> list[Action]:
        payload = json.dumps({"ok": True, **fields, "request": request}).encode()
        return self.do(self.core.receive(REPLIES, payload, 7, self.now))

    def note(self, index: int, mid: int = 9) -> list[Action]:
        payload = json.dumps(build_note(index)).encode()
        return self.do(self.core.receive(NOTES, payload, mid, self.now))


NOTHING = {"received": []}  # a report that only says that we listen


def read_sent(actions: list[Action]) -> list[dict[str, Any]]:
    found = [json.loads(action.payload) for action in actions if isinstance(action, Send)]
    return [document for document in found if document != NOTHING]


def find(actions: list[Action], kind: type) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


# The link ----------------------------------------------------------------------------------------


def test_one_server_is_opened_without_probing() -> None:
    run = Run()
    assert find(run.core.tick(run.now), Open) == [Open(A, False)]
    assert run.core.opened(run.now) == [Listen((REPLIES, NOTES))]
    assert find(run.core.listened(run.now), Tell) == [Tell(State.ONLINE, A.url)]


def test_a_report_opens_each_link_and_answers_a_node_that_asks() -> None:
    run = Run()
    (first,) = find(run.go_online(), Send)
    assert json.loads(first.payload) == NOTHING
    run.note(1)
    run.core.failed("lost", run.now)
    run.now = run.core.find_next_time()
    assert read_sent(run.go_online())[0] == {"received": [number(1)]}
    payload = json.dumps({"ok": True, "ask": "listening", "node": "north"}).encode()
    asked = run.core.receive(REPLIES, payload, 8, run.now)
    assert [json.loads(send.payload) for send in find(asked, Send)] == [NOTHING]
    assert Acknowledge(8) in asked


def test_nothing_is_sent_before_the_topics_are_heard() -> None:
    run = Run()
    run.core.ask(Request("1", "subscribe", "fever", "pain is severe"), run.now)
    assert not read_sent(run.core.tick(run.now) + run.core.opened(run.now))
    assert read_sent(run.core.listened(run.now)) == [
        {"subscribe": "pain is severe", "name": "fever", "request": "1"}
    ]


def test_a_lost_server_rests_longer_each_time_and_never_in_step() -> None:
    run = Run()
    pauses = []
    for _ in range(6):
        run.core.tick(run.now)
        run.core.failed("no", run.now)
        pauses.append(run.core.find_next_time() - run.now)
        run.now = run.core.find_next_time()
    ceilings = [1_000, 2_000, 4_000, 8_000, 8_000, 8_000]
    for pause, ceiling in zip(pauses, ceilings, strict=True):
        assert ceiling / 2 <= pause <= ceiling
    other = Run(seed=2)
    other.core.tick(other.now)
    other.core.failed("no", other.now)
    assert other.core.find_next_time() - other.now != pauses[0]


def test_success_forgets_failures() -> None:
    run = Run()
    for _ in range(4):
        run.core.tick(run.now)
        run.core.failed("no", run.now)
        run.now = run.core.find_next_time()
    run.go_online()
    run.core.failed("lost", run.now)
    assert run.core.find_next_time() - run.now <= 1_000


def test_a_server_that_says_nothing_is_given_up() -> None:
    run = Run()
    run.core.tick(run.now)
    assert run.core.tick(run.now + 4_999) == []
    actions = run.core.tick(run.now + 5_000)
    assert actions[0] == Close()
    assert run.core.state is State.IDLE


def test_servers_can_be_changed_while_connected() -> None:
    run = Run(A)
    run.go_online()
    assert run.core.use_servers([A, B], run.now) == []
    actions = run.core.use_servers([B], run.now)
    assert actions[0] == Close()
    assert find(actions, Open) == [Open(B, False)]


# Which node --------------------------------------------------------------------------------------


def choose_among(offers: list[dict[str, Any] | None], failing: set[int]) -> Server | None:
    """Probe servers that answer, keep silent (None) or fail; return which is opened then."""
    servers = [parse_server(f"mqtt://10.0.0.{i + 1}") for i in range(len(offers))]
    run = Run(*servers)
    actions = run.core.tick(run.now)
    while opened := find(actions, Open):
        server, is_probe = opened[0]
        if not is_probe:
            assert isinstance(server, Server)
            return server
        index = servers.index(server)
        if index in failing:
            actions = run.core.failed("unreachable", run.now)
            continue
        assert run.core.opened(run.now) == [Listen((REPLIES,))], "no notes while probing"
        (question,) = read_sent(run.core.listened(run.now))
        assert question["probe"] == []
        offer = offers[index]
        if offer is None:
            run.now += 2_000
            actions = run.core.tick(run.now)
        else:
            actions = run.reply(question["request"], **offer)
        assert find(actions, Close)
    return None


@pytest.mark.parametrize(
    ("offers", "failing", "chosen"),
    [
        ([(1, 5), (0, 900), (0, 70)], set(), 2),  # fewest new roots, then the smallest graph
        ([(1, 5), (0, 900), (2, 7)], set(), 1),
        ([(3, 5), (3, 4), (3, 5)], set(), 1),
        ([(3, 5), (3, 4), (3, 5)], {1}, 0),  # then by address
        ([None, (50, 9_000), None], set(), 1),  # what is unknown comes after what is known
        ([None, None], set(), 0),
        ([(0, 0), (1, 1)], {0}, 1),
        ([(0, 0), (1, 1)], {0, 1}, None),
    ],
)
def test_the_server_is_chosen_by_the_two_criteria(
    offers: list[tuple[int, int] | None], failing: set[int], chosen: int | None
) -> None:
    told = [None if o is None else {"new_roots": o[0], "nodes": o[1]} for o in offers]
    found = choose_among(list(told), failing)
    assert found == (None if chosen is None else parse_server(f"mqtt://10.0.0.{chosen + 1}"))


def test_a_refused_probe_counts_as_unknown() -> None:
    refused = {"ok": False, "error": "no"}
    assert choose_among([refused, {"new_roots": 5, "nodes": 5}], set()) == B


def test_after_a_loss_another_server_is_taken() -> None:
    run = Run(A, B)
    run.core.tick(run.now)
    run.core.failed("unreachable", run.now)  # A, while probing
    run.core.opened(run.now)
    (question,) = read_sent(run.core.listened(run.now))
    assert find(run.reply(question["request"]), Open) == [Open(B, False)]
    run.core.opened(run.now)
    run.core.listened(run.now)
    run.now += 60_000  # A has rested
    assert find(run.core.failed("lost", run.now), Open) == [Open(A, False)]


# Requests ----------------------------------------------------------------------------------------


def test_a_request_is_repeated_until_it_is_answered() -> None:
    run = Run()
    run.go_online()
    run.core.ask(Request("1", "subscribe", "fever", "pain is severe"), run.now)
    sent = 0
    for _ in range(100):
        run.now += 1_000
        sent += len(read_sent(run.core.tick(run.now)))
    assert 3 <= sent <= 5  # after 5, 10, 20, 40 s
    actions = run.reply("1", id="ab", name="fever")
    assert [type(action) for action in actions] == [KeepAnswer, Answer, Acknowledge]
    assert run.core.tick(run.now + 1_000_000) == []


def test_replies_to_others_change_nothing() -> None:
    run = Run()
    run.go_online()
    run.core.ask(Request("1", "list"), run.now)
    for payload in (b"", b"{", b"[]", b'{"ok":1}', b'{"ok":true}', b'{"ok":true,"request":"2"}'):
        assert run.core.receive(REPLIES, payload, 3, run.now) == [Acknowledge(3)]
    assert find(run.reply("1"), Answer)


def test_asking_again_for_a_name_replaces_what_was_asked() -> None:
    run = Run()
    run.core.ask(Request("1", "subscribe", "fever", "pain is severe"), run.now)
    run.core.ask(Request("2", "subscribe", "fever", "pain is mild"), run.now)
    run.core.ask(Request("3", "unsubscribe", "burns"), run.now)
    assert [r["request"] for r in read_sent(run.go_online())] == ["2", "3"]


def test_walking_to_another_node_asks_there_once() -> None:
    run = Run(A)
    run.go_online()
    run.core.ask(Request("1", "subscribe", "fever", "pain is severe"), run.now)
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
    run.core.ask(Request("1", "subscribe", "fever", "pain is severe"), run.now)
    run.reply("1", id="ab")
    run.core.use_servers([B], run.now)
    run.core.opened(run.now)
    (asked,) = read_sent(run.core.listened(run.now))
    actions = run.reply(asked["request"], ok=False, error="not your role")
    assert not find(actions, KeepAnswer)
    assert "not your role" in find(actions, Tell)[0].reason
    run.core.use_servers([C], run.now)
    run.core.opened(run.now)
    assert len(read_sent(run.core.listened(run.now))) == 1


def test_an_end_is_told_to_every_node_that_agreed() -> None:
    run = Run(A)
    run.go_online()
    run.core.ask(Request("1", "subscribe", "fever", "pain is severe"), run.now)
    run.reply("1", id="ab")
    run.core.use_servers([B], run.now)
    run.core.opened(run.now)
    (asked,) = read_sent(run.core.listened(run.now))
    run.reply(asked["request"], id="ab")
    run.core.ask(Request("2", "unsubscribe", "fever"), run.now)
    run.reply("2")
    run.core.use_servers([A], run.now)
    run.core.opened(run.now)
    (asked,) = read_sent(run.core.listened(run.now))
    assert asked["unsubscribe"] == "fever"
    run.reply(asked["request"])
    run.core.failed("lost", run.now)
    run.now += 60_000
    assert not read_sent(run.go_online())


# Notes -------------------------------------------------------------------------------------------


def test_a_note_is_kept_then_acknowledged_then_reported_in_batches() -> None:
    run = Run()
    run.go_online()
    for index in range(250):
        kept, acknowledged = run.note(index, mid=index + 1)
        assert isinstance(kept, KeepNote)
        assert acknowledged == Acknowledge(index + 1)
    (first,) = find(run.core.tick(run.now), Send)  # a full batch goes at once
    assert json.loads(first.payload)["received"] == [number(i) for i in range(200)]
    (second,) = find(run.core.tick(run.now + 1_000), Send)  # the rest after a while
    assert json.loads(second.payload)["received"] == [number(i) for i in range(200, 250)]
    (reported,) = run.core.sent(first.token)
    assert isinstance(reported, KeepReported)
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
    assert actions[-1] == Close()


def test_what_an_earlier_run_left_is_taken_up() -> None:
    run = Run()
    run.core.restore(
        [("fever", "pain is severe", [A.url]), ("burns", "pain is mild", [B.url])],
        [("old", [A.url])],
        [Request("9", "unsubscribe", "cold")],
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
    assert run.core.receive(NOTES, payload, 5, run.now) == [Acknowledge(5)]


@given(st.data())
def test_any_order_of_events_keeps_before_it_acknowledges(data: st.DataObject) -> None:
    """Whatever happens: every note is kept in the turn that acknowledges it, an unanswered request
    stays alive, and the core never waits for nothing."""
    run = Run(A, B)
    asked: dict[str, Request] = {}
    answered: set[str] = set()
    for step in range(data.draw(st.integers(1, 40))):
        run.now += data.draw(st.sampled_from([0, 1, 500, 3_000, 70_000]))
        event = data.draw(st.sampled_from(EVENTS))
        core = run.core
        if event == "tick":
            run.do(core.tick(run.now))
        elif event == "open" and core.server is not None:
            run.do(core.opened(run.now))
        elif event == "listen" and core.state in (State.LISTENING, State.PROBING):
            run.do(core.listened(run.now))
        elif event == "fail":
            run.do(core.failed("lost", run.now))
        elif event == "note":
            turn = run.note(data.draw(st.integers(0, 5)), mid=step + 1)
            assert [type(a) for a in turn] == [KeepNote, Acknowledge]
        elif event == "ask":
            name = data.draw(st.sampled_from(["a", "b"]))
            request = Request(str(step), "subscribe", name, f"words {step}")
            asked = {i: r for i, r in asked.items() if r.name != name} | {request.id: request}
            run.do(core.ask(request, run.now))
        elif event == "reply" and asked:
            chosen = data.draw(st.sampled_from(sorted(asked)))
            if find(run.reply(chosen, id="x"), Answer):
                answered.add(chosen)
        elif event == "junk":
            run.do(core.receive(REPLIES, data.draw(st.binary(max_size=20)), 0, run.now))
        if core.state is not State.ONLINE:
            assert core.find_next_time() < 1 << 62
    waiting = {w.request.id for w in run.core._requests.values()}
    assert set(asked) - answered <= waiting
