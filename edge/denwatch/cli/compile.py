"""`denwatch compile` and `denwatch explain`: from a subscription to its vector, and back."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from denwatch.cli import common
from denwatch.cli.errors import WRONG_INPUT, CommandError

if TYPE_CHECKING:
    from denwatch.client.vocabulary import Vocabulary
    from denwatch.protocol.errors import ProtocolError

_COMPILE_DESCRIPTION = """
Words, XML (begins with "<") or JSON (begins with "{") are compiled to a subscription vector, in
hexadecimal, with its length. Approximations are reported on standard error. A story is compiled to
the bytes that nodes exchange, and each of its parts to a vector."""
_COMPILE_EXAMPLES = """
denwatch compile 'patient_temperature is very high and heart_rate is not normal'
denwatch compile --vocabulary weather --verbose 'wind_direction is near 350 ° within 30 °'
denwatch compile --file subscription.xml --json
denwatch compile --to xml 'patient_temperature above 104 °F' | denwatch compile
denwatch compile 'smoke is dense within about 5 min after carbon_monoxide is high'"""


def run_compile(argv: list[str]) -> int:
    """Compile one subscription and print it."""
    arguments = _parse_compile(argv)
    from denwatch.client.errors import LanguageError
    from denwatch.client.language import print_as
    from denwatch.client.language.story_surfaces import tells_story
    from denwatch.client.language.understanding import understand

    text, name = common.read_input(arguments.subscription, arguments.file)
    vocabulary = common.load_vocabulary(arguments.vocabulary)
    try:
        if tells_story(text):
            return _compile_story(text, vocabulary.prefer(arguments.organisation), arguments)
        found = understand(
            text,
            vocabulary,
            organisation=arguments.organisation,
            handle=arguments.handle,
            compact=not arguments.exact,
            language=arguments.language,
        )
    except LanguageError as error:
        common.print_mistake(error, text, name, as_json=arguments.json)
        return WRONG_INPUT
    tree, compiled = found.tree, found.compiled
    if arguments.to:
        with_sets = vocabulary if arguments.self_contained else None
        print(print_as(arguments.to, tree, vocabulary=with_sets).rstrip("\n"))
        return 0
    if arguments.json:
        answer: dict[str, Any] = {
            "ok": True,
            "hex": compiled.data.hex(),
            "length": len(compiled.data),
            "event": compiled.event.name,
            "words": print_as("words", tree),
            "options": compiled.options.to_dict(),
            "approximations": [
                {"subject": a.subject, "message": a.message, "error": a.error}
                for a in compiled.report
            ],
            "taken": list(found.notes),
            "vocabulary": compiled.vocabulary,
        }
        print(json.dumps(answer, ensure_ascii=False))
        return 0
    print(compiled.data.hex())
    print(f"{len(compiled.data)} bytes, event {compiled.event.name}")
    if arguments.verbose:
        from denwatch.client.vector_dump import describe_bytes, format_rows

        print(format_rows(describe_bytes(compiled.data, vocabulary)))
        for key, value in compiled.options.to_dict().items():
            print(f"kept by the node: {key} {json.dumps(value, ensure_ascii=False)}")
    print(*(f"{note}\n" for note in found.notes), sep="", end="", file=sys.stderr)
    for approximation in compiled.report:
        print(f"approximated: {approximation}", file=sys.stderr)
    return 0


def _compile_story(text: str, vocabulary: Vocabulary, arguments: argparse.Namespace) -> int:
    """Compile one story and print it."""
    from denwatch.client.language.story_surfaces import print_story_as
    from denwatch.client.language.understanding import understand_story

    found = understand_story(
        text, vocabulary, compact=not arguments.exact, language=arguments.language
    )
    tree, compiled = found.tree, found.compiled
    data, parts = compiled.story.encode(), compiled.story.parts
    if arguments.to:
        print(print_story_as(arguments.to, tree).rstrip("\n"))
        return 0
    if arguments.json:
        answer = {
            "ok": True,
            "hex": data.hex(),
            "length": len(data),
            "parts": [part.hex() for part in parts],
            "events": [event.name for event, _ in compiled.asks],
            "words": found.words,
            "approximations": list(compiled.notes),
            "taken": list(found.notes),
            "vocabulary": vocabulary.hash,
        }
        print(json.dumps(answer, ensure_ascii=False))
        return 0
    print(data.hex())
    print(f"{len(data)} bytes, a story: {tree.kind}")
    for part, (event, _) in zip(parts, compiled.asks, strict=True):
        print(f"part: {part.hex()}, event {event.name}")
    print(*(f"{note}\n" for note in found.notes), sep="", end="", file=sys.stderr)
    for note in compiled.notes:
        print(f"approximated: {note}", file=sys.stderr)
    return 0


def _parse_compile(argv: list[str]) -> argparse.Namespace:
    summary = "Compile a subscription to the bytes that a device evaluates."
    parser = common.build_parser("compile", summary, _COMPILE_DESCRIPTION, _COMPILE_EXAMPLES)
    parser.add_argument("subscription", nargs="?", help='the text; "-" or nothing reads stdin')
    common.add_option(parser, "-f, --file FILE", "read the subscription from a file")
    common.add_vocabulary(parser)
    common.add_option(
        parser, "--handle HANDLE", "the handle on the device link", type=_read_handle, default=0
    )
    common.add_option(
        parser,
        "--language CODE",
        "the language of everyday words that goes first (en)",
        type=_read_language,
        default=common.find_language(),
    )
    common.add_option(parser, "--exact", "keep hedges and second slopes, even beyond 17 bytes")
    output = parser.add_mutually_exclusive_group()
    common.add_option(output, "-v, --verbose", "add a table of every byte")
    common.add_option(output, "--json", "one JSON object, errors too")
    common.add_option(
        output,
        "--to",
        "print the subscription in another notation",
        choices=("words", "xml", "json"),
    )
    common.add_option(parser, "--self-contained", "with --to xml: write out domains and fuzzy sets")
    return parser.parse_args(argv)


def _read_language(text: str) -> str:
    from denwatch.client.language.localisation import list_locales

    if text not in list_locales():
        raise argparse.ArgumentTypeError(f'"{text}" is not one of {", ".join(list_locales())}')
    return text


def _read_handle(text: str) -> int:
    try:
        handle = int(text, 0)
    except ValueError:
        handle = -1
    if not 0 <= handle <= 0xFFFF:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of 16 bits')
    return handle


# `denwatch explain` --------------------------------------------------------------------------

_EXPLAIN_DESCRIPTION = """
Prints a subscription vector as the words that compile to it, and a notification vector as its
values with units. Blanks and colons between the digits are ignored."""
_EXPLAIN_EXAMPLES = """
denwatch explain 4128000080000003041091ffab3c64bb
denwatch explain --verbose 4128000080000003041091ffab3c64bb
denwatch compile 'heart_rate above 120' | head -1 | denwatch explain
denwatch explain 8100000700200003978c"""
_KINDS = {0x40: "subscription", 0x80: "notification"}


def run_explain(argv: list[str]) -> int:
    """Explain one vector."""
    arguments = _parse_explain(argv)
    from denwatch.client.errors import LanguageError
    from denwatch.protocol.errors import ProtocolError

    text, _ = common.read_input(arguments.hex, None)
    data = read_hex(text)
    vocabulary = common.load_vocabulary(arguments.vocabulary)
    try:
        with common.refuse(LanguageError):
            answer = explain(data, vocabulary)
    except ProtocolError as error:
        print(point_at_byte(error, data), file=sys.stderr)
        return WRONG_INPUT
    lines, rows = answer.pop("lines"), answer.pop("rows")
    if arguments.json:
        print(json.dumps(answer, ensure_ascii=False))
        return 0
    print(*lines, sep="\n")
    if arguments.verbose:
        print(rows)
    return 0


def read_hex(text: str) -> bytes:
    """Return the bytes of hexadecimal digits."""
    digits = "".join(text.replace(":", " ").split()).removeprefix("0x")
    try:
        data = bytes.fromhex(digits)
    except ValueError:
        raise CommandError(f'"{text.strip()[:60]}" is not hexadecimal') from None
    if not data:
        raise CommandError("no bytes")
    if data[0] & 0xC0 not in _KINDS:
        raise CommandError(f"the first byte, {data[0]:02x}, is not the start of a vector")
    return data


def explain(data: bytes, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of a vector of either kind: fields, lines, and a table of its bytes."""
    if _KINDS[data[0] & 0xC0] == "subscription":
        return explain_subscription(data, vocabulary)
    from denwatch.client.vector_dump import explain_notification

    return explain_notification(data, vocabulary)


def explain_subscription(data: bytes, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the words of a subscription vector."""
    from denwatch.client.compiler import decompile
    from denwatch.client.language.words_printer import print_words
    from denwatch.client.vector_dump import describe_bytes, format_rows

    rows = describe_bytes(data, vocabulary)
    words = print_words(decompile(data, vocabulary))
    event = vocabulary.find_number(data[0] & 63)
    return {
        "kind": "subscription",
        "length": len(data),
        "event": event.name if event else None,
        "words": words,
        "lines": [words],
        "rows": format_rows(rows),
    }


def point_at_byte(error: ProtocolError, data: bytes) -> str:
    """Return the error with the digits and a caret under the byte."""
    if not 0 <= error.at <= len(data):
        return str(error)
    return f"{error}\n  {data.hex()}\n  {'  ' * error.at}^^"


def _parse_explain(argv: list[str]) -> argparse.Namespace:
    summary = "Explain a vector in words and values."
    parser = common.build_parser("explain", summary, _EXPLAIN_DESCRIPTION, _EXPLAIN_EXAMPLES)
    parser.add_argument(
        "hex", nargs="?", help='the vector in hexadecimal; "-" or nothing reads stdin'
    )
    common.add_vocabulary(parser)
    output = parser.add_mutually_exclusive_group()
    common.add_option(output, "-v, --verbose", "add a table of every byte")
    common.add_option(output, "--json", "one JSON object")
    return parser.parse_args(argv)
