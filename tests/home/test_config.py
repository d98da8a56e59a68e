"""`[home_assistant]` of node.toml: off unless it is asked for, and mistakes with their key."""

from __future__ import annotations

from pathlib import Path

import pytest
from denwatch.node.config import NodeConfigError, parse_config
from denwatch.node.config.model import HomeAssistantConfig

ROLES = '[roles.medic]\nevents = ["*"]\nattributes = ["*"]\n[roles.observer]\nevents = ["gas"]\n'


def parse(lines: str) -> HomeAssistantConfig | None:
    text = f'name = "north"\n[home_assistant]\n{lines}\n{ROLES}'
    return parse_config(text, Path("/site")).home_assistant


def test_it_is_off_unless_it_is_asked_for() -> None:
    assert parse("") is None
    assert parse('user = "home"') is None


def test_without_a_role_every_role_must_see_it() -> None:
    assert parse("enabled = true") == HomeAssistantConfig(
        "homeassistant", "", ("medic", "observer"), 3600
    )
    assert parse('enabled = true\nrole = "medic"\nexpire_after_seconds = 0\nuser = "ha"') == (
        HomeAssistantConfig("homeassistant", "ha", ("medic",), 0)
    )


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('prefix = "dens/1"', "prefix"),
        ('prefix = "dens"', "prefix"),
        ('prefix = "home/#"', "prefix"),
        ('prefix = "$SYS"', "prefix"),
        ('prefix = ""', "prefix"),
        ('user = "a/b"', "user"),
        ('role = "nurse"', "role"),
        ("expire_after_seconds = -1", "expire_after_seconds"),
        ('rolle = "medic"', "rolle"),
    ],
)
def test_mistakes_are_named(line: str, key: str) -> None:
    with pytest.raises(NodeConfigError) as caught:
        parse(line)
    assert caught.value.key == f"home_assistant.{key}"
    assert caught.value.line == 3
