"""Completion in real shells, `doctor`, and a node as a service in a stand-in root folder."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from denwatch.cli import COMMANDS, main
from denwatch.cli.completion import complete
from denwatch.cli.node import init_node

PROGRAMS = Path(sys.executable).parent


def test_words_are_completed_from_the_commands_own_parsers() -> None:
    assert complete(["sub"]) == ["subscribe"]
    assert set(COMMANDS) <= set(complete([""]))
    assert complete(["help", "key"]) == ["keys"]
    assert "--password-file" in complete(["subscribe", "--pass"])
    assert complete(["keys", "add", "d"]) == ["device"]
    assert complete(["keys", "--directory", "north", "add", "subscriber", "x", "--ro"]) == [
        "--role"
    ]
    assert complete(["compile", "--vocabulary", "we"]) == ["weather", "<file>"]
    assert complete(["node", "--log", ""]) == ["json", "text"]
    assert complete(["node", ""]) == ["<file>"]
    assert complete(["nonsense", ""]) == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_completed(name: str) -> None:
    assert "--help" in complete([name, "--h"])


@pytest.mark.parametrize(
    ("shell", "script"),
    [
        (
            "bash",
            'eval "$(denwatch completion bash)"; COMP_WORDS=(denwatch subs); COMP_CWORD=1;'
            ' _denwatch; echo "${COMPREPLY[@]}"; COMP_WORDS=(denwatch node no); COMP_CWORD=2;'
            ' _denwatch; echo "${COMPREPLY[@]}"',
        ),
        (
            "zsh",
            "compdef() { :; }; compadd() { shift; echo $@ }; _files() { echo north };"
            ' eval "$(denwatch completion zsh)"; words=(denwatch subs); CURRENT=2; _denwatch;'
            " words=(denwatch node no); CURRENT=3; _denwatch",
        ),
        (
            "fish",
            "denwatch completion fish | source; complete -C 'denwatch subs';"
            " complete -C 'denwatch node no'",
        ),
    ],
)
def test_real_shells_complete(shell: str, script: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None and "CI" not in os.environ:
        pytest.skip(f"{shell} is missing: scripts/get-runtimes.sh shells")
    assert program is not None, f"{shell} is missing"
    (tmp_path / "north").mkdir()
    environment = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    environment["HOME"] = str(tmp_path)
    done = subprocess.run(
        [program, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    first, second = done.stdout.splitlines()[:2]
    assert first.strip() == "subscribe", done.stdout + done.stderr
    assert second.strip().rstrip("/") == "north", done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return init_node(tmp_path / "north", "north", ["mqtt://127.0.0.1:1"]).parent


def diagnose(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[str]]:
    """Return what the doctor says, by state."""
    status = main(["doctor", *words, "--json"])
    found: dict[str, list[str]] = {"ok": [], "note": [], "wrong": []}
    for one in json.loads(capsys.readouterr().out):
        found[one["state"]].append(one["what"])
    assert status == (1 if found["wrong"] else 0)
    return found


def test_the_doctor_finds_nothing_wrong_with_a_new_node(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = diagnose(capsys, str(folder))
    assert found["wrong"] == []
    assert "store and log are valid; the node does not run" in found["ok"]
    assert "127.0.0.1:1" in diagnose(capsys, "--running", str(folder))["wrong"][0]


def test_the_doctor_says_what_is_wrong_with_a_node(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["keys", "--directory", str(folder), "add", "subscriber", "ann", "--role", "medic"])
    config = folder / "node.toml"
    config.write_text(config.read_text().replace("[roles.medic]", "[roles.nurse]"))
    (folder / "authority.json").chmod(0o644)
    (folder / "tls" / "node.pem").write_text("no certificate")
    capsys.readouterr()
    wrong = "\n".join(diagnose(capsys, str(folder))["wrong"])
    assert "authority.json: other users can read it" in wrong
    assert "ann has the role medic" in wrong
    assert "node.pem" in wrong
    config.write_text("name = 3")
    assert "line 1: name" in diagnose(capsys, str(folder))["wrong"][0]


def test_the_doctor_looks_at_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = {"name": "n", "url": "mqtt://127.0.0.1:1", "key_id": 1, "key": bytes(range(32)).hex()}
    channel = {"source": "s", "field": 0, "attribute": 0, "low": 0, "high": 1}
    config = {
        "device": "dog",
        "vocabulary": "00" * 8,
        "nodes": [node],
        "spool": {"file": "spool"},
        "sources": {"s": {"kind": "csv", "path": "w.csv", "columns": ["a"], "scales": [1]}},
        "events": [{"event": 1, "period": 600_000, "channels": [channel]}],
    }
    path = tmp_path / "watchdog.json"
    path.write_text(json.dumps(config))
    wrong = diagnose(capsys, str(path))["wrong"]
    assert wrong[0] == "source s: w.csv is missing"
    assert wrong[1].startswith("node n at mqtt://127.0.0.1:1: ")
    path.write_text(json.dumps({**config, "device": ""}))
    assert "device must have" in diagnose(capsys, str(path))["wrong"][0]


def test_a_node_is_installed_as_a_service_and_uninstalled(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    words = ["node", str(folder), "--root", str(root)]
    assert main([*words, "--install", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert not root.exists()
    assert main([*words, "--install"]) == 0
    assert shown in capsys.readouterr().out  # what was rehearsed is what was done
    unit = root / "etc/systemd/system/denwatch-north.service"
    link = root / "etc/systemd/system/multi-user.target.wants/denwatch-north.service"
    copied = root / "var/lib/denwatch/north"
    text = unit.read_text()
    assert f"ExecStart={PROGRAMS}/denwatch node /var/lib/denwatch/north\n" in text
    assert str(link.readlink()) == "/etc/systemd/system/denwatch-north.service"
    assert copied.stat().st_mode & 0o777 == 0o700
    assert main(["node", "--check", str(copied)]) == 0
    capsys.readouterr()
    assert main([*words, "--install"]) == 1
    assert "is there already" in capsys.readouterr().err
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True
        )
        assert "denwatch-north.service" not in done.stderr.replace("Command", ""), done.stderr
    assert main(["node", "north", "--uninstall", "--root", str(root)]) == 0
    assert not unit.exists()
    assert not link.is_symlink()
    assert (copied / "keys.json").exists()
    assert main(["node", "north", "--uninstall", "--root", str(root)]) == 3


def test_without_root_or_systemd_nothing_is_begun(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "executable", "/opt/denwatch/bin/python")
    spaced = folder.rename(folder.with_name("my north"))
    assert main(["node", str(spaced), "--install"]) == 1
    told = capsys.readouterr().err
    assert "this needs root" in told
    again = shlex.split(told.splitlines()[-1])
    assert again == ["sudo", "/opt/denwatch/bin/denwatch", "node", str(spaced), "--install"]
    assert main([*again[2:], "--dry-run"]) == 0  # what it says is a command that is understood
    spaced.rename(folder)
    capsys.readouterr()
    monkeypatch.setattr(sys, "executable", "/home/ann/venv/bin/python")
    assert main(["node", str(folder), "--install"]) == 1
    assert "home folder" in capsys.readouterr().err
