"""Whole domains: every gamma code, every value; uncertain readings by the hundred."""
# cpython only: sweeps millions of values; the same functions run on devices in smaller sizes

import itertools
import math

import pytest
from denwatch.protocol.cuts import measure
from denwatch.protocol.degrees import CRISP, aggregate, fuzzify, hedge
from denwatch.protocol.vectors import Predicate

from tests.protocol import oracle, real
from tests.protocol.samples import Dice, draw_predicate, draw_reading

ENDS = (0, 1, 37, 127, 128, 200, 254, 255)
CORES = [(low, high) for low, high in itertools.product(ENDS, ENDS) if low <= high]


@pytest.mark.parametrize("wide", [False, True])
def test_every_gamma_code_is_within_two_steps_of_the_real_function(wide: bool) -> None:
    last = 65535 if wide else 255
    scale = 257 if wide else 1
    worst = 0.0
    for code in range(256):
        gamma = oracle.gamma(code)
        for low, high in CORES:
            for x in range(0, last + 1, 1 if not wide else 1285):
                degree = fuzzify(x, low * scale, high * scale, code, code, wide)
                distance = max(0, low * scale - x, x - high * scale) / last
                real = 0.0 if distance and math.isinf(gamma) else 1.0
                if distance and not math.isinf(gamma):
                    real = 1 - min(1.0, gamma * distance)
                worst = max(worst, abs(degree - 255 * real))
    assert worst <= 2


def test_aggregators_over_all_pairs_are_within_one_percent() -> None:
    degrees = bytearray(2)
    for kind in range(7):
        worst = 0.0
        for a, b in itertools.product(range(0, 256, 3), range(256)):
            degrees[:] = bytes([a, b])
            real = oracle.aggregated(kind, [a / 255, b / 255], [3, 200])
            degree = aggregate(kind, degrees, 0, 2, b"\x03\xc8", 0)
            worst = max(worst, abs(degree / 255 - real))
        assert worst <= 0.01, kind


def test_hedges_over_all_degrees_and_codes_stay_within_what_rounding_allows() -> None:
    for code in (1, 2, 3):
        for degree in range(256):
            assert abs(hedge(degree, code) - 255 * oracle.hedged(degree / 255, code)) <= 0.5 + 1e-9


def test_possible_and_certain_are_within_two_steps_of_the_real_ones() -> None:
    dice = Dice(81)
    for _ in range(400):
        p = draw_predicate(dice, 0, False)
        points = draw_reading(dice, 0, False).points
        if dice.chance(2):
            first = min(253, p.low)
            points = (first, first + dice.below(2), first + 1, first + 2)
        if points[0] == points[3]:
            continue
        for found, degree in zip(
            measure(p, points), real.measure_pattern([p], b"\0", points), strict=True
        ):
            assert abs(found / 255 - degree) <= 0.008, (p, points)


def test_possible_and_certain_of_all_degenerate_shapes() -> None:
    ends = (0, 1, 100, 255)
    sets = [
        Predicate(0, low, high, code, negated=negated)
        for low, high in itertools.combinations_with_replacement(ends, 2)
        for code in (0, 254, CRISP)
        for negated in (False, True)
    ]
    for points in itertools.combinations_with_replacement(ends, 4):
        if points[0] < points[3]:
            for p in sets:
                right = real.measure_pattern([p], b"\0", points)
                for found, degree in zip(measure(p, points), right, strict=True):
                    assert abs(found / 255 - degree) <= 0.008, (p, points)
