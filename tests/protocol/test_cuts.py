"""Alpha-cuts against the degrees themselves, value by value."""

import unittest

from denwatch.protocol.cuts import (
    complement,
    cut,
    find_level,
    invert_hedge,
)
from denwatch.protocol.degrees import MAX, MIN, SUGENO, aggregate, fuzzify, hedge

from tests.protocol.samples import Dice, draw_predicate


def degree_of(p, x):
    degree = hedge(fuzzify(x, p.low, p.high, p.left, p.right, p.wide), p.hedge)
    return 255 - degree if p.negated else degree


def contains(intervals, x):
    return any(low <= x <= high for low, high in intervals)


class CutTest(unittest.TestCase):
    def test_cut_holds_exactly_the_values_that_reach_the_degree(self):
        dice = Dice(41)
        for _ in range(25):
            p = draw_predicate(dice, 0, False)
            for t in (0, 1, 2, 100, 128, 254, 255, 256):
                intervals = cut(p, t)
                for x in range(256):
                    self.assertEqual(contains(intervals, x), degree_of(p, x) >= t, (p, t, x))

    def test_wide_cut_ends_where_the_degree_falls_below(self):
        dice = Dice(42)
        for _ in range(60):
            p = draw_predicate(dice, 0, True)
            for t in (1, 77, 255):
                for low, high in cut(p, t):
                    for x in (low, (low + high) // 2, high):
                        self.assertGreaterEqual(degree_of(p, x), t)
                    for x in (low - 1, high + 1):
                        if 0 <= x <= 65535:
                            self.assertLess(degree_of(p, x), t)

    def test_inverted_hedge_is_the_lowest_degree_that_reaches(self):
        for code in (0, 1, 2, 3, 5, 13, 15):
            for t in range(256):
                m = invert_hedge(code, t)
                self.assertGreaterEqual(hedge(m, code), t)
                self.assertTrue(m == 0 or hedge(m - 1, code) < t)

    def test_complement(self):
        self.assertEqual(complement([], 255), [(0, 255)])
        self.assertEqual(complement([(0, 255)], 255), [])
        self.assertEqual(complement([(10, 20)], 255), [(0, 9), (21, 255)])


class LevelTest(unittest.TestCase):
    def test_level_is_necessary_and_tight(self):
        dice = Dice(46)
        for kind in range(7):
            for t in (0, 1, 90, 200, 255):
                count = 2 + dice.below(3)
                weights = bytes([1 + dice.below(9) for _ in range(count)])
                level = find_level(kind, count, t, weights, 0)
                for own in range(256):
                    best = bytearray([own] + [255] * (count - 1))
                    reached = aggregate(kind, best, 0, count, weights, 0) >= t
                    self.assertTrue(not reached or own >= level, (kind, t, own))
                    if kind not in (MAX, MIN):
                        self.assertEqual(reached, own >= level)

    def test_max_and_rules_ask_nothing_of_one(self):
        self.assertEqual(find_level(MAX, 3, 255, b"", 1), 0)
        self.assertEqual(find_level(SUGENO, 3, 255, b"", 1), 0)
        self.assertEqual(find_level(MIN, 3, 99, b"", 1), 99)
