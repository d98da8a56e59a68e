"""The server without sockets: connecting, QoS 0 to 2 both ways, sessions."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Message
from denwatch.node.mqtt.interface import Limits

from tests.mqtt import wire
from tests.mqtt.wire import Got, World


class TestConnecting:
    def test_the_answer_tells_whether_the_session_was_there(self) -> None:
        world = World()
        for clean, present in ((True, 0), (False, 0), (False, 1), (True, 0), (False, 0)):
            link = world.open()
            world.send(link, wire.connect("c", clean))
            assert world.take(link) == [Got("connack", payload=bytes([present, 0]))]
            world.send(link, wire.DISCONNECT)
            assert world.closed[link] == ""

    def test_a_client_without_an_id_gets_a_clean_session_or_none(self) -> None:
        world = World()
        link = world.open()
        world.send(link, wire.connect("", clean=False))
        assert world.take(link) == [Got("connack", payload=b"\x00\x02")]
        assert link in world.closed
        first, second = world.connect(""), world.connect("")
        world.send(first, wire.subscribe(1, ("t", 0)))
        world.send(second, wire.publish("t", b"x"))
        assert world.take_messages(first) == [("t", b"x", 0)]

    def test_another_protocol_is_answered_or_not_as_the_standard_says(self) -> None:
        world = World()
        link = world.open()
        world.send(link, b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x3c\x00\x01c")
        assert world.take(link) == [Got("connack", payload=b"\x00\x01")]
        other = world.open()
        world.send(other, b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x00")
        assert world.take(other) == [Got("connack", payload=b"\x00\x01")], "MQTT 3.1"
        stranger = world.open()
        world.send(stranger, b"\x10\x0e\x00\x06MQIsdq\x03\x02\x00\x3c\x00\x00")
        assert world.take(stranger) == []
        assert "MQIsdq" in world.closed[stranger]

    @pytest.mark.parametrize("data", [wire.PINGREQ, wire.publish("t"), wire.DISCONNECT])
    def test_nothing_goes_before_connect(self, data: bytes) -> None:
        world = World()
        link = world.open()
        world.send(link, data)
        assert world.closed[link] == "a packet before CONNECT"
        assert not world.take_events(Message)

    def test_a_second_connect_ends_the_link(self) -> None:
        world = World()
        link = world.connect("c", will=("w", b"gone", 0, False))
        world.send(link, wire.connect("c"))
        assert world.closed[link] == "a second CONNECT"
        assert world.take_events(Message) == [Message("", "w", b"gone")]

    def test_the_same_client_id_takes_the_session_over(self) -> None:
        world = World()
        first = world.connect("c", clean=False, will=("w", b"gone", 0, False))
        world.send(first, wire.subscribe(1, ("t", 1)))
        second = world.connect("c", clean=False)
        assert world.closed == {first: "its client id connected again"}
        assert world.take_events(Message) == [Message("", "w", b"gone")]
        world.publish("t", b"x")
        assert world.take_messages(second) == [("t", b"x", 1)]
        assert world.server.counts["takeovers"] == 1

    def test_sessions_are_bounded(self) -> None:
        world = World(limits=Limits(sessions=1))
        world.connect("a", clean=False)
        link = world.open()
        world.send(link, wire.connect("b"))
        assert world.take(link) == [Got("connack", payload=b"\x00\x03")]
        world.connect("a", clean=False)

    def test_a_user_cannot_keep_sessions_without_end(self) -> None:
        world = World(limits=Limits(user_sessions=2))
        for client in "ab":
            world.connect(client, clean=False, user="u")
        link = world.open()
        world.send(link, wire.connect("c", False, user="u"))
        assert world.take(link) == [Got("connack", payload=b"\x00\x03")]
        world.connect("c", clean=True, user="u")
        world.connect("a", clean=False, user="u")
        world.connect("c", clean=False, user="other")

    def test_bytes_after_the_end_of_a_link_are_passed_over(self) -> None:
        world = World()
        link = world.connect()
        world.send(link, wire.DISCONNECT, wire.publish("t", b"x"))
        world.send(link, wire.publish("t", b"y"))
        assert not world.take_events(Message)
        world.lose(link)


class TestMessages:
    @pytest.mark.parametrize("sent", [0, 1, 2])
    @pytest.mark.parametrize("granted", [0, 1, 2])
    def test_delivery_is_at_the_lower_qos(self, sent: int, granted: int) -> None:
        world = World()
        receiver, sender = world.connect("r"), world.connect("s")
        world.send(receiver, wire.subscribe(9, ("t", granted)))
        assert world.take(receiver) == [Got("suback", 9, payload=bytes([granted]))]
        world.send(sender, wire.publish("t", b"x", sent, 5))
        answers = [[], [Got("puback", 5)], [Got("pubrec", 5)]]
        assert world.take(sender) == answers[sent]
        assert world.take_events(Message) == [Message("", "t", b"x")]
        (got,) = world.take(receiver)
        qos = min(sent, granted)
        assert (got.topic, got.payload, got.qos, got.id > 0) == ("t", b"x", qos, qos > 0)

    def test_qos_2_inbound_counts_once(self) -> None:
        world = World()
        link = world.connect()
        world.send(link, wire.publish("t", b"x", 2, 5))
        world.send(link, wire.publish("t", b"x", 2, 5, duplicate=True))
        assert world.take(link) == [Got("pubrec", 5)] * 2
        world.send(link, wire.pubrel(5), wire.pubrel(5))
        assert world.take(link) == [Got("pubcomp", 5)] * 2
        assert world.take_events(Message) == [Message("", "t", b"x")]
        world.send(link, wire.publish("t", b"y", 2, 5))
        assert world.take_events(Message) == [Message("", "t", b"y")]

    def test_qos_2_that_is_never_released_is_bounded(self) -> None:
        world = World(limits=Limits(inbound=3))
        link = world.connect()
        world.send(link, *(wire.publish("t", b"x", 2, n) for n in range(1, 5)))
        assert len(world.take_events(Message)) == 3
        assert "not released" in world.closed[link]

    def test_qos_2_outbound_goes_through_its_four_packets(self) -> None:
        world = World()
        link = world.connect()
        world.send(link, wire.subscribe(1, ("t", 2)), wire.publish("t", b"x", 2, 1))
        number = next(got.id for got in world.take(link) if got.kind == "publish")
        world.send(link, wire.pubrec(number), wire.pubrec(number))
        assert world.take(link) == [Got("pubrel", number)] * 2
        world.send(link, wire.pubcomp(number))
        assert world.server.sessions.bytes == 0

    def test_overlapping_subscriptions_give_one_message_at_the_best_qos(self) -> None:
        world = World()
        link = world.connect()
        world.send(link, wire.subscribe(1, ("a/#", 1), ("a/+", 2), ("a/b", 0)))
        world.take(link)
        world.publish("a/b", b"x", 2)
        assert world.take_messages(link) == [("a/b", b"x", 2)]

    def test_unsubscribing_ends_delivery(self) -> None:
        world = World()
        link = world.connect()
        world.send(link, wire.subscribe(1, ("a", 1), ("b/#", 1)))
        world.send(link, wire.unsubscribe(2, "a", "never"), wire.unsubscribe(3, "b/#"))
        assert world.take(link)[1:] == [Got("unsuback", 2), Got("unsuback", 3)]
        world.publish("a")
        world.publish("b/c")
        assert world.take(link) == []

    def test_the_window_is_bounded_and_the_order_kept(self) -> None:
        world = World(limits=Limits(window=3))
        link = world.connect()
        world.send(link, wire.subscribe(1, ("t", 1)))
        world.take(link)
        for i in range(8):
            world.publish("t", b"%d" % i)
        seen: list[bytes] = []
        while got := world.take(link):
            assert len(got) <= 3
            seen += [message.payload for message in got]
            world.send(link, *(wire.puback(message.id) for message in got))
        assert seen == [b"%d" % i for i in range(8)]
        assert world.server.sessions.bytes == 0

    def test_acknowledgements_of_nothing_change_nothing(self) -> None:
        world = World()
        link = world.connect()
        world.send(link, wire.subscribe(1, ("t", 2)))
        world.publish("t", b"x", 2)
        number = world.take(link)[-1].id
        for n in (number, 77):
            world.send(link, wire.puback(n), wire.pubcomp(n))
        assert world.take(link) == []
        world.send(link, wire.pubrec(78))
        assert world.take(link) == [Got("pubrel", 78)], "or the client keeps the id for ever"

    def test_packet_ids_wrap_and_pass_those_in_flight(self) -> None:
        world = World()
        link = world.connect()
        world.send(link, wire.subscribe(1, ("t", 1)))
        world.take(link)
        world.publish("t", b"kept")
        assert [got.id for got in world.take(link)] == [1]
        world.server.sessions.all["", "c"].last_id = 65_534
        for _ in range(2):
            world.publish("t")
        assert [got.id for got in world.take(link)] == [65_535, 2]

    def test_a_burst_is_answered_with_one_write(self) -> None:
        world = World()
        link = world.connect()
        data = b"".join(wire.publish("t", b"x", 1, n) for n in range(1, 21))
        outputs = world.server.receive(link, data, world.now)
        sends = [output for output in outputs if isinstance(output, wire.Send)]
        assert len(sends) == 1
        assert len(list(wire.parse(sends[0].data))) == 20


class TestSessions:
    def test_what_was_not_acknowledged_goes_again_with_the_same_id(self) -> None:
        world = World()
        link = world.connect("c", clean=False)
        world.send(link, wire.subscribe(1, ("t", 2)))
        world.take(link)
        world.publish("t", b"one", 1)
        world.publish("t", b"two", 2)
        world.publish("t", b"three", 2)
        one, two, three = world.take(link)
        world.send(link, wire.pubrec(three.id))
        world.lose(link)
        link = world.connect("c", clean=False)
        assert world.take(link) == [
            one._replace(duplicate=True),
            two._replace(duplicate=True),
            Got("pubrel", three.id),
        ]

    def test_qos_1_and_2_wait_for_a_client_that_is_away(self) -> None:
        world = World()
        link = world.connect("c", clean=False)
        world.send(link, wire.subscribe(1, ("t", 2)), wire.DISCONNECT)
        for qos in (0, 1, 2):
            world.publish("t", b"%d" % qos, qos)
        link = world.connect("c", clean=False)
        assert world.take_messages(link) == [("t", b"1", 1), ("t", b"2", 2)]

    def test_a_clean_session_leaves_nothing(self) -> None:
        world = World()
        link = world.connect("c", clean=False)
        world.send(link, wire.subscribe(1, ("t", 1)), wire.DISCONNECT)
        world.publish("t", b"x")
        assert world.store.count() == 3
        world.lose(world.connect("c", clean=True))
        assert world.store.count() == 0
        assert not world.server.sessions.all
        assert world.server.sessions.bytes == 0

    def test_a_session_that_stays_away_ends_and_that_is_reported(self) -> None:
        world = World(limits=Limits(session_ms=1000))
        link = world.connect("c", clean=False)
        world.send(link, wire.subscribe(1, ("t", 1)), wire.DISCONNECT)
        world.publish("t", b"x")
        world.tick(1000)
        assert world.server.sessions.all
        world.tick(1)
        assert not world.server.sessions.all
        assert world.store.count() == 0
        (refused,) = world.take_refusals()
        assert refused.why == "away for too long; 1 messages were waiting"

    def test_subscriptions_are_bounded(self) -> None:
        world = World(limits=Limits(subscriptions=2))
        link = world.connect()
        world.send(link, wire.subscribe(1, ("a", 0), ("b", 1), ("c", 2), ("a", 2)))
        assert world.take(link) == [Got("suback", 1, payload=b"\x00\x01\x80\x02")]

    def test_any_number_of_filters_and_the_excess_is_refused(self) -> None:
        """Home Assistant sends 500 in one SUBSCRIBE."""
        world = World(limits=Limits(subscriptions=500))
        link = world.connect("c", clean=False)
        filters = [(f"home/{number}/state", 1) for number in range(520)]
        world.send(link, wire.subscribe(1, *filters, *filters[:10]))
        (suback,) = world.take(link)
        assert suback.payload == b"\x01" * 500 + b"\x80" * 20 + b"\x01" * 10
        assert len(world.take_refusals()) == 17, "16 by name, and the rest in one line"
        world.publish("home/499/state", b"on")
        assert world.take_messages(link) == [("home/499/state", b"on", 1)]
        world.send(link, wire.unsubscribe(2, *(name for name, _ in filters)))
        assert not world.server.sessions.all["", "c"].subscriptions

    def test_a_will_as_long_as_it_can_be(self) -> None:
        world = World()
        link = world.connect("c", will=("w", b"x" * 65_535, 1, False))
        world.lose(link)
        assert world.take_events(Message) == [Message("", "w", b"x" * 65_535)]
