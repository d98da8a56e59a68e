"""The commands of docs/spark.md print what it shows; they share one small folder of logs."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import ROOT, list_steps, read_page
from tests.docs.session import Session, play


def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    page = ROOT / "docs" / "spark.md"
    place = tmp_path / "page"
    place.mkdir()
    session = Session(tmp_path, place, page.read_text(encoding="utf-8"))
    try:
        wrong = play(session, list_steps(read_page(page)))
    finally:
        session.close()
    assert not wrong, "\n".join(wrong)
