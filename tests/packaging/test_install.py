"""The built wheel in empty environments: each extra by itself, on every Python that is here."""

from __future__ import annotations

import re
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
    "alerts": "alert --help",
}
ROOT = Path(__file__).parents[2]
ARM64 = ("manylinux2014_aarch64", "manylinux_2_28_aarch64")
ARMV7 = ("manylinux2014_armv7l", "manylinux_2_31_armv7l", "manylinux_2_36_armv7l")
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
def test_as_a_tool_of_its_own(built: Built, tmp_path: Path) -> None:
    """`uv tool install`, which does what pipx does: an environment of its own, one command."""
    folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    environment = {**list_environment(), **folders}
    what = f"denwatch[node] @ {built.wheel.as_uri()}"
    command = [UV, "tool", "install", "-q", "--python", sys.executable, what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["denwatch"]
    words = ["node", "--init", "north", "--name", "north"]
    ran = subprocess.run([tmp_path / "bin" / "denwatch", *words], cwd=tmp_path, env=environment)
    assert ran.returncode == 0


def test_the_page_has_the_size_of_every_extra() -> None:
    page = (ROOT / "docs" / "node.md").read_text(encoding="utf-8")
    sizes = re.findall(r"^\| `denwatch(?:\[(\w+)\])?` \| (\d+) \|", page, re.MULTILINE)
    assert sorted(name for name, _ in sizes) == sorted(EXTRAS)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in EXTRAS if name)


def download(requirement: list[str], version: str, platforms: tuple[str, ...], to: Path) -> str:
    """Download wheels for another machine; return what pip complains about."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", version, "-d", str(to), *requirement]
    command += [word for name in platforms for word in ("--platform", name)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_there_are_wheels_of_everything_that_a_node_needs_for_arm64(
    version: str, tmp_path: Path
) -> None:
    lock = ROOT / "requirements" / "node.txt"
    wrong = download(["-r", str(lock)], version, ARM64, tmp_path)
    assert not wrong, wrong[-2000:]


@pytest.mark.slow
def test_the_page_says_what_has_no_wheel_for_armv7(tmp_path: Path) -> None:
    lock = (ROOT / "requirements" / "node.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+==[\w.]+)", lock, re.MULTILINE)
    assert len(pins) > 10
    lacking = {p.partition("==")[0] for p in pins if download([p], "3.11", ARMV7, tmp_path)}
    page = (ROOT / "docs" / "node.md").read_text(encoding="utf-8")
    told = re.search(r"no wheels for armv7 of ([^.:;]*)", page)
    assert told is not None
    assert lacking == set(re.findall(r"`([\w.-]+)`", told[1]))
