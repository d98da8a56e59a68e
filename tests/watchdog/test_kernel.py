"""The two kernels, the rater, the protocol and the formulas agree (engines.py says who is who)."""

import unittest
from array import array

from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from denwatch.watchdog import filter, plain, rating

from tests.watchdog import engines

PAIRS = 4000


class KernelTest(unittest.TestCase):
    def test_engines_agree_on_random_pairs(self):
        pairs, hits, alone = engines.compare(PAIRS, 1)
        self.assertGreaterEqual(pairs, PAIRS)
        self.assertGreater(hits, PAIRS // 10)
        self.assertGreater(alone, PAIRS // 5)  # decided by the kernels ...
        self.assertGreater(pairs - alone, PAIRS // 5)  # ... and by the rater

    def test_every_slope_at_every_distance(self):
        """One plain predicate, all gamma codes, all values, against the formulas."""
        for gamma in range(0, 256, 15):
            frame = encode(SubscriptionVector(1, [Predicate(2, 100, 140, gamma)], threshold=0))
            vectors = [
                (0, frame, SubscriptionVector(1, [Predicate(2, 100, 140, gamma)], threshold=0))
            ]
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

    def test_a_wrong_rater_would_be_noticed(self):
        """Ablation: a join that takes the mean for the geometric one, a NOT that is passed over."""
        right = rating.aggregate

        def confuse(kind, *rest):
            return right(3 if kind == 4 else kind, *rest)

        rating.aggregate = confuse
        try:
            self.assertRaises(AssertionError, engines.compare, 2000, 1)
        finally:
            rating.aggregate = right
        run = rating.Rater._run

        def affirm(self, buf, kind, values):
            p = self.place[7]
            if not p or not buf[p] & 0x80:
                return run(self, buf, kind, values)
            stop = p + 1 + (buf[p] & 0x7F)
            before = bytes(buf[p:stop])
            kept = bytes([op for op in before[1:] if op != 0x60])
            buf[p : p + 1 + len(kept)] = bytes([0x80 | len(kept)]) + kept
            run(self, buf, kind, values)
            buf[p:stop] = before
            return None

        rating.Rater._run = affirm
        try:
            self.assertRaises(AssertionError, engines.compare, 2000, 1)
        finally:
            rating.Rater._run = run

    def test_a_runtime_with_viper_uses_it(self):
        try:
            from denwatch.watchdog import viper

            self.assertIs(filter.scan, viper.scan)
            self.assertEqual(filter.KERNEL, "viper")
        except (ImportError, SyntaxError):
            self.assertIs(filter.scan, plain.scan)
            self.assertEqual(filter.KERNEL, "plain")
