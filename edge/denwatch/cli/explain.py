"""`denwatch explain`: the bytes of a vector back to words, values and units."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from denwatch.cli.common import add_vocabulary, build_parser, load_vocabulary, read_input
from denwatch.cli.failures import WRONG_INPUT, CommandError

if TYPE_CHECKING:
    from denwatch.client.vocabulary import Vocabulary
    from denwatch.protocol.errors import ProtocolError

_DESCRIPTION = """
A subscription vector is told as the words that compile to it; a notification vector as its values,
with units. Blanks and colons between the digits do not matter."""
_EXAMPLES = """
denwatch explain 4128000080000003041091ffab3c64bb
denwatch explain --verbose 4128000080000003041091ffab3c64bb
denwatch compile 'heart_rate above 120' | head -1 | denwatch explain
denwatch explain 8100000700200003978c"""
_KINDS = {0x40: "subscription", 0x80: "notification"}


def run(argv: list[str]) -> int:
    """Explain one vector."""
    arguments = _parse(argv)
    from denwatch.client.errors import LanguageError
    from denwatch.protocol.errors import ProtocolError

    text, _ = read_input(arguments.hex, None)
    data = read_hex(text)
    vocabulary = load_vocabulary(arguments.vocabulary)
    try:
        answer = explain(data, vocabulary)
    except ProtocolError as error:
        print(point_at_byte(error, data), file=sys.stderr)
        return WRONG_INPUT
    except LanguageError as error:
        raise CommandError(str(error)) from None
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
        raise CommandError(f"the first byte, {data[0]:02x}, begins neither kind of vector")
    return data


def explain(data: bytes, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return what a vector of either kind says: fields, lines to read, and a table of its bytes."""
    if _KINDS[data[0] & 0xC0] == "subscription":
        return explain_subscription(data, vocabulary)
    from denwatch.cli.readings import explain_notification

    return explain_notification(data, vocabulary)


def explain_subscription(data: bytes, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the words of a subscription vector."""
    from denwatch.cli.layout import describe_bytes, format_rows
    from denwatch.client.compiler import decompile
    from denwatch.client.language.words_printer import print_words

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


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Tell in words what a vector says."
    parser = build_parser("explain", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument(
        "hex", nargs="?", help='the vector in hexadecimal; "-" or nothing: the pipe'
    )
    add_vocabulary(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("-v", "--verbose", action="store_true", help="add a table of every byte")
    output.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args(argv)
