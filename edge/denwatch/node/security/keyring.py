"""Every question about names and keys that a running node asks. No clock, no randomness, no I/O.

A keyring is what `keys.json` says plus what notices of other nodes added. Notices are kept by the
node's store, as items, and are given to `apply_notice` again at every start; the order does not
matter. What was registered by a node that is revoked later falls away with it; what it revoked
stays revoked, because to be wrong in this direction costs a device and not a secret.

Rotation without a gap: all keys of a name are good at once. What this node signs and seals uses its
*oldest* key that is not revoked, because that one is known everywhere; the new one takes over when
the old one is revoked.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from denwatch.node.security import notices
from denwatch.node.security.cards import (
    Card,
    NodeKeys,
    check_proof,
    make_proof,
    open_box,
    read_card,
    seal_box,
    split_proof,
    verify_signature,
)
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.notices import Enrolment
from denwatch.node.security.registrations import (
    KINDS,
    Kind,
    Registrations,
    derive_device_password,
    derive_device_secret,
)
from denwatch.protocol.frames import Link

_FRAMES, _CONNECT, _NOTICES = "frames", "connect", "notices"  # purposes of an agreed secret
Source = Callable[[], Registrations | None]


class Keyring:
    """The keys of a site as one node knows them. `generation` grows with every change."""

    def __init__(self, registry: Registrations, source: Source | None = None) -> None:
        self._base = registry
        self._enrolment: Enrolment | None = None  # None: to be made at the next look-up
        self._source = source
        self._notices: dict[tuple[str, bytes], notices.Notice] = {}
        self._conflicts: list[str] = []
        self._own_notices: list[bytes] | None = None
        self._links: dict[tuple[str, int], Link] = {}
        self._secrets: dict[tuple[str, str], tuple[bytes, ...]] = {}
        self.generation = 1

    @property
    def name(self) -> str:
        """This node's name."""
        return self._base.name

    @property
    def registry(self) -> Registrations:
        """Everything: the file and what notices made of it."""
        if self._enrolment is None:
            self._settle()
            assert self._enrolment is not None
        return self._enrolment.registry

    @property
    def conflicts(self) -> list[str]:
        """What notices claimed and the file or other notices contradict, for the status."""
        assert self.registry
        return list(self._conflicts)

    def reload_if_changed(self) -> bool:
        """Take a changed key file; one that is wrong raises SecurityError and changes nothing."""
        found = self._source() if self._source else None
        if found is None:
            return False
        if found.name != self.name or found.site != self._base.site:
            raise SecurityError(f"the key file is now that of {found.name}; start the node anew")
        self._base = found
        self._enrolment = None
        self._forget_derived()
        return True

    # Who somebody is.

    def kind_of(self, name: str) -> Kind | None:
        """Return "node", "device" or "subscriber", None for a stranger or a revoked name."""
        kind = self.registry.kind_of(name)
        return kind if kind and not self.registry.is_revoked(kind, name) else None

    def is_revoked(self, name: str) -> bool:
        """Return whether a name was revoked, whatever it was, known here or not."""
        return any(self.registry.is_revoked(kind, name) for kind in KINDS)

    def role_of(self, subscriber: str) -> str | None:
        """Return the role of a subscriber, None for a stranger or a revoked name."""
        found = self.registry.subscribers.get(subscriber)
        if found is None or self.registry.is_revoked("subscriber", subscriber):
            return None
        return found.role

    def list_password_hashes(self, subscriber: str) -> list[str]:
        """Return the hashes of the passwords that let a subscriber in, the newest first."""
        found = self.registry.subscribers.get(subscriber)
        return [
            text
            for key_id, text in sorted(found.passwords.items() if found else (), reverse=True)
            if not self.registry.is_revoked("subscriber", subscriber, key_id)
        ]

    # Devices.

    def list_key_ids(self, device: str) -> list[int]:
        """Return the ids of a device's keys that are good, the oldest first."""
        found = self.registry.devices.get(device)
        return [
            key_id
            for key_id in sorted(found.keys if found else ())
            if not self.registry.is_revoked("device", device, key_id)
        ]

    def link_for(self, device: str, key_id: int) -> Link | None:
        """Return the link to open and seal a device's frames with; None if the key is not good.

        Answer with the key that the device used last: it may not have the new one yet.
        """
        if key_id not in self.list_key_ids(device):
            return None
        link = self._links.get((device, key_id))
        if link is None:
            secret = self._find_device_secret(device, key_id)
            link = self._links[device, key_id] = Link(device, self.name, key_id, secret)
        return link

    def check_device_password(self, device: str, password: bytes) -> bool:
        """Return whether a device may connect: its MQTT password comes from one of its keys."""
        wanted = [
            derive_device_password(self._find_device_secret(device, key_id)).encode()
            for key_id in self.list_key_ids(device)
        ]
        return any(hmac.compare_digest(one, password) for one in wanted)

    def _find_device_secret(self, device: str, key_id: int) -> bytes:
        key = self.registry.devices[device].keys[key_id]
        return derive_device_secret(key, device, self.name, key_id)

    # Nodes.

    def knows_node(self, node: str) -> bool:
        """Return whether a node has a card here that is good."""
        return bool(self._list_cards(node))

    def list_nodes(self) -> list[str]:
        """Return the names of all nodes that are good, this one too."""
        return [name for name in sorted(self.registry.cards) if self._list_cards(name)]

    def sign(self, data: bytes) -> bytes:
        """Return this node's Ed25519 signature."""
        return self._find_own()[0].sign(data)

    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        """Return whether a node signed this; False for a stranger and a revoked one."""
        return any(
            verify_signature(card.sign, data, signature) for card in self._list_cards(origin)
        )

    def peer_secret(self, node: str) -> bytes | None:
        """Return the secret to seal frames for a node with, None if it is no good node."""
        return next(iter(self.peer_secrets(node)), None)

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        """Return all secrets that may open a node's frames: several while keys are rotated."""
        return self._agree(node, _FRAMES)

    def make_credentials(self, node: str) -> tuple[str, str] | None:
        """Return user name and password to connect to a node's server with."""
        secrets = self._agree(node, _CONNECT)
        if not secrets:
            return None
        card = self.registry.cards[self.name][self._find_own()[0].serial]
        return self.name, make_proof(secrets[0], self.name, node, card)

    def check_credentials(self, node: str, password: bytes) -> bool:
        """Return whether a node may connect. The card in its password may be the first we see."""
        parts = split_proof(password)
        if parts is None or self.registry.is_revoked("node", node):
            return False
        try:
            card = read_card(parts[0], self.registry.site)
            if card.name != node or self.registry.is_revoked("node", node, card.serial):
                return False
            is_right = any(
                check_proof(
                    keys.agree(self.name, card, _CONNECT), node, self.name, card.serial, parts[1]
                )
                for keys in self._find_own()
            )
            if is_right and card not in self._list_cards(node):
                self.apply_notice(self.name, notices.make_introduction(card))
        except SecurityError:
            return False
        return is_right

    def _list_cards(self, node: str) -> list[Card]:
        cards = self.registry.cards.get(node, {})
        return [
            card
            for serial, card in sorted(cards.items())
            if not self.registry.is_revoked("node", node, serial)
        ]

    def _find_own(self) -> list[NodeKeys]:
        good = [
            keys
            for serial, keys in sorted(self.registry.own.items())
            if not self.registry.is_revoked("node", self.name, serial)
        ]
        if not good:
            raise SecurityError(f"{self.name} was revoked; its site must invite it anew")
        return good

    def _agree(self, node: str, purpose: str) -> tuple[bytes, ...]:
        """Return the secrets with a node for a purpose, that of the oldest keys first."""
        found = self._secrets.get((node, purpose))
        if found is None:
            found = self._secrets[node, purpose] = tuple(
                keys.agree(self.name, card, purpose)
                for card in self._list_cards(node)
                for keys in self._find_own()
                if node != self.name
            )
        return found

    # Notices.

    def apply_notice(self, origin: str, body: bytes) -> bool:
        """Take the body of a REVOCATION item whose signature was checked; return if it was new.

        SecurityError: it is none, or lacks the authority's signature; nothing has changed then.
        """
        if (origin, body) in self._notices:
            return False
        notice = notices.read_notice(body, self._base.site)
        self._notices[origin, body] = notice
        if self._enrolment is not None and not self._extend(self._enrolment, origin, notice):
            self._enrolment = None
        self._forget_derived(has_new_nodes=not isinstance(notice, notices.Sealed))
        return True

    def list_notices(self) -> list[bytes]:
        """Return what this node has to tell, as bodies of items, the same while nothing changes.

        The node keeps exactly these as its own REVOCATION items: it originates what is missing and
        removes what is no longer in the list.
        """
        if self._own_notices is None:
            self._own_notices = [*self._list_public_notices(), *self._list_sealed_notices()]
        return self._own_notices

    def _list_public_notices(self) -> list[bytes]:
        introductions = [
            notices.make_introduction(card)
            for name in sorted(self._base.invited | {self.name})
            for card in self._list_cards(name)
        ]
        return introductions + notices.list_revocations(self._base)

    def _list_sealed_notices(self) -> list[bytes]:
        ours = [name for name in self._base.list_told() if not self.is_revoked(name)]
        found = []
        for node in self.list_nodes():
            secrets = self._agree(node, _NOTICES)
            for name in ours if secrets else ():
                data = notices.write_registration(self._base, name, node)
                box = seal_box(secrets[0], _context(self.name, node), data)
                found.append(notices.make_sealed(node, box))
        return found

    def _extend(self, enrolment: Enrolment, origin: str, notice: notices.Notice) -> bool:
        """Take one notice more; False if all must be taken anew, in their order."""
        try:
            if isinstance(notice, notices.Sealed):
                self._register(enrolment, origin, notice)
                return True
            if isinstance(notice, notices.Revoked):
                if notice.kind == "node":
                    return False  # whom it let in goes with it
                enrolment.revoke(notice)
                return True
            enrolment.add_card(notice)
            self._secrets.clear()
            for (sender, _), waiting in self._notices.items():
                if sender == notice.name and isinstance(waiting, notices.Sealed):
                    self._register(enrolment, sender, waiting)
        except SecurityError:
            return False
        return True

    def _settle(self) -> None:
        """Take all notices on top of the file; the order of arrival has no part in it.

        Cards and revocations go first: a card opens what was sealed, a revocation takes back.
        """
        enrolment = self._enrolment = Enrolment(self._base)
        self._conflicts = []
        self._secrets.clear()
        entries = sorted(self._notices.items())
        for _, notice in entries:
            try:
                if isinstance(notice, notices.Revoked):
                    enrolment.revoke(notice)
                elif not isinstance(notice, notices.Sealed):
                    enrolment.add_card(notice)
            except SecurityError as error:
                self._conflicts.append(str(error))
        self._secrets.clear()
        for (origin, _), notice in entries:
            try:
                if isinstance(notice, notices.Sealed):
                    self._register(enrolment, origin, notice)
            except SecurityError as error:
                self._conflicts.append(str(error))

    def _register(self, enrolment: Enrolment, origin: str, notice: notices.Sealed) -> None:
        data = self._open(origin, notice.box) if notice.receiver == self.name else None
        if data is not None:
            enrolment.register(data)

    def _open(self, origin: str, box: bytes) -> bytes | None:
        """Return a registration; None if its origin's card is not there yet, or is revoked."""
        context = _context(origin, self.name)
        tried = (open_box(secret, context, box) for secret in self._agree(origin, _NOTICES))
        return next((data for data in tried if data is not None), None)

    def _forget_derived(self, has_new_nodes: bool = True) -> None:
        self.generation += 1
        self._links.clear()
        if has_new_nodes:
            self._secrets.clear()
            self._own_notices = None


def _context(sender: str, receiver: str) -> bytes:
    return f"{sender}\n{receiver}".encode()
