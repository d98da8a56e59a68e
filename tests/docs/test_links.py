"""Every link of every page of the repository leads somewhere, and every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import ROOT, list_pages

INDEX = ROOT / "docs" / "README.md"
_HIDDEN = {".venv", ".cache", "node_modules", "build", "dist"}
ALL = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not _HIDDEN & set(path.relative_to(ROOT).parts) and ".egg-info" not in str(path)
)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href|srcset)=\"([^\"]+)\"")


def read_prose(path: Path) -> str:
    """Return a page without its fenced blocks and code."""
    return re.sub(r"`[^`\n]+`", "code", _FENCED.sub("", path.read_text(encoding="utf-8")))


def list_links(path: Path) -> list[str]:
    """Return where a page's links lead, those beyond the repository left out."""
    found = [one or other for one, other in _LINK.findall(read_prose(path))]
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def list_anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    text = _FENCED.sub("", path.read_text(encoding="utf-8"))
    anchors = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        words = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower()
        anchors.add(re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-"))
    return anchors


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for link in list_links(path):
        name, _, anchor = unquote(link).partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in list_anchors(target), f"{target.name} has no heading for #{anchor}"


def test_every_page_of_docs_is_in_its_index() -> None:
    index = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in list_links(INDEX)}
    for page in list_pages():
        if page.parent == INDEX.parent and page != INDEX:
            assert page in index, f"docs/README.md does not name {page.name}"


def test_every_picture_is_shown_somewhere() -> None:
    shown = {(path.parent / link).resolve() for path in ALL for link in list_links(path)}
    for picture in (ROOT / "docs").rglob("*"):
        # The console's test takes more screenshots than its page needs.
        if picture.suffix in (".svg", ".png") and not picture.name.startswith("console-"):
            assert picture in shown, f"no page shows {picture.name}"


@pytest.mark.parametrize("path", list_pages(), ids=lambda path: path.name)
def test_files_that_a_page_names_exist(path: Path) -> None:
    tops = {entry.name for entry in ROOT.iterdir() if entry.is_dir()}
    for name in re.findall(r"`([\w.-]+(?:/[\w.*-]+)+/?)`", path.read_text(encoding="utf-8")):
        if name.partition("/")[0] in tops and not name.startswith((".cache", ".venv", "build")):
            found = list(ROOT.glob(name.rstrip("/")))
            assert found, f"there is no {name}"
