"""A node's keys, and its card: what the site's authority says about a node. Pure.

A card holds name, serial and two public keys (Ed25519 to sign, X25519 to agree) under the
authority's signature. Whoever knows the authority's public key can check a card from a stranger,
so nodes that never heard of each other can meet in the field. Two nodes' secret comes from their
agreement keys: nobody stores it, and a stolen node knows only its own. Only this file and
`authority.py` use `cryptography`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from denwatch.node.security.errors import SecurityError
from denwatch.node.security.names import check_name
from denwatch.protocol import cbor
from denwatch.protocol.errors import ProtocolError

KEY = 32
SIGNATURE = 64
MAX_SERIAL = 65535
_CARD = "denwatch card"


class NodeKeys:
    """The private keys of a node, of one serial."""

    def __init__(self, serial: int, sign: bytes, agree: bytes) -> None:
        self.serial = serial
        self.sign_secret = sign
        self.agree_secret = agree
        self._sign = Ed25519PrivateKey.from_private_bytes(sign)
        self._agree = X25519PrivateKey.from_private_bytes(agree)

    @property
    def sign_public(self) -> bytes:
        """The public half of the signing key."""
        return self._sign.public_key().public_bytes_raw()

    @property
    def agree_public(self) -> bytes:
        """The public half of the agreement key."""
        return self._agree.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """Return the Ed25519 signature."""
        return self._sign.sign(data)

    def agree(self, own_name: str, card: Card, purpose: str) -> bytes:
        """Return the secret that this node and another share, for one purpose."""
        try:
            shared = self._agree.exchange(X25519PublicKey.from_public_bytes(card.agree))
        except ValueError:
            raise SecurityError(f"the card of {card.name} holds no usable key") from None
        names = sorted([own_name, card.name])
        info = cbor.encode(["denwatch agreed", purpose, *names])
        return HKDF(hashes.SHA256(), KEY, salt=None, info=info).derive(shared)


class Card(NamedTuple):
    """What the authority says about a node."""

    name: str
    serial: int
    sign: bytes
    agree: bytes
    signature: bytes

    def covered(self) -> bytes:
        """Return the bytes that the authority signed."""
        return cbor.encode([_CARD, self.name, self.serial, self.sign, self.agree])

    def encode(self) -> bytes:
        """Return the card as bytes."""
        return cbor.encode([self.name, self.serial, self.sign, self.agree, self.signature])


def make_card(authority: Ed25519PrivateKey, name: str, keys: NodeKeys) -> Card:
    """Return the signed card of a node."""
    card = Card(check_name(name), keys.serial, keys.sign_public, keys.agree_public, b"")
    return card._replace(signature=authority.sign(card.covered()))


def read_card(data: bytes, site: bytes) -> Card:
    """Return a card that the site's authority signed; SecurityError otherwise."""
    try:
        fields = cbor.decode(data)
    except ProtocolError as error:
        raise SecurityError(f"no card: {error}") from None
    if not isinstance(fields, list) or list(map(type, fields)) != [str, int, bytes, bytes, bytes]:
        raise SecurityError("no card: name, serial, two keys and a signature are wanted")
    card = Card(*fields)
    check_name(card.name, "card")
    if not 1 <= card.serial <= MAX_SERIAL or {len(card.sign), len(card.agree)} != {KEY}:
        raise SecurityError(f"the card of {card.name} has no serial or keys of the wrong length")
    if not verify_signature(site, card.covered(), card.signature):
        raise SecurityError(f"the card of {card.name} is not signed by this site's authority")
    return card


def verify_signature(public: bytes, data: bytes, signature: bytes) -> bool:
    """Return whether an Ed25519 signature is right."""
    if len(public) != KEY or len(signature) != SIGNATURE:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def make_proof(secret: bytes, dialer: str, listener: str, card: Card) -> str:
    """Return the MQTT password of a node that connects to another: its card and a tag."""
    tag = _tag_proof(secret, dialer, listener, card.serial)
    return ".".join(base64.urlsafe_b64encode(part).decode() for part in (card.encode(), tag))


def split_proof(password: bytes) -> tuple[bytes, bytes] | None:
    """Return card and tag of a node's password, None if it is something else."""
    parts = password.split(b".")
    if len(parts) != 2:
        return None
    try:
        decoded = [base64.b64decode(part, altchars=b"-_", validate=True) for part in parts]
    except binascii.Error:
        return None
    # base64 has bits to spare at its end: one proof, one password.
    if [base64.urlsafe_b64encode(part) for part in decoded] != parts:
        return None
    return decoded[0], decoded[1]


def check_proof(secret: bytes, dialer: str, listener: str, serial: int, tag: bytes) -> bool:
    """Return whether the tag of a proof is right."""
    return hmac.compare_digest(_tag_proof(secret, dialer, listener, serial), tag)


def _tag_proof(secret: bytes, dialer: str, listener: str, serial: int) -> bytes:
    covered = cbor.encode(["denwatch connect", dialer, listener, serial])
    return hmac.digest(secret, covered, "sha256")


def seal_box(secret: bytes, context: bytes, data: bytes) -> bytes:
    """Return data encrypted so that equal data gives equal bytes: AES-SIV needs no nonce."""
    return AESSIV(secret).encrypt(data, [context])


def open_box(secret: bytes, context: bytes, sealed: bytes) -> bytes | None:
    """Return the data of a box, None if it is not for us or was changed."""
    try:
        return AESSIV(secret).decrypt(sealed, [context])
    except (InvalidTag, ValueError):
        return None
