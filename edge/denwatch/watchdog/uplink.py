"""What goes up and what comes down, as frames of `protocol`: hello and notifications, subscriptions
and acknowledgements. No I/O and no clock: `next_message` says what to send, `receive` takes.

What a node can rely on, and what it must do. All messages are MQTT publications with QoS 1 under
`dens/1/wd/<device>/`; payloads are frames (protocol/README.md), encrypted under the key of that
node.

| topic | frame | its (epoch, sequence) |
|---|---|---|
| `hello`, up | message: hello; an empty payload is the will | the device's epoch, counts from 1 |
| `nv`, up | notifications | the device's epoch, counts from 1, too |
| `want`, up | message: which piece of an image is wanted | counts with the hellos |
| `sv`, down | subscriptions, message: remove, or offer | above all before it from this node |
| `ack`, down | message: acknowledge, heard, or a piece of an image | likewise |

* No number serves for two frames, not for the same batch sent again either: it is the nonce. The
  counts go on through deep sleep; every other start has an epoch of its own. The first epoch of an
  empty spool, and the one after a life that it forgot, are beyond a random number (`leap`), so that
  a device whose flash was erased does not come back to numbers that it used.

* Every connection begins with a hello, said again (after 5 s, doubled up to 80) until the node has
  answered it: by an acknowledgement that names it. Notifications follow then. Each frame of them is
  bound to the number of that answer, and says how long ago it was heard: so the node knows when
  the frame was made, and one that somebody held back is dated by that.
* A notification's number is (epoch, sequence), for ever: in every frame, to every node. The epoch
  grows by one at every start of the device, sequences by one from 1. A vector carries the lower 16
  bits of its sequence, the frame the rest where that is not 0, and the epoch if that is not the
  device's own; numbers rise in a frame, all of one epoch, with gaps where a full spool
  dropped some. A body has at most 900 bytes and 16 vectors. Numbers of hellos are others.
* One batch is under way: the next is sent only when the *node* has acknowledged the one before,
  because what lies between may forget messages that it took. Not acknowledged in time (5 s, doubled
  up to 80) it is sent again, after another hello: the same numbers, new ages, perhaps more
  notifications or fewer.
* The node takes the numbers above the highest that it has of this device and passes over the
  others, commits, and then acknowledges the highest committed, also when nothing was new. An
  acknowledgement frees all numbers up to its own; it may be repeated and come late. One above all
  that was sent is passed over.
* If the epoch of a device whose spool was erased is below the one before, the node refuses its
  hello as a replay, and answers with the number of the last hello that it heard; a device that
  never said that one begins an epoch after it, and says hello again: numbers never go back.
* The node's numbers never go back: an epoch that grows at each of its starts, or a sequence
  that survives them. The device writes the number to the flash before it obeys, and refuses what is
  not above it, also after its own restarts. It keeps the numbers of 4 nodes.
* After a hello the node sends all subscriptions that it wants there: after a start the device has
  none, unless it slept. A handle that is there already is replaced, or renewed if the vector is the
  same; one vector that is refused does not keep the others of its frame out.
* The device reads packets of up to 2,048 bytes (`link.limit`): a longer one is acknowledged to the
  server and dropped (`too_long`). Some 20 vectors a frame are kind to its memory.
* An offer is of an image for an update (`update.py`); who has no part for it passes it over.
* What is refused is counted by its reason, and changes nothing.

Each of the device's rules has a test that fails without it: tests/watchdog/test_uplink.py (storms),
test_rules.py, test_spool_cuts.py.
"""

from ..protocol.degrees import const
from .manager import Manager
from .seal import (
    ACKNOWLEDGE,
    HEARD,
    MESSAGE,
    REMOVE,
    SUBSCRIPTIONS,
    FrameError,
    FrameKey,
    check_number,
    join,
    pack,
    split,
    unpack,
)
from .spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Counters: frames with notifications, those of them sent again, ...
_COUNTS = ("frames", "again", "acknowledged", "installed", "removed", "begun_anew")
_REFUSALS = ("version", "key", "tag", "frame", "replay", "vector", "message")
OFFER = const(16)  # types of messages about updates
PIECE = const(17)
FIRST_WAIT = const(5_000)  # ms for the node's acknowledgement, doubled up to the longest
LONGEST_WAIT = const(80_000)


class Uplink:
    """One device's traffic. `keys` has the key of each node by its name.

    `describe()` returns further fields of a hello by their numbers: firmware, reset, lowest.
    """

    update: "Any" = None  # the `ImageUpdate` that is under way
    open_update: "Callable[[], Any] | None" = None  # makes it; None: a device without this part

    def __init__(
        self,
        device: str,
        keys: dict[str, FrameKey],
        spool: Spool,
        manager: Manager,
        vocabulary: bytes,
        describe: "Callable[[], dict[int, object]]",
        room: int = 900,
        patience: int = FIRST_WAIT,
    ) -> None:
        self.name = device
        self._keys = keys
        self._spool = spool
        self._manager = manager
        self._vocabulary = vocabulary
        self._describe = describe
        self._room = room  # bytes of a frame's body
        self._topic = topic = f"dens/1/wd/{device}/"
        self.topics = [topic + "sv", topic + "ack"]  # to subscribe to
        # An empty hello, which the server sends when this device is gone.
        self.will: tuple[str, bytes] | None = (topic + "hello", b"")
        self._key: FrameKey | None = None  # of the node that is connected
        self.hello_count = 0
        self.batch_count = 0  # frames of notifications in this epoch
        self.is_answered = False  # whether the node has answered the last hello
        self._answer = b""  # the number of the answer's frame: batches belong to it
        self._answered_at = self._heard_at = 0
        self._hello_at = 0  # when to say hello, until it answers
        self._hello_wait = 0
        self._sent = (0, 0)  # the last number of the batch that waits
        self._until = 0
        self._patience = patience
        self._wait = patience
        self.counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        for reason in _REFUSALS:
            self.counts["refused_" + reason] = 0
        self.refused = ""  # why the last frame was refused

    def connect(self, node: str) -> None:
        """Start with a node: it gets a hello until it answers, and all that is unacknowledged."""
        self._key = self._keys[node]
        self.is_answered = False
        self._hello_at = self._hello_wait = 0
        self._sent = (0, 0)
        self._wait = self._patience

    def connect_anew(self, node: str) -> None:
        """Start with a node whose messages may have been lost on the way, though it was told that
        they arrived: a hello that does not follow the last one has it send all again."""
        self.hello_count += 1
        self.connect(node)

    def next_message(self, now: int) -> "tuple[str, bytes] | None":
        """Return the topic and payload to publish now; None: nothing, or wait."""
        key = self._key
        if key is None:
            return None
        if not self.is_answered and now >= self._hello_at:  # who was not there hears the next
            self._hello_wait = min(2 * self._hello_wait or self._patience, LONGEST_WAIT)
            self._hello_at = now + self._hello_wait
            self.hello_count += 1
            body = self._write_hello()
            return self._topic + "hello", key.seal(
                MESSAGE, self._spool.epoch, self.hello_count, body
            )
        if not self.is_answered:
            return None
        if self._is_waiting(now):
            return self._ask(key, now)
        if self._sent[1]:  # not acknowledged in time: perhaps it does not know us any more
            self.counts["again"] += 1
            wait = min(2 * self._wait, LONGEST_WAIT)
            self.connect(key.node)
            self._wait = wait
            return self.next_message(now)
        epoch, last, vectors = self._spool.peek(now, self._room)
        if not vectors:
            return self._ask(key, now)
        self.counts["frames"] += 1
        self._sent = (epoch, last)
        self._until = now + self._wait
        self.batch_count += 1
        today = self._spool.epoch
        kind, body = join(vectors, today, epoch, last)
        elapsed = (now - self._answered_at) * 2 // 125
        answer = self._answer + elapsed.to_bytes(4, "big")
        return self._topic + "nv", key.seal(kind, today, self.batch_count, body, answer)

    def _ask(self, key: FrameKey, now: int) -> "tuple[str, bytes] | None":
        """Ask for the next piece of an image."""
        body = self.update.next_want(now) if self.update is not None else None
        if body is None:
            return None
        self.hello_count += 1  # which goes on through sleep: no number serves twice
        frame = key.seal(MESSAGE, self._spool.epoch, self.hello_count, body)
        return self._topic + "want", frame

    def is_settled(self, now: int, quiet: int) -> bool:
        """Return whether the node has all that waited, and has said all that it wants to say."""
        is_quiet = self.is_answered and now - self._heard_at >= quiet
        is_whole = self.update is None or not self.update.image
        return is_quiet and is_whole and not self._spool.has_waiting()

    def _is_waiting(self, now: int) -> bool:
        """Return whether the node still has time to acknowledge the batch before."""
        return bool(self._sent[1]) and now < self._until

    def _write_hello(self) -> bytes:
        """Return the hello message; the keys are those of its fields in protocol/README.md."""
        message = self._manager.describe()
        message[0] = 1
        message[1] = self.name
        message[2] = self._spool.epoch
        message[3] = self._vocabulary
        message[10] = self._spool.dropped
        message.update(self._describe())
        return pack(message)

    def receive(self, topic: str, payload: bytes, now: int) -> bool:
        """Take a message from the node; return whether it was obeyed."""
        try:
            if self._key is None:
                raise FrameError("frame")
            kind, epoch, sequence, body = self._key.open(payload)
            self._heard_at = now
            if topic == self.topics[1]:
                self._take_acknowledgement(kind, body, now, payload[3:11])
            elif topic == self.topics[0]:
                self._take_change(kind, epoch, sequence, body, now)
            else:
                raise FrameError("message")
        except FrameError as error:
            self.refused = str(error)
            self.counts["refused_" + self.refused] += 1
            return False
        return True

    def _take_acknowledgement(self, kind: int, body: bytes, now: int, frame: bytes) -> None:
        """Free what the node has; `frame` is the number of this one."""
        message = _read_message(kind, body, ACKNOWLEDGE, HEARD, PIECE)
        if message[0] == PIECE:
            if self.update is not None:
                self.update.take(message)
            return
        number = (check_number(message.get(1)), check_number(message.get(2)))
        if message[0] == HEARD:
            if number > (self._spool.epoch, self.hello_count):  # of a life that this spool forgot
                self.counts["begun_anew"] += 1
                self._spool.begin(number[0] + 1, now)
                self.hello_count = 0
                self.connect(self._key.node)  # type: ignore[union-attr]
            return
        if message.get(24) == [self._spool.epoch, self.hello_count]:
            self.is_answered = True
            self._answer = frame
            self._answered_at = now
        if not self._spool.acknowledge(number[0], number[1], now):
            return  # said before, or of what was never sent
        self.counts["acknowledged"] += 1
        if number >= self._sent:
            self._sent = (0, 0)
            self._wait = self._patience

    def _take_change(self, kind: int, epoch: int, sequence: int, body: bytes, now: int) -> None:
        """Install or remove subscriptions."""
        assert self._key is not None
        if not self._spool.note_seen(self._key.node, epoch, sequence, now):
            raise FrameError("replay")
        if kind != SUBSCRIPTIONS:
            message = _read_message(kind, body, REMOVE, OFFER)
            handles = message.get(1)
            if message[0] == OFFER:
                self._take_offer(handles, check_number(message.get(2)))
                return
            if not isinstance(handles, list):
                raise FrameError("message")
            self.counts["removed"] += self._manager.remove(
                [check_number(handle) for handle in handles]
            )
            return
        for vector in split(body):  # one that is wrong does not keep the others out
            try:
                self._manager.install(vector, now)
                self.counts["installed"] += 1
            except ValueError as error:
                self.counts["refused_vector"] += 1
                self.refused = str(error)

    def _take_offer(self, image: object, size: int) -> None:
        """Begin an update, on a device that can."""
        if not isinstance(image, bytes) or len(image) != 16:
            raise FrameError("message")
        if self.update is None and self.open_update is not None:
            self.update = self.open_update()
        if self.update is not None:
            self.update.offer(image, size)


def _read_message(kind: int, body: bytes, *types: int) -> "dict[object, object]":
    """Return the message of a body, which is of one of the types."""
    message = unpack(body) if kind == MESSAGE else None
    if not isinstance(message, dict) or message.get(0) not in types:
        raise FrameError("message")
    return message
