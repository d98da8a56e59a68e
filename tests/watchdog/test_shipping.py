"""What is shipped: roles, packages, the commands that build, install and run."""

# cpython only: it runs the PC's commands

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from edge.commands import device, watchdog
from edge.commands.failures import CommandError
from edge.commands.images import ARCHITECTURES, ROOT, build_role, list_role, place
from edge.commands.wizard import ask_config, check_config
from firmware_tests.runtimes import MissingRuntimeError, find_unix

KEY = bytes(range(32)).hex()


def make_config() -> dict[str, object]:
    node = {"name": "node-a", "url": "mqtt://127.0.0.1:1", "key_id": 1, "key": KEY}
    return {
        "device": "dog-1",
        "vocabulary": "00" * 8,
        "nodes": [node],
        "spool": {"file": "spool"},
        "sources": {},
        "events": [],
    }


@pytest.mark.parametrize("role", ["filter", "full"])
def test_the_packages_list_what_the_role_imports(role: str) -> None:
    name = {"full": "package.json", "filter": "filter.json"}[role]
    folder = ROOT / "edge" / "watchdog"
    listed = json.loads((folder / name).read_text())["urls"]
    assert [target for target, _ in listed] == [place(file) for file in list_role(role)]
    for target, source in listed:
        assert (folder / source).resolve() == ROOT / (
            target if target.startswith("protocol") else f"edge/{target}"
        )


def test_the_manifest_names_the_same_files() -> None:
    packages: dict[str, list[str] | None] = {}

    class Options:
        role = "filter"

        def defaults(self, **_: str) -> None:
            pass

    def package(name: str, files: tuple[str, ...] | None = None, base_path: str = "") -> None:
        packages[name] = sorted(files) if files else None
        assert (ROOT / "edge" / "watchdog" / base_path / name).is_dir()

    source = (ROOT / "edge/watchdog/manifest.py").read_text()
    scope = {"metadata": lambda **_: None, "options": Options(), "package": package}
    exec(source, dict(scope))
    expected: dict[str, list[str]] = {}
    for file in list_role("filter"):
        folder, _, name = place(file).rpartition("/")
        expected.setdefault(folder, []).append(name)
    assert packages == expected
    Options.role = "full"
    exec(source, dict(scope))
    assert packages == {"protocol": None, "watchdog": None}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_compiles(architecture: str, tmp_path: Path) -> None:
    sizes = build_role("filter", architecture, tmp_path)
    assert "watchdog/viper.mpy" in sizes
    if architecture in ("xtensawin", "armv6m", "armv7m"):  # boards
        assert sum(sizes.values()) <= 8192


def test_a_build_runs_on_micropython(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        interpreter = find_unix(64)
    except MissingRuntimeError as error:
        pytest.skip(str(error))
    arguments = ["build", "--architecture", "x64", "--output", str(tmp_path / "lib"), "--json"]
    assert device.run(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["bytes"] == sum(answer["files"].values())
    assert not list((tmp_path / "lib").rglob("*.py"))
    done = subprocess.run(
        [str(interpreter), "-c", "import watchdog.boot as b; print(b.load().Watchdog)"],
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
    printed = capsys.readouterr().out
    assert printed.count("mpremote connect /dev/ttyX fs cp") == 2
    for name in ("lib", "main.py", "watchdog.json", "ca.der"):
        assert name in printed


def test_the_wizard_asks_and_checks() -> None:
    answers = iter(
        ["", "", "mqtts://n:8883", "ab" * 8, "3", KEY, "ca.der", "net", "secret", "spool"]
    )
    config = ask_config(lambda _: next(answers))
    assert config["nodes"][0]["ca"] == "ca.der"
    assert config["wifi"] == {"name": "net", "password": "secret"}
    assert config["spool"] == {"partition": "spool"}
    fresh = ask_config(lambda _: "")
    assert len(fresh["nodes"][0]["key"]) == 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocabulary": "xy"}, "hexadecimal"),
        ({"vocabulary": "00"}, "16"),
        ({"nodes": [{"name": "n", "url": "http://x"}]}, "url"),
        ({"nodes": [{"name": "n", "url": "mqtt://x:1", "key": "00" * 32}]}, "differ"),
        ({"nodes": [{"name": "n", "url": "mqtt://x:1", "key": KEY}]}, "key_id"),
        ({"nodes": 2 * [{"name": "n", "url": "mqtt://x:1", "key": KEY, "key_id": 1}]}, "same key"),
        ({"events": [{"channels": [{"source": "s"}]}]}, "no source s"),
    ],
)
def test_configurations_that_cannot_be(change: dict[str, object], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        check_config({**make_config(), **change})
    with pytest.raises(CommandError, match="no device"):
        check_config({})


def test_the_command_checks_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "watchdog.json"
    path.write_text(json.dumps(make_config()))
    assert watchdog.run(["--check", str(path)]) == 0
    assert "good" in capsys.readouterr().out
    path.write_text("{")
    with pytest.raises(CommandError):
        watchdog.run([str(path)])
    assert [file.name for file in tmp_path.iterdir()] == ["watchdog.json"]


@pytest.mark.parametrize("script", ["filter", "spool"])
def test_the_board_scripts_print_what_is_expected(script: str, tmp_path: Path) -> None:
    """No board is here; the same scripts and files run on the PC's MicroPython."""
    try:
        interpreter = find_unix(64)
    except MissingRuntimeError as error:
        pytest.skip(str(error))
    build_role("full", "x64", tmp_path)
    folder = ROOT / "firmware_tests" / "device"
    done = subprocess.run(
        [str(interpreter), str(folder / f"{script}.py")],
        env={"MICROPYPATH": f"{tmp_path}:.frozen"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == (folder / f"{script}.expected").read_text()
