"""MicroPython's `cryptolib.aes` on CPython, over the package `cryptography`; not for boards.

A runtime that has neither cannot import this file, and so has no device link: a frame that is not
encrypted is no frame.
"""

try:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
except ImportError:  # MicroPython
    raise ImportError("no cryptolib: a device link needs its AES") from None

_ECB = 1
_CBC = 2


class aes:
    """AES under one key, blocks for themselves or chained."""

    def __init__(self, key: bytes, mode: int, start: bytes = b"") -> None:
        if mode not in (_ECB, _CBC):
            raise ValueError("mode")
        chosen = modes.CBC(start) if mode == _CBC else modes.ECB()
        self._encryptor = Cipher(algorithms.AES(key), chosen).encryptor()

    def encrypt(self, text: bytes, out: "bytearray | None" = None) -> bytes:
        """Return whole blocks encrypted; or in `out`, which may be the text itself."""
        done = self._encryptor.update(bytes(text))
        if out is not None:
            out[:] = done
        return done
