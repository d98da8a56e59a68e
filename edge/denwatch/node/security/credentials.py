"""Names, keys and passwords: what is accepted, and how passwords are hashed. Pure but for `make_…`.

A name is part of topics, file names and tags, so it has no separators, wildcards or spaces. A key
must come from a random source. That cannot be proved by looking at it, but what people type and
what examples show can be recognised: text, counting bytes, a repeated piece, too few values.

A password is kept as a scrypt hash, the text "scrypt$14$8$1$salt$hash" with salt and hash in
base64. Passwords that denwatch makes have 148 random bits, which nobody guesses at any cost: they
get a cheap hash. Passwords that a person chose get an expensive one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple


class SecurityError(ValueError):
    """A name, key, signature or key file that is refused: which, and why."""


class Refusal(NamedTuple):
    """Why somebody may not do something: a word to count by, and a sentence for people."""

    reason: str
    words: str

    def __str__(self) -> str:
        return self.words


# Names and keys ------------------------------------------------------------------------------

MAX_NAME = 64
MIN_SECRET = 16
MAX_SECRET = 64
NEW_SECRET = 32

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PRINTABLE = frozenset(range(32, 127))


def check_name(name: str, what: str = "name") -> str:
    """Return a name that may stand in a topic; SecurityError otherwise."""
    if not name:
        raise SecurityError(f"{what}: the name is empty")
    if len(name) > MAX_NAME:
        raise SecurityError(f'{what} "{name[:16]}…": longer than {MAX_NAME} characters')
    if not _NAME.fullmatch(name):
        raise SecurityError(
            f'{what} "{name}": use letters, digits, ".", "_" and "-"; start with a letter or digit'
        )
    return name


def check_secret(secret: bytes, what: str = "key") -> bytes:
    """Return a secret that looks random; SecurityError says why it does not."""
    if not MIN_SECRET <= len(secret) <= MAX_SECRET:
        raise SecurityError(
            f"{what}: {len(secret)} bytes; a key has {MIN_SECRET} to {MAX_SECRET} bytes"
        )
    problem = find_weakness(secret)
    if problem:
        raise SecurityError(f"{what}: {problem}; let `denwatch keys add` make a random key")
    return secret


def find_weakness(secret: bytes) -> str:
    """Return why a secret is not random; "" if it looks random."""
    distinct = len(set(secret))
    # 16 random bytes have fewer than 9 values once in 10^10 times.
    if distinct < MIN_SECRET // 2 + 1:
        return f"only {distinct} different bytes"
    for period in range(1, len(secret) // 2 + 1):
        if secret[period:] == secret[:-period]:
            return f"the same {period} bytes repeated"
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
    """Refuse one key under two names: whoever steals one of them has both."""
    seen: dict[bytes, str] = {}
    for owner, secret in owners:
        if secret in seen:
            raise SecurityError(f"{owner}: has the same key as {seen[secret]}")
        seen[secret] = owner


# Passwords -----------------------------------------------------------------------------------

MIN_CHOSEN = 12
MAX_PASSWORD = 1024  # bytes; more is refused before anything is computed
COST_CHOSEN = 14  # log2 of scrypt's n: 16 MB, about 50 ms
COST_MADE = 8  # 256 kB, below 1 ms
_MAX_COST = 17
_BLOCK = 8
_SALT = 16
_HASH = 32
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # nothing that is misread on paper
_REMEMBERED = 4096


def make_password() -> str:
    """Return a new password of 148 random bits, in groups of five letters."""
    letters = [secrets.choice(_ALPHABET) for _ in range(30)]
    return "-".join("".join(letters[i : i + 5]) for i in range(0, 30, 5))


def check_chosen(password: str, name: str) -> None:
    """Refuse a chosen password that is too easy to guess."""
    if len(password) < MIN_CHOSEN:
        raise SecurityError(f"{name}: a chosen password needs at least {MIN_CHOSEN} characters")
    if len(set(password.casefold())) < MIN_CHOSEN // 2:
        raise SecurityError(f"{name}: the password has too few different characters")
    if name.casefold() in password.casefold():
        raise SecurityError(f"{name}: the password contains the name")


def hash_password(password: bytes, salt: bytes, cost: int) -> str:
    """Return the hash of a password as text."""
    digest = _compute(password, salt, cost, _BLOCK, 1)[:_HASH]
    encoded = [base64.b64encode(part).decode() for part in (salt, digest)]
    return "$".join(["scrypt", str(cost), str(_BLOCK), "1", *encoded])


def make_hash(password: str, cost: int = COST_CHOSEN) -> str:
    """Return the hash of a password as text, with a new salt."""
    return hash_password(password.encode(), secrets.token_bytes(_SALT), cost)


def check_hash(text: str, what: str) -> None:
    """Refuse a text that is not a hash, or whose cost is too low or too high."""
    _parse(text, what)


def verify_password(text: str, password: bytes) -> bool:
    """Return whether a password belongs to a hash."""
    return open_hash(text, password) is not None


def open_hash(text: str, password: bytes) -> bytes | None:
    """Return the secret that a hash and its password have in common; None for a wrong password.

    Every node has the hash; the secret knows only where the password was given. It is the second
    block of scrypt's output, which does not follow from the first, the hash.
    """
    cost, block, lanes, salt, digest = _parse(text, "password")
    if len(password) > MAX_PASSWORD:
        return None
    found = _compute(password, salt, cost, block, lanes)
    return found[_HASH:] if hmac.compare_digest(found[:_HASH], digest) else None


def _compute(password: bytes, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    memory = 129 * block * (1 << cost) * lanes + (1 << 20)
    return hashlib.scrypt(
        password, salt=salt, n=1 << cost, r=block, p=lanes, maxmem=memory, dklen=2 * _HASH
    )


def _parse(text: str, what: str) -> tuple[int, int, int, bytes, bytes]:
    parts = text.split("$")
    try:
        if len(parts) != 6 or parts[0] != "scrypt":
            raise ValueError
        cost, block, lanes = map(int, parts[1:4])
        salt, digest = (base64.b64decode(part, validate=True) for part in parts[4:])
    except (ValueError, binascii.Error):
        raise SecurityError(f"{what}: not a scrypt hash") from None
    if not COST_MADE <= cost <= _MAX_COST or block != _BLOCK or lanes != 1:
        raise SecurityError(f"{what}: scrypt parameters that denwatch does not use")
    if len(salt) < _SALT or len(digest) != _HASH:
        raise SecurityError(f"{what}: a salt or hash of the wrong length")
    return cost, block, lanes, salt, digest


class VerifiedPasswords:
    """Remembers which password was right for which hash, so that frequent clients pay once.

    Bounded, and kept as digests under a key that exists only in this process's memory, each with
    the secret of `open_hash`.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[bytes, bytes] = {}
        self.computed = 0  # how often scrypt ran

    def is_known(self, text: str, password: bytes) -> bool:
        """Return whether the password was right before."""
        return self._digest(text, password) in self._known

    def open(self, text: str, password: bytes) -> bytes | None:
        """Return the secret of a hash (`open_hash`); scrypt runs unless it was right before."""
        digest = self._digest(text, password)
        known = self._known.get(digest)
        if known is not None:
            return known
        self.computed += 1
        secret = open_hash(text, password)
        if secret is not None:
            if len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[digest] = secret
        return secret

    def _digest(self, text: str, password: bytes) -> bytes:
        return hmac.digest(self._key, text.encode() + b"\0" + password, "sha256")
