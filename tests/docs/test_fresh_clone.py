"""scripts/fresh-clone.sh refuses what would hurt, and runs the README. CI runs it in full."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.docs.pages import ROOT

SCRIPT = ROOT / "scripts" / "fresh-clone.sh"


def run_script(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(SCRIPT), *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_unknown_options_are_refused() -> None:
    done = run_script("--nonsense")
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = run_script(str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_it_runs_the_readme_in_its_clone() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    assert "-m tests.docs --here" in text
    assert "README.md" in text
    assert 'export HOME="$folder/home"' in text
