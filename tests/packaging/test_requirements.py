"""What set-up installs is pinned with hashes, is all that pyproject.toml needs, and is listed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; [^\\]+)? \\$")


def read_lock(path: Path) -> dict[str, tuple[str, int]]:
    """Return the packages of a lock: their version and how many hashes they have."""
    pins: dict[str, tuple[str, int]] = {}
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if found := _PIN.match(line):
            name = normalise(found[1])
            pins[name] = (found[2], 0)
        else:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?", line), line
            pins[name] = (pins[name][0], pins[name][1] + 1)
    return pins


def normalise(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_package_has_one_version_and_hashes(path: Path) -> None:
    pins = read_lock(path)
    assert pins
    assert all(count for _, count in pins.values())


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("dev", ["dev"]), ("image", ["node", "spark", "console"]), ("fuzz", ["fuzz"])],
)
def test_the_lock_has_what_the_project_asks_for(lock: str, extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = list(project["dependencies"])
    waiting = list(extras)
    while waiting:
        for requirement in project["optional-dependencies"][waiting.pop()]:
            if inner := re.match(r"denwatch\[(.+)\]", requirement):
                waiting += inner[1].split(",")
            else:
                asked.append(requirement)
    names = {normalise(re.split(r"[<>=!~\[ ;]", requirement)[0]) for requirement in asked}
    assert names <= set(read_lock(ROOT / "requirements" / f"{lock}.txt"))


def test_the_image_gets_the_versions_that_are_tested() -> None:
    dev, image = (read_lock(ROOT / "requirements" / f"{name}.txt") for name in ("dev", "image"))
    assert {name: pin for name, pin in image.items() if dev.get(name) != pin} == {}


def test_the_bill_of_materials_lists_the_image(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^\t\$\(PYTHON\) -m (cyclonedx_py .*?) -o ", makefile, re.MULTILINE | re.S)
    assert recipe is not None
    output = tmp_path / "bill.json"
    words = recipe[1].replace("\\\n", " ").split()
    command = [sys.executable, "-W", "ignore", "-m", *words, "-o", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    bill = json.loads(output.read_text(encoding="utf-8"))
    listed = {normalise(part["name"]): part["version"] for part in bill["components"]}
    pins = read_lock(ROOT / "requirements" / "image.txt")
    assert listed == {name: version for name, (version, _) in pins.items()}
    assert bill["metadata"]["component"]["name"] == "denwatch"
