"""The two ways to a configuration: the options of `denwatch device config`, and the questions of
`denwatch device install`.

Both use the same `ConfigBuilder`; docs/watchdog.md describes the result. `ask_config` explains a
wrong answer and asks again. `write_watchdog` prints a table of what it understood; it writes
nothing unless everything is right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path
from typing import Any, TypeVar

from denwatch.cli.common import load_vocabulary
from denwatch.cli.devices.config import (
    DEFAULT_SPOOL,
    ConfigBuilder,
    add_file,
    add_sentence,
    describe_rows,
    list_secured,
    read_columns,
    read_key,
    read_password_file,
    read_sources,
    read_spool,
    read_time,
    read_wifi,
    set_certificate,
    show_time,
    write_config,
)
from denwatch.cli.devices.schema import check_config, check_nodes
from denwatch.cli.devices.sentences import parse_amount
from denwatch.cli.errors import WRONG_USAGE, CommandError
from denwatch.client.errors import LanguageError
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary import Vocabulary
from denwatch.client.vocabulary.vocabulary import HASH_DIGITS

_SENSORS = """\
What does it sense? One sentence a line, such as
  patient_temperature from ds18x20 on pin 4
  air_temperature from dht22 on pin 15 every 10 s
  air_left from adc on pin 34 with 0 bar at 6553 and 300 bar at 58982"""

Ask = Callable[[str], str]
Tell = Callable[[str], None]
Answer = TypeVar("Answer")


def ask_config(
    vocabulary: Vocabulary, ask: Ask = input, ask_secret: Ask = getpass, tell: Tell = print
) -> dict[str, Any]:
    """Return a configuration, kept in a file, too; `ask` shows a question, returns the answer."""
    return _Wizard(vocabulary, ask, ask_secret, tell).run()


class _Wizard:
    def __init__(self, vocabulary: Vocabulary, ask: Ask, ask_secret: Ask, tell: Tell) -> None:
        self.builder = ConfigBuilder(vocabulary, look=read_columns)
        self.ask = ask
        self.ask_secret = ask_secret
        self.tell = tell

    def run(self) -> dict[str, Any]:
        path, device = self.ask_key()
        self.tell(_SENSORS)
        while self.repeat(self.ask, "sensor (empty line: no more)", "", self.take_sentence):
            pass
        wifi = self.ask_wifi()
        spool = self.repeat(self.ask, "spool: file:NAME, partition:NAME", DEFAULT_SPOOL, read_spool)
        config = self.builder.build(device, spool)
        if wifi:
            config["wifi"] = wifi
        check_config(config)
        for line in describe_rows(self.builder.rows):
            self.tell(line)

        def keep(name: str) -> None:
            if Path(name) == path:
                raise CommandError(f"{name} is the key file")
            write_config(Path(name), config)

        self.repeat(self.ask, "write this configuration to", "watchdog.json", keep)
        return config

    def repeat(self, ask: Ask, words: str, default: str, read: Callable[[str], Answer]) -> Answer:
        """Ask until the answer can be read; say why one cannot."""
        while True:
            try:
                answer = ask(f"{words} [{default}]: " if default else f"{words}: ")
            except EOFError:
                raise CommandError(
                    "the input ended before all questions were answered; nothing was installed"
                ) from None
            if ask is not self.ask_secret:
                answer = answer.strip()
            try:
                return read(answer or default)
            except CommandError as error:
                self.tell(str(error))

    def ask_key(self) -> tuple[Path, dict[str, Any]]:
        """Return the key file and what it says: the device's name and its nodes."""

        def read(name: str) -> tuple[Path, dict[str, Any]]:
            if not name:
                raise CommandError("`denwatch keys show NAME --secrets --output FILE` writes one")
            device = read_key(Path(name))
            check_nodes(device["nodes"])
            return Path(name), device

        path, device = self.repeat(self.ask, "key file of the device", "", read)
        self.tell(f"  {device['device']} at {', '.join(n['name'] for n in device['nodes'])}")
        secured = list_secured(device)
        if secured:
            words = "certificate of the site's authority"
            default = secured[0].get("ca", "ca.der")
            self.repeat(self.ask, words, default, lambda name: set_certificate(device, name))
        return path, device

    def take_sentence(self, text: str) -> bool:
        """Take what is sensed; return whether there may be more."""
        if text:
            row = add_sentence(self.builder, text)
            self.tell(f"  {', '.join(row.describe()[:5])}")
        elif not self.builder.rows:
            raise CommandError("name at least one sensor")
        return bool(text)

    def ask_wifi(self) -> dict[str, str] | None:
        """Return the wireless network; the password is not shown."""

        def read(name: str) -> str:
            return read_wifi(name, "")["name"] if name else ""

        name = self.repeat(self.ask, "Wi-Fi network (empty: none)", "", read)
        if not name:
            return None
        words = "Wi-Fi password (empty: an open network)"
        return self.repeat(self.ask_secret, words, "", lambda text: read_wifi(name, text))


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
    builder = ConfigBuilder(
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
        password = getpass(f"password of {name} (empty: an open network): ")
    else:
        raise CommandError(f"--wifi-password-file FILE has the password of {name}", WRONG_USAGE)
    return read_wifi(name, password)
