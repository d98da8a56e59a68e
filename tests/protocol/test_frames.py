"""Frames: what opens them, and that nothing else does."""

import unittest

from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import (
    DOWN,
    EARLIER,
    LATER,
    MAX_LENGTH,
    MESSAGE,
    NOTIFICATIONS,
    OVERHEAD,
    SUBSCRIPTIONS,
    UP,
    DeviceBatch,
    Frame,
    HelloAnswer,
    Link,
    is_batch,
    join_vectors,
    open_frame,
    pack_batch,
    read_key_id,
    seal,
    split_vectors,
    unpack_batch,
)

SECRET = bytes(range(32))
LINK = Link("dog-1", "node-a", 7, SECRET)
FRAME = Frame(MESSAGE, 3, 70000, b"body")
ANSWER = HelloAnswer(3, 5, 6)
BATCH = Frame(NOTIFICATIONS, 3, 9, b"body", 1600)


class FrameTest(unittest.TestCase):
    def test_overhead_is_at_most_24_bytes(self):
        self.assertEqual(len(seal(LINK, UP, FRAME)) - len(FRAME.body), OVERHEAD)
        self.assertEqual(len(seal(LINK, UP, BATCH, ANSWER)) - len(BATCH.body), OVERHEAD)
        self.assertEqual(OVERHEAD, 19)

    def test_what_was_sealed_opens(self):
        for direction in (UP, DOWN):
            for frame in (
                FRAME,
                Frame(SUBSCRIPTIONS, 0, 0, b""),
                Frame(MESSAGE, 0xFFFFFFFF, 0xFFFFFFFF, bytes(MAX_LENGTH - OVERHEAD)),
            ):
                sealed = seal(LINK, direction, frame)
                self.assertEqual(open_frame(LINK, direction, sealed), frame)
                self.assertEqual(read_key_id(sealed), 7)

    def test_nobody_else_reads_it(self):
        body = b"patient 7 in bed 1 has a fever"
        sealed = seal(LINK, UP, Frame(MESSAGE, 3, 1, body))
        self.assertFalse(body[:4] in sealed)
        again = seal(LINK, UP, Frame(MESSAGE, 3, 2, body))  # nor sees that it says the same
        self.assertEqual([i for i in range(11, 41) if sealed[i : i + 4] == again[i : i + 4]], [])

    def test_every_changed_bit_is_refused(self):
        for sealed in (seal(LINK, UP, FRAME), seal(LINK, UP, BATCH, ANSWER)):
            for i in range(len(sealed)):
                for bit in range(8):
                    forged = bytearray(sealed)
                    forged[i] ^= 1 << bit
                    with self.assertRaises(ProtocolError):
                        open_frame(LINK, UP, bytes(forged), ANSWER)

    def test_a_batch_belongs_to_an_answer(self):
        sealed = seal(LINK, UP, BATCH, ANSWER)
        self.assertTrue(is_batch(sealed))
        self.assertEqual(open_frame(LINK, UP, sealed, ANSWER), BATCH)
        for other in (HelloAnswer(4, 5, 6), HelloAnswer(3, 5, 7), HelloAnswer(3, 4, 6), None):
            with self.assertRaises(ProtocolError):
                open_frame(LINK, UP, sealed, other)
        with self.assertRaises(ProtocolError):
            seal(LINK, UP, BATCH)
        with self.assertRaises(ProtocolError):
            seal(LINK, UP, FRAME, ANSWER)
        self.assertFalse(is_batch(seal(LINK, UP, FRAME)))

    def test_batches(self):
        vectors = [b"\x81\0\0\x07abc", b"\x81\0\0\x09"]
        for batch, kind in (
            (DeviceBatch(3, 9, vectors), NOTIFICATIONS),
            (DeviceBatch(3, 0x10009, vectors), LATER),
            (DeviceBatch(2, 9, vectors), EARLIER),
            (DeviceBatch(0xFFFFFFFF, 0xFFFF0009, vectors[1:]), EARLIER),
        ):
            frame = pack_batch(batch, 3, 4, 5)
            self.assertEqual(
                (frame.kind, frame.epoch, frame.sequence, frame.elapsed), (kind, 3, 4, 5)
            )
            self.assertEqual(unpack_batch(frame), batch)
            self.assertEqual(len(frame.body), len(join_vectors(batch.vectors)) + kind - 2)
        for kind, body in (
            (MESSAGE, b""),
            (NOTIFICATIONS, b""),
            (NOTIFICATIONS, b"\x03abc"),
            (LATER, b"\0"),
            (EARLIER, bytes(6)),
        ):
            with self.assertRaises(ProtocolError):
                unpack_batch(Frame(kind, 3, 4, body))

    def test_tag_covers_direction_names_and_key(self):
        sealed = seal(LINK, UP, FRAME)
        with self.assertRaises(ProtocolError):
            open_frame(LINK, DOWN, sealed)
        for other in (
            Link("dog-2", "node-a", 7, SECRET),
            Link("dog-1", "node-b", 7, SECRET),
            Link("dog-1n", "ode-a", 7, SECRET),
            Link("dog-1", "node-a", 8, SECRET),
            Link("dog-1", "node-a", 7, SECRET[1:] + SECRET[:1]),
        ):
            with self.assertRaises(ProtocolError):
                open_frame(other, UP, sealed)

    def test_truncated_and_longer_frames_are_refused(self):
        sealed = seal(LINK, UP, FRAME)
        for size in range(len(sealed)):
            with self.assertRaises(ProtocolError):
                open_frame(LINK, UP, sealed[:size])
        with self.assertRaises(ProtocolError):
            open_frame(LINK, UP, sealed + b"\x00")
        with self.assertRaises(ProtocolError):
            open_frame(LINK, UP, bytes(MAX_LENGTH + 1))

    def test_other_kinds_and_versions_are_refused(self):
        sealed = bytearray(seal(LINK, UP, FRAME))
        for head in (0x03, 0x40, 0x43, 0x80, 0x85, 0xC3):
            sealed[0] = head
            with self.assertRaises(ProtocolError) as caught:
                open_frame(LINK, UP, bytes(sealed), ANSWER)
            self.assertEqual(caught.exception.at, 0)
            self.assertEqual("update" in str(caught.exception), head & 0xC0 == 0x40)

    def test_weak_keys_are_refused(self):
        for secret in (b"", bytes(range(15)), bytes(32), b"ab" * 16):
            with self.assertRaises(ProtocolError):
                Link("d", "n", 1, secret)

    def test_frames_that_cannot_be_are_refused(self):
        for frame in (
            Frame(9, 1, 1, b""),
            Frame(MESSAGE, 1 << 32, 1, b""),
            Frame(MESSAGE, 1, -1, b""),
            Frame(MESSAGE, 1, 1, bytes(MAX_LENGTH - OVERHEAD + 1)),
        ):
            with self.assertRaises(ProtocolError):
                seal(LINK, UP, frame)
        with self.assertRaises(ProtocolError):
            Link("d", "n", 65536, SECRET)

    def test_vectors_are_joined_and_split(self):
        vectors = [b"a", b"bc" * 100, b"d"]
        self.assertEqual(split_vectors(join_vectors(vectors)), vectors)
        self.assertEqual(split_vectors(b""), [])
        for body in (b"\x00", b"\x02a", b"\x01a\x05"):
            with self.assertRaises(ProtocolError):
                split_vectors(body)
        for vector in (b"", bytes(256)):
            with self.assertRaises(ProtocolError):
                join_vectors([vector])
