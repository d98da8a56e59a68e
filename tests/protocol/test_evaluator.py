"""Evaluation of subscription vectors as bytes: against floats and against `protocol.matching`."""

import unittest

from denwatch.protocol.degrees import MAX, MIN
from denwatch.protocol.matching import match
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector

from tests.protocol import oracle
from tests.protocol.evaluator import NOT_A_CANDIDATE, SCRATCH, evaluate
from tests.protocol.samples import Dice, draw_subscription, draw_values

# Hedges and means amplify the rounding of what they take: a root by up to 8 near zero.
NARROW_ERROR = 4 / 255


def evaluate_now(s, values, present=0xFFFF):
    scratch = bytearray(SCRATCH)
    return evaluate(encode(s), 0, present, values, scratch), scratch


def notify(s, values):
    """Return the notification that says the same values."""
    wides = {p.attribute: p.wide for p in s.predicates}
    readings = [Reading(a, (values[a],) * 4, wides[a]) for a in sorted(wides)]
    return NotificationVector(s.event, readings)


class EvaluatorTest(unittest.TestCase):
    def test_plain_subscriptions_have_the_degree_of_floats(self):
        dice = Dice(11)
        for _ in range(300):
            s = draw_subscription(dice, plain=True)
            values = draw_values(dice, s)
            answer, _ = evaluate_now(s, values)
            degree = ~answer if answer < 0 else answer
            real = oracle.subscription_degree(s, values)
            error = NARROW_ERROR * (3 if s.aggregator == 4 else 1)
            self.assertLessEqual(abs(degree / 255 - real), error, (s, values))
            self.assertEqual(answer >= 0, degree >= s.threshold)

    def test_bytes_and_objects_answer_the_same(self):
        dice = Dice(12)
        matched = 0
        for _ in range(400):
            s = draw_subscription(dice)
            values = draw_values(dice, s)
            answer, scratch = evaluate_now(s, values)
            found = match(s, notify(s, values))
            self.assertEqual(found.possible, found.certain)
            self.assertEqual(~answer if answer < 0 else answer, found.possible, s)
            self.assertEqual(answer >= 0, found.matched, s)
            self.assertEqual(scratch[32], found.predicate, s)
            self.assertEqual(scratch[found.predicate], found.degree, s)
            matched += found.matched
        self.assertGreater(matched, 40)

    def test_event_without_an_attribute_is_no_candidate(self):
        s = SubscriptionVector(1, [Predicate(3, 10, 20), Predicate(5, 10, 20)])
        self.assertEqual(evaluate_now(s, [15] * 16, 1 << 3)[0], NOT_A_CANDIDATE)
        self.assertEqual(evaluate_now(s, [15] * 16, 1 << 3 | 1 << 5)[0], 255)

    def test_vector_stands_anywhere_in_the_buffer(self):
        s = SubscriptionVector(1, [Predicate(3, 10, 20, 60)], threshold=1)
        frame = encode(s)
        buffer = b"\xff" * 5 + frame + b"\xff" * 5
        scratch = bytearray(SCRATCH)
        values = [25] * 16
        expected = evaluate(frame, 0, 8, values, scratch)
        self.assertEqual(evaluate(buffer, 5, 8, values, scratch), expected)
        self.assertTrue(0 < expected < 255)

    def test_min_and_max_name_the_predicate_that_decided(self):
        predicates = [Predicate(0, 100, 100, 0), Predicate(1, 100, 100, 0)]
        for kind, decisive in ((MIN, 1), (MAX, 0)):
            s = SubscriptionVector(1, predicates, kind, 1)
            self.assertEqual(evaluate_now(s, [110, 120] + [0] * 14)[1][32], decisive)
