"""Answers every question about names and keys that a running node has. No clock, no I/O.

THEORY. A keyring is the registrations in `keys.json` plus the notices of other nodes. The node's
store keeps the notices, as items, and gives them to `apply_notice` again at every start. They are
applied in a fixed order (`_build`), so the order of arrival does not matter, but for one thing:
a name belongs to the node that was seen first to register it. Who that is the store keeps, too
(`take_news`, `note_owner`).

INVARIANTS
  1. A name is changed by its node and by the authority. What a node registered is removed when
     that node is revoked, and what it revoked counts no longer.
  2. All keys of a name that are not revoked are valid at once, so a key is rotated without a gap.
  3. This node signs and seals with its *oldest* valid key, because the others know that one
     everywhere. The new key takes over when the old one is revoked.
  4. `generation` grows with every change; whoever caches an answer compares it.

EXAMPLE. A device is registered at north; see README.md for its whole life.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from denwatch.node.security import notices
from denwatch.node.security.cards import (
    Card,
    NodeKeys,
    PersonKey,
    Ruling,
    check_proof,
    make_proof,
    open_box,
    read_card,
    seal_box,
    split_proof,
    verify_signature,
)
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.notices import RegistrationsBuilder
from denwatch.node.security.registrations import (
    KINDS,
    Kind,
    Registrations,
    derive_device_password,
    derive_device_secret,
)
from denwatch.protocol.frames import Link

_FRAMES, _CONNECT, _NOTICES = "frames", "connect", "notices"  # purposes of an agreed secret
_MAX_PERSON_KEYS = 4
_MAX_CONFLICTS = 100  # that are reported; a lying member could make any number
Source = Callable[[], Registrations | None]


class Keyring:
    """The keys of a site as one node knows them. `generation` grows with every change."""

    def __init__(
        self,
        registrations: Registrations,
        source: Source | None = None,
        report: Callable[[list[str]], None] | None = None,
    ) -> None:
        self._base = registrations
        self._builder: RegistrationsBuilder | None = None  # None: to be built at the next look-up
        self._source = source
        self._report = report  # of conflicts, for people
        self._notices: dict[tuple[str, bytes], notices.Notice] = {}
        self._owners: dict[str, str] = {}  # of names: the node that was seen first to have it
        self._conflicts: list[str] = []
        self._kept: dict[str, str] = {}  # owners and conflicts that were reported by `take_news`
        self._reported: set[str] = set()
        self._own_notices: list[bytes] | None = None
        self._people: dict[str, dict[bytes, PersonKey]] = {}  # who logged in; the last key last
        self._links: dict[tuple[str, int], Link] = {}
        self._secrets: dict[tuple[str, str], tuple[bytes, ...]] = {}
        self.generation = 1

    @property
    def name(self) -> str:
        """This node's name."""
        return self._base.name

    @property
    def registrations(self) -> Registrations:
        """The registrations of the file with all notices applied."""
        if self._builder is None:
            self._build()
            assert self._builder is not None
        return self._builder.registrations

    @property
    def conflicts(self) -> list[str]:
        """Notices that the file or other notices contradict, as sentences for the status."""
        assert self.registrations
        return list(self._conflicts)

    def note_owner(self, name: str, node: str) -> None:
        """Learn from an earlier run which node a name belongs to."""
        self._owners[name] = self._kept[name] = node

    def take_news(self) -> tuple[dict[str, str], list[str]]:
        """Return the owners of names and the conflicts that were found since the last call."""
        conflicts = [each for each in self.conflicts if each not in self._reported]
        if self._report is not None and self._reported != set(self._conflicts):
            self._report(self._conflicts)
        self._reported = set(self._conflicts)
        owners = {k: v for k, v in self._owners.items() if self._kept.get(k) != v}
        self._kept |= owners
        return owners, conflicts

    def reload_if_changed(self) -> bool:
        """Load a changed key file; an invalid one raises SecurityError and changes nothing."""
        found = self._source() if self._source else None
        if found is None:
            return False
        if found.name != self.name or found.site != self._base.site:
            raise SecurityError(f"the key file now belongs to {found.name}; restart the node")
        self._base = found
        self._builder = None
        self._forget_derived()
        return True

    # Who somebody is.

    def kind_of(self, name: str) -> Kind | None:
        """Return "node", "device" or "subscriber", None for a stranger or a revoked name."""
        kind = self.registrations.kind_of(name)
        return kind if kind and not self.registrations.is_revoked(kind, name) else None

    def is_revoked(self, name: str) -> bool:
        """Return whether a name was revoked, whatever it was, known here or not."""
        return any(self.registrations.is_revoked(kind, name) for kind in KINDS)

    def find_owner(self, name: str) -> str:
        """Return the node that a name belongs to; empty if to none."""
        assert self.registrations
        assert self._builder is not None
        return self._builder.find_owner(name)

    def role_of(self, subscriber: str) -> str | None:
        """Return the role of a subscriber, None for a stranger or a revoked name."""
        found = self.registrations.subscribers.get(subscriber)
        if found is None or self.registrations.is_revoked("subscriber", subscriber):
            return None
        return found.role

    def list_password_hashes(self, subscriber: str) -> list[str]:
        """Return the hashes of a subscriber's valid passwords, the newest first."""
        found = self.registrations.subscribers.get(subscriber)
        return [
            text
            for key_id, text in sorted(found.passwords.items() if found else (), reverse=True)
            if not self.registrations.is_revoked("subscriber", subscriber, key_id)
        ]

    # People who logged in here: each password gives a key, and all of them are kept while we run.

    def note_person(self, name: str, secret: bytes) -> None:
        """Learn the key of somebody whose password was right."""
        key = PersonKey(secret)
        keys = self._people.setdefault(name, {})
        keys.pop(key.public, None)
        keys[key.public] = key
        if len(keys) > _MAX_PERSON_KEYS:
            del keys[next(iter(keys))]

    def sign_for(self, name: str, data: bytes, key: bytes = b"") -> tuple[bytes, bytes] | None:
        """Return somebody's key, this one if it is given, and a signature; None without a key."""
        keys = self._people.get(name, {})
        found = keys.get(key) if key else next(reversed(keys.values()), None)
        return None if found is None else (found.public, found.sign(data))

    def verify_person(self, key: bytes, data: bytes, signature: bytes) -> bool:
        """Return whether a person's key signed this."""
        return verify_signature(key, data, signature)

    # Devices.

    def list_key_ids(self, device: str) -> list[int]:
        """Return the ids of a device's valid keys, the oldest first."""
        found = self.registrations.devices.get(device)
        return [
            key_id
            for key_id in sorted(found.keys if found else ())
            if not self.registrations.is_revoked("device", device, key_id)
        ]

    def may_speak(self, device: str, node: str) -> bool:
        """Return whether a device's readings may come through a node."""
        assert self.registrations
        assert self._builder is not None
        nodes = self._builder.list_places(device)
        return not nodes or node in nodes

    def link_for(self, device: str, key_id: int) -> Link | None:
        """Return the link to open and seal a device's frames with; None if the key is not valid.

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
        key = self.registrations.devices[device].keys[key_id]
        return derive_device_secret(key, device, self.name, key_id)

    # Nodes.

    def knows_node(self, node: str) -> bool:
        """Return whether a node has a valid card here."""
        return bool(self._list_cards(node))

    def list_nodes(self) -> list[str]:
        """Return the names of all valid nodes, this one included."""
        return [name for name in sorted(self.registrations.cards) if self._list_cards(name)]

    def sign(self, data: bytes) -> bytes:
        """Return this node's Ed25519 signature."""
        return self._find_own()[0].sign(data)

    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        """Return whether a node signed this; False for a stranger and a revoked one."""
        return any(
            verify_signature(card.sign, data, signature) for card in self._list_cards(origin)
        )

    def peer_secret(self, node: str) -> bytes | None:
        """Return the secret to seal frames for a node with, None if the node is not valid."""
        return next(iter(self.peer_secrets(node)), None)

    def peer_secrets(self, node: str) -> tuple[bytes, ...]:
        """Return all secrets that may open a node's frames: several while keys are rotated."""
        return self._agree(node, _FRAMES)

    def make_credentials(self, node: str) -> tuple[str, str] | None:
        """Return user name and password to connect to a node's server with."""
        secrets = self._agree(node, _CONNECT)
        if not secrets:
            return None
        card = self.registrations.cards[self.name][self._find_own()[0].serial]
        return self.name, make_proof(secrets[0], self.name, node, card)

    def check_credentials(self, node: str, password: bytes) -> bool:
        """Return whether a node may connect. The card in its password may be the first we see."""
        parts = split_proof(password)
        if parts is None or self.registrations.is_revoked("node", node):
            return False
        try:
            card = read_card(parts[0], self.registrations.site)
            if card.name != node or self.registrations.is_revoked("node", node, card.serial):
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
        cards = self.registrations.cards.get(node, {})
        return [
            card
            for serial, card in sorted(cards.items())
            if not self.registrations.is_revoked("node", node, serial)
        ]

    def _find_own(self) -> list[NodeKeys]:
        good = [
            keys
            for serial, keys in sorted(self.registrations.own.items())
            if not self.registrations.is_revoked("node", self.name, serial)
        ]
        if not good:
            raise SecurityError(f"{self.name} was revoked; its site must invite it again")
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
        """Apply the body of a REVOCATION item whose signature was checked; return if it was new.

        SecurityError: it is invalid or lacks the authority's signature; nothing has changed then.
        """
        if (origin, body) in self._notices:
            return False
        notice = notices.read_notice(body, self._base.site)
        self._notices[origin, body] = notice
        if self._builder is not None and not self._extend(self._builder, origin, notice):
            self._builder = None
        self._forget_derived(has_new_nodes=not isinstance(notice, notices.Sealed))
        return True

    def list_notices(self) -> list[bytes]:
        """Return this node's own notices, as bodies of items, the same while nothing changes.

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
        owned = {name for name in self._base.devices if self._owns(name)}
        told = notices.list_revocations(self._base) + notices.list_places(self._base, owned)
        return introductions + told

    def _list_sealed_notices(self) -> list[bytes]:
        ours = [name for name in self._base.list_reported() if self._owns(name)]
        found = []
        for node in self.list_nodes():
            secrets = self._agree(node, _NOTICES)
            for name in ours if secrets else ():
                if not self.may_speak(name, node):
                    continue
                data = notices.write_registration(self._base, name, node)
                box = seal_box(secrets[0], _context(self.name, node), data)
                found.append(notices.make_sealed(node, box))
        return found

    def _owns(self, name: str) -> bool:
        return self.find_owner(name) == self.name and not self.is_revoked(name)

    def _extend(self, builder: RegistrationsBuilder, origin: str, notice: notices.Notice) -> bool:
        """Apply one more notice; False if all must be applied again, in their order."""
        if isinstance(notice, notices.Sealed | notices.Placed) or (
            isinstance(notice, notices.Revoked) and notice.kind != "node"
        ):
            self._apply_word(builder, origin, notice)
            return True
        if not isinstance(notice, Card):
            return False  # what a revoked node registered is removed with it
        try:
            builder.add_card(notice)
            self._secrets.clear()
            for (sender, _), waiting in self._notices.items():
                if sender == notice.name and isinstance(waiting, notices.Sealed):
                    self._apply_word(builder, sender, waiting)
        except SecurityError:
            return False
        return True

    def _build(self) -> None:
        """Apply all notices to the file's registrations; the order of arrival does not matter.

        Cards, revocations of nodes and rulings come first: a card opens what is sealed, a
        revocation withdraws it. Then names, as they arrived: the first node to have one keeps it.
        """
        builder = self._builder = RegistrationsBuilder(self._base, self._owners)
        self._conflicts = []
        self._secrets.clear()
        for _, notice in sorted(self._notices.items()):
            try:
                if isinstance(notice, Card):
                    builder.add_card(notice)
                elif isinstance(notice, Ruling):
                    builder.rule(notice)
                elif isinstance(notice, notices.Revoked) and notice.kind == "node":
                    builder.revoke_node(notice)
            except SecurityError as error:
                self._note_conflict(error)
        builder.drop_lapsed()
        self._secrets.clear()
        for (origin, _), notice in self._notices.items():
            self._apply_word(builder, origin, notice)

    def _apply_word(
        self, builder: RegistrationsBuilder, origin: str, notice: notices.Notice
    ) -> None:
        """Apply what a node says about a name, if it is that."""
        try:
            if isinstance(notice, notices.Sealed):
                data = self._open(origin, notice.box) if notice.receiver == self.name else None
                if data is not None:
                    builder.register(data, origin)
            elif isinstance(notice, notices.Revoked) and notice.kind != "node":
                builder.revoke(notice, origin)
            elif isinstance(notice, notices.Placed):
                builder.place(notice, origin)
        except SecurityError as error:
            self._note_conflict(error)

    def _note_conflict(self, error: SecurityError) -> None:
        if str(error) not in self._conflicts and len(self._conflicts) < _MAX_CONFLICTS:
            self._conflicts.append(str(error))

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
