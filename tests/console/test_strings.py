"""Every string of the page has its translation in every language, and none is left over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from denwatch.client.console import auth, server
from denwatch.client.language.localisation import DEFAULT, choose_locale, list_locales, load_locale

_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_FIELDS = re.compile(r'\b(?:label|what|words): "([^"]+)"')
_SENTENCES = (  # of the program behind the page; {} stands for what differs
    "Connected to north",
    "Connecting to mqtt://north",
    "No node in range",
    "No node in range (refused); trying again",
    "There is no such subscription any more.",
    "mqtt://north refuses your name or key",
    "mqtt://north cannot be used: its certificate is not trusted (self-signed)",
    "No node in range (unreachable: no answer)",
    "This link does not belong to this console, or is out of date.",
    "Enter a name and a key.",
    "No node has reported yet.",
    "One node, no peers.",
    "All 2 nodes are connected.",
    "The network is cut into 2 parts: north | south",
    "1 of 2 nodes are up: north stopped for 3 s.",
    "No node is up: north silent for 3 s.",
    "Subscribed. Matching readings appear in the feed.",
    "Stored here. It is sent when a node is in range.",
    "Name what is to be measured, such as: pulse and temperature",
    "Nothing like it since the last one (eye-1: smoke 94.9 %). More may be on its way.",
    "nose-1: carbon monoxide 900 ppm, then eye-1: smoke 94.9 %.",
    "It matches your subscription.",
    "Patient temperature is high by 60 % (38.7 °C), and that decides.",
    "Patient temperature is high by 60 % (38.7 °C).",
    "It may be so, by 30–75 %: the sensor is in doubt. Heart rate is high: 100 to 140 bpm.",  # noqa: RUF001
    "It fits wherever the value is in its range, by 60–75 %. Heart rate is high: 140 bpm.",  # noqa: RUF001
    "east",
    "north",
)


def list_strings() -> set[str]:
    """Return all strings that the scripts hand to `t`, and those of the tables that they show."""
    found: set[str] = set()
    for path in sorted((Path(server.__file__).parent / "parts").glob("*.js")):
        text = path.read_text(encoding="utf-8")
        for call in re.finditer(r"(?<![\w.$])(?:this\.)?t\(", text):
            found |= _read_call(text[call.end() :])
        if path.name in ("bar.js", "subscriptions.js"):
            found |= set(_FIELDS.findall(text))
        for block in re.findall(r"(?:columns|SEVERITIES|THEMES)\s*[:=] \[([^]]*)\]", text):
            found |= {one or other for one, other in _QUOTED.findall(block)}
        for block in re.findall(r"words: \{([^}]*)\}", text):
            found |= {one or other for one, other in _QUOTED.findall(block)}
        found |= set(re.findall(r'[\s]words="([^"]+)"', text))
    return found | {"certain", "possible", "rising", "falling", "steady"}


def _read_call(text: str) -> set[str]:
    """Return the strings of the first argument: one, or the two of a choice."""
    found: set[str] = set()
    at = depth = 0
    while at < len(text):
        match = _QUOTED.match(text, at)
        if match:
            if (
                depth == 0
                and not re.match(r"\s*===", text[match.end() :])
                and not re.search(r"===\s*$", text[:at])
            ):
                found.add(match[1] or match[2])
            at = match.end()
            continue
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            if depth == 0:
                break
            depth -= 1
        elif text[at] == "," and depth == 0:
            break
        at += 1
    return found


@pytest.mark.parametrize("code", [code for code in list_locales() if code != DEFAULT])
def test_every_string_of_the_page_has_its_translation(code: str) -> None:
    strings, table = list_strings(), load_locale(code).tables["console"]
    assert len(strings) > 100
    assert sorted(strings - set(table)) == []
    assert sorted(set(table) - strings) == []
    for english, own in table.items():
        places = re.findall(r"\{\d\}", english)
        assert sorted(places) == sorted(re.findall(r"\{\d\}", own)), english


@pytest.mark.parametrize("code", [code for code in list_locales() if code != DEFAULT])
@pytest.mark.parametrize("sentence", _SENTENCES)
def test_the_programs_sentences_are_translated(code: str, sentence: str) -> None:
    assert load_locale(code).translate(sentence) != sentence


@pytest.mark.parametrize("code", [code for code in list_locales() if code != DEFAULT])
def test_the_pages_without_scripts_and_what_a_login_says_are_translated(code: str) -> None:
    say = load_locale(code).translate
    fields = {"language", "error", "name", "target", "fingerprint"}
    found = {
        words
        for name in ("login.html", "login-single.html", "phone.html")
        for words in re.findall(r"\{\{(.+?)\}\}", server.read_file(name))
    }
    assert [words for words in sorted(found - fields) if say(words) in (words, "")] == ["Name"]
    source = Path(auth.__file__).read_text(encoding="utf-8")
    errors = re.findall(r'LoginError\(\s*"([^"]+)"', source)
    errors += re.findall(r'(?:message|REFUSED) = "([^"]+)"', source)
    assert len(errors) >= 6
    assert [words for words in errors if say(words) == words] == []


@pytest.mark.parametrize(
    ("chosen", "accepted", "code"),
    [
        ("", "de-AT,en;q=0.8", "de"),
        ("", "fr, de;q=0.5", "de"),
        ("en", "de", "en"),
        ("xx", "xx, *", "en"),
        ("", "", "en"),
    ],
)
def test_a_page_speaks_the_language_that_was_chosen_or_that_is_preferred(
    chosen: str, accepted: str, code: str
) -> None:
    assert choose_locale(chosen, accepted) == code


def test_every_file_that_the_page_names_is_served_and_kept_for_times_offline() -> None:
    read = server.read_file
    named = set(re.findall(r'"(/[\w.-]+)"', read("page.html") + read("manifest.json")))
    named |= set(re.findall(r'from "(/[\w.]+)"', "".join(map(read, ("page.js", "bar.js")))))
    kept = set(re.findall(r'"(/[\w.-]*)"', read("worker.js").partition("];")[0]))
    assert named <= set(server.PAGE_FILES)
    assert kept == set(server.PAGE_FILES) - {"/worker.js"}
    assert named <= kept
