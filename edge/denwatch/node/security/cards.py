"""A node's keys and card, and the site's authority that signs cards and TLS certificates.

A card holds name, serial and two public keys (Ed25519 to sign, X25519 to agree on secrets) under
the authority's signature. Whoever knows the authority's public key can check the card of a node
that it never met, so nodes can meet in the field without the authority. The secret of two nodes
comes from their agreement keys: it is never stored, and a stolen node knows only its own.

The authority's two private keys are in `authority.json`, apart from a node's own keys. They are
needed only to invite, renew and revoke nodes and to rule on names, and can be kept offline.
Certificates use P-256, which the TLS of microcontrollers supports. They are valid from the year
2000 for decades: boards without a battery start with that clock, and nodes' clocks may be wrong by
years. Names, keys and revocations decide who is accepted, not dates.

Only this file uses `cryptography`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from denwatch.node.security.credentials import SecurityError, check_name, make_secret
from denwatch.protocol import cbor
from denwatch.protocol.errors import ProtocolError

KEY = 32
SIGNATURE = 64
MAX_SERIAL = 65535
_CARD = "denwatch card"
_RULING = "denwatch ruling"


class PersonKey:
    """The signing key of a person, which comes from their password (`credentials.open_hash`)."""

    def __init__(self, secret: bytes) -> None:
        self._sign = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = self._sign.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """Return the Ed25519 signature."""
        return self._sign.sign(data)


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
            raise SecurityError(f"the card of {card.name} has no usable key") from None
        names = sorted([own_name, card.name])
        info = cbor.encode(["denwatch agreed", purpose, *names])
        return HKDF(hashes.SHA256(), KEY, salt=None, info=info).derive(shared)


class Card(NamedTuple):
    """What the authority certifies about a node: its name, serial and public keys."""

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
        raise SecurityError(f"not a card: {error}") from None
    if not isinstance(fields, list) or list(map(type, fields)) != [str, int, bytes, bytes, bytes]:
        raise SecurityError("not a card: it must have a name, a serial, two keys and a signature")
    card = Card(*fields)
    check_name(card.name, "card")
    if not 1 <= card.serial <= MAX_SERIAL or {len(card.sign), len(card.agree)} != {KEY}:
        raise SecurityError(f"the card of {card.name} has a wrong serial or wrong keys")
    if not verify_signature(site, card.covered(), card.signature):
        raise SecurityError(f"the card of {card.name} is not signed by this site's authority")
    return card


class Ruling(NamedTuple):
    """What the authority decides on the name of a device or subscriber; the greatest counts."""

    name: str
    number: int  # grows with every ruling on a name
    is_revoked: bool
    node: str  # that the name belongs to from now on; empty: as it was
    signature: bytes

    def covered(self) -> bytes:
        """Return the bytes that the authority signed."""
        return cbor.encode([_RULING, *self[:-1]])

    def encode(self) -> bytes:
        """Return the ruling as bytes."""
        return cbor.encode(list(self))


def read_ruling(data: bytes, site: bytes) -> Ruling:
    """Return a ruling that the site's authority signed; SecurityError otherwise."""
    try:
        fields = cbor.decode(data)
    except ProtocolError as error:
        raise SecurityError(f"not a ruling: {error}") from None
    if not isinstance(fields, list) or list(map(type, fields)) != [str, int, bool, str, bytes]:
        raise SecurityError("not a ruling: it must have a name, a number, a verdict and a node")
    ruling = Ruling(*fields)
    check_name(ruling.name, "ruling")
    if not verify_signature(site, ruling.covered(), ruling.signature):
        raise SecurityError(f"the ruling on {ruling.name} lacks the authority's signature")
    return ruling


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
    """Return the card and the tag in a node's password; None if it is something else."""
    parts = password.split(b".")
    if len(parts) != 2:
        return None
    try:
        decoded = [base64.b64decode(part, altchars=b"-_", validate=True) for part in parts]
    except binascii.Error:
        return None
    # base64 ignores some bits at its end: accept one spelling only.
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
    """Return the data of a box; None if it is not for us or was changed."""
    try:
        return AESSIV(secret).decrypt(sealed, [context])
    except (InvalidTag, ValueError):
        return None


def cover_revocation(name: str, key_id: int | None) -> bytes:
    """Return the bytes that the authority signs to revoke a node."""
    return cbor.encode(["denwatch revoke", name, key_id])


# The authority -------------------------------------------------------------------------------

AUTHORITY_FILE = "authority.json"
_FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
_YEARS = 30


class Certificate(NamedTuple):
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class _AuthorityFile(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    sign: str
    key: str
    certificate: str


class Authority:
    """The keys of a site's authority."""

    def __init__(self, sign: bytes, key: ec.EllipticCurvePrivateKey, ca: x509.Certificate) -> None:
        self._sign_secret = sign
        self._sign = Ed25519PrivateKey.from_private_bytes(sign)
        self._key = key
        self._ca = ca

    @classmethod
    def make(cls, site: str, today: datetime) -> Authority:
        """Return a new authority with new keys."""
        check_name(site, "site")
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"{site} authority")
        builder = _start_certificate(name, name, key.public_key(), today)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(is_authority=True), True)
        return cls(make_secret(), key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def read(cls, text: bytes) -> Authority:
        """Return the authority of a file's text."""
        try:
            document = msgspec.json.decode(text, type=_AuthorityFile)
            key = serialization.load_pem_private_key(document.key.encode(), None)
            certificate = x509.load_pem_x509_certificate(document.certificate.encode())
            sign = bytes.fromhex(document.sign)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise SecurityError(f"not an authority: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or len(sign) != KEY:
            raise SecurityError("not an authority: wrong types of keys")
        if key.public_key() != certificate.public_key():
            raise SecurityError("not an authority: key and certificate do not belong together")
        return cls(sign, key, certificate)

    def write(self) -> bytes:
        """Return the text of the authority's file."""
        document = _AuthorityFile(
            1, self._sign_secret.hex(), _write_key(self._key).decode(), self.certificate.decode()
        )
        return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"

    @property
    def public(self) -> bytes:
        """The public key by which every node of the site recognises it."""
        return self._sign.public_key().public_bytes_raw()

    @property
    def certificate(self) -> bytes:
        """The certificate that clients verify servers with, as PEM."""
        return self._ca.public_bytes(serialization.Encoding.PEM)

    def sign_card(self, name: str, keys: NodeKeys) -> Card:
        """Return a node's card."""
        return make_card(self._sign, name, keys)

    def sign_revocation(self, name: str, key_id: int | None) -> bytes:
        """Return the signature that the revocation of a node must carry."""
        return self._sign.sign(cover_revocation(name, key_id))

    def sign_ruling(self, name: str, number: int, *, is_revoked: bool, node: str = "") -> Ruling:
        """Return a ruling on a name."""
        ruling = Ruling(name, number, is_revoked, node, b"")
        return ruling._replace(signature=self._sign.sign(ruling.covered()))

    def sign_image(self, covered: bytes) -> bytes:
        """Return the signature of code for devices; `covered` says that it is code."""
        return self._sign.sign(covered)

    def issue_certificate(self, name: str, addresses: list[str], today: datetime) -> Certificate:
        """Return a new certificate for a node's server, for its name and its addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [_read_address(address) for address in dict.fromkeys([name, *addresses])]
        builder = _start_certificate(_name(name), self._ca.subject, key.public_key(), today)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(is_authority=False), True)
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False
        )
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = builder.add_extension(issuer, False).sign(self._key, hashes.SHA256())
        return Certificate(signed.public_bytes(serialization.Encoding.PEM), _write_key(key))


def make_node_keys(serial: int) -> NodeKeys:
    """Return new private keys for a node."""
    return NodeKeys(serial, make_secret(), make_secret())


def list_addresses(certificate: bytes) -> list[str]:
    """Return the names and addresses that a certificate is for."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        raise SecurityError("not a server certificate") from None
    return [str(name.value) for name in names]


def convert_certificate(certificate: bytes) -> bytes:
    """Return a PEM certificate as DER."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise SecurityError("not a certificate") from None
    return found.public_bytes(serialization.Encoding.DER)


def _start_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, today: datetime
) -> x509.CertificateBuilder:
    last = max(today, datetime(2026, 1, 1, tzinfo=UTC)) + timedelta(days=365 * _YEARS)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FIRST_DAY)
        .not_valid_after(last)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _read_address(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        pass
    try:
        return x509.DNSName(address)
    except ValueError:
        raise SecurityError(f'"{address}" is not a host name or IP address') from None


def _write_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
