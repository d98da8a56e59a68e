"""Directed topics: who listens, whose acknowledgement counts, and that nothing is kept."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Acknowledged, Listening, Message
from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.sessions import Sessions

from tests.mqtt import wire
from tests.mqtt.wire import World

NOTES = "dens/1/note/medic7"


def listen(world: World, client: str = "app", qos: int = 1, clean: bool = True) -> int:
    link = world.connect(client, clean)
    world.send(link, wire.subscribe(1, (NOTES, qos)))
    world.take(link)
    return link


class TestListening:
    def test_the_first_comes_and_the_last_leaves(self) -> None:
        world = World()
        first = listen(world, "a")
        assert world.take_events(Listening) == [Listening(NOTES, True)]
        second = listen(world, "b")
        world.send(second, wire.subscribe(2, (NOTES, 0)))
        world.lose(first)
        assert world.take_events(Listening) == []
        world.send(second, wire.unsubscribe(3, NOTES))
        assert world.take_events(Listening) == [Listening(NOTES, False)]
        world.lose(second)
        assert world.take_events(Listening) == []

    def test_a_session_that_comes_back_listens_without_subscribing_again(self) -> None:
        world = World()
        world.lose(listen(world, clean=False))
        world.connect("app", clean=False)
        assert world.take_events(Listening) == [
            Listening(NOTES, True),
            Listening(NOTES, False),
            Listening(NOTES, True),
        ]

    def test_taking_over_goes_down_and_up_so_that_the_node_sends_again(self) -> None:
        world = World()
        listen(world, clean=False)
        world.take_events()
        world.connect("app", clean=False)
        assert world.take_events(Listening) == [Listening(NOTES, False), Listening(NOTES, True)]

    @pytest.mark.parametrize("name", ["dens/1/note/+", "dens/1/#", "other/medic7", "dens/1/sub/x"])
    def test_other_filters_do_not_count(self, name: str) -> None:
        world = World()
        world.send(world.connect(), wire.subscribe(1, (name, 1)))
        assert world.take_events(Listening) == []


class TestTokens:
    def test_the_acknowledgement_comes_back_as_the_token(self) -> None:
        world = World()
        link = listen(world)
        world.publish(NOTES, b"x", token=42)
        (got,) = world.take(link)
        assert world.take_events(Acknowledged) == []
        world.send(link, wire.puback(got.id))
        assert world.take_events(Acknowledged) == [Acknowledged(NOTES, 42)]

    def test_of_several_listeners_the_first_counts_once(self) -> None:
        world = World()
        links = [listen(world, "a"), listen(world, "b")]
        world.publish(NOTES, b"x", token=42)
        for link in links:
            (got,) = world.take(link)
            world.send(link, wire.puback(got.id))
        assert world.take_events(Acknowledged) == [Acknowledged(NOTES, 42)]

    def test_a_listener_of_qos_0_has_it_when_it_is_sent(self) -> None:
        world = World()
        link = listen(world, qos=0)
        world.publish(NOTES, b"x", token=42)
        assert world.take_messages(link) == [(NOTES, b"x", 0)]
        assert world.take_events(Acknowledged) == [Acknowledged(NOTES, 42)]

    def test_a_listener_of_qos_0_that_does_not_read_has_it_later(self) -> None:
        world = World()
        link = listen(world, qos=0)
        world.perform(world.server.block(link, True, world.now))
        world.publish(NOTES, b"x", token=42)
        assert world.take(link) == []
        assert world.take_events(Acknowledged) == []
        world.perform(world.server.block(link, False, world.now))
        assert world.take_messages(link) == [(NOTES, b"x", 0)]
        assert world.take_events(Acknowledged) == [Acknowledged(NOTES, 42)]

    def test_without_a_token_nobody_hears_of_it(self) -> None:
        world = World()
        link = listen(world)
        world.publish(NOTES, b"x")
        world.send(link, wire.puback(world.take(link)[0].id))
        assert world.take_events(Acknowledged) == []

    def test_what_a_lost_listener_had_goes_to_another(self) -> None:
        world = World(limits=Limits(window=1))
        first = listen(world, "a")
        world.publish(NOTES, b"1", token=1)
        world.publish(NOTES, b"2", token=2)
        second = listen(world, "b")
        world.publish(NOTES, b"3", token=3)  # both have this one
        assert world.take_messages(second) == [(NOTES, b"3", 1)]
        world.send(second, wire.puback(1))
        world.lose(first)
        received = []
        while got := world.take(second):
            received += [message.payload for message in got]
            world.send(second, *(wire.puback(message.id) for message in got))
        assert received == [b"1", b"2"]
        assert world.take_events(Acknowledged) == [Acknowledged(NOTES, n) for n in (3, 1, 2)]

    def test_a_listener_that_does_not_keep_up_is_sent_away_so_that_the_node_hears(self) -> None:
        world = World(limits=Limits(window=1, queue=2))
        link = listen(world)
        world.take_events()
        for token in range(1, 5):
            world.publish(NOTES, b"x", token=token)
        assert world.closed[link] == "the client does not keep up"
        assert world.take_events(Listening) == [Listening(NOTES, False)]


def check_that_onlookers_do_not_acknowledge(world: World) -> None:
    onlooker = world.connect("onlooker")
    world.send(onlooker, wire.subscribe(1, ("dens/1/note/+", 1)))
    world.take(onlooker)
    listener = listen(world)
    world.publish(NOTES, b"x", token=42)
    (got,) = world.take(onlooker)
    world.send(onlooker, wire.puback(got.id))
    assert world.take_events(Acknowledged) == [], "acknowledged, and the medic has nothing"
    world.send(listener, wire.puback(world.take(listener)[0].id))
    assert world.take_events(Acknowledged) == [Acknowledged(NOTES, 42)]


def check_that_nothing_directed_is_kept(world: World) -> None:
    link = listen(world, clean=False)
    world.publish(NOTES, b"in flight", token=1)
    world.send(link, wire.DISCONNECT)
    world.publish(NOTES, b"while away", token=2)
    link = world.connect("app", clean=False)
    assert world.take(link) == [], "the node sends these itself: they would come twice"
    assert world.server.sessions.bytes == 0
    assert world.store.count() == 2, "the session and its subscription, and no message"


def check_that_onlookers_hold_up_nobody(world: World) -> None:
    """A watchdog must get its readings through, whoever once looked on and went away."""
    for client in ("away", "asleep"):
        link = world.connect(client, clean=False)
        world.send(link, wire.subscribe(1, ("dens/1/#", 1)))
        if client == "away":
            world.lose(link)
    dog = world.connect("dog-1")
    for number in range(1, 11):
        world.send(dog, wire.publish("dens/1/wd/dog-1/nv", b"x", 1, number))
    assert [got.id for got in world.take(dog)] == list(range(1, 11)), "a watchdog was held up"
    assert len(world.take_events(Message)) == 10


def test_onlookers_hold_up_nobody() -> None:
    check_that_onlookers_hold_up_nobody(World(limits=Limits(window=1, queue=2)))


def test_onlookers_do_not_acknowledge() -> None:
    check_that_onlookers_do_not_acknowledge(World())


def test_nothing_directed_is_kept() -> None:
    check_that_nothing_directed_is_kept(World())


class TestAblation:
    """Each rule taken away: its check must fail."""

    def test_the_rule_of_exact_listeners(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World()
        find_all = world.server.sessions.index.find_all
        monkeypatch.setattr(world.server.sessions.index, "get_exact", find_all)
        with pytest.raises(AssertionError, match="the medic has nothing"):
            check_that_onlookers_do_not_acknowledge(world)

    def test_the_rule_of_directed_topics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("denwatch.node.mqtt.sessions.is_directed", lambda _: False)
        with pytest.raises(AssertionError, match="they would come twice"):
            check_that_nothing_directed_is_kept(World())
        with pytest.raises(AssertionError, match="a watchdog was held up"):
            check_that_onlookers_hold_up_nobody(World(limits=Limits(window=1, queue=2)))

    def test_handing_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Sessions, "_hand_over", lambda *_: None)
        with pytest.raises(AssertionError):
            TestTokens().test_what_a_lost_listener_had_goes_to_another()

    def test_sending_slow_listeners_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("denwatch.node.mqtt.server.MqttServer._close_slow", lambda *_: None)
        test = TestTokens()
        with pytest.raises((AssertionError, KeyError)):
            test.test_a_listener_that_does_not_keep_up_is_sent_away_so_that_the_node_hears()
