"""What is known of each device, and what the device protocol needs of the rest of the node.

Three numbers of a device outlive everything, because a replay must be refused for ever: its last
hello (epoch, count), the last notification that was received from it (epoch, sequence), and the
last frame that it was sent (our epoch, count). A device whose memory was erased begins its epochs
anew and is refused until an operator says so (`DeviceRegistry.forget`).

Only `DeviceRegistry` writes the spaces `device`, `device.taken` and `device.down`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import cbor2
from denwatch.node.core.events import Reader
from denwatch.node.core.transaction import Transaction
from denwatch.node.covering import Approximate, Policy
from denwatch.protocol.frames import Link

Masks = tuple[int, int]  # features, and those of them with 16 bits
Sensed = Mapping[int, Masks]  # by event

DAY = 86_400_000


class DeviceKeys(Protocol):
    """Who may speak for a device; `denwatch.node.security.keyring` is the real one."""

    def link_for(self, device: str, key_id: int) -> Link | None:
        """Return the link of a key that is good now, None otherwise."""

    def list_key_ids(self, device: str) -> list[int]:
        """Return the keys of a device that are good now."""


class SensedVocabularies(Protocol):
    """What the numbers of events and attributes mean."""

    def find_sensed(self, hash: bytes) -> Sensed | None:
        """Return all that the vocabulary of a hash (8 bytes) lets a device sense; None: unknown."""

    def agree(self, one: bytes, other: bytes, event: int, features: int) -> bool:
        """Return whether two vocabularies mean the same by some features of an event."""


@dataclass(frozen=True)
class DeviceSettings:
    """Times are in ms."""

    policy: Policy = field(default_factory=Approximate)
    batch: int = 20  # vectors in a frame: kind to a small memory
    frame_bytes: int = 900  # of a frame's body; a watchdog takes packets of 2,048 bytes
    patience: int = 20_000  # for the acknowledgement of a frame, doubled up to the longest
    longest_patience: int = 320_000
    pause: int = 1_000  # between acknowledgements of what came before
    keep: int = 7 * DAY  # how long a notification lives
    transit: int = 2_000  # a frame may be so long under way unnoticed
    placing: int = 1_000  # subscriptions that one tick places in a covering table
    rebuild: int = 2_000  # subscriptions of the largest table that is built anew at times
    burst: int = 200  # devices that one transaction sends a change to
    # Whether `Listening` and `Acknowledged` speak of the devices themselves: true of this node's
    # own server, not of somebody else's broker.
    has_listeners: bool = True


class DeviceRefusal(ValueError):
    """A message that changes nothing: `reason` is a word to count by."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


SPACE = "device"
TAKEN = "device.taken"
DOWN = "device.down"

Number = tuple[int, int]  # an epoch, and a count within it


@dataclass
class Device:
    """One device: what its last hello said, the numbers, and whether it is there now."""

    name: str
    hello: Number
    key_id: int  # of its last hello: what goes down is sealed with it
    vocabulary: bytes
    sensed: dict[int, Masks]
    capacity: int
    languages: tuple[int, ...]
    firmware: str = ""
    reset: int = 0
    lowest: int = 0
    dropped: int = 0
    heard: int = 0  # when the hello came, ms
    is_doubtful: bool = False  # it has sent readings with doubt
    taken: Number = (0, 0)
    epoch: int = 0  # the highest that it was heard in
    # Not on the disk:
    is_present: bool = field(default=False, compare=False)
    repeated: int = field(default=0, compare=False)  # when an acknowledgement was, ms

    def encode(self) -> bytes:
        """Return what a hello changes, as bytes."""
        sensed = {event: list(masks) for event, masks in self.sensed.items()}
        facts = [self.firmware, self.reset, self.lowest, self.dropped, self.heard]
        what = [self.vocabulary, sensed, self.capacity, list(self.languages)]
        return cbor2.dumps([*self.hello, self.key_id, *what, *facts, self.is_doubtful, self.epoch])


def _decode(name: str, data: bytes) -> Device:
    epoch, count, key_id, vocabulary, sensed, capacity, languages, *rest = cbor2.loads(data)
    masks = {event: (pair[0], pair[1]) for event, pair in sensed.items()}
    firmware, reset, lowest, dropped, heard, is_doubtful, seen = rest
    return Device(
        name,
        (epoch, count),
        key_id,
        vocabulary,
        masks,
        capacity,
        tuple(languages),
        firmware,
        reset,
        lowest,
        dropped,
        heard,
        is_doubtful,
        epoch=seen,
    )


def _pack(number: Number) -> bytes:
    return number[0].to_bytes(4, "big") + number[1].to_bytes(4, "big")


def _unpack(data: bytes) -> Number:
    return int.from_bytes(data[:4], "big"), int.from_bytes(data[4:], "big")


class DeviceRegistry:
    """All devices by name."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._down: dict[str, Number] = {}

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run stored."""
        for key, value in reader.scan(SPACE):
            self._devices[key.decode()] = _decode(key.decode(), value)
        for key, value in reader.scan(TAKEN):
            self._devices[key.decode()].taken = _unpack(value)
        for key, value in reader.scan(DOWN):
            self._down[key.decode()] = _unpack(value)

    def get(self, name: str) -> Device | None:
        """Return a device that has said hello."""
        return self._devices.get(name)

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices.values())

    def __len__(self) -> int:
        return len(self._devices)

    def save(self, transaction: Transaction, device: Device) -> None:
        """Keep a device and what it said."""
        self._devices[device.name] = device
        transaction.write(SPACE, device.name.encode(), device.encode())

    def note_taken(self, transaction: Transaction, device: Device, number: Number) -> None:
        """Note the last notification that was taken, for good."""
        device.taken = number
        transaction.write(TAKEN, device.name.encode(), _pack(number))

    def take_number(self, transaction: Transaction, device: Device, epoch: int) -> Number:
        """Return the number of the next frame to a device: above all before, also after a start."""
        last = self._down.get(device.name, (0, 0))
        number = (last[0], last[1] + 1) if last[0] >= epoch else (epoch, 1)
        self._down[device.name] = number
        transaction.write(DOWN, device.name.encode(), _pack(number))
        return number

    def forget(self, transaction: Transaction, device: Device) -> None:
        """Let a device begin anew; the numbers of frames down go on, for it may remember them.

        Whoever kept its old frames can play them back then: give it a new key as well.
        """
        del self._devices[device.name]
        for space in (SPACE, TAKEN):
            transaction.write(space, device.name.encode(), None)
