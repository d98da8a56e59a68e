"""The buffer of the filter: groups, order, the paper's rule, capacity, no holes; against a list."""

import unittest
from array import array

from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, Significance, SubscriptionVector
from denwatch.watchdog.filter import CapacityError, Filter, is_significant

from tests.protocol.evaluator import SCRATCH, evaluate
from tests.protocol.samples import Dice
from tests.watchdog import engines


def make(handle, attributes=(0, 1, 2), event=1, low=0, high=255, validity=0, significance=None):
    predicates = [Predicate(a, low, high) for a in attributes]
    return encode(
        SubscriptionVector(
            event, predicates, handle=handle, validity=validity, significance=significance
        )
    )


def list_handles(filter):
    handles = []
    at = filter.follow(0)
    while at >= 0:
        handles.append(filter.buffer[at + 2] << 8 | filter.buffer[at + 3])
        at = filter.follow(at)
    return handles


def step_all(filter, event, present, values):
    """Return the handles that `step` names."""
    filter.begin(event, present, array("H", values))
    handles = []
    at = filter.step()
    while at >= 0:
        handles.append(filter.buffer[at + 2] << 8 | filter.buffer[at + 3])
        at = filter.step()
    return handles


def expect_all(vectors, event, values):
    """Return {handle: evaluate()'s answer} for the event's vectors."""
    scratch = bytearray(SCRATCH)
    return {
        handle: evaluate(frame, 0, 0xFFFF, values, scratch)
        for handle, frame, _ in vectors
        if frame[0] & 63 == event
    }


class FilterTest(unittest.TestCase):
    def test_three_attributes_take_17_bytes(self):
        filter = Filter(6 + 10 * 17)
        for handle in range(10):
            filter.add(make(handle), b"")
        self.assertEqual(filter.used, len(filter.buffer))
        self.assertEqual(filter.count, 10)

    def test_groups_stand_by_event_and_features(self):
        filter = Filter(1000)
        filter.add(make(1, (3,), event=2), b"")
        filter.add(make(2, (0, 1)), b"")
        filter.add(make(3, (3,), event=2), b"")
        filter.add(make(4, (0,)), b"")
        self.assertEqual(list_handles(filter), [4, 2, 1, 3])
        self.assertEqual(filter.used, 3 * 6 + 2 * 11 + 14 + 11)

    def test_significant_ones_stand_first_in_their_group(self):
        filter = Filter(1000)
        filter.add(make(1), b"")
        filter.add(make(2, significance=Significance(quiet=8)), b"\1")
        filter.add(make(3), b"")
        self.assertEqual(list_handles(filter), [2, 1, 3])

    def test_after_a_hit_only_other_features_are_tried(self):
        filter = Filter(1000)
        for handle, attributes in ((1, (0, 1)), (2, (0, 1)), (3, (2,)), (4, (0, 1)), (5, (2,))):
            filter.add(make(handle, attributes), b"")
        self.assertEqual(step_all(filter, 1, 0xFFFF, [9] * 16), [1, 3])
        filter.all = True
        self.assertEqual(step_all(filter, 1, 0xFFFF, [9] * 16), [1, 2, 4, 3, 5])

    def test_a_significant_hit_hides_no_other(self):
        """Whether it will be sent is not known yet."""
        filter = Filter(1000)
        filter.add(make(1, significance=Significance(quiet=8)), b"\1")
        filter.add(make(2), b"")
        filter.add(make(3), b"")
        self.assertEqual(step_all(filter, 1, 0xFFFF, [9] * 16), [1, 2])

    def test_the_rule_against_a_plain_list(self):
        """Of each set of features: all that have a significance, and the first other that hits."""
        dice = Dice(8)
        for _ in range(12):
            vectors = engines.draw_vectors(dice, 25, 4)
            for i in range(len(vectors)):  # few sets of features, so that groups are large
                _, _, s = vectors[i]
                if len(s.predicates) > 1:
                    vectors[i] = i, make(i, (dice.below(3),), 4, dice.below(128)), None
            filter = engines.fill(2500, vectors)
            values = [dice.byte() for _ in range(16)]
            degrees = expect_all(vectors, 4, values)
            right = []
            told = set()
            for handle in list_handles(filter):
                _, frame, _ = vectors[handle]
                if handle not in degrees:
                    continue
                if is_significant(frame, 0):
                    right.append(handle)
                elif degrees[handle] >= 0 and frame[6:8] not in told:
                    right.append(handle)
                    told.add(frame[6:8])
            self.assertEqual(step_all(filter, 4, 0xFFFF, values), right)

    def test_missing_features_and_other_events_are_no_candidates(self):
        filter = Filter(1000)
        filter.add(make(1, (0, 5)), b"")
        filter.add(make(2, (0,), event=3), b"")
        self.assertEqual(step_all(filter, 1, 0x0001, [9] * 16), [])
        self.assertEqual(step_all(filter, 1, 0x0021, [9] * 16), [1])
        self.assertEqual(step_all(filter, 3, 0x0021, [9] * 16), [2])
        self.assertEqual(step_all(filter, 2, 0xFFFF, [9] * 16), [])

    def test_full_buffer_refuses_clearly_and_stays_as_it_was(self):
        filter = Filter(6 + 17 + 16)
        filter.add(make(1), b"")
        before = bytes(filter.buffer)
        with self.assertRaises(CapacityError) as caught:
            filter.add(make(2), b"")
        self.assertEqual(str(caught.exception), "17 bytes, 16 are free")
        self.assertRaises(CapacityError, filter.add, make(3, (0, 1)), b"")  # 14 and a new group
        self.assertEqual((bytes(filter.buffer), filter.used, filter.count), (before, 23, 1))

    def test_random_changes_leave_what_a_list_holds(self):
        dice = Dice(7)
        filter = Filter(2000)
        filter.all = True
        held = []
        for turn in range(200):
            if held and dice.chance(3):
                vector = held.pop(dice.below(len(held)))
                filter.remove(filter.find(vector[0]))
            else:
                _, frame, s = engines.draw_vectors(dice, 1, 4)[0]
                frame = frame[:2] + bytes([turn >> 8, turn & 255]) + frame[4:]
                tail = (b"\1\2" if frame[5] else b"") + (b"\1" if s.significance else b"")
                try:
                    filter.add(frame, tail)
                    held.append((turn, frame, s))
                except CapacityError:
                    self.assertGreater(filter.used + len(frame) + len(tail) + 6, 2000)
            if turn % 10 == 0:
                self.assertEqual(sorted(list_handles(filter)), sorted([v[0] for v in held]))
                values = [dice.byte() for _ in range(16)]
                found = engines.collect(filter, engines.CHOSEN, 4, 0xFFFF, array("H", values))
                self.assertEqual(found, engines.expect(held, 4, 0xFFFF, values))
        self.assertGreater(len(held), 30)
        for handle, frame, s in held:
            self.assertEqual(is_significant(frame, 0), s.significance is not None)
            filter.remove(filter.find(handle))
        self.assertEqual((filter.used, filter.count), (0, 0))
        self.assertEqual(filter.find(1), -1)
