"""The duty cycle: when to sleep, and subscriptions that survive it."""

import unittest

from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, Significance, SubscriptionVector
from denwatch.watchdog.duty import (
    DUE,
    REGULAR,
    URGENT,
    SleepSettings,
    choose_reason,
    freeze,
    plan_sleep,
    thaw,
)
from denwatch.watchdog.execution import Sample
from denwatch.watchdog.filter import CapacityError
from denwatch.watchdog.fuzzy import Fuzzy

from tests.watchdog.test_filter import list_handles

SENSES = {1: (7, 0), 2: (1, 0)}


def make_language():
    language = Fuzzy(300, SENSES)
    band = Significance(bytes([20]))
    for s in (
        SubscriptionVector(1, [Predicate(0, 100, 255)], handle=1, significance=band),
        SubscriptionVector(
            1, [Predicate(0, 100, 255, 3), Predicate(2, 0, 9)], handle=2, validity=16
        ),
        SubscriptionVector(2, [Predicate(0, 0, 9)], handle=3),
        SubscriptionVector(2, [Predicate(0, 0, 9)], handle=4),
    ):
        language.install(encode(s), 0)
    return language


class DutyTest(unittest.TestCase):
    def test_sleeps_until_the_next_sampling(self):
        self.assertEqual(plan_sleep(1000, 61_000, 600_000), 59_000)
        self.assertEqual(plan_sleep(1000, 61_000, 30_000), 30_000)

    def test_stays_awake_for_short_pauses(self):
        self.assertEqual(plan_sleep(1000, 2500, 600_000), 0)
        self.assertEqual(plan_sleep(1000, 500, 600_000), 0)

    def test_the_radio_is_for_high_degrees_for_what_waits_and_for_every_tenth_wake(self):
        settings = SleepSettings(600_000)
        self.assertEqual(choose_reason(0, -1, 9, 0, settings), 0)
        self.assertEqual(choose_reason(0, -1, 10, 0, settings), REGULAR)
        self.assertEqual(choose_reason(127, 899_999, 1, 0, settings), 0)
        self.assertEqual(choose_reason(128, 0, 1, 0, settings), URGENT)
        self.assertEqual(choose_reason(20, 900_000, 1, 0, settings), DUE)

    def test_a_node_that_is_gone_does_not_empty_the_battery(self):
        settings = SleepSettings(600_000)
        failed = attempts = pause = 0
        for _ in range(1000):  # a wake a minute, something urgent all the time
            pause += 1
            if choose_reason(255, 900_000, pause, failed, settings):
                attempts, failed, pause = attempts + 1, failed + 1, 0
        self.assertLess(attempts, 22)

    def test_subscriptions_deadlines_memories_and_twins_survive(self):
        before = make_language()
        sample = Sample(1)
        sample.set(0, 150)
        self.assertEqual(before.judge(sample, 1000), 255)
        after = Fuzzy(300, SENSES)
        self.assertEqual(thaw(after, freeze(before)), 4)
        self.assertEqual(list_handles(after.filter), list_handles(before.filter))
        self.assertEqual(after.judge(sample, 2000), -1)  # the dead band remembers
        self.assertEqual(after.remove([3]), 1)
        self.assertEqual(after.filter.count, 3)  # its twin is still there
        self.assertEqual(after.expire(15_999), 0)
        self.assertEqual(after.expire(16_000), 1)

    def test_any_damage_is_noticed(self):
        data = freeze(make_language())
        for at in range(len(data)):
            bad = bytearray(data)
            bad[at] ^= 0x10
            language = Fuzzy(300, SENSES)
            self.assertRaises(ProtocolError, thaw, language, bytes(bad))
            self.assertEqual(language.filter.used, 0)
            self.assertRaises(ProtocolError, thaw, language, data[:at])

    def test_less_room_than_before_is_said(self):
        self.assertRaises(CapacityError, thaw, Fuzzy(40, SENSES), freeze(make_language()))
