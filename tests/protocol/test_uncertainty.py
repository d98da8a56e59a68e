"""Possibility and necessity against the highest and the lowest over all values."""

import unittest

from denwatch.protocol.cuts import cut_reading, measure, trapezoid
from denwatch.protocol.degrees import CRISP, fuzzify, hedge
from denwatch.protocol.vectors import Predicate

from tests.protocol import oracle
from tests.protocol.samples import Dice, draw_predicate, draw_reading


def brute_force(p, points):
    """Return sup min(mu, pi) and inf max(mu, 255 - pi) by trying every value."""
    possible, certain = 0, 255
    for x in range(256):
        mu = hedge(fuzzify(x, p.low, p.high, p.left, p.right, 0), p.hedge)
        mu = 255 - mu if p.negated else mu
        pi = trapezoid(x, points)
        possible = max(possible, min(mu, pi))
        certain = min(certain, max(mu, 255 - pi))
    return possible, certain


SETS = (
    (0, 0, CRISP),
    (255, 255, CRISP),
    (0, 255, CRISP),
    (100, 100, CRISP),
    (100, 150, CRISP),
    (0, 80, 60),
    (180, 255, 60),
    (100, 150, 0),
    (100, 150, 254),
    (120, 120, 100),
)
READINGS = (
    (0, 0, 0, 0),
    (255, 255, 255, 255),
    (0, 0, 255, 255),
    (0, 255, 255, 255),
    (0, 0, 0, 255),
    (90, 100, 100, 110),
    (99, 100, 100, 101),
    (100, 100, 150, 150),
    (95, 95, 95, 96),
    (60, 90, 160, 200),
    (0, 128, 128, 255),
)


class UncertaintyTest(unittest.TestCase):
    def test_random_pairs_equal_brute_force(self):
        dice = Dice(51)
        for _ in range(60):
            p = draw_predicate(dice, 0, False)
            points = draw_reading(dice, 0, False).points
            self.assertEqual(measure(p, points), brute_force(p, points), (p, points))

    def test_degenerate_shapes_equal_brute_force(self):
        for low, high, code in SETS:
            for points in READINGS:
                for negated in (False, True):
                    p = Predicate(0, low, high, code, negated=negated)
                    self.assertEqual(measure(p, points), brute_force(p, points), (p, points))

    def test_possible_is_never_below_certain(self):
        dice = Dice(52)
        for wide in (False, True):
            for _ in range(100):
                p = draw_predicate(dice, 0, wide)
                points = draw_reading(dice, 0, wide).points
                possible, certain = measure(p, points)
                self.assertGreaterEqual(possible, certain)

    def test_trapezoid_is_within_half_a_step_of_the_real_one(self):
        for points in READINGS:
            for x in range(256):
                real = 255 * oracle.possible(x, points)
                self.assertLessEqual(abs(trapezoid(x, points) - real), 0.51)

    def test_cut_of_a_reading_is_exact(self):
        dice = Dice(53)
        for points in READINGS + tuple(draw_reading(dice, 0, False).points for _ in range(10)):
            for t in (1, 2, 100, 128, 254, 255):
                low, high = cut_reading(points, t)
                for x in range(256):
                    self.assertEqual(low <= x <= high, trapezoid(x, points) >= t, (points, t, x))
