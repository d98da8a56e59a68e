"""Terms, hedges and units: against brute force, against peer libraries, against known values."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import skfuzzy
from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import Attribute, Membership, ValueKind
from denwatch.client.vocabulary.fitting import (
    Demand,
    Triple,
    find_cut,
    find_gamma,
    find_width,
    tabulate_triple,
)
from denwatch.client.vocabulary.values import (
    UnitError,
    convert,
    convert_width,
    find_unit,
    list_units,
)
from denwatch.protocol.degrees import CRISP, fuzzify, hedge
from simpful import (
    Gaussian_MF,
    Trapezoidal_MF,
    Triangular_MF,
)

BYTE = Attribute("x", "e", 0, ValueKind.NUMBER, 0.0, 255.0)
WIDE = Attribute("x", "e", 0, ValueKind.NUMBER, 0.0, 255.0, wide=True)
GRID = np.arange(256, dtype=float)


def rate(triple: Triple, x: int, code: int = 0, wide: bool = False) -> float:
    """Return the degree that the wire gives."""
    degree = fuzzify(x, triple.low, triple.high, triple.left, triple.right, wide)
    return hedge(degree, code) / 255


def curve(triple: Triple, code: int = 0) -> np.ndarray:
    return np.array([rate(triple, x, code) for x in range(256)])


# Peers ----------------------------------------------------------------------------------------

SHAPES = [
    ("trapezoid", (40, 60, 100, 140)),
    ("trapezoid", (10, 20, 200, 250)),
    ("triangle", (50, 120, 190)),
    ("triangle", (100, 110, 180)),
    ("rising", (90, 160)),
    ("falling", (30, 90)),
    ("gaussian", (128, 30)),
    ("bell", (120, 40, 2)),
]


def ask_skfuzzy(kind: str, points: tuple[float, ...]) -> np.ndarray:
    """Return the degrees of scikit-fuzzy over all codes."""
    p = [float(point) for point in points]
    if kind == "trapezoid":
        return skfuzzy.trapmf(GRID, p)
    if kind == "triangle":
        return skfuzzy.trimf(GRID, p)
    if kind == "rising":
        return skfuzzy.trapmf(GRID, [p[0], p[1], 255.0, 255.0])
    if kind == "falling":
        return skfuzzy.trapmf(GRID, [0.0, 0.0, p[0], p[1]])
    if kind == "gaussian":
        return skfuzzy.gaussmf(GRID, p[0], p[1])
    return skfuzzy.gbellmf(GRID, p[1], p[2], p[0])


def ask_simpful(kind: str, points: tuple[float, ...]) -> np.ndarray | None:
    """Return the degrees of simpful over all codes; None for a kind that it lacks."""
    if kind == "trapezoid":
        function = Trapezoidal_MF(*points)
    elif kind == "triangle":
        function = Triangular_MF(*points)
    elif kind == "rising":
        function = Trapezoidal_MF(*points, 255, 255)
    elif kind == "falling":
        function = Trapezoidal_MF(0, 0, *points)
    elif kind == "gaussian":
        function = Gaussian_MF(*points)
    else:
        return None
    return np.array([float(function(x)) for x in GRID])


@pytest.mark.parametrize(("kind", "points"), SHAPES)
def test_ideal_functions_are_those_of_the_peers(kind: str, points: tuple[float, ...]) -> None:
    membership = Membership(kind, points)
    ours = np.array([membership.evaluate(x) for x in GRID])
    assert np.abs(ours - ask_skfuzzy(kind, points)).max() < 1e-9
    other = ask_simpful(kind, points)
    if other is not None:
        assert np.abs(ours - other).max() < 1e-9


@pytest.mark.parametrize(("kind", "points"), SHAPES)
def test_fitted_functions_follow_the_peers_as_far_as_reported(
    kind: str, points: tuple[float, ...]
) -> None:
    fit = BYTE.fit(Membership(kind, points))
    difference = np.abs(curve(fit.triple) - ask_skfuzzy(kind, points)).max()
    assert difference == pytest.approx(fit.error, abs=1e-9)
    assert fit.error < (0.012 if kind in ("trapezoid", "triangle", "rising", "falling") else 0.1)


@pytest.mark.parametrize(("code", "power"), [(1, 2.0), (2, 3.0), (3, 0.5), (1 | 1 << 2, 4.0)])
@pytest.mark.parametrize(("kind", "points"), SHAPES[:6])
def test_hedges_are_powers_as_in_scikit_fuzzy(
    kind: str, points: tuple[float, ...], code: int, power: float
) -> None:
    """Degrees are bytes, so the power is compared on the degree that the wire has."""
    triple = BYTE.fit(Membership(kind, points)).triple
    plain = curve(triple)
    quantum = 0.5 / 255 if code < 4 else 1.5 / 255  # two hedges round twice
    assert np.abs(curve(triple, code) - np.power(plain, power)).max() <= quantum + 1e-9
    ideal = np.power(ask_skfuzzy(kind, points), power)
    reported = BYTE.measure(Membership(kind, points).hedged(power), triple, code)
    assert np.abs(curve(triple, code) - ideal).max() == pytest.approx(reported, abs=1e-9)


# Fitting --------------------------------------------------------------------------------------


def brute_force(membership: Membership) -> float:
    """Return the least highest error of all symmetric triples around a rising side."""
    ideal = np.array([membership.evaluate(x) for x in GRID])
    best = 1.0
    for low in range(120, 145):
        for code in range(120, 230):
            worst = 0.0
            for x in range(60, 200):
                worst = max(worst, abs(rate(Triple(low, 255, code, code), x) - ideal[x]))
                if worst >= best:
                    break
            best = min(best, worst)
    return best


def test_fit_of_a_side_is_nearly_the_best_there_is() -> None:
    membership = Membership("rising", (100.3, 131.7))
    assert BYTE.fit(membership).error <= brute_force(membership) * 1.3 + 0.004


@pytest.mark.parametrize("attribute", [BYTE, WIDE])
def test_fits_of_straight_sides_are_good_for_any_place(attribute: Attribute) -> None:
    rng = random.Random(1)
    for _ in range(60):
        a = rng.uniform(5, 100)
        b, c, d = a + rng.uniform(30, 50), a + rng.uniform(50, 80), a + rng.uniform(110, 140)
        fit = attribute.fit(Membership("trapezoid", (a, b, c, d)))
        assert fit.error < (0.03 if attribute is BYTE else 0.02)  # half a step of 30 is 1.7 %


@pytest.mark.parametrize("code", [0, 1, 3, 14])
@pytest.mark.parametrize(("kind", "points"), SHAPES)
def test_the_error_of_a_wide_set_is_the_highest_of_all_its_values(
    kind: str, points: tuple[float, ...], code: int
) -> None:
    power = (1.0, 2.0, 0.0, 0.5)[code] if code < 4 else 1.5
    membership = Membership(kind, points).hedged(power)
    triple = WIDE.fit(Membership(kind, points)).triple
    found = WIDE.measure(membership, triple, code)
    for x in range(0, 65536, 7):
        error = abs(rate(triple, x, code, wide=True) - membership.evaluate(WIDE.to_value(x)))
        assert error <= found + 1e-9


def test_alike_sides_share_a_gamma_and_free_sides_cost_nothing() -> None:
    assert BYTE.fit(Membership("trapezoid", (40, 60, 100, 120))).triple.is_symmetric
    assert not BYTE.fit(Membership("trapezoid", (40, 60, 100, 180))).triple.is_symmetric
    assert BYTE.fit(Membership("rising", (40, 60))).triple.is_symmetric
    assert BYTE.fit(Membership("trapezoid", (-50, -9, 300, 400))).triple == Triple(0, 255)


def test_demands_are_kept_exactly() -> None:
    rng = random.Random(2)
    for _ in range(80):
        a = rng.uniform(20, 100)
        membership = Membership(
            "trapezoid", (a, a + rng.uniform(5, 60), 170, 170 + rng.uniform(5, 60))
        )
        level = rng.randint(20, 250)
        wanted = BYTE.find_cut(membership, level / 255)
        assert wanted is not None
        triple = BYTE.fit(membership, demands=(Demand(level, *wanted),)).triple
        inside = [x for x in range(256) if rate(triple, x) * 255 >= level - 1e-9]
        assert (inside[0], inside[-1]) == wanted


def test_cut_of_an_ideal_is_found_by_bisection_as_by_looking() -> None:
    rng = random.Random(3)
    for _ in range(100):
        membership = Membership("gaussian", (rng.uniform(0, 255), rng.uniform(3, 60)))
        t = rng.uniform(0.05, 0.99)
        inside = [x for x in range(256) if membership.evaluate(x) >= t]
        wanted = (inside[0], inside[-1]) if inside else None
        assert find_cut(BYTE.place(membership), t) == wanted


def test_gamma_codes_and_widths_are_inverse() -> None:
    for wide in (False, True):
        assert [find_gamma(find_width(code, wide), wide) for code in range(255)] == list(range(255))
        assert find_gamma(0.5, wide) == CRISP
        assert find_width(CRISP, wide) == 0.0


@pytest.mark.parametrize(
    ("kind", "points", "message"),
    [
        ("trapezoid", (1, 2, 3), "takes 4 points"),
        ("triangle", (3, 2, 1), "must be in rising order"),
        ("gaussian", (3, 0), "must be above 0"),
        ("bell", (3, 1, -1), "must be above 0"),
        ("rising", (math.nan, 1), "finite"),
        ("blob", (1,), 'unknown membership function "blob"'),
    ],
)
def test_impossible_functions_are_refused(
    kind: str, points: tuple[float, ...], message: str
) -> None:
    with pytest.raises(LanguageError, match=message):
        Membership(kind, points)


# Units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "source", "target", "wanted"),
    [
        (104, "°F", "°C", 40.0),
        (-40, "°F", "°C", -40.0),
        (0, "°C", "K", 273.15),
        (310.15, "K", "°C", 37.0),
        (36, "km/h", "m/s", 10.0),
        (1, "kn", "m/s", 0.514444),
        (60, "mph", "km/h", 96.56064),
        (5000, "ppm", "%", 0.5),
        (90, "min", "h", 1.5),
        (2, "Hz", "bpm", 120.0),
        (1, "mi", "m", 1609.344),
        (760, "mmHg", "hPa", 1013.25),
        (180.16, "mg/dL", "mmol/L", 10.0),
    ],
)
def test_units_convert(value: float, source: str, target: str, wanted: float) -> None:
    assert convert(value, source, target) == pytest.approx(wanted, rel=1e-5)
    assert convert(convert(value, source, target), target, source) == pytest.approx(value)


def test_differences_ignore_the_zero_of_a_scale() -> None:
    assert convert_width(9, "°F", "°C") == pytest.approx(5.0)
    assert convert_width(1, "K", "°C") == 1.0


def test_units_have_many_spellings() -> None:
    assert find_unit("Celsius") is find_unit("°C") is find_unit("degc")
    assert find_unit("KM/H").name == "km/h"
    assert "°F" in list_units("temperature")


def test_units_of_other_things_are_refused() -> None:
    with pytest.raises(UnitError, match='"km/h" is a unit of speed, not of temperature'):
        convert(1, "km/h", "°C")
    with pytest.raises(UnitError, match="unknown unit"):
        find_unit("furlong")


def test_a_tabulated_triple_is_what_the_device_computes() -> None:
    rng = random.Random(9)
    for _ in range(200):
        low, high = sorted((rng.randrange(256), rng.randrange(256)))
        triple = Triple(low, high, rng.randrange(256), rng.randrange(256))
        wanted = [fuzzify(x, low, high, triple.left, triple.right, 0) for x in range(256)]
        assert list(tabulate_triple(triple)) == wanted
