"""Clocks: wrong by minutes to years, set, falling at a restart; expiry is late, never early."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Message, PeerUp, Tick
from denwatch.node.core.items import NOTIFICATION, SUBSCRIPTION, Dot
from denwatch.node.replication.clock import TRUSTED_GAP, UNKNOWN, Clocks, Save
from hypothesis import given
from hypothesis import strategies as st

from simulator.memory_store import MemoryStore
from tests.replication.network import START, Network

MINUTE = 60_000
YEAR = 365 * 24 * 60 * MINUTE


def _save_to(disk: MemoryStore) -> Save:
    def save(space: str, key: bytes, value: bytes | None) -> None:
        disk.apply([(space, key, value or b"")])

    return save


@given(
    offset=st.integers(-10 * YEAR, 10 * YEAR),
    there=st.integers(0, 20_000),
    back=st.integers(0, 20_000),
)
def test_two_frames_hold_the_true_offset_between_them(offset: int, there: int, back: int) -> None:
    """b's clock is `offset` behind a's; frames take their time both ways."""
    a, b = Clocks("a", 1), Clocks("b", 1)
    real = 20 * YEAR
    lag_of_a = b.measure("a", real, real + there - offset)
    a.measure("b", real + there - offset, real + there + back, lag_of_a)
    a.witness(_save_to(MemoryStore("a")), "b", b.tell([("b", 1)], real), real + there + back)
    event = Dot("b", 1, 1)
    true = real + 5_000
    said = true - offset
    assert a.localise(event, said) >= true
    assert abs(a.estimate(event, said) - true) <= there + back + 5
    assert a.localise(event, said) - true <= there + back + 5


@given(st.lists(st.integers(-5 * YEAR, 5 * YEAR), min_size=3, max_size=3))
def test_offsets_add_up_along_a_path(offsets: list[int]) -> None:
    """c learns of a's clock through b, without ever meeting a."""
    real = 20 * YEAR
    clocks = [Clocks(name, 1) for name in "abc"]
    now = [real + offset for offset in offsets]
    for here, there in ((1, 0), (2, 1)):
        name = "abc"[there]
        lag = clocks[there].measure("abc"[here], now[here], now[there])
        clocks[here].measure(name, now[there], now[here], lag)
        table = clocks[there].tell([("a", 1)], now[there])
        clocks[here].witness(_save_to(MemoryStore("a")), name, table, now[here])
    assert abs(clocks[2].estimate(Dot("a", 1, 1), now[0]) - now[2]) <= 10
    assert clocks[2].doubt("a", 1, now[2]) <= 10


def test_a_clock_of_which_nothing_is_known_is_late_by_a_day() -> None:
    clocks = Clocks("a", 1)
    assert clocks.localise(Dot("x", 1, 1), 1_000) == 1_000 + UNKNOWN
    assert clocks.localise(Dot("a", 1, 1), 1_000) == 1_000


@pytest.mark.parametrize("jump", [-3 * YEAR, 1, 5 * MINUTE, 3 * YEAR])
def test_a_clock_that_is_set_ends_nothing_early_or_late(jump: int) -> None:
    """An item of our own with an hour to live has an hour to live after the clock was set."""
    network = Network("a")
    host = network.hosts["a"]
    item, _ = host.subscribe(network.now, "medic", life=60 * MINUTE)
    network.set_clock("a", jump)
    assert host.clocks.show(item.dot, network.now) == network.now + jump
    assert host.logs[-1].fields == {"offset": jump, "source": "machine"}
    for minutes, is_held in ((0, True), (59, True), (62, False)):
        host.handle(Tick(), network.now + minutes * MINUTE)
        assert (item.dot in host.list_dots(SUBSCRIPTION)) == is_held


@pytest.mark.parametrize("wrong", [-YEAR, -20 * MINUTE, 20 * MINUTE, YEAR])
def test_a_wrong_clock_does_not_end_what_others_made(wrong: int) -> None:
    """b's clock is off; what a made lives as long at b as at a, and is gone soon after."""
    network = Network("ab")
    a, b = network.hosts.values()
    now = network.now
    a.notify(now, 1, life=60 * MINUTE)
    queue = [("a", publish) for publish in a.handle(PeerUp("b"), now)]
    queue += [("b", publish) for publish in b.handle(PeerUp("a"), now + wrong)]
    while queue:
        sender, publish = queue.pop(0)
        other, name = (b, "b") if sender == "a" else (a, "a")
        time = now + wrong if name == "b" else now
        event = Message(sender, publish.topic, publish.payload)
        queue += [(name, each) for each in other.handle(event, time)]
    for minutes, is_held in ((1, True), (59, True), (62, False)):
        b.handle(Tick(), now + wrong + minutes * MINUTE)
        assert bool(b.list_dots(NOTIFICATION)) == is_held


def test_time_never_falls_over_a_restart() -> None:
    disk = MemoryStore("a")
    before = Clocks("a", 1)
    before.save(_save_to(disk), START)
    stamp = before.stamp(START)
    after = Clocks("a", 2)
    lead = after.restore(disk, 1_000)  # a machine without a clock of its own begins in 1970
    assert 1_000 + lead > START
    assert after.wall == -lead
    assert after.stamp(1_000 + lead) > stamp


_RUNS = st.tuples(
    st.integers(0, 60 * YEAR),  # what the machine's clock shows at the start
    st.lists(
        st.tuples(
            st.integers(0, 30 * MINUTE),  # until the next turn
            st.integers(-20 * YEAR, 20 * YEAR) | st.just(0),  # by how much the clock is set then
        ),
        min_size=1,
        max_size=8,
    ),
)


@given(st.lists(_RUNS, min_size=1, max_size=5))
def test_whatever_the_machine_shows_time_rises_and_people_see_its_clock(
    runs: list[tuple[int, list[tuple[int, int]]]],
) -> None:
    disk, latest, shown = MemoryStore("a"), -1, -1
    for epoch, (wall, turns) in enumerate(runs, 1):
        clocks = Clocks("a", epoch)
        now = wall + clocks.restore(disk, wall)
        if not shown - 10_000 < wall < shown:  # it fell by less than is written down
            assert now >= latest
        assert now > latest - 10_000
        for elapsed, jump in turns:
            now, wall = now + elapsed, wall + elapsed + jump
            clocks.save(_save_to(disk), now)
            if jump:
                clocks.correct(_save_to(disk), jump, now)
            latest, shown = now, wall
            assert clocks.date(now) == wall


def test_a_lead_stays_and_makes_no_doubt_while_the_machine_is_right() -> None:
    """A clock was ten years ahead when the node first ran, and set right since."""
    disk = MemoryStore("a")
    first = Clocks("a", 1)
    first.restore(disk, START + 10 * YEAR)
    first.correct(_save_to(disk), -10 * YEAR, START + 10 * YEAR)
    second = Clocks("a", 2)
    assert second.restore(disk, START + MINUTE) == 10 * YEAR
    own = Dot("a", 1, 1)
    assert second.localise(own, START) == START
    assert second.doubt("a", 1, START + 10 * YEAR) == 0
    assert second.show(own, START + 10 * YEAR) == START


def test_a_node_that_woke_in_the_past_twice_is_still_believed() -> None:
    """What it made in its first run is neither over nor from nowhere at a node that is right."""
    disk = MemoryStore("a")
    for epoch in (1, 2, 3):
        lost = Clocks("a", epoch)
        now = 5_000 + lost.restore(disk, 5_000)
        lost.save(_save_to(disk), now)
    right = Clocks("b", 1)
    lag = lost.measure("b", START, now)
    right.measure("a", now, START, lag)
    right.witness(_save_to(MemoryStore("a")), "a", lost.tell([("a", 1), ("a", 3)], now), START)
    assert right.localise(Dot("a", 1, 1), 5_000 + MINUTE) >= START + MINUTE - (now - 5_000)
    assert abs(right.localise(Dot("a", 3, 1), now + MINUTE) - START - MINUTE) < 10


def test_what_was_measured_just_before_a_crash_is_in_doubt_after_it() -> None:
    disk = MemoryStore("a")
    before = Clocks("a", 1)
    before.restore(disk, START)
    before.save(_save_to(disk), START)
    now = START + 9_000  # later than what was saved
    before.measure("b", now, now, 0)
    before.witness(_save_to(disk), "b", [(("b", 1), 0, 5)], now)
    assert before.doubt("b", 1, now) <= 10
    after = Clocks("a", 2)
    now = 1_000 + after.restore(disk, 1_000)  # nobody knows how long it was off
    assert after.doubt("b", 1, now) > YEAR
    assert after.localise(Dot("b", 1, 1), START) >= START
    shown = after.show(Dot("b", 1, 1), START)  # as well as it is known
    assert abs(shown - START - after.wall) <= 5


def test_a_leap_over_a_restart_ends_nothing_before_somebody_confirms_it() -> None:
    disk = MemoryStore("a")
    before = Clocks("a", 1)
    before.save(_save_to(disk), START)
    after = Clocks("a", 2)
    leap = START + 3 * YEAR
    assert after.restore(disk, leap) == 0
    assert after.localise(Dot("a", 1, 1), START + MINUTE) >= leap + MINUTE
    soon = Clocks("a", 2)
    soon.restore(disk, START + TRUSTED_GAP)
    assert soon.localise(Dot("a", 1, 1), START + MINUTE) < START + TRUSTED_GAP


def test_statements_that_cannot_both_hold_make_things_live_longer() -> None:
    clocks = Clocks("a", 1)
    save = _save_to(MemoryStore("a"))
    clocks.measure("b", START, START, 0)
    clocks.witness(save, "b", [(("x", 1), 0, 10)], START)
    honest = clocks.localise(Dot("x", 1, 1), START)
    clocks.witness(save, "b", [(("x", 1), -YEAR, 10)], START)
    assert clocks.localise(Dot("x", 1, 1), START) >= honest
    clocks.witness(save, "b", [(("x", 1), YEAR, 10)], START)
    assert clocks.localise(Dot("x", 1, 1), START) >= honest


def test_stamps_rise() -> None:
    clocks = Clocks("a", 1)
    first, second = clocks.stamp(START), clocks.stamp(START)
    assert first < second < clocks.stamp(START + 1)
