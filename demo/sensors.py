"""What the devices measure: values that wander around where they belong, and that the story moves.

Each device reads a CSV file that grows, as a real sensor's does; only this file writes them. Made
up, but plausible: nothing is measured here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

PERIOD = 0.05  # s from one reading of a device to the next

# attribute: (usual value, how much it wanders in a reading, how fast it comes back)
_PATIENT = {
    "patient_temperature": (36.8, 0.03, 0.03),
    "heart_rate": (78.0, 1.6, 0.05),
    "respiration_rate": (15.0, 0.4, 0.05),
    "oxygen_saturation": (97.0, 0.2, 0.05),
}
_GAS = {"carbon_monoxide": (6.0, 0.5, 0.1)}
_SMOKE = {"smoke": (2.0, 0.2, 0.1)}


@dataclass
class DevicePlan:
    """A device: where it is, what it measures, and how far trouble moves the usual values."""

    name: str
    node: str
    event: str
    signs: Mapping[str, tuple[float, float, float]]
    trouble: Mapping[str, float]
    accuracy: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # typical, worst
    is_in_trouble: bool = False

    def __post_init__(self) -> None:
        self.values = {name: usual for name, (usual, _, _) in self.signs.items()}

    def measure(self, rng: Random) -> Mapping[str, float]:
        """Return the next reading."""
        for name, (usual, wander, back) in self.signs.items():
            goal = usual + (self.trouble.get(name, 0.0) if self.is_in_trouble else 0.0)
            moved = self.values[name] + back * (goal - self.values[name]) + rng.gauss(0, wander)
            self.values[name] = min(max(moved, 0.0), 100.0) if name in _SHARES else max(moved, 0.0)
        return self.values


_SHARES = frozenset({"oxygen_saturation", "smoke"})  # in per cent


def plan_devices() -> dict[str, DevicePlan]:
    """Return three patients at the north, a nose for gas and an eye for smoke at the south."""
    infection = {"patient_temperature": 3.4, "heart_rate": 45.0, "respiration_rate": 6.0}
    fever = {"patient_temperature": 2.3, "heart_rate": 45.0}
    lungs = {"oxygen_saturation": -14.0, "respiration_rate": 14.0, "heart_rate": 30.0}
    on_skin = {"patient_temperature": (0.3, 0.8)}
    plans = (
        DevicePlan("bed-1", "north", "patient", _PATIENT, infection),
        DevicePlan("bed-2", "north", "patient", _PATIENT, fever, on_skin),
        DevicePlan("bed-3", "north", "patient", _PATIENT, lungs),
        DevicePlan("nose-1", "south", "gas", _GAS, {"carbon_monoxide": 900.0}),
        DevicePlan("eye-1", "south", "fire", _SMOKE, {"smoke": 90.0}),
    )
    return {plan.name: plan for plan in plans}


class Sensors:
    """Writes readings of all devices, in a thread of its own, until it is stopped."""

    def __init__(self, devices: Mapping[str, DevicePlan], folder: Path) -> None:
        self.readings = 0
        self._devices = devices
        self._folder = folder
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()

    def _write(self) -> None:
        rng = Random(7)
        files = {
            name: (self._folder / name / "readings.csv").open("a", encoding="utf-8")
            for name in self._devices
        }
        while not self._end.wait(PERIOD):
            for name, plan in self._devices.items():
                reading = plan.measure(rng)
                files[name].write(",".join(f"{value:.2f}" for value in reading.values()) + "\n")
                files[name].flush()
                self.readings += 1
        for file in files.values():
            file.close()
