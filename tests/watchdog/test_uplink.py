"""The uplink without a network: what is sent when, what is obeyed, and every refusal.

The storm drives it through a network that forgets, repeats and delays; the ablations show that the
storm finds what each rule prevents.
"""

import unittest

from tests.watchdog.flash import Flash, Random, make_vector, require_heap

require_heap(200_000)

from denwatch.protocol import frames  # noqa: E402
from denwatch.protocol.errors import ProtocolError  # noqa: E402
from denwatch.protocol.frames import encode_message  # noqa: E402
from denwatch.protocol.timecode import decode_age  # noqa: E402
from denwatch.watchdog.fuzzy import Fuzzy  # noqa: E402
from denwatch.watchdog.manager import Manager  # noqa: E402
from denwatch.watchdog.seal import FrameKey  # noqa: E402
from denwatch.watchdog.spool import Spool  # noqa: E402
from denwatch.watchdog.uplink import FIRST_WAIT, LONGEST_WAIT, Uplink  # noqa: E402

from tests.watchdog.nodes import SECRET, Node, make_key  # noqa: E402
from tests.watchdog.nodes import make_vector as make_subscription  # noqa: E402

SV = "dens/1/wd/dog-1/sv"
ACK = "dens/1/wd/dog-1/ack"
SENSES = {1: (7, 0)}


def make_device_key(node="node-a", number=7):
    return FrameKey("dog-1", node, number, SECRET)


def make_uplink(flash, now=0, kind=Uplink, spool_kind=Spool):
    spool = spool_kind(flash, now)
    manager = Manager([Fuzzy(1024, SENSES)], SENSES)
    keys = {"node-a": make_device_key(), "node-b": make_device_key("node-b", 8)}
    uplink = kind("dog-1", keys, spool, manager, b"vocabula", lambda: {8: 1})
    uplink.connect("node-a")
    return uplink, spool, manager


class Case(unittest.TestCase):
    def setUp(self):
        self.flash = Flash(8)
        self.uplink, self.spool, self.manager = make_uplink(self.flash)
        self.node = Node()

    def say_hello(self, now=0):
        topic, payload = self.uplink.next_message(now)
        self.assertEqual(topic, "dens/1/wd/dog-1/hello")
        self.node.take(topic, payload)

    def be_answered(self, now=0):
        self.say_hello(now)
        self.assertTrue(self.uplink.receive(ACK, self.node.answer_hello(), now))


class Up(Case):
    def test_a_connection_begins_with_a_hello(self):
        self.say_hello()
        hello = self.node.hellos[0]
        self.assertEqual(hello["device"], "dog-1")
        self.assertEqual(hello["senses"], {1: [7, 0]})
        self.assertEqual((hello["epoch"], hello["reset"], hello["dropped"]), (1, 1, 0))
        self.assertEqual(self.uplink.will, ("dens/1/wd/dog-1/hello", b""))
        self.assertIsNone(self.uplink.next_message(0))

    def test_a_hello_is_repeated_until_the_node_answers(self):
        times = [now for now in range(0, 400_000, 500) if self.uplink.next_message(now)]
        self.assertEqual(times, [0, 5000, 15000, 35000, 75000, 155000, 235000, 315000, 395000])
        self.uplink.receive(SV, self.node.subscribe(make_subscription(1)), 0)
        self.uplink.receive(ACK, self.node.acknowledge(), 0)
        for hello in ([1, 8], [2, 9], [0, 9]):  # answers to others
            self.uplink.receive(ACK, self.node.acknowledge(hello=hello), 0)
        self.assertIsNotNone(self.uplink.next_message(900_000))
        self.uplink.receive(ACK, self.node.acknowledge(hello=[1, 10]), 0)
        self.assertIsNone(self.uplink.next_message(2_000_000))
        self.uplink.connect("node-b")
        self.assertIsNotNone(self.uplink.next_message(900_000))

    def test_notifications_wait_for_the_answer_and_say_how_long_ago_it_was(self):
        self.spool.put(make_vector(1), 100, 0)
        self.say_hello()
        self.assertIsNone(self.uplink.next_message(100))
        self.uplink.receive(ACK, self.node.answer_hello(), 2_000)
        message = self.uplink.next_message(62_500)
        self.node.take(*message)
        self.assertEqual(self.node.elapsed, 16 * 121 // 2)
        self.node.answer = frames.HelloAnswer(1, 1, 99)
        with self.assertRaises(ProtocolError):
            self.node.take(*message)

    def test_no_number_is_used_for_two_frames(self):
        self.spool.put(make_vector(1), 100, 0)
        seen = set()
        now = 0
        for _ in range(60):
            message = self.uplink.next_message(now)
            now += 4_000
            if message is None:
                continue
            topic, payload = message
            number = (payload[0], payload[7:11])
            self.assertFalse(number in seen)
            seen.add(number)
            if topic.endswith("hello"):
                self.node.take(topic, payload)
                self.uplink.receive(ACK, self.node.answer_hello(), now)
        self.assertGreater(self.uplink.batch_count, 3)

    def test_a_batch_waits_for_the_acknowledgement_of_the_one_before(self):
        self.be_answered()
        for i in range(3):
            self.spool.put(make_vector(i), 100, 0)
        self.node.take(*self.uplink.next_message(2000))
        self.spool.put(make_vector(3), 100, 2500)
        self.assertIsNone(self.uplink.next_message(2500))
        self.assertEqual(sorted(self.node.committed), [(1, 1), (1, 2), (1, 3)])
        self.assertEqual(decode_age(self.node.committed[(1, 1)].age), 32)
        self.assertTrue(self.uplink.receive(ACK, self.node.acknowledge(), 2600))
        self.node.take(*self.uplink.next_message(2600))
        self.assertEqual(self.node.highest, (1, 4))

    def test_without_an_acknowledgement_it_is_sent_again_with_the_same_numbers(self):
        self.be_answered()
        self.spool.put(make_vector(1), 100, 0)
        waits = []
        now = 0
        for _ in range(7):
            self.node.take(*self.uplink.next_message(now))
            start = now
            message = None
            while message is None and now < start + 200_000:
                now += 500
                message = self.uplink.next_message(now)
            waits.append(now - start)
            self.node.take(*message)  # a hello, for the node may not know it any more
            self.uplink.receive(ACK, self.node.answer_hello(0, 0), now)
        self.assertEqual(list(self.node.committed), [(1, 1)])
        self.assertEqual(waits[0], FIRST_WAIT)
        self.assertEqual(max(waits), LONGEST_WAIT)
        self.assertGreater(self.uplink.counts["again"], 5)

    def test_an_old_notification_goes_with_its_own_epoch(self):
        self.spool.put(make_vector(1), 100, 0)
        self.spool.save(0)
        uplink, spool, _ = make_uplink(Flash(8, image=self.flash.take_image()))
        spool.put(make_vector(2), 100, 0)
        self.node.take(*uplink.next_message(0))
        uplink.receive(ACK, self.node.answer_hello(), 0)
        self.node.take(*uplink.next_message(0))
        self.assertEqual(list(self.node.committed), [(1, 1)])
        uplink.receive(ACK, self.node.acknowledge(), 0)
        self.node.take(*uplink.next_message(0))
        self.assertEqual(self.node.highest, (2, 1))

    def test_another_node_gets_what_the_first_did_not_acknowledge(self):
        self.be_answered()
        self.spool.put(make_vector(1), 100, 0)
        self.uplink.next_message(0)
        self.uplink.connect("node-b")
        other = Node(make_key(node="node-b", key_id=8))
        other.take(*self.uplink.next_message(1))
        self.uplink.receive(ACK, other.answer_hello(), 1)
        other.take(*self.uplink.next_message(1))
        self.assertEqual(other.highest, (1, 1))

    def test_sequences_go_on_behind_16_bits(self):
        self.be_answered()
        self.spool._sequence = 65530
        for i in range(12):
            self.spool.put(make_vector(i), 100, 0)
        self.node.take(*self.uplink.next_message(0))
        numbers = sorted(self.node.committed)
        self.assertEqual(numbers, [(1, s) for s in range(65531, 65543)])


class Down(Case):
    def refuse(self, topic, payload, counter):
        before = self.uplink.counts[counter]
        used = self.manager.languages[0].filter.used
        self.assertFalse(self.uplink.receive(topic, payload, 0))
        self.assertEqual(self.uplink.counts[counter], before + 1)
        self.assertEqual(self.manager.languages[0].filter.used, used)
        self.assertTrue(self.uplink.refused)

    def test_subscriptions_are_installed_and_removed(self):
        frame = self.node.subscribe(make_subscription(1), make_subscription(2, low=50))
        self.assertTrue(self.uplink.receive(SV, frame, 0))
        self.assertEqual(self.uplink.counts["installed"], 2)
        self.assertTrue(self.uplink.receive(SV, self.node.remove(1, 9), 0))
        self.assertEqual(self.uplink.counts["removed"], 1)
        self.assertEqual(self.manager.languages[0].filter.count, 1)

    def test_a_wrong_vector_does_not_keep_the_others_out(self):
        good = make_subscription(1)
        bad = bytes([good[0], 0x87]) + good[2:]
        strange = make_subscription(3, event=5)
        self.uplink.receive(SV, self.node.subscribe(bad, good, strange, b"\xc0abc"), 0)
        self.assertEqual(self.uplink.counts["installed"], 1)
        self.assertEqual(self.uplink.counts["refused_vector"], 3)

    def test_a_replay_is_refused_also_after_a_restart(self):
        first = self.node.subscribe(make_subscription(1))
        second = self.node.remove(1)
        self.uplink.receive(SV, first, 0)
        self.uplink.receive(SV, second, 0)
        self.refuse(SV, first, "refused_replay")
        self.refuse(SV, second, "refused_replay")
        self.uplink, _, self.manager = make_uplink(Flash(8, image=self.flash.take_image()))
        self.refuse(SV, first, "refused_replay")
        self.assertTrue(self.uplink.receive(SV, self.node.subscribe(make_subscription(2)), 0))
        restarted = Node(epoch=2)
        self.assertTrue(self.uplink.receive(SV, restarted.subscribe(make_subscription(3)), 0))

    def test_an_acknowledgement_may_be_repeated_and_does_no_harm(self):
        for i in range(4):
            self.spool.put(make_vector(i), 100, 0)
        late = self.node.acknowledge(1, 2)
        self.assertTrue(self.uplink.receive(ACK, self.node.acknowledge(1, 3), 0))
        self.assertTrue(self.uplink.receive(ACK, late, 0))
        self.assertEqual(self.uplink.counts["acknowledged"], 1)
        self.assertEqual(self.spool.peek(0, 4000)[1], 4)

    def test_refusals(self):
        good = self.node.subscribe(make_subscription(1))
        self.refuse(SV, b"", "refused_frame")
        self.refuse(SV, good[:10], "refused_frame")
        self.refuse(SV, bytes(5000), "refused_version")
        self.refuse(SV, b"\x81" + bytes(5000), "refused_key")
        self.refuse(SV, bytes([good[0] ^ 0xC0]) + good[1:], "refused_version")  # the release before
        self.refuse(SV, good[:1] + b"\x00\x09" + good[3:], "refused_key")
        for at in range(3, len(good)):
            forged = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
            self.refuse(SV, forged, "refused_tag")
        wrong = Node(make_key(secret=bytes(range(1, 33))))
        self.refuse(SV, wrong.subscribe(make_subscription(1)), "refused_tag")
        up = frames.seal(make_key(), frames.UP, frames.Frame(1, 1, 1, b""))
        self.refuse(SV, up, "refused_tag")
        self.refuse(SV, self.node.seal(frames.SUBSCRIPTIONS, b"\x09ab"), "refused_frame")
        self.refuse(SV, self.node.seal(frames.MESSAGE, b"\xff"), "refused_message")
        self.refuse(SV, self.node.acknowledge(1, 1), "refused_message")
        self.refuse(ACK, self.node.remove(1), "refused_message")
        self.refuse(ACK, self.node.subscribe(make_subscription(1)), "refused_message")
        self.refuse("dens/1/wd/dog-2/sv", self.node.remove(1), "refused_message")
        vocabulary = encode_message("vocabulary", {"hash": b"12345678", "body": b""})
        self.refuse(SV, self.node.seal(frames.MESSAGE, vocabulary), "refused_message")

    def test_a_flood_fills_the_table_and_nothing_else(self):
        for i in range(1, 400):
            self.uplink.receive(SV, self.node.subscribe(make_subscription(i, low=i % 200)), i)
        language = self.manager.languages[0]
        self.assertLessEqual(language.filter.used, 1024)
        self.assertGreater(self.uplink.counts["installed"], 50)
        total = self.uplink.counts["installed"] + self.uplink.counts["refused_vector"]
        self.assertEqual(total, 399)


class Storm:
    """A network between an uplink and a node that takes messages and forgets some of them."""

    def __init__(self, seed, kind=Uplink, spool_kind=Spool):
        self.random = Random(seed)
        self.node = Node()
        self.uplink, self.spool, _ = make_uplink(Flash(16), 0, kind, spool_kind)
        self.sent = 0
        self.held = []

    def run(self, steps=400, calm_steps=200):
        now = 0
        for step in range(steps + calm_steps):
            now += 700
            calm = step >= steps
            if not calm and self.random.below(3) == 0:
                self.sent += 1
                self.spool.put(make_vector(self.sent), 100, now)
            if self.random.below(40) == 0:
                self.uplink.connect("node-a")
            message = self.uplink.next_message(now)
            if message is not None:
                self.carry(message, now, calm)
            if self.held and self.random.below(4) == 0:
                self.deliver(self.held.pop(0), now, calm)
        return self

    def carry(self, message, now, calm):
        fate = 9 if calm else self.random.below(10)
        if fate < 3:
            return
        if fate == 3:
            self.held.append(message)
        self.deliver(message, now, calm)

    def deliver(self, message, now, calm):
        try:
            is_batch = self.node.take(*message)
        except ProtocolError:  # of an answer before the last
            return
        answer = self.node.acknowledge if is_batch else self.node.answer_hello
        answer = answer()
        if calm or self.random.below(3):
            self.uplink.receive(ACK, answer, now)

    def find_wrong(self):
        """Return what was lost or came under two numbers."""
        missing = [s for s in range(1, self.sent + 1) if (1, s) not in self.node.committed]
        return missing + self.node.conflicts


class Hasty(Spool):
    """Hands out the next batch before the one before is acknowledged."""

    last = 0

    def peek(self, now, room, count=16):  # noqa: ARG002
        epoch, last, vectors = Spool.peek(self, now, room, 64)
        vectors = [v for v in vectors if (v[2] << 8 | v[3]) > self.last]
        if not vectors:
            self.last = 0
            return 0, 0, []
        self.last = last
        return epoch, last, vectors


class HastyUplink(Uplink):
    def _is_waiting(self, now):  # noqa: ARG002
        return False


class Renumbering(Uplink):
    """Gives a batch that is sent again new numbers."""

    def next_message(self, now):
        message = Uplink.next_message(self, now)
        if message is None or not message[0].endswith("nv"):
            return message
        read = int.from_bytes
        answer = frames.HelloAnswer(1, read(self._answer[:4], "big"), read(self._answer[4:], "big"))
        frame = frames.open_frame(make_key(), frames.UP, message[1], answer)
        vectors = []
        self.number = getattr(self, "number", 0)
        for vector in frames.split_vectors(frame.body):
            self.number += 1
            vectors.append(vector[:2] + bytes([self.number >> 8, self.number & 255]) + vector[4:])
        batch = frames.DeviceBatch(1, self.number, vectors)
        frame = frames.pack_batch(batch, 1, frame.sequence, frame.elapsed)
        return message[0], frames.seal(make_key(), frames.UP, frame, answer)


class Storms(unittest.TestCase):
    def test_nothing_is_lost_and_nothing_has_two_numbers(self):
        for seed in range(1, 9):
            storm = Storm(seed).run()
            self.assertGreater(storm.sent, 50)
            self.assertEqual(storm.find_wrong(), [])
            self.assertFalse(storm.spool.has_waiting())

    def test_ablation_not_waiting_for_the_node_loses(self):
        wrong = [Storm(seed, HastyUplink, Hasty).run().find_wrong() for seed in range(1, 9)]
        self.assertTrue(any(wrong))

    def test_ablation_new_numbers_bring_doubles(self):
        wrong = [Storm(seed, Renumbering).run(40, 0) for seed in range(1, 4)]
        self.assertTrue(any(len(s.node.committed) > s.sent for s in wrong))


class Ablations(Case):
    def test_without_a_memory_of_numbers_a_replay_is_obeyed(self):
        class Forgetful(Spool):
            def note_seen(self, *_):
                return True

        uplink, _, manager = make_uplink(Flash(8), spool_kind=Forgetful)
        frame = self.node.subscribe(make_subscription(1))
        uplink.receive(SV, frame, 0)
        uplink.receive(SV, self.node.remove(1), 0)
        self.assertTrue(uplink.receive(SV, frame, 0))
        self.assertEqual(manager.languages[0].filter.count, 1)

    def test_without_the_tag_a_forgery_is_obeyed(self):
        class Trusting(FrameKey):
            def open(self, payload):
                return payload[0] & 63, payload[6], payload[10], payload[11:-8]

        uplink, _, manager = make_uplink(Flash(8))
        uplink._keys["node-a"] = Trusting("dog-1", "node-a", 7, SECRET)
        uplink.connect("node-a")
        head = b"\x81\0\7" + b"\0\0\0\1" * 2
        forged = head + frames.join_vectors([make_subscription(1)]) + bytes(8)
        uplink.receive(SV, forged, 0)
        self.assertEqual(manager.languages[0].filter.count, 1)


if __name__ == "__main__":
    unittest.main()
