"""Contacts: who is in range of whom from when to when, and files of them.

The format is the connectivity report of the ONE simulator (Keränen, Ott and Kärkkäinen, 2009), one
event a line: `time CONN host host up|down`, times in seconds, hosts as numbers. The word CONN may
be missing; files that end in .xz are compressed.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

_WORD = "CONN"


class ContactEvent(NamedTuple):
    """Two hosts come into each other's range, or leave it."""

    time: int  # ms from the beginning
    first: int
    second: int
    is_up: bool


class TraceError(ValueError):
    """A line that is no contact; the text says which."""


def parse_contacts(lines: Iterable[str], name: str = "trace") -> Iterator[ContactEvent]:
    """Yield the contacts of a report; TraceError names the line that is none."""
    last = 0
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) > 1 and words[1] == _WORD:
            del words[1]
        try:
            time, first, second, state = words
            event = ContactEvent(
                round(float(time) * 1000),
                int(first),
                int(second),
                {"up": True, "down": False}[state],
            )
        except (ValueError, KeyError):
            raise TraceError(f"{name}, line {number}: no contact: {line.strip()!r}") from None
        if event.time < last:
            raise TraceError(f"{name}, line {number}: earlier than the line before")
        if event.first == event.second or min(event.first, event.second) < 0:
            raise TraceError(f"{name}, line {number}: {event.first} and {event.second}")
        last = event.time
        yield event


def read_contacts(path: Path) -> list[ContactEvent]:
    """Return the contacts of a file."""
    with _open(path) as file:
        return list(parse_contacts(file, path.name))


def write_contacts(path: Path, contacts: Iterable[ContactEvent]) -> None:
    """Write contacts as the ONE simulator does."""
    text = "".join(
        f"{event.time // 1000}.{event.time % 1000:03d} {_WORD} {event.first} {event.second}"
        f" {'up' if event.is_up else 'down'}\n"
        for event in contacts
    )
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode("ascii")))
    else:
        path.write_text(text, encoding="ascii")


def _open(path: Path) -> TextIO:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="ascii")
    return path.open(encoding="ascii")


class Parcel(NamedTuple):
    """A message of a list: `time id bytes from to minutes`, as the ONE's event generator has it."""

    time: int  # ms
    name: str
    size: int
    source: int
    target: int
    life: int  # ms


def read_messages(path: Path) -> list[Parcel]:
    """Return the messages of a file; TraceError names the line that is none."""
    parcels = []
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            try:
                time, name, size, source, target, minutes = words
                parcels.append(
                    Parcel(
                        round(float(time) * 1000),
                        name,
                        int(size),
                        int(source),
                        int(target),
                        round(float(minutes) * 60_000),
                    )
                )
            except ValueError:
                raise TraceError(f"{path.name}, line {number}: {line.strip()!r}") from None
    return parcels


def close_contacts(contacts: Iterable[ContactEvent], end: int) -> list[ContactEvent]:
    """Return contacts without those after an end, with what is up then closed at it."""
    kept = [event for event in contacts if event.time < end]
    up: dict[tuple[int, int], None] = {}
    for event in kept:
        pair = min(event.first, event.second), max(event.first, event.second)
        if event.is_up:
            up[pair] = None
        else:
            up.pop(pair, None)
    return kept + [ContactEvent(end, first, second, False) for first, second in up]
