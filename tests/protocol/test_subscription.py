"""Subscription vectors: round trips, sizes, and everything that a decoder must refuse."""

import unittest

from denwatch.protocol.degrees import MAX, SUGENO, WEIGHTED
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.subscription import decode, encode
from denwatch.protocol.vectors import AND, NOT, OR, Predicate, Significance, SubscriptionVector

from tests.protocol.samples import Dice, draw_subscription

THREE = [
    Predicate(3, 200, 255, 90),
    Predicate(4, 60, 100, 80, negated=True),
    Predicate(5, 0, 30, 70),
]


def refusal(frame):
    """Return the error that a frame is refused with, or None."""
    try:
        decode(frame)
    except ProtocolError as error:
        return error
    return None


class SubscriptionTest(unittest.TestCase):
    def test_three_predicates_take_17_bytes(self):
        self.assertEqual(len(encode(SubscriptionVector(1, THREE, handle=65535, validity=9))), 17)

    def test_features_of_attributes_4_5_and_6_are_56(self):
        # The DENS paper counts attributes from 1.
        self.assertEqual(encode(SubscriptionVector(1, THREE))[6:8], bytes([0, 56]))

    def test_decoding_undoes_encoding(self):
        dice = Dice(21)
        for _ in range(300):
            s = draw_subscription(dice)
            frame = encode(s)
            self.assertEqual(decode(frame), s)
            self.assertEqual(encode(decode(frame)), frame)

    def test_every_truncated_prefix_is_refused_where_it_ends(self):
        dice = Dice(22)
        for _ in range(40):
            frame = encode(draw_subscription(dice))
            for size in range(len(frame)):
                error = refusal(frame[:size])
                self.assertIsNotNone(error, (frame, size))
                self.assertTrue(0 <= error.at <= size, (frame, size, error))

    def test_bytes_that_follow_are_refused(self):
        frame = encode(SubscriptionVector(1, THREE))
        self.assertEqual(refusal(frame + b"\x00").at, 17)
        self.assertEqual(refusal(frame + bytes(300)).at, 255)

    def test_other_types_and_versions_are_refused(self):
        frame = bytearray(encode(SubscriptionVector(1, THREE)))
        for head in (0x01, 0x81, 0xC1):
            frame[0] = head
            self.assertEqual(refusal(frame).at, 0)

    def test_refusals_name_the_byte(self):
        plain = "41000000800000"  # up to the first byte of the features
        for text, at in (
            ("41000000" + "80b8" + "0008" + "101005", 5),  # validity beyond a year
            (plain + "00" + "101005", 7),  # no features
            (plain + "08" + "201005", 9),  # low above high
            ("4110" + "0000" + "8000" + "0000" + "101005", 7),  # no features
            ("4120" + "0000" + "8000" + "0008" + "101005", 1),  # second predicate negated
            ("4108" + "0000" + "8000" + "0008" + "00101005", 8),  # no section
            ("4108" + "0000" + "8000" + "0008" + "8000101005", 9),  # empty more
            ("4108" + "0000" + "8000" + "0008" + "8080101005", 9),  # reserved bit of more
            ("4108" + "0000" + "8000" + "0008" + "804000101005", 10),  # restrictors of zero
            ("4108" + "0000" + "8000" + "0008" + "8040b8101005", 13),  # a restrictor beyond a year
            ("4108" + "0000" + "8000" + "0008" + "0100" + "101005", 9),  # no repeats
            ("4108" + "0000" + "8000" + "0008" + "0110" + "101005", 9),  # too many repeats
            ("4108" + "0000" + "8000" + "0008" + "010110" + "101005", 10),  # attribute 16
            ("4108" + "0000" + "8000" + "0008" + "010104" + "101005", 10),  # not a feature
            ("4108" + "0000" + "8000" + "0018" + "01020403" + "101005" * 4, 11),  # falling
            ("4108" + "0000" + "8000" + "0008" + "020010" + "101005", 10),  # negated 5th of 1
            ("4108" + "0000" + "8000" + "0008" + "0400" + "101005", 9),  # hedge of nothing
            ("4108" + "0000" + "8000" + "0008" + "0411" + "101005", 9),  # hedge of no predicate
            ("4108" + "0000" + "8000" + "0008" + "0440" + "101005", 12),  # second hedge only
            ("4108" + "0000" + "8000" + "0008" + "080000" + "101005", 10),  # no asymmetry
            ("4108" + "0000" + "8000" + "0008" + "080002" + "10100507", 10),
            ("4108" + "0000" + "8000" + "0008" + "080001" + "10100505", 14),  # equal gammas
            ("4108" + "0000" + "8000" + "0008" + "100004" + "101005", 10),  # wide is no feature
            ("4108" + "0000" + "8000" + "0008" + "2081" + "40" + "101005", 10),  # bad operator
            ("4108" + "0000" + "8000" + "0008" + "2080" + "101005", 9),  # empty pattern
            ("4108" + "0000" + "8000" + "0008" + "202c12" + "101005", 10),  # three operands of one
            ("4108" + "0000" + "8000" + "0008" + "200112" + "101005", 9),  # no such code
            ("4108" + "0000" + "8000" + "0008" + "800100" + "101005", 10),  # certain of zero
            ("4108" + "0000" + "8000" + "0008" + "80020000" + "101005", 11),  # thetas of zero
            ("410e" + "0000" + "8000" + "0008" + "800400" + "101005", 13),  # weight of zero
            ("4108" + "0000" + "8000" + "0008" + "800401" + "101005", 1),  # weights for min
            ("410e" + "0000" + "8000" + "0008" + "40" + "101005", 1),  # weighted without weights
            ("4108" + "0000" + "8000" + "0008" + "800800" + "101005", 10),  # empty significance
            ("4108" + "0000" + "8000" + "0008" + "80084001" + "101005", 10),  # reserved bit
            ("4108" + "0000" + "8000" + "0008" + "80088001" + "101005", 10),
            ("4108" + "0000" + "8000" + "0008" + "80080200" + "101005", 11),  # relative of zero
            ("4108" + "0000" + "8000" + "0008" + "80080100" + "101005", 11),  # dead band of zero
            ("4108" + "0000" + "8000" + "0008" + "80080850" + "101005", 11),  # 5 of 0
            ("4108" + "0000" + "8000" + "0008" + "801010b8" + "101005", 11),  # recent beyond a year
            ("4108" + "0000" + "8000" + "0008" + "80101010" + "101005", 14),  # recent does not rise
            ("410f" + "0000" + "8000" + "0018" + "802002ff" + "101005" * 2, 10),  # order 2
            ("4107" + "0000" + "8000" + "0018" + "101005" * 2, 13),  # rules without consequents
            ("4108" + "0000" + "8000" + "0018" + "802000ff" + "101005" * 2, 17),  # not for min
        ):
            error = refusal(bytes.fromhex(text))
            self.assertIsNotNone(error, text)
            self.assertEqual(error.at, at, (text, str(error)))
            self.assertTrue(str(error).startswith(f"byte {at}: "))


class FieldTest(unittest.TestCase):
    def test_fields_out_of_range_are_refused(self):
        one = [Predicate(0, 1, 2)]
        two = [Predicate(0, 1, 2), Predicate(1, 1, 2)]
        for make in (
            lambda: Predicate(16, 1, 2),
            lambda: Predicate(0, -1, 2),
            lambda: Predicate(0, 3, 2),
            lambda: Predicate(0, 3, 256),
            lambda: Predicate(0, 3, 65536, wide=True),
            lambda: Predicate(0, 3, 4, 256),
            lambda: Predicate(0, 3, 4, weight=0),
            lambda: Predicate(0, 3, 4, possible=256),
            lambda: Predicate(0, 3, 4, hedge=16),
            lambda: Predicate(0, 3, 4, hedge=4),
            lambda: SubscriptionVector(64, one),
            lambda: SubscriptionVector(0, []),
            lambda: SubscriptionVector(0, one * 17),
            lambda: SubscriptionVector(0, [two[1], two[0]]),
            lambda: SubscriptionVector(0, two + [two[1], two[0]]),
            lambda: SubscriptionVector(0, [Predicate(0, 1, 2), Predicate(0, 1, 2, wide=True)]),
            lambda: SubscriptionVector(0, one, 8),
            lambda: SubscriptionVector(0, one, threshold=256),
            lambda: SubscriptionVector(0, one, handle=65536),
            lambda: SubscriptionVector(0, one, validity=0xB8),
            lambda: SubscriptionVector(0, one, pattern=bytes([1])),
            lambda: SubscriptionVector(0, two, pattern=bytes([0])),
            lambda: SubscriptionVector(0, two, pattern=bytes([0, 1])),
            lambda: SubscriptionVector(0, two, pattern=bytes([0, 1, AND | 1])),
            lambda: SubscriptionVector(0, two, pattern=bytes([0, OR | 2])),
            lambda: SubscriptionVector(0, two, pattern=bytes([NOT])),
            lambda: SubscriptionVector(0, two, pattern=bytes([0, 1] * 9)),
            lambda: SubscriptionVector(0, two, MAX, pattern=bytes([0, 1, AND | 2])),
            lambda: SubscriptionVector(0, two, recent=(5, 5)),
            lambda: SubscriptionVector(0, two, significance=Significance(b"\x01")),
            lambda: SubscriptionVector(0, two, restrictors=b"\x01"),
            lambda: SubscriptionVector(0, two, restrictors=b"\x00\x00"),
            lambda: SubscriptionVector(0, two, restrictors=b"\x00\xb8"),
            lambda: SubscriptionVector(0, [Predicate(0, 1, 2, weight=2)]),
            lambda: SubscriptionVector(0, two, SUGENO),
            lambda: SubscriptionVector(0, two, consequents=[(1,)]),
            lambda: SubscriptionVector(0, one, SUGENO, consequents=[]),
            lambda: SubscriptionVector(0, two, SUGENO, consequents=[(1,), (2,)]),
            lambda: SubscriptionVector(0, two, SUGENO, consequents=[(1, 2)]),
            lambda: SubscriptionVector(0, two, SUGENO, consequents=[(256,)]),
            lambda: SubscriptionVector(0, two, SUGENO, consequents=[(0, 128, 0)]),
            lambda: SubscriptionVector(0, two, SUGENO, consequents=[(0, 0, 128)]),
            lambda: SubscriptionVector(0, two, SUGENO, consequents=[(32768, 0, 0)]),
            lambda: Significance(),
            lambda: Significance(b"\x00"),
            lambda: Significance(relative=256),
            lambda: Significance(hits=1),
            lambda: Significance(hits=4, window=3),
            lambda: Significance(window=3),
            lambda: Significance(quiet=0xB8),
        ):
            with self.assertRaises(ProtocolError):
                make()

    def test_vector_longer_than_255_bytes_is_refused(self):
        predicates = [Predicate(i, 0, 65535, 1, 2, True, 1, True, 1, 1) for i in range(16)]
        chain = [0] + [x for i in range(1, 16) for x in (i, AND | 2)] + [0, OR | 2] * 48
        s = SubscriptionVector(0, predicates, pattern=bytes(chain), recent=(1, 2))
        with self.assertRaises(ProtocolError) as caught:
            encode(s)
        self.assertEqual(str(caught.exception), "a vector of 282 bytes, 255 is the limit")

    def test_sixteen_rich_predicates_fit(self):
        predicates = [Predicate(i, 0, 65535, 1, 2, True, 1, True, 1, 1, 2) for i in range(16)]
        s = SubscriptionVector(0, predicates, WEIGHTED)
        self.assertEqual(len(encode(s)), 168)
        self.assertEqual(decode(encode(s)), s)

    def test_equal_fields_are_equal_objects(self):
        self.assertEqual(Predicate(1, 2, 3), Predicate(1, 2, 3))
        self.assertNotEqual(Predicate(1, 2, 3), Predicate(1, 2, 4))
        self.assertNotEqual(Predicate(1, 2, 3), 5)
        self.assertEqual(hash(Predicate(1, 2, 3)), hash(Predicate(1, 2, 3)))
        self.assertIn("attribute=1", repr(Predicate(1, 2, 3)))
