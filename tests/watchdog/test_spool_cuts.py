"""Power cuts in every operation of the flash, and the proof that each rule of the ring is needed.

An ablation leaves one rule out; the same campaign must then find a broken promise.
"""

import sys
import unittest

from tests.watchdog.flash import require_heap

require_heap(200_000)

from denwatch.watchdog.ring import Ring, RingError  # noqa: E402
from denwatch.watchdog.spool import Spool  # noqa: E402

from tests.watchdog.cuts import Broken, run_campaign  # noqa: E402

# A microcontroller's interpreter does a tenth; every runtime cuts in other places.
SEEDS = range(1, 13) if sys.implementation.name == "cpython" else range(1, 4)
EVERY = 3 if sys.implementation.name == "cpython" else 9


class Cuts(unittest.TestCase):
    def test_nothing_is_lost_while_there_is_room(self):
        for cached in (False, True):
            self.assertGreater(run_campaign(SEEDS, cached=cached), 80)

    def test_nothing_but_the_least_is_lost_when_all_is_full(self):
        for cached in (False, True):
            cuts = run_campaign(SEEDS[:2], crowded=True, cached=cached, steps=200, every=EVERY)
            self.assertGreater(cuts, 100)


class WithoutCrc(Ring):
    def _is_sound(self):
        return True


class WithoutErase(Ring):
    def _erase(self, block):  # noqa: ARG002
        return True


class WithoutLookingBehindTheEnd(Ring):
    """Nor does this one read back what it wrote, which would find the same."""

    def __init__(self, device, words):
        Ring.__init__(self, device, words)
        self.medium.holds = lambda *_: True

    def _find_end(self, block):
        Ring._find_end(self, block)
        if block == self.head:
            self._at = self._ends[block]


class WithoutVoidingCopies(Ring):
    def _void_copies(self, sources):
        pass


class RetiringFirst(Ring):
    def _copy(self, victim, spare):
        self.medium.clear(victim, 0)
        return Ring._copy(self, victim, spare)


class WithoutBarriers(Ring):
    def __init__(self, device, words):
        Ring.__init__(self, device, words)
        self.medium.sync = lambda: None


class KeepingTheEpoch(Spool):
    def _save(self, now):  # noqa: ARG002
        return True


class ForgettingNodes(Spool):
    def note_seen(self, node, epoch, sequence, now):
        save = self._save
        self._save = lambda _: True
        try:
            return Spool.note_seen(self, node, epoch, sequence, now)
        finally:
            self._save = save


class DroppingTheOldest(Spool):
    def _rate(self, worst, record, start, time, block, at):
        record = bytearray(record)
        record[start + 3] = 9
        Spool._rate(self, worst, record, start, time, block, at)


class FreeingWhatIsSent(Spool):
    """Takes the sending for the acknowledgement."""

    def peek(self, now, room, count=16):
        batch = Spool.peek(self, now, room, count)
        if batch[2]:
            self.acknowledge(batch[0], batch[1], now)
            self.save(now)
        return batch


class Ablations(unittest.TestCase):
    def find(self, make, crowded=False, cached=False, seeds=None):
        """Expect that the campaign finds a broken promise, or that the spool gives up."""
        with self.assertRaises((Broken, RingError)):
            for seed in seeds or range(1, 30):
                steps = 200 if crowded else 60
                run_campaign([seed], make, crowded, cached, steps)

    def find_ring(self, ring, crowded=False, cached=False):
        class Ablated(Spool):
            RING = ring

        self.find(Ablated, crowded, cached)

    def test_without_crc(self):
        self.find_ring(WithoutCrc)

    def test_without_erase(self):
        self.find_ring(WithoutErase, True)

    def test_writing_behind_a_torn_record(self):
        self.find_ring(WithoutLookingBehindTheEnd)

    def test_a_copy_that_was_not_completed(self):
        self.find_ring(WithoutVoidingCopies, True)

    def test_retiring_before_the_copy_is_complete(self):
        self.find_ring(RetiringFirst, True)

    def test_without_barriers_on_a_disk_with_a_cache(self):
        self.find_ring(WithoutBarriers, True, True)

    def test_an_epoch_that_is_not_written(self):
        self.find(KeepingTheEpoch)

    def test_numbers_of_nodes_that_are_not_written(self):
        self.find(ForgettingNodes)

    def test_dropping_the_oldest(self):
        self.find(DroppingTheOldest, True)

    def test_freeing_what_was_only_sent(self):
        self.find(FreeingWhatIsSent)


if __name__ == "__main__":
    unittest.main()
