"""MQTT 5: what CONNECT agrees on, reasons, properties, aliases, expiry, options, shared filters.

What the Eclipse Paho suite for MQTT 5 checks stands here, too, without its clock.
"""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Message, Publish, Write
from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.records import SESSIONS, WILLS, StoredRecordError

from simulator.open_server import OpenRules
from tests.mqtt import wire, wire5
from tests.mqtt.checks import check_all
from tests.mqtt.wire5 import World5

SHARED = "$share/g/"


class Medic(OpenRules):
    """medic7 has its own topics and `chat/`; nobody else has any."""

    def authenticate(self, user: str, password: bytes | None, client: str) -> int:  # noqa: ARG002
        return 0 if password == b"secret" else 4

    def may_publish(self, user: str, topic: str) -> bool:
        return topic in (f"dens/1/sub/{user}", "chat/a")

    def may_subscribe(self, user: str, name: str) -> bool:
        return name in (f"dens/1/reply/{user}", "chat/a")


def topics(got: list[wire5.Got5]) -> list[tuple[str, bytes]]:
    return [(each.topic, each.payload) for each in got if each.kind == "publish"]


class TestConnecting:
    def test_connack_says_what_the_server_accepts(self) -> None:
        world = World5(limits=Limits(inbound=9, packet_bytes=5000, topic_aliases=3))
        world.join()
        assert world.connack.props == {"receive": [9], "largest": [5000], "aliases": [3]}
        world.join("d", keep_alive=120)
        assert world.connack.props["server_keep_alive"] == [60]
        world.join("e", keep_alive=0)
        assert world.connack.props["server_keep_alive"] == [60], "presence is known in time"

    def test_a_client_without_an_id_gets_one_and_may_come_back_with_it(self) -> None:
        world = World5()
        link = world.join("", False, ("session", 100))
        (name,) = world.connack.props["assigned"]
        assert isinstance(name, str)
        world.send(link, wire5.subscribe(1, ("t", 1)))
        world.join("", False)
        assert world.connack.props["assigned"] != [name]
        world.lose(link)
        world.publish("t", b"x")
        again = world.join(name, False, ("session", 100))
        assert world.connack.is_present
        assert topics(world.get(again)) == [("t", b"x")]

    @pytest.mark.parametrize(
        ("packet", "code", "words"),
        [
            (wire5.connect(user="x", password="wrong"), 0x86, "wrong user name"),
            (wire5.connect("c", True, ("method", "SCRAM")), 0x8C, "not supported"),
            (
                wire5.connect(user="medic7", password="secret", will=("chat/b", b"", 0, False)),
                0x87,
                "not allowed",
            ),
            (wire5.connect("c", True, ("alias", 1)), 0x82, "property 35"),
            (wire5.connect("c", True, ("receive", 0)), 0x82, "property 33 is 0"),
            (wire5.connect("c", True, ("session", 1), ("session", 1)), 0x82, "twice"),
            (wire5.connect("c", True, ("auth_data", b"x")), 0x82, "without a method"),
            (wire5.connect("c", True, ("problems", 2)), 0x82, "property 23 is 2"),
            (wire5.connect("c" * 300), 0x81, "client id"),
        ],
    )
    def test_a_refusal_has_its_reason(self, packet: bytes, code: int, words: str) -> None:
        world = World5(Medic())
        link = world.knock()
        world.send(link, packet)
        (answer,) = world.get(link)
        assert (answer.kind, answer.code) == ("connack", code)
        assert words in answer.reason
        assert link in world.closed
        assert world.server.counts["failed"] == 0

    def test_a_password_needs_no_user_name(self) -> None:
        """3.1.1 forbids it, MQTT 5 does not; the rules decide."""
        world = World5(Medic())
        world.join(password="secret")

    def test_the_response_topic_is_told_to_who_asks(self) -> None:
        world = World5(Medic())
        world.join("c", True, ("wants_response", 1), user="medic7", password="secret")
        assert world.connack.props["response_information"] == ["dens/1/reply/medic7"]

    def test_a_takeover_is_told(self) -> None:
        world = World5()
        first = world.join("c")
        world.join("c")
        (got,) = world.get(first)
        assert (got.kind, got.code) == ("disconnect", 0x8E)

    def test_a_second_connect_is_told(self) -> None:
        world = World5()
        link = world.join()
        world.send(link, wire5.connect())
        assert [(g.kind, g.code) for g in world.get(link)] == [("disconnect", 0x82)]

    def test_authentication_cannot_begin_later(self) -> None:
        world = World5()
        link = world.join()
        world.send(link, wire.packet(0xF0))
        assert [(g.kind, g.code) for g in world.get(link)] == [("disconnect", 0x82)]

    def test_silence_and_the_end_of_the_node_are_told(self) -> None:
        world = World5()
        link, other = world.join("a", keep_alive=2), world.join("b")
        old = world.connect("c")
        world.tick(3001)
        assert [(g.kind, g.code) for g in world.get(link)] == [("disconnect", 0x8D)]
        world.perform(world.server.say_goodbye())
        assert [(g.kind, g.code) for g in world.get(other)] == [("disconnect", 0x8B)]
        assert old not in world.closed
        assert world.take(old) == [], "3.1.1 has no word for it"

    def test_a_revoked_user_is_told(self) -> None:
        world = World5()
        link = world.join("a", user="medic7")
        world.perform(world.server.expel("medic7", world.now))
        assert [(g.kind, g.code) for g in world.get(link)] == [("disconnect", 0x98)]


class TestReasons:
    def test_a_refused_publish_says_why_and_the_link_stays(self) -> None:
        world = World5(Medic())
        link = world.join(user="medic7", password="secret")
        world.send(
            link,
            wire5.publish("chat/b", b"x", 1, 1),
            wire5.publish("chat/b", b"x", 2, 2),
            wire5.publish("chat/a", b"x", 1, 3),
        )
        one, two, three = world.get(link)
        assert (one.kind, one.id, one.code, one.reason) == ("puback", 1, 0x87, "not allowed")
        assert (two.kind, two.id, two.code) == ("pubrec", 2, 0x87)
        assert (three.kind, three.code) == ("puback", 0)
        assert len(world.take_refusals()) == 2
        world.send(link, wire5.publish("chat/b", b"x"))
        (last,) = world.get(link)
        assert (last.kind, last.code) == ("disconnect", 0x87), "QoS 0 has no other answer"
        assert "chat/b" in last.reason

    def test_who_wants_no_reasons_gets_codes_alone(self) -> None:
        world = World5(Medic())
        link = world.join("c", True, ("problems", 0), user="medic7", password="secret")
        world.send(link, wire5.publish("chat/b", b"x", 1, 1))
        (answer,) = world.get(link)
        assert (answer.code, answer.props) == (0x87, {})

    def test_a_reason_that_is_too_long_for_the_client_is_left_out(self) -> None:
        world = World5(Medic())
        link = world.join("c", True, ("largest", 12), user="medic7", password="secret")
        world.send(link, wire5.publish("chat/b", b"x", 1, 1))
        (answer,) = world.get(link)
        assert (answer.code, answer.props) == (0x87, {})

    def test_subscribing_is_answered_filter_by_filter(self) -> None:
        world = World5(Medic(), Limits(subscriptions=1))
        link = world.join(user="medic7", password="secret")
        world.send(
            link,
            wire5.subscribe(1, ("chat/a", 1), ("chat/b", 1), ("dens/1/reply/medic7", 1)),
            wire5.unsubscribe(2, "chat/a", "chat/b"),
        )
        suback, unsuback = world.get(link)
        assert suback.codes == (1, 0x80, 0x97)
        assert "chat/b: not allowed" in suback.reason
        assert unsuback.codes == (0, 0x11)

    def test_unknown_ids_have_a_reason(self) -> None:
        world = World5()
        link = world.join()
        world.send(link, wire.pubrel(7), wire.pubrec(8))
        assert [(g.kind, g.id, g.code) for g in world.get(link)] == [
            ("pubcomp", 7, 0x92),
            ("pubrel", 8, 0x92),
        ]

    def test_a_full_receiver_is_the_publishers_answer(self) -> None:
        """3.1.1 can only close the link."""
        world = World5(limits=Limits(window=1, queue=1, hold_ms=1000, full_queue="wait"))
        receiver = world.connect("r", clean=False)
        world.send(receiver, wire.subscribe(1, ("t", 1)))
        sender = world.join("s")
        world.send(sender, *(wire5.publish("t", b"%d" % n, 1, n) for n in range(1, 5)))
        assert [g.id for g in world.get(sender)] == [1, 2]
        world.tick(1001)
        (answer,) = world.get(sender)
        assert (answer.kind, answer.id, answer.code) == ("puback", 3, 0x97)
        world.tick(1001)
        assert [(g.id, g.code) for g in world.get(sender)] == [(4, 0x97)]
        assert sender not in world.closed
        world.send(receiver, *(wire.puback(g.id) for g in world.take(receiver) if g.id))
        world.send(sender, wire5.publish("t", b"5", 1, 5))
        assert [(g.id, g.code) for g in world.get(sender)] == [(5, 0)]
        check_all(world, {})

    def test_a_slow_reader_is_told(self) -> None:
        world = World5(limits=Limits(window=1, queue=1))
        link = world.join("m")
        world.send(link, wire5.subscribe(1, ("dens/1/note/m", 1)))
        world.get(link)
        for number in range(3):
            world.publish("dens/1/note/m", b"%d" % number, token=number + 1)
        message, farewell = world.get(link)
        assert message.payload == b"0"
        assert (farewell.kind, farewell.code) == ("disconnect", 0x97)


BAD = {
    "alias zero": (wire5.publish("t", b"", 0, 0, ("alias", 0)), 0x94),
    "alias too high": (wire5.publish("t", b"", 0, 0, ("alias", 33)), 0x94),
    "unknown alias": (wire5.publish("", b"", 0, 0, ("alias", 1)), 0x82),
    "no topic": (wire5.publish("", b"x"), 0x82),
    "wildcard": (wire5.publish("a/#"), 0x90),
    "response with a wildcard": (wire5.publish("t", b"", 0, 0, ("response", "a/+")), 0x90),
    "subscription number of a client": (wire5.publish("t", b"", 0, 0, ("subscription", 1)), 0x82),
    "format": (wire5.publish("t", b"", 0, 0, ("format", 2)), 0x82),
    "expiry twice": (wire5.publish("t", b"", 0, 0, ("expiry", 2), ("expiry", 2)), 0x82),
    "a property of nothing": (wire.packet(0x30, wire.field("t") + b"\x02\x77\x00"), 0x82),
    "properties too long": (wire.packet(0x30, wire.field("t") + b"\x7f\x01"), 0x81),
    "half a property": (wire.packet(0x30, wire.field("t") + b"\x02\x02\x00"), 0x81),
    "endless length": (wire.packet(0x30, wire.field("t") + b"\xff\xff\xff\xff\x01"), 0x81),
    "no properties": (wire.packet(0x30, wire.field("t")), 0x81),
    "not UTF-8": (wire.packet(0x30, wire.field("t") + b"\x04\x03\x00\x01\xff"), 0x81),
    "user property, U+0000": (wire5.publish("t", b"", 0, 0, ("user", ("a", "\0"))), 0x81),
    "too large": (wire5.publish("t", b"x" * 6000), 0x95),
    "a bad filter": (wire5.subscribe(1, ("a/#/b", 0)), 0x8F),
    "a group without a name": (wire5.subscribe(1, ("$share//a", 0)), 0x8F),
    "a group without a filter": (wire5.subscribe(1, ("$share/g/", 0)), 0x8F),
    "a group with a wildcard": (wire5.subscribe(1, ("$share/+/a", 0)), 0x8F),
    "a shared filter without what is its own": (wire5.subscribe(1, ("$share/g/a", 4)), 0x82),
    "options": (wire5.subscribe(1, ("a", 0x30)), 0x81),
    "subscription number zero": (wire.packet(0x82, b"\0\1\2\x0b\0\0\1a\0"), 0x82),
    "bytes behind PUBACK": (wire.packet(0x40, b"\0\1\0\0\0"), 0x81),
    "disconnect, a session that was to end": (wire5.disconnect(0, ("session", 5)), 0x82),
    "disconnect, a property of another": (wire5.disconnect(0, ("alias", 5)), 0x82),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_before_the_link_closes(name: str) -> None:
    data, code = BAD[name]
    for cut in (len(data), 1):  # whole, and byte by byte
        world = World5(limits=Limits(packet_bytes=5000))
        link = world.join()
        for start in range(0, len(data), cut):
            world.send(link, data[start : start + cut])
        (got,) = world.get(link)
        assert (got.kind, hex(got.code)) == ("disconnect", hex(code))
        assert got.reason
        assert link in world.closed
        assert world.server.counts["failed"] == 0, "an exception, not a refusal"
        assert not world.take_events(Message)


class TestMessages:
    PAIRS = (
        ("format", 1),
        ("content", "text/plain"),
        ("response", "answers"),
        ("correlation", b"\0\1"),
        ("user", ("a", "2")),
        ("user", ("a", "3")),
    )

    def test_properties_go_on_to_receivers_in_their_order(self) -> None:
        world = World5()
        link, old = world.join(), world.connect("old")
        world.send(link, wire5.subscribe(1, ("t", 2)))
        world.send(old, wire.subscribe(1, ("t", 2)))
        world.take(old)
        world.get(link)
        for qos in range(3):
            world.send(link, wire5.publish("t", b"x", qos, qos, *self.PAIRS))
            (got,) = [g for g in world.get(link) if g.kind == "publish"]
            assert got.props == {
                "format": [1],
                "content": ["text/plain"],
                "response": ["answers"],
                "correlation": [b"\0\1"],
                "user": [("a", "2"), ("a", "3")],
            }
        assert [g.payload for g in world.take(old) if g.kind == "publish"] == [b"x"] * 3

    def test_properties_of_retained_messages_and_wills_go_on_and_survive(self) -> None:
        world = World5()
        link = world.join(
            "w", will=("will", b"gone", 1, True), will_props=(("user", ("a", "2")), ("expiry", 50))
        )
        world.send(link, wire5.publish("t/a", b"x", 1, 1, *self.PAIRS, retain=True))
        world.lose(link)
        world.restart()
        reader = world.join("r")
        world.send(reader, wire5.subscribe(1, ("#", 1)))
        got = {g.topic: g for g in world.get(reader) if g.kind == "publish"}
        assert got["t/a"].props["user"] == [("a", "2"), ("a", "3")]
        assert got["will"].props == {"user": [("a", "2")], "expiry": [50]}
        assert got["will"].retain

    def test_messages_expire(self) -> None:
        world = World5()
        reader = world.join("r", False, ("session", 99999))
        world.send(reader, wire5.subscribe(1, ("t", 2)))
        old = world.connect("old", clean=False)
        world.send(old, wire.subscribe(1, ("t", 2)))
        world.lose(reader)
        world.lose(old)
        sender = world.join("s")
        for number, (qos, life) in enumerate([(1, 1), (2, 1), (1, 6), (2, 6)], 1):
            world.send(sender, wire5.publish("t", b"%d" % life, qos, number, ("expiry", life)))
        world.tick(3000)
        world.restart()
        reader = world.join("r", False, ("session", 99999))
        got = [g for g in world.get(reader) if g.kind == "publish"]
        assert [(g.payload, g.qos) for g in got] == [(b"6", 1), (b"6", 2)]
        assert [g.props["expiry"] for g in got] == [[3], [3]], "what is left of it"
        old = world.connect("old", clean=False)
        assert [g.payload for g in world.take(old)] == [b"6", b"6"]
        assert world.server.counts["expired"] == 4
        check_all(world, {})

    def test_retained_messages_expire(self) -> None:
        world = World5()
        link = world.join()
        world.send(link, wire5.publish("t", b"x", 1, 1, ("expiry", 10), retain=True))
        world.tick(9000)
        world.send(link, wire5.subscribe(1, ("t", 1)))
        assert [g.props["expiry"] for g in world.get(link) if g.kind == "publish"] == [[1]]
        world.tick(2000)
        world.send(link, wire5.subscribe(2, ("t", 1)))
        assert not topics(world.get(link))
        world.tick(60_000)
        assert world.server.sessions.retained.count == 0
        check_all(world, {})

    def test_aliases_of_a_client(self) -> None:
        world = World5()
        link, other = world.join("a"), world.join("b")
        world.send(
            link,
            wire5.publish("t/a", b"1", 1, 1, ("alias", 1)),
            wire5.publish("", b"2", 1, 2, ("alias", 1)),
            wire5.publish("t/b", b"3", 1, 3, ("alias", 1)),
            wire5.publish("", b"4", 1, 4, ("alias", 1)),
            wire5.publish("t/c", b"5", 1, 5),
        )
        found = [(m.topic, m.payload) for m in world.take_events(Message)]  # type: ignore[attr-defined]
        want = [("t/a", b"1"), ("t/a", b"2"), ("t/b", b"3"), ("t/b", b"4"), ("t/c", b"5")]
        assert found == want
        world.send(other, wire5.publish("", b"x", 1, 1, ("alias", 1)))
        assert world.get(other)[0].code == 0x82, "an alias is of its link alone"

    def test_aliases_of_the_server(self) -> None:
        world = World5()
        link = world.join("a", False, ("aliases", 1), ("session", 100))
        world.send(link, wire5.subscribe(1, ("t/#", 2)))
        world.get(link)
        for qos in range(3):
            world.publish("t/a", b"x", qos)
        world.publish("t/b", b"y")
        one, two, three, four = world.get(link)
        assert (one.topic, one.props["alias"]) == ("t/a", [1])
        assert [(g.topic, g.props["alias"]) for g in (two, three)] == [("", [1])] * 2
        assert (four.topic, four.props) == ("t/b", {}), "there is no second one"
        world.lose(link)
        link = world.join("a", False, ("aliases", 1), ("session", 100))
        assert [g.topic for g in world.get(link)] == ["t/a", "", "t/b"], "a link begins anew"
        plain = world.join("b")
        world.send(plain, wire5.subscribe(1, ("t/#", 0)))
        world.get(plain)
        world.publish("t/a", b"x", 0)
        assert world.get(plain)[0].props == {}

    def test_a_packet_that_a_client_does_not_accept_is_not_sent_and_reported(self) -> None:
        world = World5()
        link = world.join("a", False, ("largest", 64), ("session", 50), ("aliases", 1))
        world.send(link, wire5.subscribe(1, ("t", 2)))
        world.get(link)
        for qos in range(3):
            world.publish("t", b"." * 32, qos)
            world.publish("t", b"." * 64, qos)
        assert [(g.qos, len(g.payload)) for g in world.get(link)] == [(0, 32), (1, 32), (2, 32)]
        assert len(world.take_refusals()) == 3
        assert world.server.counts["dropped_large"] == 3
        check_all(world, {})
        world.lose(link)
        world.publish("t", b"." * 100, 1)
        link = world.join("a", False, ("largest", 38), ("session", 50))
        assert world.get(link) == [], "neither what waited nor what is repeated"
        assert not world.server.sessions.all["", "a"].in_flight
        check_all(world, {})

    def test_the_client_limits_what_is_in_flight(self) -> None:
        world = World5()
        link = world.join("a", False, ("receive", 2), ("session", 50))
        world.send(link, wire5.subscribe(1, ("t", 1)))
        world.get(link)
        for number in range(5):
            world.publish("t", b"%d" % number)
        first = world.get(link)
        assert [g.payload for g in first] == [b"0", b"1"]
        world.send(link, wire.puback(first[0].id))
        assert [g.payload for g in world.get(link)] == [b"2"]
        world.lose(link)
        link = world.join("a", False, ("receive", 1), ("session", 50))
        received = []
        while got := world.get(link):
            assert len(got) == 1, "a smaller window than before"
            received.append(got[0].payload)
            world.send(link, wire.puback(got[0].id))
        assert received == [b"1", b"2", b"3", b"4"]
        check_all(world, {})

    def test_the_server_limits_what_is_not_released(self) -> None:
        world = World5(limits=Limits(inbound=3))
        link = world.join()
        world.send(link, *(wire5.publish("t", b"", 2, n) for n in range(1, 5)))
        got = world.get(link)
        assert [g.kind for g in got] == ["pubrec", "pubrec", "pubrec", "disconnect"]
        assert got[-1].code == 0x93

    def test_a_client_may_refuse_a_message_of_qos_2(self) -> None:
        world = World5()
        link = world.join("a", False, ("session", 50))
        world.send(link, wire5.subscribe(1, ("t", 2)))
        world.publish("t", b"x", 2)
        (got,) = [g for g in world.get(link) if g.kind == "publish"]
        world.send(link, wire5.answer(0x50, got.id, 0x99))
        assert world.get(link) == [], "no PUBREL"
        assert not world.server.sessions.all["", "a"].in_flight
        check_all(world, {})


class TestSubscriptions:
    def test_options(self) -> None:
        world = World5()
        one, two = world.join("a"), world.join("b")
        for link in (one, two):
            world.send(link, wire5.subscribe(1, ("t", 1 | 4)))
            world.get(link)
        world.send(one, wire5.publish("t", b"x", 1, 1))
        assert not topics(world.get(one)), "not what is its own"
        assert topics(world.get(two)) == [("t", b"x")]
        world.publish("t", b"y")
        assert topics(world.get(one)) == [("t", b"y")]

    def test_retained_as_published(self) -> None:
        world = World5()
        link, plain = world.join("a"), world.join("b")
        world.send(link, wire5.subscribe(1, ("t", 1 | 8)))
        world.send(plain, wire5.subscribe(1, ("t", 1)))
        for retain in (False, True):
            world.send(plain, wire5.publish("t", b"x", 1, 1, retain=retain))
        assert [g.retain for g in world.get(link) if g.kind == "publish"] == [False, True]
        assert [g.retain for g in world.get(plain) if g.kind == "publish"] == [False, False]

    @pytest.mark.parametrize(("handling", "counts"), [(0, [1, 1]), (1, [1, 0]), (2, [0, 0])])
    def test_when_retained_messages_are_sent(self, handling: int, counts: list[int]) -> None:
        world = World5()
        world.publish("t", b"x", retain=True)
        link = world.join("a")
        for count in counts:
            world.send(link, wire5.subscribe(1, ("+", 1 | handling << 4)))
            assert len(topics(world.get(link))) == count

    def test_numbers_of_subscriptions(self) -> None:
        world = World5()
        link = world.join("a", False, ("session", 50))
        world.send(link, wire5.subscribe(1, ("t/#", 1), subscription=456_789))
        world.send(link, wire5.subscribe(2, ("t/a", 2), subscription=2))
        world.send(link, wire5.subscribe(3, ("t/+", 0)))
        world.get(link)
        world.publish("t/a", b"x", 2)
        (got,) = world.get(link)
        assert got.qos == 2, "the best"
        assert sorted(got.props["subscription"]) == [2, 456_789]  # type: ignore[type-var]
        world.lose(link)
        world.publish("t/b", b"y", 1)
        world.restart()
        link = world.join("a", False, ("session", 50))
        again, waited = world.get(link)
        assert sorted(again.props["subscription"]) == [2, 456_789]  # type: ignore[type-var]
        assert waited.props["subscription"] == [456_789]
        world.publish("kept", b"z", retain=True)
        world.send(link, wire5.subscribe(4, ("kept", 1), subscription=7))
        (kept,) = [g for g in world.get(link) if g.kind == "publish"]
        assert kept.props["subscription"] == [7]
        check_all(world, {})

    def test_a_wildcard_in_front_does_not_match_the_nodes_own_topics(self) -> None:
        world = World5()
        nosy, own = world.join("n"), world.join("m")
        world.send(nosy, wire5.subscribe(1, ("#", 1), ("+/1/note/m", 1), (SHARED + "#", 1)))
        world.send(own, wire5.subscribe(1, ("dens/1/note/m", 1)))
        world.publish("dens/1/note/m", b"x", token=1)
        assert not topics(world.get(nosy))
        assert topics(world.get(own)) == [("dens/1/note/m", b"x")]

    def test_shared_subscriptions_take_turns(self) -> None:
        world = World5()
        links = [world.join(name) for name in "abc"]
        old = world.connect("old")
        for link in links:
            world.send(link, wire5.subscribe(1, (SHARED + "t/#", 1)))
            world.get(link)
        world.send(old, wire.subscribe(1, (SHARED + "t/#", 1), ("t/x", 1)))
        world.take(old)
        for number in range(8):
            world.publish("t/x", b"%d" % number)
        received = [len(world.get(link)) for link in links]
        assert received == [2, 2, 2]
        assert len(world.take_messages(old)) == 2 + 8, "its own subscription besides"
        world.publish("other", b"x", retain=True)
        world.send(links[0], wire5.subscribe(2, (SHARED + "other", 1)))
        assert not topics(world.get(links[0])), "nothing retained"
        world.send(links[0], wire5.unsubscribe(3, SHARED + "t/#"))
        world.get(links[0])
        for _ in range(4):
            world.publish("t/y", b"x")
        assert not world.get(links[0])
        check_all(world, {})

    def test_what_a_lost_member_did_not_acknowledge_goes_to_another(self) -> None:
        world = World5()
        one, two = world.join("a"), world.join("b")
        for link in (one, two):
            world.send(link, wire5.subscribe(1, (SHARED + "t", 2)))
            world.get(link)
        for number in range(4):
            world.publish("t", b"%d" % number, 1)
        world.publish("t", b"twice", 2)
        world.publish("t", b"twice", 2)
        assert [len(topics(world.get(link))) for link in (one, two)] == [3, 3]
        world.lose(one)
        got = world.get(two)
        assert len(got) == 2, "QoS 1; what may have arrived with QoS 2 is not sent twice"
        check_all(world, {})

    def test_a_member_that_does_not_read_is_passed_over(self) -> None:
        world = World5(limits=Limits(window=1, queue=1))
        one, two = world.join("a"), world.join("b")
        for link in (one, two):
            world.send(link, wire5.subscribe(1, (SHARED + "t", 1)))
            world.get(link)
        world.perform(world.server.block(one, True, world.now))
        for number in range(3):
            world.publish("t", b"%d" % number)
            for got in world.get(two):
                world.send(two, wire.puback(got.id))
        assert len(world.take_refusals()) == 0
        assert not world.get(one)

    def test_the_nodes_own_topics_are_not_shared(self) -> None:
        world = World5()
        link = world.join("a")
        world.send(link, wire5.subscribe(1, (SHARED + "dens/1/note/m", 1), (SHARED + "t", 1)))
        assert world.get(link)[0].codes == (0x9E, 1)
        old = world.connect("o")
        world.send(old, wire.subscribe(1, (SHARED + "dens/1/note/m", 1)))
        assert world.take(old)[0].payload == b"\x80"

    def test_shared_subscriptions_survive_a_restart(self) -> None:
        world = World5()
        link = world.join("a", False, ("session", 50))
        world.send(link, wire5.subscribe(1, (SHARED + "t", 1)))
        world.lose(link)
        world.restart()
        world.publish("t", b"x")
        world.restart()
        link = world.join("a", False, ("session", 50))
        assert topics(world.get(link)) == [("t", b"x")]
        check_all(world, {})

    def test_what_waited_for_a_member_over_a_restart_goes_to_another_when_it_ends(self) -> None:
        world = World5()
        link = world.join("a", False, ("session", 5))
        world.send(link, wire5.subscribe(1, (SHARED + "t", 1)))
        world.lose(link)
        world.publish("t", b"x")
        world.restart()
        other = world.join("b")
        world.send(other, wire5.subscribe(1, (SHARED + "t", 1)))
        world.get(other)
        world.tick(10_000)
        assert topics(world.get(other)) == [("t", b"x")]
        check_all(world, {})


class TestSessions:
    def test_a_session_stays_as_long_as_it_was_asked_to(self) -> None:
        world = World5(limits=Limits(session_ms=100_000))
        for expiry, later, is_there in [
            (0, 0, False),
            (5, 4, True),
            (5, 6, False),
            (1000, 101, False),
        ]:
            link = world.join("a", True, ("session", expiry))
            world.send(link, wire5.subscribe(1, ("t", 1)))
            world.lose(link)
            world.tick(later * 1000)
            link = world.join("a", False, ("session", 5))
            assert world.connack.is_present is is_there, (expiry, later)
            world.lose(link)
        world.join("b", True, ("session", 0xFFFFFFFF))
        assert world.connack.props["session"] == [100], "told what it gets instead"

    def test_an_end_between_two_ticks_is_an_end(self) -> None:
        world = World5()
        world.lose(world.join("a", True, ("session", 5)))
        world.now += 5001
        world.join("a", False, ("session", 5))
        assert not world.connack.is_present

    def test_disconnect_changes_it(self) -> None:
        world = World5()
        link = world.join("a", True, ("session", 1))
        world.send(link, wire5.disconnect(0, ("session", 5)))
        world.tick(3000)
        link = world.join("a", False, ("session", 1))
        assert world.connack.is_present
        world.send(link, wire5.disconnect(0, ("session", 0)))
        world.join("a", False, ("session", 1))
        assert not world.connack.is_present

    def test_a_restart_goes_on_counting(self) -> None:
        world = World5()
        for name in "ab":
            link = world.join(name, True, ("session", 10))
            world.send(link, wire5.subscribe(1, ("t", 1), subscription=9))
            if name == "a":
                world.lose(link)
        world.tick(8000)
        world.restart()
        world.tick(3000)
        link = world.join("a", False, ("session", 10))
        assert not world.connack.is_present, "away for 11 s"
        link = world.join("b", False, ("session", 10))
        assert world.connack.is_present, "it was connected until the end"
        world.publish("t", b"x")
        assert world.get(link)[0].props["subscription"] == [9]

    def test_a_session_changes_between_protocols(self) -> None:
        world = World5()
        link = world.join("a", False, ("session", 10))
        world.send(link, wire5.subscribe(1, ("t", 2 | 8), subscription=9))
        world.lose(link)
        world.publish("t", b"x", 2)
        old = world.connect("a", clean=False)
        assert world.take_messages(old) == [("t", b"x", 2)]
        world.lose(old)
        world.tick(20_000)
        link = world.join("a", False)
        assert world.connack.is_present, "3.1.1 has no expiry"
        assert [g.props["subscription"] for g in world.get(link)] == [[9]]
        world.lose(link)
        world.join("a", False)
        assert not world.connack.is_present, "the last one asked for none"
        check_all(world, {})


class TestWills:
    def start(self, delay: int, expiry: int, clean: bool = True) -> tuple[World5, int, int]:
        world = World5()
        reader = world.join("r")
        world.send(reader, wire5.subscribe(1, ("w", 1)))
        world.get(reader)
        link = world.join(
            "a",
            clean,
            ("session", expiry),
            will=("w", b"gone", 1, False),
            will_props=(("delay", delay),),
        )
        return world, link, reader

    @pytest.mark.parametrize(("delay", "expiry", "after"), [(3, 5, 3), (5, 0, 0), (5, 2, 2)])
    def test_a_will_waits_for_its_delay_or_the_end_of_its_session(
        self, delay: int, expiry: int, after: int
    ) -> None:
        world, link, reader = self.start(delay, expiry)
        world.lose(link)
        passed = 0
        while not topics(world.get(reader)):
            world.tick(1000)
            passed += 1
            assert passed < 10
        assert passed in (after, after + 1)
        world.tick(10_000)
        assert not topics(world.get(reader)), "once"

    def test_a_client_that_is_back_in_time_has_none(self) -> None:
        world, link, reader = self.start(5, 50, clean=False)
        world.lose(link)
        world.tick(4000)
        link = world.join("a", False, ("session", 50))
        world.tick(4000)
        assert not topics(world.get(reader))
        world.lose(link)
        world.tick(100_000)
        assert not topics(world.get(reader))

    def test_a_clean_start_ends_the_session_and_its_will_is_due(self) -> None:
        world, link, reader = self.start(5, 50)
        world.lose(link)
        world.join("a", True)
        assert topics(world.get(reader)) == [("w", b"gone")]

    @pytest.mark.parametrize("is_back", [False, True])
    def test_a_restart_neither_loses_nor_delays_it(self, is_back: bool) -> None:
        world, link, _ = self.start(5, 50, clean=False)
        world.lose(link)
        world.tick(3000)
        world.restart()
        reader = world.join("r")
        world.send(reader, wire5.subscribe(1, ("w", 1)))
        world.get(reader)
        if is_back:
            world.join("a", False, ("session", 50))
        world.tick(1000)
        assert not topics(world.get(reader)), "too early"
        world.tick(2000)
        assert topics(world.get(reader)) == ([] if is_back else [("w", b"gone")])
        assert not list(world.store.scan(WILLS)), "what was published or cancelled stays"
        world.restart()
        world.tick(10_000)
        assert not [m for m in world.take_events(Message) if m.topic == "w"][1:], "twice"

    def test_one_whose_session_is_damaged_is_due_at_the_start(self) -> None:
        world, link, _ = self.start(5, 50, clean=False)
        world.lose(link)
        for key, _ in list(world.store.scan(SESSIONS)):
            world.store.write(Write(SESSIONS, key, None))
        world.take_events()
        world.restart()
        world.tick(100)
        assert [m.payload for m in world.take_events(Message)] == [b"gone"]
        world.store.write(Write(WILLS, b"\0a", b"cut"))
        with pytest.raises(StoredRecordError):
            world.restart()

    def test_disconnect_with_the_will(self) -> None:
        for code, expected in [(0, []), (4, [("w", b"gone")]), (0x80, [("w", b"gone")])]:
            world, link, reader = self.start(0, 0)
            world.send(link, wire5.disconnect(code))
            assert topics(world.get(reader)) == expected
            assert link in world.closed
            assert not world.get(link), "no answer to DISCONNECT"

    def test_a_revoked_user_has_none(self) -> None:
        world, link, _ = self.start(5, 50)
        world.lose(link)
        world.perform(world.server.expel("", world.now))
        world.take_events()
        world.tick(10_000)
        assert world.take_events(Message) == []

    def test_as_long_as_a_packet_can_be(self) -> None:
        world = World5()
        reader = world.join("r")
        world.send(reader, wire5.subscribe(1, ("w", 1)))
        link = world.join("a", will=("w", b"x" * 65_535, 1, False))
        world.lose(link)
        assert topics(world.get(reader)) == [("w", b"x" * 65_535)]


class TestRequests:
    def test_the_node_is_told_where_to_answer(self) -> None:
        world = World5(Medic())
        link = world.join(user="medic7", password="secret")
        pairs = (("response", "dens/1/reply/medic7"), ("correlation", b"42"))
        world.send(link, wire5.publish("dens/1/sub/medic7", b"{}", 1, 1, *pairs))
        assert world.take_events(Message) == [
            Message("medic7", "dens/1/sub/medic7", b"{}", "dens/1/reply/medic7", b"42")
        ]
        world.send(link, wire5.subscribe(1, ("dens/1/reply/medic7", 1)))
        world.get(link)
        answer = Publish("dens/1/reply/medic7", b"yes", correlation=b"42")
        world.perform(world.server.publish(answer, world.now))
        assert world.get(link)[0].props == {"correlation": [b"42"]}

    def test_the_answer_goes_only_where_its_user_could_listen(self) -> None:
        world = World5(Medic())
        link = world.join(user="medic7", password="secret")
        request = wire5.publish("dens/1/sub/medic7", b"{}", 1, 1, ("response", "dens/1/note/ann"))
        world.send(link, request)
        (answer,) = world.get(link)
        assert answer.code == 0x87
        assert "dens/1/note/ann" in answer.reason
        assert not world.take_events(Message)

    def test_between_clients_a_response_topic_is_only_handed_on(self) -> None:
        world = World5(Medic())
        link = world.join(user="medic7", password="secret")
        world.send(link, wire5.publish("chat/a", b"?", 1, 1, ("response", "chat/elsewhere")))
        assert world.get(link)[0].code == 0
