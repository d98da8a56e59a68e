"""What the part asks of its surroundings, its settings, and the one error of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from denwatch.client.vocabulary.vocabulary import Vocabulary
from denwatch.node.covering import Approximate, Policy
from denwatch.protocol.frames import Link

Masks = tuple[int, int]  # features, and those of them with 16 bits
Senses = Mapping[int, Masks]  # by event

DAY = 86_400_000


class Keys(Protocol):
    """Who may speak for a device; `denwatch.node.security.keyring` is the real one."""

    def link_for(self, device: str, key_id: int) -> Link | None:
        """Return the link of a key that is good now, None otherwise."""

    def list_key_ids(self, device: str) -> list[int]:
        """Return the keys of a device that are good now."""


class Vocabularies(Protocol):
    """What the numbers of events and attributes mean."""

    def find_senses(self, hash: bytes) -> Senses | None:
        """Return all that the vocabulary of a hash (8 bytes) lets a device sense; None: unknown."""

    def agree(self, one: bytes, other: bytes, event: int, features: int) -> bool:
        """Return whether two vocabularies mean the same by some features of an event."""


Agree = Callable[[bytes, bytes, int, int], bool]


def _are_equal(one: bytes, other: bytes, _event: int, _features: int) -> bool:
    return one == other


class VocabularySenses:
    """`Vocabularies` from functions: one that finds them by hash, one that compares two."""

    def __init__(
        self, find: Callable[[bytes], Vocabulary | None], agree: Agree = _are_equal
    ) -> None:
        self._find = find
        self._agree = agree
        self._known: dict[bytes, Senses] = {}

    def find_senses(self, hash: bytes) -> Senses | None:
        """Return the masks of every event of a vocabulary."""
        if hash not in self._known:
            vocabulary = self._find(hash)
            if vocabulary is None:
                return None
            self._known[hash] = list_senses(vocabulary)
        return self._known[hash]

    def agree(self, one: bytes, other: bytes, event: int, features: int) -> bool:
        """Return whether two vocabularies mean the same by some features of an event."""
        return self._agree(one, other, event, features)


def list_senses(vocabulary: Vocabulary) -> dict[int, Masks]:
    """Return all that a vocabulary lets a device sense."""
    senses = {}
    for event in vocabulary.events.values():
        features = wides = 0
        for attribute in event.attributes.values():
            features |= 1 << attribute.bit
            wides |= (1 << attribute.bit) if attribute.wide else 0
        senses[event.number] = features, wides
    return senses


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
    placing: int = 1_000  # subscriptions that one turn places in a covering table
    rebuild: int = 2_000  # subscriptions of the largest table that is built anew at times
    burst: int = 200  # devices that one turn tells of a change
    # Whether `Listening` and `Acknowledged` speak of the devices themselves: true of this node's
    # own server, not of somebody else's broker.
    has_listeners: bool = True


class RefusedError(ValueError):
    """A message that changes nothing: `reason` is a word to count by."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason
