"""TLS with a real server: the right authority is accepted, every other certificate is not."""

# cpython only: it starts processes

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.watchdog.faults.plant import Plant, find_free_port, wait_for


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
def plant(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Plant]:
    make_certificates(tmp_path)
    plant = Plant(tmp_path, request.param)
    plant.kill("broker")
    plant.tls_port = find_free_port()
    plant.broker_options = (
        f"listener {plant.tls_port} 127.0.0.1\n"
        f"certfile {tmp_path}/server.pem\nkeyfile {tmp_path}/server.key\n"
    )
    plant.start_broker()
    plant.start_node()
    yield plant
    plant.close()


def use(plant: Plant, host: str, authority: str) -> None:
    node = plant.config["nodes"][0]  # type: ignore[index]
    node["url"] = f"mqtts://{host}:{plant.tls_port}"
    node["ca"] = str(plant.folder / authority)
    plant.start_dog()


def test_the_right_authority(plant: Plant) -> None:
    use(plant, "localhost", "ca.der")
    plant.wait_subscribed()
    plant.read(*range(1, 20))
    plant.check()


@pytest.mark.parametrize(
    ("host", "authority"), [("localhost", "other.der"), ("127.0.0.1", "ca.der")]
)
def test_another_authority_or_name_is_refused(plant: Plant, host: str, authority: str) -> None:
    use(plant, host, authority)
    wait_for(lambda: plant.count("link", "failed") > 1, plant.describe)
    assert plant.count("link", "connected") == 0
    assert plant.report()["server"] is None
