"""`denwatch vocabulary`: lists, shows, checks and makes vocabularies."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denwatch.cli import common
from denwatch.cli.errors import WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from denwatch.client.vocabulary import Vocabulary
    from denwatch.client.vocabulary.attributes import Attribute

Facts = dict[str, object]  # of one thing, for programs (--json)
Said = str | Facts  # an action yields lines for people, and facts
_DESCRIPTION = """
A vocabulary holds events, attributes with their domains and units, fuzzy terms, and each
organisation's synonyms. A NAME is a shipped vocabulary or a TOML file."""
_EXAMPLES = """
denwatch vocabulary list
denwatch vocabulary show heart_rate
denwatch vocabulary show --vocabulary weather
denwatch vocabulary search temp
denwatch vocabulary new ours.toml --attribute soil_moisture --unit % --from 0 --to 100
denwatch vocabulary check ours.toml
denwatch vocabulary merge rescue weather --output both.toml
denwatch vocabulary import-fll terms.fll --vocabulary rescue --output ours.toml"""


def run(argv: list[str]) -> int:
    """Run one of the actions."""
    from denwatch.client.errors import LanguageError

    arguments = _parse(argv)
    with common.refuse(LanguageError):
        said = list(arguments.action(arguments))
    facts = [one for one in said if isinstance(one, dict)]
    if getattr(arguments, "json", False):
        print(json.dumps(facts, ensure_ascii=False))
    else:
        print(*(one for one in said if isinstance(one, str)), sep="\n")
    return 0


def list_shipped(_: argparse.Namespace) -> Iterator[Said]:
    """Yield the vocabularies that come with denwatch."""
    from denwatch.client.vocabulary import SHIPPED
    from denwatch.client.vocabulary.vocabulary import HASH_DIGITS

    for name in SHIPPED:
        vocabulary = common.load_vocabulary([name])
        digits = vocabulary.hash[:HASH_DIGITS]
        yield {"name": name, "hash": digits, "description": vocabulary.description}
        yield f"{name}  {digits}  {count(vocabulary)}: {vocabulary.description}"


def count(vocabulary: Vocabulary) -> str:
    """Return how many events, attributes, terms and synonyms there are."""
    attributes = list(vocabulary.iterate_attributes())
    terms = sum(len(attribute.terms) for attribute in attributes)
    return (
        f"{len(vocabulary.events)} events, {len(attributes)} attributes, {terms} terms, "
        f"{len(vocabulary.thesaurus.entries)} synonyms"
    )


def show(arguments: argparse.Namespace) -> Iterator[Said]:
    """Yield a vocabulary, or one word of it."""
    from denwatch.client.vocabulary import fold_name
    from denwatch.client.vocabulary.vocabulary import browse, describe_vocabulary

    vocabulary = common.load_vocabulary(arguments.vocabulary)
    word = arguments.word
    for event in vocabulary.events.values():
        for attribute in event.attributes.values():
            if word is None or fold_name(word) in map(fold_name, (event.name, attribute.name)):
                yield _describe_facts(vocabulary, event.number, attribute)
    yield describe_vocabulary(vocabulary) if word is None else browse(vocabulary, word)


def _describe_facts(vocabulary: Vocabulary, event: int, attribute: Attribute) -> Facts:
    return {
        "vocabulary": vocabulary.name,
        "attribute": attribute.path,
        "event": event,
        "bit": attribute.bit,
        "unit": attribute.unit or None,
        "terms": [*attribute.terms],
        "symbols": [*attribute.symbols],
    }


def search(arguments: argparse.Namespace) -> Iterator[Said]:
    """Yield every name, term, symbol and synonym that contains a text."""
    from denwatch.client.vocabulary import SHIPPED, fold_name

    wanted = fold_name(arguments.text)
    found = False
    for name in arguments.vocabulary or SHIPPED:
        vocabulary = common.load_vocabulary([name])
        for word, path in list_words(vocabulary):
            if wanted in fold_name(word):
                found = True
                quoted = "" if path.endswith(word) else f'  "{word}"'
                yield {"vocabulary": vocabulary.name, "path": path, "word": word}
                yield f"{vocabulary.name}  {path}{quoted}"
    if not found:
        raise CommandError(f'nothing contains "{arguments.text}"')


def list_words(vocabulary: Vocabulary) -> Iterator[tuple[str, str]]:
    """Yield every word of a vocabulary with the path of what it means."""
    for event in vocabulary.events.values():
        yield event.name, event.name
        for attribute in event.attributes.values():
            yield attribute.name, attribute.path
            for word in (*attribute.terms, *attribute.symbols):
                yield word, f"{attribute.path}.{word}"
    for entry in vocabulary.thesaurus.entries:
        yield entry.word, f"{entry.target} ({entry.organisation})"


def check(arguments: argparse.Namespace) -> Iterator[Said]:
    """Yield one line for each file that is a vocabulary; the first that is not ends it."""
    for name in arguments.name:
        vocabulary = common.load_vocabulary([name])
        yield f"{name}: {vocabulary.name} {vocabulary.version}, {count(vocabulary)}"
        yield {"file": name, "name": vocabulary.name, "hash": vocabulary.hash}
        for attribute in vocabulary.iterate_attributes():
            for term in attribute.terms.values():
                error = attribute.fit_term(term).error
                if error > arguments.tolerance:
                    path = f"{attribute.path}.{term.name}"
                    yield {"term": path, "error": error}
                    yield f"  {path} is {error:.1%} off its definition on the wire"


def merge(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield several vocabularies as one, or write them to a file."""
    yield from write_vocabulary(common.load_vocabulary(arguments.name), arguments.output)


def import_terms(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield a vocabulary with the terms of an FLL file, or write it to a file."""
    from denwatch.client.vocabulary.loading import import_fll

    text = common.read_file(Path(arguments.file))
    vocabulary = common.load_vocabulary(arguments.vocabulary)
    with common.underline(text, arguments.file):
        extended = import_fll(vocabulary, text)
    yield from write_vocabulary(extended, arguments.output)


def write_vocabulary(vocabulary: Vocabulary, output: str | None) -> Iterator[str]:
    """Yield a vocabulary as TOML, or what was written where."""

    text = write_toml(vocabulary.document)
    if output is None:
        yield text.rstrip("\n")
    else:
        common.write_file(Path(output), text)
        yield f"{output}: {vocabulary.name} {vocabulary.version}, {count(vocabulary)}"


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Make, list, show, search, check, merge and import vocabularies."
    parser = common.build_parser("vocabulary", summary, _DESCRIPTION, _EXAMPLES)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(
        name: str, action: object, summary: str, several: bool = False
    ) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        sub.set_defaults(action=action)
        if several:
            sub.add_argument(
                "name", nargs="+", metavar="NAME", help="a shipped vocabulary or a file"
            )
        return sub

    listed = add("list", list_shipped, "the vocabularies that are shipped")
    made = add("new", write_new, "make a commented file with one attribute, to be edited")
    made.add_argument("file", metavar="FILE", help="the file to make, such as garden.toml")
    common.add_option(made, "--event NAME", "what is observed (the file's name)")
    common.add_option(made, "--attribute NAME", "what is measured (level)", default="level")
    common.add_option(made, "--unit UNIT", "its unit, such as °C or m/s (none)", default="")
    words = "the smallest and the largest value (0 and 100)"
    common.add_option(made, "--from N", words, type=float, default=0.0, dest="low")
    common.add_option(made, "--to N", words, type=float, default=100.0, dest="high")
    shown = add("show", show, "a vocabulary, or one event or attribute of it")
    shown.add_argument("word", nargs="?", help="an event or attribute, by any of its names")
    searched = add("search", search, "names, terms and synonyms that contain a text")
    searched.add_argument("text", help="a part of a name")
    checked = add("check", check, "check vocabulary files, and how well terms fit", True)
    common.add_option(
        checked,
        "--tolerance TOLERANCE",
        "report terms that are further off (0.05)",
        type=float,
        default=0.05,
    )
    merged = add("merge", merge, "several vocabularies into one", True)
    imported = add("import-fll", import_terms, "add the terms of a fuzzylite file")
    imported.add_argument("file", help="a fuzzylite file, .fll")
    for sub in (shown, searched, imported):
        known = "all shipped" if sub is searched else common.DEFAULT_VOCABULARY
        common.add_option(sub, "--vocabulary NAME ...", f"a shipped vocabulary or a file ({known})")
    for sub in (listed, shown, searched, checked):
        common.add_option(sub, "--json", "one JSON list")
    for sub in (merged, imported):
        common.add_option(sub, "-o, --output FILE", "write to this file")
    return parser.parse_args(argv)


# A new vocabulary --------------------------------------------------------------------------

_NEW = """\
# A vocabulary: what can be measured, and what people call it. Change anything, then
#   denwatch vocabulary check {file}
# Several vocabularies may be used together: events need different numbers and names.

name = "{name}"
description = "What this is about, in one line"

[event.{event}]
{number:<33}# 0 to 63; stands on the wire, so keep it once devices use it
description = "One reading of …"

[event.{event}.attribute.{attribute}]
bit = 0                          # 0 to 15, another one for each attribute of the event
{domain:<33}# the smallest and the largest value
{unit}resolution = 8                   # bits on the wire: 8 (256 steps) or 16
{about:<33}# how wide "about 30" is
description = "What it means"

# Words for values. falling = [full until, nothing from]; rising = [nothing until, full from];
# triangle = [from, peak, to]; trapezoid = [from, full from, full until, to].
[event.{event}.attribute.{attribute}.terms]
low = {{ falling = [{a:g}, {b:g}] }}
medium = {{ trapezoid = [{a:g}, {b:g}, {c:g}, {d:g}] }}
high = {{ rising = [{c:g}, {d:g}] }}

# A second attribute, with names instead of numbers:
# [event.{event}.attribute.valve]
# bit = 1
# symbols = ["closed", "half_open", "open"]
# ordered = true                 # so that "at least half_open" means something
# [event.{event}.attribute.valve.terms]   # with degrees: "very leaking", "about half_open"
# leaking = {{ rising = ["closed", "open"] }}

# What your organisation calls them besides:
# [thesaurus.our_team]
# "wetness" = "{event}.{attribute}"
"""


def write_new(arguments: argparse.Namespace) -> Iterator[Said]:
    """Write a commented vocabulary of one attribute, and check it."""
    from denwatch.client.vocabulary import SHIPPED
    from denwatch.client.vocabulary.loading import parse_vocabulary

    path = Path(arguments.file)
    if path.exists():
        raise CommandError(f"{path} exists already; nothing was changed")
    low, high = arguments.low, arguments.high
    if not low < high:
        raise CommandError(f"--from {low:g} --to {high:g}: the first must be smaller", WRONG_USAGE)
    shipped = [common.load_vocabulary([name]) for name in SHIPPED]
    used = {event.number for vocabulary in shipped for event in vocabulary.events.values()}
    name = re.sub(r"\W+", "_", path.stem)
    a, b, c, d = (low + (high - low) * part for part in (0.2, 0.4, 0.6, 0.8))
    unit = f"unit = {_write_text(arguments.unit)}\n" if arguments.unit else ""
    number = next(n for n in range(20, 64) if n not in used)
    fields = {"file": path, "name": name, "event": arguments.event or name, "unit": unit}
    fields |= {"attribute": arguments.attribute, "domain": f"domain = [{low:g}, {high:g}]"}
    fields |= {"number": f"number = {number}", "about": f"about = {(high - low) / 20:g}"}
    text = _NEW.format(**fields, a=a, b=b, c=c, d=d)
    parse_vocabulary(text)  # a name or unit that it cannot have is refused before it is written
    common.write_file(path, text)
    yield f"made {path}: {arguments.event or name}.{arguments.attribute}, terms low, medium, high"
    yield f"  denwatch vocabulary check {path}"
    yield f"  denwatch plot --vocabulary {path} {arguments.attribute} -o {path.stem}.svg"


# TOML: the standard library reads it but does not write it -----------------------------------
#
# Only what vocabularies hold: tables, lists, texts, numbers and flags.

_BARE = re.compile(r"[A-Za-z0-9_-]+")
# Tables of these stand on one line each: terms, whose definitions are short.
_INLINE_BELOW = "terms"


def write_toml(document: Mapping[str, Any]) -> str:
    """Return the TOML text; `tomllib.loads` reads the same document back."""
    return "\n".join(_write_table(document, ())).strip("\n") + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if not _is_table(value, path)}
    tables = {key: value for key, value in table.items() if _is_table(value, path)}
    if path and (plain or not tables):
        yield ""
        yield f"[{'.'.join(map(_write_key, path))}]"
    for key, value in plain.items():
        yield f"{_write_key(key)} = {_write_value(value)}"
    for key, value in tables.items():
        yield from _write_table(value, (*path, key))


def _is_table(value: object, path: tuple[str, ...]) -> bool:
    return isinstance(value, Mapping) and path[-1:] != (_INLINE_BELOW,)


def _write_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _write_text(key)


def _write_text(text: str) -> str:
    # JSON's escapes are TOML's too, but for the control character that TOML forbids unescaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_write_value, value))}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_write_key(k)} = {_write_value(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    raise TypeError(f"{type(value).__name__} has no place in a vocabulary")
