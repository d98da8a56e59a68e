"""What the sub-commands share: arguments, files, vocabularies, underlined errors."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from denwatch.cli.errors import EXIT_STATUS, MISSING, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from denwatch.client.errors import LanguageError
    from denwatch.client.vocabulary import Vocabulary

DEFAULT_VOCABULARY = "rescue"
MAX_INPUT = 1 << 20
_LINE = 100


def build_parser(
    name: str, summary: str, description: str, examples: str
) -> argparse.ArgumentParser:
    """Return a parser whose help reads like a manual page."""
    indented = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    return argparse.ArgumentParser(
        prog=f"denwatch {name}",
        description=f"{summary}\n\n{description.strip()}",
        epilog=f"examples:\n{indented}\n\n{EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_vocabulary(parser: argparse.ArgumentParser) -> None:
    """Add the options for the vocabulary and the organisation."""
    parser.add_argument(
        "--vocabulary",
        action="append",
        metavar="NAME|FILE",
        help=f"a shipped vocabulary or a TOML file; several are merged ({DEFAULT_VOCABULARY})",
    )
    parser.add_argument(
        "--organisation",
        metavar="NAME",
        help="whose synonyms take precedence where a word is ambiguous",
    )


def load_vocabulary(names: list[str] | None) -> Vocabulary:
    """Return the vocabulary of that name or file; several are merged."""
    from denwatch.client.errors import LanguageError

    found = [_load_one(name) for name in names or [DEFAULT_VOCABULARY]]
    merged = found[0]
    for vocabulary in found[1:]:
        from denwatch.client.vocabulary.loading import merge_vocabularies

        try:
            merged = merge_vocabularies(merged, vocabulary)
        except LanguageError as error:
            raise CommandError(f"{merged.name} and {vocabulary.name}: {error}") from None
    return merged


def _load_one(name: str) -> Vocabulary:
    from denwatch.client.errors import LanguageError
    from denwatch.client.vocabulary.loading import SHIPPED, load_shipped, parse_vocabulary

    if name in SHIPPED:
        return load_shipped(name)
    path = Path(name)
    if not path.suffix and not path.exists():
        known = ", ".join(SHIPPED)
        raise CommandError(f'no vocabulary "{name}": shipped are {known}, or name a file', MISSING)
    try:
        return parse_vocabulary(read_file(path))
    except LanguageError as error:
        raise CommandError(f"{path}: {error}") from None


def read_input(text: str | None, file: str | None) -> tuple[str, str]:
    """Return a text and its name: an argument, a file, or standard input."""
    if text is not None and file is not None:
        raise CommandError("give a text or a file, not both", WRONG_USAGE)
    if file is not None:
        return read_file(Path(file)), file
    if text is not None and text != "-":
        return text, ""
    if text is None and sys.stdin.isatty():
        raise CommandError("nothing to read: give a text, --file FILE, or a pipe", WRONG_USAGE)
    return _decode(sys.stdin.buffer.read(MAX_INPUT + 1), "standard input"), "standard input"


def read_file(path: Path) -> str:
    """Return the text of a file."""
    try:
        with path.open("rb") as stream:
            return _decode(stream.read(MAX_INPUT + 1), str(path))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", MISSING) from None


def _decode(data: bytes, name: str) -> str:
    if len(data) > MAX_INPUT:
        raise CommandError(f"{name}: more than {MAX_INPUT} bytes")
    try:
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: byte {error.start} is not UTF-8") from None


def write_file(path: Path, text: str) -> None:
    """Write a text file."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", MISSING) from None


def point_at(error: LanguageError, text: str, name: str) -> str:
    """Return the error with its line of the text, underlined where it occurs."""
    if error.at is None:
        return f"{name}: {error.describe()}" if name else error.describe()
    line, column = error.locate(text)
    shown = error.point(text).split("\n")
    source, caret = shown[0].expandtabs(1), shown[1]
    first = max(0, column - 1 - _LINE // 2) if len(source) > _LINE else 0
    source, caret = source[first : first + _LINE], caret[first : first + _LINE]
    where = f"{name}, line {line}, column {column}" if name else f"column {column}"
    if not name and "\n" in text:
        where = f"line {line}, column {column}"
    return f"{where}: {error.describe()}\n  {source}\n  {caret}"
