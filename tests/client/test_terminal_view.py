"""The terminal view: the value that was asked for goes first, nothing is cut off."""

from __future__ import annotations

import json

from denwatch.cli import subscribe
from denwatch.client.console.feed import Reason, summarise
from denwatch.client.subscriber import ConnectionState, ConnectionStatus
from denwatch.client.subscriber.display import describe_notification, list_asked
from denwatch.client.subscriber.messages import ReceivedNotification, read_notification
from rich.console import Console

VALUES = {
    name: {"value": 1.5, "unit": "unit"}
    for name in ("patient_temperature", "heart_rate", "respiration_rate", "oxygen_saturation")
}


def make_notification(certain: float = 0.9, possible: float = 0.9) -> ReceivedNotification:
    """Return a notification with four values."""
    body = {"id": "1", "event": "patient", "values": VALUES, "degree": possible, "device": "bed-1"}
    found = read_notification(json.dumps({**body, "certain": certain}).encode())
    assert found is not None
    return found


def test_what_was_asked_for_goes_first() -> None:
    asked = list_asked(["oxygen_saturation is low and patient.heart_rate above 120", "not words"])
    assert asked == ["oxygen_saturation", "heart_rate"]
    row = describe_notification(make_notification(), 0, asked)
    assert row.values.startswith("oxygen_saturation 1.5 unit, heart_rate 1.5 unit, patient_")


def test_the_table_begins_with_the_value_and_wraps() -> None:
    status = ConnectionStatus(ConnectionState.ONLINE, "north")
    table = subscribe._build_table([make_notification()], 0, 5, status, 1, ["heart_rate"])
    console = Console(width=70)
    with console.capture() as captured:
        console.print(table)
    shown = captured.get()
    assert "\u2026" not in shown
    assert shown.index("values") < shown.index("event")
    rows = [line.split("\u2502") for line in shown.splitlines() if "\u2502" in line]
    words = "".join(row[2].strip() for row in rows)
    assert words.startswith("heart_rate")
    assert all(name in words for name in VALUES)


def test_what_is_certain_is_not_said_to_be_in_doubt() -> None:
    reason = Reason("heart rate is high", "110 to 130 bpm", 0.72, 1.0)
    for certain in (0.72, 0.2):
        notification = make_notification(certain, 1.0)
        said = summarise(notification, [reason])
        assert ("in doubt" in said) is not notification.is_certain
