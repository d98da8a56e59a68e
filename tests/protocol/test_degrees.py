"""The integer arithmetic against plain floats, in a size that every runtime can do."""

import unittest

from denwatch.protocol.degrees import (
    CRISP,
    aggregate,
    fuzzify,
    hedge,
    logarithm,
    power,
    reach,
    root,
    slope,
)

from tests.protocol import oracle
from tests.protocol.samples import Dice

CORES = ((0, 0), (0, 90), (128, 128), (100, 180), (200, 255), (255, 255), (0, 255))
CODES = (0, 1, 60, 127, 200, 254, CRISP)


class FuzzifierTest(unittest.TestCase):
    def test_degree_is_within_two_steps_of_the_real_function(self):
        for low, high in CORES:
            for code in CODES:
                for x in range(0, 256, 3):
                    real = 255 * oracle.membership(x, low, high, code, code, 255)
                    degree = fuzzify(x, low, high, code, code, 0)
                    self.assertLessEqual(abs(degree - real), 2, (x, low, high, code))

    def test_wide_degree_is_within_two_steps_of_the_real_function(self):
        for low, high in CORES:
            for code in CODES:
                for x in range(0, 65536, 997):
                    real = 255 * oracle.membership(x, low * 257, high * 257, code, code, 65535)
                    degree = fuzzify(x, low * 257, high * 257, code, code, 1)
                    self.assertLessEqual(abs(degree - real), 2, (x, low, high, code))

    def test_each_side_has_its_own_slope(self):
        self.assertEqual(fuzzify(99, 100, 150, 0, CRISP, 0), 254)
        self.assertEqual(fuzzify(151, 100, 150, 0, CRISP, 0), 0)

    def test_slopes_rise_by_about_two_percent(self):
        for code in range(254):
            self.assertLess(slope(code), slope(code + 1))
            self.assertLess(slope(code + 1) / slope(code), 1.03)
        self.assertEqual(slope(0), 146)
        self.assertEqual(slope(254), 57 * 256)

    def test_reach_is_the_last_distance_with_the_degree(self):
        for wide in (0, 1):
            for code in CODES:
                for degree in (1, 2, 77, 128, 254, 255):
                    far = reach(code, degree, wide)
                    core = 60000
                    self.assertGreaterEqual(
                        fuzzify(core - far, core, core, code, code, wide), degree
                    )
                    self.assertLess(fuzzify(core - far - 1, core, core, code, code, wide), degree)


class HedgeTest(unittest.TestCase):
    def test_hedges_are_within_half_a_step_of_powers(self):
        for degree in range(256):
            for code in (1, 2, 3):
                real = 255 * oracle.hedged(degree / 255, code)
                self.assertLessEqual(abs(hedge(degree, code) - real), 0.51, (degree, code))

    def test_second_hedge_acts_on_the_first(self):
        for degree in range(256):
            self.assertEqual(hedge(degree, 1 | 3 << 2), hedge(hedge(degree, 1), 3))
            self.assertEqual(hedge(degree, 0), degree)

    def test_root_is_nearest(self):
        for square in range(0, 255 * 255 + 1, 7):
            nearest = root(square)
            self.assertLessEqual(abs(nearest * nearest - square), nearest)


class AggregatorTest(unittest.TestCase):
    def test_aggregators_are_within_one_percent_of_the_real_ones(self):
        dice = Dice(5)
        for _ in range(150):
            count = 1 + dice.below(16)
            degrees = bytearray([dice.byte() for _ in range(count)])
            weights = bytes([1 + dice.below(255) for _ in range(count)])
            for kind in range(7):
                real = 255 * oracle.aggregated(kind, [d / 255 for d in degrees], weights)
                degree = aggregate(kind, degrees, 0, count, weights, 0)
                self.assertLessEqual(abs(degree - real), 2.55, (kind, degrees, weights))

    def test_one_degree_aggregates_to_itself(self):
        for kind in range(7):
            for degree in range(256):
                self.assertEqual(aggregate(kind, bytearray([degree]), 0, 1, b"\x07", 0), degree)

    def test_means_do_not_depend_on_order(self):
        degrees = bytearray([3, 250, 77, 128, 9])
        for kind in range(6):
            straight = aggregate(kind, degrees, 0, 5, b"", 0)
            self.assertEqual(aggregate(kind, bytearray(reversed(degrees)), 0, 5, b"", 0), straight)

    def test_a_part_of_the_buffer_is_aggregated(self):
        degrees = bytearray([0, 10, 20, 0])
        self.assertEqual(aggregate(0, degrees, 1, 3, b"", 0), 10)
        self.assertEqual(aggregate(6, degrees, 1, 3, b"\x00\x01\x03", 1), 18)

    def test_power_undoes_logarithm(self):
        for degree in range(1, 256):
            self.assertEqual(power(logarithm(degree)), degree)
