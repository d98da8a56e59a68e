"""Mosquitto's access rules and password file, for sites that have a broker: `denwatch keys acl`.

The broker then checks passwords. Those of devices follow from their keys, the node's own is that of
node.toml. People's are known to nobody but them, so the broker gets others: each is made once,
shown once, and stays as long as the file does.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from denwatch.cli.errors import CommandError
from denwatch.node.config import NodeConfig
from denwatch.node.security import site
from denwatch.node.security.access import OPERATOR
from denwatch.node.security.credentials import make_password
from denwatch.node.security.registrations import (
    Registrations,
    derive_device_password,
    derive_device_secret,
)

RULES_FILE, PASSWORDS_FILE, OWN_FILE = "acl", "passwords", "node.password"
_ROUNDS = 101  # Mosquitto's own; what is made here has 128 bits or more
_HASH, _SALT = 64, 12  # bytes

# %u is the user name: Mosquitto's own form of "everybody to their own topics".
_ACL = """\
pattern write dens/1/sub/%u
pattern write dens/1/report/%u
pattern read dens/1/reply/%u
pattern read dens/1/note/%u
pattern write dens/1/wd/%u/hello
pattern write dens/1/wd/%u/nv
pattern write dens/1/wd/%u/want
pattern read dens/1/wd/%u/sv
pattern read dens/1/wd/%u/ack
pattern read dens/1/status/+
pattern read dens/1/plan/+
"""
_ACL_NODE = """
user {name}
topic read dens/1/sub/+
topic read dens/1/report/+
topic write dens/1/reply/+
topic write dens/1/note/+
topic read dens/1/wd/+/hello
topic read dens/1/wd/+/nv
topic read dens/1/wd/+/want
topic write dens/1/wd/+/sv
topic write dens/1/wd/+/ack
topic read dens/1/peer/{name}
topic write dens/1/peer/+
topic write dens/1/status/{name}
topic read dens/1/operator/{name}
topic write dens/1/plan/{name}
"""
_ACL_OPERATOR = """
user {name}
topic write dens/1/operator/+
"""
_ACL_NODE_HOME = """\
topic write {prefix}/#
topic read {prefix}/status
topic write dens/1/home/{name}/#
"""
_ACL_HOME = """
user {user}
topic read {prefix}/#
topic read dens/1/home/#
topic write {prefix}/status
"""


def describe_rules(registry: Registrations, config: NodeConfig | None) -> str:
    """Return the access rules: everybody to their own topics."""
    rules = _ACL
    home = config.home_assistant if config else None
    for name in sorted(registry.cards):
        rules += _ACL_NODE.format(name=name)
        if home is not None:
            rules += _ACL_NODE_HOME.format(name=name, prefix=home.prefix)
    for name, app in sorted(registry.subscribers.items()):
        if app.role == OPERATOR:
            rules += _ACL_OPERATOR.format(name=name)
    if home is not None and home.user:
        rules += _ACL_HOME.format(user=home.user, prefix=home.prefix)
    return rules


def write_folder(folder: Path, registry: Registrations, config: NodeConfig | None) -> Iterator[str]:
    """Write rules and passwords; yield what people have to know."""
    known = _read_passwords(folder / PASSWORDS_FILE)
    lines: dict[str, str] = {}
    made: list[str] = []
    for name, device in sorted(registry.devices.items()):
        key_id = max(device.keys)
        secret = derive_device_secret(device.keys[key_id], name, registry.name, key_id)
        lines[name] = hash_for_mosquitto(derive_device_password(secret))
    for name in sorted(registry.subscribers):
        if name not in known:
            password = make_password()
            made.append(f"{name}: {password}")
            known[name] = hash_for_mosquitto(password)
        lines[name] = known[name]
    broker = config.broker if config else None
    own_file = folder / OWN_FILE
    folder.mkdir(parents=True, exist_ok=True)
    if broker is not None and broker.user:
        lines[broker.user] = hash_for_mosquitto(broker.password)
    else:
        if not own_file.exists():
            site.write_file(own_file, make_password().encode() + b"\n")
        own = site.read_secret_file(own_file).decode().strip()
        lines[registry.name] = hash_for_mosquitto(own)
    text = "".join(f"{name}:{found}\n" for name, found in sorted(lines.items()))
    site.write_file(folder / RULES_FILE, describe_rules(registry, config).encode())
    site.write_file(folder / PASSWORDS_FILE, text.encode())
    yield f"{folder / RULES_FILE} and {folder / PASSWORDS_FILE} are for mosquitto.conf:"
    yield "  allow_anonymous false"
    yield f"  acl_file {(folder / RULES_FILE).resolve()}"
    yield f"  password_file {(folder / PASSWORDS_FILE).resolve()}"
    yield "Mosquitto has to be able to read them, and to be told: kill -HUP."
    if broker is None or not broker.user:
        yield "The node logs in with, in node.toml:"
        yield f'  [broker]\n  user = "{registry.name}"\n  password_file = "{own_file.resolve()}"'
    if made:
        yield "New passwords, which are shown once and stored nowhere:"
        yield from (f"  {line}" for line in made)


def hash_for_mosquitto(password: str) -> str:
    """Return a password as Mosquitto 2 keeps it: PBKDF2 with SHA-512, rounds, salt and hash."""
    salt = secrets.token_bytes(_SALT)
    found = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ROUNDS, _HASH)
    encoded = (base64.b64encode(part).decode() for part in (salt, found))
    return "$".join(("$7", str(_ROUNDS), *encoded))


def _read_passwords(path: Path) -> dict[str, str]:
    """Return the hashes of an earlier file by name."""
    if not path.exists():
        return {}
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        name, colon, text = line.partition(":")
        if not colon or not text.startswith(("$6$", "$7$")):
            raise CommandError(f"{path}, line {number}: not a line of a password file")
        found[name] = text
    return found
