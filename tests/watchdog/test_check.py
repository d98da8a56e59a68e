"""`check` accepts exactly the frames that `denwatch.protocol.subscription.decode` accepts."""

import unittest

from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.subscription import decode, encode
from denwatch.watchdog.check import check
from denwatch.watchdog.rating import name_attribute

from tests.protocol.golden import SUBSCRIPTIONS
from tests.protocol.samples import Dice, draw_subscription

# Fields of a place: sections.py.
FEATURES, COUNT, WIDES, SIGNIFICANT = 0, 1, 6, 11
ROUNDS = 150
DAMAGES = 25


def is_accepted(read, frame):
    try:
        read(frame)
    except ProtocolError:
        return False
    return True


def damage(dice, frame):
    """Return the frame with a few bytes changed, cut, added or repeated."""
    out = bytearray(frame)
    for _ in range(1 + dice.below(2)):
        at = dice.below(len(out))
        what = dice.below(6)
        if what == 0:
            out = out[:at] + bytes([dice.byte()]) + out[at:]
        elif what == 1 and len(out) > 1:
            out = out[:at] + out[at + 1 :]
        elif what == 2:
            out[at] ^= 1 << dice.below(8)
        elif what == 3:
            out[1 + dice.below(min(12, len(out) - 1))] = dice.byte()
        elif what == 4:
            out[at] = (0, 1, 2, 0x40, 0x42, 0x52, 0x60, 0x80, 0xB7, 0xB8)[dice.below(10)]
        else:
            out[at] = dice.byte()
    return bytes(out)


class CheckTest(unittest.TestCase):
    def test_golden_vectors_pass(self):
        for name, s, code in SUBSCRIPTIONS:
            place = check(bytes.fromhex(code))
            self.assertEqual(place[FEATURES], s.features, name)
            self.assertEqual(place[COUNT], len(s.predicates), name)
            self.assertEqual(place[SIGNIFICANT] > 0, s.significance is not None, name)

    def test_places_are_those_of_the_object(self):
        dice = Dice(21)
        for _ in range(100):
            s = draw_subscription(dice)
            frame = encode(s)
            place = check(frame)
            wides = 0
            for i in range(len(s.predicates)):
                p = s.predicates[i]
                self.assertEqual(name_attribute(frame, place, i), p.attribute)
                wides |= (1 << p.attribute) if p.wide else 0
            self.assertEqual(place[WIDES], wides)

    def test_damaged_frames_are_judged_as_by_decode(self):
        dice = Dice(22)
        accepted = 0
        for _ in range(ROUNDS):
            frame = encode(draw_subscription(dice, dice.chance(5)))
            self.assertTrue(is_accepted(check, frame), frame)
            for _ in range(DAMAGES):
                bad = damage(dice, frame)
                right = is_accepted(decode, bad)
                self.assertEqual(is_accepted(check, bad), right, bad.hex())
                accepted += right
        self.assertGreater(accepted, ROUNDS)  # both verdicts occur

    def test_every_prefix_and_every_following_byte_is_refused(self):
        for name, _, code in SUBSCRIPTIONS:
            frame = bytes.fromhex(code)
            for stop in range(len(frame)):
                self.assertRaises(ProtocolError, check, frame[:stop])
            self.assertRaises(ProtocolError, check, frame + b"\0")
            self.assertFalse(is_accepted(check, b"\x81" + frame[1:]), name)

    def test_every_byte_value_everywhere_is_judged_as_by_decode(self):
        for i in range(0, len(SUBSCRIPTIONS), 4):
            name, _, code = SUBSCRIPTIONS[i]
            frame = bytearray(bytes.fromhex(code))
            for at in range(len(frame)):
                kept = frame[at]
                for value in range(0, 256, 5):
                    frame[at] = value
                    bad = bytes(frame)
                    self.assertEqual(
                        is_accepted(check, bad), is_accepted(decode, bad), (name, bad.hex())
                    )
                frame[at] = kept

    def test_refusal_says_where(self):
        frame = bytearray(bytes.fromhex(SUBSCRIPTIONS[1][2]))
        frame[8], frame[9] = 9, 4
        with self.assertRaises(ProtocolError) as caught:
            check(bytes(frame))
        self.assertEqual(str(caught.exception), "byte 8: not a sound subscription vector")
