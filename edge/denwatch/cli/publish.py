"""`denwatch publish`: sends readings, as a person in words or as a registered device."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denwatch.cli import common
from denwatch.cli.errors import MISSING, WRONG_INPUT, WRONG_USAGE, CommandError
from denwatch.cli.profile import DEFAULT_NODE, add_profile, fill_login
from denwatch.cli.subscribe import read_password, read_seconds

if TYPE_CHECKING:
    from denwatch.client.vocabulary import Vocabulary
    from denwatch.protocol.vectors import NotificationVector

_DESCRIPTION = """
A reading is an event and values, by the vocabulary's names or synonyms. A number may have a unit
and an accuracy; `broken` is a sensor without a reading. In words a value may also be a term with
hedges, "about", a range, or one side: what is not sure is published as uncertain. Readings are sent
whether or not a subscription matches them, and the command ends when the node has stored them.

With --as you report as a person, under your own name and password. With --key you are a device,
and the frames are sealed with its key: FILE is what `denwatch keys show DEVICE --secrets --output
FILE` wrote. Use a test device: its sequence numbers come from the clock, so the node would refuse a
watchdog of the same name later."""
_EXAMPLES = """
denwatch publish 'patient: temperature is high, pulse about 120, pain 6 to 8'
denwatch publish --key tester.json 'patient heart_rate=160 patient_temperature=39.5'
denwatch publish --key tester.json 'patient patient_temperature=102.4 °F heart_rate=120±5'
denwatch publish --key tester.json --age 3600 'patient heart_rate=broken'
denwatch publish --device tester --key tester.json --node 127.0.0.1:1883 - < readings.txt"""


def run(argv: list[str]) -> int:
    """Publish readings."""
    arguments = _parse(argv)
    texts = _list_texts(arguments)
    if arguments.name is not None and not arguments.dry_run:
        return _report(arguments, texts)
    vocabulary = common.load_vocabulary(arguments.vocabulary)
    readings = _read_all(arguments, texts, vocabulary)
    if readings is None:
        return WRONG_INPUT
    if arguments.dry_run:
        for text, reading in zip(texts, readings, strict=True):
            _print_one(arguments, text, reading, None)
        return 0
    from denwatch.client.publisher import Publisher, PublisherError, UnacknowledgedError, read_key

    if arguments.key is None:
        words = "who are you? `denwatch login NAME`, --as NAME, or --key FILE for a device"
        raise CommandError(words, WRONG_USAGE)
    if not Path(arguments.key).exists():
        raise CommandError(f"{arguments.key}: no such file", MISSING)
    with common.refuse(PublisherError), common.refuse(UnacknowledgedError, status=MISSING):
        key = read_key(Path(arguments.key), arguments.device, arguments.node_name)
        publisher = Publisher(
            key,
            vocabulary,
            find_coverage(readings, vocabulary),
            doubts=find_doubts(readings),
            server=arguments.node,
            ca=None if arguments.ca is None else Path(arguments.ca),
            is_insecure=arguments.insecure,
            timeout=arguments.timeout,
        )
        with publisher:
            numbers = publisher.publish(readings, arguments.age)
    for text, reading, number in zip(texts, readings, numbers, strict=True):
        _print_one(arguments, text, reading, (publisher.device.epoch, number))
    if not arguments.json:
        count = f"{len(readings)} reading{'' if len(readings) == 1 else 's'}"
        print(f"{key.link.node} stored {count} from {key.link.device}")
    return 0


def _report(arguments: argparse.Namespace, texts: list[str]) -> int:
    """Publish as a person; the node understands the words."""
    from denwatch.client.errors import LanguageError
    from denwatch.client.publisher import PublisherError, UnacknowledgedError, send_reports
    from denwatch.client.subscriber.link import Identity

    tls = Path(arguments.ca) if arguments.ca else None
    identity = Identity(arguments.name, read_password(arguments), tls, arguments.insecure)
    server = arguments.node or DEFAULT_NODE
    with common.refuse(PublisherError), common.refuse(UnacknowledgedError, status=MISSING):
        replies = send_reports(server, identity, texts, arguments.age, arguments.timeout)
    status = 0
    for text, reply in zip(texts, replies, strict=True):
        if arguments.json:
            print(json.dumps(reply, ensure_ascii=False))
        elif reply.get("ok"):
            print(f"{reply['node']} stored {reply['reported']} ({reply['id']})")
        else:
            error = LanguageError(reply["error"], reply.get("at"), reply.get("length", 1))
            common.print_mistake(error, text, as_json=False)
        status = status if reply.get("ok") else WRONG_INPUT
    return status


def find_coverage(
    readings: list[NotificationVector], vocabulary: Vocabulary
) -> dict[int, tuple[int, int]]:
    """Return the coverage of a device that has these readings: by event, two bit masks."""
    coverage: dict[int, tuple[int, int]] = {}
    for reading in readings:
        event = vocabulary.find_number(reading.event)
        assert event is not None, "the event was found by its name"
        wides = sum(1 << a.bit for a in event.attributes.values() if a.wide)
        features = coverage.get(reading.event, (0, 0))[0] | reading.features | reading.faults
        coverage[reading.event] = features, features & wides
    return coverage


def find_doubts(readings: list[NotificationVector]) -> dict[int, int]:
    """Return the attributes that are uncertain in any of these readings, by event."""
    doubts: dict[int, int] = {}
    for reading in readings:
        mask = sum(1 << one.attribute for one in reading.readings if not one.exact)
        doubts[reading.event] = doubts.get(reading.event, 0) | mask
    return doubts


def _list_texts(arguments: argparse.Namespace) -> list[str]:
    texts: list[str] = []
    for text in arguments.reading or ["-"]:
        if text == "-":
            piped, _ = common.read_input("-" if arguments.reading else None, None)
            texts += [line for line in piped.splitlines() if line.strip()]
        else:
            texts.append(text)
    if not texts:
        raise CommandError("no readings")
    if sum(map(len, texts)) > common.MAX_INPUT:
        raise CommandError(f"more than {common.MAX_INPUT} characters")
    return texts


def _read_all(
    arguments: argparse.Namespace, texts: list[str], vocabulary: Vocabulary
) -> list[NotificationVector] | None:
    from denwatch.client.errors import LanguageError
    from denwatch.client.language.reports import parse_reading

    readings = []
    for text in texts:
        try:
            readings.append(parse_reading(text, vocabulary, arguments.organisation))
        except LanguageError as error:
            common.print_mistake(error, text, as_json=arguments.json)
            return None
    return readings


def _print_one(
    arguments: argparse.Namespace,
    text: str,
    reading: NotificationVector,
    number: tuple[int, int] | None,
) -> None:
    from denwatch.protocol.notification import encode

    if arguments.json:
        answer: dict[str, Any] = {"ok": True, "reading": text, "vector": encode(reading).hex()}
        if number is not None:
            answer |= {"device_epoch": number[0], "device_sequence": number[1]}
        print(json.dumps(answer, ensure_ascii=False))
    elif number is None:
        print(f"{encode(reading).hex()}  {text}")


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Send readings, in words as a person or as a registered device."
    parser = common.build_parser("publish", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument(
        "reading",
        nargs="*",
        help="EVENT: ATTRIBUTE is VALUE, ... or EVENT ATTRIBUTE=VALUE ...; may be repeated;"
        " - reads lines from stdin",
    )
    common.add_option(parser, "--as NAME", "who you are", dest="name")
    words = "file with your password (or DENWATCH_PASSWORD)"
    common.add_option(parser, "--password-file FILE", words)
    common.add_option(parser, "--device NAME", "the device (the key file's)")
    common.add_option(parser, "--key FILE", "the key file of the device")
    common.add_option(
        parser, "--node URL", f"mqtt://HOST:PORT or mqtts://… (the key file's, {DEFAULT_NODE})"
    )
    common.add_option(parser, "--node-name NAME", "which node of the key file (the first)")
    common.add_option(parser, "--ca FILE", "authority to trust (the key file's)")
    common.add_option(
        parser, "--age S", "age of the readings in seconds (0)", type=read_seconds, default=0.0
    )
    common.add_option(
        parser, "--timeout S", "how long to wait (10)", type=read_seconds, default=10.0
    )
    common.add_option(parser, "--insecure", "allow the password in the clear to another machine")
    add_profile(parser)
    common.add_option(parser, "--dry-run", "only print the vectors")
    common.add_option(parser, "--json", "print one JSON object a reading")
    common.add_vocabulary(parser)
    arguments = parser.parse_args(argv)
    # A device has its login in its key file.
    return arguments if arguments.key else fill_login(arguments)
