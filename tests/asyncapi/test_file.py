"""docs/asyncapi.yaml alone: by AsyncAPI's schema, by its own references, by the code's topics."""

from __future__ import annotations

import copy

import pytest
from denwatch.client.version import find_version
from denwatch.node.core import events, requests
from denwatch.node.core.languages import CONTENT_LANGUAGE, FUZZY_LANGUAGE

from tests.asyncapi.contract import (
    check_payload,
    list_faults,
    list_references,
    load_contract,
    resolve,
)

CONTRACT = load_contract()
MESSAGES = CONTRACT["components"]["messages"]


def test_asyncapis_schema_finds_nothing_and_would_find_a_mistake() -> None:
    assert list_faults(CONTRACT) == []
    for break_it in (
        lambda c: c["channels"]["notes"].update(adress="x"),
        lambda c: c["operations"]["deliverNote"].update(action="publish"),
        lambda c: c["info"].pop("version"),
        lambda c: c["servers"]["node"].pop("protocol"),
    ):
        broken = copy.deepcopy(CONTRACT)
        break_it(broken)
        assert list_faults(broken)


def test_every_reference_leads_somewhere_and_everything_is_used() -> None:
    references = set(list_references(CONTRACT))
    for reference in references:
        resolve(CONTRACT, {"$ref": reference})
    for part in ("messages", "schemas"):
        for name in CONTRACT["components"][part]:
            assert f"#/components/{part}/{name}" in references, name
    for name in CONTRACT["channels"]:
        assert f"#/channels/{name}" in references, f"nobody sends or receives {name}"


def test_every_topic_of_the_code_is_there_and_no_other() -> None:
    code = {
        value
        for name, value in vars(events).items()
        if name.isupper() and name != "ROOT" and isinstance(value, str)
    }
    addresses = [channel["address"] for channel in CONTRACT["channels"].values()]
    assert {address[: address.index("{")] for address in addresses} == code
    assert sorted(a.rpartition("/")[2] for a in addresses if "{device}/" in a and "/wd/" in a) == [
        "ack",
        "hello",
        "nv",
        "sv",
        "want",
    ]


def test_every_command_of_the_code_is_there() -> None:
    listed = CONTRACT["components"]["schemas"]["request"]["oneOf"]
    keys = {FUZZY_LANGUAGE.key, CONTENT_LANGUAGE.key}
    assert {rule["required"][0] for rule in listed} == {"when", *keys, *requests._COMMANDS}


@pytest.mark.parametrize("name", [name for name in MESSAGES if "examples" in MESSAGES[name]])
def test_examples_are_what_their_schema_says(name: str) -> None:
    for example in MESSAGES[name]["examples"]:
        assert check_payload(CONTRACT, MESSAGES[name]["payload"], example["payload"]) == []


def test_it_speaks_of_this_version() -> None:
    assert CONTRACT["info"]["version"] == find_version()
