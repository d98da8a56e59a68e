"""The subscriber core and its servers: opening, choosing, losing and resting."""

from __future__ import annotations

import json
from typing import Any

import pytest
from denwatch.client.subscriber.core import (
    AcknowledgeMessage,
    CloseLink,
    ConnectionState,
    ConnectionStatus,
    OpenLink,
    PublishMessage,
    SubscriberRequest,
    SubscribeTopics,
)
from denwatch.client.subscriber.servers import NodeUrl, parse_server

from tests.client.core_run import NOTES, NOTHING, REPLIES, A, B, Run, find, read_sent
from tests.client.sites import number


def test_one_server_is_opened_without_probing() -> None:
    run = Run()
    assert find(run.core.tick(run.now), OpenLink) == [OpenLink(A, False)]
    assert run.core.opened(run.now) == [SubscribeTopics((REPLIES, NOTES))]
    assert find(run.core.listened(run.now), ConnectionStatus) == [
        ConnectionStatus(ConnectionState.ONLINE, A.url)
    ]


def test_a_report_opens_each_link_and_answers_a_node_that_asks() -> None:
    run = Run()
    (first,) = find(run.go_online(), PublishMessage)
    assert json.loads(first.payload) == NOTHING
    run.note(1)
    run.core.failed("lost", run.now)
    run.now = run.core.find_next_time()
    assert read_sent(run.go_online())[0] == {"received": [number(1)]}
    payload = json.dumps({"ok": True, "ask": "listening", "node": "north"}).encode()
    asked = run.core.receive(REPLIES, payload, 8, run.now)
    assert [json.loads(send.payload) for send in find(asked, PublishMessage)] == [NOTHING]
    assert AcknowledgeMessage(8) in asked


def test_nothing_is_sent_before_the_topics_are_heard() -> None:
    run = Run()
    run.core.ask(SubscriberRequest("1", "subscribe", "fever", "pain is severe"), run.now)
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
    assert actions[0] == CloseLink()
    assert run.core.state is ConnectionState.IDLE


def test_servers_can_be_changed_while_connected() -> None:
    run = Run(A)
    run.go_online()
    assert run.core.use_servers([A, B], run.now) == []
    actions = run.core.use_servers([B], run.now)
    assert actions[0] == CloseLink()
    assert find(actions, OpenLink) == [OpenLink(B, False)]


def choose_among(offers: list[dict[str, Any] | None], failing: set[int]) -> NodeUrl | None:
    """Probe servers that answer, keep silent (None) or fail; return which is opened then."""
    servers = [parse_server(f"mqtt://10.0.0.{i + 1}") for i in range(len(offers))]
    run = Run(*servers)
    actions = run.core.tick(run.now)
    while opened := find(actions, OpenLink):
        server, is_probe = opened[0]
        if not is_probe:
            assert isinstance(server, NodeUrl)
            return server
        index = servers.index(server)
        if index in failing:
            actions = run.core.failed("unreachable", run.now)
            continue
        assert run.core.opened(run.now) == [SubscribeTopics((REPLIES,))], "no notes while probing"
        (question,) = read_sent(run.core.listened(run.now))
        assert question["probe"] == []
        offer = offers[index]
        if offer is None:
            run.now += 2_000
            actions = run.core.tick(run.now)
        else:
            actions = run.reply(question["request"], **offer)
        assert find(actions, CloseLink)
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
    assert find(run.reply(question["request"]), OpenLink) == [OpenLink(B, False)]
    run.core.opened(run.now)
    run.core.listened(run.now)
    run.now += 60_000  # A has rested
    assert find(run.core.failed("lost", run.now), OpenLink) == [OpenLink(A, False)]
