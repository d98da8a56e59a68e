"""docs/language.md: every example runs, every output shown is real, the grammar is the grammar."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from denwatch.cli import main
from denwatch.cli.common import point_at
from denwatch.client.compiler import compile_subscription, decompile
from denwatch.client.errors import LanguageError
from denwatch.client.language import parse, print_as
from denwatch.client.language.grammar import GRAMMAR, build_parser
from denwatch.client.language.understanding import understand
from denwatch.client.syntax import SubscriptionTree
from denwatch.client.vocabulary import load_shipped

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A fenced block: its language, the words after it, its text and its line."""

    language: str
    arguments: str
    text: str
    line: int


def list_blocks(*languages: str) -> list[Block]:
    """Return the fenced blocks of these languages."""
    found = []
    for match in re.finditer(r"^```(\w+) ?(.*)\n((?:.*\n)*?)```$", PAGE, re.MULTILINE):
        if match[1] in languages:
            found.append(Block(match[1], match[2], match[3], PAGE[: match.start()].count("\n") + 1))
    return found


WORDS = [
    (line, block.arguments or "rescue")
    for block in list_blocks("words")
    for line in block.text.splitlines()
]


@pytest.mark.parametrize(("words", "vocabulary"), WORDS)
def test_words_compile_and_come_back(words: str, vocabulary: str) -> None:
    known = load_shipped(vocabulary)
    tree = parse(words)
    compiled = compile_subscription(tree, known)
    for surface in ("words", "xml", "json"):
        assert parse(print_as(surface, tree)) == tree
    again = decompile(compiled.data, known, compiled.options)
    assert compile_subscription(again, known).data == compiled.data


EVERYDAY = [
    tuple(cell.strip().replace("`", "") for cell in line.split("|")[1:3])
    for block in (PAGE.partition("## Everyday words")[2].partition("### Adding")[0],)
    for line in block.splitlines()
    if line.startswith("| `")
]


@pytest.mark.parametrize(("said", "meant"), EVERYDAY)
def test_everyday_words_mean_what_the_page_says(said: str, meant: str) -> None:
    known = load_shipped("rescue")
    if meant.startswith("asks: "):
        with pytest.raises(LanguageError) as caught:
            understand(said, known)
        assert meant.removeprefix("asks: ") in caught.value.hints
        return
    wanted = compile_subscription(parse(meant), known)
    assert understand(said, known).compiled.data == wanted.data


@pytest.mark.parametrize("block", list_blocks("json", "xml"), ids=lambda block: str(block.line))
def test_documents_compile(block: Block) -> None:
    tree = parse(block.text)
    compile_subscription(tree, load_shipped("rescue"))
    assert parse(print_as(block.language, tree)) == tree


@pytest.mark.parametrize("block", list_blocks("python"), ids=lambda block: str(block.line))
def test_python_runs(block: Block) -> None:
    names: dict[str, object] = {}
    exec(compile(block.text, "docs/language.md", "exec"), names)
    tree = names["subscription"]
    assert isinstance(tree, SubscriptionTree)
    assert compile_subscription(tree, load_shipped("rescue")).data


@pytest.mark.parametrize("block", list_blocks("console"), ids=lambda block: str(block.line))
def test_commands_print_what_is_shown(block: Block, capfd: pytest.CaptureFixture[str]) -> None:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        name, *arguments = shlex.split(command)
        assert name == "denwatch"
        assert main(arguments) == 0
        assert capfd.readouterr().out == shown


@pytest.mark.parametrize("block", list_blocks("error"), ids=lambda block: str(block.line))
def test_errors_are_shown_as_they_are(block: Block) -> None:
    words, _, shown = block.text.partition("\n")
    with pytest.raises(LanguageError) as caught:
        understand(words, load_shipped("rescue"))
    assert point_at(caught.value, words, "") == shown.rstrip("\n")


def test_examples_of_errors_in_the_table_are_errors() -> None:
    table = PAGE.partition("## Errors")[2].partition("## What a vector")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")]
    examples = [words for row in rows for words in re.findall(r"`([^`]+)`", row)]
    assert len(examples) >= 7
    for words in examples:
        with pytest.raises(LanguageError):
            compile_subscription(parse(words), load_shipped("rescue"))


def test_the_options_of_the_table_are_options() -> None:
    table = PAGE.partition("### Options")[2].partition("```")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    for row in rows:
        for option in re.findall(r"`([^`]+)`", row):
            tree = parse(f"patient_temperature is high and pain is severe, {option}")
            assert parse(print_as("words", tree)) == tree
    assert len(rows) == 17


def read_rules(text: str) -> dict[str, str]:
    """Return the rules of an EBNF by name."""
    rules = re.findall(r"^(\w+) *= ((?:.|\n)*?) ;$", text, re.MULTILINE)
    return dict(rules)


def test_the_grammar_on_the_page_has_the_rules_of_the_grammar() -> None:
    (block,) = list_blocks("ebnf")
    shown = read_rules(block.text)
    source = GRAMMAR.read_text(encoding="utf-8")
    rules = set(re.findall(r"^\??([a-z]+):", source, re.MULTILINE))
    assert set(shown) == rules
    for name, body in shown.items():
        used = set(re.findall(r"\b[a-z]{2,}\b", re.sub(r'"[^"]*"', "", body)))
        assert used <= rules, name


def test_every_keyword_on_the_page_is_one() -> None:
    (block,) = list_blocks("ebnf")
    keywords = {word for word in re.findall(r'"([^"]+)"', block.text) if word not in "(),."}
    patterns = [terminal.pattern for terminal in build_parser().terminals]
    for keyword in keywords:
        probe = f"{keyword} 5" if keyword == "-" else keyword
        matched = [re.match(p.to_regexp(), probe, re.IGNORECASE) for p in patterns]
        assert any(m is not None and m.end() == len(keyword) for m in matched), keyword


def test_every_kind_of_keyword_is_on_the_page() -> None:
    (block,) = list_blocks("ebnf")
    keywords = re.findall(r'"([^"]+)"', block.text)
    left_out = {"EXTENSION", "PARAMETER", "_THE"}
    for terminal in build_parser().terminals:
        if terminal.priority < 2 or terminal.name in left_out:
            continue
        pattern = re.compile(terminal.pattern.to_regexp(), re.IGNORECASE)
        assert any(pattern.match(f"{word} 5".replace(". 5", ".")) for word in keywords), (
            terminal.name
        )
