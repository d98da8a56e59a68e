"""`denwatch vocabulary`: what words there are, and making vocabularies."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from denwatch.cli.common import (
    DEFAULT_VOCABULARY,
    build_parser,
    load_vocabulary,
    point_at,
    read_file,
    write_file,
)
from denwatch.cli.failures import CommandError

if TYPE_CHECKING:
    from denwatch.client.vocabulary import Vocabulary

_DESCRIPTION = """
A vocabulary holds events, attributes with their domains and units, fuzzy terms, and each
organisation's synonyms. A NAME is a shipped vocabulary or a TOML file."""
_EXAMPLES = """
denwatch vocabulary list
denwatch vocabulary show heart_rate
denwatch vocabulary show --vocabulary weather
denwatch vocabulary search temp
denwatch vocabulary check ours.toml
denwatch vocabulary merge rescue weather --output both.toml
denwatch vocabulary import-fll terms.fll --vocabulary rescue --output ours.toml"""


def run(argv: list[str]) -> int:
    """Run one of the actions."""
    from denwatch.client.errors import LanguageError

    arguments = _parse(argv)
    try:
        lines = list(arguments.action(arguments))
    except LanguageError as error:
        raise CommandError(str(error)) from None
    print(*lines, sep="\n")
    return 0


def list_shipped(_: argparse.Namespace) -> Iterator[str]:
    """Yield the vocabularies that come with denwatch."""
    from denwatch.client.vocabulary import SHIPPED
    from denwatch.client.vocabulary.vocabulary import HASH_DIGITS

    for name in SHIPPED:
        vocabulary = load_vocabulary([name])
        digits = vocabulary.hash[:HASH_DIGITS]
        yield f"{name}  {digits}  {count(vocabulary)}: {vocabulary.description}"


def count(vocabulary: Vocabulary) -> str:
    """Return how much a vocabulary knows."""
    attributes = list(vocabulary.iterate_attributes())
    terms = sum(len(attribute.terms) for attribute in attributes)
    return (
        f"{len(vocabulary.events)} events, {len(attributes)} attributes, {terms} terms, "
        f"{len(vocabulary.thesaurus.entries)} synonyms"
    )


def show(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield a vocabulary, or one word of it."""
    from denwatch.client.vocabulary.vocabulary import browse, describe_vocabulary

    vocabulary = load_vocabulary(arguments.vocabulary)
    word = arguments.word
    yield describe_vocabulary(vocabulary) if word is None else browse(vocabulary, word)


def search(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield every name, term, symbol and synonym that contains a text."""
    from denwatch.client.vocabulary import SHIPPED, fold_name

    wanted = fold_name(arguments.text)
    found = False
    for name in arguments.vocabulary or SHIPPED:
        vocabulary = load_vocabulary([name])
        for word, path in list_words(vocabulary):
            if wanted in fold_name(word):
                found = True
                yield (
                    f"{vocabulary.name}  {path}"
                    if path.endswith(word)
                    else (f'{vocabulary.name}  {path}  "{word}"')
                )
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


def check(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield one line for each file that is a vocabulary; the first that is not ends it."""
    for name in arguments.name:
        vocabulary = load_vocabulary([name])
        yield f"{name}: {vocabulary.name} {vocabulary.version}, {count(vocabulary)}"
        for attribute in vocabulary.iterate_attributes():
            for term in attribute.terms.values():
                error = attribute.fit_term(term).error
                if error > arguments.tolerance:
                    path = f"{attribute.path}.{term.name}"
                    yield f"  {path} is {error:.1%} off its definition on the wire"


def merge(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield several vocabularies as one, or write them to a file."""
    yield from hand_over(load_vocabulary(arguments.name), arguments.output)


def import_terms(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield a vocabulary with the terms of an FLL file, or write it to a file."""
    from denwatch.client.errors import LanguageError
    from denwatch.client.vocabulary.loading import import_fll

    text = read_file(Path(arguments.file))
    vocabulary = load_vocabulary(arguments.vocabulary)
    try:
        extended = import_fll(vocabulary, text)
    except LanguageError as error:
        raise CommandError(point_at(error, text, arguments.file)) from None
    yield from hand_over(extended, arguments.output)


def hand_over(vocabulary: Vocabulary, output: str | None) -> Iterator[str]:
    """Yield a vocabulary as TOML, or what was written where."""
    from denwatch.cli.toml import write_toml

    text = write_toml(vocabulary.document)
    if output is None:
        yield text.rstrip("\n")
    else:
        write_file(Path(output), text)
        yield f"{output}: {vocabulary.name} {vocabulary.version}, {count(vocabulary)}"


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "List, show, search, check, merge and import vocabularies."
    parser = build_parser("vocabulary", summary, _DESCRIPTION, _EXAMPLES)
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

    add("list", list_shipped, "the vocabularies that are shipped")
    shown = add("show", show, "a vocabulary, or one event or attribute of it")
    shown.add_argument("word", nargs="?", help="an event or attribute, by any of its names")
    searched = add("search", search, "names, terms and synonyms that contain a text")
    searched.add_argument("text", help="a part of a name")
    checked = add("check", check, "whether files are vocabularies, and how well terms fit", True)
    checked.add_argument(
        "--tolerance", type=float, default=0.05, help="tell of terms that are further off (0.05)"
    )
    merged = add("merge", merge, "several vocabularies into one", True)
    imported = add("import-fll", import_terms, "add the terms of a fuzzylite file")
    imported.add_argument("file", help="what fuzzylite wrote, .fll")
    for sub in (shown, searched, imported):
        known = "all shipped" if sub is searched else DEFAULT_VOCABULARY
        sub.add_argument(
            "--vocabulary",
            action="append",
            metavar="NAME",
            help=f"a shipped vocabulary or a file ({known})",
        )
    for sub in (merged, imported):
        sub.add_argument("-o", "--output", metavar="FILE", help="write there, not to the terminal")
    return parser.parse_args(argv)
