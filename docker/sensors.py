"""Sensors for a watchdog that has none: appends a line of readings a second to a CSV file.

Each column is a walk around its usual value; every few minutes it goes for a while to where
somebody may want to know of it. The watchdog reads the file as it would read a sensor.

usage: sensors.py watchdog.json [SEED]      the file and its columns stand in the configuration
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Usual value, step of the walk, and where an episode goes.
WALKS = {
    "patient_temperature": (36.9, 0.05, 40.2),
    "heart_rate": (78.0, 1.5, 138.0),
    "oxygen_saturation": (97.0, 0.3, 86.0),
    "wind_speed": (6.0, 0.4, 24.0),
    "temperature": (14.0, 0.1, 14.0),
    "humidity": (60.0, 0.5, 60.0),
}
EVERY, LASTS = 120, 30  # readings from one episode to the next, and how long one is


def walk(columns: list[str], rng: random.Random) -> Iterator[list[float]]:
    """Yield readings for ever."""
    values = [WALKS[name][0] for name in columns]
    number = 0
    while True:
        number += 1
        is_episode = number % EVERY >= EVERY - LASTS
        for place, name in enumerate(columns):
            usual, step, episode = WALKS[name]
            aim = episode if is_episode else usual
            values[place] += rng.gauss(0, step) + (aim - values[place]) * 0.2
        yield [round(value, 2) for value in values]


def main(arguments: list[str]) -> None:
    """Begin a new file, and append to it until somebody ends this."""
    config = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    source = config["sources"]["sensors"]
    seed = arguments[1] if len(arguments) > 1 else config["device"]
    period = config["events"][0]["period"] / 1000
    with Path(source["path"]).open("w", encoding="utf-8", buffering=1) as file:
        file.write(",".join(source["columns"]) + "\n")
        for values in walk(source["columns"], random.Random(seed)):
            file.write(",".join(f"{value:.2f}" for value in values) + "\n")
            time.sleep(period)


if __name__ == "__main__":
    main(sys.argv[1:])
