"""Puts the commit into what is built: `denwatch --version` shows it. See pyproject.toml."""

import os
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

NAME = "edge/denwatch/client/commit.txt"


def find_commit():
    """Return the commit: as DENWATCH_COMMIT says, of this checkout, of the sdist; or nothing."""
    here = Path(__file__).resolve().parent
    if os.environ.get("DENWATCH_COMMIT"):
        return os.environ["DENWATCH_COMMIT"]
    if (here / ".git").exists():
        command = ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"]
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""
    kept = here / NAME
    return kept.read_text(encoding="utf-8").strip() if kept.exists() else ""


def write_commit(path):
    commit = find_commit()
    if commit and path.parent.is_dir():
        path.unlink(missing_ok=True)
        path.write_text(commit + "\n", encoding="utf-8")


class BuildWithCommit(build_py):
    def run(self):
        super().run()
        if self.editable_mode:  # of an image: there is no .git to ask
            if os.environ.get("DENWATCH_COMMIT"):
                write_commit(Path(__file__).resolve().parent / NAME)
        else:
            write_commit(Path(self.build_lib) / NAME.partition("/")[2])


class SdistWithCommit(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir) / NAME)


setup(cmdclass={"build_py": BuildWithCommit, "sdist": SdistWithCommit})
