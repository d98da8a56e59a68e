"""docs/asyncapi.yaml as tests use it: references resolved, payloads judged by its schemas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from firmware_tests.runtimes import REPOSITORY, find_cache

PATH = REPOSITORY / "docs" / "asyncapi.yaml"


def load_contract() -> dict[str, Any]:
    """Return the file."""
    contract: dict[str, Any] = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return contract


def load_specification(version: str) -> dict[str, Any]:
    """Return AsyncAPI's own JSON schema."""
    folder = find_cache() / "schemas" / "node_modules" / "@asyncapi" / "specs" / "schemas"
    path: Path = folder / f"{version}.json"
    assert path.exists(), "AsyncAPI's schema is missing: scripts/get-runtimes.sh schemas"
    specification: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return specification


def list_faults(contract: dict[str, Any]) -> list[str]:
    """Return what AsyncAPI's schema finds."""
    specification = load_specification(contract["asyncapi"])
    validator = jsonschema.validators.validator_for(specification)(specification)
    return [f"{list(e.absolute_path)}: {e.message}" for e in validator.iter_errors(contract)]


def resolve(contract: dict[str, Any], node: Any) -> Any:
    """Return what a reference stands for; KeyError if it stands for nothing."""
    while isinstance(node, dict) and "$ref" in node:
        found: Any = contract
        for step in node["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        node = found
    return node


def list_references(node: Any) -> list[str]:
    """Return all references below a node."""
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [r for value in node.values() for r in list_references(value)]
    if isinstance(node, list):
        return [r for value in node for r in list_references(value)]
    return []


def find_channel(contract: dict[str, Any], topic: str) -> str:
    """Return the channel of a topic; exactly one has it."""
    found = [
        name
        for name, channel in contract["channels"].items()
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", channel["address"]), topic)
    ]
    # `…/available` is no attribute.
    if found == ["home", "homePresence"]:
        found = ["homePresence"]
    assert len(found) == 1, (topic, found)
    return found[0]


def check_payload(contract: dict[str, Any], schema: Any, payload: Any) -> list[str]:
    """Return what a schema of the file finds wrong with a payload."""
    whole = {**schema, "components": contract["components"]}
    validator = jsonschema.Draft7Validator(whole)
    return [f"{list(e.absolute_path)}: {e.message}" for e in validator.iter_errors(payload)]


def name_message(contract: dict[str, Any], topic: str, payload: Any) -> str:
    """Return which message of its channel a payload is; it must be exactly one of them."""
    channel = contract["channels"][find_channel(contract, topic)]
    faults: dict[str, list[str]] = {}
    for name, reference in channel["messages"].items():
        message = resolve(contract, reference)
        if message["payload"].get("format") != "binary":
            faults[name] = check_payload(contract, message["payload"], payload)
    fitting = [name for name, found in faults.items() if not found]
    assert len(fitting) == 1, f"{topic}: {payload!r} is {fitting}: {faults}"
    return fitting[0]
