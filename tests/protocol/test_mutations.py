"""Damaged frames decode to a message or to a ProtocolError, and to nothing else.

`make fuzz` does the same for minutes, guided by the branches that it reaches (`simulator.fuzzing`).
"""

import unittest

from denwatch.protocol import notification, subscription
from denwatch.protocol.cbor import decode as decode_cbor
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import decode_message, encode_message

from tests.protocol.golden import MESSAGES
from tests.protocol.samples import Dice, draw_notification, draw_subscription

COUNT = 10000


def damage(dice, frame):
    """Return the frame with a few bits flipped, bytes changed, cut, doubled or put in."""
    frame = bytearray(frame)
    for _ in range(1 + dice.below(3)):
        at = dice.below(len(frame)) if frame else 0
        choice = dice.below(6)
        if choice == 0:
            frame = frame[:at]
        elif choice == 1:
            frame = frame[:at] + bytes([dice.byte()]) + frame[at:]
        elif choice == 2:
            frame = frame + frame[at:]
        elif choice == 3 and frame:
            frame = frame[:at] + frame[at + 1 :]
        elif frame:
            frame[at] = frame[at] ^ 1 << dice.below(8) if choice == 4 else dice.byte()
    return bytes(frame)


def list_codecs(dice):
    """Return (frames, decode, encode or None) of everything that comes from outside."""
    messages = [encode_message(name, fields) for name, fields, _ in MESSAGES]
    subscriptions = [subscription.encode(draw_subscription(dice)) for _ in range(40)]
    notifications = [notification.encode(draw_notification(dice)) for _ in range(40)]
    return (
        (subscriptions, subscription.decode, subscription.encode),
        (notifications, notification.decode, notification.encode),
        (messages, decode_message, None),
        (messages, decode_cbor, None),
    )


def mutate(count, seed):
    """Decode so many damaged frames; return how many decoded. Anything unexpected raises."""
    dice = Dice(seed)
    codecs = list_codecs(dice)
    decoded = 0
    for i in range(count):
        frames, decode, encode = codecs[i % len(codecs)]
        frame = damage(dice, frames[dice.below(len(frames))])
        try:
            value = decode(frame)
        except ProtocolError:
            continue
        decoded += 1
        if encode is not None and encode(value) != frame:
            raise AssertionError(f"{frame!r} decodes to {value!r}, which has another encoding")
    return decoded


class MutationTest(unittest.TestCase):
    def test_damaged_frames_decode_or_are_refused(self):
        decoded = mutate(COUNT, 71)
        self.assertTrue(COUNT // 20 < decoded < COUNT // 2, decoded)
