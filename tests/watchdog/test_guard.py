"""The guard: the dog is fed only while all tasks make progress; memory's low-water mark."""

import unittest

from denwatch.watchdog.supervisor import TaskGuard


class GuardTest(unittest.TestCase):
    def setUp(self):
        self.meals = []
        self.free = [500, 300, 400]
        self.guard = TaskGuard(lambda: self.meals.append(1), lambda: self.free.pop(0))
        self.sampling = self.guard.add_task("sampling", 2000, 0)
        self.uplink = self.guard.add_task("uplink", 5000, 0)

    def test_fed_while_all_make_progress(self):
        for now in range(0, 20_000, 1000):
            self.guard.note_progress(self.sampling, now)
            self.guard.note_progress(self.uplink, now)
            self.assertTrue(self.guard.check(now))
        self.assertEqual((len(self.meals), self.guard.fed, self.guard.withheld), (20, 20, 0))

    def test_one_task_that_hangs_starves_the_dog(self):
        for now in range(0, 10_000, 1000):
            self.guard.note_progress(self.sampling, now)
            self.guard.check(now)
        self.assertEqual((len(self.meals), self.guard.withheld), (6, 4))
        stalled = self.guard.find_stalled(9000)
        self.assertEqual(self.guard.names[stalled], "uplink")
        self.guard.note_progress(self.uplink, 10_000)
        self.guard.note_progress(self.sampling, 10_000)
        self.assertTrue(self.guard.check(10_000))

    def test_without_the_rule_a_hanging_task_stays_hidden(self):
        """Ablation: a guard that asks nobody feeds a dog that should bite."""
        self.guard.find_stalled = lambda now: -1  # noqa: ARG005
        for now in range(0, 100_000, 1000):
            self.guard.check(now)
        self.assertEqual(len(self.meals), 100)

    def test_lowest_free_memory_is_kept(self):
        self.assertEqual(self.guard.lowest, -1)
        self.guard.rest()
        self.guard.rest()
        self.guard.note_memory()
        self.assertEqual(self.guard.lowest, 300)
