"""The way in for a phone: certificates, the page that hands out the authority, `--phone`, whose
command is taken from docs/console.md."""

from __future__ import annotations

import datetime
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cryptography import x509
from denwatch.client.console.phone import (
    Doorstep,
    draw_code,
    draw_svg_code,
    list_addresses,
    make_certificate,
)

from tests.console.test_docs import list_commands
from tests.console.world import running_console, write_password

NOW = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)
NAMES = ["192.0.2.7", "tent", "tent.local"]


def test_a_certificate_has_every_address_and_name_and_is_kept_while_it_fits(tmp_path: Path) -> None:
    first = make_certificate(tmp_path, NAMES, NOW)
    there = x509.load_pem_x509_certificate(first.certificate.read_bytes())
    there.verify_directly_issued_by(first.read_authority())
    names = there.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["tent", "tent.local"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]
    assert there.not_valid_after_utc - there.not_valid_before_utc <= datetime.timedelta(days=398)
    authority, page = first.fingerprint, first.certificate.read_bytes()
    assert len(authority.split(":")) == 32
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert make_certificate(tmp_path, NAMES, NOW).certificate.read_bytes() == page
    # Another address, or nearly over: a new one, by the same authority; phones trust it already.
    moved = make_certificate(tmp_path, ["198.51.100.1"], NOW)
    assert (moved.fingerprint, moved.certificate.read_bytes() == page) == (authority, False)
    later = NOW + datetime.timedelta(days=380)
    page = moved.certificate.read_bytes()
    renewed = make_certificate(tmp_path, ["198.51.100.1"], later)
    assert (renewed.fingerprint, renewed.certificate.read_bytes() == page) == (authority, False)


@pytest.mark.parametrize("name", ["phone-authority.pem", "phone.key", "phone.pem"])
def test_a_broken_file_is_made_anew(tmp_path: Path, name: str) -> None:
    make_certificate(tmp_path, NAMES, NOW)
    (tmp_path / name).write_text("broken")
    found = make_certificate(tmp_path, NAMES, NOW)
    there = x509.load_pem_x509_certificate(found.certificate.read_bytes())
    there.verify_directly_issued_by(found.read_authority())
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        found.certificate, found.key
    )


def test_the_doorstep_hands_out_the_authority_and_nothing_else(tmp_path: Path) -> None:
    found = make_certificate(tmp_path, NAMES, NOW)
    doorstep = Doorstep("127.0.0.1", 0, found, 'https://192.0.2.7:8443/"')
    doorstep.start()
    home = f"http://127.0.0.1:{doorstep.port}"
    try:
        page = urllib.request.urlopen(f"{home}/", timeout=30).read().decode()
        assert found.fingerprint in page
        assert 'href="https://192.0.2.7:8443/&quot;"' in page
        answer = urllib.request.urlopen(f"{home}/authority.crt", timeout=30)
        assert answer.headers["content-type"] == "application/x-x509-ca-cert"
        assert x509.load_der_x509_certificate(answer.read()) == found.read_authority()
        for path in ("/phone.key", "/login", "/../phone.key", "/authority.crt/x"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(home + path, timeout=30)
    finally:
        doorstep.close()


def test_codes_are_drawn_for_terminals_and_pages() -> None:
    lines = draw_code("https://192.0.2.7:8443/").splitlines()
    assert len(lines) > 10
    assert draw_svg_code("heart_rate is high").startswith("<svg")


def test_the_addresses_are_not_of_the_loopback() -> None:
    assert not [one for one in list_addresses() if one.startswith(("127.", "::1", "fe80"))]


def test_a_phone_gets_in_by_what_is_printed(tmp_path: Path) -> None:
    (words,) = [words for words, _ in list_commands() if "--phone" in words]
    words[words.index("medic7.key")] = str(write_password(tmp_path, "secret"))
    with running_console(tmp_path, *words) as address:
        told = (tmp_path / "console.txt").read_text(encoding="utf-8")
        first = re.search(r"on a phone, once: (http://\S+) ", told)
        then = re.search(r"then: (https://\S+)", told)
        assert first is not None
        assert then is not None
        assert then[1] == address
        authority = urllib.request.urlopen(f"{first[1]}authority.crt", timeout=60).read()
        trusted = ssl.create_default_context(cadata=authority)
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=trusted), urllib.request.HTTPCookieProcessor()
        )
        for there in (then[1], then[1].replace("127.0.0.1", "localhost")):  # by address and name
            with opener.open(there, timeout=60) as answer:
                assert answer.status == 200
                assert '<link rel="manifest"' in answer.read().decode()
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE"):
            urllib.request.urlopen(then[1], timeout=60)
