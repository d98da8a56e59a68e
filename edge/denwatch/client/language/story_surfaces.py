"""Stories in JSON and XML, and back: the same trees as the words (`stories.py`).

    {"sequence": ["carbon_monoxide is high", "smoke is dense"], "within": ["about 5 min"],
     "near": "about 200 m"}
    {"together": [...], "within": "10 min"}   {"none": ..., "for": "about 10 min"}
    {"count": 3, "of": {"attribute": "triage", "=": "red"}, "within": "10 min"}

A part is words, a condition or a whole subscription in JSON. In XML the parts are `Subscription`
elements inside one `Story`, whose attributes are the keys of JSON.
"""

from __future__ import annotations

import json
from typing import Any

from denwatch.client import syntax
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import lexicon
from denwatch.client.language.json import parse_json, print_json
from denwatch.client.language.stories import (
    OPTIONS,
    ReadPart,
    StoryTree,
    TimeWindow,
    is_story,
    parse_story,
    print_story,
    print_window,
    read_condition,
    read_window,
)
from denwatch.client.language.words import parse_words
from denwatch.client.plugins import load_registry

_OF_PARTS = {"sequence": "sequence", "together": "together", "absence": "none", "count": "of"}
_KEYS = ("sequence", "together", "none", "count", "of", "within", "for", "near", "possible")
_OPTION_KEYS = tuple(name for name in OPTIONS if name != "possible")


def tells_story(text: str) -> bool:
    """Return whether a text in any surface is a story; a cheap look, which never refuses."""
    begin = text.lstrip("\ufeff \t\r\n")
    if begin.startswith("{"):
        return begin[1:].lstrip().startswith('"story"')
    return begin[:6].casefold() == "<story" if begin.startswith("<") else is_story(text)


def parse_any_story(source: Any, read: ReadPart = read_condition) -> StoryTree:
    """Return the story of words, XML or what JSON holds; LanguageError says what is wrong.

    `read` reads the parts that are in words.
    """
    if isinstance(source, dict):
        return _read_json(source, read)
    if not isinstance(source, str):
        raise LanguageError('"story" takes a text or an object')
    if source.lstrip("\ufeff \t\r\n").startswith("<"):
        return _read_xml(source)
    if source.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            members = json.loads(source)
        except (ValueError, RecursionError) as error:
            at = error.pos + 1 if isinstance(error, json.JSONDecodeError) else None
            raise LanguageError("this is no JSON", at) from None
        told = members.get("story", members) if isinstance(members, dict) else members
        return _read_json(told, read)
    return parse_story(source, read)


def print_story_as(surface: str, tree: StoryTree) -> str:
    """Return the story in words, JSON or XML."""
    if surface == "json":
        return json.dumps({"story": _write_json(tree)}, ensure_ascii=False)
    return _write_xml(tree) if surface == "xml" else print_story(tree)


# JSON ------------------------------------------------------------------------------------------


def _read_json(members: Any, read: ReadPart) -> StoryTree:
    if not isinstance(members, dict):
        raise LanguageError('"story" takes a text or an object')
    known = (*_KEYS, *_OPTION_KEYS)
    for key in members:
        if key not in known:
            raise LanguageError(
                f'unknown key "{key}" of a story', suggestions=suggest_names(str(key), known)
            )
    said = [kind for kind, key in _OF_PARTS.items() if key in members]
    if len(said) != 1:
        raise LanguageError('a story has one of "sequence", "together", "none", "count" with "of"')
    kind = said[0]
    if (kind == "count") != ("count" in members):
        raise LanguageError('"count" and "of" stand together')
    given = members[_OF_PARTS[kind]]
    many = kind in ("sequence", "together")
    if many and not (isinstance(given, list) and len(given) >= 2):
        raise LanguageError(f'"{kind}" takes a list of two parts or more')
    place = f'"{_OF_PARTS[kind]}"'
    parts = [_read_part(part, place, read) for part in (given if many else [given])]
    key = "for" if kind == "absence" else "within"
    windows = members.get(key)
    listed = windows if isinstance(windows, list) else [windows]
    wanted = len(parts) - 1 if kind == "sequence" else 1
    if len(listed) == 1 and kind == "sequence":
        listed = listed * wanted
    if len(listed) != wanted:
        raise LanguageError(f'"{key}" takes {wanted} times here')
    if {"within", "for"} & members.keys() != {key}:
        raise LanguageError(f'"{key}" is expected, and only that')
    near = _read_window(members["near"], '"near"', "length") if "near" in members else None
    if near is not None and kind == "absence":
        raise LanguageError("what is not there is not near anything")
    fields: dict[str, Any] = {"near": near}
    if kind == "count":
        fields["count"] = _take_number(members["count"], '"count"')
    if "possible" in members:
        fields["possible"] = _take_number(members["possible"], '"possible"')
    beside = {name: members[name] for name in _OPTION_KEYS if name in members}
    if beside:
        options = parse_json(json.dumps({"when": {"attribute": "x", "=": 1}, **beside}))
        fields |= {name: getattr(options, name) for name in beside}
    taken = tuple(_read_window(window, f'"{key}"', "time") for window in listed)
    return StoryTree(kind, tuple(parts), taken, **fields)


def _read_part(part: Any, place: str, read: ReadPart) -> syntax.SubscriptionTree:
    try:
        if isinstance(part, str) and part.strip():
            return read(part, 0, 0)
        if isinstance(part, dict):
            return parse_json(json.dumps(part if "when" in part else {"when": part}))
    except LanguageError as error:
        said = f"{place}: {error.message}"
        if isinstance(part, str) and error.at is not None:
            said += f" (column {error.at} of the part)"
        raise LanguageError(said, None, 1, error.hint, error.suggestions) from None
    raise LanguageError(f"{place}: a part is words or a condition")


def _read_window(value: Any, place: str, dimension: str) -> TimeWindow:
    if not isinstance(value, str):
        raise LanguageError(f'{place} takes a text such as "about 5 min" or "about 200 m"')
    try:
        return read_window(value, None, dimension)
    except LanguageError as error:
        raise LanguageError(f"{place}: {error.message}", hint=error.hint) from None


def _take_number(value: Any, place: str) -> syntax.Scalar:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LanguageError(f"{place} takes a number")
    return syntax.Scalar(float(value))


def _write_json(tree: StoryTree) -> dict[str, Any]:
    parts = [json.loads(print_json(part)) for part in tree.parts]
    many = tree.kind in ("sequence", "together")
    is_silent = tree.kind == "absence"
    windows = [print_window(window, is_silent) for window in tree.windows]
    members: dict[str, Any] = {}
    if tree.count is not None:
        members["count"] = int(tree.count.value)
    members[_OF_PARTS[tree.kind]] = parts if many else parts[0]
    members["for" if is_silent else "within"] = windows if tree.kind == "sequence" else windows[0]
    if tree.near is not None:
        members["near"] = print_window(tree.near)
    if tree.possible is not None:
        members["possible"] = tree.possible.value
    options = {name: getattr(tree, name) for name in _OPTION_KEYS}
    written: dict[str, Any] = json.loads(print_json(syntax.SubscriptionTree(_ANY, **options)))
    del written["when"]
    return members | written


_ANY = parse_words("x=1").condition


# XML -------------------------------------------------------------------------------------------

_TIMES = ("within", "for")
_ATTRIBUTES = ("kind", *_TIMES, "near", "count", "possible", "name", "score", "top")
_DURATIONS = ("valid-for", "expiry")


def _read_xml(text: str) -> StoryTree:
    from denwatch.client.language.xml import read_subscription  # lxml: only who uses it
    from denwatch.client.language.xml_source import Element, list_tags, parse_source

    registry = load_registry()
    root = parse_source(text, {**list_tags(registry), "story": "Story"})
    if root.tag != "Story" or root.text:
        raise LanguageError.at_span("one <Story> with <Subscription> elements", root.start)
    known = (*_ATTRIBUTES, *_DURATIONS)
    for key in root.attributes:
        if key not in known:
            raise LanguageError.at_span(
                f'unknown attribute "{key}"', root.start, suggestions=suggest_names(key, known)
            )
    kind = root.attributes.get("kind", "")
    if kind not in _OF_PARTS:
        kinds = ", ".join(_OF_PARTS)
        raise LanguageError.at_span(
            f'"{kind}" is no kind of story: {kinds}', root.find_attribute("kind")
        )
    children: list[Element] = root.children
    least, most = (2, 4) if kind in ("sequence", "together") else (1, 1)
    for child in children:
        if child.tag != "Subscription":
            raise LanguageError.at_span("a <Subscription> is expected", child.start)
    if not least <= len(children) <= most:
        raise LanguageError.at_span(f"{least} to {most} <Subscription> are expected", root.start)
    key = "for" if kind == "absence" else "within"
    if {*_TIMES} & root.attributes.keys() != {key}:
        raise LanguageError.at_span(f'"{key}" is expected, and only that', root.start)
    span = root.find_attribute(key)
    said = [piece.strip() for piece in root.attributes[key].split(";")]
    wanted = len(children) - 1 if kind == "sequence" else 1
    said = said * wanted if len(said) == 1 else said
    if len(said) != wanted:
        raise LanguageError.at_span(f'"{key}" takes {wanted} times here, with ";" between', span)
    fields: dict[str, Any] = {}
    if "near" in root.attributes:
        if kind == "absence":
            raise LanguageError.at_span("what is not there is not near anything", root.start)
        place = root.find_attribute("near").start
        fields["near"] = read_window(root.attributes["near"], place, "length")
    for name in ("count", "possible", "score", "top"):
        if name in root.attributes:
            value = root.attributes[name]
            fields[name] = lexicon.read_scalar(value, root.find_attribute(name))
    if (kind == "count") != ("count" in fields):
        raise LanguageError.at_span('"count" belongs to the kind "count"', root.start)
    for name in _DURATIONS:
        if name in root.attributes:
            value = root.attributes[name]
            quantity = lexicon.read_quantity(value, root.find_attribute(name))
            fields[name.replace("-", "_")] = quantity
    if "name" in root.attributes:
        span_of_name = root.find_attribute("name")
        text_of_name = lexicon.read_text(root.attributes["name"], span_of_name)
        fields["name"] = syntax.Name(text_of_name, span=span_of_name)
    parts = tuple(read_subscription(child, registry) for child in children)
    windows = tuple(read_window(piece, span.start) for piece in said)
    return StoryTree(kind, parts, windows, **fields, span=root.start)


def _write_xml(tree: StoryTree) -> str:
    from xml.sax.saxutils import quoteattr

    from denwatch.client.language.xml_printer import print_xml

    if tree.prefer:
        raise LanguageError("a story in XML has no place for priorities: use words or JSON")
    is_silent = tree.kind == "absence"
    windows = "; ".join(print_window(window, is_silent) for window in tree.windows)
    attributes = {"kind": tree.kind, "for" if is_silent else "within": windows}
    if tree.near is not None:
        attributes["near"] = print_window(tree.near)
    for name in ("count", "possible", "score", "top"):
        scalar: syntax.Scalar | None = getattr(tree, name)
        if scalar is not None:
            attributes[name] = lexicon.format_number(scalar.value)
    for name in _DURATIONS:
        quantity: syntax.Quantity | None = getattr(tree, name.replace("-", "_"))
        if quantity is not None:
            attributes[name] = lexicon.write_quantity(quantity)
    if tree.name is not None:
        attributes["name"] = lexicon.write_text(tree.name.text)
    head = " ".join(f"{name}={quoteattr(value)}" for name, value in attributes.items())
    # Each without the declaration, which only a document has.
    body = "\n".join(print_xml(part).partition("\n")[2].strip() for part in tree.parts)
    return f"<Story {head}>\n{body}\n</Story>\n"
