"""Every command of README.md is executed, and what README shows as its output is its output."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"^```console\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)


def list_commands() -> list[tuple[str, list[str]]]:
    """Return each command with the lines that README shows after it."""
    commands: list[tuple[str, list[str]]] = []
    for line in "".join(BLOCKS).splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            commands[-1][1].append(line)
    return commands


COMMANDS = list_commands()


def run_command(command: str) -> str:
    if command == "make test":  # it is what runs now: see that it would run the tests
        command = "make --dry-run test"
    if command.startswith(".venv/bin/denwatch"):  # whatever environment the tests run in
        command = command.replace(".venv/bin/denwatch", f"{sys.executable} -m edge.cli", 1)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def test_readme_shows_the_two_commands() -> None:
    assert [command for command, _ in COMMANDS][:2] == ["make demo", "make test"]


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_command_prints_what_the_readme_shows(command: str, shown: list[str]) -> None:
    if command.startswith("make"):
        assert shutil.which("make"), "make is missing: apt-get install make"
    lines = run_command(command).splitlines()
    if command == "make test":
        assert any("pytest" in line for line in lines)
    at = 0
    for line in shown:
        if line == "...":  # some lines are left out there
            continue
        assert line in lines[at:], f"{line!r} is not printed (any more)"
        at += lines[at:].index(line) + 1


def test_every_make_target_is_listed_by_help() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M)
    listed = run_command("make help")
    assert targets
    for target in targets:
        assert f"make {target} " in listed
