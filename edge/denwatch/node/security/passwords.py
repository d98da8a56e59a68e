"""Passwords of people's apps: kept as scrypt hashes, checked at every CONNECT.

A hash is the text "scrypt$14$8$1$salt$hash", both in base64. What denwatch makes itself has 148
random bits, which nobody guesses at any cost: those get a cheap hash. What a person chose gets a
dear one. `VerifiedPasswords` remembers what was right under a key that lives in memory only, so
that a client that connects often pays once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from denwatch.node.security.errors import SecurityError

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
    """Refuse a password of a person that is too easy."""
    if len(password) < MIN_CHOSEN:
        raise SecurityError(f"{name}: a chosen password has {MIN_CHOSEN} characters at least")
    if len(set(password.casefold())) < MIN_CHOSEN // 2:
        raise SecurityError(f"{name}: a password of so few different characters is guessed")
    if name.casefold() in password.casefold():
        raise SecurityError(f"{name}: the password contains the name")


def hash_password(password: bytes, salt: bytes, cost: int) -> str:
    """Return the text to keep of a password."""
    digest = _compute(password, salt, cost, _BLOCK, 1)
    encoded = [base64.b64encode(part).decode() for part in (salt, digest)]
    return "$".join(["scrypt", str(cost), str(_BLOCK), "1", *encoded])


def make_hash(password: str, cost: int = COST_CHOSEN) -> str:
    """Return the text to keep of a password, with a new salt."""
    return hash_password(password.encode(), secrets.token_bytes(_SALT), cost)


def check_hash(text: str, what: str) -> None:
    """Refuse a text that is no hash, or one that costs nothing or a minute."""
    _parse(text, what)


def verify_password(text: str, password: bytes) -> bool:
    """Return whether a password is the one of a hash."""
    cost, block, lanes, salt, digest = _parse(text, "password")
    if len(password) > MAX_PASSWORD:
        return False
    return hmac.compare_digest(_compute(password, salt, cost, block, lanes), digest)


def _compute(password: bytes, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    memory = 129 * block * (1 << cost) * lanes + (1 << 20)
    return hashlib.scrypt(
        password, salt=salt, n=1 << cost, r=block, p=lanes, maxmem=memory, dklen=_HASH
    )


def _parse(text: str, what: str) -> tuple[int, int, int, bytes, bytes]:
    parts = text.split("$")
    try:
        if len(parts) != 6 or parts[0] != "scrypt":
            raise ValueError
        cost, block, lanes = map(int, parts[1:4])
        salt, digest = (base64.b64decode(part, validate=True) for part in parts[4:])
    except (ValueError, binascii.Error):
        raise SecurityError(f"{what}: no scrypt hash") from None
    if not COST_MADE <= cost <= _MAX_COST or block != _BLOCK or lanes != 1:
        raise SecurityError(f"{what}: scrypt with parameters that are not ours")
    if len(salt) < _SALT or len(digest) != _HASH:
        raise SecurityError(f"{what}: a salt or hash of the wrong length")
    return cost, block, lanes, salt, digest


class VerifiedPasswords:
    """Which password was right for which hash, by a keyed digest of both; bounded."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[bytes, None] = {}
        self.computed = 0  # how often scrypt ran

    def is_known(self, text: str, password: bytes) -> bool:
        """Return whether the password was right before."""
        return self._digest(text, password) in self._known

    def verify(self, text: str, password: bytes) -> bool:
        """Return whether the password is right; scrypt runs unless it was right before."""
        if self.is_known(text, password):
            return True
        self.computed += 1
        if not verify_password(text, password):
            return False
        if len(self._known) >= _REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[self._digest(text, password)] = None
        return True

    def _digest(self, text: str, password: bytes) -> bytes:
        return hmac.digest(self._key, text.encode() + b"\0" + password, "sha256")
