"""Control messages: every kind there and back, and what is refused."""

import unittest

from denwatch.protocol import cbor
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import decode_message, encode_message

from tests.protocol.golden import MESSAGES

HELLO = {
    "device": "dog-1",
    "epoch": 3,
    "vocabulary": bytes(8),
    "senses": {1: [56, 0]},
    "capacity": 4096,
    "languages": [0],
}


def change(fields, **changes):
    """Return a copy with other fields; None removes one."""
    changed = dict(fields)
    for name in changes:
        changed[name] = changes[name]
        if changes[name] is None:
            del changed[name]
    return changed


class MessageTest(unittest.TestCase):
    def test_messages_survive(self):
        for name, fields, _ in MESSAGES:
            self.assertEqual(decode_message(encode_message(name, fields)), (name, fields))

    def test_a_hello_may_say_which_readings_have_an_accuracy(self):
        fields = change(HELLO, doubts={1: 8})
        self.assertEqual(decode_message(encode_message("hello", fields)), ("hello", fields))

    def test_a_hello_may_say_how_the_board_is(self):
        fields = change(HELLO, facts={1: 3712, 200: 1 << 31}, log="7 link: ended")
        self.assertEqual(decode_message(encode_message("hello", fields)), ("hello", fields))

    def test_fields_are_checked_both_ways(self):
        for wrong in (
            {"device": ""},
            {"device": "d" * 65},
            {"device": 5},
            {"device": None},
            {"epoch": -1},
            {"epoch": 1 << 32},
            {"epoch": True},
            {"vocabulary": bytes(7)},
            {"vocabulary": "12345678"},
            {"senses": [1]},
            {"senses": {64: [1, 0]}},
            {"senses": {1: [1]}},
            {"senses": {1: [65536, 0]}},
            {"senses": {1: 5}},
            {"languages": [65536]},
            {"languages": 0},
            {"doubts": [1]},
            {"doubts": {64: 1}},
            {"doubts": {1: 65536}},
            {"facts": {256: 1}},
            {"facts": {1: -1}},
            {"log": b"text"},
            {"image": [0, 1, "2", b""]},
            {"image": [0, 1, b"2", b"", b""]},
            {"firmware": b"1.25"},
            {"colour": "red"},
        ):
            with self.assertRaises(ProtocolError):
                encode_message("hello", change(HELLO, **wrong))
        with self.assertRaises(ProtocolError):
            encode_message("vocabulary", {"hash": bytes(8), "body": "text"})
        with self.assertRaises(ProtocolError):
            encode_message("known", {"ranges": [["a", 1, 2]]})
        with self.assertRaises(ProtocolError):
            encode_message("goodbye", {})

    def test_frames_from_outside_are_checked(self):
        for message in (
            [1, 2],
            {},
            {0: 99},
            {0: "hello"},
            {0: True},
            {0: 4},
            {0: 4, 1: ["x"]},
            {0: 4, 1: [1], 2: 5},
            {0: 4, 1: [1], "x": 5},
            {0: 4, 1: [1], -1: 5},
        ):
            with self.assertRaises(ProtocolError):
                decode_message(cbor.encode(message))

    def test_later_keys_are_passed_over(self):
        frame = cbor.encode({0: 4, 1: [1], 24: "later"})
        self.assertEqual(decode_message(frame), ("remove", {"handles": [1]}))
