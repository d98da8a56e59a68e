"""The rules for pages find what they are there for: blocks nobody runs, outputs that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.comparison import find_difference
from tests.docs.pages import ROOT, File, Page, PageError, Step, list_steps, read_page
from tests.docs.session import Session, play


def make_page(tmp_path: Path, text: str) -> Page:
    path = tmp_path / "page.md"
    path.write_text(text)
    page = read_page(path)
    return Page(ROOT / "docs" / "page.md", page.blocks, page.runner)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```console\n$ true\n", "never closed"),
        ("```\n$ true\n```\n", "neither run nor marked"),
        ("```shell\ntrue\n```\n", "neither run nor marked"),
        ("```python\n1\n```\n", "neither run nor marked"),
        ("<!-- needs luck -->\n```console\n$ true\n```\n", "needs luck"),
        ("<!-- not a command -->\n```console\n$ true\n```\n", "is a command"),
        ("<!-- run by tests/nowhere.py -->\n```console\n$ true\n```\n", "there is no"),
        ("<!-- run by tests/conftest.py -->\n```console\n$ true\n```\n", "does not name it"),
        ("<!-- needs hardware -->\nWords between.\n```\nx\n```\n", "neither run nor marked"),
        ("```console\nprinted\n```\n", "before any command"),
    ],
)
def test_what_nobody_runs_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PageError, match=words):
        list_steps(make_page(tmp_path, text))


def test_marks_files_and_commands(tmp_path: Path) -> None:
    text = (
        "<!-- needs hardware -->\n```console\n$ flash\n```\n"
        "<!-- file: a.txt -->\n```text\nhello\n```\n"
        "<!-- numbers differ -->\n\n```console\n$ cat \\\n> a.txt\nhello\n$ true\n```\n"
        "<!-- not a command -->\n```ebnf\na = b ;\n```\n"
    )
    assert list_steps(make_page(tmp_path, text)) == [
        File("a.txt", "hello\n"),
        Step("cat \\\na.txt", ("hello",), 12, True),
        Step("true", (), 15, True),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "varies", "others", "is_right"),
    [
        (["a", "b"], ["a", "b"], False, False, True),
        (["a"], ["a", "b"], False, False, False),
        (["a", "..."], ["a", "b"], False, False, True),
        (["...", "c"], ["a", "b", "c"], False, False, True),
        (["...", "b"], ["a", "b", "c"], False, False, False),
        (["a", "...", "c"], ["a", "c"], False, False, True),
        (["b", "a"], ["a", "b"], False, False, False),
        (["b", "a"], ["x", "a", "b"], False, True, True),
        (["a", "a"], ["a"], False, True, False),
        (["3 of 4"], ["17 of 4,096"], False, False, False),
        (["3 of 4"], ["17 of 4,096"], True, False, True),
        (['{"id":"1cff2c84f8d59432"}'], ['{"id":"00000000a8d59432"}'], True, False, True),
        (["3 lost"], ["3 kept"], True, False, False),
        (['"at":1,…}'], ['"at":1,"more":2}'], False, False, True),
        ([], ["a"], False, False, False),
    ],
)
def test_outputs_are_compared(
    shown: list[str], printed: list[str], varies: bool, others: bool, is_right: bool
) -> None:
    assert (find_difference(shown, printed, varies, others) is None) == is_right


def test_a_session_keeps_its_folder_its_variables_and_its_jobs(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    session = Session(tmp_path, tmp_path / "page", "127.0.0.1:1884")
    steps: list[Step | File] = [
        File("deep/a.txt", "mqtt://127.0.0.1:1884\n"),
        Step("word=hello", (), 1, False),
        Step("(sleep 0.3; echo late $word) &", ("late hello",), 2, False),
        Step("grep -c 1884 deep/a.txt", ("1",), 3, False),
        Step("cat deep/a.txt", ("mqtt://127.0.0.1:1884",), 4, False),
        Step("false", (), 5, False),
        Step("ls nothing", ("ls: …",), 6, False),
    ]
    try:
        wrong = play(session, steps)
    finally:
        session.close()
    assert [line.partition("\n")[0] for line in wrong] == ["line 5: $ false"]
    assert str(session.ports["1884"]) in (tmp_path / "page" / "deep" / "a.txt").read_text()
