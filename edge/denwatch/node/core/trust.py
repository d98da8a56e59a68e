"""Whose word counts: notices about names and keys, and what ends an item before its time.

NOTICES. `Trust` makes an item of every notice that this node's keyring lists, and gives the keyring
those of others. What a notice says and whether it may say so is the keyring's business. Which node
a name belongs to depends on what came first, so it is on the disk (`trust.owner`): only here.

REMOVALS. A member of the site speaks for itself, so an item ends by its origin's word. But a person
walks: who subscribed at one node unsubscribes at another. What they have everywhere is their
password. A node where somebody logs in derives a signing key from it (`security/credentials.py`),
the same at every node; a node where they never were cannot. A subscription names the key of whoever
asked for it, with a signature over everything it says and the node it was made at (the option
`by`). A *removal* is an item that names others: it counts if its own origin made those, or if it is
signed with the key that they name. Nodes hand it on like any item, so that it also arrives where
nobody meets the origin. A node can misuse the key of somebody who logged in there, and could as
well log in elsewhere as them: the rule gives it nothing.

Of two subscriptions of one person and name the newer replaces the older one only if it has the same
key. Open to every member's word (`is_open`) are preferences and claims, which every member may
replace, and subscriptions without a key: of a node behind somebody else's broker, which never sees
a password, or of a client without a name.

KEPT       by dot, the removals that name it, while they are held: an item that comes later than
           its removal ends at once. A removal is kept for 30 days; who was apart for longer hears
           of the end from the origin itself.
EXAMPLE    Ada subscribes at north (north,1,7), walks to south, and unsubscribes there. South has
           her key and makes (south,3,2): "(north,1,7) is removed", signed with it. East holds the
           subscription and never meets south. It gets the removal through north, finds the same
           key in both, and ends the subscription.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Protocol

import cbor2
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    ANNOUNCEMENT,
    BY,
    CLAIM,
    NEVER,
    PREFERENCE,
    REMOVAL,
    REVOCATION,
    SUBSCRIPTION,
    VOCABULARY,
    Dot,
    Item,
    NotificationBody,
    RemovalBody,
    SubscriptionBody,
    decode_body,
    encode_body,
)
from denwatch.protocol.errors import ProtocolError

# Notices ---------------------------------------------------------------------------------------


class Notices(Protocol):
    """What is needed of a keyring; `denwatch.node.security.keyring` has the real one."""

    @property
    def generation(self) -> int:
        """A number that grows with every change."""

    def list_notices(self) -> list[bytes]:
        """Return the notices of this node for the others."""

    def apply_notice(self, origin: str, body: bytes) -> bool:
        """Take a notice; ValueError if it is none, or from somebody who may not say so."""

    def note_owner(self, name: str, node: str) -> None:
        """Learn from an earlier run which node a name belongs to."""

    def take_news(self) -> tuple[dict[str, str], list[str]]:
        """Return owners of names, and conflicts, that were found since the last call."""


OWNERS = "trust.owner"  # a name: the node it belongs to


class Trust:
    """Keeps a keyring and the notices among the items in step."""

    def __init__(self, item_store: ItemStore, keyring: Notices) -> None:
        self._item_store = item_store
        self._keyring = keyring
        self._told: dict[bytes, Dot] = {}  # our own notices that are items
        self._generation = -1

    def restore(self, reader: Reader) -> None:
        """Give the keyring what an earlier run learned."""
        for key, value in reader.scan(OWNERS):
            self._keyring.note_owner(key.decode(), value.decode())
        for item in self._item_store.iterate(reader, REVOCATION):
            if item.dot.origin == self._item_store.name:
                self._told[item.body] = item.dot
            else:
                with suppress(ValueError):  # it was refused when it came, too
                    self._keyring.apply_notice(item.dot.origin, item.body)

    def apply_notice(self, transaction: Transaction, item: Item) -> None:
        """Give the keyring the notice of another node.

        At once, when it is stored: what follows in the same frame is judged by the new keys.
        """
        try:
            self._keyring.apply_notice(item.dot.origin, item.body)
        except ValueError as error:
            transaction.log("refuse", what="notice", why=str(error), who=item.dot.origin)
            transaction.count("notices_refused")
        self._keep_news(transaction, item.dot.origin)

    def _keep_news(self, transaction: Transaction, who: str) -> None:
        owners, conflicts = self._keyring.take_news()
        for name, node in owners.items():
            transaction.write(OWNERS, name.encode(), node.encode())
        for why in conflicts:
            transaction.log("refuse", what="notice", why=why, who=who)
            transaction.count("notices_refused")

    def tick(self, transaction: Transaction) -> None:
        """Make items of what is new, and remove those that no longer hold."""
        if self._keyring.generation == self._generation:
            return
        self._generation = self._keyring.generation
        self._keep_news(transaction, self._item_store.name)
        wanted = dict.fromkeys(self._keyring.list_notices())
        for body in [body for body in self._told if body not in wanted]:
            self._item_store.remove(transaction, REVOCATION, self._told.pop(body), "removed")
        for body in wanted:
            if body not in self._told:
                self._told[body] = self._item_store.originate(
                    transaction, REVOCATION, NEVER, body
                ).dot


# Removals --------------------------------------------------------------------------------------

_KEY = 32  # bytes of a key; a signature follows
_LIFE = 30 * 24 * 3_600_000  # ms
_MOST = 10_000  # removals of our own that are held; what is beyond ends by our own word alone
PROVED = (SUBSCRIPTION, VOCABULARY, REVOCATION, ANNOUNCEMENT, REMOVAL)  # removals among them
_ENDED = ("removed", "replaced")  # for everybody; what expired others judge for themselves


class ProofKeys(Protocol):
    """What a keyring knows of nodes, devices, and the people who logged in here."""

    def verify(self, origin: str, data: bytes, signature: bytes) -> bool:
        """Return whether a node, which is not revoked, signed this."""

    def may_speak(self, device: str, node: str) -> bool:
        """Return whether a device's readings may come through a node."""

    def sign_for(self, name: str, data: bytes, key: bytes = b"") -> tuple[bytes, bytes] | None:
        """Return somebody's key, this one if it is given, and a signature; None without a key."""

    def verify_person(self, key: bytes, data: bytes, signature: bytes) -> bool:
        """Return whether a person's key signed this."""


class _Word(NamedTuple):
    """Who says that an item is removed: a node, and perhaps the key of a person."""

    node: str
    key: bytes


def is_open(item: Item) -> bool:
    """Return whether every member is believed that an item was removed."""
    if item.kind == SUBSCRIPTION:
        return not find_key(item)
    return item.kind in (PREFERENCE, CLAIM)


def find_key(item: Item) -> bytes:
    """Return the key of whoever asked for a subscription; b"" if there is none."""
    try:
        options = decode_body(SubscriptionBody, item.body).options
    except ProtocolError:  # stored by a version that checked less
        return b""
    return read_key(options.get(BY, ""))


def read_key(by: str) -> bytes:
    """Return the key of the option `by`."""
    return _split(by)[0]


def find_forgery(item: Item, keys: ProofKeys) -> str:
    """Return why a subscription or removal of another node does not count; "" if it does."""
    if item.kind == SUBSCRIPTION:
        body = decode_body(SubscriptionBody, item.body)
        by = body.options.get(BY, "")
        data = _cover_subscription(item.dot.origin, body)
    elif item.kind == REMOVAL:
        removal = decode_body(RemovalBody, item.body)
        by, data = removal.by, _cover_removal(removal.dots)
        if not by and any(dot.origin != item.dot.origin for dot in removal.dots):
            return "a removal of what another node made"
    else:
        return ""
    key, signature = _split(by)
    if by and not keys.verify_person(key, data, signature):
        return "a wrong signature of a person"
    return ""


def _cover_subscription(node: str, body: SubscriptionBody) -> bytes:
    """Return what a person signs: what is asked for, and where, so that no other node repeats it.

    Otherwise another node could repeat it as its own, and then remove that.
    """
    said = replace(body, options={key: body.options[key] for key in body.options if key != BY})
    return cbor2.dumps(["denwatch subscription", node, encode_body(said)])


def _cover_removal(dots: Iterable[Dot]) -> bytes:
    return cbor2.dumps(["denwatch removal", [list(dot) for dot in dots]])


def _split(by: str) -> tuple[bytes, bytes]:
    try:
        data = base64.b64decode(by, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return b"", b""
    return data[:_KEY], data[_KEY:]


class Proofs:
    """The removals that a node holds, and those that it makes; what of others is real."""

    def __init__(self, item_store: ItemStore, keys: ProofKeys) -> None:
        self._item_store = item_store
        self._keys = keys
        self._words: dict[Dot, dict[Dot, _Word]] = {}  # by what is removed, and by removal
        self._made = 0

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run stored."""
        for item in self._item_store.iterate(reader, REMOVAL):
            self._note(item)

    def is_genuine(self, item: Item) -> bool:
        """Return whether a notification is its origin's, of a device that speaks through it."""
        try:
            device = decode_body(NotificationBody, item.body).device
        except ProtocolError:
            return False
        is_signed = self._keys.verify(item.dot.origin, item.signed, item.signature)
        return is_signed and self._keys.may_speak(device, item.dot.origin)

    # Of people here -------------------------------------------------------------------------

    def sign(self, body: SubscriptionBody, person: str) -> SubscriptionBody:
        """Return a subscription with the key of who asks for it, if they logged in here."""
        options = {key: body.options[key] for key in body.options if key != BY}
        body = replace(body, options=options)
        by = self._sign_for(person, _cover_subscription(self._item_store.name, body))
        return replace(body, options={**options, BY: by}) if by else body

    def end(self, transaction: Transaction, dot: Dot, key: bytes, person: str, reason: str) -> bool:
        """Remove a subscription as a person asks; return whether other nodes will believe it."""
        self._item_store.remove(transaction, SUBSCRIPTION, dot, reason)
        if not key or dot.origin == self._item_store.name:
            return True  # `note_removed` tells of our own
        by = self._sign_for(person, _cover_removal([dot]), key)
        if by:
            self._originate(transaction, dot, by, NEVER)
        return bool(by)

    def _sign_for(self, person: str, data: bytes, key: bytes = b"") -> str:
        signed = self._keys.sign_for(person, data, key)
        return "" if signed is None else base64.urlsafe_b64encode(b"".join(signed)).decode()

    # Items that came and went ---------------------------------------------------------------

    def add(self, transaction: Transaction, items: Sequence[Item]) -> None:
        """Note removals, and remove what they name; end what comes later than its removal."""
        for item in items:
            dots = [item.dot]
            if item.kind == REMOVAL:
                dots = self._note(item)
            for dot in dots:
                if dot in self._words:
                    self._apply(transaction, dot)

    def _apply(self, transaction: Transaction, dot: Dot) -> None:
        for kind in PROVED:
            if kind == REMOVAL or not self._item_store.holds(kind, dot):
                continue
            item = self._item_store.get(transaction, kind, dot)
            assert item is not None, "held in memory, not on the disk"
            key = find_key(item) if kind == SUBSCRIPTION else b""
            words = self._words[dot].values()
            if any(word.node == dot.origin or (key and word.key == key) for word in words):
                self._item_store.remove(transaction, kind, dot, "removed")

    def note_removed(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Tell of an item of ours that was removed; forget a removal that is over."""
        if item.kind == REMOVAL:
            self._forget(item)
            return
        is_ours = item.dot.origin == self._item_store.name and item.kind in PROVED
        if is_ours and reason in _ENDED and self._made < _MOST and not is_open(item):
            self._originate(transaction, item.dot, "", item.expires)

    def _originate(self, transaction: Transaction, dot: Dot, by: str, end: int) -> None:
        expires = transaction.now + _LIFE
        if end != NEVER:  # of an item of ours: later nobody holds it anyway
            expires = max(transaction.now + 1, min(expires, end))
        body = encode_body(RemovalBody([list(dot)], by))
        self._item_store.originate(transaction, REMOVAL, expires, body)

    def _note(self, item: Item) -> list[Dot]:
        body = decode_body(RemovalBody, item.body)
        self._made += item.dot.origin == self._item_store.name
        word = _Word(item.dot.origin, read_key(body.by))
        for dot in body.dots:
            self._words.setdefault(dot, {})[item.dot] = word
        return body.dots

    def _forget(self, item: Item) -> None:
        self._made -= item.dot.origin == self._item_store.name
        for dot in decode_body(RemovalBody, item.body).dots:
            words = self._words.get(dot, {})
            words.pop(item.dot, None)
            if not words:
                self._words.pop(dot, None)
