"""The steady clock: never falls, never jumps, tells when the wall clock was set."""

from __future__ import annotations

from denwatch.node.core.items import EARLIEST
from denwatch.node.runtime.process import SteadyClock


class Machine:
    """A machine whose clocks a test moves, in seconds."""

    def __init__(self, wall: float) -> None:
        self.wall_time = wall
        self.uptime = 50.0

    def wall(self) -> float:
        return self.wall_time

    def monotonic(self) -> float:
        return self.uptime

    def pass_time(self, seconds: float) -> None:
        self.wall_time += seconds
        self.uptime += seconds


def make(lead: int = 0) -> tuple[SteadyClock, Machine]:
    machine = Machine(1_700_000_000.0)
    return SteadyClock(lead, machine.wall, machine.monotonic), machine


def test_it_starts_at_the_wall_clock_and_goes_on() -> None:
    clock, machine = make()
    assert clock.read() == 1_700_000_000_000
    machine.pass_time(2.5)
    assert clock.read() == 1_700_000_002_500
    assert clock.find_jump() == 0


def test_a_wall_clock_that_is_set_moves_nothing_and_is_told_once() -> None:
    clock, machine = make()
    for jump in (86_400.0 * 365, -60.0, 3.0):
        before = clock.read()
        machine.wall_time += jump
        assert clock.read() == before
        assert clock.find_jump() == int(jump * 1000)
        assert clock.find_jump() == 0


def test_drift_is_not_a_jump() -> None:
    clock, machine = make()
    machine.wall_time += 1.5
    assert clock.find_jump() == 0


def test_a_machine_that_woke_up_in_the_past_leads_its_clock() -> None:
    clock, machine = make(lead=7_000)
    assert clock.read() == 1_700_000_007_000
    assert clock.find_jump() == 0
    machine.wall_time += 10.0  # somebody sets it right
    assert clock.find_jump() == 10_000
    assert clock.read() == 1_700_000_007_000


def test_a_wall_clock_that_cannot_be_right_is_not_used() -> None:
    clock, machine = make()
    for seconds in (4_400_000_000.0, 100.0, 4_102_444_800.0):  # 2109, 1970, 2100
        machine.wall_time = seconds
        assert clock.find_jump() == 0
        assert clock.read() == 1_700_000_000_000
    machine.wall_time = 1_700_000_060.0
    assert clock.find_jump() == 60_000
    lost = SteadyClock(0, lambda: 4_400_000_000.0, lambda: 0.0)
    assert lost.read() == EARLIEST
