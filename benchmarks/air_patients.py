"""Generated patients: vital signs once a minute for a day, mostly calm, some of them getting worse.

Each sign wanders around its mean (an Ornstein-Uhlenbeck process); a patient who deteriorates drifts
towards shock or fever for some hours and recovers. One seed, one day.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

# attribute: mean, spread, pull back a minute, towards shock, towards fever
SIGNS = {
    "patient_temperature": (36.8, 0.25, 0.02, -1.5, 3.2),
    "heart_rate": (78.0, 7.0, 0.08, 62.0, 38.0),
    "respiration_rate": (15.0, 1.8, 0.1, 13.0, 8.0),
    "oxygen_saturation": (96.5, 0.8, 0.06, -10.0, -2.5),
    "systolic_pressure": (122.0, 8.0, 0.05, -48.0, -8.0),
    "diastolic_pressure": (76.0, 5.0, 0.05, -26.0, -4.0),
}
MINUTES = 1440


def draw_patient(rng: Random, worsens: bool) -> Iterator[list[float]]:
    """Yield the signs of each minute, in the order of SIGNS."""
    start = rng.uniform(120, 900)
    length = rng.uniform(120, 420)
    column = 3 + rng.randrange(2)
    offsets = [rng.gauss(0, sign[1]) for sign in SIGNS.values()]
    base = [sign[0] + rng.gauss(0, sign[1] / 2) for sign in SIGNS.values()]
    for minute in range(MINUTES):
        share = 0.0
        if worsens and start < minute < start + length:
            share = min(1.0, 4 * min(minute - start, start + length - minute) / length)
        signs = []
        for i, sign in enumerate(SIGNS.values()):
            _, spread, pull, *targets = sign
            offsets[i] += -pull * offsets[i] + rng.gauss(0, spread * (2 * pull) ** 0.5)
            signs.append(base[i] + offsets[i] + share * targets[column - 3])
        signs[3] = min(signs[3], 100.0)
        yield signs
