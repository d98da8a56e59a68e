"""HMAC-SHA256 cut to 8 bytes (COSE's HMAC 256/64) and its comparison in constant time, for devices.

CPython has both in `hmac`, which `frames` uses. MicroPython has neither, only SHA-256: there they
are ours, and the tests hold them against `hmac`.
"""

from hashlib import sha256

TAG = 8
_BLOCK = 64


class PortableKey:
    """A key with its two pads made once: half the time and a third of the heap of each tag."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) > _BLOCK:
            secret = sha256(secret).digest()
        padded = secret + bytes(_BLOCK - len(secret))
        self.inner = bytes([byte ^ 0x36 for byte in padded])
        self.outer = bytes([byte ^ 0x5C for byte in padded])

    def tag(self, message: bytes) -> bytes:
        """Return the first 8 bytes of the HMAC."""
        inner = sha256(self.inner)
        inner.update(message)
        outer = sha256(self.outer)
        outer.update(inner.digest())
        return outer.digest()[:TAG]


def equal_portable(a: bytes, b: bytes) -> bool:
    """Return whether two tags are equal, in a time that does not tell where they differ."""
    if len(a) != len(b):
        return False
    difference = 0
    for i in range(len(a)):
        difference |= a[i] ^ b[i]
    return difference == 0
