"""Every hex example of protocol/README.md is decoded, and means what the text before it says."""
# cpython only: reads the README from the repository

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from denwatch.protocol import frames, notification, subscription
from denwatch.protocol.degrees import CRISP
from denwatch.protocol.timecode import decode_duration
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector

README = Path(__file__).parents[2] / "protocol" / "README.md"
FEVER = Predicate(0, 121, 255, 156)
PULSE = Predicate(1, 55, 85, 120, negated=True)
THREE = [Predicate(0, 50, 90, 60), Predicate(1, 0, 20, 60), Predicate(2, 230, 255, 60)]
ACKNOWLEDGE = ("acknowledge", {"epoch": 3, "sequence": 70000})


def open_down(frame: bytes) -> object:
    link = frames.Link("dog-1", "node-a", 7, bytes(range(32)))
    opened = frames.open_frame(link, frames.DOWN, frame)
    assert (opened.epoch, opened.sequence, opened.kind) == (3, 2, frames.MESSAGE)
    return frames.decode_message(opened.body)


def open_up(frame: bytes) -> object:
    link = frames.Link("dog-1", "node-a", 7, bytes(range(32)))
    opened = frames.open_frame(link, frames.UP, frame, frames.HelloAnswer(3, 4, 6))
    assert (opened.epoch, opened.sequence, opened.elapsed) == (3, 12, 1600)
    return frames.unpack_batch(opened)


DECODERS: dict[str, Callable[[bytes], object]] = {
    "sv": subscription.decode,
    "nv": notification.decode,
    "message": frames.decode_message,
    "frame": open_down,
    "batch": open_up,
}

MEANINGS = [
    SubscriptionVector(1, [FEVER, PULSE], threshold=179, handle=258, validity=0x48),
    SubscriptionVector(
        1, [Predicate(0, 121, 255, 156, hedge=1), PULSE], threshold=179, handle=258, validity=0x48
    ),
    SubscriptionVector(1, THREE, pattern=bytes([0, 1, 0x42, 2, 0x52])),
    NotificationVector(
        1, [Reading(3, (200,) * 4), Reading(4, (70,) * 4), Reading(5, (0,) * 4)], 513
    ),
    NotificationVector(1, [Reading(0, (118, 120, 124, 126)), Reading(1, (99,) * 4)], 8),
    ACKNOWLEDGE,
    ACKNOWLEDGE,
    frames.DeviceBatch(3, 513, [bytes.fromhex("8100020100000008c8")]),
]


def test_examples_mean_what_the_text_says() -> None:
    examples = re.findall(
        r"```(sv|nv|message|frame|batch)\n(.*?)```", README.read_text(), re.DOTALL
    )
    decoded = [DECODERS[kind](bytes.fromhex(text)) for kind, text in examples]
    assert decoded == MEANINGS
    assert decode_duration(0x48) == 2048


def test_limits_are_the_codes() -> None:
    text = README.read_text()
    for limit in (subscription.MAX_LENGTH, notification.MAX_LENGTH):
        assert f"{limit}" in text
    assert f"{frames.MAX_LENGTH:,} bytes" in text
    assert f"{frames.OVERHEAD} bytes around a body" in text
    assert f"code {CRISP} is *crisp*" in text


def test_every_file_is_listed() -> None:
    text = README.read_text()
    files = list((README.parent / "denwatch" / "protocol").glob("*.py"))
    assert len(files) > 10
    for path in files:
        assert path.name == "__init__.py" or f"`{path.name}`" in text
