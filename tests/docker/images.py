"""What the Dockerfile and the compose file say, read without an engine."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

from firmware_tests.runtimes import REPOSITORY, find_cache

DOCKER = REPOSITORY / "docker"


def find_compose() -> Path:
    """Return Docker's compose."""
    path = find_cache() / "compose" / "docker-compose"
    assert path.exists(), "docker-compose is missing: scripts/get-runtimes.sh compose"
    return path


def read_composition(path: Path = DOCKER / "compose.yaml") -> dict[str, Any]:
    """Return a compose file as Docker's own compose understands it."""
    command = [str(find_compose()), "-f", str(path), "--profile", "*", "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    composition: dict[str, Any] = json.loads(done.stdout)
    return composition


class Image:
    """What a Dockerfile says of the image that it makes: its last stage, and what that is from."""

    def __init__(self, path: Path = DOCKER / "Dockerfile") -> None:
        text = re.sub(r"^\s*#.*\n", "", path.read_text(encoding="utf-8"), flags=re.M)
        self.lines = re.sub(r"\\\n", " ", text).splitlines()
        self.environment: dict[str, str] = {}
        self.user = ""
        for line in self.lines:
            word, _, rest = line.partition(" ")
            if word == "ENV":
                self.environment |= dict(part.split("=", 1) for part in shlex.split(rest))
            elif word == "USER":
                self.user = rest.strip()
        made_by = " ".join(self.lines)
        made = re.findall(r"install -d -o denwatch[^&]*", made_by)
        self.folders = {word for part in made for word in part.split() if word.startswith("/")}
