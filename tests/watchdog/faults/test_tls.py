"""TLS with a real server: the right authority is accepted, every other certificate is not."""

# cpython only: it starts processes

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.site import find_free_port, wait_for
from tests.watchdog.faults.site import WatchdogSite


def make_certificates(folder: Path) -> None:
    """Make two authorities (DER for the device), and a server's certificate for `localhost`."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    for name in ("ca", "other"):
        openssl("req", "-x509", *curve, "-keyout", f"{name}.key", "-out", f"{name}.pem",
                "-subj", f"/CN={name}")  # fmt: skip
        openssl("x509", "-in", f"{name}.pem", "-outform", "der", "-out", f"{name}.der")
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl("req", "-new", *curve[:-2], "-keyout", "server.key", "-out", "server.csr",
            "-subj", "/CN=localhost")  # fmt: skip
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "server.pem")  # fmt: skip


@pytest.fixture(params=["cpython", "micropython"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WatchdogSite]:
    make_certificates(tmp_path)
    port = find_free_port()
    options = (
        f"listener {port} 127.0.0.1\n"
        f"certfile {tmp_path}/server.pem\nkeyfile {tmp_path}/server.key\n"
    )
    site = WatchdogSite(tmp_path, request.param, broker_options=options)
    site.tls_port = port
    site.start_node()
    yield site
    site.close()


def use(site: WatchdogSite, host: str, authority: str) -> None:
    node = site.config["nodes"][0]  # type: ignore[index]
    node["url"] = f"mqtts://{host}:{site.tls_port}"
    node["ca"] = str(site.folder / authority)
    site.start_watchdog()


def test_the_right_authority(site: WatchdogSite) -> None:
    use(site, "localhost", "ca.der")
    site.wait_subscribed()
    site.read(*range(1, 20))
    site.check()


@pytest.mark.parametrize(
    ("host", "authority"), [("localhost", "other.der"), ("127.0.0.1", "ca.der")]
)
def test_another_authority_or_name_is_refused(
    site: WatchdogSite, host: str, authority: str
) -> None:
    use(site, host, authority)
    wait_for(site.describe, lambda: site.count("link", "failed") > 1)
    assert site.count("link", "connected") == 0
    assert site.report()["server"] is None
