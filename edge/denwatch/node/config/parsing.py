"""TOML to a `Document`: every key known, every value of its kind, or a message for a person. Pure.

msgspec does the checking; this file puts its findings into words, with the line and what may have
been meant.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import Any, TypeVar

import msgspec
from denwatch.node.config.errors import ConfigError
from denwatch.node.config.lines import find_line
from denwatch.node.config.model import Document, RoleSection

_MESSAGE = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `([a-z]+)`(?:, got `([a-z]+)`| ([<>]=) ([0-9]+))")
_KINDS = {
    "int": "a whole number",
    "float": "a number with a fraction",
    "str": "a text in quotes",
    "bool": "true or false",
    "array": "a list in [ ]",
    "object": "a table",
}
_BOUNDS = {">=": "at least", "<=": "at most"}

_Section = TypeVar("_Section", bound=msgspec.Struct)
Steps = tuple[str | int, ...]


def parse_document(text: str) -> Document:
    """Return what a text says; ConfigError otherwise."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line ([0-9]+)", str(error))
        line = int(found[1]) if found else len(text.splitlines())  # "at end of document"
        what = re.sub(r" \(at .*\)$", "", str(error))
        raise ConfigError("", f"no TOML: {what}", line) from None
    roles = raw.pop("roles", {})
    document = _convert(raw, Document, (), text)
    if not isinstance(roles, dict):
        raise locate(text, ("roles",), f"{_name_kind(roles)} instead of a table")
    # One by one: of a dictionary msgspec does not tell which key was wrong.
    sections = {
        name: _convert(role, RoleSection, ("roles", name), text) for name, role in roles.items()
    }
    return msgspec.structs.replace(document, roles=sections)


def locate(text: str, steps: Steps, what: str) -> ConfigError:
    """Return the error of a key, with its line."""
    return ConfigError(write_steps(steps), what, find_line(text, steps))


def write_steps(steps: Steps) -> str:
    """Return a path as people write it: peers[2].url, counted from 1."""
    words = ""
    for step in steps:
        words += f"[{step + 1}]" if isinstance(step, int) else f".{step}" if words else step
    return words


def _convert(raw: Any, kind: type[_Section], start: Steps, text: str) -> _Section:
    try:
        return msgspec.convert(raw, kind, strict=True)
    except msgspec.ValidationError as error:
        found = _MESSAGE.fullmatch(str(error))
        assert found is not None  # it matches everything
        within: Steps = tuple(name or int(number) for name, number in _STEP.findall(found[2] or ""))
        steps, what = _explain(found[1], start + within, _find_section(kind, within))
        raise locate(text, steps, what) from None


def _explain(message: str, steps: Steps, section: type[msgspec.Struct] | None) -> tuple[Steps, str]:
    """Return the path that is meant and the finding in words."""
    if unknown := _UNKNOWN.fullmatch(message):
        known = list(section.__struct_fields__) if section else []
        if section is Document:
            known.append("roles")
        near = difflib.get_close_matches(unknown[1], known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(known)}"
        return (*steps, unknown[1]), f"there is no such key; {hint}"
    if missing := _MISSING.fullmatch(message):
        return (*steps, missing[1]), "is missing"
    expected = _EXPECTED.fullmatch(message)
    if expected is None:
        return steps, message
    kind, got, sign, bound = expected.groups()
    if got:
        return steps, f"{_KINDS.get(got, got)} instead of {_KINDS.get(kind, kind)}"
    return steps, f"{_BOUNDS[sign]} {int(bound):,} is allowed"


def _find_section(kind: type[msgspec.Struct], steps: Steps) -> type[msgspec.Struct] | None:
    """Return the struct that a path leads to."""
    section: Any = kind
    for step in steps:
        if isinstance(step, int):
            continue
        fields = {field.name: field.type for field in msgspec.structs.fields(section)}
        section = fields.get(step)
        arguments = getattr(section, "__args__", ())
        section = arguments[0] if arguments else section
        if not (isinstance(section, type) and issubclass(section, msgspec.Struct)):
            return None
    return section  # type: ignore[no-any-return]


def _name_kind(value: object) -> str:
    names = {int: "int", float: "float", str: "str", bool: "bool", list: "array"}
    return _KINDS.get(names.get(type(value), ""), "something")
