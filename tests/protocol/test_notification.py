"""Notification vectors: round trips, sizes, and everything that a decoder must refuse."""

import unittest

from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.notification import MAX_LENGTH, decode, encode
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.protocol.samples import Dice, draw_notification

THREE = [Reading(a, (a * 9,) * 4) for a in (3, 4, 5)]


def refusal(frame):
    """Return the error that a frame is refused with, or None."""
    try:
        decode(frame)
    except ProtocolError as error:
        return error
    return None


class NotificationTest(unittest.TestCase):
    def test_three_values_take_11_bytes(self):
        self.assertEqual(len(encode(NotificationVector(63, THREE, 65535, 0x97FF))), 11)

    def test_why_takes_two_more(self):
        self.assertEqual(len(encode(NotificationVector(63, THREE, why=(4, 128)))), 13)

    def test_decoding_undoes_encoding(self):
        dice = Dice(31)
        for _ in range(300):
            n = draw_notification(dice)
            frame = encode(n)
            self.assertEqual(decode(frame), n)
            self.assertEqual(encode(decode(frame)), frame)

    def test_longest_vector_is_within_the_limit(self):
        readings = [Reading(a, (1, 2, 3, 4), True) for a in range(16)]
        self.assertLessEqual(len(encode(NotificationVector(1, readings, why=(1, 1)))), MAX_LENGTH)

    def test_every_truncated_prefix_is_refused_where_it_ends(self):
        dice = Dice(32)
        for _ in range(40):
            frame = encode(draw_notification(dice))
            for size in range(len(frame)):
                error = refusal(frame[:size])
                self.assertIsNotNone(error, (frame, size))
                self.assertEqual(error.at, size)

    def test_refusals_name_the_byte(self):
        for text, at in (
            ("4100000100000008" + "10", 0),  # a subscription
            ("0100000100000008" + "10", 0),
            ("c100000100000008" + "10", 0),
            ("8120000100000008" + "10", 1),  # reserved flags
            ("8110000100000008" + "0008" + "1001", 9),  # no new reading
            ("8110000100000009" + "0002" + "101001", 9),  # an old reading that is no feature
            ("8110000100000009" + "0001" + "101000", 12),  # an old reading of now
            ("8110000100000009" + "0001" + "1010b8", 12),  # older than a year
            ("8180000100000008" + "10", 1),
            ("8100000198000008" + "10", 5),  # an age beyond a year
            ("8100000100000000", 7),  # no features
            ("8102000100000008" + "0004" + "10101010", 9),  # uncertain is no feature
            ("8104000100000008" + "0000" + "1010", 9),  # nothing wide
            ("8108000100000008" + "0008" + "10", 9),  # a broken sensor's reading
            ("8102000100000008" + "0008" + "10110f12", 12),  # points that fall
            ("8102000100000008" + "0008" + "10101010", 13),  # uncertain without doubt
            ("8101000100000008" + "10" + "1080", 9),  # why of attribute 16
            ("8100000100000008" + "1000", 9),  # a byte too many
        ):
            error = refusal(bytes.fromhex(text))
            self.assertIsNotNone(error, text)
            self.assertEqual(error.at, at, (text, str(error)))

    def test_fields_out_of_range_are_refused(self):
        for make in (
            lambda: Reading(16, (1, 1, 1, 1)),
            lambda: Reading(0, (1, 1, 1)),
            lambda: Reading(0, (1, 2, 1, 3)),
            lambda: Reading(0, (1, 2, 3, 256)),
            lambda: NotificationVector(64, THREE),
            lambda: NotificationVector(1, THREE, 65536),
            lambda: NotificationVector(1, THREE, 1, 65536),
            lambda: NotificationVector(1, [THREE[1], THREE[0]]),
            lambda: NotificationVector(1, [THREE[0], THREE[0]]),
            lambda: NotificationVector(1, []),
            lambda: NotificationVector(1, [Reading(0, (1, 1, 1, 1), age=4)]),
            lambda: Reading(0, (1, 1, 1, 1), age=0xB8),
            lambda: NotificationVector(1, THREE, why=(16, 0)),
            lambda: NotificationVector(1, THREE, why=(1, 256)),
            lambda: NotificationVector(1, THREE, faults=8),
            lambda: NotificationVector(1, THREE, faults=65536),
        ):
            with self.assertRaises(ProtocolError):
                make()

    def test_broken_sensors_need_no_reading(self):
        n = NotificationVector(2, [], 7, faults=0x8001)
        self.assertEqual(decode(encode(n)), n)
        self.assertEqual(len(encode(n)), 10)
