"""MQTT packets: against the bytes of the standard, whole, byte by byte, cut short, too long."""

import unittest

from denwatch.watchdog import packets
from denwatch.watchdog.packets import PacketError, Parser

# Kind, bytes, id, topic, payload, code.
CATALOGUE = [
    (packets.CONNACK, b"\x20\x02\x00\x00", 0, "", b"", 0),
    (packets.CONNACK, b"\x20\x02\x01\x00", 0, "", b"", 0),
    (packets.CONNACK, b"\x20\x02\x00\x05", 0, "", b"", 5),
    (packets.PUBLISH, b"\x30\x06\x00\x03a/bx", 0, "a/b", b"x", 0),
    (packets.PUBLISH, b"\x32\x07\x00\x03a/b\x12\x34", 0x1234, "a/b", b"", 0),
    (packets.PUBLISH, b"\x3a\x08\x00\x03a/b\x00\x01z", 1, "a/b", b"z", 0),
    (packets.PUBLISH, b"\x31\x82\x01\x00\x01a" + b"y" * 127, 0, "a", b"y" * 127, 0),
    (packets.PUBACK, b"\x40\x02\xff\xff", 65535, "", b"", 0),
    (packets.SUBACK, b"\x90\x04\x00\x07\x01\x01", 7, "", b"", 1),
    (packets.SUBACK, b"\x90\x04\x00\x07\x01\x80", 7, "", b"", 128),
    (packets.PINGRESP, b"\xd0\x00", 0, "", b"", 0),
]

WRONG = [
    (b"\x10\x00", 0),  # what a server gets
    (b"\x50\x02\x00\x01", 0),  # QoS 2
    (b"\x21\x02\x00\x00", 0),
    (b"\x20\x03\x00\x00\x00", 2),
    (b"\x20\x01\x00", 2),
    (b"\x20\x02\x02\x00", 2),
    (b"\x40\x02\x00\x00", 2),
    (b"\x90\x02\x00\x01", 2),
    (b"\x90\x03\x00\x01\x05", 4),
    (b"\xd0\x01\x00", 2),
    (b"\x34\x07\x00\x03a/b\x00\x01", 0),
    (b"\x36\x07\x00\x03a/b\x00\x01", 0),
    (b"\x30\x01\x00", 3),
    (b"\x30\x04\x00\x05ab", 6),
    (b"\x32\x05\x00\x03a/b", 7),
    (b"\x32\x07\x00\x03a/b\x00\x00", 7),
    (b"\x30\xff\xff\xff\xff\x01", 4),
]


def fields(packet):
    return (
        packet.kind,
        packet.id,
        packet.topic,
        packet.payload,
        packet.code,
    )


class Reading(unittest.TestCase):
    def test_each_packet_whole(self):
        for kind, data, number, topic, payload, code in CATALOGUE:
            parser = Parser(300)
            parser.feed(data)
            found = parser.take()
            self.assertEqual(fields(found), (kind, number, topic, payload, code))
            self.assertIsNone(parser.take())

    def test_all_packets_in_one_and_byte_by_byte(self):
        stream = b"".join([entry[1] for entry in CATALOGUE])
        for size in (1, 2, 3, 50, len(stream)):
            parser = Parser(300)
            kinds = []
            for at in range(0, len(stream), size):
                parser.feed(stream[at : at + size])
                packet = parser.take()
                while packet is not None:
                    kinds.append(packet.kind)
                    packet = parser.take()
            self.assertEqual(kinds, [entry[0] for entry in CATALOGUE])

    def test_every_beginning_needs_more(self):
        for entry in CATALOGUE:
            for size in range(len(entry[1])):
                parser = Parser(300)
                parser.feed(entry[1][:size])
                self.assertIsNone(parser.take())

    def test_what_is_wrong_is_named_by_its_byte(self):
        for data, at in WRONG:
            parser = Parser(300)
            parser.feed(data)
            with self.assertRaises(PacketError) as caught:
                parser.take()
            self.assertEqual(caught.exception.at, at, data)


class TooLong(unittest.TestCase):
    def feed_long(self, head, size, step):
        body = b"\x00\x03a/b" + (b"\x00\x09" if head & 6 else b"")
        data = bytearray([head])
        left = size
        while left > 127:
            data.append(left & 127 | 128)
            left >>= 7
        data.append(left)
        data += body + b"x" * (size - len(body)) + b"\xd0\x00"
        parser = Parser(100)
        found = []
        most = 0
        for at in range(0, len(data), step):
            parser.feed(bytes(data[at : at + step]))
            packet = parser.take()
            while packet is not None:
                found.append(packet)
                packet = parser.take()
            most = max(most, len(parser._data))
        return found, most

    def test_a_long_message_is_passed_over_and_what_follows_is_read(self):
        for head, number in ((0x30, 0), (0x32, 9), (0x34, 9)):
            for step in (1, 7, 64, 10_000):
                found, _ = self.feed_long(head, 5000, step)
                self.assertEqual([p.kind for p in found], [packets.TOO_LONG, packets.PINGRESP])
                self.assertEqual((found[0].id, found[0].code), (number, 5000))

    def test_it_never_fills_the_memory(self):
        found, most = self.feed_long(0x32, 20_000, 64)
        self.assertEqual(len(found), 2)
        self.assertLessEqual(most, 100)

    def test_a_long_packet_of_another_kind_is_wrong(self):
        for data in (b"\x90\x80\x01", b"\x32\x80\x10\x0f\xff", b"\x32\x80\x10\x10\x00"):
            parser = Parser(100)
            parser.feed(data)
            with self.assertRaises(PacketError):
                parser.take()


class Writing(unittest.TestCase):
    def test_connect(self):
        self.assertEqual(
            packets.write_connect("dog", 60),
            b"\x10\x0f\x00\x04MQTT\x04\x00\x00\x3c\x00\x03dog",
        )
        self.assertEqual(
            packets.write_connect("d", 300, ("t", b"gone"), "u", "pw"),
            b"\x10\x1d\x00\x04MQTT\x04\xcc\x01\x2c\x00\x01d\x00\x01t\x00\x04gone\x00\x01u\x00\x02pw",
        )

    def test_publish(self):
        self.assertEqual(packets.write_publish("a/b", b"x", 258), b"\x32\x08\x00\x03a/b\x01\x02x")
        long = packets.write_publish("a", bytes(200), 1)
        self.assertEqual(long[:3], b"\x32\xcd\x01")

    def test_the_rest(self):
        self.assertEqual(
            packets.write_subscribe(3, ["a", "bc"]),
            b"\x82\x0b\x00\x03\x00\x01a\x01\x00\x02bc\x01",
        )
        self.assertEqual(packets.write_puback(65535), b"\x40\x02\xff\xff")
        self.assertEqual(packets.PINGREQ, b"\xc0\x00")
        self.assertEqual(packets.DISCONNECT, b"\xe0\x00")


if __name__ == "__main__":
    unittest.main()
