"""A node's folder and what commands do in it: make and join sites, add, rotate, revoke, restore.

    keys.json          this node's registrations (0600)
    authority.json     the site's authority (0600), where the site was founded
    tls/ca.pem, .der   verifies servers; give it to apps and boards
    conflicts.txt      what nodes say about names of others, as the running node found it
    forget/NAME        devices that shall begin anew, until the running node has forgotten them
    tls/node.pem, .key this server's certificate and key (key: 0600)

The only file of this package that opens files or makes new keys. A secret file is readable by its
owner only (mode 0600), or it is refused. It is replaced as a whole: a new file beside it, synced to
the disk, renamed over it. Two commands at the same time wait for each other at a lock.

An invitation is one secret file with all that a new node needs. The authority also makes the new
node's keys, so one file in one direction is enough; whoever carries it deletes it afterwards.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec
from denwatch.node.security.cards import (
    AUTHORITY_FILE,
    Authority,
    Certificate,
    NodeKeys,
    convert_certificate,
    list_addresses,
    make_node_keys,
)
from denwatch.node.security.credentials import (
    COST_MADE,
    SecurityError,
    check_chosen,
    check_name,
    check_secret,
    make_hash,
    make_password,
    make_secret,
    verify_password,
)
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.registrations import (
    DeviceKey,
    DeviceRegistration,
    Kind,
    Registrations,
    SubscriberRegistration,
    checked,
    derive_device_secret,
    read_registrations,
    write_registrations,
)

CA_FILE = "tls/ca.pem"
CA_DER_FILE = "tls/ca.der"
CERTIFICATE_FILE = "tls/node.pem"
KEY_FILE = "tls/node.key"
FORGET_FOLDER = "forget"
CONFLICTS_FILE = "conflicts.txt"
MAX_PLACES = 32  # nodes that are named for a device


class Invitation(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All that a new node needs: registrations, certificates, and where its inviter is."""

    denwatch_invitation: int
    registry: str
    ca: str
    certificate: str
    key: str
    peers: dict[str, str]


def open_keyring(folder: Path) -> Keyring:
    """Return the keyring of a node's folder; it loads the file again when it changes."""
    file = KeyFile(folder)
    return Keyring(file.load(), file.load_if_changed, partial(write_conflicts, folder))


def load_authority(folder: Path, path: Path | None = None) -> Authority:
    """Return the site's authority, from the folder or from wherever it is kept."""
    path = path or folder / AUTHORITY_FILE
    if not path.exists():
        raise SecurityError(
            f"{path} does not exist: nodes can be invited, renewed and revoked only where the site "
            "was founded, or with --authority FILE"
        )
    try:
        return Authority.read(read_secret_file(path))
    except SecurityError as error:
        raise SecurityError(f"{path}: {error}") from None


def found_site(folder: Path, name: str, addresses: list[str], today: datetime) -> Registrations:
    """Make a new site with its first node."""
    refuse_present(folder)
    authority = Authority.make(check_name(name, "node"), today)
    keys = make_node_keys(1)
    card = authority.sign_card(name, keys)
    registrations = Registrations(name, authority.public, {1: keys}, {name: {1: card}})
    issued = authority.issue_certificate(name, addresses, today)
    _write_tls(folder, authority.certificate, issued)
    write_file(folder / AUTHORITY_FILE, authority.write())
    KeyFile(folder).save(registrations)
    return registrations


def invite_node(
    folder: Path,
    authority: Authority,
    name: str,
    addresses: list[str],
    peers: dict[str, str],
    today: datetime,
) -> Invitation:
    """Return the invitation of a node, and store its card here; a known node gets new keys."""
    file = KeyFile(folder)
    with file.lock():
        registrations = file.load()
        if name == registrations.name:
            raise SecurityError(
                f"{name} is this node; `denwatch keys rotate {name}` makes new keys"
            )
        keys, registrations = _add_keys(registrations, authority, name)
        issued = authority.issue_certificate(name, addresses, today)
        registrations = replace(registrations, invited=registrations.invited | {name})
        file.save(registrations)
    return Invitation(
        denwatch_invitation=1,
        registry=write_registrations(_derive_registrations(registrations, keys, name)).decode(),
        ca=authority.certificate.decode(),
        certificate=issued.certificate.decode(),
        key=issued.key.decode(),
        peers=peers,
    )


def rotate_own_keys(folder: Path, authority: Authority) -> int:
    """Give this node new keys beside the old ones; return their serial."""
    file = KeyFile(folder)
    with file.lock():
        registrations = file.load()
        keys, registrations = _add_keys(registrations, authority, registrations.name)
        file.save(replace(registrations, own={**registrations.own, keys.serial: keys}))
    return keys.serial


def _add_keys(
    registrations: Registrations, authority: Authority, name: str
) -> tuple[NodeKeys, Registrations]:
    """Return new keys of a node, and the registrations with its card."""
    _check_site(registrations, authority)
    if registrations.is_revoked("node", name):
        raise SecurityError(f'"{name}" was revoked; use another name')
    keys = make_node_keys(max(registrations.cards.get(name, {}), default=0) + 1)
    return keys, registrations.with_card(authority.sign_card(name, keys))


def _derive_registrations(registrations: Registrations, keys: NodeKeys, name: str) -> Registrations:
    """Return the registrations for another node, with devices' keys for that node only."""
    return replace(
        registrations,
        name=name,
        own={keys.serial: keys},
        cards={
            node: cards if node != name else {keys.serial: cards[keys.serial]}
            for node, cards in registrations.cards.items()
        },
        devices={
            device: DeviceRegistration(
                {
                    key_id: DeviceKey(derive_device_secret(key, device, name, key_id))
                    for key_id, key in entry.keys.items()
                    if key.is_master
                },
                entry.version,
                is_ours=False,
                node=registrations.find_owner(device),
            )
            for device, entry in registrations.devices.items()
            if any(key.is_master for key in entry.keys.values())
            and (not entry.nodes or name in entry.nodes)
        },
        subscribers={
            subscriber: replace(entry, is_ours=False, node=registrations.find_owner(subscriber))
            for subscriber, entry in registrations.subscribers.items()
        },
        invited=frozenset(),
    )


def write_invitation(invitation: Invitation) -> bytes:
    """Return the text of an invitation."""
    return msgspec.json.format(msgspec.json.encode(invitation), indent=1) + b"\n"


def read_invitation(path: Path) -> Invitation:
    """Return the invitation of a file."""
    data = read_secret_file(path)
    try:
        invitation = msgspec.json.decode(data, type=Invitation)
    except msgspec.DecodeError as error:
        raise SecurityError(f"{path}: not an invitation: {error}") from None
    if invitation.denwatch_invitation != 1:
        raise SecurityError(f"{path}: the invitation has another version")
    return invitation


def join_site(folder: Path, invitation: Invitation) -> Registrations:
    """Accept an invitation in an empty folder, or new keys and cards in the node's own."""
    registrations = read_registrations(invitation.registry.encode())
    issued = Certificate(invitation.certificate.encode(), invitation.key.encode())
    file = KeyFile(folder)
    if file.path.exists():
        with file.lock():
            registrations = _merge_registrations(file.load(), registrations)
            _write_tls(folder, invitation.ca.encode(), issued)
            file.save(registrations)
        return registrations
    refuse_present(folder)
    _write_tls(folder, invitation.ca.encode(), issued)
    file.save(registrations)
    return registrations


def _merge_registrations(held: Registrations, new: Registrations) -> Registrations:
    """Return a node's registrations with the keys and cards of a later invitation."""
    if (held.name, held.site) != (new.name, new.site):
        raise SecurityError(f"the invitation is for {new.name}, or for another site")
    for cards in new.cards.values():
        for card in cards.values():
            held = held.with_card(card)
    return checked(replace(held, own={**new.own, **held.own}))


def renew_certificate(
    folder: Path, authority: Authority, addresses: list[str], today: datetime
) -> list[str]:
    """Issue a new certificate for this node; return the names and addresses that it is for."""
    name = KeyFile(folder).load().name
    if not addresses:
        addresses = list_addresses(read_certificate(folder / CERTIFICATE_FILE))
    issued = authority.issue_certificate(name, addresses, today)
    _write_tls(folder, authority.certificate, issued)
    return list_addresses(issued.certificate)


def read_certificate(path: Path) -> bytes:
    """Return a certificate file, which is not secret."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from None


def refuse_present(folder: Path) -> None:
    """Refuse to make a node in a folder that has one."""
    for name in (KEYS_FILE, AUTHORITY_FILE, CA_FILE, CERTIFICATE_FILE, KEY_FILE):
        if (folder / name).exists():
            raise SecurityError(f"{folder / name} exists already; nothing was changed")


def _write_tls(folder: Path, ca: bytes, issued: Certificate) -> None:
    try:
        (folder / CA_FILE).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SecurityError(f"{folder}: {error.strerror}") from None
    write_file(folder / CA_FILE, ca, 0o644)
    write_file(folder / CA_DER_FILE, convert_certificate(ca), 0o644)
    write_file(folder / KEY_FILE, issued.key)
    write_file(folder / CERTIFICATE_FILE, issued.certificate, 0o644)


# Secret files --------------------------------------------------------------------------------

KEYS_FILE = "keys.json"
MAX_FILE = 64 << 20
_MODE = 0o600


def read_secret_file(path: Path) -> bytes:
    """Return the content of a file that only its owner may read."""
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise SecurityError(f"{path}: not a file")
            if mode & 0o077:
                mend = f"chmod 600 {shlex.quote(str(path))}"
                raise SecurityError(
                    f"{path}: other users may read it (mode {mode & 0o777:04o}); run "
                    f"`{mend}`, and rotate its keys if somebody has read them"
                )
            data = stream.read(MAX_FILE + 1)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # too many open files: says nothing of it
            raise
        raise SecurityError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_FILE:
        raise SecurityError(f"{path}: more than {MAX_FILE} bytes")
    return data


def write_file(path: Path, data: bytes, mode: int = _MODE) -> None:
    """Replace a whole file or leave it as it was; it is on the disk when this returns."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # O_EXCL and the mode from the start: nobody can open it between creation and chmod.
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fchmod(stream.fileno(), mode)  # whatever the umask
                os.fsync(stream.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from None


class KeyFile:
    """`keys.json` in a node's folder, and whether it changed since it was read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / KEYS_FILE
        self._seen: tuple[int, int, int] | None = None

    def load(self) -> Registrations:
        """Return the registrations of the file."""
        self._seen = self._look()
        data = read_secret_file(self.path)
        try:
            return read_registrations(data)
        except SecurityError as error:
            raise SecurityError(f"{self.path}: {error}") from None

    def load_if_changed(self) -> Registrations | None:
        """Return the registrations if the file has changed since the last load."""
        return None if self._look() == self._seen else self.load()

    def save(self, registrations: Registrations) -> None:
        """Replace the file."""
        write_file(self.path, write_registrations(registrations))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Prevent other commands from changing the file meanwhile."""
        try:
            handle = os.open(self.path.parent / f".{KEYS_FILE}.lock", os.O_RDWR | os.O_CREAT, _MODE)
        except OSError as error:
            raise SecurityError(f"{self.path.parent}: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _look(self) -> tuple[int, int, int] | None:
        # The inode changes at every replacement, even within one tick of the clock.
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def ask_to_forget(folder: Path, registry: Registrations, name: str) -> None:
    """Ask the node of a folder to let a device begin anew."""
    if registry.kind_of(name) != "device":
        raise SecurityError(f'"{name}" is no device that is registered here')
    try:
        (folder / FORGET_FOLDER).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SecurityError(f"{folder / FORGET_FOLDER}: {error.strerror}") from None
    write_file(folder / FORGET_FOLDER / name, b"")


def list_forgotten(folder: Path) -> list[str]:
    """Return which devices a node is asked to forget."""
    try:
        found = [path.name for path in (folder / FORGET_FOLDER).iterdir()]
    except OSError:  # nobody ever asked; or too many open files: later
        return []
    return sorted(name for name in found if name[0] != ".")  # others are not complete yet


def end_forgetting(folder: Path, name: str) -> None:
    """Note that a device is forgotten, once that is on the disk."""
    with suppress(OSError):  # it is forgotten once more at the next look, which does no harm
        (folder / FORGET_FOLDER / name).unlink()


def write_conflicts(folder: Path, conflicts: list[str]) -> None:
    """Store what a running node found contradictory, for `denwatch keys list`."""
    path = folder / CONFLICTS_FILE
    data = "".join(f"{line}\n" for line in conflicts).encode()
    with suppress(SecurityError, OSError):  # the status shows them too
        if data != (path.read_bytes() if path.exists() else b""):
            write_file(path, data)


def read_conflicts(folder: Path) -> list[str]:
    """Return what the running node found contradictory."""
    path = folder / CONFLICTS_FILE
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


# Changes of registrations --------------------------------------------------------------------


def add_device(
    registrations: Registrations,
    name: str,
    secret: bytes | None = None,
    key_id: int = 1,
    nodes: Sequence[str] | None = None,
) -> Registrations:
    """Return the registrations with a new device, which speaks through `nodes`.

    `nodes`: None for this node alone; none at all for any node of the site.

    Without `secret` it gets a master key from which each node's key is derived; a given secret,
    of a device that has it already, is for this node only.
    """
    _refuse_known(registrations, name)
    key = DeviceKey(make_secret(), is_master=True)
    if secret is not None:
        key = DeviceKey(check_secret(secret, f"device {name}"))
        nodes = None
    named = (registrations.name,) if nodes is None else _check_nodes(registrations, nodes)
    device = DeviceRegistration({key_id: key}, nodes=named)
    return registrations.with_device(name, device)


def change_nodes(registrations: Registrations, name: str, nodes: Sequence[str]) -> Registrations:
    """Return the registrations with a device that speaks through these nodes only, or any."""
    found = registrations.devices.get(name)
    if found is None:
        raise SecurityError(f'there is no device "{name}" here')
    _refuse_foreign(name, found.is_ours)
    chosen = _check_nodes(registrations, nodes)
    return registrations.with_device(name, replace(found, nodes=chosen, version=found.version + 1))


def _check_nodes(registrations: Registrations, nodes: Sequence[str]) -> tuple[str, ...]:
    for node in nodes:
        if node not in registrations.cards:
            raise SecurityError(f'there is no node "{node}" here')
    if len(nodes) > MAX_PLACES:
        raise SecurityError(f"{len(nodes)} nodes; at most {MAX_PLACES} can be named")
    return tuple(sorted(set(nodes)))


def add_subscriber(
    registrations: Registrations, name: str, role: str, chosen: str | None = None
) -> tuple[Registrations, str]:
    """Return the registrations with a new subscriber, and the password."""
    _refuse_known(registrations, name)
    password, text = _hash_new(registrations, name, chosen)
    return registrations.with_subscriber(name, SubscriberRegistration(role, {1: text})), password


def change_role(registrations: Registrations, name: str, role: str) -> Registrations:
    """Return the registrations with another role of a subscriber, for its next requests."""
    found = registrations.subscribers.get(name)
    if found is None:
        raise SecurityError(f'there is no subscriber "{name}" here')
    _refuse_foreign(name, found.is_ours)
    return registrations.with_subscriber(name, replace(found, role=role, version=found.version + 1))


def rotate(
    registrations: Registrations, name: str, chosen: str | None = None
) -> tuple[Registrations, int, str]:
    """Return the registrations with one more key of a name, its id, and a subscriber's password.

    The old keys stay valid until `retire` or `revoke`.
    """
    device, subscriber = registrations.devices.get(name), registrations.subscribers.get(name)
    if device is not None:
        _refuse_foreign(name, device.is_ours)
        key_id = max(device.keys) + 1
        keys = {**device.keys, key_id: DeviceKey(make_secret(), is_master=True)}
        changed = replace(device, keys=keys, version=device.version + 1)
        return registrations.with_device(name, changed), key_id, ""
    if subscriber is not None:
        _refuse_foreign(name, subscriber.is_ours)
        key_id = max(subscriber.passwords) + 1
        password, text = _hash_new(registrations, name, chosen)
        entry = replace(
            subscriber,
            passwords={**subscriber.passwords, key_id: text},
            version=subscriber.version + 1,
        )
        return registrations.with_subscriber(name, entry), key_id, password
    raise SecurityError(f'there is no device or subscriber "{name}" here')


def retire(
    registrations: Registrations, name: str, authority: Authority | None
) -> tuple[Registrations, list[int]]:
    """Return the registrations with all but the newest key of a name revoked, and their ids."""
    kind = registrations.kind_of(name)
    if kind is None:
        raise SecurityError(f'there is nobody called "{name}" here')
    old = [
        key_id
        for key_id in _list_ids(registrations, kind, name)[:-1]
        if not registrations.is_revoked(kind, name, key_id)
    ]
    for key_id in old:
        registrations = revoke(registrations, kind, name, key_id, authority)
    return _drop_revoked(registrations, name), old


def _list_ids(registrations: Registrations, kind: Kind, name: str) -> list[int]:
    if kind == "node":
        return sorted(registrations.cards[name])
    if kind == "device":
        return sorted(registrations.devices[name].keys)
    return sorted(registrations.subscribers[name].passwords)


def _drop_revoked(registrations: Registrations, name: str) -> Registrations:
    """Return the registrations without revoked keys of a name that was registered here.

    So that there is always room for the next rotation. Cards stay: they are few, and public.
    """
    device, subscriber = registrations.devices.get(name), registrations.subscribers.get(name)
    if device is not None and device.is_ours:
        keys = {
            i: k for i, k in device.keys.items() if not registrations.is_revoked("device", name, i)
        }
        if len(keys) < len(device.keys):
            changed = replace(device, keys=keys, version=device.version + 1)
            return registrations.with_device(name, changed)
    if subscriber is not None and subscriber.is_ours:
        passwords = {
            key_id: text
            for key_id, text in subscriber.passwords.items()
            if not registrations.is_revoked("subscriber", name, key_id)
        }
        if len(passwords) < len(subscriber.passwords):
            entry = replace(subscriber, passwords=passwords, version=subscriber.version + 1)
            return registrations.with_subscriber(name, entry)
    return registrations


def revoke(
    registrations: Registrations,
    kind: Kind,
    name: str,
    key_id: int | None,
    authority: Authority | None,
    now: int = 0,
) -> Registrations:
    """Return the registrations with a name or key revoked.

    A node needs the authority, and so does a name that another node registered. `now`, in seconds,
    orders the authority's rulings, which may be made at several nodes.
    """
    owner = registrations.find_owner(name)
    proof = b""
    if kind == "node":
        if authority is None:
            raise SecurityError(f"revoking the node {name} needs the site's authority")
        _check_site(registrations, authority)
        proof = authority.sign_revocation(name, key_id)
    elif owner != registrations.name:
        at = owner or "the node that registered it"
        if authority is None or key_id is not None:
            raise SecurityError(
                f"{name} was not registered here: revoke it at {at}"
                + (", or here with --authority FILE" if key_id is None else "")
            )
        _check_site(registrations, authority)
        number = max(registrations.round_of(name) + 1, now)
        return registrations.rule(authority.sign_ruling(name, number, is_revoked=True))
    return registrations.revoke(kind, name, key_id, proof)


def restore(
    registrations: Registrations, name: str, authority: Authority, now: int
) -> Registrations:
    """Return the registrations after the authority ruled: a name of this node's is valid.

    Undoes its revocation, and settles whose it is if several nodes registered it.
    """
    held = registrations.devices.get(name) or registrations.subscribers.get(name)
    if held is None or not held.is_ours:
        at = registrations.find_owner(name) or "the node that registered it"
        raise SecurityError(f"{name} was not registered here: restore it at {at}")
    _check_site(registrations, authority)
    number = max(registrations.round_of(name) + 1, now)
    node = registrations.name
    return registrations.rule(authority.sign_ruling(name, number, is_revoked=False, node=node))


def _check_site(registrations: Registrations, authority: Authority) -> None:
    if authority.public != registrations.site:
        raise SecurityError("this authority belongs to another site")


def _hash_new(registrations: Registrations, name: str, chosen: str | None) -> tuple[str, str]:
    """Return a password and its hash: a new one, or the one that a person chose."""
    if chosen is None:
        password = make_password()
        return password, make_hash(password, COST_MADE)
    check_chosen(chosen, name)
    for other, subscriber in registrations.subscribers.items():
        if any(verify_password(text, chosen.encode()) for text in subscriber.passwords.values()):
            raise SecurityError(f"{name}: {other} has this password already")
    return chosen, make_hash(chosen)


def _refuse_known(registrations: Registrations, name: str) -> None:
    kind = registrations.kind_of(name)
    if kind is not None:
        raise SecurityError(f'there is a {kind} called "{name}" already')


def _refuse_foreign(name: str, is_ours: bool) -> None:
    if not is_ours:
        raise SecurityError(f"{name} was registered at another node; change it there")
