"""`denwatch keys acl`: the same ownership of topics, enforced by a real Mosquitto."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.cli import keys, node

USERS = ("medic7", "medic8", "node-a")

pytestmark = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("mosquitto", "mosquitto_passwd", "mosquitto_sub")),
    reason="needs Mosquitto and its clients",
)


def find_port() -> int:
    """Return a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[int]:
    """A Mosquitto with the printed rules."""
    folder = node.init_node(tmp_path / "a", "node-a").parent
    keys.run(["--directory", str(folder), "acl"])
    (tmp_path / "acl").write_text(capsys.readouterr().out)
    passwords = tmp_path / "passwords"
    passwords.touch()
    for user in USERS:
        subprocess.run(["mosquitto_passwd", "-b", passwords, user, "pw"], check=True)
    port = find_port()
    (tmp_path / "conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {passwords}\n"
        f"acl_file {tmp_path / 'acl'}\nlog_type none\nuser {os.environ.get('USER', 'root')}\n"
    )
    server = subprocess.Popen(["mosquitto", "-c", tmp_path / "conf"])
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.wait()


def is_carried(port: int, publisher: str, subscriber: str, topic: str) -> bool:
    """Return whether a retained message of one user reaches another."""
    words = secrets.token_hex(4)
    base = ["-h", "127.0.0.1", "-p", str(port), "-P", "pw", "-q", "1", "-t", topic]
    subprocess.run(["mosquitto_pub", *base, "-u", publisher, "-m", words, "-r"], check=True)
    heard = subprocess.run(
        ["mosquitto_sub", *base, "-u", subscriber, "-C", "1", "-W", "1"],
        capture_output=True,
        check=False,
    )
    return heard.stdout.decode().strip() == words


def test_mosquitto_keeps_everybody_to_their_topics(port: int) -> None:
    assert is_carried(port, "medic7", "node-a", "dens/1/sub/medic7")
    assert is_carried(port, "node-a", "medic7", "dens/1/note/medic7")
    assert is_carried(port, "node-a", "medic7", "dens/1/status/node-a")
    assert not is_carried(port, "medic8", "node-a", "dens/1/sub/medic7")
    assert not is_carried(port, "node-a", "medic8", "dens/1/note/medic7")
    assert not is_carried(port, "medic7", "medic7", "dens/1/note/medic7-other")
