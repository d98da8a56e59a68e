"""Durations and ages: every code, in order, and the rounding that each promises."""

import unittest

from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.timecode import (
    LAST_AGE,
    LAST_DURATION,
    decode_age,
    decode_duration,
    encode_age,
    encode_duration,
)


class TimecodeTest(unittest.TestCase):
    def test_every_duration_code_is_its_own(self):
        previous = -1
        for code in range(LAST_DURATION + 1):
            seconds = decode_duration(code)
            self.assertGreater(seconds, previous)
            self.assertEqual(encode_duration(seconds), code)
            previous = seconds

    def test_duration_is_never_shortened_and_at_most_an_eighth_longer(self):
        for seconds in (1, 7, 8, 9, 17, 59, 60, 3600, 86400, 604800, 31457280):
            coded = decode_duration(encode_duration(seconds))
            self.assertTrue(seconds <= coded <= seconds * 9 // 8, (seconds, coded))

    def test_durations_out_of_range_are_refused(self):
        for seconds in (-1, 31457281):
            with self.assertRaises(ProtocolError):
                encode_duration(seconds)

    def test_age_codes_rise_and_return(self):
        previous = -1
        for code in range(0, LAST_AGE + 1, 13):
            age = decode_age(code)
            self.assertGreater(age, previous)
            self.assertEqual(encode_age(age), code)
            previous = age

    def test_age_of_three_days_is_kept_within_two_minutes(self):
        age = 3 * 86400 * 16 + 5
        self.assertLessEqual(abs(decode_age(encode_age(age)) - age), 120 * 16 // 2)

    def test_age_is_rounded_to_the_nearest(self):
        for age in (0, 1, 2047, 4097, 4099, 10001, 99999):
            coded = decode_age(encode_age(age))
            self.assertLessEqual(abs(coded - age), max(1, age // 4096))

    def test_age_beyond_the_last_is_the_last(self):
        self.assertEqual(encode_age(decode_age(LAST_AGE) + 5), LAST_AGE)
