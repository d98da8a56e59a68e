"""What the console keeps of a person beside the store: what is muted, what was ended, a key's hash.

The only file of the console that writes files. They are for their owner alone (mode 600), and are
replaced whole, so that a death in between leaves the old one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

_COST = {"n": 1 << 14, "r": 8, "p": 1}


@dataclass
class Settings:
    """One person's. `salt` and `hash` are of the key that a node has accepted; `token` opens the
    console of one person without a key."""

    muted: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    salt: str = ""
    hash: str = ""
    token: str = ""


def load_settings(path: Path) -> Settings:
    """Return what is kept; nothing yet, or nothing readable, is a new one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = Settings(
            [str(name) for name in document.get("muted", [])],
            [str(name) for name in document.get("ended", [])],
            *(str(document.get(key, "")) for key in ("salt", "hash", "token")),
        )
        bytes.fromhex(found.salt)
    except (OSError, ValueError, AttributeError, TypeError):
        return Settings()
    return found


def save_settings(path: Path, settings: Settings) -> None:
    """Keep it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(settings), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def remember_key(settings: Settings, key: str) -> None:
    """Keep the hash of a key that a node has accepted: it opens the console while none answers."""
    if not check_key(settings, key):
        settings.salt = secrets.token_hex(16)
        settings.hash = _hash(key, settings.salt)


def check_key(settings: Settings, key: str) -> bool:
    """Return whether a key is the one that a node has accepted."""
    if not settings.hash:
        return False
    return hmac.compare_digest(_hash(key, settings.salt), settings.hash)


def _hash(key: str, salt: str) -> str:
    return hashlib.scrypt(key.encode(), salt=bytes.fromhex(salt), dklen=32, **_COST).hex()
