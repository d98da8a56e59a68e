"""`denwatch device config`: watchdog.json from a key file and sentences, and a table to check.

Wires the parts: `parts` reads, `config` builds, `check` checks. Nothing is
written unless all of it is right.
"""

from __future__ import annotations

import argparse
import sys
from getpass import getpass
from pathlib import Path

from denwatch.cli.common import load_vocabulary
from denwatch.cli.devices.check import check_config
from denwatch.cli.devices.config import (
    Builder,
    describe_rows,
    read_time,
    show_time,
)
from denwatch.cli.devices.parts import (
    add_file,
    add_sentence,
    read_columns,
    read_key,
    read_password_file,
    read_sources,
    read_spool,
    read_wifi,
    set_certificate,
    write_config,
)
from denwatch.cli.devices.words import parse_amount
from denwatch.cli.errors import WRONG_USAGE, CommandError
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary.vocabulary import HASH_DIGITS


def write_watchdog(arguments: argparse.Namespace) -> int:
    """Write a configuration; say what was understood."""
    if not arguments.sense and not arguments.senses:
        raise CommandError(
            "what does it sense? --sense 'heart_rate from ward.csv column pulse'", WRONG_USAGE
        )
    output, key = Path(arguments.output), Path(arguments.key)
    read = [arguments.key, *arguments.senses, arguments.sources or arguments.key]
    if output.resolve() in {Path(name).resolve() for name in read}:
        raise CommandError(f"--output {output} would overwrite what is read", WRONG_USAGE)
    device = read_key(key)
    builder = Builder(
        load_vocabulary(arguments.vocabulary),
        read_sources(Path(arguments.sources)) if arguments.sources else {},
        arguments.organisation,
        read_period(arguments.every),
        read_columns,
    )
    for name in arguments.senses:
        add_file(builder, Path(name))
    for sentence in arguments.sense:
        add_sentence(builder, sentence)
    config = builder.build(device, read_spool(arguments.spool))
    set_certificate(config, arguments.ca)
    wifi = find_wifi(arguments)
    if wifi:
        config["wifi"] = wifi
    check_config(config)
    write_config(output, config)
    print(*describe_rows(builder.rows), sep="\n")
    for name in builder.list_unused():
        print(f"note: {arguments.sources}: nothing comes from {name}")
    events = dict.fromkeys(row.attribute.event for row in builder.rows)
    periods = ", ".join(f"{name} every {show_time(builder.find_period(name))}" for name in events)
    nodes = ", ".join(node["name"] for node in config["nodes"])
    vocabulary = builder.vocabulary
    print(
        f"{output}: {config['device']} for {nodes}; {periods}; vocabulary {vocabulary.name} "
        f"{vocabulary.hash[:HASH_DIGITS]}"
    )
    return 0


def read_period(text: str) -> int:
    """Return the ms of --every."""
    try:
        amount = parse_amount(text)
        return read_time(amount.value, amount.unit, SourceSpan(0, len(text)))
    except LanguageError as error:
        raise CommandError(f"--every {text}: {error.describe()}", WRONG_USAGE) from None


def find_wifi(arguments: argparse.Namespace) -> dict[str, str] | None:
    """Return the wireless network; the password comes from a file, the pipe or the keyboard."""
    name, file = arguments.wifi, arguments.wifi_password_file
    if name is None:
        if file is not None:
            raise CommandError("--wifi-password-file without --wifi", WRONG_USAGE)
        return None
    if file == "-":
        password = sys.stdin.readline().rstrip("\r\n")
    elif file is not None:
        password = read_password_file(Path(file))
    elif sys.stdin.isatty():
        password = getpass(f"password of {name} (nothing: it is open): ")
    else:
        raise CommandError(f"--wifi-password-file FILE has the password of {name}", WRONG_USAGE)
    return read_wifi(name, password)
