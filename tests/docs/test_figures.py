"""Figures in README.md and docs/benchmarks.md are those of the results pages that they link to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGES = [ROOT / "README.md", ROOT / "docs" / "benchmarks.md"]
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_RESULT = re.compile(r"\]\(([^)]*benchmarks/results/[\w-]+\.md)\)")


def read_numbers(text: str) -> list[tuple[float, int]]:
    """Return the numbers of a text, each with its number of decimals."""
    found = []
    for match in _NUMBER.findall(text):
        plain = match.rstrip(",").replace(",", "")
        decimals = 0 if "e" in plain else len(plain.partition(".")[2])
        found.append((float(plain), decimals))
    return found


def list_rows(path: Path) -> list[tuple[str, Path]]:
    """Return the table rows that link to one page of results, without the links, and that page."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        targets = set(_RESULT.findall(line))
        if line.startswith("|") and len(targets) == 1:
            prose = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", line)
            rows.append((prose, (path.parent / targets.pop()).resolve()))
    return rows


def is_there(number: float, decimals: int, known: list[float]) -> bool:
    """Return whether a page has a number, perhaps with more decimals, or as a share."""
    half = 0.5 * 10.0**-decimals + 1e-9
    return any(abs(one * scale - number) <= half for one in known for scale in (1.0, 100.0))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_figures_are_those_of_the_results(path: Path) -> None:
    rows = list_rows(path)
    assert len(rows) >= 5, "no figures?"
    wrong = []
    for prose, page in rows:
        known = [value for value, _ in read_numbers(page.read_text(encoding="utf-8"))]
        wrong += [
            f"{page.name} has no {number:g}: {prose.strip()[:90]}"
            for number, decimals in read_numbers(prose)
            if number > 12 and not is_there(number, decimals, known)
        ]
    assert not wrong, "\n".join(wrong)


def test_a_wrong_figure_is_found() -> None:
    assert is_there(96.0, 1, [0.96])
    assert is_there(26, 0, [26.2])
    assert not is_there(27, 0, [26.2])
    assert not is_there(26.3, 1, [26.2])


def test_every_results_page_is_told() -> None:
    told = {page for _, page in list_rows(PAGES[1])}
    for page in (ROOT / "benchmarks" / "results").glob("*.md"):
        assert page in told, f"docs/benchmarks.md does not tell of {page.name}"
