"""AES-CCM against RFC 3610's examples, plain AES and, on CPython, the package `cryptography`."""

import unittest

from denwatch.protocol import ccm, frames

from tests.protocol import aes as plain
from tests.watchdog.flash import Random

KEY = bytes(range(0xC0, 0xD0))
HEAD = bytes(range(8))
# Packet vectors 1 to 3: nonce, length of the packet with its head, what comes out.
EXAMPLES = (
    (
        "00000003020100a0a1a2a3a4a5",
        31,
        "588c979a61c663d2f066d0c2c0f989806d5f6b61dac38417e8d12cfdf926e0",
    ),
    (
        "00000004030201a0a1a2a3a4a5",
        32,
        "72c91a36e135f8cf291ca894085c87e3cc15c439c9e43a3ba091d56e10400916",
    ),
    (
        "00000005040302a0a1a2a3a4a5",
        33,
        "51b1e5f44a197d1da46b0f8e2d282ae871e838bb64da8596574adaa76fbd9fb0c5",
    ),
)


class CcmTest(unittest.TestCase):
    def test_plain_aes_is_that_of_the_standard(self):
        key, text = bytes(range(16)), bytes([17 * i for i in range(16)])
        expected = bytes.fromhex("69c4e0d86a7b0430d8cdb78070b4c55a")  # FIPS 197, C.1
        self.assertEqual(plain.aes(key, 1).encrypt(text), expected)

    def test_the_aes_that_is_used_is_the_plain_one(self):
        random = Random(5)
        for size in (16, 32, 160):
            key = bytes([random.bits(8) for _ in range(16)])
            text = bytes([random.bits(8) for _ in range(size)])
            for mode, start in ((1, ()), (2, (bytes(range(16)),))):
                expected = plain.aes(key, mode, *start).encrypt(text)
                self.assertEqual(bytes(ccm.aes(key, mode, *start).encrypt(text)), expected)
                inside = bytearray(text)
                ccm.aes(key, mode, *start).encrypt(inside, inside)
                self.assertEqual(bytes(inside), expected)

    def test_other_modes_are_refused(self):
        for mode in (0, 3):
            with self.assertRaises(ValueError):
                ccm.aes(KEY, mode, bytes(16))

    def test_examples(self):
        for nonce, size, sealed in EXAMPLES:
            body = bytes(range(8, size))
            nonce = bytes.fromhex(nonce)
            sealed = bytes.fromhex(sealed)
            for way in (ccm, frames):
                self.assertEqual(way.encrypt(KEY, nonce, body, HEAD), sealed)
                self.assertEqual(way.decrypt(KEY, nonce, sealed, HEAD), body)

    def test_every_length_opens_and_both_ways_agree(self):
        random = Random(6)
        nonce = bytes(range(13))
        for size in list(range(50)) + [255, 256, 900]:
            body = bytes([random.bits(8) for _ in range(size)])
            covered = bytes(1 + size % 40)
            sealed = ccm.encrypt(KEY, nonce, body, covered)
            self.assertEqual(len(sealed), size + 8)
            self.assertEqual(frames.encrypt(KEY, nonce, body, covered), sealed)
            self.assertEqual(ccm.decrypt(KEY, nonce, sealed, covered), body)

    def test_whatever_is_changed_is_refused(self):
        nonce = bytes(range(13))
        sealed = ccm.encrypt(KEY, nonce, b"body", HEAD)
        for way in (ccm, frames):
            for i in range(len(sealed)):
                forged = bytearray(sealed)
                forged[i] ^= 1 << i % 8
                self.assertIsNone(way.decrypt(KEY, nonce, bytes(forged), HEAD))
            self.assertIsNone(way.decrypt(KEY, nonce, sealed, HEAD[1:]))
            self.assertIsNone(way.decrypt(KEY, bytes(13), sealed, HEAD))
            self.assertIsNone(way.decrypt(HEAD + HEAD, nonce, sealed, HEAD))
            self.assertIsNone(way.decrypt(KEY, nonce, sealed[:-1], HEAD))
            self.assertIsNone(way.decrypt(KEY, nonce, sealed[-8:], HEAD))


if __name__ == "__main__":
    unittest.main()
