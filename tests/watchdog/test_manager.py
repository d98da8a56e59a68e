"""The manager: frames go to the language that accepts them; refusals count; hello is whole."""

import unittest

from denwatch.protocol.frames import decode_message
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector
from denwatch.watchdog.fuzzy import Fuzzy
from denwatch.watchdog.manager import Language, Manager, UnknownLanguageError
from denwatch.watchdog.seal import pack

SENSES = {1: (7, 4), 9: (1, 0)}


class Counter(Language):
    """Another language: a frame is 0xC0, handle (2), and asks for every n-th sample."""

    number = 77
    capacity = 10
    why = -1

    def __init__(self):
        self.held = {}

    def accepts(self, frame):
        return frame[:1] == b"\xc0"

    def install(self, frame, now):
        self.held[frame[1] << 8 | frame[2]] = now
        return "added"

    def remove(self, handles):
        return sum([self.held.pop(handle, None) is not None for handle in handles])

    def expire(self, now):  # noqa: ARG002 - the interface
        return 0


def make(handle, high=255, validity=0):
    predicates = [Predicate(0, 0, high)]
    return encode(SubscriptionVector(1, predicates, handle=handle, validity=validity))


class ManagerTest(unittest.TestCase):
    def setUp(self):
        self.fuzzy = Fuzzy(300, SENSES)
        self.counter = Counter()
        self.manager = Manager([self.fuzzy, self.counter], SENSES)

    def test_each_language_gets_its_own(self):
        self.assertEqual(self.manager.install(make(1), 5), "added")
        self.assertEqual(self.manager.install(b"\xc0\x00\x02", 6), "added")
        self.assertEqual((self.fuzzy.filter.count, self.counter.held), (1, {2: 6}))
        self.assertEqual(self.manager.remove([1, 2, 3]), 2)
        self.assertEqual((self.fuzzy.filter.count, self.counter.held), (0, {}))

    def test_counts(self):
        self.manager.install(make(1, 9, validity=16), 0)
        self.manager.install(make(1, 8, validity=16), 0)
        self.manager.install(make(1, 8, validity=16), 0)
        self.manager.install(make(2), 0)
        for frame in (b"", b"\x01", b"\x81\x00\x00", make(3)[:-2]):
            self.assertRaises(ValueError, self.manager.install, frame, 0)
        self.manager.remove([2, 2])
        self.manager.expire(15_999)
        self.assertEqual(self.fuzzy.filter.count, 1)
        self.manager.expire(16_000)
        self.assertEqual(
            [self.manager.counts[name] for name in sorted(self.manager.counts)],
            [2, 1, 4, 1, 1, 1],  # added, expired, refused, removed, replaced, same
        )

    def test_unknown_language_is_named(self):
        with self.assertRaises(UnknownLanguageError) as caught:
            self.manager.install(b"\x85abc", 0)
        self.assertIn("x85abc", str(caught.exception))

    def test_flood_stops_at_the_capacity(self):
        refused = 0
        for handle in range(500):
            try:
                self.manager.install(make(handle, handle % 250), 0)
            except ValueError:
                refused += 1
        self.assertEqual(refused, self.manager.counts["refused"])
        self.assertGreater(refused, 100)
        self.assertLessEqual(self.fuzzy.filter.used, 300)

    def test_hello_has_what_the_protocol_asks_for(self):
        fields = {0: 1, 1: "dog-1", 2: 3, 3: b"12345678"}
        fields.update(self.manager.describe())
        name, read = decode_message(pack(fields))
        self.assertEqual(name, "hello")
        self.assertEqual(read["languages"], [0, 77])
        self.assertEqual(read["capacity"], 310)
        self.assertEqual(read["senses"], {1: [7, 4], 9: [1, 0]})
