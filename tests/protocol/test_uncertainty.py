"""Possibility and necessity against the real ones, which `real.py` finds from their definition."""

import unittest

from denwatch.protocol.cuts import cut_finely, cut_reading, measure, measure_together, trapezoid
from denwatch.protocol.degrees import CRISP
from denwatch.protocol.vectors import Predicate

from tests.protocol import oracle, real
from tests.protocol.samples import Dice, draw_predicate, draw_reading

STEPS = 2.01  # of 255, that a degree may be off

SETS = (
    (0, 0, CRISP),
    (255, 255, CRISP),
    (100, 150, CRISP),
    (0, 80, 60),
    (180, 255, 60),
    (100, 150, 254),
    (120, 120, 100),
)
READINGS = (
    (255, 255, 255, 255),
    (0, 0, 255, 255),
    (0, 0, 0, 255),
    (90, 100, 100, 110),
    (99, 100, 100, 101),
    (100, 100, 150, 150),
    (95, 95, 95, 96),
    (60, 90, 160, 200),
)


def draw_narrow(dice, near):
    """Return a reading a few codes wide, close to a value."""
    first = max(0, min(252, near + dice.below(9) - 5))
    points = [first]
    for _ in range(3):
        points.append(points[-1] + dice.below(3))
    points[3] += 1
    return tuple([min(255, point) for point in points])


class UncertaintyTest(unittest.TestCase):
    def check(self, p, points):
        found = measure(p, points)
        for side in (0, 1):
            degree = 255 * real.measure_pattern([p], b"\0", points)[side]
            self.assertLessEqual(abs(found[side] - degree), STEPS, (p, points, side))
        self.assertGreaterEqual(found[0], found[1])

    def test_random_pairs(self):
        dice = Dice(51)
        for wide in (False, True):
            for _ in range(20):
                p = draw_predicate(dice, 0, wide)
                points = draw_reading(dice, 0, wide).points
                if points[0] < points[3]:
                    self.check(p, points)

    def test_readings_of_a_few_codes(self):
        """Where trying whole codes was off by up to 0.32."""
        dice = Dice(52)
        for i in range(40):
            low = 5 + dice.below(240)
            high = min(255, low + dice.below(4))
            hedge = (0, 1, 2, 3, 5, 10, 14, 15)[i % 8]
            p = Predicate(0, low, high, 200 + dice.below(56), -1, dice.chance(3), hedge)
            self.check(p, draw_narrow(dice, low if dice.chance(2) else high))

    def test_degenerate_shapes(self):
        for low, high, code in SETS:
            for points in READINGS:
                if points[0] < points[3]:
                    for negated in (False, True):
                        self.check(Predicate(0, low, high, code, negated=negated), points)

    def test_a_double_hedge_on_a_steep_side(self):
        p = Predicate(0, 101, 255, 254, hedge=10)
        possible, _ = measure(p, (99, 100, 100, 101))
        self.assertLessEqual(abs(possible - 106), 2)  # at whole codes it was 26

    def test_trapezoid_is_within_half_a_step_of_the_real_one(self):
        for points in READINGS:
            for x in range(256):
                degree = 255 * oracle.possible(x, points)
                self.assertLessEqual(abs(trapezoid(x, points) - degree), 0.51)

    def test_cut_of_a_reading_is_where_the_real_one_rounds_to_the_degree(self):
        for points in READINGS:
            for t in (1, 2, 100, 128, 254, 255):
                low, high = cut_reading(points, t, 256)
                for x in range(256 * points[0], 256 * points[3] + 1, 37):
                    degree = 255 * oracle.possible(x / 256, points)
                    if abs(degree - t + 0.5) > 0.001:
                        self.assertEqual(low <= x <= high, degree >= t - 0.5, (points, t, x))

    def test_cut_of_a_set_is_where_the_real_one_rounds_to_the_degree(self):
        dice = Dice(54)
        for _ in range(10):
            p = draw_predicate(dice, 0, False)
            p.negated = False
            for t in (1, 100, 255):
                low, high = cut_finely(p, t)
                for x, inside in ((low, True), (high, True), (low - 9, False), (high + 9, False)):
                    if 0 <= x <= 255 * 256:
                        degree = 255 * real.member(p, x / 256)[0]
                        self.assertTrue(degree >= t - 2 if inside else degree < t + 1, (p, t, x))


class TogetherTest(unittest.TestCase):
    """Several sets over one attribute."""

    def test_one_of_two_halves_is_certain(self):
        halves = [Predicate(0, 0, 100), Predicate(0, 101, 255)]
        self.assertEqual(measure_together(halves, b"\0\1\x52", (95, 100, 100, 105)), (255, 255))
        self.assertEqual(measure_together(halves, b"\0\1\x42", (95, 100, 100, 105)), (0, 0))

    def test_patterns_of_two_or_three(self):
        dice = Dice(55)
        programs = (b"\0\1\x42", b"\0\1\x52", b"\0\1\x52\x60", b"\0\1\x42\2\x60\x52")
        for i in range(24):
            base = 20 + dice.below(200)
            sets = []
            for _ in range(3):
                low = base + dice.below(9)
                high = (low, low + 3, 255)[dice.below(3)]
                code = CRISP if dice.chance(2) else dice.below(256)
                sets.append(Predicate(0, low, high, code, negated=dice.chance(3)))
            program = programs[i % 4]
            used = sets if i % 4 == 3 else sets[:2]
            points = draw_narrow(dice, base + 4)
            found = measure_together(used, program, points)
            right = real.measure_pattern(used, program, points, 6)
            for side in (0, 1):
                off = abs(found[side] - 255 * right[side])
                self.assertLessEqual(off, STEPS, (used, program, points, side))
