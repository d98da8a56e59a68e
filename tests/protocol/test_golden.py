"""The golden vectors: objects to bytes, bytes to objects, answers."""

import unittest

from denwatch.protocol import degrees, frames, notification, subscription
from denwatch.protocol.frames import decode_message, encode_message

from tests.protocol import evaluator, golden


class GoldenTest(unittest.TestCase):
    def test_subscriptions(self):
        for name, s, text in golden.SUBSCRIPTIONS:
            self.assertEqual(subscription.encode(s), bytes.fromhex(text), name)
            self.assertEqual(subscription.decode(bytes.fromhex(text)), s, name)

    def test_evaluations(self):
        vectors = {name: bytes.fromhex(text) for name, _, text in golden.SUBSCRIPTIONS}
        scratch = bytearray(evaluator.SCRATCH)
        for name, values, answer, decisive in golden.EVALUATIONS:
            self.assertEqual(
                evaluator.evaluate(vectors[name], 0, 0xFFFF, values, scratch), answer, name
            )
            self.assertEqual(scratch[32], decisive, name)

    def test_notifications(self):
        for name, n, text in golden.NOTIFICATIONS:
            self.assertEqual(notification.encode(n), bytes.fromhex(text), name)
            self.assertEqual(notification.decode(bytes.fromhex(text)), n, name)

    def test_messages(self):
        for name, fields, text in golden.MESSAGES:
            self.assertEqual(encode_message(name, fields), bytes.fromhex(text), name)
            self.assertEqual(decode_message(bytes.fromhex(text)), (name, fields))

    def test_frames(self):
        link = frames.Link(*golden.LINK, golden.SECRET)
        for direction, kind, epoch, sequence, body, answer, elapsed, text in golden.FRAMES:
            frame = frames.Frame(kind, epoch, sequence, bytes.fromhex(body), elapsed)
            answer = frames.HelloAnswer(epoch, *answer) if answer else None
            sealed = bytes.fromhex(text)
            self.assertEqual(frames.seal(link, direction, frame, answer), sealed)
            self.assertEqual(frames.open_frame(link, direction, sealed, answer), frame)

    def test_core(self):
        for name, arguments, answer in golden.list_core():
            function = getattr(degrees if name != "evaluate" else evaluator, name)
            self.assertEqual(function(*arguments), answer, (name, arguments))
