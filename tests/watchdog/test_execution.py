"""The execution environment: rounds, events, notifications, faults, and an outbox of our own."""

import unittest

from denwatch.protocol.notification import decode
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from denwatch.watchdog.execution import FAULT_PERIOD, Event, Execution, list_senses
from denwatch.watchdog.fuzzy import Fuzzy
from denwatch.watchdog.manager import Manager
from denwatch.watchdog.sources import Callback, Channel, NotReadyError


class Outbox:
    def __init__(self):
        self.items = []

    def put(self, vector, degree, now):
        self.items.append((decode(vector), degree, now))


class Body:
    """A patient: field 0 temperature in tenths, field 1 pulse. None: the sensor is gone."""

    def __init__(self):
        self.numbers = [366, 70]
        self.asked = 0

    def ask(self, field):
        self.asked += 1
        number = self.numbers[field]
        if number is None:
            raise OSError(19)
        if number == "later":
            raise NotReadyError
        return number


class ExecutionTest(unittest.TestCase):
    def setUp(self):
        self.body = Body()
        source = Callback(self.body.ask)
        self.event = Event(
            1,
            [
                Channel(source, 0, 0, 300, 429, lowest=250, highest=450),
                Channel(source, 1, 3, 0, 255),
            ],
            1000,
        )
        self.outbox = Outbox()
        senses = list_senses([self.event])
        self.assertEqual(senses, {1: (0b1001, 0)})
        self.manager = Manager([Fuzzy(300, senses)], senses)
        self.execution = Execution(self.manager, [self.event], self.outbox)

    def subscribe(self, low, **fields):
        predicates = [Predicate(0, low, 255)]
        self.manager.install(encode(SubscriptionVector(1, predicates, **fields)), 0)

    def test_only_what_is_asked_for_is_sent(self):
        self.subscribe(150)
        for now, number in ((0, 366), (1000, 380), (2000, 366), (3000, 400)):
            self.body.numbers[0] = number
            self.execution.step(now)
        self.assertEqual([now for _, _, now in self.outbox.items], [1000, 3000])
        note = self.outbox.items[0][0]
        # Nobody names attribute 3, so it stays here.
        self.assertEqual((note.event, note.features, note.faults), (1, 0b0001, 0))
        self.assertEqual([r.points[0] for r in note.readings], [158])
        self.assertEqual((self.execution.rounds, self.execution.sent), (4, 2))

    def test_rounds_come_when_they_are_due(self):
        for now in (0, 1, 999, 1000, 1500, 2100, 3099, 3100):
            self.execution.step(now)
        self.assertEqual(self.execution.rounds, 4)
        self.assertEqual(self.execution.find_next(), 4000)
        self.execution.step(90_500)  # after a long pause: one round, not eighty
        self.assertEqual((self.execution.rounds, self.execution.find_next()), (5, 91_500))

    def test_broken_sensor_is_told_once_then_now_and_then_and_when_it_is_back(self):
        self.body.numbers[0] = None
        for now in range(0, FAULT_PERIOD + 1000, 1000):
            self.execution.step(now)
        self.assertEqual([now for _, _, now in self.outbox.items], [0, FAULT_PERIOD])
        note, degree, _ = self.outbox.items[0]
        self.assertEqual((note.faults, note.features, degree), (1, 0b1000, 255))
        self.body.numbers[0] = 366
        self.execution.step(FAULT_PERIOD + 1000)
        note = self.outbox.items[2][0]
        self.assertEqual((note.faults, note.features), (0, 0b1001))
        self.execution.step(FAULT_PERIOD + 2000)
        self.assertEqual(len(self.outbox.items), 3)

    def test_nonsense_is_a_fault_and_never_a_value(self):
        self.subscribe(0)
        for number in (-1270, 850, 249, 451):
            self.body.numbers[0] = number
            self.execution.step(self.event.due)
        self.assertEqual([n.faults for n, _, _ in self.outbox.items], [1])
        self.body.numbers = [None, None]
        self.execution.step(self.event.due)
        self.assertEqual((self.outbox.items[1][0].faults, self.outbox.items[1][0].features), (9, 0))

    def test_the_rest_of_an_event_goes_on_without_the_broken_sensor(self):
        predicates = [Predicate(3, 100, 255)]
        self.manager.install(encode(SubscriptionVector(1, predicates)), 0)
        self.body.numbers = [None, 60]
        self.execution.step(0)
        self.body.numbers = [None, 120]
        self.execution.step(1000)
        self.assertEqual([now for _, _, now in self.outbox.items], [0, 1000])

    def test_source_that_has_nothing_new_sends_nothing(self):
        self.subscribe(0)
        self.event.sources[0].measure = lambda now: self.body.ask(0)  # noqa: ARG005
        self.body.numbers = ["later", 9]
        self.execution.step(0)
        self.assertEqual(self.outbox.items, [])

    def test_subscriptions_expire_in_rounds(self):
        self.subscribe(0, validity=8)  # 8 s
        for now in range(0, 12_000, 1000):
            self.execution.step(now)
        self.assertEqual(len(self.outbox.items), 8)

    def test_accuracy_of_the_sensor_becomes_doubt(self):
        source = Callback(self.body.ask)
        channel = Channel(source, 0, 0, 300, 429, lowest=250, highest=450, typical=2, worst=5)
        execution = Execution(self.manager, [Event(1, [channel], 1000)], self.outbox)
        self.subscribe(150)
        self.body.numbers[0] = 375  # 148: perhaps 150 and more
        execution.step(0)
        note = self.outbox.items[0][0]
        self.assertFalse(note.readings[0].exact)
        self.assertEqual(note.readings[0].points, (138, 144, 152, 158))
        self.subscribe(150, certain=200)
        self.manager.remove([0])
        execution.step(1000)
        self.assertEqual(len(self.outbox.items), 1)

    def test_normalising_is_the_vocabularys(self):
        """floor(position + 1/2), as the compiler of subscriptions does it."""
        for wide in (False, True):
            channel = Channel(Callback(None), 0, 0, -400, 850, wide)
            last = 65535 if wide else 255
            for number in range(-450, 900, 7):
                exact = (min(850, max(-400, number)) + 400) * last
                right = (2 * exact + 1250) // 2500
                self.assertEqual(channel.normalise(number), right)

    def test_impossible_channels_are_refused(self):
        source = Callback(None)
        self.assertRaises(ValueError, Channel, source, 0, 16, 0, 1)
        self.assertRaises(ValueError, Channel, source, 0, 0, 5, 5)
        self.assertRaises(ValueError, Channel, source, 0, 0, 0, 9, typical=3, worst=2)
        twice = [Channel(source, 0, 0, 0, 1), Channel(source, 1, 0, 0, 1)]
        self.assertRaises(ValueError, Event, 1, twice, 1000)
