"""A node at somebody else's broker: who is refused there is not ready, and is told why."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.cli import keys
from denwatch.cli import node as node_command
from denwatch.cli.errors import CommandError
from denwatch.node.config import Broker, NodeConfig, NodeConfigError
from denwatch.node.runtime.process import BrokerRefused, Process, open_node

from simulator.site import make_mosquitto
from tests.mqtt.hosting import TIMEOUT

needs_mosquitto = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("mosquitto", "mosquitto_passwd"))
    and not os.environ.get("CI"),
    reason="needs Mosquitto",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return node_command.init_node(tmp_path / "a", "node-a").parent


@pytest.fixture
def port(tmp_path: Path, folder: Path) -> Iterator[int]:
    keys.run(["--directory", str(folder), "acl", "--output", str(tmp_path / "broker")])
    passwords = tmp_path / "broker" / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", passwords, "node-a", "right"], check=True)
    broker = make_mosquitto(
        tmp_path, f"password_file {passwords}", "log_type none",
        access="allow_anonymous false",
    )  # fmt: skip
    broker.start()
    yield broker.port
    broker.kill()


def run(config: NodeConfig) -> list[str]:
    """Run a node until it is ready; raise why it is not."""
    said: list[str] = []
    opened = open_node(config)

    async def serve() -> None:
        process = Process(opened)

        def report() -> None:
            said.append("ready")
            process.stop()

        await asyncio.wait_for(process.run(report), TIMEOUT)

    try:
        asyncio.run(serve())
    finally:
        opened.store.close()
    return said


def load(folder: Path, url: str) -> NodeConfig:
    return node_command._load(folder / "node.toml", url)


@needs_mosquitto
def test_a_wrong_password_is_an_error_and_a_right_one_is_ready(folder: Path, port: int) -> None:
    for login in ("node-a:wrong@", ""):
        with pytest.raises(BrokerRefused, match="refuses"):
            run(load(folder, f"mqtt://{login}127.0.0.1:{port}"))
    assert run(load(folder, f"mqtt://node-a:right@127.0.0.1:{port}")) == ["ready"]


def set_broker(folder: Path, url: str) -> None:
    (folder / "secret").write_text("of the file\n")
    (folder / "secret").chmod(0o600)
    path = folder / "node.toml"
    text = path.read_text().replace(
        '[broker]\nurl = ""\nuser = ""', f'[broker]\nurl = "{url}"\nuser = "node-a"'
    )
    text = text.replace('password_file = ""', 'password_file = "secret"')
    path.write_text(text)


def login(broker: Broker | None) -> tuple[str, int, str, str]:
    assert broker is not None
    return broker.address.host, broker.address.port, broker.user, broker.password


def test_settings_and_option_combine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_broker(folder, "mqtts://broker.example")
    found = load(folder, "")
    assert login(found.broker) == ("broker.example", 8883, "node-a", "of the file")
    found = load(folder, "mqtt://127.0.0.1:1999")
    assert login(found.broker) == ("127.0.0.1", 1999, "node-a", "of the file")
    found = load(folder, "mqtt://b%40c:p%2Fw@127.0.0.1:1999")
    assert login(found.broker) == ("127.0.0.1", 1999, "b@c", "p/w")
    monkeypatch.setenv("DENWATCH_BROKER_PASSWORD", "of the environment")
    found = load(folder, "mqtt://127.0.0.1")
    assert login(found.broker) == ("127.0.0.1", 1883, "node-a", "of the environment")


def test_a_wrong_option_is_told(folder: Path) -> None:
    for url in ("http://x", "mqtt://", "mqtt://x:99999", "mqtt://[::1"):
        with pytest.raises(CommandError, match="--broker"):
            load(folder, url)
    with pytest.raises(NodeConfigError, match="without TLS"):
        load(folder, "mqtt://elsewhere.example:1883")
