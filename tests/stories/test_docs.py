"""docs/language.md, "Stories": every example compiles, and the notification shown is a real one."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from denwatch.cli import main
from denwatch.client.compiler.stories import compile_story, decompile_story
from denwatch.client.language.stories import StoryTree, is_story
from denwatch.client.language.story_surfaces import parse_any_story, print_story_as
from denwatch.client.vocabulary import load_shipped

from tests.language.test_docs import list_blocks
from tests.stories.test_node import list_told, read_event
from tests.subscribers.subscriber_node import SubscriberNode

RESCUE = load_shipped("rescue")
BLOCKS = list_blocks("story")
WORDS = [line for b in BLOCKS if b.arguments == "words" for line in b.text.splitlines()]


def check(tree: StoryTree) -> None:
    data = compile_story(tree, RESCUE).story.encode()
    again = decompile_story(data, RESCUE)
    assert compile_story(again, RESCUE).story.encode() == data


@pytest.mark.parametrize("words", WORDS)
def test_words(words: str) -> None:
    assert is_story(words)
    tree = parse_any_story(words)
    for surface in ("words", "json", "xml"):
        assert parse_any_story(print_story_as(surface, tree)) == tree
    check(tree)
    assert SubscriberNode().ask("ada", words)["ok"]


@pytest.mark.parametrize(
    "text", [block.text for block in BLOCKS if block.arguments in ("json", "xml")]
)
def test_documents(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(parse_any_story(text))
    assert SubscriberNode().ask("ada", text)["ok"]
    assert main(["compile", text]) == 0
    assert "a story: " in capsys.readouterr().out


def test_python() -> None:
    (block,) = [block for block in BLOCKS if block.arguments == "python"]
    names: dict[str, Any] = {}
    exec(compile(block.text, "docs/language.md", "exec"), names)
    assert names["story"] == parse_any_story(WORDS[0])


def test_keywords_of_the_grammar_are_keywords() -> None:
    (block,) = [block for block in BLOCKS if block.arguments == "ebnf"]
    said = " ".join(WORDS) + " rising from"
    for keyword in re.findall(r'"([a-z ]+)"', block.text):
        if keyword not in ("when", "two", "ten"):
            assert keyword in said, keyword


def test_the_notification_is_a_real_one() -> None:
    (block,) = [block for block in BLOCKS if block.arguments == "told"]
    node = SubscriberNode()
    node.ask("ada", f"{WORDS[1]}, named gasfire")
    node.attach("ada")
    node.read(read_event("gas", carbon_monoxide=900), device="nose-1")
    node.tick()
    (told,) = list_told(node.read(read_event("fire", smoke=95), device="eye-1")[1])
    shown = json.loads(block.text)
    assert take_shown(told, shown) == shown


def take_shown(whole: Any, shown: Any) -> Any:
    """Return those members of a message that the page shows."""
    if isinstance(shown, dict):
        return {key: take_shown(whole[key], value) for key, value in shown.items()}
    if isinstance(shown, list):
        return [take_shown(*pair) for pair in zip(whole, shown, strict=True)]
    return whole


@pytest.mark.parametrize("surface", ["words", "json", "xml"])
def test_the_command_writes_every_surface(surface: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--to", surface, WORDS[0]]) == 0
    assert parse_any_story(capsys.readouterr().out) == parse_any_story(WORDS[0])
    assert main(["compile", "--json", WORDS[0]]) == 0
    assert len(json.loads(capsys.readouterr().out)["parts"]) == 2
    assert main(["compile", "smoke is dens within 5 s after pain is severe"]) != 0
    assert "column 10" in capsys.readouterr().err
