"""The commands of docs/console.md start a console, print what the page shows, and serve; with TLS,
too."""

from __future__ import annotations

import datetime
import ipaddress
import re
import shlex
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from simulator.site import REPOSITORY
from tests.console.world import running_console, write_password

PAGE = REPOSITORY / "docs" / "console.md"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Return a certificate of this machine that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "console")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, secret = tmp_path / "web.pem", tmp_path / "web.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return pem, secret


def list_commands() -> list[tuple[list[str], str]]:
    """Return the page's commands, and the line that each prints."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^\$ denwatch console (.*)\n(.*)$", text, re.M)
    return [(shlex.split(words), shown) for words, shown in found]


def fetch(url: str, context: ssl.SSLContext | None = None) -> tuple[int, str, dict[str, str]]:
    """Return status, body and headers."""
    try:
        with urllib.request.urlopen(url, timeout=60, context=context) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def test_a_console_of_one_person_prints_its_link(tmp_path: Path) -> None:
    words, shown = list_commands()[0]
    words[words.index("medic7.key")] = str(write_password(tmp_path, "secret"))
    with running_console(tmp_path, *words) as address:
        told = (tmp_path / "console.txt").read_text(encoding="utf-8")
        before, _, _ = shown.partition("http://")
        why, link, *_ = told.splitlines()  # without a node it says so first
        assert why.endswith("no node serves medic7 yet: unreachable: connection refused")
        assert link.startswith(f"{before}http://127.0.0.1:")
        home = address.partition("/enter?token=")[0]
        assert home != address
        assert fetch(f"{home}/health")[:2] == (200, "ok\n")
        assert "Open it with the link" in fetch(home)[1]  # who has not the secret sees nothing else
        assert fetch(f"{home}/enter?token=guess")[0] == 403
        assert fetch(f"{home}/shared.js")[0] == 401
        assert fetch(f"{home}/nothing")[0] == 401


def test_a_console_with_login_serves_with_tls(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    words, shown = list_commands()[1]
    pem, secret = certificate
    words[words.index("site.pem")] = str(pem)
    words += ["--certificate", str(pem), "--key", str(secret)]
    with running_console(tmp_path, *words) as address:
        told = (tmp_path / "console.txt").read_text(encoding="utf-8")
        assert told.startswith(shown.partition("http://")[0])
        assert address.startswith("https://127.0.0.1:")
        status, body, headers = fetch(address, ssl.create_default_context(cafile=pem))
        assert status == 200
        assert "Log in with your name and the key" in body
        assert "default-src 'self'" in headers["content-security-policy"]
        with pytest.raises(OSError):  # noqa: PT011 - reset or closed, as the system likes
            fetch(address.replace("https://", "http://"))
