"""Uncertain readings on the device: the answers of `denwatch.protocol.matching`."""

import unittest

from denwatch.protocol.matching import match
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from denwatch.watchdog.execution import Sample
from denwatch.watchdog.filter import Filter

from tests.protocol.samples import Dice, draw_reading, draw_subscription

ROUNDS = 250

# As in the golden vectors, whose file is large for a device's heap. How many predicates there
# are, and which of them all or one must hold: c1d2, c2d1, c2c2, d3c1.
PATTERNS = (
    (3, b"\x00\x01\x02\x52\x42"),
    (3, b"\x00\x01\x42\x02\x52"),
    (4, b"\x00\x01\x42\x02\x03\x42\x52"),
    (4, b"\x00\x01\x02\x53\x03\x42"),
)


def draw_sample(dice, s):
    """Return a sample for a subscription and the notification that says the same."""
    sample = Sample(s.event)
    readings = []
    wides = {p.attribute: p.wide for p in s.predicates}
    for attribute in sorted(wides):
        reading = draw_reading(dice, attribute, wides[attribute])
        if dice.chance(2):  # near the set, where it matters
            near = next(p for p in s.predicates if p.attribute == attribute)
            points = sorted([min(near.last, near.low + dice.below(60)) for _ in range(4)])
            reading = Reading(attribute, tuple(points), wides[attribute])
        readings.append(reading)
        sample.set_doubtful(attribute, *reading.points)
    return sample, NotificationVector(s.event, readings)


def begin(filter, sample):
    filter.begin(sample.event, sample.present, sample.values, sample.doubt, sample.points)


class DoubtTest(unittest.TestCase):
    def test_all_kinds_of_subscriptions(self):
        dice = Dice(31)
        doubtful = matched = 0
        for _ in range(ROUNDS):
            s = draw_subscription(dice)
            sample, notification = draw_sample(dice, s)
            filter = Filter(400)
            frame = encode(s)
            at = filter.add(frame, bytes(2) if frame[5] else b"")
            begin(filter, sample)
            answer = filter.rate(at)
            right = match(s, notification)
            self.assertEqual(answer >= 0, right.matched, (s, notification))
            self.assertEqual(~answer if answer < 0 else answer, right.possible)
            self.assertEqual(filter.rater.certain, right.certain, (s, notification))
            self.assertEqual(filter.rater.decisive, right.predicate)
            self.assertEqual(filter.rater.degrees[right.predicate], right.degree)
            doubtful += right.possible != right.certain
            matched += right.matched
        self.assertGreater(doubtful, ROUNDS // 5)
        self.assertGreater(matched, ROUNDS // 20)

    def test_every_plain_subscription(self):
        """Where there is viper, machine code decides these; else the rater."""
        dice = Dice(33)
        hits = 0
        for _ in range(3 * ROUNDS):
            predicates = []
            for attribute in range(1 + dice.below(3)):
                low = dice.below(256)
                high = min(255, low + (dice.below(80) if dice.chance(2) else dice.below(4)))
                code = 255 if dice.chance(3) else dice.below(256)
                predicates.append(Predicate(attribute, low, high, code, negated=dice.chance(3)))
            s = SubscriptionVector(1, predicates, dice.below(4), 1 + dice.below(255))
            sample = Sample(1)
            readings = []
            for p in predicates:
                points = [max(0, min(255, (p.high if dice.chance(2) else p.low) - dice.below(30)))]
                step = 5 if dice.chance(2) else 40
                for _ in range(3):
                    points.append(min(255, points[-1] + dice.below(step)))
                points = [points[0]] * 4 if dice.chance(6) else points
                readings.append(Reading(p.attribute, tuple(points)))
                sample.set_doubtful(p.attribute, *points)
            filter = Filter(60)
            filter.add(encode(s), b"")
            begin(filter, sample)
            right = match(s, NotificationVector(1, readings))
            at = filter.step()
            self.assertEqual(at >= 0, right.matched, (s, readings))
            if at >= 0:
                self.assertEqual(filter.degree, right.possible, (s, readings))
                hits += 1
        self.assertGreater(hits, ROUNDS // 2)

    def test_one_attribute_asked_for_twice(self):
        low, high = Predicate(0, 0, 100), Predicate(0, 101, 255)
        sample = Sample(1)
        sample.set_doubtful(0, 95, 100, 100, 105)
        for pattern, certain, hits in ((b"\0\1\x52", 230, 1), (b"", 0, 0)):
            s = SubscriptionVector(1, [low, high], certain=certain, pattern=pattern)
            filter = Filter(60)
            filter.add(encode(s), b"")
            begin(filter, sample)
            self.assertEqual(filter.step() >= 0, hits == 1)
            self.assertEqual(filter.rater.certain, 255 * hits)

    def test_the_papers_patterns_in_two_bytes(self):
        dice = Dice(32)
        predicates = [Predicate(0, 50, 90, 60), Predicate(1, 0, 20, 60)]
        predicates += [Predicate(2, 230, 255, 60), Predicate(3, 9, 9, 50)]
        for count, pattern in PATTERNS:
            s = SubscriptionVector(1, predicates[:count], pattern=pattern)
            for _ in range(30):
                sample, notification = draw_sample(dice, s)
                filter = Filter(100)
                at = filter.add(encode(s), b"")
                begin(filter, sample)
                right = match(s, notification)
                answer = filter.rate(at)
                self.assertEqual(answer if right.matched else ~answer, right.possible)
                self.assertEqual(filter.rater.certain, right.certain)

    def test_doubt_reaches_from_possible_to_certain(self):
        s = SubscriptionVector(1, [Predicate(0, 100, 255)], threshold=200)
        sure = SubscriptionVector(1, [Predicate(0, 100, 255)], threshold=200, certain=200, handle=1)
        sample = Sample(1)
        filter = Filter(100)
        filter.all = True
        filter.add(encode(s), b"")
        filter.add(encode(sure), b"")
        for points, hits in (((90, 95, 105, 110), 1), ((110, 115, 120, 125), 2), ((1, 2, 3, 4), 0)):
            sample.clear()
            sample.set_doubtful(0, *points)
            begin(filter, sample)
            found = 0
            while filter.step() >= 0:
                found += 1
            self.assertEqual(found, hits, points)

    def test_a_reading_without_doubt_is_exact(self):
        sample = Sample(1)
        sample.set_doubtful(3, 7, 7, 7, 7)
        self.assertEqual((sample.doubt, sample.values[3], sample.present), (0, 7, 8))
