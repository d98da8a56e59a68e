"""`denwatch bridge`: brings devices without a network to their nodes, by serial port or radio.

The bridge passes sealed frames on and cannot read them: it needs the devices' MQTT logins, not
their keys. `RadioGateway` decides what goes on the air, without I/O; the rest of this file connects
it to a serial port (a board's own, or that of a board with a radio) and, by one MQTT connection for
each device, to the nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from denwatch.cli.common import add_option, build_parser, read_file, refuse, stop_at_sigterm
from denwatch.cli.errors import CommandError
from denwatch.watchdog.config import split_url
from denwatch.watchdog.link import DeviceLink, NodeAddress, make_context
from denwatch.watchdog.radio import (
    BEGIN,
    HEAD,
    PIECE,
    RECEIVED,
    TOPICS,
    AirBudget,
    RadioPeer,
    SerialModem,
    find_address,
    find_lora_airtime,
    split_answers,
)

_DESCRIPTION = """
A board without Wi-Fi talks to its node over its serial port; boards with LoRa or ESP-NOW talk to a
board that is connected here and passes on what it hears. The devices' files are those of `denwatch
keys show NAME --secrets --output FILE`. What a board prints besides is shown. With --radio the
bridge keeps to the radio's size of a datagram and to its share of the air."""
_EXAMPLES = """
denwatch bridge --serial /dev/ttyACM0 dog-1.json
denwatch bridge --serial /dev/ttyUSB0 --radio lora:9 --share 10 dog-1.json dog-2.json"""

_REPLY_WITHIN = 250  # ms for the node to acknowledge a message, so that one answer is enough
_ASK_AGAIN = 20_000  # ms without a hello, doubled up to
_ASK_SELDOM = 1_280_000
_PRINTED = 65_536  # bytes that a board prints, until they are shown
_WAITING = 64  # messages for one device
_SIZES = {7: 222, 8: 222, 9: 115, 10: 51, 11: 51, 12: 51}  # LoRaWAN's for Europe


class RadioGateway:
    """All devices in reach of one modem. `share` is of the time, in 1/1000, that it may send."""

    def __init__(
        self,
        devices: Iterable[str],
        size: int,
        measure: Callable[[int], int],
        share: int,
        rng: Callable[[int], int],
        now: int,
    ) -> None:
        self._names: dict[bytes, str] = {}
        self._peers: dict[str, RadioPeer] = {}
        self._waiting: dict[str, deque[tuple[int, bytes]]] = {}
        # Devices that shall say hello: when to ask again, and after how long; it may be lost.
        self._begins: dict[str, tuple[int, int]] = {}
        self._size = size
        self._measure = measure
        self._rng = rng
        self.air = AirBudget(share, now)
        self._turn: deque[str] = deque()
        self._lost: dict[str, int] = {}
        self._came: dict[str, int] = {}  # when the last piece did
        self.strangers = 0  # datagrams of devices that are not known here
        for device in devices:
            self.add(device)

    def add(self, device: str) -> None:
        """Know a device."""
        address = find_address(device)
        other = self._names.setdefault(address, device)
        if other != device:
            raise ValueError(f"{device} and {other} have the same address: rename one")
        wait = 500 + 8 * self._measure(self._size)
        self._peers[device] = RadioPeer(address, self._size, self._rng, wait)
        self._waiting[device] = deque()
        self._turn.append(device)
        self._lost[device] = 0

    def knows(self, device: str) -> bool:
        """Return whether a device was added."""
        return device in self._peers

    def begin(self, device: str) -> None:
        """Ask a device for a hello: the node has forgotten what was under way."""
        self._waiting[device].clear()
        self._begins.setdefault(device, (0, _ASK_AGAIN))

    def send(self, device: str, topic: str, payload: bytes) -> None:
        """Send a node's message to a device; if too many wait, the device begins anew."""
        waiting = self._waiting[device]
        number = TOPICS.index(topic.rpartition("/")[2])
        if topic.endswith("/ack"):
            if self._peers[device].set_reply(payload):
                return
            for entry in [entry for entry in waiting if entry[0] == number]:
                waiting.remove(entry)  # an older one says nothing that this does not
        waiting.append((number, payload))
        if len(waiting) > _WAITING:
            self.begin(device)

    def receive(self, datagram: bytes, now: int) -> tuple[str, str, bytes] | None:
        """Take a datagram; return device, topic and payload of a message that is now whole."""
        kind = datagram[0] & 0xF0
        if kind == RECEIVED:
            for address, number, bits in split_answers(datagram):
                if address in self._names:
                    self._peers[self._names[address]].take_answer(number, bits)
            return None
        name = self._names.get(datagram[1:3])
        if kind != PIECE or len(datagram) < HEAD or name is None:
            self.strangers += name is None
            return None
        message = self._peers[name].take_piece(datagram)
        self._came[name] = now
        if message is None or message[0] >= len(TOPICS):
            return None
        if TOPICS[message[0]] == "hello":
            self._begins.pop(name, None)
        return name, TOPICS[message[0]], message[1]

    def next_datagram(self, now: int) -> bytes | None:
        """Return what to send now, None for nothing; it counts as sent."""
        if not self.air.is_free(self._measure(self._size), now):
            return None
        datagram = (
            self._write_reply()
            or self._write_answers(now)
            or self._write_begin(now)
            or self._write_piece(now)
        )
        if datagram is not None:
            self.air.spend(self._measure(len(datagram)), now)
        return datagram

    def _write_reply(self) -> bytes | None:
        """Return the node's acknowledgement with the answer to what it acknowledges."""
        for peer in self._peers.values():
            reply = peer.next_reply()
            if reply is not None:
                return reply
        return None

    def _write_answers(self, now: int) -> bytes | None:
        """Return one datagram for all whom the node has not answered in time, as many as fit."""
        answers = bytearray()
        for name, peer in self._peers.items():
            if len(answers) + 1 + HEAD > self._size:
                break
            if now - self._came.get(name, now) >= _REPLY_WITHIN:
                answers += peer.next_answer() or b""
        return bytes([RECEIVED]) + answers if answers else None

    def _write_begin(self, now: int) -> bytes | None:
        for device, (due, delay) in self._begins.items():
            if now >= due:
                self._begins[device] = (now + delay, min(2 * delay, _ASK_SELDOM))
                return bytes([BEGIN]) + find_address(device)
        return None

    def _write_piece(self, now: int) -> bytes | None:
        for _ in range(len(self._turn)):
            name = self._turn[0]
            self._turn.rotate(-1)
            peer, waiting = self._peers[name], self._waiting[name]
            if not peer.is_busy and waiting:
                peer.offer(*waiting.popleft())
            piece = peer.next_piece(now)
            if piece is not None:
                peer.note_sent(now + self._measure(len(piece)))
                return piece
            if peer.lost > self._lost[name]:  # a device that missed something hears all again
                self._lost[name] = peer.lost
                self.begin(name)
        return None


class BridgedDevice:
    """One device's connection to its node; opened when the device is first heard."""

    def __init__(self, document: dict[str, Any], folder: Path, gateway: RadioGateway) -> None:
        self.name = str(document["device"])
        self._prefix = f"dens/1/wd/{self.name}/"
        self.topics = [self._prefix + "sv", self._prefix + "ack"]
        self.will: tuple[str, bytes] | None = (self._prefix + "hello", b"")
        self._gateway = gateway
        self._messages: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(_WAITING)
        self._tasks: list[asyncio.Task[None]] = []
        servers = [read_address(node, folder) for node in document["nodes"]]
        self.link = DeviceLink(self, servers, read_clock, random.randrange)

    def connect(self, node: str) -> None:  # noqa: ARG002 - as `MqttClient` has it
        """Ask the device for a hello: a connection begins with one, as the first does."""
        if self.link.counts["connected"]:
            self._gateway.begin(self.name)

    def receive(self, topic: str, payload: bytes, now: int) -> None:  # noqa: ARG002
        """Send on what the node says."""
        self._gateway.send(self.name, topic, payload)

    def pass_on(self, topic: str, payload: bytes) -> None:
        """Send a message to the node; one that finds no room is sent again by the device."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self.link.run()),
                asyncio.create_task(self._publish()),
            ]
        if not self._messages.full():
            self._messages.put_nowait((self._prefix + topic, payload))

    async def _publish(self) -> None:
        while True:
            topic, payload = await self._messages.get()
            while self.link.server is None:
                await asyncio.sleep(0.05)
            await self.link.publish(topic, payload)


def read_clock() -> int:
    """Return milliseconds that never go back."""
    return time.monotonic_ns() // 1_000_000


def read_address(node: dict[str, Any], folder: Path) -> NodeAddress:
    """Return where a node of a device's file is."""
    has_tls, host, port = split_url(node["url"])
    context = make_context((folder / node["ca"]).read_bytes()) if has_tls else None
    return NodeAddress(node["name"], host, port, context, node.get("user"), node.get("password"))


async def serve(
    modem: SerialModem, gateway: RadioGateway, devices: dict[str, BridgedDevice]
) -> None:
    """Carry datagrams for ever."""
    while True:
        is_idle = True
        datagram = modem.receive()
        if datagram:
            is_idle = False
            message = gateway.receive(datagram, read_clock())
            if message is not None:
                devices[message[0]].pass_on(message[1], message[2])
        answer = gateway.next_datagram(read_clock())
        if answer is not None:
            is_idle = False
            modem.send(answer)
        if modem.noise:
            sys.stdout.write(bytes(modem.noise).decode("utf-8", "replace"))
            sys.stdout.flush()
            modem.noise.clear()
        await asyncio.sleep(0.005 if is_idle else 0)


def run(argv: list[str]) -> int:
    """Bridge until it is interrupted."""
    arguments = _parse(argv)
    documents = []
    for name in arguments.files:
        with refuse(json.JSONDecodeError, KeyError, ValueError, before=f"{name}: "):
            document = json.loads(read_file(Path(name)))
            document["device"], document["nodes"][0]["url"]
            documents.append((document, Path(name).parent))
    size, measure = _read_radio(arguments.radio)
    share = 1000 if arguments.radio is None else arguments.share
    names = [document["device"] for document, _ in documents]
    with refuse(ValueError):
        gateway = RadioGateway(names, size, measure, share, random.randrange, read_clock())
        devices = {
            document["device"]: BridgedDevice(document, folder, gateway)
            for document, folder in documents
        }
    from denwatch.watchdog.linux import make_serial

    try:
        line = make_serial(arguments.serial, None, arguments.baud)
        modem = SerialModem(line, kept=_PRINTED)
    except OSError as error:
        raise CommandError(f"{arguments.serial}: {error.strerror}") from None
    stop_at_sigterm()
    print(f"bridging {', '.join(names)} on {arguments.serial}", flush=True)
    try:
        asyncio.run(serve(modem, gateway, devices))
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        raise CommandError(f"{arguments.serial}: {error.strerror}") from None
    return 0


def _read_radio(text: str | None) -> tuple[int, Callable[[int], int]]:
    """Return the size of a datagram and the function that measures one in ms."""
    if text is None:
        return SerialModem.size, lambda _: 0
    if text == "espnow":
        return 250, lambda _: 0
    kind, _, number = text.partition(":")
    if kind != "lora" or not number.isdecimal() or int(number) not in _SIZES:
        raise CommandError(f"{text}: say espnow, or lora:7 to lora:12 (its spreading factor)")
    spreading = int(number)
    return _SIZES[spreading], lambda size: find_lora_airtime(size, spreading)


def _parse(argv: list[str]) -> argparse.Namespace:
    summary = "Bring devices without a network to their nodes."
    parser = build_parser("bridge", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument("files", nargs="+", metavar="FILE", help="the devices' files, with secrets")
    add_option(parser, "--serial DEVICE", "the serial port", required=True)
    add_option(parser, "--baud N", "its speed (115200)", type=int, default=115_200)
    add_option(
        parser, "--radio KIND", "what the board there sends by: espnow, or lora:7 to lora:12"
    )
    add_option(
        parser,
        "--share N",
        "what the bridge may send of the time, in 1/1000 (100: 869.4 to 869.65 MHz in Europe)",
        type=int,
        default=100,
    )
    return parser.parse_args(argv)
