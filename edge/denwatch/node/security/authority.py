"""The site's authority: signs nodes' cards, and is the certificate authority for TLS.

Its two private keys stand in `authority.json`, apart from a node's own: it is needed to invite,
renew and revoke nodes only, and may lie in a drawer. Certificates are of P-256, which the TLS of
microcontrollers has. They are valid from the year 2000 and for decades: boards without a battery
start there, and nodes' clocks may be wrong by years. Who is let in is decided by names, keys and
revocations, not by a date.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from denwatch.node.security.cards import KEY, Card, NodeKeys, make_card
from denwatch.node.security.errors import SecurityError
from denwatch.node.security.names import check_name, make_secret
from denwatch.node.security.notices import cover_revocation

AUTHORITY_FILE = "authority.json"
_FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
_YEARS = 30


class Certificate(NamedTuple):
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class _Document(msgspec.Struct, forbid_unknown_fields=True):
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
            document = msgspec.json.decode(text, type=_Document)
            key = serialization.load_pem_private_key(document.key.encode(), None)
            certificate = x509.load_pem_x509_certificate(document.certificate.encode())
            sign = bytes.fromhex(document.sign)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise SecurityError(f"no authority: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or len(sign) != KEY:
            raise SecurityError("no authority: keys of another kind")
        if key.public_key() != certificate.public_key():
            raise SecurityError("no authority: key and certificate do not fit")
        return cls(sign, key, certificate)

    def write(self) -> bytes:
        """Return the text of the authority's file."""
        document = _Document(
            1, self._sign_secret.hex(), _write_key(self._key).decode(), self.certificate.decode()
        )
        return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"

    @property
    def public(self) -> bytes:
        """The key that every node of the site knows it by."""
        return self._sign.public_key().public_bytes_raw()

    @property
    def certificate(self) -> bytes:
        """The certificate that clients verify servers with, as PEM."""
        return self._ca.public_bytes(serialization.Encoding.PEM)

    @property
    def certificate_der(self) -> bytes:
        """The same as DER, the form that boards take."""
        return self._ca.public_bytes(serialization.Encoding.DER)

    def sign_card(self, name: str, keys: NodeKeys) -> Card:
        """Return a node's card."""
        return make_card(self._sign, name, keys)

    def sign_revocation(self, name: str, key_id: int | None) -> bytes:
        """Return the signature that the revocation of a node must carry."""
        return self._sign.sign(cover_revocation(name, key_id))

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
        raise SecurityError("no certificate of a server") from None
    return [str(name.value) for name in names]


def convert_certificate(certificate: bytes) -> bytes:
    """Return a PEM certificate as DER."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise SecurityError("no certificate") from None
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
        raise SecurityError(f'"{address}" is no host name or IP address') from None


def _write_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
