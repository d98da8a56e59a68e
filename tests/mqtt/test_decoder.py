"""The decoder: one catalogue of packets, whole, byte by byte, with more behind, and cut off."""

from __future__ import annotations

import pytest
from denwatch.node.mqtt import packets
from denwatch.node.mqtt.decoder import Decoder
from denwatch.node.mqtt.interface import Limits
from denwatch.node.mqtt.packets import MalformedError
from denwatch.watchdog import packets as device
from hypothesis import given
from hypothesis import strategies as st

from tests.mqtt import wire

# name: (bytes, packet). The hex ones are written out by hand from the standard.
CATALOGUE: dict[str, tuple[bytes, packets.Packet]] = {
    "connect": (
        bytes.fromhex("10 0d 0004 4d515454 04 02 003c 0001 63"),
        packets.ConnectPacket(4, "c", True, 60, None, "", None),
    ),
    "connect, everything": (
        wire.connect("dog", False, 7, ("w", b"gone", 1, True), "medic7", "secret"),
        packets.ConnectPacket(
            4, "dog", False, 7, packets.Will("w", b"gone", 1, True), "medic7", b"secret"
        ),
    ),
    "connect, other level": (
        bytes.fromhex("10 0d 0004 4d515454 06 02 003c 0001 63"),
        packets.ConnectPacket(6, "", True, 0, None, "", None),
    ),
    "publish 0": (
        bytes.fromhex("30 07 0003 612f62 6869"),
        packets.PublishPacket("a/b", b"hi", 0, False, False, 0),
    ),
    "publish 1, retained": (
        bytes.fromhex("33 08 0003 612f62 000a 78"),
        packets.PublishPacket("a/b", b"x", 1, True, False, 10),
    ),
    "publish 2, again": (
        bytes.fromhex("3c 05 0001 61 ffff"),
        packets.PublishPacket("a", b"", 2, False, True, 65535),
    ),
    "publish, long": (
        wire.publish("a", bytes(20_000), 1, 3),
        packets.PublishPacket("a", bytes(20_000), 1, False, False, 3),
    ),
    "publish, 127 and 128": (
        wire.publish("a", bytes(125)),
        packets.PublishPacket("a", bytes(125), 0, False, False, 0),
    ),
    "puback": (bytes.fromhex("40 02 0102"), packets.PubackPacket(258)),
    "pubrec": (bytes.fromhex("50 02 0102"), packets.PubrecPacket(258)),
    "pubrel": (bytes.fromhex("62 02 0102"), packets.PubrelPacket(258)),
    "pubcomp": (bytes.fromhex("70 02 0102"), packets.PubcompPacket(258)),
    "subscribe": (
        bytes.fromhex("82 0a 0007 0001 61 01 0001 23 02"),
        packets.SubscribePacket(7, [("a", 1), ("#", 2)]),
    ),
    "unsubscribe": (
        bytes.fromhex("a2 08 0007 0001 2b 0001 61"),
        packets.UnsubscribePacket(7, ["+", "a"]),
    ),
    "pingreq": (bytes.fromhex("c0 00"), packets.PingreqPacket()),
    "disconnect": (bytes.fromhex("e0 00"), packets.DisconnectPacket()),
}

# name: (bytes, where). Each is refused, at this byte of the packet.
FAULTS: dict[str, tuple[bytes, int]] = {
    "kind 0": (b"\x00\x00", 0),
    "CONNACK": (b"\x20\x02\x00\x00", 0),
    "SUBACK": (b"\x90\x03\x00\x01\x00", 0),
    "kind 15": (b"\xf0\x00", 0),
    "length of five bytes": (b"\x30\xff\xff\xff\xff\x01", 4),
    "beyond the limit": (b"\x30\xff\xff\x7f", 1),
    "flags of SUBSCRIBE": (b"\x80" + wire.subscribe(1, ("a", 0))[1:], 0),
    "flags of PUBREL": (b"\x60\x02\x00\x01", 0),
    "flags of PUBACK": (b"\x41\x02\x00\x01", 0),
    "QoS 3": (b"\x36" + wire.publish("a", b"", 1, 1)[1:], 0),
    "duplicate of QoS 0": (b"\x38\x03\x00\x01a", 0),
    "no topic": (b"\x30\x01\x00", 3),
    "topic beyond the end": (b"\x30\x03\x00\x02a", 2),
    "empty topic": (b"\x30\x02\x00\x00", 4),
    "wildcard in a topic": (wire.publish("a/+"), 4),
    "U+0000 in a topic": (wire.publish("ab\0"), 6),
    "not UTF-8": (b"\x30\x05\x00\x03a\xff\x62", 5),
    "a surrogate": (b"\x30\x05\x00\x03\xed\xa0\x80", 4),
    "no packet id": (b"\x32\x04\x00\x01a\x00", 6),
    "packet id 0": (wire.publish("a", b"", 1, 0), 5),
    "PUBACK of 3 bytes": (b"\x40\x03\x00\x01\x00", 1),
    "PUBACK of nothing": (b"\x40\x02\x00\x00", 2),
    "SUBSCRIBE to nothing": (b"\x82\x02\x00\x01", 4),
    "SUBSCRIBE with QoS 3": (wire.subscribe(1, ("a", 3)), 7),
    "SUBSCRIBE with id 0": (wire.subscribe(0, ("a", 1)), 2),
    "SUBSCRIBE without QoS": (b"\x82\x05\x00\x01\x00\x01a", 7),
    "# in the middle": (wire.subscribe(1, ("a/#/b", 0)), 6),
    "# in a level": (wire.subscribe(1, ("a#", 0)), 6),
    "+ in a level": (wire.subscribe(1, ("a/b+/c", 0)), 6),
    "UNSUBSCRIBE from nothing": (b"\xa2\x02\x00\x01", 4),
    "PINGREQ with a body": (b"\xc0\x01\x00", 2),
    "DISCONNECT with a body": (b"\xe0\x01\x00", 2),
    "CONNECT of another protocol": (b"\x10\x0c\x00\x06MQIsdq\x03\x02\x00\x3c", 10),
    "CONNECT with the reserved flag": (b"\x10\x0d\x00\x04MQTT\x04\x03\x00\x3c\x00\x01c", 9),
    "CONNECT with a will's QoS alone": (b"\x10\x0d\x00\x04MQTT\x04\x0a\x00\x3c\x00\x01c", 9),
    "CONNECT with a password alone": (
        b"\x10\x10\x00\x04MQTT\x04\x42\x00\x3c\x00\x01c\x00\x01p",
        9,
    ),
    "CONNECT with more behind": (b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x01cx", 15),
    "CONNECT that ends early": (b"\x10\x0b\x00\x04MQTT\x04\x02\x00\x3c\x00", 13),
    "CONNECT of a long id": (wire.connect("x" * 300), 13),
    "CONNECT of a long user name": (wire.connect("c", user="x" * 300), 16),
}


def make_decoder() -> Decoder:
    decoder = Decoder(Limits())
    decoder.limit = Limits().packet_bytes
    return decoder


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_packet_comes_out_whole(name: str) -> None:
    data, expected = CATALOGUE[name]
    decoder = make_decoder()
    decoder.feed(data)
    assert decoder.take() == expected
    assert decoder.take() is None


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_packet_comes_out_byte_by_byte_after_its_last_byte(name: str) -> None:
    data, expected = CATALOGUE[name]
    decoder = make_decoder()
    for i in range(len(data) - 1):
        decoder.feed(data[i : i + 1])
        assert decoder.take() is None, "a truncated prefix must not be a packet"
    decoder.feed(data[-1:])
    assert decoder.take() == expected


@pytest.mark.parametrize("name", CATALOGUE)
def test_what_follows_stays_for_the_next_packet(name: str) -> None:
    data, expected = CATALOGUE[name]
    decoder = make_decoder()
    decoder.feed(data + data + data[:-1])
    assert [decoder.take(), decoder.take(), decoder.take()] == [expected, expected, None]
    decoder.feed(data[-1:] + data)
    assert [decoder.take(), decoder.take(), decoder.take()] == [expected, expected, None]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_byte(name: str) -> None:
    data, where = FAULTS[name]
    decoder = make_decoder()
    decoder.feed(CATALOGUE["puback"][0] + data)
    assert decoder.take() == packets.PubackPacket(258)
    with pytest.raises(MalformedError, match=f"^byte {where}: ") as error:
        decoder.take()
    assert error.value.at == where


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_byte_by_byte_too(name: str) -> None:
    data, where = FAULTS[name]
    decoder = make_decoder()
    found = None
    for i in range(len(data)):
        decoder.feed(data[i : i + 1])
        try:
            assert decoder.take() is None
        except MalformedError as error:
            found = error
            break
    assert found is not None
    assert found.at == where


@pytest.mark.parametrize("kept", [True, False])
def test_every_body_that_is_cut_short_is_refused(kept: bool) -> None:
    """The header says fewer bytes than the fields need: never a packet, never another error."""
    for data, _ in (CATALOGUE["connect, everything"], CATALOGUE["subscribe"]):
        for size in range(len(data) - 2):
            decoder = make_decoder()
            rest = data[2:] if kept else data[2 : 2 + size]
            decoder.feed(bytes([data[0], size]) + rest)
            if data[0] == 0x82 and size == 6:
                continue  # one filter of the two: a packet of its own
            with pytest.raises(MalformedError):
                decoder.take()


def test_limits_of_topics_and_filters() -> None:
    limits = Limits(topic_bytes=8, topic_levels=3)
    good = [
        wire.publish("12345678"),
        wire.publish("a/b/c"),
        wire.subscribe(1, *((f"a/{n}", 0) for n in range(1000))),
        wire.unsubscribe(1, *(f"a/{n}" for n in range(1000))),
    ]
    bad = [
        wire.publish("123456789"),
        wire.publish("a/b/c/d"),
        wire.subscribe(1, ("a/b/c/d", 0)),
    ]
    for data in good:
        decoder = Decoder(limits)
        decoder.feed(data)
        assert decoder.take() is not None
    for data in bad:
        decoder = Decoder(limits)
        decoder.feed(data)
        with pytest.raises(MalformedError):
            decoder.take()


@pytest.mark.parametrize(
    "change", [{"queue": 0}, {"window": 70_000}, {"inbound": 70_000}, {"packet_bytes": 1 << 30}]
)
def test_limits_that_make_no_sense_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"limit .*{next(iter(change))}"):
        Limits(**change)


def test_a_packet_too_long_is_refused_by_its_header() -> None:
    decoder = Decoder(Limits(connect_bytes=100))
    decoder.feed(b"\x10\x62")
    assert decoder.take() is None
    decoder = Decoder(Limits(connect_bytes=100))
    decoder.feed(b"\x10\x63")
    with pytest.raises(MalformedError, match="the limit is 100"):
        decoder.take()


@given(st.lists(st.sampled_from(sorted(CATALOGUE)), max_size=6), st.data())
def test_any_cutting_of_a_stream_gives_the_same_packets(names: list[str], data: st.DataObject):
    stream = b"".join(CATALOGUE[name][0] for name in names)
    decoder, found, at = make_decoder(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, max(1, len(stream) // 4)))
        decoder.feed(stream[at : at + size])
        at += size
        while (packet := decoder.take()) is not None:
            found.append(packet)
    assert found == [CATALOGUE[name][1] for name in names]


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_noise_gives_packets_or_the_one_error(chunks: list[bytes]) -> None:
    drain(chunks)


@given(
    st.sampled_from(sorted(set(CATALOGUE) - {"publish, long"})),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_packets_give_packets_or_the_one_error(
    name: str, damage: list[tuple[int, int]]
) -> None:
    data = bytearray(CATALOGUE[name][0])
    for at, byte in damage:
        data[at % len(data)] = byte
    drain([bytes(data), CATALOGUE["subscribe"][0]])


def drain(chunks: list[bytes]) -> None:
    """Feed all; nothing but MalformedError may come, and no more may be kept than arrived."""
    decoder = make_decoder()
    decoder.limit = 64
    where = 0
    for chunk in chunks:
        decoder.feed(chunk)
        try:
            while (packet := decoder.take()) is not None:
                assert isinstance(packet, tuple)
        except MalformedError as error:
            where = error.at
            break
        assert len(decoder._part) < 64
    assert 0 <= where <= 64


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=40),
    st.binary(max_size=300),
    st.integers(0, 2),
    st.booleans(),
    st.integers(1, 65535),
)
def test_what_the_server_writes_a_client_reads(
    topic: str, payload: bytes, qos: int, retain: bool, number: int
) -> None:
    data = packets.write_publish(topic, payload, qos, number, retain)
    assert data == wire.publish(topic, payload, qos, number, retain)
    decoder = make_decoder()
    decoder.feed(data)
    expected = packets.PublishPacket(topic, payload, qos, retain, False, number if qos else 0)
    if topic.count("/") < Limits().topic_levels:
        assert decoder.take() == expected


def test_answers_are_what_the_watchdogs_parser_reads() -> None:
    parser = device.Parser(1000)
    parser.feed(
        packets.write_connack(0, True)
        + packets.write_answer(packets.PUBACK, 7)
        + packets.write_codes(packets.SUBACK, 8, [0, 1, 2, 0x80])
        + packets.PINGRESP
        + packets.write_publish("t", b"x", 1, 9)
    )
    connack, puback, suback, ping, message = (parser.take() for _ in range(5))
    assert (connack.kind, connack.code) == (device.CONNACK, 0)
    assert (puback.kind, puback.id) == (device.PUBACK, 7)
    assert (suback.kind, suback.id, suback.code) == (device.SUBACK, 8, 0x80)
    assert ping.kind == device.PINGRESP
    assert (message.topic, message.payload, message.id) == ("t", b"x", 9)
