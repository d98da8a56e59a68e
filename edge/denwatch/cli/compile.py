"""`denwatch compile`: a subscription in words, XML or JSON to its vector."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from denwatch.cli.common import add_vocabulary, build_parser, load_vocabulary, point_at, read_input

_DESCRIPTION = """
Words, XML (begins with "<") or JSON (begins with "{") are compiled to a subscription vector, in
hexadecimal, with its length. What the vector can only approximate is told on standard error."""
_EXAMPLES = """
denwatch compile 'patient_temperature is very high and heart_rate is not normal'
denwatch compile --vocabulary weather --verbose 'wind_direction is near 350 ° within 30 °'
denwatch compile --file subscription.xml --json
denwatch compile --to xml 'patient_temperature above 104 °F' | denwatch compile"""


def run(argv: list[str]) -> int:
    """Compile one subscription and print it."""
    arguments = _parse(argv)
    from denwatch.client.compiler import compile_subscription
    from denwatch.client.errors import LanguageError
    from denwatch.client.language import parse, print_as

    text, name = read_input(arguments.subscription, arguments.file)
    vocabulary = load_vocabulary(arguments.vocabulary)
    try:
        tree = parse(text)
        compiled = compile_subscription(
            tree,
            vocabulary,
            organisation=arguments.organisation,
            handle=arguments.handle,
            compact=not arguments.exact,
        )
    except LanguageError as error:
        if arguments.json:
            print(json.dumps(error.to_reply(), ensure_ascii=False))
        else:
            print(point_at(error, text, name), file=sys.stderr)
        return 1
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
            "vocabulary": compiled.vocabulary,
        }
        print(json.dumps(answer, ensure_ascii=False))
        return 0
    print(compiled.data.hex())
    print(f"{len(compiled.data)} bytes, event {compiled.event.name}")
    if arguments.verbose:
        from denwatch.cli.layout import describe_bytes, format_rows

        print(format_rows(describe_bytes(compiled.data, vocabulary)))
        for key, value in compiled.options.to_dict().items():
            print(f"kept by the node: {key} {json.dumps(value, ensure_ascii=False)}")
    for approximation in compiled.report:
        print(f"approximated: {approximation}", file=sys.stderr)
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Compile a subscription to the bytes that a device evaluates."
    parser = build_parser("compile", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("subscription", nargs="?", help='the text; "-" or nothing reads the pipe')
    parser.add_argument("-f", "--file", help="read the subscription from a file")
    add_vocabulary(parser)
    parser.add_argument(
        "--handle", type=_read_handle, default=0, help="the handle on the device link"
    )
    parser.add_argument(
        "--exact", action="store_true", help="keep hedges and second slopes, even beyond 17 bytes"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("-v", "--verbose", action="store_true", help="add a table of every byte")
    output.add_argument("--json", action="store_true", help="one JSON object, errors too")
    output.add_argument(
        "--to", choices=("words", "xml", "json"), help="print it in another surface"
    )
    parser.add_argument(
        "--self-contained",
        action="store_true",
        help="with --to xml: write out domains and fuzzy sets",
    )
    return parser.parse_args(argv)


def _read_handle(text: str) -> int:
    try:
        handle = int(text, 0)
    except ValueError:
        handle = -1
    if not 0 <= handle <= 0xFFFF:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of 16 bits')
    return handle
