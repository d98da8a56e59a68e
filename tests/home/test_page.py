"""The discovery that docs/home-assistant.md shows is the one that a node sends."""

from __future__ import annotations

import json
import re

from denwatch.client.compiler import compile_subscription
from denwatch.client.language import parse
from denwatch.client.vocabulary import load_shipped
from denwatch.node.config import parse_config
from denwatch.node.config.model import write_config
from denwatch.node.core.home_assistant import describe_attribute

from firmware_tests.runtimes import REPOSITORY

PAGE = (REPOSITORY / "docs" / "home-assistant.md").read_text(encoding="utf-8")


def test_the_discovery_on_the_page_is_ours() -> None:
    (text,) = re.findall(r"^```json\n(.*?)```", PAGE, re.S | re.M)
    attribute = load_shipped("rescue").events["gas"].attributes["carbon_monoxide"]
    _, described = describe_attribute(
        "north", "dog-1", "micropython 1.25.0", attribute, "VERSION", 3600
    )
    ours = re.sub(r"_[0-9a-f]{8}\"", '_ID"', json.dumps(described))
    assert json.loads(text) == json.loads(ours)


def test_the_settings_on_the_page_switch_it_on() -> None:
    (section,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    written = write_config("north", ["mqtt://127.0.0.1:1883"], {})
    text = re.sub(r"\[home_assistant\]\n.*?\n\n", section + "\n", written, flags=re.S)
    home = parse_config(text, REPOSITORY).home_assistant
    assert home is not None
    assert (home.user, home.expire_after) == ("home", 3600)
    assert home.roles == ("medic", "firefighter", "coordinator", "observer")


def test_the_sentence_on_the_page_is_understood() -> None:
    (words,) = re.findall(r"`(carbon_monoxide [^`]+)`", PAGE)
    compiled = compile_subscription(parse(words), load_shipped("rescue"))
    assert compiled.event.name == "gas"
