"""`--help` reads like a manual page everywhere: purpose, options, examples, exit status."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from denwatch.cli import COMMANDS, main

COMMAND_NAMES = sorted(COMMANDS)
USAGE_WIDTH = 110


def read_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command says of itself."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def list_examples(text: str) -> Iterator[str]:
    """Return the examples of a help text."""
    part = text.partition("\nexamples:\n")[2].partition("\nexit status:")[0]
    part = re.sub(r"\\\n\s*", "", part)  # a line may go on below
    for line in part.splitlines():
        if line.strip():
            yield line.strip()


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_help_reads_like_a_manual_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = read_help([name], capsys)
    assert text.startswith(f"usage: denwatch {name}")
    purpose = text.partition("\n\n")[2].partition("\n\n")
    assert purpose[0].endswith("."), "the first sentence says what it is for"
    assert len(purpose[2].partition("\n\n")[0]) > 80, "then comes what it does"
    for heading in ("options:", "examples:", "exit status:"):
        assert f"\n{heading}\n" in text
    assert len(list(list_examples(text))) >= 2
    assert max(map(len, text.splitlines())) <= USAGE_WIDTH


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_every_option_says_what_it_is_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in [[name], *([name, action] for action in list_actions(name, capsys))]:
        text = read_help(words, capsys)
        bare = re.findall(r"^  (-[^\s,]+(?:, -\S+)?(?: [^ \n]+)*)\n(?! {20})", text, re.M)
        assert not bare, f"{' '.join(words)}: {bare} say nothing"


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_examples_use_options_that_exist(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = read_help([name], capsys)
    for action in list_actions(name, capsys):
        text += read_help([name, action], capsys)
    for example in list_examples(read_help([name], capsys)):
        assert example.startswith("denwatch "), example
        first = re.split(r" \| | < |  +\(", example)[0]
        words = shlex.split(first)
        if words[1] == name:
            for option in (word for word in words if re.match(r"--?[a-z]", word)):
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), f"{example}: {option}"


def list_actions(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the actions of a command that has some."""
    usage = read_help([name], capsys).partition("\n\n")[0]
    if " ..." not in usage or ("ACTION" not in usage and "{" not in usage):
        return []
    chosen: list[str] = re.findall(r"\{([a-z,-]+)\} \.\.\.", usage)
    if chosen:
        return chosen[0].split(",")
    listed = read_help([name], capsys).partition("  ACTION\n")[2].partition("\n\n")[0]
    found: list[str] = re.findall(r"^ {4}([a-z][a-z-]*)(?: |$)", listed, re.M)
    return found


def test_no_command_and_unknown_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name}" in told
        assert command.summary in told
    assert main(["subscirbe"]) == 2
    assert 'did you mean "subscribe"?' in capsys.readouterr().err
