"""Predicate patterns: the DENS paper's four take two bytes, the others are postfix."""

import unittest

from denwatch.protocol.degrees import ARITHMETIC, MIN
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.subscription import decode, encode, pack_pattern
from denwatch.protocol.vectors import AND, NOT, OR, Predicate, SubscriptionVector

from tests.protocol import oracle
from tests.protocol.evaluator import SCRATCH, combine

PAPER = (
    ("c1d2", bytes([0, 1, 2, OR | 2, AND | 2]), 3),
    ("c2d1", bytes([0, 1, AND | 2, 2, OR | 2]), 3),
    ("c2c2", bytes([0, 1, AND | 2, 2, 3, AND | 2, OR | 2]), 4),
    ("d3c1", bytes([0, 1, 2, OR | 3, 3, AND | 2]), 4),
)


def subscribe(pattern, count, kind=MIN):
    return SubscriptionVector(1, [Predicate(i, 9, 9) for i in range(count)], kind, pattern=pattern)


class PatternTest(unittest.TestCase):
    def test_the_papers_patterns_take_two_bytes(self):
        for name, pattern, count in PAPER:
            packed = pack_pattern(pattern)
            self.assertEqual(len(packed), 2, name)
            self.assertEqual(decode(encode(subscribe(pattern, count))).pattern, pattern, name)

    def test_the_papers_codes_mean_what_postfix_means(self):
        scratch = bytearray(SCRATCH)
        for _, pattern, count in PAPER:
            for kind in (MIN, ARITHMETIC):
                for bits in range(1 << count):
                    degrees = bytearray(
                        [200 + i if bits >> i & 1 else 10 + i for i in range(count)]
                    )
                    answers = []
                    for section in (pack_pattern(pattern), bytes([0x80 | len(pattern)]) + pattern):
                        scratch[:count] = degrees
                        degree = combine(b"\x00" + section, kind, count, 1, 0, scratch)
                        answers.append((degree, scratch[32]))
                    self.assertEqual(answers[0], answers[1])
                    real = oracle.pattern_degree(pattern, [d / 255 for d in degrees], kind)
                    self.assertLessEqual(abs(answers[0][0] - 255 * real), 1)

    def test_a_pattern_with_a_code_is_refused_as_postfix(self):
        frame = bytearray(encode(subscribe(PAPER[0][1], 3)))
        postfix = bytes([0x85]) + PAPER[0][1]
        at = bytes(frame).find(b"\x2c\x12")
        with self.assertRaises(ProtocolError) as caught:
            decode(bytes(frame[:at]) + postfix + bytes(frame[at + 2 :]))
        self.assertEqual(caught.exception.at, at)

    def test_any_nesting_survives(self):
        pattern = bytes([0, NOT, 1, 2, NOT, AND | 2, OR | 2, 3, 0, AND | 3, NOT])
        self.assertEqual(decode(encode(subscribe(pattern, 4))).pattern, pattern)

    def test_pattern_of_more_than_127_bytes_is_refused(self):
        with self.assertRaises(ProtocolError):
            subscribe(bytes([0, 1, AND | 2] + [NOT] * 125), 2)

    def test_pattern_that_takes_too_many_operands_names_the_byte(self):
        frame = bytes.fromhex("41080000800000032083" + "004200" + "090905" * 2)
        with self.assertRaises(ProtocolError) as caught:
            decode(frame)
        self.assertEqual(caught.exception.at, 11)
