"""What is shipped: roles, packages, the commands that build, install and run."""

# cpython only: it runs the PC's commands

from __future__ import annotations

import ast
import base64
import io
import json
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from denwatch.cli import device, watchdog
from denwatch.cli.devices.images import (
    ARCHITECTURES,
    build_role,
    find_source,
    list_drivers,
    list_role,
    read_architecture,
)
from denwatch.cli.devices.schema import (
    check_board,
    check_changes,
    check_config,
    estimate_life,
)
from denwatch.cli.devices.wizard import ask_config, show_code
from denwatch.cli.errors import CommandError
from denwatch.client.vocabulary import load_shipped
from denwatch.watchdog.portal import read_config
from denwatch.watchdog.radio import write_slip

from firmware_tests.runtimes import REPOSITORY, find_unix
from firmware_tests.support import require

WATCHDOG = find_source("denwatch/watchdog")
KEY = bytes(range(32)).hex()
NODE = {"name": "node-a", "url": "mqtt://127.0.0.1:1", "key_id": 1, "key": KEY}
CHANNEL = {"source": "s", "field": 0, "attribute": 0, "low": 0, "high": 9}


def make_config() -> dict[str, object]:
    return {
        "device": "dog-1",
        "vocabulary": "00" * 8,
        "nodes": [dict(NODE)],
        "spool": {"file": "spool"},
        **sense([CHANNEL]),
    }


def sense(channels: list[dict[str, Any]], period: int = 1000, times: int = 1) -> dict[str, object]:
    """Return the part of a configuration that says what is sensed."""
    event = {"event": 1, "period": period, "channels": channels}
    return {"sources": {"s": {"kind": "adc", "pin": 4}}, "events": times * [event]}


@pytest.mark.parametrize("role", ["filter", "full"])
def test_the_packages_list_what_the_role_imports(role: str) -> None:
    name = {"full": "package.json", "filter": "filter.json"}[role]
    folder = WATCHDOG
    listed = json.loads((folder / name).read_text())["urls"]
    assert [target for target, _ in listed] == list_role(role)
    for target, source in listed:
        assert (folder / source).resolve() == find_source(target)


def run_manifest(
    monkeypatch: pytest.MonkeyPatch, **chosen: str | bool
) -> tuple[list[str], list[str]]:
    """Run the manifest as MicroPython's tools do; return its files, and what it requires."""
    named: list[str] = []
    required: list[str] = []

    class Options:
        def defaults(self, **values: str | bool) -> None:
            vars(self).update(values | chosen)

    def package(name: str, files: list[str], base_path: str) -> None:
        for file in files:
            assert (WATCHDOG / base_path / name / file).is_file()
        named.extend(f"{name}/{file}" for file in files)

    source = (WATCHDOG / "manifest.py").read_text()
    monkeypatch.chdir(WATCHDOG)  # where MicroPython's tools run it
    tools = {"package": package, "require": required.append, "metadata": lambda **_: None}
    exec(source, {**tools, "options": Options()})
    return sorted(named), required


@pytest.mark.parametrize(("role", "without"), [("filter", ""), ("full", ""), ("full", "doubt")])
def test_the_manifest_names_the_same_files(
    role: str, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no others: whoever freezes it in shall not have a node in the firmware."""
    named, _ = run_manifest(monkeypatch, role=role, without=without)
    left_out = f"denwatch/watchdog/{without}.py"
    assert named == [name for name in list_role(role) if name != left_out]


# Modules of MicroPython itself, on the boards that have them.
_BUILT_IN = {"espnow", "esp32", "machine", "network", "rp2", "time", "os", "gc", "sys"}


def test_what_is_used_of_micropython_lib_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """By firmware (`require`), by mip (`deps`) and by what `device build` makes."""
    tree = ast.parse((WATCHDOG / "board.py").read_text())
    found = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    used = sorted(found - _BUILT_IN)
    assert used == ["dht", "ds18x20", "onewire"]
    assert [name for name, _ in list_drivers("full")] == used
    assert run_manifest(monkeypatch)[1] == used
    assert run_manifest(monkeypatch, drivers=False)[1] == []
    assert run_manifest(monkeypatch, role="filter")[1] == list_drivers("filter") == []
    lora = run_manifest(monkeypatch, drivers=False, lora="sx126x")[1]
    assert lora == ["lora-sync", "lora-sx126x"]


def test_a_build_has_its_drivers_as_mip_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for role, count in (("full", 3), ("gateway", 0)):
        assert device.run(["build", "--role", role, "--output", str(tmp_path / role)]) == 0
        package = json.loads((tmp_path / role / "package.json").read_text())
        assert len(package["deps"]) == count
    capsys.readouterr()


def test_a_bare_board_has_a_password_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = set()
    for name in ("first", "second"):
        board = tmp_path / name
        monkeypatch.setattr(
            device, "_copy", lambda folder, *_, to=board: shutil.copytree(folder, to)
        )
        assert device.run(["install", "--bare", "--architecture", "xtensawin"]) == 0
        password = (board / "portal.key").read_text()
        assert len(password) == 12
        assert capsys.readouterr().out == f"the password of its access point: {password}\n"
        assert (board / "lib/denwatch/watchdog/portal.mpy").exists()
        found.add(password)
    assert len(found) == 2


def test_a_code_brings_the_certificate_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the page of the board reads it."""
    segno = pytest.importorskip("segno")
    addresses: list[str] = []
    make = segno.make
    monkeypatch.setattr(segno, "make", lambda text, **k: addresses.append(text) or make(text, **k))
    ca = tmp_path / "ca.der"
    ca.write_bytes(bytes(range(256)) * 2)
    config = make_config() | {"nodes": [NODE | {"url": "mqtts://north:8883", "ca": str(ca)}]}
    show_code(config)
    (address,) = addresses
    shown = base64.urlsafe_b64decode(address.partition("#")[2]).decode()
    text, files = read_config({"config": shown})
    assert files == {"ca.der": ca.read_bytes()}
    assert json.loads(text)["nodes"][0]["ca"] == "ca.der"


LORA = {"kind": "lora", "chip": "sx1262", "khz": 868100, "pins": {"sck": 5}, "spreading": 9}


def test_a_board_with_lora_gets_its_driver(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "radio.json"
    path.write_text(json.dumps(LORA))
    assert device.run(["install", "--gateway", str(path), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "mpremote mip install lora-sync lora-sx126x"
    assert "/gateway.json" in lines[1]
    path.write_text(json.dumps({"kind": "espnow"}))
    assert device.run(["install", "--gateway", str(path), "--dry-run"]) == 0
    assert "mip" not in capsys.readouterr().out
    for wrong, words in (({"kind": "serial"}, "has a radio"), (LORA | {"chip": "rfm9"}, "chip")):
        path.write_text(json.dumps(wrong))
        with pytest.raises(CommandError, match=words):
            device.run(["install", "--gateway", str(path), "--dry-run"])


# What a gateway's board has besides the watchdog: a radio that has heard something.
_GATEWAY_BOARD = {
    "machine": "def reset_cause(): return 1\ndef reset(): raise SystemExit\n",
    "network": (
        "STA_IF = 0\nclass WLAN:\n    def __init__(self, n): pass\n"
        "    def active(self, on): pass\n    def config(self, **k): pass\n"
    ),
    "espnow": (
        "class ESPNow:\n    came = [(b'dog', b'up')]\n    def active(self, on): pass\n"
        "    def add_peer(self, peer): pass\n"
        "    def recv(self, wait): return self.came.pop() if self.came else (None, None)\n"
        "    def send(self, peer, data, sync):\n"
        "        open('sent', 'w').write(repr((peer, data)))\n        raise ValueError('enough')\n"
    ),
}


def test_a_gateway_that_was_installed_passes_datagrams_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `install --gateway` copies it, on MicroPython; the bridge is on its prompt."""
    interpreter = require(partial(find_unix, 64))
    radio = tmp_path / "radio.json"
    radio.write_text('{"kind": "espnow", "channel": 6}')
    board = tmp_path / "board"
    monkeypatch.setattr(device, "_copy", lambda folder, *_: shutil.copytree(folder, board))
    words = ["install", "--gateway", str(radio), "--architecture", "x64"]
    assert device.run(words) == 0
    for name, text in _GATEWAY_BOARD.items():
        (board / f"{name}.py").write_text(text)
    with subprocess.Popen(
        [str(interpreter), "main.py"],
        cwd=board,
        env={"MICROPYPATH": ".:lib:.frozen"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(write_slip(b"down"))
        process.stdin.flush()  # and it stays open, as a port does
        printed = process.stdout.read()
    assert printed.startswith(write_slip(b"up"))
    assert (board / "sent").read_text() == repr((b"\xff" * 6, b"down"))
    assert b"enough" in printed, "the bridge shows why it starts again"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_compiles(architecture: str, tmp_path: Path) -> None:
    sizes = build_role("filter", architecture, tmp_path)
    assert "denwatch/watchdog/viper.mpy" in sizes
    if architecture in ("xtensawin", "armv6m", "armv7m"):  # boards
        assert sum(sizes.values()) <= 8192


def test_a_build_runs_on_micropython(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interpreter = require(partial(find_unix, 64))
    arguments = ["build", "--architecture", "x64", "--output", str(tmp_path / "lib"), "--json"]
    assert device.run(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["bytes"] == sum(answer["files"].values())
    assert not list((tmp_path / "lib").rglob("*.py"))
    done = subprocess.run(
        [str(interpreter), "-c", "import denwatch.watchdog.boot as b; print(b.load().Watchdog)"],
        cwd=tmp_path,  # where there are no sources
        env={"MICROPYPATH": f"{tmp_path / 'lib'}:.frozen"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Watchdog" in done.stdout, done.stderr


def test_a_rom_file_system_is_built(tmp_path: Path) -> None:
    image = tmp_path / "image"
    arguments = ["--role", "filter", "--output", str(tmp_path / "lib"), "--romfs", str(image)]
    assert device.run(["build", *arguments]) == 0
    assert image.read_bytes()[:3] == b"\xd2\xcd\x31"
    assert b"viper.mpy" in image.read_bytes()


def test_a_board_says_what_it_is() -> None:
    """`sys.implementation._mpy` of an ESP32, a Pico, a Pico 2, an ESP32-C3; of none with code."""
    numbers = [10 << 10 | 6, 4 << 10 | 6, 7 << 10 | 6, 11 << 10 | 6, 6]
    found = [read_architecture(number) for number in numbers]
    assert found == ["xtensawin", "armv6m", "armv7m", "rv32imc", ""]


def test_a_board_of_an_unknown_architecture_gets_the_plain_kernel(tmp_path: Path) -> None:
    sizes = build_role("full", "", tmp_path)
    assert "denwatch/watchdog/plain.mpy" in sizes
    assert "denwatch/watchdog/viper.mpy" not in sizes
    interpreter = require(partial(find_unix, 64))
    done = subprocess.run(
        [str(interpreter), "-c", "import denwatch.watchdog.filter as f; print(f.KERNEL)"],
        cwd=tmp_path,
        env={"MICROPYPATH": f"{tmp_path}:.frozen"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "plain", done.stderr


def test_machine_code_of_another_processor_falls_back_to_bytecode(tmp_path: Path) -> None:
    """It was a ValueError: incompatible .mpy arch."""
    interpreter = require(partial(find_unix, 64))
    build_role("full", "armv6m", tmp_path, has_fallback=True)
    code = "import denwatch.watchdog.filter as f; print(f.KERNEL, f.Filter(64).count)"
    done = subprocess.run(
        [str(interpreter), "-c", code],
        cwd=tmp_path,
        env={"MICROPYPATH": f"{tmp_path}:.frozen"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["plain", "0"], done.stderr


BAD = [
    ({"capacity": -5}, "capacity"),
    ({"capacity": "4 KB"}, "capacity"),
    ({"hold": -1}, "hold"),
    ({"patience": 0}, "patience"),
    ({"link": {"keepalive": 60}}, "keep_alive"),
    ({"link": {"timeout": "10"}}, "timeout"),
    ({"sleep": "10 min"}, "sleep"),
    ({"sleep": {"longest": 600_000, "urgency": 1}}, "urgent"),
    ({"sleep": 600_000}, "10 s"),  # for a period of one second
    ({"watchdog": 8}, "1000"),
    ({"watchdog": "on"}, "watchdog"),
    ({"battery": {"pin": 35}}, "full"),
    ({"wifi": {"name": "tent"}}, "password"),
    ({"wifi": [{"name": "", "password": ""}]}, "name"),
    ({"clock": "no"}, "clock"),
    ({"spool": {}}, "spool"),
    ({"spool": {"file": ""}}, "file"),
    ({"spool": {"file": "spool", "blocks": 2}}, "blocks"),
    ({"spool": {"partition": "spool", "file": "spool"}}, "spool"),
    ({"spool": {"flash": [0x1F0000, 5000]}}, "4096"),
    ({"device": "dog/1"}, "device"),
    ({"capasity": 4096}, "capacity"),
    ({"sources": {"s": {"kind": "adc", "pin": "D4"}}}, "pin"),
    ({"sources": {"s": {"kind": "oracle"}}}, "ds18x20"),
]


@pytest.mark.parametrize(("change", "word"), BAD, ids=lambda value: str(value)[:40])
def test_a_value_that_the_device_would_trip_over_is_refused(
    change: dict[str, Any], word: str
) -> None:
    check_config(make_config())
    with pytest.raises(CommandError, match=word):
        check_config({**make_config(), **change})


def test_every_field_of_the_page_is_accepted() -> None:
    event = {**sense([CHANNEL], 60_000)}
    options = {
        "capacity": 2048,
        "hold": 1000,
        "patience": 5000,
        "link": {"keep_alive": 60},
        "sleep": {"longest": 600_000, "every": 5},
        "watchdog": 0,
        "clock": False,
        "wifi": [{"name": "a", "password": ""}],
        "battery": {"pin": 35, "full": 6600},
    }
    check_config({**make_config(), **event, **options})


@pytest.mark.parametrize(
    ("source", "word"),
    [({"kind": "w1"}, "Linux"), ({"kind": "bme280", "bus": 1}, "clock")],
)
def test_what_only_a_raspberry_pi_can_read_is_not_installed_on_a_board(
    source: dict[str, Any], word: str
) -> None:
    config = {**make_config(), "sources": {"s": source}}
    check_config(config)
    with pytest.raises(CommandError, match=word):
        check_board(config)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"capacity": -1}, "capacity"),
        ({"capasity": 1}, "capacity"),
        ({"events": []}, "together"),
        ({"vocabulary": None}, "without vocabulary"),
    ],
)
def test_changes_over_the_air_are_checked_before_they_leave(
    changes: dict[str, Any], word: str
) -> None:
    check_changes({"capacity": 2048, "sleep": None, "wifi": [{"name": "a", "password": ""}]})
    with pytest.raises(CommandError, match=word):
        check_changes(changes)


def test_the_life_of_the_flash_is_estimated() -> None:
    """Sixteen blocks, 124 records of 32 bytes in each, a reading a second: 6.3 years."""
    assert estimate_life(make_config()) == pytest.approx(6.31, abs=0.01)
    assert estimate_life({**make_config(), "spool": {"file": "s", "blocks": 64}}) > 25


def test_an_installation_copies_code_configuration_and_certificates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config()
    certificate = tmp_path / "ca.der"
    certificate.write_bytes(b"der")
    config["nodes"][0]["ca"] = str(certificate)  # type: ignore[index]
    path = tmp_path / "watchdog.json"
    path.write_text(json.dumps(config))
    assert device.run(["install", "--config", str(path), "--port", "/dev/ttyX", "--dry-run"]) == 0
    printed, noted = capsys.readouterr()
    assert "mqtt://127.0.0.1:1 is this machine, a board cannot reach it" in noted
    assert printed.count("mpremote connect /dev/ttyX fs cp") == 2
    for name in ("lib", "main.py", "watchdog.json", "ca.der"):
        assert name in printed


def play_wizard(answers: list[str], secrets: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the configuration that the answers make, and all that was asked and told."""
    told: list[str] = []
    waiting, hidden = iter(answers), iter(secrets)

    def ask(words: str) -> str:
        told.append(words)
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    def ask_secret(words: str) -> str:
        told.append(words)
        return next(hidden)

    config = ask_config(load_shipped("rescue"), ask, ask_secret, told.append)
    assert not [*waiting, *hidden], "all answers were asked for"
    return config, told


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A device's key, for a node with TLS, and the certificate of its authority."""
    monkeypatch.chdir(tmp_path)
    node = {"name": "tent", "url": "mqtts://tent:8883", "key_id": 1, "key": KEY, "ca": "ca.der"}
    path = tmp_path / "dog-1.json"
    path.write_text(json.dumps({"device": "dog-1", "nodes": [node]}))
    path.chmod(0o600)
    (tmp_path / "site.der").write_bytes(b"\x30\x82")
    return path


def test_the_wizard_asks_again_and_says_why(key_file: Path) -> None:
    config, told = play_wizard(
        [
            *("", "dog-2.json", "dog-1.json"),  # the key file
            *("", "site.der"),  # the certificate
            *("", "heart_rat from ward.csv", "heart_rate from ward.csv column pulse"),
            *("air_temperature from dht22 on pin 15 every 10 s", ""),
            *("x" * 33, "tent"),  # the network
            *("partition", "partition:spool"),
            *("dog-1.json", ""),  # where it is kept
        ],
        ["short", " a secret "],
    )
    nodes = json.loads(key_file.read_text())["nodes"]
    assert config["nodes"] == [{**nodes[0], "ca": "site.der"}]
    assert config["wifi"] == {"name": "tent", "password": " a secret "}
    assert config["spool"] == {"partition": "spool"}
    assert [event["period"] for event in config["events"]] == [5000, 10_000]
    kept = key_file.parent / "watchdog.json"
    assert json.loads(kept.read_text()) == config
    assert kept.stat().st_mode & 0o777 == 0o600
    text = "\n".join(told)
    for reason in (
        "`denwatch keys show NAME --secrets --output FILE` writes one",
        "dog-2.json: No such file or directory",
        "tent: ca.der: No such file or directory",
        "name at least one sensor",
        'column 1: unknown attribute "heart_rat"; did you mean "heart_rate"',
        "a name has 1 to 32 bytes",
        "the password of tent: WPA has 8 to 63 characters",
        'spool "partition": none (such as file:spool.bin',
        "dog-1.json is the key file",
    ):
        assert reason in text
    assert "a secret" not in text
    assert KEY not in text
    assert "hash" not in text


@pytest.mark.usefixtures("key_file")
def test_a_wizard_without_answers_installs_nothing() -> None:
    with pytest.raises(CommandError, match="nothing was installed"):
        play_wizard(["dog-1.json", "site.der"], [])


def test_an_installation_asks_where_there_is_no_configuration(
    key_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["dog-1.json", "site.der", "heart_rate from ward.csv", "", "", "", ""]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    assert device.run(["install", "--dry-run"]) == 0
    printed, noted = capsys.readouterr()
    assert not noted
    assert printed.count("mpremote fs cp") == 2
    assert "site.der" in printed
    assert (key_file.parent / "watchdog.json").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocabulary": "xy"}, "hexadecimal"),
        ({"vocabulary": "00"}, "16"),
        ({"nodes": [{"name": "n", "url": "http://x"}]}, "url"),
        ({"nodes": [{"name": "n", "url": "mqtt://x:1", "key": "00" * 32}]}, "not all alike"),
        ({"nodes": [{"name": "n", "url": "mqtt://x:1", "key": KEY}]}, "key_id"),
        ({"nodes": 2 * [{"name": "n", "url": "mqtt://x:1", "key": KEY, "key_id": 1}]}, "same key"),
        ({"events": [{"channels": [{"source": "t"}]}]}, "no source t"),
        ({"events": []}, "events: there must be at least one"),
        ({"nodes": []}, "1 to 4"),
        ({"nodes": ["tent"]}, "each must be an object"),
        ({"nodes": [{**NODE, "url": "mqtt://tent:1883"}]}, "has no TLS"),
        ({"nodes": [{**NODE, "url": "mqtts://tent:8883"}]}, "ca is missing"),
        ({"nodes": [{**NODE, "url": "mqtt://localhost"}]}, "no port"),
        ({"sources": []}, "sources must be an object"),
        ({"sources": {"s": {"kind": "spi"}}}, 's: no kind "spi"'),
        ({"sources": {"s": {"kind": "adc"}}}, 's: an adc has a "pin"'),
        (sense([{**CHANNEL, "low": 9}]), "a channel of s: attribute 0: 9..9"),
        (sense([{**CHANNEL, "lo": 9}]), "a channel of s: .*'lo'"),
        (sense([CHANNEL, CHANNEL]), "event 1: attribute 0 twice"),
        ({"events": [{}]}, "a list of channels"),
        (sense([{}]), 'a channel must have a "source"'),
        (sense([CHANNEL], period=0), "a number and a period"),
        (sense([CHANNEL], times=2), "event 1 is listed twice"),
    ],
)
def test_configurations_that_cannot_be(change: dict[str, object], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        check_config({**make_config(), **change})


def test_something_else_than_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no device"):
        check_config({})
    path = tmp_path / "watchdog.json"
    for text, words in (("[]", "a JSON object"), ("{", "Expecting property name")):
        path.write_text(text)
        with pytest.raises(CommandError, match=rf"watchdog\.json: .*{words}"):
            device.run(["install", "--config", str(path), "--dry-run"])


def test_what_the_tests_of_the_check_change_is_good() -> None:
    check_config({**make_config(), **sense([CHANNEL])})
    check_config({**make_config(), "nodes": [{**NODE, "url": "mqtt://tent:1883", "plain": True}]})


def test_the_command_checks_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "watchdog.json"
    path.write_text(json.dumps(make_config()))
    assert watchdog.run(["--check", str(path)]) == 0
    assert "good" in capsys.readouterr().out
    assert watchdog.run(["--check", "--json", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert told["config"] == str(path)
    assert told["spool_years"] > 0
    path.write_text("{")
    with pytest.raises(CommandError):
        watchdog.run([str(path)])
    assert [file.name for file in tmp_path.iterdir()] == ["watchdog.json"]


@pytest.mark.parametrize("script", ["filter", "spool"])
def test_the_board_scripts_print_what_is_expected(script: str, tmp_path: Path) -> None:
    """No board is here; the same scripts and files run on the PC's MicroPython."""
    interpreter = require(partial(find_unix, 64))
    build_role("full", "x64", tmp_path)
    folder = REPOSITORY / "firmware_tests" / "device"
    done = subprocess.run(
        [str(interpreter), str(folder / f"{script}.py")],
        env={"MICROPYPATH": f"{tmp_path}:.frozen"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == (folder / f"{script}.expected").read_text()
