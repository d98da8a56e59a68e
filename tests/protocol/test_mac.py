"""HMAC-SHA256 against the examples of RFC 4231 (test cases 1 to 4 and 6)."""

import unittest

from denwatch.protocol.frames import Key, equal
from denwatch.protocol.mac import PortableKey, equal_portable

EXAMPLES = (
    (b"\x0b" * 20, b"Hi There", "b0344c61d8db3853"),
    (b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e"),
    (b"\xaa" * 20, b"\xdd" * 50, "773ea91e36800e46"),
    (bytes(range(1, 26)), b"\xcd" * 50, "82558a389a443c0e"),
    (
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f",
    ),
)


class MacTest(unittest.TestCase):
    def test_examples(self):
        for secret, message, tag in EXAMPLES:
            for kind in (Key, PortableKey):
                key = kind(secret)
                self.assertEqual(key.tag(message), bytes.fromhex(tag))
                self.assertEqual(key.tag(message), bytes.fromhex(tag))  # a key serves again

    def test_comparison(self):
        for compare in (equal, equal_portable):
            self.assertTrue(compare(b"12345678", b"12345678"))
            self.assertFalse(compare(b"12345678", b"12345679"))
            self.assertFalse(compare(b"22345678", b"12345678"))
            self.assertFalse(compare(b"1234567", b"12345678"))
