"""A DENS node as far as a watchdog sees it: opens frames, commits, acknowledges. For tests.

It stands for the real one: what it acknowledged is committed, numbers up to the highest of a
device are old, everything else is new.
"""

from denwatch.protocol import frames
from denwatch.protocol.frames import decode_message, encode_message
from denwatch.protocol.notification import decode
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector

SECRET = bytes(range(32))


def make_key(device="dog-1", node="node-a", key_id=7, secret=SECRET):
    return frames.Link(device, node, key_id, secret)


def make_vector(handle, event=1, threshold=128, attribute=0, low=100, validity=0):
    predicates = [Predicate(attribute, low, 255, 100)]
    return encode(
        SubscriptionVector(event, predicates, threshold=threshold, handle=handle, validity=validity)
    )


class Node:
    def __init__(self, key=None, epoch=1):
        self.key = key or make_key()
        self.epoch = epoch
        self.sequence = 0
        self.committed = {}  # (epoch, sequence): notification
        self.highest = (0, 0)
        self.hellos = []
        self.answer = None  # what batches belong to
        self.conflicts = []

    def seal(self, kind, body, sequence=None, epoch=None):
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        frame = frames.Frame(kind, self.epoch if epoch is None else epoch, sequence, body)
        return frames.seal(self.key, frames.DOWN, frame)

    def subscribe(self, *vectors):
        return self.seal(frames.SUBSCRIPTIONS, frames.join_vectors(list(vectors)))

    def remove(self, *handles):
        return self.seal(frames.MESSAGE, encode_message("remove", {"handles": list(handles)}))

    def acknowledge(self, epoch=None, sequence=None, hello=None):
        if epoch is None:
            epoch, sequence = self.highest
        fields = {"epoch": epoch, "sequence": sequence}
        if hello is not None:
            fields["hello"] = hello
        return self.seal(frames.MESSAGE, encode_message("acknowledge", fields))

    def answer_hello(self, *highest):
        """Answer the last hello; `highest`: what it says to have, if that is not all."""
        sealed = self.acknowledge(*(highest or self.highest), hello=self.number)
        self.answer = frames.HelloAnswer(self.number[0], self.epoch, self.sequence)
        return sealed

    def take(self, topic, payload):
        """Take a message from the device; return whether something was committed."""
        frame = frames.open_frame(self.key, frames.UP, payload, self.answer)
        if topic.endswith("hello"):
            self.hellos.append(decode_message(frame.body)[1])
            self.number = [frame.epoch, frame.sequence]
            return False
        self.elapsed = frame.elapsed
        batch = frames.unpack_batch(frame)
        for vector in batch.vectors:
            notification = decode(vector)
            sequence = batch.last - ((batch.last - notification.sequence) & 0xFFFF)
            number = (batch.epoch, sequence)
            known = self.committed.get(number)
            if known is not None and known.readings != notification.readings:
                self.conflicts.append(number)
            if number > self.highest:
                self.committed[number] = notification
                self.highest = number
        return True
