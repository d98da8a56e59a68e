"""A receiver that does not keep up never stops others: it is expelled, or misses what it must."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Message
from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.sessions import Sessions
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mqtt import wire, wire5
from tests.mqtt.checks import check_all
from tests.mqtt.wire import Got
from tests.mqtt.wire5 import World5

EXPEL = Limits(window=1, queue=2, patience_ms=1000)
DROP = Limits(window=1, queue=2, patience_ms=1000, full_queue="drop")


def start(limits: Limits, name: str = "t") -> tuple[World5, int, int, int]:
    """Return a world with a stalled receiver, one that keeps up, and a publisher."""
    world = World5(limits=limits)
    stalled = world.join("stalled", False, ("session", 1000))
    good, sender = world.connect("good"), world.connect("sender")
    world.send(stalled, wire5.subscribe(1, (name, 1)))
    world.send(good, wire.subscribe(1, (name, 1)))
    for link in (good, sender):
        world.take(link)
    world.get(stalled)
    return world, stalled, good, sender


def publish(world: World5, sender: int, good: int, number: int) -> list[bytes]:
    """Publish, acknowledge as who keeps up does, and return what that one received."""
    world.send(sender, wire.publish("t", b"%d" % number, 1, number))
    received = []
    for got in world.take(good):
        received.append(got.payload)
        world.send(good, wire.puback(got.id))
    return received


class TestExpelled:
    def test_who_reads_has_a_moment_and_is_told_when_it_is_over(self) -> None:
        world, stalled, good, sender = start(EXPEL)
        for number in range(1, 4):
            assert publish(world, sender, good, number) == [b"%d" % number]
        assert publish(world, sender, good, 4) == [], "the publisher waits for it"
        world.tick(1000)
        assert stalled not in world.closed
        world.tick(1)
        assert publish(world, sender, good, 5) == [b"4"]
        world.send(good)
        farewell = world.get(stalled)[-1]
        assert (farewell.kind, farewell.code) == ("disconnect", 0x97)
        assert ("", "stalled") not in world.server.sessions.all
        (refusal,) = world.take_refusals()
        assert refusal.why == "it does not keep up; 3 messages were waiting"
        assert world.server.counts["expelled"] == 1
        acknowledged = [got.id for got in world.take(sender) if got.kind == "puback"]
        assert acknowledged == [1, 2, 3, 4, 5]
        check_all(world, {})

    def test_who_makes_room_in_time_loses_nothing(self) -> None:
        world, stalled, good, sender = start(EXPEL)
        received: list[bytes] = []
        for number in range(1, 30):
            publish(world, sender, good, number)
            world.tick(900)
            for got in world.get(stalled):
                received.append(got.payload)
                world.send(stalled, wire.puback(got.id))
        while got5 := world.get(stalled):
            for got in got5:
                received.append(got.payload)
                world.send(stalled, wire.puback(got.id))
        assert received == [b"%d" % number for number in range(1, 30)]
        assert world.server.counts["expelled"] == 0

    @pytest.mark.parametrize("is_blocked", [True, False])
    def test_who_is_away_or_does_not_read_has_none(self, is_blocked: bool) -> None:
        world, stalled, good, sender = start(EXPEL)
        if is_blocked:
            world.perform(world.server.block(stalled, True, world.now))
        else:
            world.lose(stalled)
        for number in range(1, 10):
            assert publish(world, sender, good, number) == [b"%d" % number]
        assert world.server.counts["held"] == 0
        assert world.server.counts["expelled"] == 1
        world.join("stalled", False, ("session", 1000))
        assert not world.connack.is_present, "so that the client knows"
        check_all(world, {})

    def test_all_queues_together_expel_the_largest(self) -> None:
        world = World5(limits=Limits(total_queue_bytes=20_000))
        for name in ("large", "small"):
            link = world.connect(name, clean=False)
            world.send(link, wire.subscribe(1, (name, 1)), wire.DISCONNECT)
        sender = world.connect("s")
        for number in range(1, 40):
            world.send(sender, wire.publish("large", bytes(1000), 1, number))
        world.send(sender, wire.publish("small", b"x", 1, 99))
        assert len([g for g in world.take(sender) if g.kind == "puback"]) == 40
        assert world.server.sessions.bytes <= 20_000
        assert ("", "small") in world.server.sessions.all
        assert ("", "large") not in world.server.sessions.all
        check_all(world, {})


class TestDropped:
    def test_it_misses_what_has_no_room_and_that_is_reported(self) -> None:
        world, stalled, good, sender = start(DROP)
        world.lose(stalled)
        for number in range(1, 6):
            assert publish(world, sender, good, number) == [b"%d" % number]
        assert world.server.counts["dropped_full"] == 3
        assert len(world.take_refusals()) == 3
        stalled = world.join("stalled", False, ("session", 1000))
        assert world.connack.is_present
        received = []
        while got := world.get(stalled):
            received += [each.payload for each in got]
            world.send(stalled, *(wire.puback(each.id) for each in got))
        assert received == [b"1", b"2"]
        check_all(world, {})


def test_on_directed_topics_nothing_is_dropped() -> None:
    """The node keeps what it sends, and whoever looks on is disconnected: nobody waits."""
    for limits in (EXPEL, DROP):
        world, stalled, good, sender = start(limits, "dens/1/wd/dog-1/nv")
        for number in range(1, 10):
            world.send(sender, wire.publish("dens/1/wd/dog-1/nv", b"x", 1, number))
            world.send(good, *(wire.puback(got.id) for got in world.take(good)))
        assert world.take(sender) == [Got("puback", number) for number in range(1, 10)]
        assert len(world.take_events(Message)) == 9
        assert stalled in world.closed
        assert ("", "stalled") in world.server.sessions.all
        assert good not in world.closed


def check_that_nobody_stops_others(world: World5, links: tuple[int, int, int]) -> None:
    stalled, good, sender = links
    world.lose(stalled)
    for number in range(1, 10):
        assert publish(world, sender, good, number) == [b"%d" % number], "others were stopped"


def test_ablation_everybody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule one client that is away stops all others: the check must notice."""
    world, *links = start(EXPEL)
    check_that_nobody_stops_others(world, (links[0], links[1], links[2]))
    monkeypatch.setattr(Sessions, "_keeps_waiting", lambda *_: True)
    world, *links = start(EXPEL)
    with pytest.raises(AssertionError, match="others were stopped"):
        check_that_nobody_stops_others(world, (links[0], links[1], links[2]))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["expel", "drop"]),
    st.lists(st.tuples(st.sampled_from("pabltc"), st.integers(0, 2)), max_size=60),
)
def test_whatever_receivers_do_a_publisher_waits_no_longer_than_patience(
    way: str, steps: list[tuple[str, int]]
) -> None:
    world = World5(limits=Limits(window=1, queue=2, patience_ms=1000, full_queue=way))
    sender = world.connect("sender")
    links: dict[int, int] = {}
    number = 0
    for act, who in steps:
        link = links.get(who, 0)
        if link in world.closed:
            del links[who]
            link = 0
        if act == "p":
            number += 1
            world.send(sender, wire.publish("t", b"%d" % number, 1, number))
        elif act == "c" and not link:
            links[who] = world.join(f"r{who}", False, ("session", 1000))
            world.send(links[who], wire5.subscribe(1, ("t", 1)))
        elif act == "a" and link:
            for got in world.get(link):
                if got.kind == "publish":
                    world.send(link, wire.puback(got.id))
        elif act == "b" and link:
            world.perform(world.server.block(link, who == 0, world.now))
        elif act == "l" and link:
            world.lose(link)
            del links[who]
        elif act == "t":
            world.tick(400)
        check_all(world, {})
    world.tick(1001)
    world.tick(1001)
    answered = [got.id for got in world.take(sender) if got.kind == "puback"]
    assert answered == list(range(1, number + 1))
    assert sender not in world.closed
    check_all(world, {})
