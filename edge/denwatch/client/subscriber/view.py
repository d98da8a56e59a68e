"""Notes as people read them: ranked, values with units, ages. No I/O; `now` is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from denwatch.client.subscriber.messages import Note

_STEPS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


class Row(NamedTuple):
    """One note, as texts."""

    sure: str  # "certain" or "possible"
    degree: str
    event: str
    values: str
    why: str
    age: str
    left: str
    subscription: str
    limit: str  # the attribute that limits the degree


class Board:
    """The notes that still count, best first; bounded. One thread adds, others may look."""

    def __init__(self, limit: int = 1_000) -> None:
        self._notes: dict[str, Note] = {}
        self._limit = limit

    def add(self, notes: Iterable[Note], now: int) -> None:
        """Take notes; the least worth beyond the limit are let go."""
        for note in notes:
            self._notes[note.key] = note
        if len(self._notes) > self._limit:
            self._notes = {note.key: note for note in self.rank(now)[: self._limit]}

    def rank(self, now: int) -> list[Note]:
        """Return what has not expired: by score, then degree, then sureness, then freshness."""
        kept = [note for note in list(self._notes.values()) if not note.is_expired(now)]
        return sorted(kept, key=_weigh)


def _weigh(note: Note) -> tuple[float, float, float, int, str]:
    return -note.score, -note.degree, -note.certain, -(note.at or 0), note.key


def describe_note(note: Note, now: int) -> Row:
    """Return a note as texts."""
    device = note.fields.get("device")
    return Row(
        "certain" if note.is_certain else "possible",
        describe_degree(note),
        f"{note.event} {device}" if device else note.event,
        ", ".join(f"{name} {describe_value(value)}" for name, value in note.values.items()),
        describe_why(note.why),
        describe_age(note.at, now),
        describe_rest(note.expires, now),
        ", ".join(note.subscriptions),
        str(note.why.get("attribute", "")) if isinstance(note.why, Mapping) else "",
    )


def describe_degree(note: Note) -> str:
    """Return how well it fits: one number, or from certain to possible where there is doubt."""
    if note.certain >= note.possible:
        return f"{note.degree:.2f}"
    return f"{note.certain:.2f}..{note.possible:.2f}"


def describe_value(value: object) -> str:
    """Return a value with its unit, and what it may be where it is in doubt."""
    if not isinstance(value, Mapping):
        return str(value)
    unit = f" {value['unit']}" if value.get("unit") else ""
    if "low" in value and "high" in value:
        return f"{value['low']}..{value['high']}{unit}"
    if isinstance(value.get("among"), list):
        return " or ".join(map(str, value["among"]))
    return f"{value.get('value', value.get('code'))}{unit}"


def describe_why(why: Any) -> str:
    """Return what limits the degree."""
    if isinstance(why, Mapping):
        if why.get("words"):
            return str(why["words"])
        return " ".join(str(why[key]) for key in ("attribute", "degree") if key in why)
    return "" if why is None else str(why)


def describe_age(at: int | None, now: int) -> str:
    """Return how long ago something was; a clock that is ahead makes it "now"."""
    return "" if at is None else describe_span(max(0, now - at))


def describe_rest(expires: int | None, now: int) -> str:
    """Return how long something still counts."""
    return "" if expires is None else describe_span(max(0, expires - now))


def describe_span(ms: int) -> str:
    """Return a span in its two largest units: "2 h 5 min", "41 s"."""
    parts: list[str] = []
    for length, unit in _STEPS:
        count, ms = divmod(ms, length)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part[0] != "0") or "0 s"
