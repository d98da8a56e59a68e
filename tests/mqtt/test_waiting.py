"""Full queues that refuse and never drop (`full_queue = "wait"`): the publisher waits, and is sent
away in the end. tests/mqtt/test_stalled.py has the two other ways."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Message
from denwatch.node.mqtt.interface import Limits, Pause, Resume
from denwatch.node.mqtt.sessions import Sessions
from hypothesis import given
from hypothesis import strategies as st

from tests.mqtt import wire
from tests.mqtt.wire import Got, TokenBucket, World

SMALL = Limits(window=1, queue=2, waiting=4, hold_ms=1000, full_queue="wait")


def make_full(world: World, clean: bool = False, stays: bool = True) -> tuple[int, int]:
    """Return a receiver that has one message in flight and two queued, and a publisher."""
    receiver = world.connect("r", clean)
    world.send(receiver, wire.subscribe(1, ("t", 1)))
    world.take(receiver)
    if not stays:
        world.lose(receiver)
    sender = world.connect("s", keep_alive=1)
    for number in range(1, 4 if stays else 3):
        world.send(sender, wire.publish("t", b"%d" % number, 1, number))
        assert world.take(sender) == [Got("puback", number)]
    world.take_events()
    return receiver, sender


def check_that_a_publisher_waits(world: World) -> None:
    receiver, sender = make_full(world)
    other = world.connect("other")
    world.send(other, wire.subscribe(1, ("t", 1)))
    world.take(other)
    world.send(sender, wire.publish("t", b"4", 1, 4), wire.publish("else", b"5", 1, 5))
    assert world.take(sender) == [], "acknowledged, and there is no room for it"
    assert world.take_events(Message) == [], "the node must not have it before"
    assert world.take(other) == [], "everybody or nobody"
    assert world.server.counts["held"] == 1
    (first,) = world.take(receiver)
    world.send(receiver, wire.puback(first.id))
    assert world.take(sender) == [Got("puback", 4), Got("puback", 5)]
    events = world.take_events(Message)
    assert events == [Message("", "t", b"4"), Message("", "else", b"5")]
    assert world.take_messages(other) == [("t", b"4", 1)]
    received = [first.payload]
    while got := world.take(receiver):
        received += [message.payload for message in got]
        world.send(receiver, *(wire.puback(message.id) for message in got))
    assert received == [b"1", b"2", b"3", b"4"]


def test_a_publisher_waits() -> None:
    check_that_a_publisher_waits(World(limits=SMALL))


def test_ablation_a_queue_that_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule the publisher is acknowledged at once: the check must notice."""
    monkeypatch.setattr(Sessions, "has_room", lambda *_: True)
    with pytest.raises(AssertionError, match="there is no room"):
        check_that_a_publisher_waits(World(limits=SMALL))


def test_acknowledgements_and_pings_pass_by_what_waits() -> None:
    """A client whose own queue is full makes the room itself."""
    world = World(limits=SMALL)
    link = world.connect("c")
    world.send(link, wire.subscribe(1, ("t", 1)))
    world.send(link, *(wire.publish("t", b"%d" % n, 1, n) for n in range(1, 6)))
    got = world.take(link)
    assert [g.id for g in got if g.kind == "puback"] == [1, 2, 3]
    world.send(link, wire.PINGREQ)
    assert world.take(link) == [Got("pingresp")]
    message = next(g for g in got if g.kind == "publish")
    world.send(link, wire.puback(message.id))
    assert [g.kind for g in world.take(link)] == ["publish", "puback"]


def test_beyond_some_packets_the_link_is_not_read() -> None:
    world = World(limits=SMALL)
    receiver, sender = make_full(world)
    world.send(sender, *(wire.publish("t", b"x", 1, n) for n in range(4, 7)))
    assert world.take_events(Pause, Resume) == []
    world.send(sender, wire.publish("t", b"x", 1, 7), wire.publish("t", b"x", 1, 8))
    assert world.take_events(Pause, Resume) == [Pause(sender)]
    world.tick(999)
    assert sender not in world.closed, "who is not read cannot be blamed for silence"
    for _ in range(4):
        world.send(receiver, *(wire.puback(got.id) for got in world.take(receiver)))
        assert world.take_events(Pause, Resume) == []
    world.send(receiver, *(wire.puback(got.id) for got in world.take(receiver)))
    assert world.take_events(Pause, Resume) == [Resume(sender)]
    assert len(world.take(sender)) == 5


def test_the_publisher_is_sent_away_if_the_receiver_is_persistent() -> None:
    world = World(limits=SMALL)
    _, sender = make_full(world, stays=False)
    world.send(sender, wire.publish("t", b"4", 1, 4))
    world.send(sender, wire.PINGREQ)
    world.tick(1001)
    assert world.closed[sender] == "a receiver has no room: "
    assert [got.kind for got in world.take(sender)] == ["pingresp"], "no acknowledgement"
    (refused,) = world.take_refusals()
    assert refused.what == "publishing"
    sender = world.connect("s")
    receiver = world.connect("r", clean=False)
    world.send(sender, wire.publish("t", b"4", 1, 4, duplicate=True))
    received = []
    while got := world.take(receiver):
        received += [message.payload for message in got]
        world.send(receiver, *(wire.puback(message.id) for message in got))
    assert received == [b"1", b"2", b"4"]


def test_the_receiver_is_sent_away_if_its_session_is_clean() -> None:
    world = World(limits=SMALL)
    receiver, sender = make_full(world, clean=True)
    world.send(sender, wire.publish("t", b"4", 1, 4))
    world.tick(1001)
    assert world.closed == {receiver: "the client does not keep up"}
    assert world.take(sender) == [Got("puback", 4)]


def test_a_will_waits_for_room_too() -> None:
    world = World(limits=SMALL)
    receiver, _ = make_full(world)
    dying = world.connect("dog", will=("t", b"gone", 1, False))
    world.lose(dying)
    assert world.take_events(Message) == []
    received = []
    while got := world.take(receiver):
        received += [message.payload for message in got]
        world.send(receiver, *(wire.puback(message.id) for message in got))
    assert received == [b"1", b"2", b"3", b"gone"]
    assert Message("", "t", b"gone") in world.take_events(Message)


def test_wills_that_wait_are_bounded_and_the_rest_reported() -> None:
    world = World(limits=Limits(window=1, queue=2, wills=1, hold_ms=1000))
    make_full(world)
    for name in "xy":
        world.lose(world.connect(name, will=("t", b"gone", 1, False)))
    (refused,) = world.take_refusals()
    assert refused.why == "too many wills wait"


def test_two_publishers_that_wait_for_each_other_are_both_let_go() -> None:
    world = World(limits=SMALL)
    links = [world.connect("a"), world.connect("b")]
    for link, name in zip(links, "ab", strict=True):
        world.send(link, wire.subscribe(1, (name, 1)))
    for number in range(1, 6):
        world.send(links[0], wire.publish("b", b"x", 1, number))
        world.send(links[1], wire.publish("a", b"x", 1, number))
    assert world.server.counts["held"] == 2
    world.tick(1001)
    assert len(world.closed) == 1, "one goes as the other's slow receiver, and that makes room"
    (left,) = set(links) - set(world.closed)
    assert [g.id for g in world.take(left) if g.kind == "puback"] == [1, 2, 3, 4, 5]


def test_payloads_that_wait_are_bounded_in_bytes() -> None:
    world = World(limits=Limits(window=1, queue=2, waiting_bytes=1000))
    _, sender = make_full(world)
    world.send(sender, *(wire.publish("t", bytes(400), 1, n) for n in (4, 5, 6)))
    assert world.take_events(Pause) == []
    world.send(sender, wire.publish("t", bytes(400), 1, 7))
    assert world.take_events(Pause) == [Pause(sender)]


def test_a_subscription_waits_while_its_session_is_full() -> None:
    world = World(limits=SMALL)
    world.publish("r", b"kept", retain=True)
    receiver, _ = make_full(world)
    world.send(receiver, wire.subscribe(2, ("r", 1)))
    got = world.take(receiver)
    assert [g.kind for g in got] == ["publish"]
    world.send(receiver, wire.puback(got[0].id))
    assert [g.kind for g in world.take(receiver)] == ["publish", "suback"]


def test_the_nodes_own_message_reaches_those_with_room_and_is_reported() -> None:
    world = World(limits=SMALL)
    make_full(world)
    other = world.connect("other")
    world.send(other, wire.subscribe(1, ("t", 1)))
    world.take(other)
    world.publish("t", b"own")
    assert world.take_messages(other) == [("t", b"own", 1)]
    (refused,) = world.take_refusals()
    assert refused.what == "publishing to t"


def test_all_queues_together_are_bounded() -> None:
    world = World(limits=Limits(total_queue_bytes=2_000, hold_ms=1000, full_queue="wait"))
    for name in "ab":
        link = world.connect(name, clean=False)
        world.send(link, wire.subscribe(1, (name, 1)), wire.DISCONNECT)
    sender = world.connect("s")
    for number in range(1, 30):
        world.send(sender, wire.publish("ab"[number % 2], bytes(100), 1, number))
    assert world.server.sessions.bytes <= 2_000
    assert 3 < len(world.take(sender)) < 8


def test_qos_0_is_dropped_for_a_client_that_does_not_read_and_counted() -> None:
    world = World(limits=Limits(slow_ms=500))
    link = world.connect("c", keep_alive=1)
    world.send(link, wire.subscribe(1, ("t", 0)))
    world.take(link)
    world.perform(world.server.block(link, True, world.now))
    world.publish("t", b"x", 0)
    assert world.take(link) == []
    assert world.server.counts["dropped_qos0"] == 1
    world.tick(500)
    assert link not in world.closed
    world.tick(1)
    assert world.closed[link] == "the client does not read"


def test_a_pace_makes_a_user_wait_and_nobody_else() -> None:
    world = World(pace=TokenBucket(per_second=2, burst=3))
    fast, calm = world.connect("a", user="fast"), world.connect("b", user="calm")
    world.send(fast, *(wire.publish("t", b"", 1, n) for n in range(1, 8)))
    world.send(calm, wire.publish("t", b"", 1, 1))
    assert len(world.take(fast)) == 3
    assert len(world.take(calm)) == 1
    world.tick(499)
    assert len(world.take(fast)) == 0
    world.tick(1)
    assert len(world.take(fast)) == 1
    world.tick(60_000)
    assert len(world.take(fast)) == 3
    assert world.closed == {}, "a pace sends nobody away"


def test_a_message_that_waits_for_room_pays_its_pace_once() -> None:
    world = World(limits=SMALL, pace=TokenBucket(per_second=1, burst=4))
    receiver, sender = make_full(world)
    world.send(sender, wire.publish("t", b"4", 1, 4))
    for _ in range(5):
        world.tick()
    world.send(receiver, *(wire.puback(got.id) for got in world.take(receiver)))
    assert world.take(sender) == [Got("puback", 4)]


@pytest.mark.parametrize("pace", [(0, 1), (1, 0)])
def test_a_pace_of_nothing_is_refused(pace: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="below one message"):
        TokenBucket(*pace)


@given(st.integers(1, 50), st.integers(1, 20), st.lists(st.integers(0, 3000), max_size=60))
def test_a_bucket_never_gives_more_than_its_pace(rate: int, burst: int, gaps: list[int]) -> None:
    bucket, now, given_out = TokenBucket(rate, burst), 0, 0
    for gap in gaps:
        now += gap
        wait = bucket.delay("u", 1, now)
        given_out += wait == 0
        if wait:
            assert bucket.delay("u", 1, now + wait - 1) > 0
            assert bucket.delay("u", 1, now + wait) == 0, "it says the truth about when"
            now += wait
            given_out += 1
        assert given_out * 1000 <= burst * 1000 + now * rate
