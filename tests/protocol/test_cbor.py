"""The device's CBOR: examples of RFC 8949, round trips, and every refusal."""

import unittest

from denwatch.protocol.cbor import (
    MAX_SIZE,
    decode,
    decode_portable,
    encode,
    encode_portable,
    is_plain,
)
from denwatch.protocol.errors import ProtocolError

# From RFC 8949, appendix A, as far as messages may hold them.
EXAMPLES = (
    (0, "00"),
    (23, "17"),
    (24, "1818"),
    (100, "1864"),
    (1000, "1903e8"),
    (1000000, "1a000f4240"),
    (1000000000000, "1b000000e8d4a51000"),
    (18446744073709551615, "1bffffffffffffffff"),
    (-18446744073709551616, "3bffffffffffffffff"),
    (-1, "20"),
    (-10, "29"),
    (-100, "3863"),
    (-1000, "3903e7"),
    (False, "f4"),
    (True, "f5"),
    (None, "f6"),
    (b"", "40"),
    (b"\x01\x02\x03\x04", "4401020304"),
    ("", "60"),
    ("IETF", "6449455446"),
    ("\u00fc", "62c3bc"),
    ("\u6c34", "63e6b0b4"),
    ([], "80"),
    ([1, [2, 3], [4, 5]], "8301820203820405"),
    (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ({}, "a0"),
    ({1: 2, 3: 4}, "a201020304"),
    ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
    ({1000: 0, -1: 0, "aa": 0, "": 0, 24: 0, 10: 0}, "a60a0020006000181800 1903e800 62616100"),
)

REFUSED = (
    ("", 0),  # nothing
    ("0000", 1),  # more than one
    ("18", 1),  # ends inside a number
    ("1817", 0),  # leading zeros
    ("1900ff", 0),
    ("1a0000ffff", 0),
    ("1b00000000ffffffff", 0),
    ("1c", 0),  # reserved
    ("5f4101ff", 0),  # open length
    ("9f01ff", 0),
    ("bf0102ff", 0),
    ("ff", 0),
    ("f7", 0),  # undefined
    ("f0", 0),  # a simple value
    ("f818", 0),
    ("f93c00", 0),  # floats
    ("fb3ff8000000000000", 0),
    ("c001", 0),  # tags
    ("c5821a3b9aca0001", 0),  # a big float of a gigabyte
    ("41", 1),  # ends inside a string
    ("6180", 1),  # not UTF-8
    ("62c080", 1),  # overlong
    ("63eda080", 1),  # a surrogate
    ("61ff", 1),
    ("61c3", 1),  # ends inside a character
    ("62c341", 1),
    ("64f4908080", 1),  # beyond Unicode
    ("63e08080", 1),
    ("82 01", 2),
    ("9b7fffffffffffffff", 9),  # a huge array
    ("a201020103", 3),  # the same key twice
    ("a203040102", 3),  # keys out of order
    ("a1f601", 1),  # null, true, an array or a map as a key
    ("a1f501", 1),
    ("a18001", 1),
    ("a1a001", 1),
    ("a1416101", 1),  # bytes as a key
    ("81" * 9 + "00", 8),  # nine deep
)


class CborTest(unittest.TestCase):
    def test_examples(self):
        for value, text in EXAMPLES:
            frame = bytes.fromhex(text.replace(" ", ""))
            for write, read in ((encode, decode), (encode_portable, decode_portable)):
                self.assertEqual(write(value), frame, text)
                self.assertEqual(read(frame), value, text)
                self.assertEqual(type(read(frame)), type(value), text)

    def test_refusals_name_the_byte(self):
        for text, at in REFUSED:
            frame = bytes.fromhex(text.replace(" ", ""))
            for read in (decode, decode_portable):
                with self.assertRaises(ProtocolError) as caught:
                    read(frame)
                self.assertEqual(caught.exception.at, at, text)

    def test_every_truncated_prefix_is_refused(self):
        for value, text in EXAMPLES:
            frame = encode([value, value])
            for size in range(len(frame)):
                with self.assertRaises(ProtocolError):
                    decode(frame[:size])
            self.assertTrue(text)

    def test_values_without_a_place_are_refused(self):
        nested = 1
        for _ in range(9):
            nested = [nested]
        for value in (1.5, 1 << 64, -(1 << 64) - 1, {None: 1}, {True: 1}, {(1,): 1}, nested, print):
            for write in (encode, encode_portable):
                with self.assertRaises(ProtocolError):
                    write(value)

    def test_text_of_every_length_of_character(self):
        for text in ("a", "é", "水", "𝄞", "aé水𝄞"):
            for write, read in ((encode, decode), (encode_portable, decode_portable)):
                self.assertEqual(read(write(text)), text)

    def test_eight_deep_is_allowed(self):
        nested = {1: 1}
        for _ in range(7):
            nested = [nested]
        self.assertEqual(decode(encode(nested)), nested)
        self.assertEqual(encode_portable(nested), encode(nested))
        self.assertFalse(is_plain([nested]))

    def test_frames_beyond_the_limit_are_refused(self):
        for read in (decode, decode_portable):
            with self.assertRaises(ProtocolError) as caught:
                read(bytes(MAX_SIZE + 1))
            self.assertEqual(caught.exception.at, MAX_SIZE)

    def test_tuples_and_bytearrays_are_written_as_arrays_and_bytes(self):
        for write in (encode, encode_portable):
            self.assertEqual(write((1, bytearray(b"\x02"))), b"\x82\x01\x41\x02")
