"""The questions of `denwatch device install`: what a device must know, asked one by one.

A wrong answer is explained and the question asked again. The answers make the same configuration
as `denwatch device config`; docs/watchdog.md describes it.
"""

from __future__ import annotations

from collections.abc import Callable
from getpass import getpass
from pathlib import Path
from typing import Any, TypeVar

from denwatch.cli.devices.check import check_config, check_nodes
from denwatch.cli.devices.config import Builder, describe_rows
from denwatch.cli.devices.parts import (
    DEFAULT_SPOOL,
    add_sentence,
    list_secured,
    read_columns,
    read_key,
    read_spool,
    read_wifi,
    set_certificate,
    write_config,
)
from denwatch.cli.errors import CommandError
from denwatch.client.vocabulary import Vocabulary

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
        self.builder = Builder(vocabulary, look=read_columns)
        self.ask = ask
        self.ask_secret = ask_secret
        self.tell = tell

    def run(self) -> dict[str, Any]:
        path, device = self.ask_key()
        self.tell(_SENSORS)
        while self.repeat(self.ask, "sensor (nothing: that is all)", "", self.take_sentence):
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

        self.repeat(self.ask, "keep this configuration in", "watchdog.json", keep)
        return config

    def repeat(self, ask: Ask, words: str, default: str, read: Callable[[str], Answer]) -> Answer:
        """Ask until the answer can be read; say why one cannot."""
        while True:
            try:
                answer = ask(f"{words} [{default}]: " if default else f"{words}: ")
            except EOFError:
                raise CommandError("the answers end here; nothing was installed") from None
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
            raise CommandError("a watchdog senses something")
        return bool(text)

    def ask_wifi(self) -> dict[str, str] | None:
        """Return the wireless network; the password is not shown."""

        def read(name: str) -> str:
            return read_wifi(name, "")["name"] if name else ""

        name = self.repeat(self.ask, "wireless network (nothing: none)", "", read)
        if not name:
            return None
        words = "its password (nothing: it is open)"
        return self.repeat(self.ask_secret, words, "", lambda text: read_wifi(name, text))
