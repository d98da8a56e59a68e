"""The built wheel in empty environments: each extra by itself, on every Python that is here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.test_build import Built, list_environment

PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = {  # what works afterwards, besides the client
    "": "compile 'heart_rate is high'",
    "node": "node --init north --name north",
    "fast": "node --init north --name north",
    "console": "console --help",
    "plot": "plot heart_rate -o x.svg",
    "device": "device --help",
    "spark": "analyze --help",
}
WHEELS = ("manylinux2014_aarch64", "manylinux_2_28_aarch64")
UV = str(Path(sys.executable).with_name("uv"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("build"))


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_by_itself(built: Built, version: str, extra: str, tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    made = subprocess.run(
        [UV, "venv", "-q", "-p", version, str(folder)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no Python {version} here: {made.stderr.strip()[-200:]}")
    what = f"denwatch[{extra}] @ {built.wheel.as_uri()}" if extra else str(built.wheel)
    install = [UV, "pip", "install", "-q", "--python", str(folder / "bin" / "python"), what]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    ran = subprocess.run(
        ["sh", "-c", f"denwatch --version && denwatch {EXTRAS[extra]}"],
        cwd=tmp_path,
        env={**list_environment(), "PATH": path},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    size = sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file()) >> 20
    print(f"Python {version}, [{extra}]: {size} MB")
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_there_are_wheels_of_everything_that_a_node_needs_for_arm64(
    version: str, tmp_path: Path
) -> None:
    lock = Path(__file__).parents[2] / "requirements" / "node.txt"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", version, "-d", str(tmp_path), "-r", str(lock)]
    command += [word for name in WHEELS for word in ("--platform", name)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
