"""The device's own frames and messages, byte by byte against those of `protocol`."""

import unittest

from denwatch.protocol import cbor, frames
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import decode_message, encode_message
from denwatch.watchdog import seal
from denwatch.watchdog.seal import FrameError, FrameKey

from tests.watchdog.flash import Random

SECRET = bytes(range(32))
LINK = frames.Link("dog-1", "nöde", 513, SECRET)
KEY = FrameKey("dog-1", "nöde", 513, SECRET)


class Frames(unittest.TestCase):
    def test_what_goes_up_is_what_the_protocol_seals(self):
        for size in (0, 1, 23, 24, 255, 256, 900):
            body = bytes([i & 255 for i in range(size)])
            for kind in (1, 3):
                frame = frames.Frame(kind, 0xFFFFFFFE, 70000 + size, body)
                sealed = KEY.seal(kind, frame.epoch, frame.sequence, body)
                self.assertEqual(sealed, frames.seal(LINK, frames.UP, frame))
            for kind in (2, 4, 8):
                frame = frames.Frame(kind, 0xFFFFFFFE, 70000 + size, body, size << 16)
                bound = b"\0\0\1\2\0\0\0\7" + frame.elapsed.to_bytes(4, "big")
                sealed = KEY.seal(kind, frame.epoch, frame.sequence, body, bound)
                answer = frames.HelloAnswer(0xFFFFFFFE, 258, 7)
                self.assertEqual(sealed, frames.seal(LINK, frames.UP, frame, answer))

    def test_a_batch_is_what_the_protocol_packs(self):
        vectors = [b"\x81\0\0\x07abc", b"\x81\0\0\x09"]
        for epoch, last in ((3, 9), (3, 0x10009), (2, 9), (2, 0xFFFF0009)):
            kind, body = seal.join(vectors, 3, epoch, last)
            frame = frames.pack_batch(frames.DeviceBatch(epoch, last, vectors), 3, 1)
            self.assertEqual((kind, body), (frame.kind, frame.body))

    def test_what_comes_down_is_what_the_protocol_opens(self):
        random = Random(9)
        for i in range(60):
            body = bytes([random.bits(8) for _ in range(random.below(40))])
            frame = frames.Frame(1 + i % 2 * 2, random.bits(20), i, body)
            sealed = bytearray(frames.seal(LINK, frames.DOWN, frame))
            self.assertEqual(KEY.open(bytes(sealed)), frame.fields()[:4])
            sealed[random.below(len(sealed))] ^= 1 << random.below(8)
            if i % 4 == 0:
                sealed = sealed[: random.below(len(sealed))]
            with self.assertRaises(ProtocolError):
                frames.open_frame(LINK, frames.DOWN, bytes(sealed))
            with self.assertRaises(FrameError):
                KEY.open(bytes(sealed))

    def test_weak_keys_are_refused(self):
        for secret in (b"", bytes(range(15)), bytes(32), b"ab" * 16):
            with self.assertRaises(ValueError):
                FrameKey("d", "n", 1, secret)

    def test_vectors(self):
        for vectors in ([], [b"a"], [b"ab", b"c" * 255, b"d"]):
            body = frames.join_vectors(vectors)
            self.assertEqual(seal.join(vectors, 1, 1, 1), (2, body))
            self.assertEqual(seal.split(body), vectors)
        for body in (b"\x00", b"\x02a", b"\x01a\x05"):
            with self.assertRaises(FrameError):
                seal.split(body)


class Messages(unittest.TestCase):
    def test_a_hello(self):
        fields = {
            "device": "dog-1",
            "epoch": 70000,
            "vocabulary": b"12345678",
            "senses": {3: [7, 0], 0: [65535, 1], 63: [256, 24]},
            "capacity": 4096,
            "languages": [1, 300],
            "firmware": "micropython 1.25.0",
            "reset": 4,
            "lowest": 0xFFFFFFFF,
            "dropped": 23,
        }
        names = "device epoch vocabulary senses capacity languages firmware reset lowest dropped"
        numbers = {0: 1}
        for number, name in enumerate(names.split()):
            numbers[number + 1] = fields[name]
        self.assertEqual(seal.pack(numbers), encode_message("hello", fields))
        self.assertEqual(decode_message(seal.pack(numbers))[1], fields)

    def test_what_a_node_says(self):
        for epoch, sequence in ((0, 0), (23, 24), (255, 256), (65535, 65536), (1, 0xFFFFFFFF)):
            body = encode_message("acknowledge", {"epoch": epoch, "sequence": sequence})
            self.assertEqual(seal.unpack(body), {0: 3, 1: epoch, 2: sequence})
        for handles in ([], [1], list(range(300))):
            body = encode_message("remove", {"handles": handles})
            self.assertEqual(seal.unpack(body), {0: 4, 1: handles})

    def test_keys_of_later_are_passed_over(self):
        body = cbor.encode({0: 3, 1: 5, 2: 6, 24: {1: [b"x", "later", -3]}})
        message = seal.unpack(body)
        self.assertEqual((message[0], message[1], message[2]), (3, 5, 6))

    def test_every_beginning_is_refused(self):
        body = cbor.encode({0: 4, 1: [1, 500, 70000], 30: [b"abc", "text", {1: -500}]})
        for size in range(len(body)):
            with self.assertRaises(FrameError):
                seal.unpack(body[:size])
        with self.assertRaises(FrameError):
            seal.unpack(body + b"\x00")

    def test_noise_is_refused_or_a_message_and_never_another_error(self):
        random = Random(4)
        good = cbor.encode({0: 4, 1: [1, 500], 30: {1: [b"abc"]}})
        for _ in range(2000):
            noise = bytearray(good)
            for _ in range(1 + random.below(4)):
                noise[random.below(len(noise))] = random.bits(8)
            try:
                self.assertIsNotNone(seal.unpack(bytes(noise)))
            except FrameError as error:
                self.assertEqual(str(error), "message")
        for body in (b"\x81" * 50, b"\x1b" + bytes(8), b"\xf6", b"\xc0\x00", b"\x9f\xff"):
            with self.assertRaises(FrameError):
                seal.unpack(body)


if __name__ == "__main__":
    unittest.main()
