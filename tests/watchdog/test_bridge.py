"""The bridge's gateway: many devices on one modem, and what it tells whom."""

# cpython only: the bridge runs on a PC

from __future__ import annotations

import asyncio
import json
import os
import pty
import random
import tty
from pathlib import Path

import pytest
from denwatch.cli import bridge
from denwatch.cli.bridge import BridgedDevice, RadioGateway
from denwatch.cli.errors import CommandError
from denwatch.watchdog.linux import make_serial
from denwatch.watchdog.radio import (
    BEGIN,
    RECEIVED,
    REPLY,
    RadioPeer,
    SerialModem,
    find_address,
    split_answers,
)

NAMES = ["dog-1", "dog-2", "dog-3"]
LATE = 10_000  # ms, when a node has not answered


def make_gateway(names: list[str] = NAMES) -> RadioGateway:
    return RadioGateway(names, 51, lambda _: 0, 1000, random.Random(1).randrange, 0)


def send(gateway: RadioGateway, name: str, topic: int, payload: bytes, seed: int = 1) -> RadioPeer:
    """Let a device send a message of one piece; return its end."""
    peer = RadioPeer(find_address(name), 51, random.Random(seed).randrange)
    assert peer.offer(topic, payload)
    piece = peer.next_piece(0)
    assert piece is not None
    assert gateway.receive(piece, 0) is not None
    return peer


def test_one_datagram_answers_many_devices() -> None:
    gateway = make_gateway()
    peers = [send(gateway, name, 0, b"hello") for name in NAMES]
    assert gateway.next_datagram(0) is None  # the node may still acknowledge
    datagram = gateway.next_datagram(LATE)
    assert datagram is not None
    answers = split_answers(datagram)
    assert datagram[0] == RECEIVED
    assert [address for address, _, _ in answers] == [find_address(name) for name in NAMES]
    assert all(peer.take_answer(*answer[1:]) for peer, answer in zip(peers, answers, strict=True))
    assert gateway.next_datagram(LATE) is None


def test_the_nodes_acknowledgement_is_the_answer_and_is_repeated() -> None:
    gateway = make_gateway()
    peer = send(gateway, "dog-1", 1, b"batch")
    piece = peer.next_piece(LATE)  # sent again: the reply was lost
    gateway.send("dog-1", "dens/1/wd/dog-1/ack", b"acknowledged")
    first = gateway.next_datagram(0)
    assert first is not None
    assert (first[0], first[4:]) == (REPLY, b"acknowledged")
    assert gateway.next_datagram(LATE) is None
    peer.note_sent(0)
    piece = peer.next_piece(LATE)
    assert piece is not None
    assert gateway.receive(piece, LATE) is None  # not passed on again
    assert gateway.next_datagram(LATE) == first


def test_a_message_that_nobody_hears_has_the_device_begin_anew() -> None:
    gateway = make_gateway()
    gateway.send("dog-2", "dens/1/wd/dog-2/sv", bytes(100))
    kinds, now = [], 0
    while BEGIN not in kinds and now < 1_000_000:
        datagram = gateway.next_datagram(now)
        kinds += [datagram[0] & 0xF0] if datagram else []
        now += 100
    assert len(kinds) > 4
    asked = 0
    for _ in range(1000):  # asked again, more and more seldom, until it says hello
        now += 1000
        asked += gateway.next_datagram(now) is not None
    assert 3 <= asked <= 7
    send(gateway, "dog-2", 0, b"hello")
    gateway.next_datagram(now)
    assert all(gateway.next_datagram(now + 1000 * i) is None for i in range(2000))


def test_a_device_that_does_not_listen_is_not_kept_messages_for_ever() -> None:
    gateway = make_gateway()
    for number in range(200):
        gateway.send("dog-1", "dens/1/wd/dog-1/sv", bytes([number]))
    datagram = gateway.next_datagram(0)
    assert datagram == bytes([BEGIN]) + find_address("dog-1")


def test_strangers_and_nonsense_change_nothing() -> None:
    gateway = make_gateway()
    stranger = RadioPeer(find_address("cat"), 51, random.Random(1).randrange)
    stranger.offer(0, b"hello")
    piece = stranger.next_piece(0)
    assert piece is not None
    assert gateway.receive(piece, 0) is None
    assert gateway.strangers == 1
    for datagram in (b"\x10", b"\x1f" + find_address("dog-1") + b"\1\0x", b"\xff\xff\xff\xff\xff"):
        assert gateway.receive(datagram, 0) is None


def test_two_names_with_one_address_are_refused() -> None:
    seen: dict[bytes, str] = {}
    for number in range(10_000):
        name = f"dog-{number}"
        other = seen.setdefault(find_address(name), name)
        if other != name:
            break
    with pytest.raises(ValueError, match=f"{name} and {other} have the same address"):
        make_gateway([other, name])


def test_a_first_connection_needs_no_second_hello(tmp_path: Path) -> None:
    gateway = make_gateway(["dog-1"])
    node = {"name": "north", "url": "mqtt://127.0.0.1:1", "user": "dog-1", "password": "p"}
    device = BridgedDevice({"device": "dog-1", "nodes": [node]}, tmp_path, gateway)
    device.connect("north")
    assert gateway.next_datagram(0) is None
    device.link.counts["connected"] = 1
    device.connect("north")
    assert gateway.next_datagram(0) == bytes([BEGIN]) + find_address("dog-1")


def test_a_line_carries_datagrams_and_shows_what_a_board_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, theirs = pty.openpty()
    tty.setraw(ours)
    port = make_serial(os.ttyname(theirs), None, 115_200)
    gateway = make_gateway(["dog-1"])
    modem = SerialModem(port)

    class Line:
        def read(self) -> bytes:
            return b""

        def write(self, data: bytes) -> None:
            os.write(ours, b"MPY: started\r\n" + data)

    peer = RadioPeer(find_address("dog-1"), 255, random.Random(1).randrange)
    peer.offer(0, bytes(range(200)))
    piece = peer.next_piece(0)
    assert piece is not None
    SerialModem(Line()).send(piece)
    passed: list[tuple[str, bytes]] = []

    class Device:
        def pass_on(self, topic: str, payload: bytes) -> None:
            passed.append((topic, payload))

    async def wait() -> None:
        task = asyncio.create_task(bridge.serve(modem, gateway, {"dog-1": Device()}))  # type: ignore[dict-item]
        while not passed:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(wait(), 60))
    assert passed == [("hello", bytes(range(200)))]
    assert "MPY: started" in capsys.readouterr().out
    os.close(ours)
    os.close(theirs)


def test_the_command_refuses_what_cannot_be(tmp_path: Path) -> None:
    key = tmp_path / "dog-1.json"
    node = {"name": "north", "url": "mqtt://127.0.0.1:1"}
    key.write_text(json.dumps({"device": "dog-1", "nodes": [node]}))
    for arguments, words in (
        (["--serial", "/dev/null/none", str(key)], "/dev/null/none"),
        (["--serial", "/dev/null", "--radio", "lora:13", str(key)], "lora:7 to lora:12"),
        (["--serial", "/dev/null", str(tmp_path / "none.json")], "none.json"),
    ):
        with pytest.raises(CommandError, match=words):
            bridge.run(arguments)
