"""The pictures are those that docs/pictures draws, and say in words what they show."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from importlib.util import find_spec

import pytest

from docs.pictures.draw import FOLDER, PICTURES

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_the_one_that_is_drawn(name: str) -> None:
    kept = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert kept == PICTURES[name]().finish(), "run: python -m docs.pictures.draw"


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_says_what_it_shows_and_needs_nothing(name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert len(root.findtext(f"{_SVG}title") or "") > 5
    assert len(root.findtext(f"{_SVG}desc") or "") > 40
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(?:href|url)\s*[=(]\s*[\"']?(?!#)(?:https?:|//)", text)


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_has_its_colours_where_css_variables_are_unknown(name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert "var(" not in text
    light = text.partition("@media")[0]
    used = {word for words in re.findall(r'class="([^"]+)"', text) for word in words.split()}
    for word in used - {"head", "title", "mono", "dashed"}:  # these have the text's colours
        assert re.search(rf"\.{word} {{[^}}]*(fill|stroke): #", light), word


@pytest.mark.parametrize("name", PICTURES)
def test_packages_that_a_picture_names_exist(name: str) -> None:
    root = ET.fromstring((FOLDER / f"{name}.svg").read_text(encoding="utf-8"))
    for part in root.iter(f"{_SVG}text"):
        words = part.text or ""
        if part.get("class") != "soft mono" or "*" in words or words.startswith("dens/1/"):
            continue
        module = "denwatch." + words.removeprefix("denwatch.")
        assert find_spec(module) is not None, words
