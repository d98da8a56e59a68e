"""A day of vital signs of a few patients, made up but plausible; one seed gives one day."""

from __future__ import annotations

from random import Random

MINUTES = 24 * 60

# attribute: (healthy value, how much it wanders in a minute, how fast it comes back)
_SIGNS = {
    "patient_temperature": (36.8, 0.03, 0.02),
    "heart_rate": (78.0, 1.6, 0.05),
    "respiration_rate": (15.0, 0.4, 0.05),
    "oxygen_saturation": (97.5, 0.25, 0.05),
}

# What can happen to a patient: attribute: how far the healthy value moves at the height of it.
_INCIDENTS: tuple[dict[str, float], ...] = (
    {"patient_temperature": 3.4, "heart_rate": 45.0, "respiration_rate": 6.0},  # infection
    {"oxygen_saturation": -14.0, "respiration_rate": 14.0, "heart_rate": 30.0},  # lungs
    {"heart_rate": 95.0, "oxygen_saturation": -3.0},  # rhythm
)


def make_day(patient: int, rng: Random) -> list[dict[str, float]]:
    """Return a reading a minute; one patient in two has an incident of some hours."""
    signs = {name: healthy for name, (healthy, _, _) in _SIGNS.items()}
    incident = _INCIDENTS[patient // 2 % len(_INCIDENTS)] if patient % 2 == 0 else {}
    start = rng.randrange(200, 800)
    length = rng.randrange(150, 400)
    day = []
    for minute in range(MINUTES):
        inside = max(0.0, 1 - abs(2 * (minute - start) / length - 1)) * 2
        for name, (healthy, wander, back) in _SIGNS.items():
            goal = healthy + incident.get(name, 0.0) * min(1.0, inside)
            signs[name] += back * (goal - signs[name]) + rng.gauss(0, wander)
        signs["oxygen_saturation"] = min(100.0, signs["oxygen_saturation"])
        day.append(dict(signs))
    return day
