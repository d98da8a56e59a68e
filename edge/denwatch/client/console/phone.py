"""The way in for a phone: addresses of this machine, a certificate for them, a page that explains.

A browser gives sound, notifications and a page that works offline only to addresses with a
certificate that it trusts. So `denwatch console --phone` makes an authority of its own, kept in the
console's folder, and with it a certificate for every address and name of this machine; or it uses
those that it was given. The phone must install the authority once: it gets it over plain HTTP from
`Doorstep`, which serves that and an explanation, and nothing else. Whoever is in the network could
hand out another authority in its place: its fingerprint is printed, and is on the page, to compare.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import ipaddress
import os
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import ifaddr
import segno
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from denwatch.client.language.localisation import choose_locale, load_locale

_AUTHORITY_DAYS = 3_650
_DAYS = 397  # browsers accept no longer certificate
_RENEWED = 30  # days before its end
_PARTS = Path(__file__).parent / "parts"


def list_addresses() -> list[str]:
    """Return the addresses of this machine beyond the loopback, the usual one first."""
    found: dict[str, None] = {}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the system only chooses the address that it would send from.
        probe.connect(("192.0.2.1", 9))
        found[probe.getsockname()[0]] = None
    for adapter in ifaddr.get_adapters():
        for one in sorted(adapter.ips, key=lambda ip: not ip.is_IPv4):
            found[one.ip if isinstance(one.ip, str) else one.ip[0]] = None
    return [one for one in found if not _is_local(one)]


def _is_local(address: str) -> bool:
    there = ipaddress.ip_address(address)
    return there.is_loopback or there.is_link_local


def list_names() -> list[str]:
    """Return the names of this machine, with the one that phones find without a name server."""
    name = socket.gethostname().partition(".")[0].casefold()
    return [name, f"{name}.local"] if name else []


# The certificate -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PhoneCertificate:
    """The page's certificate and key, and the authority that a phone has to install."""

    certificate: Path
    key: Path
    authority: Path

    def read_authority(self) -> x509.Certificate:
        """Return the authority's certificate."""
        return x509.load_pem_x509_certificate(self.authority.read_bytes())

    @property
    def fingerprint(self) -> str:
        """The authority's SHA-256, as phones show it."""
        return self.read_authority().fingerprint(hashes.SHA256()).hex(":").upper()


def make_certificate(
    folder: Path, names: Iterable[str], now: datetime.datetime
) -> PhoneCertificate:
    """Return a certificate for these addresses and names; what is there is used while it fits."""
    wanted = sorted(set(names))
    found = PhoneCertificate(
        folder / "phone.pem", folder / "phone.key", folder / "phone-authority.pem"
    )
    secret = folder / "phone-authority.key"
    try:
        authority = found.read_authority()
        issuer = _load_key(secret)
    except (OSError, ValueError):
        issuer = ec.generate_private_key(ec.SECP256R1())
        authority = _sign_authority(issuer, now)
        _write(secret, _dump_key(issuer))
        _write(found.authority, authority.public_bytes(serialization.Encoding.PEM))
    if not _is_fitting(found, authority, wanted, now):
        key = ec.generate_private_key(ec.SECP256R1())
        made = _sign_page(key, authority, issuer, wanted, now)
        _write(found.key, _dump_key(key))
        _write(found.certificate, made.public_bytes(serialization.Encoding.PEM))
    return found


def _is_fitting(
    found: PhoneCertificate, authority: x509.Certificate, wanted: list[str], now: datetime.datetime
) -> bool:
    try:
        there = x509.load_pem_x509_certificate(found.certificate.read_bytes())
        _load_key(found.key)
        there.verify_directly_issued_by(authority)
        names = there.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001 - whatever is wrong with it, a new one is made
        return False
    own = [*names.get_values_for_type(x509.DNSName)]
    own += map(str, names.get_values_for_type(x509.IPAddress))
    days = datetime.timedelta(days=_RENEWED)
    return sorted(own) == wanted and there.not_valid_after_utc - days > now


def _sign_authority(key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "denwatch console authority")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    return (
        _start(name, name, key, now, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _sign_page(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    issuer: ec.EllipticCurvePrivateKey,
    names: list[str],
    now: datetime.datetime,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "denwatch console")])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    return (
        _start(subject, authority.subject, key, now, _DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(map(_name, names)), critical=False)
        .add_extension(usage, critical=False)
        .sign(issuer, hashes.SHA256())
    )


def _start(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    begin = now - datetime.timedelta(days=1)  # the phone's clock may be behind
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} is not a key of ours")
    return key


def _dump_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)


# The page that explains ----------------------------------------------------------------------


class Doorstep:
    """Hands out the authority over plain HTTP, with an explanation; nothing else is served."""

    def __init__(self, host: str, port: int, certificate: PhoneCertificate, target: str) -> None:
        """`target` is the console's address, without any secret. OSError: it cannot listen."""
        authority = certificate.read_authority()
        page = (_PARTS / "phone.html").read_text(encoding="utf-8")
        fields = {
            "target": escape(target, quote=True),
            "fingerprint": escape(certificate.fingerprint),
        }

        def serve(path: str, languages: str) -> tuple[str, bytes]:
            if path == "/":
                code = choose_locale("", languages)
                shown = load_locale(code).fill(page, {**fields, "language": code})
                return "text/html; charset=utf-8", shown.encode()
            if path == "/authority.crt":
                data = authority.public_bytes(serialization.Encoding.DER)
                return "application/x-x509-ca-cert", data
            return "text/plain", b""

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                kind, body = serve(self.path, self.headers.get("accept-language", ""))
                self.send_response(200 if body else 404)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.send_header("x-content-type-options", "nosniff")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: who installs a certificate is nobody's business."""

        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server_class = type("_Server", (ThreadingHTTPServer,), {"address_family": family})
        self._server: ThreadingHTTPServer = server_class((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve, on a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


def draw_code(text: str) -> str:
    """Return a QR code for a terminal, dark on light whatever the terminal's colours are."""
    out = io.StringIO()
    segno.make(text, error="m", micro=False).terminal(out, border=2, compact=True)
    return out.getvalue()


def draw_svg_code(text: str) -> str:
    """Return a QR code for a page."""
    code = segno.make(text, error="m", micro=False)
    return str(code.svg_inline(scale=4, border=2, light="#fff", dark="#000"))
