"""Every command of README.md, CONTRIBUTING.md and docs/ is run, and prints what is shown.

`tests/docs/pages.py` says what a page may hold. Each page is a session of its own in an empty
folder. docs/spark.md and the demo have files of their own, so that workers share the time.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, File, Step, list_pages, list_steps, read_page
from tests.docs.session import Session, play

# The demo has a test of its own (test_demo.py), and the tests are what runs now. As they stand both
# are run by scripts/fresh-clone.sh.
ELSEWHERE = ("make demo", "make test")
PAGES = list_pages()


def list_own_steps(path: Path) -> list[Step | File]:
    """Return what this file runs of a page."""
    steps = list_steps(read_page(path))
    return [step for step in steps if isinstance(step, File) or step.command not in ELSEWHERE]


BUSY = [page for page in PAGES if list_own_steps(page) and page.name != "spark.md"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_block_is_run_or_marked(path: Path) -> None:
    page = read_page(path)
    steps = list_steps(page)
    names = [step.name for step in steps if isinstance(step, File)]
    assert len(names) == len(set(names)), "a file is written twice"


@pytest.mark.parametrize("path", BUSY, ids=lambda path: path.name)
def test_commands_print_what_the_page_shows(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "page"
    place.mkdir()
    session = Session(tmp_path, place, path.read_text(encoding="utf-8"))
    try:
        wrong = play(session, list_own_steps(path))
    finally:
        session.close()
    assert not wrong, f"{path.name}\n" + "\n".join(wrong)


def test_readme_begins_with_the_two_commands() -> None:
    steps = list_steps(read_page(ROOT / "README.md"))
    commands = [step.command for step in steps if isinstance(step, Step)]
    assert tuple(commands[:2]) == ELSEWHERE


def test_programs_of_the_pages_are_there() -> None:
    for program in ("make", "bash", "mosquitto_pub", "mosquitto_sub"):
        assert shutil.which(program), f"{program} is missing: scripts/get-runtimes.sh gets it"


def test_every_make_target_is_told_by_help_and_every_told_one_is_there() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", text, re.M))
    assert targets == set(re.findall(r"^([a-z][a-z0-9-]*):.*## ", text, re.M))
    for page in PAGES:
        prose = page.read_text(encoding="utf-8")
        for target in re.findall(r"(?:`|\$ )make ([a-z0-9-]+)", prose):
            assert target in targets, f"{page.name}: make {target}"
