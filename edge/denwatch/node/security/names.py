"""Which names and which keys are good enough. Pure; the only file that decides it.

A name stands in topics, in file names and under tags, so it has no separators, wildcards or spaces.
A key comes from a random source. That cannot be proved by looking at it, but what people type and
what examples show can be told from it: text, counting bytes, a repeated piece, too few values.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from itertools import pairwise

from denwatch.node.security.errors import SecurityError

MAX_NAME = 64
MIN_SECRET = 16
MAX_SECRET = 64
NEW_SECRET = 32

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PRINTABLE = frozenset(range(32, 127))


def check_name(name: str, what: str = "name") -> str:
    """Return a name that may stand in a topic; SecurityError otherwise."""
    if not name:
        raise SecurityError(f"{what}: a name is missing")
    if len(name) > MAX_NAME:
        raise SecurityError(f'{what} "{name[:16]}…": longer than {MAX_NAME} characters')
    if not _NAME.fullmatch(name):
        raise SecurityError(
            f'{what} "{name}": letters, digits, ".", "_" and "-", starting with a letter or digit'
        )
    return name


def check_secret(secret: bytes, what: str = "key") -> bytes:
    """Return a secret that looks random; SecurityError says what gives it away."""
    if not MIN_SECRET <= len(secret) <= MAX_SECRET:
        raise SecurityError(
            f"{what}: {len(secret)} bytes; a key has {MIN_SECRET} to {MAX_SECRET} bytes"
        )
    problem = find_weakness(secret)
    if problem:
        raise SecurityError(f"{what}: {problem}; let `denwatch keys add` make one")
    return secret


def find_weakness(secret: bytes) -> str:
    """Return why a secret is not random, or nothing."""
    distinct = len(set(secret))
    # 16 random bytes have fewer than 9 values once in 10^10 times.
    if distinct < MIN_SECRET // 2 + 1:
        return f"only {distinct} different bytes"
    for period in range(1, len(secret) // 2 + 1):
        if secret[period:] == secret[:-period]:
            return f"the same {period} bytes again and again"
    if len({(b - a) & 255 for a, b in pairwise(secret)}) == 1:
        return "bytes that count up or down"
    if _PRINTABLE.issuperset(secret):
        return "it is text, which can be guessed"
    return ""


def read_secret(text: str, what: str = "key") -> bytes:
    """Return the secret of hexadecimal digits."""
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        raise SecurityError(f"{what}: not hexadecimal") from None
    return check_secret(secret, what)


def make_secret() -> bytes:
    """Return a new key from the machine's random source."""
    while True:
        secret = secrets.token_bytes(NEW_SECRET)
        if not find_weakness(secret):
            return secret


def check_distinct(owners: Iterable[tuple[str, bytes]]) -> None:
    """Refuse two owners of one key: whoever takes one of them has both."""
    seen: dict[bytes, str] = {}
    for owner, secret in owners:
        if secret in seen:
            raise SecurityError(f"{owner}: has the same key as {seen[secret]}")
        seen[secret] = owner
