"""The two kernels and the protocol's evaluator agree; `shift` moves what it should."""

import unittest
from array import array

from edge.watchdog import kernel, plain
from protocol.subscription import encode
from protocol.vectors import Predicate, Subscription
from tests.watchdog import engines

PAIRS = 4000


class KernelTest(unittest.TestCase):
    def test_engines_agree_on_random_pairs(self):
        pairs, hits = engines.compare(PAIRS, 1)
        self.assertGreaterEqual(pairs, PAIRS)
        self.assertGreater(hits, PAIRS // 10)

    def test_every_slope_at_every_distance(self):
        """One plain predicate, all gamma codes, all values, against the evaluator."""
        for gamma in range(0, 256, 15):
            frame = encode(Subscription(1, [Predicate(2, 100, 140, gamma)], threshold=0))
            vectors = [(0, frame, Subscription(1, [Predicate(2, 100, 140, gamma)], threshold=0))]
            filter = engines.fill(100, vectors)
            for x in range(0, 256, 3):
                values = [x] * 16
                right = engines.expect(vectors, 1, 4, values)
                for name, scan in engines.ENGINES:
                    found = engines.collect(filter, scan, 1, 4, array("H", values))
                    self.assertEqual(found, right, (name, gamma, x))

    def test_a_wrong_kernel_would_be_noticed(self):
        """Ablation: degrees one too high, or hits of negated plain vectors lost."""

        def exaggerate(buf, stop, values, state):
            at = plain.scan(buf, stop, values, state)
            if 0 <= state[5] < 255:
                state[5] += 1
            return at

        def forget(buf, stop, values, state):
            at = plain.scan(buf, stop, values, state)
            is_negated = at < stop and buf[at + 1] & 0xF0 and not buf[at + 1] & 12
            return stop if is_negated else at

        kept = engines.ENGINES
        for wrong in (exaggerate, forget):
            engines.ENGINES = (("wrong", wrong),)
            try:
                self.assertRaises(AssertionError, engines.compare, 2000, 1)
            finally:
                engines.ENGINES = kept

    def test_shift_moves_up_and_down_over_itself(self):
        for shift in (plain.shift, kernel.shift):
            for by in (1, 3, 8, -1, -3, -8):
                data = bytearray(range(40))
                shift(data, 10, 25, by)
                right = bytearray(range(40))
                right[10 + by : 25 + by] = bytes(range(10, 25))
                self.assertEqual(data, right, by)

    def test_a_runtime_with_viper_uses_it(self):
        try:
            from edge.watchdog import viper

            self.assertIs(kernel.scan, viper.scan)
            self.assertEqual(kernel.NAME, "viper")
        except (ImportError, SyntaxError):
            self.assertIs(kernel.scan, plain.scan)
            self.assertEqual(kernel.NAME, "plain")
