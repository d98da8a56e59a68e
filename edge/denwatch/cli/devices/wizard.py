"""The two ways to a configuration: the options of `denwatch device config`, and the questions of
`denwatch device install`.

Both use the same `ConfigBuilder`. `ask_config` explains a wrong answer and asks again.
`write_watchdog` prints a table of what it understood; it writes nothing unless everything is right.

The functions below them read what stands in files or in one word: key file, sources written by
hand, certificate, wireless network, spool. The only file of `denwatch device config` that opens
files; every refusal is a CommandError that says what and where.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Mapping
from getpass import getpass
from pathlib import Path
from typing import Any, TypeVar

from denwatch.cli.common import (
    load_vocabulary,
    need_extra,
    reach,
    read_file,
    refuse,
    underline,
)
from denwatch.cli.devices.config import (
    ConfigBuilder,
    ConfigRow,
    describe_rows,
    read_time,
    show_time,
)
from denwatch.cli.devices.schema import check_config, check_nodes, check_source
from denwatch.cli.devices.sentences import parse_amount, parse_lines, parse_sentence
from denwatch.cli.errors import MISSING, WRONG_INPUT, WRONG_USAGE, CommandError
from denwatch.client.errors import LanguageError, join_choices, suggest_names
from denwatch.client.syntax import SourceSpan
from denwatch.client.vocabulary import Vocabulary
from denwatch.client.vocabulary.vocabulary import HASH_DIGITS
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.site import read_secret_file, write_file

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
        load_vocabulary(arguments.vocabulary).prefer(arguments.organisation),
        read_sources(Path(arguments.sources)) if arguments.sources else {},
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
    if arguments.radio:
        config["radio"] = read_radio(arguments.radio)
        node = config["nodes"][0]  # a bridge knows where it is, and logs in
        config["nodes"] = [{name: node[name] for name in ("name", "key_id", "key")}]
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
    if arguments.qr:
        show_code(config)
    return 0


def show_code(config: Mapping[str, Any]) -> None:
    """Print the address of a new board's page with the configuration in it, as a QR code.

    The nodes' certificates go along, under `files`.
    """
    with need_extra("console"):
        import segno
    nodes = [dict(node) for node in config["nodes"]]
    files = {}
    for node in nodes:
        if "ca" in node:
            path = Path(node["ca"])
            with reach(path):
                files[path.name] = base64.b64encode(path.read_bytes()).decode()
            node["ca"] = path.name
    shown = {**config, "nodes": nodes, **({"files": files} if files else {})}
    text = json.dumps(shown, separators=(",", ":"))
    address = f"http://192.168.4.1/#{base64.urlsafe_b64encode(text.encode()).decode()}"
    with refuse(segno.DataOverflowError, before="--qr: the configuration is too long for a code: "):
        segno.make(address, error="l", micro=False).terminal(compact=True)


def read_period(text: str) -> int:
    """Return the ms of --every."""
    try:
        amount = parse_amount(text)
        return read_time(amount.value, amount.unit, SourceSpan(0, len(text)))
    except LanguageError as error:
        raise CommandError(f"--every {text}: {error.describe()}", WRONG_USAGE) from None


def read_radio(text: str) -> dict[str, Any]:
    """Return the radio of --radio."""
    kind, _, port = text.partition(":")
    if kind == "serial":
        number = int(port) if port.isdecimal() else port or "usb"
        return {"kind": kind, "port": number}
    with refuse(json.JSONDecodeError, before=f"{text}: "):
        radio: dict[str, Any] = json.loads(read_file(Path(text)))
    return radio


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
        password = read_secret(Path(file))
    elif sys.stdin.isatty():
        password = getpass(f"password of {name} (empty: an open network): ")
    else:
        raise CommandError(f"--wifi-password-file FILE has the password of {name}", WRONG_USAGE)
    return read_wifi(name, password)


# Files and options ----------------------------------------------------------------------------

DEFAULT_SPOOL = "file:spool.bin"
_BLOCKS = 16  # of 4 KB
_FEWEST = 3  # blocks that a spool needs
_BLOCK = 4096
_LINE = 1 << 16


def read_key(path: Path) -> dict[str, Any]:
    """Return name and nodes of a device: what `denwatch keys show NAME --secrets` wrote."""
    key = _parse_json(read_secret(path), path)
    show = "`denwatch keys show NAME --secrets --output FILE` writes one"
    if not isinstance(key.get("device"), str) or not isinstance(key.get("nodes"), list):
        raise CommandError(f"{path}: not a device's key file; {show}")
    for node in key["nodes"]:
        if not isinstance(node, dict) or not _is_hex(node.get("key")):
            raise CommandError(f"{path}: there is no key in it; {show}")
    return {"device": key["device"], "nodes": [dict(node) for node in key["nodes"]]}


def read_sources(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sources that stand in a file: {"name": {"kind": ...}, ...}."""
    document = _parse_json(read_file(path), path)
    for name, entry in document.items():
        with refuse(ValueError, before=f"{path}: {name}: "):
            check_source(entry)
    return document


def add_sentence(builder: ConfigBuilder, text: str) -> ConfigRow:
    """Take one sentence; the error points at the word."""
    with underline(text):
        return builder.add(parse_sentence(text))


def add_file(builder: ConfigBuilder, path: Path) -> None:
    """Take the sentences of a file, one a line."""
    text = read_file(path)
    with underline(text, str(path)):
        for sentence in parse_lines(text):
            builder.add(sentence)


def read_columns(path: str) -> list[str] | None:
    """Return the columns of a CSV file, None if it is not there (yet, or on the board only)."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as stream:
            return [name.strip() for name in stream.readline(_LINE).split(",")]
    except OSError:
        return None


def read_spool(text: str) -> dict[str, Any]:
    """Return the spool that `file:NAME[:BLOCKS]`, `partition:NAME` or `flash:START:LENGTH` says."""
    kind, _, rest = text.partition(":")
    if kind == "partition" and rest:
        return {"partition": rest}
    if kind == "file" and rest:
        name, _, blocks = rest.rpartition(":")
        if not name:
            return {"file": rest, "blocks": _BLOCKS}
        if not blocks.isdecimal() or int(blocks) < _FEWEST:
            raise CommandError(f'spool "{text}": at least {_FEWEST} blocks of 4 KB')
        return {"file": name, "blocks": int(blocks)}
    if kind == "flash":
        try:
            start, length = (int(number, 0) for number in rest.split(":"))
        except ValueError:
            raise CommandError(f'spool "{text}": flash:START:LENGTH, in bytes') from None
        if start < 0 or start % _BLOCK or length % _BLOCK or length < _FEWEST * _BLOCK:
            raise CommandError(
                f'spool "{text}": both are multiples of {_BLOCK}, at least {_FEWEST} of them'
            )
        return {"flash": [start, length]}
    known = ("file:spool.bin", "partition:spool", "flash:0x100000:0x10000")
    near = suggest_names(kind, ("file", "partition", "flash"))
    meant = f"; did you mean {join_choices(near)}?" if near and near[0] != kind else ""
    raise CommandError(f'spool "{text}": none{meant} (such as {", ".join(known)})')


def read_wifi(name: str, password: str) -> dict[str, str]:
    """Return a wireless network; an empty password is for an open one."""
    if not 1 <= len(name.encode()) <= 32:
        raise CommandError(f'the network "{name}": a name has 1 to 32 bytes')
    if password and not 8 <= len(password.encode()) <= 64:
        raise CommandError(f"the password of {name}: WPA has 8 to 63 characters")
    return {"name": name, "password": password}


def read_secret(path: Path) -> str:
    """Return the text of a file that must be of mode 0600: a key, or a password."""
    status = WRONG_INPUT if path.exists() else MISSING
    with refuse(SecurityError, status=status):
        data = read_secret_file(path)
    with refuse(UnicodeDecodeError, before=f"{path}: not a text: "):
        return data.decode("utf-8").rstrip("\r\n")


def list_secured(device: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes that are reached over TLS."""
    return [node for node in device["nodes"] if str(node.get("url", "")).startswith("mqtts:")]


def set_certificate(device: Mapping[str, Any], given: str | None) -> None:
    """Name the authority's certificate for every node with TLS; it must be there, as DER."""
    nodes = list_secured(device)
    if given is not None and not nodes:
        raise CommandError(f"--ca {given}: none of the nodes has TLS")
    for node in nodes:
        node["ca"] = given or node.get("ca") or "ca.der"
        check_certificate(Path(node["ca"]), str(node.get("name")))


def check_certificate(path: Path, name: str) -> None:
    """Refuse what a board cannot verify a node with."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CommandError(
            f"{name}: {path}: {error.strerror}; --ca FILE names its authority's certificate, "
            f"the ca.der in the node's tls/",
            MISSING,
        ) from None
    if data.startswith(b"-----"):
        raise CommandError(f"{path} is PEM; a board takes DER: the ca.der beside it")
    if not data.startswith(b"\x30"):
        raise CommandError(f"{path} is no certificate")


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write a configuration for its owner's eyes only: it holds a key."""
    text = json.dumps(config, indent=1, ensure_ascii=False) + "\n"
    with refuse(SecurityError, status=MISSING):
        write_file(path, text.encode())


def _parse_json(text: str, path: Path) -> dict[str, Any]:
    with refuse(ValueError, before=f"{path}: "):
        document = json.loads(text)
    if not isinstance(document, dict):
        raise CommandError(f"{path}: not a JSON object")
    return document


def _is_hex(text: object) -> bool:
    try:
        return bool(bytes.fromhex(str(text)))
    except ValueError:
        return False
