"""What the sub-commands share: arguments, files, vocabularies, errors, tables."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from denwatch.cli.errors import EXIT_STATUS, MISSING, WRONG_INPUT, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from denwatch.client.errors import LanguageError
    from denwatch.client.vocabulary import Vocabulary

DEFAULT_VOCABULARY = "rescue"
MAX_INPUT = 1 << 20
_LINE = 100


class CommandParser(argparse.ArgumentParser):
    """A command's parser.

    A command makes its parser only when it is called. Completion needs the parser, and not the
    command: within `intercept_parser` the first parser that would read arguments is handed out.
    """

    _interceptors: ClassVar[list[Callable[[CommandParser], NoReturn]]] = []

    def parse_args(  # type: ignore[override]  # argparse has overloads for other namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Return the arguments, or hand out this parser."""
        if self._interceptors:
            self._interceptors[-1](self)
        return super().parse_args(args, namespace)


class _ParserFoundError(Exception):
    """Ends a command that was called for its parser."""


def intercept_parser(command: Callable[[list[str]], int]) -> CommandParser:
    """Return the parser of a command, without running it."""
    found: list[CommandParser] = []

    def keep(parser: CommandParser) -> NoReturn:
        found.append(parser)
        raise _ParserFoundError

    CommandParser._interceptors.append(keep)
    try:
        command([])
    except _ParserFoundError:
        return found[0]
    finally:
        CommandParser._interceptors.pop()
    raise AssertionError(f"{command} parses no arguments")


def build_parser(name: str, summary: str, description: str, examples: str) -> CommandParser:
    """Return a parser whose help reads like a manual page."""
    indented = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    return CommandParser(
        prog=f"denwatch {name}",
        description=f"{summary}\n\n{description.strip()}",
        epilog=f"examples:\n{indented}\n\n{EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_option(parser: argparse._ActionsContainer, usage: str, words: str, **settings: Any) -> None:
    """Add an option as its usage shows it: "--json", "-o, --output FILE" or "--node URL ...".

    One without a value is a flag; one with "..." may be repeated.
    """
    names = [word.rstrip(",") for word in usage.split() if word.startswith("-")]
    value = [word for word in usage.split() if not word.startswith("-")]
    if value:
        settings["metavar"] = value[0]
    elif "choices" not in settings:
        settings["action"] = "store_true"
    if value[1:] == ["..."]:
        settings |= {"action": "append", "default": []}
    parser.add_argument(*names, help=words, **settings)


def add_vocabulary(parser: argparse.ArgumentParser) -> None:
    """Add the options for the vocabulary and the organisation."""
    add_option(
        parser,
        "--vocabulary NAME|FILE ...",
        f"a shipped vocabulary or a TOML file; several are merged ({DEFAULT_VOCABULARY})",
    )
    add_option(
        parser, "--organisation NAME", "whose synonyms take precedence where a word is ambiguous"
    )


def load_vocabulary(names: list[str] | None) -> Vocabulary:
    """Return the vocabulary of that name or file; several are merged."""
    from denwatch.client.errors import LanguageError

    found = [_load_one(name) for name in names or [DEFAULT_VOCABULARY]]
    merged = found[0]
    for vocabulary in found[1:]:
        from denwatch.client.vocabulary.loading import merge_vocabularies

        with refuse(LanguageError, before=f"{merged.name} and {vocabulary.name}: "):
            merged = merge_vocabularies(merged, vocabulary)
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
    with refuse(LanguageError, before=f"{path}: "):
        return parse_vocabulary(read_file(path))


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
    with reach(path), path.open("rb") as stream:
        return _decode(stream.read(MAX_INPUT + 1), str(path))


def _decode(data: bytes, name: str) -> str:
    if len(data) > MAX_INPUT:
        raise CommandError(f"{name}: more than {MAX_INPUT} bytes")
    try:
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: byte {error.start} is not UTF-8") from None


def write_file(path: Path, text: str) -> None:
    """Write a text file."""
    with reach(path):
        path.write_text(text, encoding="utf-8")


def make_folder(path: Path, mode: int = 0o777) -> Path:
    """Make a folder unless it is there, and return it."""
    with reach(path):
        path.mkdir(parents=True, exist_ok=True, mode=mode)
    return path


def find_language() -> str:
    """Return the code of the user's language, if we have it; else English."""
    from denwatch.client.language.localisation import DEFAULT, list_locales

    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    code = next(filter(None, map(os.environ.get, names)), "")[:2].casefold()
    return code if code in list_locales() else DEFAULT


def find_data_home() -> Path:
    """Return the folder in which programs of this user keep their data."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "denwatch"


def point_at(error: LanguageError, text: str, name: str) -> str:
    """Return the error with its line of the text, underlined where it occurs."""
    tries = "".join(f"\n  {error.phrases['try'].format(hint)}" for hint in error.hints)
    if error.at is None:
        return f"{name}: {error.describe()}{tries}" if name else f"{error.describe()}{tries}"
    line, column = error.locate(text)
    shown = error.point(text).split("\n")
    source, caret = shown[0].expandtabs(1), shown[1]
    first = max(0, column - 1 - _LINE // 2) if len(source) > _LINE else 0
    source, caret = source[first : first + _LINE], caret[first : first + _LINE]
    where = f"{name}, line {line}, column {column}" if name else f"column {column}"
    if not name and "\n" in text:
        where = f"line {line}, column {column}"
    return f"{where}: {error.describe()}\n  {source}\n  {caret}{tries}"


def print_mistake(error: LanguageError, text: str, name: str = "", *, as_json: bool) -> None:
    """Print an error in a text: as one JSON object, or underlined on standard error."""
    if as_json:
        print(json.dumps(error.to_reply(), ensure_ascii=False))
    else:
        print(point_at(error, text, name), file=sys.stderr)


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)) for row in rows)
    return [line.rstrip() for line in lines]


# Failures -----------------------------------------------------------------------------------


@contextmanager
def need_extra(extra: str, otherwise: str = "") -> Iterator[None]:
    """Report a package that is not installed: what to install, or to do otherwise."""
    try:
        yield
    except ImportError as error:
        words = f"{error.name} is missing: pip install 'denwatch[{extra}]'{otherwise}"
        raise CommandError(words, MISSING) from None


@contextmanager
def refuse(*kinds: type[Exception], before: str = "", status: int = WRONG_INPUT) -> Iterator[None]:
    """Report errors of these kinds in one line; `before` stands before their own words."""
    try:
        yield
    except kinds as error:
        raise CommandError(f"{before}{error}", status) from None


@contextmanager
def underline(text: str, name: str = "") -> Iterator[None]:
    """Report an error in a text, underlined."""
    from denwatch.client.errors import LanguageError

    try:
        yield
    except LanguageError as error:
        raise CommandError(point_at(error, text, name)) from None


@contextmanager
def reach(path: Path) -> Iterator[None]:
    """Report what the file system refuses, with the path."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", MISSING) from None


def stop_at_sigterm() -> None:
    """End at SIGTERM like at Ctrl-C: everything is stored and closed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
