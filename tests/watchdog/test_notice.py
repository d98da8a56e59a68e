"""Notification vectors written from samples are those that `protocol.notification` encodes."""

import unittest

from denwatch.protocol.notification import decode, encode
from denwatch.protocol.vectors import NotificationVector, Reading
from denwatch.watchdog.execution import Sample, write_notification

from tests.protocol.samples import Dice, draw_notification


class NoticeTest(unittest.TestCase):
    def test_random_samples(self):
        dice = Dice(41)
        for _ in range(200):
            n = draw_notification(dice)
            for reading in n.readings:
                reading.age = 0  # test_joins.py has old readings
            sample = Sample(n.event)
            sample.faults = n.faults
            for reading in n.readings:
                sample.set_doubtful(reading.attribute, *reading.points)
                if reading.wide:
                    sample.wides |= 1 << reading.attribute
            why = -1 if n.why is None else n.why[0] << 8 | n.why[1]
            right = NotificationVector(n.event, n.readings, 0, 0, n.why, n.faults)
            self.assertEqual(write_notification(sample, why), encode(right))

    def test_three_exact_values_take_11_bytes(self):
        sample = Sample(1)
        for attribute in range(3):
            sample.set(attribute, 10 * attribute)
        self.assertEqual(len(write_notification(sample)), 11)

    def test_broken_sensor_is_a_fault_and_no_value(self):
        sample = Sample(1)
        sample.set(0, 5)
        sample.fail(1)
        n = decode(write_notification(sample))
        self.assertEqual((n.faults, n.features), (2, 1))
        self.assertEqual(n.readings, [Reading(0, (5, 5, 5, 5))])
