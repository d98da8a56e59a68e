"""Who may do what: names, topics, sessions of others, and what is said under $SYS."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Message
from denwatch.node.mqtt.packets import MqttSession

from tests.mqtt import wire
from tests.mqtt.wire import Got, World

KEYS = {"medic7": b"m", "dog-1": b"d", "chief": b"c"}


class Own:
    """Everybody may use topics that end in their own name; the chief may use all."""

    def authenticate(self, user: str, password: bytes | None, client: str) -> int:
        if client == "banned":
            return 5
        return 0 if user in KEYS and KEYS[user] == password else 4

    def recognises(self, user: str, password: bytes | None) -> bool:
        return user in KEYS and KEYS[user] == password

    def may_publish(self, user: str, topic: str) -> bool:
        return user == "chief" or topic.endswith("/" + user)

    def may_subscribe(self, user: str, name: str) -> bool:
        return self.may_publish(user, name)


def join(world: World, user: str, client: str = "c", clean: bool = True) -> int:
    return world.connect(client, clean, user=user, password=KEYS[user].decode())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (wire.connect("c"), 4),
        (wire.connect("c", user="medic7"), 4),
        (wire.connect("c", user="medic7", password="d"), 4),
        (wire.connect("c", user="nobody", password="m"), 4),
        (wire.connect("banned", user="medic7", password="m"), 5),
        (wire.connect("c", user="medic7", password="m", will=("t/dog-1", b"", 0, False)), 5),
        (wire.connect("c", user="chief", password="c", will=("$SYS/x", b"", 0, False)), 5),
    ],
)
def test_who_does_not_belong_is_told_so_and_changes_nothing(data: bytes, code: int) -> None:
    world = World(Own())
    link = world.open()
    world.send(link, data, wire.publish("t/medic7", b"x"))
    assert world.take(link) == [Got("connack", payload=bytes([0, code]))]
    assert link in world.closed
    assert world.server.counts["connects_refused"] == 1
    assert not world.server.sessions.all
    assert not world.take_events(Message)


def test_the_sender_of_a_message_is_who_was_let_in() -> None:
    world = World(Own())
    world.send(join(world, "dog-1", "medic7"), wire.publish("t/dog-1", b"x"))
    assert world.take_events(Message) == [Message("dog-1", "t/dog-1", b"x")]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_someone_elses_topic_ends_the_link_unacknowledged(qos: int) -> None:
    world = World(Own())
    listener = join(world, "medic7")
    world.send(listener, wire.subscribe(1, ("t/medic7", 1)))
    world.take(listener)
    link = join(world, "dog-1")
    world.send(link, wire.publish("t/medic7", b"forged", qos, 3, retain=True))
    assert world.closed[link] == "publishing to t/medic7: not allowed"
    assert world.take(link) == []
    assert world.take(listener) == []
    (refused,) = world.take_refusals()
    assert refused[1:4] == ("dog-1", "publishing to t/medic7", "not allowed")
    assert world.store.count() == 0
    assert world.server.counts["refused"] == 1


def test_a_subscription_that_is_not_allowed_is_refused_alone() -> None:
    world = World(Own())
    link = join(world, "medic7")
    world.send(link, wire.subscribe(1, ("t/medic7", 1), ("t/dog-1", 1), ("#", 0)))
    assert world.take(link) == [Got("suback", 1, payload=b"\x01\x80\x80")]
    assert link not in world.closed
    assert len(world.take_refusals()) == 2


def check_that_sessions_belong_to_their_users(world: World) -> None:
    """A client id is not a secret; somebody who uses another's must get nothing by it."""
    link = join(world, "medic7", "app", clean=False)
    world.send(link, wire.subscribe(1, ("t/medic7", 1)))
    world.lose(link)
    world.publish("t/medic7", b"for the medic only")
    thief = join(world, "dog-1", "app", clean=False)
    assert world.take(thief) == [], "somebody else's messages"
    world.send(thief, wire.DISCONNECT)
    join(world, "dog-1", "app", clean=True)
    link = join(world, "medic7", "app", clean=False)
    assert world.take_messages(link) == [("t/medic7", b"for the medic only", 1)]
    join(world, "dog-1", "app")
    assert link not in world.closed


def test_sessions_belong_to_their_users() -> None:
    check_that_sessions_belong_to_their_users(World(Own()))


def test_ablation_sessions_by_client_id_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Own())

    class ByClient(dict[tuple[str, str], MqttSession]):
        def __setitem__(self, key: tuple[str, str], value: MqttSession) -> None:
            super().__setitem__(("", key[1]), value)

        def __contains__(self, key: object) -> bool:
            return isinstance(key, tuple) and super().__contains__(("", key[1]))

        def get(self, key: tuple[str, str], default: object = None) -> object:  # type: ignore[override]
            return super().get(("", key[1]), default)  # type: ignore[arg-type]

    monkeypatch.setattr(world.server.sessions, "all", ByClient())
    with pytest.raises(AssertionError, match="somebody else's messages"):
        check_that_sessions_belong_to_their_users(world)


def test_a_revoked_user_is_out_with_everything_it_had() -> None:
    world = World(Own())
    first = join(world, "medic7", "one", clean=False)
    world.send(first, wire.subscribe(1, ("t/medic7", 1)))
    world.send(join(world, "medic7", "two", clean=False), wire.DISCONNECT)
    other = join(world, "dog-1")
    world.perform(world.server.expel("medic7", world.now))
    assert set(world.closed) == {first, 2}
    assert other not in world.closed
    assert world.store.count() == 0
    assert list(world.server.sessions.all) == [("dog-1", "c")]


class TestStatus:
    def test_counts_are_published_and_retained_in_memory_alone(self) -> None:
        world = World(Own())
        chief = join(world, "chief")
        world.send(chief, wire.publish("a", b"x"), wire.subscribe(1, ("#", 0)))
        world.perform(world.server.report(world.now))
        assert world.take_messages(chief) == [], "# does not match $SYS"
        world.send(chief, wire.subscribe(2, ("$SYS/#", 0)))
        status = {got.topic: got.payload for got in world.take(chief) if got.kind == "publish"}
        assert status["$SYS/broker/clients/connected"] == b"1"
        assert status["$SYS/broker/messages/received"] == b"1"
        assert status["$SYS/broker/counts/refused"] == b"0"
        assert world.store.count() == 0

    def test_nobody_else_speaks_there(self) -> None:
        world = World(Own())
        chief = join(world, "chief")
        world.send(chief, wire.publish("$other/x", b"fine", 1, 1))
        assert world.take(chief) == [Got("puback", 1)]
        world.send(chief, wire.publish("$SYS/broker/clients/connected", b"999", 1, 2))
        assert chief in world.closed
        assert world.take(chief) == []
