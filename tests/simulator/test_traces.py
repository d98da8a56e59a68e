"""Contacts as files and from movement, and the oracle against a brute force of its own."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.mobility import Path as Path_
from simulator.mobility import find_contacts, find_place, plan_disaster, walk_randomly
from simulator.oracle import find_arrivals
from simulator.traces import (
    ContactEvent,
    Parcel,
    TraceError,
    close_contacts,
    parse_contacts,
    read_contacts,
    write_contacts,
)

MINUTE = 60_000
LINES = """\
0.10 CONN 19 30 up
2.5 CONN 3 4 up

7 19 30 down
"""


def test_both_ways_of_writing_a_contact_are_read() -> None:
    assert list(parse_contacts(LINES.splitlines())) == [
        (100, 19, 30, True),
        (2_500, 3, 4, True),
        (7_000, 19, 30, False),
    ]


@pytest.mark.parametrize(
    "line", ["1 2 3", "x 1 2 up", "1 2 2 up", "1 2 3 sideways", "1 -2 3 up", "1 CONN 2 up"]
)
def test_other_lines_are_named(line: str) -> None:
    with pytest.raises(TraceError, match="line 2"):
        list(parse_contacts(["0 1 2 up", line]))


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(TraceError, match="earlier"):
        list(parse_contacts(["5 1 2 up", "4 1 2 down"]))


@pytest.mark.parametrize("name", ["t.txt", "t.txt.xz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    contacts = find_contacts(walk_randomly(8, 5 * MINUTE, Random(2), 300.0), 5 * MINUTE, 60.0)
    assert contacts
    write_contacts(tmp_path / name, contacts)
    assert read_contacts(tmp_path / name) == contacts


def test_contacts_are_cut_at_an_end() -> None:
    contacts = [
        ContactEvent(1, 1, 2, True),
        ContactEvent(3, 2, 5, True),
        ContactEvent(9, 1, 2, False),
    ]
    assert close_contacts(contacts, 5) == [*contacts[:2], (5, 1, 2, False), (5, 2, 5, False)]


@pytest.mark.parametrize("plan", [plan_disaster, walk_randomly])
def test_contacts_are_those_of_places(plan: object) -> None:
    """By another reckoning: at random times, who is near is who is linked."""
    paths = plan(12, 10 * MINUTE, Random(5))  # type: ignore[operator]
    contacts = find_contacts(paths, 10 * MINUTE, 100.0)
    for time in range(0, 10 * MINUTE, 7_000):
        linked: set[tuple[int, int]] = set()
        for event in contacts:
            if event.time <= time:
                pair = (event.first, event.second)
                (linked.add if event.is_up else linked.discard)(pair)
        places = [find_place(path, time) for path in paths]
        for first in range(12):
            for second in range(first + 1, 12):
                gap = sum((a - b) ** 2 for a, b in zip(places[first], places[second], strict=True))
                if abs(gap - 100.0**2) > 1e-6:
                    assert (gap < 100.0**2) == ((first, second) in linked)


def find_pairs(paths: list[Path_], time: int, reach: float) -> set[tuple[int, int]]:
    """Compare everybody with everybody."""
    places = [find_place(path, time) for path in paths]
    return {
        (first, second)
        for first in range(len(paths))
        for second in range(first + 1, len(paths))
        if sum((a - b) ** 2 for a, b in zip(places[first], places[second], strict=True))
        <= reach * reach
    }


def test_a_large_disaster_has_sites_that_only_ambulances_join() -> None:
    paths = plan_disaster(200, 20 * MINUTE, Random(4))
    contacts = find_contacts(paths, 20 * MINUTE, 60.0, 10_000)
    linked: set[tuple[int, int]] = set()
    for time, group in groupby(contacts, key=lambda event: event.time):
        for event in group:
            pair = (event.first, event.second)
            (linked.add if event.is_up else linked.discard)(pair)
        if time < 20 * MINUTE:
            assert linked == find_pairs(paths, time, 60.0)
    assert not linked, "all contacts end with the day"
    far = {event[1:3] for event in contacts if event.first // 50 != event.second // 50}
    assert far
    for pair in far:
        assert "ambulance" in {paths[number].group for number in pair}


def test_contacts_end_with_a_day_that_is_no_whole_number_of_steps() -> None:
    paths = walk_randomly(8, 5 * MINUTE, Random(2), 100.0)
    contacts = find_contacts(paths, 5 * MINUTE + 300, 60.0)
    ups = [event.is_up for event in contacts]
    assert ups.count(True) == ups.count(False) > 0
    assert contacts[-1].time == 5 * MINUTE + 300


def test_everybody_has_a_role_in_a_disaster() -> None:
    groups = [path.group for path in plan_disaster(50, MINUTE, Random(1))]
    assert len(groups) == 50
    assert {"rescuer", "bearer", "ambulance", "commander"} <= set(groups)


def find_by_force(contacts: list[ContactEvent], parcel: Parcel, end: int) -> int | None:
    """Flood one message, millisecond by millisecond."""
    there = set()
    links: set[frozenset[int]] = set()
    for time in range(end + 1):
        for event in contacts:
            if event.time == time:
                pair = frozenset((event.first, event.second))
                (links.add if event.is_up else links.discard)(pair)
        if time == parcel.time:
            there.add(parcel.source)
        if parcel.time <= time <= parcel.time + parcel.life:
            for _ in range(5):
                for link in links:
                    if link & there:
                        there |= link
        if parcel.target in there:
            return time - parcel.time
    return None


contact = st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(0, 4), st.booleans())


@example([(0, 1, 2, True), (0, 2, 4, True), (1, 0, 1, True), (1, 1, 2, False)], 0, 5)
@settings(max_examples=150, deadline=None)
@given(st.lists(contact, max_size=14), st.integers(0, 30), st.integers(5, 40))
def test_the_oracle_is_what_flooding_finds(
    raw: list[tuple[int, int, int, bool]], time: int, life: int
) -> None:
    # Of one pair one event at a time: up and down at once is no contact, or one, as one likes.
    events = {(each[0], frozenset(each[1:3])): each for each in raw if each[1] != each[2]}
    contacts = sorted(ContactEvent(*each) for each in events.values())
    parcel = Parcel(time, "m", 1, 0, 4, life)
    found = find_arrivals(contacts, [parcel], 40).get("m")
    assert found == find_by_force(contacts, parcel, 40)
