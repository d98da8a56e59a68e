"""Each rule of significance against a look back over the whole past, and with the rule removed."""

import unittest

from denwatch.protocol.subscription import encode
from denwatch.protocol.timecode import encode_duration
from denwatch.protocol.vectors import Predicate, Significance, SubscriptionVector
from denwatch.watchdog import significance
from denwatch.watchdog.execution import Sample
from denwatch.watchdog.fuzzy import Fuzzy

from tests.protocol.evaluator import SCRATCH, evaluate
from tests.protocol.samples import Dice
from tests.watchdog.oracle import History

SENSES = {1: (7, 4)}

# name, the rule alone, and the function whose removal must show
RULES = (
    ("dead band", Significance(bytes([6, 0, 3])), "has_moved"),
    ("relative dead band", Significance(relative=25), "has_moved"),
    ("both dead bands", Significance(bytes([4, 4, 4]), relative=12), "has_moved"),
    ("hysteresis", Significance(hysteresis=60), "lasts"),
    ("N of M", Significance(hits=3, window=5), "is_frequent"),
    ("heartbeat", Significance(bytes([30, 30, 30]), heartbeat=encode_duration(12)), "is_due"),
    ("quiet", Significance(quiet=encode_duration(14)), "is_quiet"),
    (
        "all together",
        Significance(bytes([9, 9, 9]), 10, 40, 2, 4, encode_duration(40), encode_duration(6)),
        "is_quiet",
    ),
)


def subscribe(rules):
    return SubscriptionVector(
        1,
        [
            Predicate(0, 120, 255, 120),
            Predicate(1, 0, 150, 110),
            Predicate(2, 20000, 65535, 140, wide=True),
        ],
        threshold=150,
        significance=rules,
    )


def walk(dice, values):
    """Move the values a little, sometimes a lot."""
    for a, last in ((0, 255), (1, 255), (2, 65535)):
        size = (last // 40) if not dice.chance(8) else last // 3
        values[a] = max(0, min(last, values[a] + dice.below(2 * size + 1) - size))


def compare(rules, rounds, seed):
    """Return (decisions that differ from the oracle's, how many were sent, matched samples)."""
    dice = Dice(seed)
    s = subscribe(rules)
    language = Fuzzy(200, SENSES)
    language.install(encode(s), 0)
    plain = encode(SubscriptionVector(1, s.predicates, threshold=s.threshold))
    history = History(s)
    sample = Sample(1)
    sample.wides = 4
    values = [140, 100, 30000] + [0] * 13
    wrong = sent = matched = 0
    now = 1000
    for _ in range(rounds):
        now += 1000 + 1000 * dice.below(4)
        walk(dice, values)
        sample.clear()
        for a in range(3):
            sample.set(a, values[a])
        answer = evaluate(plain, 0, 7, values, bytearray(SCRATCH))
        degree = ~answer if answer < 0 else answer
        right = history.decide(now // 1000, values, degree, answer >= 0)
        found = language.judge(sample, now) >= 0
        wrong += found != right
        sent += right
        matched += answer >= 0
    return wrong, sent, matched


class SignificanceTest(unittest.TestCase):
    def test_every_rule_decides_as_a_look_back_does(self):
        for name, rules, _ in RULES:
            with self.subTest(name):
                wrong, sent, matched = compare(rules, 600, 51)
                self.assertEqual(wrong, 0)
                self.assertGreater(sent, 10)
                self.assertNotEqual(sent, matched)  # the rule did something

    def test_without_a_rule_the_comparison_fails(self):
        """Ablation: each function replaced by one that never holds back, and never sends more."""
        for name, rules, function in RULES:
            kept = getattr(significance, function)
            stand_ins = {
                "has_moved": lambda *_: True,
                "lasts": lambda _, degree, *__: degree >= 0,
                "is_frequent": lambda *_: True,
                "is_due": lambda *_: False,
                "is_quiet": lambda *_: False,
            }
            setattr(significance, function, stand_ins[function])
            try:
                wrong = compare(rules, 600, 51)[0]
            finally:
                setattr(significance, function, kept)
            self.assertGreater(wrong, 0, name)

    def test_without_rules_every_match_is_sent(self):
        language = Fuzzy(200, SENSES)
        language.install(encode(subscribe(None)), 0)
        sample = Sample(1)
        sample.wides = 4
        for attribute, value in ((0, 200), (1, 50), (2, 60000)):
            sample.set(attribute, value)
        for now in range(1000, 5000, 1000):
            self.assertEqual(language.judge(sample, now), 255)

    def test_memory_survives_the_moves_of_its_record(self):
        """Other subscriptions come and go; the dead band still knows what was sent."""
        language = Fuzzy(600, SENSES)
        s = subscribe(Significance(bytes([50, 50, 50])))
        s.handle = 9
        language.install(encode(s), 0)
        sample = Sample(1)
        sample.wides = 4
        for attribute, value in ((0, 200), (1, 50), (2, 60000)):
            sample.set(attribute, value)
        self.assertEqual(language.judge(sample, 1000), 255)
        for handle in range(5):
            other = SubscriptionVector(
                1, [Predicate(handle & 1, 0, 0)], threshold=255, handle=handle
            )
            other.validity = handle
            language.install(encode(other), 0)
            self.assertEqual(language.judge(sample, 2000), -1)
        language.remove([1, 3])
        self.assertEqual(language.judge(sample, 3000), -1)
        sample.set(0, 149)
        self.assertEqual(language.judge(sample, 4000), 255)

    def test_time_that_wraps_after_34_years_is_still_a_difference(self):
        language = Fuzzy(200, SENSES)
        language.install(encode(subscribe(Significance(quiet=encode_duration(10)))), 0)
        sample = Sample(1)
        sample.wides = 4
        for attribute, value in ((0, 200), (1, 50), (2, 60000)):
            sample.set(attribute, value)
        start = ((1 << 30) - 4) * 1000
        sent = [t for t in range(30) if language.judge(sample, start + 1000 * t) >= 0]
        self.assertEqual(sent, [0, 10, 20])
