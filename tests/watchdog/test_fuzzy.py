"""The fuzzy language: add, replace, remove, expire; the same subscription twice is one."""

import unittest

from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.subscription import encode
from denwatch.protocol.timecode import LAST_DURATION, decode_duration
from denwatch.protocol.vectors import Predicate, Significance, SubscriptionVector
from denwatch.watchdog.execution import Sample
from denwatch.watchdog.filter import CapacityError
from denwatch.watchdog.fuzzy import Fuzzy, SenseError

from tests.protocol.samples import Dice
from tests.watchdog.test_filter import list_handles

SENSES = {1: (0xFF, 0x80), 2: (1, 0)}


def make(handle, low=0, high=255, attribute=0, **fields):
    wide = attribute == 7
    predicates = [Predicate(attribute, low, high, wide=wide)]
    return encode(SubscriptionVector(1, predicates, handle=handle, **fields))


def sample_of(value):
    sample = Sample(1)
    sample.set(0, value)
    return sample


class InstallTest(unittest.TestCase):
    def setUp(self):
        self.language = Fuzzy(200, SENSES)

    def judge(self, value, now=0):
        return self.language.judge(sample_of(value), now)

    def test_added_replaced_removed(self):
        self.assertEqual(self.language.install(make(5, 100, 255), 0), "added")
        self.assertEqual((self.judge(99), self.judge(100)), (-1, 255))
        self.assertEqual(self.language.install(make(5, 0, 50), 0), "replaced")
        self.assertEqual((self.judge(50), self.judge(100)), (255, -1))
        self.assertEqual(self.language.filter.count, 1)
        self.assertEqual(self.language.remove([4, 5, 5]), 1)
        self.assertEqual((self.judge(50), self.language.filter.used), (-1, 0))

    def test_same_subscription_twice_is_one(self):
        self.assertEqual(self.language.install(make(5), 0), "added")
        used = self.language.filter.used
        self.assertEqual(self.language.install(make(5), 0), "same")
        self.assertEqual(self.language.install(make(6), 0), "same")
        self.assertEqual(self.language.install(make(7), 0), "same")
        self.assertEqual(self.language.filter.used, used)
        self.assertEqual(self.language.remove([5]), 1)
        self.assertEqual((self.judge(9), list_handles(self.language.filter)), (255, [6]))
        self.assertEqual(self.language.remove([7]), 1)
        self.assertEqual(self.judge(9), 255)
        self.assertEqual(self.language.remove([6]), 1)
        self.assertEqual((self.judge(9), self.language.filter.used), (-1, 0))

    def test_same_bytes_of_another_event_are_another(self):
        self.language.install(make(5), 0)
        other = bytes([0x42]) + make(6)[1:]
        self.assertEqual(self.language.install(other, 0), "added")
        self.assertEqual(self.language.filter.count, 2)

    def test_a_twin_that_changes_its_mind(self):
        self.language.install(make(5, 0, 10), 0)
        self.language.install(make(6, 0, 10), 0)
        self.assertEqual(self.language.install(make(6, 200, 210), 0), "replaced")
        self.assertEqual((self.judge(5), self.judge(205)), (255, 255))
        self.language.install(make(5, 200, 210), 0)
        self.assertEqual((self.judge(5), self.judge(205)), (-1, 255))
        self.assertEqual(self.language.filter.count, 1)
        self.language.remove([6])
        self.assertEqual(self.judge(205), 255)

    def test_random_handles_and_bodies_against_a_dictionary(self):
        dice = Dice(61)
        held = {}
        self.language = Fuzzy(75, SENSES)
        outcomes = set()
        for _ in range(400):
            handle = dice.below(8)
            if dice.chance(4):
                self.assertEqual(self.language.remove([handle]), int(handle in held))
                held.pop(handle, None)
            else:
                low = 20 * dice.below(10)
                frame = make(handle, low, low + 5, attribute=dice.below(2))
                try:
                    outcomes.add(self.language.install(frame, 0))
                    held[handle] = frame
                except CapacityError:
                    outcomes.add("full")
            for low in range(0, 200, 20):
                sample = Sample(1)
                sample.set(0, low)
                sample.set(1, 255)
                wanted = any(f[8] == low and f[7] == 1 for f in held.values())
                self.assertEqual(self.language.judge(sample, 0) >= 0, wanted)
            bodies = {f[4:] for f in held.values()}
            self.assertEqual(self.language.filter.count, len(bodies))
        self.assertEqual(outcomes, {"added", "replaced", "same", "full"})

    def test_refusals_change_nothing(self):
        self.language.install(make(5), 0)
        before = bytes(self.language.filter.buffer)
        bad = make(6)
        for frame, error in (
            (bad[:-1], ProtocolError),
            (b"", ProtocolError),
            (b"\x81" + bad[1:], ProtocolError),
            (make(6, attribute=9), SenseError),
            (bytes([0x43]) + bad[1:], SenseError),
            (encode(SubscriptionVector(1, [Predicate(7, 0, 9)])), SenseError),
            (encode(SubscriptionVector(1, [Predicate(0, 0, 9, wide=True)])), SenseError),
        ):
            self.assertRaises(error, self.language.install, frame, 0)
            self.assertEqual(bytes(self.language.filter.buffer), before)
        self.assertEqual(self.language.install(make(6, 0, 9, attribute=7), 0), "added")

    def test_a_replacement_without_room_leaves_the_old_one(self):
        language = Fuzzy(6 + 11 + 11, SENSES)
        language.install(make(1, 0, 10), 0)
        language.install(make(2, 20, 30), 0)
        big = encode(SubscriptionVector(1, [Predicate(0, 0, 5), Predicate(1, 0, 5)], handle=1))
        self.assertRaises(CapacityError, language.install, big, 0)
        self.assertEqual(language.judge(sample_of(5), 0), 255)
        self.assertEqual(language.filter.count, 2)

    def test_why_names_the_attribute_that_decided(self):
        predicates = [Predicate(0, 100, 255, 80), Predicate(3, 100, 255, 80)]
        self.language.install(encode(SubscriptionVector(1, predicates, threshold=50, why=True)), 0)
        sample = sample_of(120)
        sample.set(3, 90)
        degree = self.language.judge(sample, 0)
        self.assertTrue(50 <= degree < 255)
        self.assertEqual(self.language.why, 3 << 8 | degree)
        self.language.install(make(9), 0)
        self.language.judge(sample_of(1), 0)
        self.assertEqual(self.language.why, -1)


class ExpiryTest(unittest.TestCase):
    def test_every_validity_ends_in_time(self):
        """Not before its duration, and at most 1/8192 of it later."""
        for code in range(1, LAST_DURATION + 1, 7):
            language = Fuzzy(100, SENSES)
            start = 777_777
            language.install(make(1, validity=code), start * 1000)
            length = decode_duration(code)
            for second, left in ((0, 1), (length - 1, 1), (length + 1 + length // 8192, 0)):
                language.expire((start + second) * 1000)
                self.assertEqual(language.filter.count, left, (code, second))

    def test_long_silence_does_not_make_a_deadline_ambiguous(self):
        """A device that slept for days drops what ended, and keeps the rest."""
        for hours in (10, 19, 40, 24 * 30, 24 * 300):
            language = Fuzzy(200, SENSES)
            language.install(make(1, 0, 1, validity=60), 0)  # minutes
            language.install(make(2, 0, 2, validity=LAST_DURATION), 0)  # a year
            language.install(make(3, 0, 3), 0)
            self.assertEqual(language.expire(hours * 3_600_000), 1)
            self.assertEqual(sorted(list_handles(language.filter)), [2, 3])

    def test_installing_again_renews(self):
        language = Fuzzy(100, SENSES)
        language.install(make(1, validity=16), 0)  # 16 s
        self.assertEqual(decode_duration(16), 16)
        language.install(make(1, validity=16), 10_000)
        self.assertEqual(language.expire(25_000), 0)
        self.assertEqual(language.expire(26_000), 1)

    def test_twins_expire_together_after_the_last(self):
        language = Fuzzy(100, SENSES)
        language.install(make(1, validity=16), 0)
        language.install(make(2, validity=16), 5_000)
        self.assertEqual(language.expire(20_999), 0)
        self.assertEqual(language.expire(21_000), 2)
        self.assertEqual(language.remove([1, 2]), 0)

    def test_significant_subscription_expires_too(self):
        language = Fuzzy(100, SENSES)
        language.install(make(1, validity=16, significance=Significance(quiet=8)), 0)
        self.assertEqual(language.judge(sample_of(1), 1000), 255)
        self.assertEqual(language.judge(sample_of(1), 2000), -1)
        self.assertEqual(language.expire(16_000), 1)
        self.assertEqual(language.filter.used, 0)
