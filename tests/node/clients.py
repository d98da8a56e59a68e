"""Clients of a site in tests: watchdogs as processes, people with the subscriber library."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from denwatch.client.subscriber import (
    BackOff,
    HandlerTransaction,
    ReceivedNotification,
    Subscriber,
    SubscriberOptions,
)
from denwatch.client.vocabulary import load_shipped

from simulator.site import ENVIRONMENT, REPOSITORY, wait_for, write_watchdog

# A watchdog that tries again soon, so that tests do not wait for it.
HASTE: dict[str, Any] = {
    "patience": 1000,
    "hold": 500,
    "link": {"longest_delay": 1, "keep_alive": 5, "timeout": 5},
}


def write_patients(
    folder: Path, device: Mapping[str, Any], rows: Sequence[Mapping[str, float]]
) -> Path:
    """Write the configuration of a device that replays rows of a patient's signs."""
    return write_watchdog(folder, device, rows, load_shipped("rescue"), **HASTE)


@contextlib.contextmanager
def running_watchdog(
    config: Path, micropython: Path | None = None, prefix: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Run a watchdog; under CPython unless a MicroPython is given."""
    command = [
        *prefix,
        sys.executable,
        "-m",
        "denwatch.cli",
        "watchdog",
        "--report",
        "1",
        str(config),
    ]
    if micropython is not None:
        command += ["--micropython", str(micropython)]
    with (config.parent / "watchdog.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=REPOSITORY, env=ENVIRONMENT, text=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Sensor:
    """A watchdog for which a test writes readings while it runs.

    Each reading is a patient with a number, its position, by which tests count what arrives.
    """

    def __init__(self, folder: Path, device: Mapping[str, Any], first: int = 1) -> None:
        self.config = write_patients(folder, device, [{"east": 0.0, "heart_rate": 0.0}])
        self.emitted: list[int] = []
        self._readings = folder / "readings.csv"
        self._next = first

    def emit(self, count: int, heart_rate: int = 150) -> list[int]:
        """Let it read so many patients; return their numbers."""
        numbers = list(range(self._next, self._next + count))
        self._next += count
        self.emitted += numbers
        with self._readings.open("a", encoding="utf-8") as file:
            file.write("".join(f"{number},{heart_rate}\n" for number in numbers))
        return numbers

    def read_report(self) -> dict[str, Any]:
        """Return its counters, as it printed them last."""
        lines = (self.config.parent / "watchdog.log").read_text(encoding="utf-8").splitlines()
        found = next((line for line in reversed(lines) if line.startswith("{")), "{}")
        with contextlib.suppress(ValueError):  # half a line
            report: dict[str, Any] = json.loads(found)
            return report
        return {}

    def count_installed(self) -> int:
        """Return how many subscriptions it has."""
        counts = self.read_report().get("subscriptions", {})
        return sum(sign * counts.get(name, 0) for name, sign in _BALANCE.items())

    def wait_for_subscriptions(self, count: int = 1) -> None:
        """Wait until it has so many subscriptions: what it reads before is nobody's."""
        what = f"{count} subscriptions at {self.config.parent.name}"
        wait_for(what, lambda: self.count_installed() == count, 60)


_BALANCE = {"added": 1, "removed": -1, "expired": -1}


class Person:
    """Somebody with the subscriber library; `numbers` are the patients that they were told of.

    `past` are patients from before they asked: readings of a moment ago may match, too.
    """

    def __init__(
        self,
        name: str,
        password: str | None,
        url: str,
        folder: Path,
        ca: Path | None = None,
        past: Iterable[int] = (),
    ) -> None:
        self.name = name
        self.past = frozenset(past)
        self.notes: list[ReceivedNotification] = []
        self.subscriber = Subscriber(
            name,
            password,
            [url],
            store=folder / f"{name}.db",
            tls=ca,
            on_notification=self._take,
            settings=SubscriberOptions(BackOff(200, 1_000), patience=2_000, report_delay=200),
        )

    @property
    def numbers(self) -> list[int]:
        return [round(note.values["east"]["value"]) for note in self.notes]

    def walk(self, url: str) -> None:
        """Go to another node."""
        self.subscriber.use_servers([url])

    def expect(self, numbers: list[int], patience: float = 120.0) -> None:
        """Wait for all of these patients, and see that they came once, and nobody else."""
        what = f"{len(numbers)} notes for {self.name}"
        wait_for(what, lambda: set(numbers) <= set(self.numbers), patience)
        self.check(numbers)

    def check(self, numbers: list[int]) -> None:
        """See that these patients came once each, and nobody else."""
        assert len(set(self.numbers)) == len(self.numbers), sorted(self.numbers)
        assert sorted(set(self.numbers) - self.past) == sorted(numbers)

    def _take(self, note: ReceivedNotification, transaction: HandlerTransaction) -> None:  # noqa: ARG002
        self.notes.append(note)

    def __enter__(self) -> Person:
        self.subscriber.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.subscriber.close()
