"""`make demo` prints what README.md shows.

Without the report: docs/spark.md has that. scripts/fresh-clone.sh, which CI runs, runs it as it
stands.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Step, list_steps, read_page
from tests.docs.session import Session

SHORTER = "python -m demo --pace 0"  # each act ends when what it is about has happened


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    steps = list_steps(read_page(ROOT / "README.md"))
    (demo,) = [step for step in steps if isinstance(step, Step) and step.command == "make demo"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo:.*\n(\t.*\n)?\t@\$\(PYTHON\) -m demo$", makefile, re.M)
    place = tmp_path / "page"
    place.mkdir()
    session = Session(tmp_path, place, "")
    try:
        assert session.run(demo, SHORTER) is None
    finally:
        session.close()
