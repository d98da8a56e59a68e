"""Running `denwatch` inside a test: what it returns, prints and complains about."""

from __future__ import annotations

import io
import sys

import pytest
from denwatch.cli import main

FEVER = "patient_temperature is very high and heart_rate is not normal"
VECTOR = "4128000080000003041091ffab3c64bb"
EVERYTHING = (
    "(patient_temperature is very high possible 0.6 or T° is about 36 within 1 °C or "
    "pain is severe) and heart_rate is not normal and east between 100 and 2000 m and "
    "not (triage is red or age is old) and glucose is triangle(3, 4, 9), by product, "
    "at least 0.3, certain 0.2, why, recent, dead band 0.5 °C of T°, relative band 0.1, "
    "hysteresis 0.1, 3 of 5, heartbeat 10 min, valid for 2 days"
)

Capture = pytest.CaptureFixture[str]


def run(capfd: Capture, *arguments: str) -> tuple[int, str, str]:
    """Return the exit status, what was printed, and the complaints."""
    try:
        status = main(arguments)
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    printed = capfd.readouterr()
    return status, printed.out, printed.err


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Put bytes into standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
