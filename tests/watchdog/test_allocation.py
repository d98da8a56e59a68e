"""The sampling path allocates nothing: proved with the heap locked, on MicroPython."""

import gc
import sys
import unittest

from denwatch.protocol.subscription import encode
from denwatch.protocol.timecode import encode_duration
from denwatch.protocol.vectors import Predicate, Significance, SubscriptionVector
from denwatch.watchdog.execution import Event, Execution, list_senses
from denwatch.watchdog.fuzzy import Fuzzy
from denwatch.watchdog.manager import Manager
from denwatch.watchdog.sources import Channel
from denwatch.watchdog.sources.i2c import I2cRegisters
from denwatch.watchdog.sources.pins import Adc, Gpio
from denwatch.watchdog.supervisor import TaskGuard

from tests.protocol.samples import Dice

if sys.implementation.name != "micropython":
    raise unittest.SkipTest("CPython has no heap to lock")

import micropython


class Hardware:
    """The calls of machine.ADC, machine.Pin and machine.I2C that the sources make."""

    def __init__(self):
        self.state = 1

    def read_u16(self):
        self.state = self.state * 75 % 65537
        return self.state - 1

    def value(self):
        return self.state & 1

    def readfrom_mem_into(self, address, register, data):  # noqa: ARG002
        for i in range(len(data)):
            data[i] = self.state >> i & 255


class Outbox:
    def put(self, vector, degree, now):  # noqa: ARG002 - the interface
        raise AssertionError("nothing should match")


def build():
    """Return an execution environment whose subscriptions never hit, and its guard."""
    hardware = Hardware()
    channels = [
        Channel(Adc(hardware), 0, 0, 0, 65535),
        Channel(Gpio(hardware), 0, 1, 0, 1),
        Channel(I2cRegisters(hardware, 9, [(0, 2, False, True, 4)]), 0, 2, 0, 4096),
    ]
    event = Event(1, channels, 1000)
    senses = list_senses([event])
    manager = Manager([Fuzzy(3000, senses)], senses)
    dice = Dice(81)
    quiet = Significance(hysteresis=9, hits=2, window=3, quiet=encode_duration(5))
    for handle in range(60):
        predicates = [Predicate(a, 250, 255, dice.below(255)) for a in range(3)]
        # Six aggregators, hedges and negations never reach 255 at the top of attribute 1.
        predicates[1] = Predicate(1, 128, 128, hedge=handle % 4)
        pattern = b"\0\1\2\x43" if handle % 5 == 1 else b""
        s = SubscriptionVector(1, predicates, 0, 255, pattern=pattern, handle=handle, validity=80)
        if handle % 7 == 0:
            s.significance = quiet
        if not pattern and handle % 3 == 0:
            s.aggregator = (2, 3, 4, 5)[handle % 4]
        if handle % 11 == 3:
            s.restrictors = b"\x08\0\x08"
        manager.install(encode(s), 0)
    return Execution(manager, [event], Outbox()), TaskGuard(lambda: None, gc.mem_free)


def count_bytes(run):
    """Return the bytes that a call allocates."""
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    run()
    after = gc.mem_alloc()
    gc.enable()
    return after - before


class AllocationTest(unittest.TestCase):
    def setUp(self):
        self.execution, self.guard = build()
        self.task = self.guard.add_task("sampling", 10_000, 0)
        self.now = 0

    def run_rounds(self):
        for _ in range(20):
            self.now += 1000
            self.execution.step(self.now)
            self.guard.note_progress(self.task, self.now)
            self.guard.check(self.now)

    @unittest.skipUnless(hasattr(micropython, "heap_lock"), "this MicroPython cannot lock its heap")
    def test_rounds_run_with_the_heap_locked(self):
        self.run_rounds()
        micropython.heap_lock()
        try:
            self.run_rounds()
        finally:
            micropython.heap_unlock()
        self.assertEqual(self.execution.rounds, 40)

    def test_rounds_allocate_no_byte(self):
        self.run_rounds()
        nothing = count_bytes(lambda: None)
        self.assertEqual(count_bytes(self.run_rounds) - nothing, 0)

    def test_the_measure_would_notice_a_float(self):
        """Ablation: one float a round shows."""
        self.execution.outbox = None
        noticed = count_bytes(lambda: [1.5 * self.now for _ in range(20)])
        self.assertGreater(noticed, 0)
