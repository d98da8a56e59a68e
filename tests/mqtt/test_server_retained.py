"""The server: retained messages, wills, and what happens by time alone."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Message
from denwatch.node.mqtt.interface import Limits

from tests.mqtt import wire
from tests.mqtt.wire import Got, World


class TestRetained:
    def test_a_new_subscriber_gets_the_last_one_with_the_flag(self) -> None:
        world = World()
        link = world.connect()
        world.send(link, wire.subscribe(1, ("a/b", 1)))
        world.send(link, wire.publish("a/b", b"old", 1, 1, retain=True))
        world.send(link, wire.publish("a/b", b"new", 1, 2, retain=True))
        assert [got.retain for got in world.take(link) if got.kind == "publish"] == [False, False]
        other = world.connect("other")
        world.send(other, wire.subscribe(1, ("a/+", 0), ("$x", 0)))
        assert world.take(other)[1:] == [Got("publish", 0, "a/b", b"new", 0, True)]
        world.send(other, wire.subscribe(2, ("a/+", 2)))
        (got,) = [got for got in world.take(other) if got.kind == "publish"]
        assert (got.payload, got.qos, got.retain) == (b"new", 1, True)

    def test_overlapping_filters_of_one_subscription_bring_it_once(self) -> None:
        world = World()
        world.publish("a/b", b"x", 1, retain=True)
        link = world.connect()
        world.send(link, wire.subscribe(1, ("#", 0), ("a/+", 2), ("a/b", 0)))
        assert world.take_messages(link) == [("a/b", b"x", 1)]

    def test_an_empty_one_takes_it_away(self) -> None:
        world = World()
        link = world.connect()
        world.send(link, wire.publish("a", b"x", retain=True))
        assert world.store.count() == 1
        world.send(link, wire.publish("a", b"", retain=True), wire.publish("b", b"", retain=True))
        assert world.store.count() == 0
        world.send(link, wire.subscribe(1, ("#", 0)))
        assert [got.kind for got in world.take(link)] == ["suback"]

    @pytest.mark.parametrize("limits", [Limits(retained=2), Limits(retained_bytes=700)])
    def test_they_are_bounded(self, limits: Limits) -> None:
        world = World(limits=limits)
        link = world.connect()
        payload = bytes(60)
        for topic in ("a", "b", "a"):
            world.send(link, wire.publish(topic, payload, 1, 1, retain=True))
        assert len(world.take(link)) == 3
        world.send(link, wire.publish("c", payload, 1, 1, retain=True))
        assert "too many retained" in world.closed[link]
        assert not world.take(link), "and it is not acknowledged"
        assert world.server.sessions.retained.count == 2

    def test_what_cannot_be_retained_for_the_node_or_a_will_is_sent_and_reported(self) -> None:
        world = World(limits=Limits(retained=1))
        world.publish("a", b"x", retain=True)
        link = world.connect()
        world.send(link, wire.subscribe(1, ("b", 1), ("w", 1)))
        world.publish("b", b"y", retain=True)
        world.lose(world.connect("dog", will=("w", b"gone", 0, True)))
        assert world.take_messages(link) == [("b", b"y", 1), ("w", b"gone", 0)]
        assert [refused.what for refused in world.take_refusals()] == [
            "retaining b",
            "retaining the will of ",
        ]
        assert world.server.sessions.retained.count == 1

    def test_more_retained_messages_than_the_queue_holds_all_arrive(self) -> None:
        world = World(limits=Limits(window=2, queue=3))
        for i in range(10):
            world.publish(f"r/{i}", b"x", retain=True)
        link = world.connect()
        world.send(link, wire.subscribe(1, ("r/#", 1)))
        topics: list[str] = []
        while got := [g for g in world.take(link) if g.kind == "publish"]:
            topics += [message.topic for message in got]
            world.send(link, *(wire.puback(message.id) for message in got))
        assert topics == [f"r/{i}" for i in range(10)]


class TestWills:
    def make(self, world: World, retain: bool = False) -> tuple[int, int]:
        listener = world.connect("listener")
        world.send(listener, wire.subscribe(1, ("w", 1)))
        world.take(listener)
        dying = world.connect("dog", keep_alive=10, will=("w", b"gone", 1, retain))
        return listener, dying

    def test_a_lost_link_leaves_its_will(self) -> None:
        world = World()
        listener, dying = self.make(world)
        world.lose(dying)
        assert world.take_messages(listener) == [("w", b"gone", 1)]
        assert world.take_events(Message) == [Message("", "w", b"gone")]

    def test_silence_leaves_it_after_one_and_a_half_times_the_keep_alive(self) -> None:
        world = World()
        listener, dying = self.make(world)
        world.tick(15_000)
        assert dying not in world.closed
        world.tick(1)
        assert world.closed[dying] == "nothing received within its keep-alive"
        assert world.take_messages(listener) == [("w", b"gone", 1)]

    def test_any_packet_keeps_it_alive(self) -> None:
        world = World()
        _, dying = self.make(world)
        for _ in range(3):
            world.tick(14_000)
            world.send(dying, wire.PINGREQ)
        assert world.take(dying) == [Got("pingresp")] * 3
        assert dying not in world.closed

    def test_garbage_leaves_it(self) -> None:
        world = World()
        listener, dying = self.make(world)
        world.send(dying, b"\xf0\x00")
        assert world.closed[dying] == "byte 0: a server gets no packet of kind 15"
        assert world.take_messages(listener) == [("w", b"gone", 1)]
        assert world.server.counts["malformed"] == 1

    def test_disconnect_takes_it_away(self) -> None:
        world = World()
        listener, dying = self.make(world)
        world.send(dying, wire.DISCONNECT)
        world.lose(dying)
        assert world.take_messages(listener) == []

    def test_it_can_be_retained(self) -> None:
        world = World()
        _, dying = self.make(world, retain=True)
        world.lose(dying)
        late = world.connect("late")
        world.send(late, wire.subscribe(1, ("w", 0)))
        assert world.take_messages(late) == [("w", b"gone", 0)]


class TestTime:
    def test_a_link_must_connect_in_time(self) -> None:
        world = World()
        link = world.open()
        world.tick(10_000)
        assert link not in world.closed
        world.tick(1)
        assert world.closed[link] == "no CONNECT in time"

    def test_keep_alive_zero_is_for_ever(self) -> None:
        world = World()
        link = world.connect("c", keep_alive=0)
        world.tick(10_000_000)
        assert link not in world.closed
