"""AES-CCM with 13 bytes of nonce and 8 of tag (COSE's AES-CCM-16-64-128, RFC 9053), for devices.

CPython has it in `cryptography`, which `frames` uses. MicroPython has AES alone, in `cryptolib`:
blocks of a counter (ECB) are the key stream, and a chain of blocks (CBC) ends in the tag. Each of
the two is one call, so that little is left to the interpreter. The tests hold every byte against
RFC 3610's examples and against `cryptography`. A nonce must never serve twice under a key: that is
the callers' part.
"""

try:
    from cryptolib import aes  # type: ignore[import-not-found]
except ImportError:  # CPython; and a MicroPython without cryptolib, which has no device link
    from .aes import aes


def encrypt(key: bytes, nonce: bytes, body: bytes, covered: bytes) -> bytes:
    """Return a body that nobody else can read, and its tag, which covers more than the body."""
    return _mix(key, nonce, _tag(key, nonce, body, covered) + body)


def decrypt(key: bytes, nonce: bytes, sealed: bytes, covered: bytes) -> "bytes | None":
    """Return the body, None if the tag is wrong; how long that takes does not tell where."""
    text = _mix(key, nonce, sealed[-8:] + sealed[:-8])
    body = text[:-8]
    tag = _tag(key, nonce, body, covered)
    wrong = 0
    for i in range(8):
        wrong |= tag[i] ^ text[i - 8]
    return None if wrong else body


def _tag(key: bytes, nonce: bytes, body: bytes, covered: bytes) -> bytes:
    size = len(body) << 16 | len(covered)
    chain = b"\x59" + nonce + size.to_bytes(4, "big") + covered
    chain += bytes(-len(chain) & 15) + body + bytes(-len(body) & 15)
    return aes(key, 2, bytes(16)).encrypt(chain)[-16:-8]  # type: ignore[no-any-return]


def _mix(key: bytes, nonce: bytes, text: bytes) -> bytes:
    """Return the body and then the tag, which stands before it in `text`, under the key stream."""
    stream = bytearray()
    for i in range((len(text) + 23) // 16):
        stream += b"\x01" + nonce + i.to_bytes(2, "big")
    aes(key, 1).encrypt(stream, stream)
    stream = stream[:8] + stream[16:]  # the tag has a block of its own
    for i in range(len(text)):
        stream[i] ^= text[i]
    return bytes(stream[8 : len(text)] + stream[:8])
