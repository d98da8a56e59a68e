"""`denwatch keys acl`: the same ownership of topics, enforced by a real Mosquitto."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.cli import keys, main, node

from simulator.site import make_mosquitto

USERS = ("medic7", "medic8", "node-a")

pytestmark = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("mosquitto", "mosquitto_passwd", "mosquitto_sub"))
    and not os.environ.get("CI"),
    reason="needs Mosquitto and its clients",
)


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
    broker = make_mosquitto(
        tmp_path,
        f"password_file {passwords}",
        f"acl_file {tmp_path / 'acl'}",
        "log_type none",
        access="allow_anonymous false",
    )
    try:
        broker.start()
        yield broker.port
    finally:
        broker.kill()


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


def login(port: int, user: str, password: str) -> bool:
    command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-u", user, "-P", password]
    done = subprocess.run(
        [*command, "-t", f"dens/1/sub/{user}", "-m", "x"], check=False, capture_output=True
    )
    return done.returncode == 0


def test_one_command_writes_rules_and_passwords(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mosquitto accepts what it writes, and a second time changes nobody's password."""
    folder = node.init_node(tmp_path / "a", "node-a").parent
    at = ["--directory", str(folder)]
    for kind in (["device", "dog-1"], ["subscriber", "medic7", "--role", "medic"]):
        keys.run([*at, "add", *kind])
    keys.run([*at, "show", "dog-1", "--secrets", "--output", str(tmp_path / "dog.json")])
    device = json.loads((tmp_path / "dog.json").read_text())["nodes"][0]["password"]
    capsys.readouterr()
    written = tmp_path / "broker"
    keys.run([*at, "acl", "--output", str(written)])
    said = capsys.readouterr().out
    person = said.split("medic7: ")[1].split()[0]
    own = (written / "node.password").read_text().strip()
    assert own not in said
    keys.run([*at, "add", "subscriber", "medic8", "--role", "medic"])
    capsys.readouterr()
    keys.run([*at, "acl", "--output", str(written)])
    again = capsys.readouterr().out
    assert "medic8: " in again
    assert "medic7: " not in again
    broker = make_mosquitto(
        tmp_path,
        f"password_file {written / 'passwords'}",
        f"acl_file {written / 'acl'}",
        "log_type none",
        access="allow_anonymous false",
    )
    try:
        broker.start()
        for user, password in [("dog-1", device), ("medic7", person), ("node-a", own)]:
            assert login(broker.port, user, password), user
            assert not login(broker.port, user, "guess"), user
    finally:
        broker.kill()
    (written / "passwords").write_text("medic7 secret\n")
    assert main(["keys", *at, "acl", "--output", str(written)]) != 0
    assert "line 1" in capsys.readouterr().err
