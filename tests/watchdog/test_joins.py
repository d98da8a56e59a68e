"""Attributes read at different times join on the device, and the node finds what the device found.

The oracle keeps the whole history and looks it up: for each attribute the last reading, and how
many seconds ago it was.
"""

import unittest

from denwatch.protocol.matching import match
from denwatch.protocol.notification import decode
from denwatch.protocol.subscription import encode
from denwatch.protocol.timecode import decode_duration, encode_duration
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from denwatch.watchdog.execution import Event, Execution, list_senses
from denwatch.watchdog.fuzzy import Fuzzy
from denwatch.watchdog.manager import Manager
from denwatch.watchdog.sources import Callback, Channel, NotReadyError

from tests.protocol.samples import Dice

ATTRIBUTES = 4


class Slow(Callback):
    """A sensor that has a new value only sometimes; None: it is broken."""

    def __init__(self):
        Callback.__init__(self, lambda _: self.value)
        self.value = 0
        self.is_new = True

    def measure(self, now):  # noqa: ARG002 - as a source has it
        if not self.is_new:
            raise NotReadyError


class Outbox:
    def __init__(self):
        self.items = []

    def put(self, vector, degree, now):
        self.items.append((decode(vector), degree, now))


class Bench:
    """A device with a sensor for each attribute; the last one has an accuracy."""

    def __init__(self, capacity=600):
        self.sources = [Slow() for _ in range(ATTRIBUTES)]
        last = ATTRIBUTES - 1
        channels = [
            Channel(source, 0, i, 0, 255, typical=2 * (i == last), worst=6 * (i == last))
            for i, source in enumerate(self.sources)
        ]
        self.event = Event(1, channels, 1000)
        self.outbox = Outbox()
        senses = list_senses([self.event])
        self.language = Fuzzy(capacity, senses)
        self.manager = Manager([self.language], senses)
        self.execution = Execution(self.manager, [self.event], self.outbox)

    def install(self, s):
        self.manager.install(encode(s), 0)

    def step(self, second, values):
        """Run a round in which these attributes have a new value; return what was sent."""
        for i, source in enumerate(self.sources):
            source.is_new = i in values
            source.value = values.get(i, 0)
        del self.outbox.items[:]
        self.execution.step(1000 * second)
        return self.outbox.items[0][0] if self.outbox.items else None


def make_reading(attribute, value, age=0):
    if attribute < ATTRIBUTES - 1:
        return Reading(attribute, (value,) * 4, age=age)
    points = [max(0, min(255, value + d)) for d in (-6, -2, 2, 6)]
    return Reading(attribute, tuple(points), age=age)


def expect(s, history, second):
    """Return whether a subscription wants this second's sample, by looking at all readings."""
    readings = []
    for attribute in range(ATTRIBUTES):
        known = [(at, values[attribute]) for at, values in history if attribute in values]
        if known:
            at, value = known[-1]
            readings.append(make_reading(attribute, value, encode_duration(second - at)))
    if not readings or all(reading.age for reading in readings):
        return False
    found = match(s, NotificationVector(1, readings))
    return found is not None and found.matched


def draw(dice, handle):
    attributes = [a for a in range(ATTRIBUTES) if dice.chance(2)] or [dice.below(ATTRIBUTES)]
    predicates = []
    for a in attributes:
        low = dice.below(200)
        predicates.append(Predicate(a, low, low + 55, 100, negated=dice.chance(4)))
    codes = [0 if dice.chance(3) else encode_duration(1 + dice.below(20)) for _ in attributes]
    return SubscriptionVector(
        1,
        predicates,
        handle=handle,
        restrictors=bytes(codes) if any(codes) else b"",
        why=dice.chance(5),
    )


class JoinsTest(unittest.TestCase):
    def test_temperature_now_and_pulse_a_moment_ago(self):
        bench = Bench()
        s = SubscriptionVector(
            1, [Predicate(0, 100, 255), Predicate(1, 0, 50)], restrictors=b"\0\x08"
        )
        self.assertEqual(decode_duration(8), 8)
        bench.install(s)
        self.assertIsNone(bench.step(0, {1: 40, 2: 9}))
        self.assertIsNone(bench.step(3, {0: 20}))
        sent = bench.step(5, {0: 120, 2: 7})
        right = [Reading(0, (120,) * 4), Reading(1, (40,) * 4, age=5)]
        self.assertEqual(sent.readings, right)  # nobody names attribute 2
        self.assertTrue(match(s, sent).matched)
        self.assertIsNotNone(bench.step(8, {0: 120}))
        self.assertIsNone(bench.step(9, {0: 120}))  # the pulse is too old now
        self.assertIsNone(bench.step(10, {1: 40}))  # the temperature must be of now
        self.assertIsNotNone(bench.step(11, {0: 120, 1: 30}))
        bench.manager.remove([0])
        self.assertIsNone(bench.step(12, {0: 120, 1: 30}))

    def test_broken_sensor_has_no_last_reading(self):
        bench = Bench()
        both = SubscriptionVector(
            1, [Predicate(0, 100, 255), Predicate(1, 0, 50)], restrictors=b"\x08\x08"
        )
        bench.install(both)
        bench.step(0, {1: 40})
        self.assertIsNotNone(bench.step(1, {0: 120}))
        sent = bench.step(2, {0: 120, 1: 999})  # a number that no working sensor gives
        self.assertEqual((sent.faults, sent.olds), (2, 0))
        self.assertIsNone(bench.step(3, {0: 120}).readings[0].age or None)  # it is back: told
        self.assertIsNone(bench.step(4, {0: 120}))  # but has not been read since

    def test_against_all_of_history(self):
        dice = Dice(77)
        joined = sent = 0
        for _ in range(60):
            bench = Bench()
            subscriptions = [draw(dice, 1 + i) for i in range(1 + dice.below(5))]
            for s in subscriptions:
                bench.install(s)
            history = []
            second = 0
            for _ in range(25):
                second += 1 + dice.below(4)
                values = {a: dice.below(256) for a in range(ATTRIBUTES) if dice.chance(2)}
                history.append((second, values))
                wanted = [expect(s, history, second) for s in subscriptions]
                notification = bench.step(second, values)
                self.assertEqual(notification is not None, any(wanted), (subscriptions, history))
                if notification is None:
                    continue
                sent += 1
                joined += notification.olds > 0
                for s, right in zip(subscriptions, wanted):  # a node decides alike
                    found = match(s, notification)
                    self.assertEqual(found is not None and found.matched, right, (s, history))
        self.assertGreater(joined, 30)
        self.assertGreater(sent, joined)

    def test_replaced_vectors_count_no_longer(self):
        bench = Bench()
        predicates = [Predicate(0, 100, 255), Predicate(1, 0, 50)]
        bench.install(SubscriptionVector(1, predicates, handle=7, restrictors=b"\0\x08"))
        bench.step(0, {1: 40})
        self.assertIsNotNone(bench.step(1, {0: 120}))
        bench.install(SubscriptionVector(1, predicates, handle=7))
        self.assertIsNone(bench.step(2, {0: 120}))
        self.assertEqual(bench.step(3, {0: 120, 1: 40, 2: 9}).features, 3)
