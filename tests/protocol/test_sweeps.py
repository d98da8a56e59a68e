"""Whole domains: every gamma code, every value, a hundred thousand uncertain readings."""
# cpython only: sweeps millions of values; the same functions run on devices in smaller sizes

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from denwatch.protocol.cuts import measure, trapezoid
from denwatch.protocol.degrees import CRISP, aggregate, fuzzify, hedge
from denwatch.protocol.vectors import Predicate

from tests.protocol import oracle
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


def list_degrees(p: Predicate) -> npt.NDArray[np.int64]:
    """Return the predicate's degree of every value."""
    mu = [hedge(fuzzify(x, p.low, p.high, p.left, p.right, 0), p.hedge) for x in range(256)]
    return np.array([255 - m for m in mu] if p.negated else mu)


def check_all(sets: list[Predicate], readings: list[tuple[int, int, int, int]]) -> None:
    """Compare measure() with the highest and the lowest over all 256 values, for every pair."""
    pi = np.array([[trapezoid(x, points) for x in range(256)] for points in readings])
    for p in sets:
        mu = list_degrees(p)
        possible = np.minimum(mu, pi).max(axis=1).tolist()
        certain = np.maximum(mu, 255 - pi).min(axis=1).tolist()
        measured = [measure(p, points) for points in readings]
        assert measured == list(zip(possible, certain, strict=True)), p


def test_possible_and_certain_equal_brute_force_on_a_hundred_thousand_pairs() -> None:
    dice = Dice(81)
    readings = [draw_reading(dice, 0, False).points for _ in range(320)]
    check_all([draw_predicate(dice, 0, False) for _ in range(320)], readings)


def test_possible_and_certain_of_all_degenerate_shapes() -> None:
    ends = (0, 1, 100, 254, 255)
    sets = [
        Predicate(0, low, high, code, negated=negated)
        for low, high in itertools.combinations_with_replacement(ends, 2)
        for code in (0, 128, 254, CRISP)
        for negated in (False, True)
    ]
    check_all(sets, list(itertools.combinations_with_replacement(ends, 4)))
