"""Whole matches: exact and uncertain readings, the four thresholds, patterns, age, widths."""

import unittest

from denwatch.protocol.degrees import ARITHMETIC, MAX, SUGENO
from denwatch.protocol.matching import match, rate_age
from denwatch.protocol.timecode import decode_duration, encode_duration
from denwatch.protocol.vectors import (
    AND,
    NOT,
    OR,
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)

from tests.protocol import oracle
from tests.protocol.samples import Dice, draw_notification, draw_subscription


def exact(attribute, value, wide=False):
    return Reading(attribute, (value,) * 4, wide)


class MatchTest(unittest.TestCase):
    def test_features_must_be_among_those_of_the_notification(self):
        s = SubscriptionVector(1, [Predicate(0, 10, 20), Predicate(2, 10, 20)])
        self.assertIsNone(match(s, NotificationVector(1, [exact(0, 15)])))
        self.assertIsNone(match(s, NotificationVector(2, [exact(0, 15), exact(2, 15)])))
        found = match(s, NotificationVector(1, [exact(0, 15), exact(1, 99), exact(2, 15)]))
        self.assertTrue(found.matched)

    def test_thresholds_are_reached_or_missed_by_one(self):
        n = NotificationVector(1, [exact(0, 30)])
        degree = match(SubscriptionVector(1, [Predicate(0, 10, 20, 100)]), n).possible
        self.assertTrue(0 < degree < 255)
        for add, matched in ((0, True), (1, False)):
            t = degree + add
            p = Predicate(0, 10, 20, 100)
            self.assertEqual(match(SubscriptionVector(1, [p], threshold=t), n).matched, matched)
            self.assertEqual(match(SubscriptionVector(1, [p], 0, 0, t), n).matched, matched)
            for p in (Predicate(0, 10, 20, 100, possible=t), Predicate(0, 10, 20, 100, certain=t)):
                self.assertEqual(match(SubscriptionVector(1, [p], threshold=0), n).matched, matched)

    def test_doubt_parts_possible_from_certain(self):
        s = SubscriptionVector(1, [Predicate(0, 100, 255, 120)], threshold=200, certain=200)
        doubtful = NotificationVector(1, [Reading(0, (60, 90, 110, 140))])
        found = match(s, doubtful)
        self.assertEqual(found.possible, 255)
        self.assertLess(found.certain, 200)
        self.assertFalse(found.matched)
        s.certain = 0
        self.assertTrue(match(s, doubtful).matched)

    def test_negation_in_a_pattern_swaps_possible_and_certain(self):
        reading = NotificationVector(1, [Reading(0, (60, 90, 110, 140)), exact(1, 50)])
        plain = SubscriptionVector(1, [Predicate(0, 100, 255, 120), Predicate(1, 0, 255)])
        negated = SubscriptionVector(1, plain.predicates, pattern=bytes([0, NOT, 1, AND | 2]))
        first, second = match(plain, reading), match(negated, reading)
        self.assertEqual(second.possible, 255 - first.certain)
        self.assertEqual(second.certain, 255 - first.possible)

    def test_pattern_names_the_leaf_that_decided(self):
        predicates = [Predicate(a, 100, 100, 0) for a in range(3)]
        s = SubscriptionVector(1, predicates, pattern=bytes([0, 1, OR | 2, 2, AND | 2]))
        n = NotificationVector(1, [exact(0, 150), exact(1, 110), exact(2, 105)])
        found = match(s, n)
        self.assertEqual(found.predicate, 1)
        self.assertEqual(found.possible, found.degree)

    def test_values_of_the_other_width_are_fitted(self):
        wide = SubscriptionVector(1, [Predicate(0, 20 * 257, 30 * 257, wide=True)])
        self.assertTrue(match(wide, NotificationVector(1, [exact(0, 30)])).matched)
        narrow = SubscriptionVector(1, [Predicate(0, 20, 30)])
        self.assertTrue(match(narrow, NotificationVector(1, [exact(0, 30 * 257, True)])).matched)
        self.assertFalse(match(narrow, NotificationVector(1, [exact(0, 31 * 256, True)])).matched)

    def test_rules_weigh_consequents_by_their_pairs(self):
        predicates = [Predicate(a, 100, 100, 100) for a in range(3)]
        n = NotificationVector(1, [exact(0, 110), exact(1, 100), exact(2, 120)])
        for rules in ([(10,), (200,), (90,)], [(10, 20, -5), (200, -9, 3), (0, 127, 127)]):
            s = SubscriptionVector(1, predicates, SUGENO, 1, consequents=rules)
            real = oracle.subscription_degree(s, {0: 110, 1: 100, 2: 120})
            self.assertLessEqual(abs(match(s, n).possible - 255 * real), 3)

    def test_rules_that_nothing_fires_give_nothing(self):
        s = SubscriptionVector(
            1, [Predicate(0, 1, 1), Predicate(1, 1, 1)], SUGENO, consequents=[(255,)]
        )
        self.assertEqual(match(s, NotificationVector(1, [exact(0, 9), exact(1, 9)])).possible, 0)

    def test_rules_on_uncertain_and_wide_readings(self):
        s = SubscriptionVector(
            1,
            [Predicate(0, 20000, 30000, 60, wide=True), Predicate(1, 90, 110, 60)],
            SUGENO,
            consequents=[(50, 64, 0)],
        )
        n = NotificationVector(1, [Reading(0, (15000, 20000, 26000, 31000), True), exact(1, 100)])
        found = match(s, n)
        self.assertEqual(found.possible, 50 + 23000 // 256)
        self.assertLessEqual(found.certain, found.possible)

    def test_age_lowers_the_degree(self):
        minute, hour = encode_duration(60), encode_duration(3600)
        s = SubscriptionVector(1, [Predicate(0, 0, 255)], recent=(minute, hour))
        n = NotificationVector(1, [exact(0, 9)])
        ages = (0, 60, 1000, 3000, decode_duration(hour), 99999)
        degrees = [match(s, n, age).possible for age in ages]
        self.assertEqual(degrees, sorted(degrees, reverse=True))
        self.assertEqual(degrees[0], 255)
        self.assertEqual(degrees[-1], 0)
        self.assertEqual(rate_age(decode_duration(hour) - 1, (minute, hour)), 0)

    def test_old_readings_count_up_to_their_restrictor(self):
        code = encode_duration(30)
        predicates = [Predicate(0, 10, 20), Predicate(2, 10, 20)]
        limited = SubscriptionVector(1, predicates, restrictors=bytes([0, code]))
        plain = SubscriptionVector(1, predicates)
        both = SubscriptionVector(1, predicates, restrictors=bytes([code, code]))
        new, old = exact(0, 15), Reading(2, (15,) * 4, age=code)
        for s, readings, matched in (
            (limited, [new, old], True),
            (limited, [new, Reading(2, (15,) * 4, age=code + 1)], False),
            (limited, [new, exact(2, 15)], True),
            (limited, [new], False),
            (plain, [new, old], False),
            (both, [Reading(0, (15,) * 4, age=code), old, exact(3, 1)], False),  # nothing is new
            (limited, [Reading(0, (15,) * 4, age=1), exact(2, 15)], False),
            (both, [Reading(0, (15,) * 4, age=1), exact(2, 15)], True),
        ):
            found = match(s, NotificationVector(1, readings))
            self.assertEqual(found is not None and found.matched, matched, (s, readings))

    def test_sets_over_one_uncertain_attribute_are_judged_together(self):
        halves = [Predicate(0, 0, 100), Predicate(1, 50, 60), Predicate(0, 101, 255)]
        either = SubscriptionVector(1, halves, pattern=bytes([0, 2, OR | 2, 1, AND | 2]))
        both = SubscriptionVector(1, halves)
        n = NotificationVector(1, [Reading(0, (95, 100, 100, 105)), exact(1, 55)])
        found = match(either, n)  # one of the halves, whichever the value is
        self.assertEqual((found.possible, found.certain), (255, 255))
        found = match(both, n)  # never both of them
        self.assertEqual((found.possible, found.certain), (0, 0))
        alone = SubscriptionVector(1, [halves[0], halves[2]], MAX)
        found = match(alone, NotificationVector(1, [Reading(0, (95, 100, 100, 105))]))
        self.assertEqual((found.possible, found.certain), (255, 255))

    def test_possible_is_never_below_certain(self):
        dice = Dice(61)
        for _ in range(300):
            s = draw_subscription(dice)
            n = draw_notification(dice)
            s.event = n.event
            found = match(s, n)
            if found is not None:
                self.assertGreaterEqual(found.possible, found.certain, (s, n))

    def test_max_takes_the_best(self):
        s = SubscriptionVector(1, [Predicate(0, 0, 0), Predicate(1, 9, 9)], MAX)
        found = match(s, NotificationVector(1, [exact(0, 200), exact(1, 9)]))
        self.assertEqual((found.possible, found.predicate), (255, 1))

    def test_and_in_a_pattern_is_the_aggregator(self):
        s = SubscriptionVector(
            1,
            [Predicate(0, 0, 0), Predicate(1, 9, 9)],
            ARITHMETIC,
            pattern=bytes([0, 1, AND | 2]),
        )
        self.assertEqual(
            match(s, NotificationVector(1, [exact(0, 200), exact(1, 9)])).possible, 128
        )
