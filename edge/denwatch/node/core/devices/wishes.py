"""Wishes: what live subscriptions ask of devices, equal ones as one.

A wish is a subscription vector without handle and validity. However many people ask for the same,
a device hears it once. That also keeps equal vectors from being told apart by covering, which
cannot see that two inexact vectors are the same. Nothing is written: the items are on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from denwatch.node.core.devices.contracts import Masks
from denwatch.node.core.items import SubscriptionBody
from denwatch.node.matching.plugins import FUZZY
from denwatch.protocol import subscription
from denwatch.protocol.errors import ProtocolError

FOREVER = 1 << 62  # ms; later than any time

_DEADLINE = 2  # bytes beside a vector that has a validity
_MEMORY = 8  # bytes beside a vector that has a significance, and two for each attribute
HEAD = 6  # bytes before the vectors of one event and feature mask


class Wish:
    """One vector that somebody wants to be matched; `ids` are the subscriptions that ask it."""

    __slots__ = ("body", "expires", "features", "ids", "score", "vocabulary", "wides")

    def __init__(self, vocabulary: bytes, body: bytes, masks: Masks) -> None:
        self.vocabulary = vocabulary
        self.body = body
        self.features, self.wides = masks
        self.ids: list[int] = []
        self.expires = 0  # when the last of them does, in our timeline
        self.score = 0.0

    @property
    def event(self) -> int:
        """The event that it asks about."""
        return self.body[0] & 63

    def fits(self, masks: Masks) -> bool:
        """Return whether a device with these features can evaluate it."""
        return not self.features & ~masks[0] and self.wides == masks[1] & self.features


def strip_vector(vector: bytes) -> bytes:
    """Return a vector without handle and validity."""
    return vector[:2] + bytes(2) + vector[4:5] + bytes(1) + vector[6:]


def address_vector(body: bytes, handle: int, validity: int) -> bytes:
    """Return a wish as the vector that a device gets."""
    return body[:2] + handle.to_bytes(2, "big") + body[4:5] + bytes([validity]) + body[6:]


def read_masks(body: bytes) -> Masks:
    """Return the features of a vector, and the wide ones; ProtocolError if it is none."""
    s = subscription.decode(body)
    wides = 0
    for p in s.predicates:
        wides |= (1 << p.attribute) if p.wide else 0
    return s.features, wides


def name_head(body: bytes) -> bytes:
    """Return event and features: vectors that share them share a head on the device."""
    return bytes([body[0] & 63]) + body[6:8]


def measure_wish(body: bytes) -> int:
    """Return the bytes that a device needs for it, apart from the head that it may share."""
    size = len(body) + _DEADLINE
    if body[1] & 8 and body[8] & 0x80 and body[9] & 8:  # it has a significance
        size += _MEMORY + 2 * int.from_bytes(body[6:8], "big").bit_count()
    return size


class WishBook:
    """All wishes, by event, then by vector and vocabulary."""

    def __init__(self) -> None:
        self._shelves: dict[int, dict[tuple[bytes, bytes], Wish]] = {}

    def iterate(self, event: int) -> Iterator[Wish]:
        """Yield the wishes about an event, in whatever vocabulary."""
        yield from self._shelves.get(event, {}).values()

    def add(self, id: int, body: SubscriptionBody, expires: int) -> tuple[Wish, bool] | None:
        """Note a subscription; return its wish and whether that is new, None: not for devices."""
        if body.language != FUZZY:
            return None
        key = strip_vector(body.vector), body.vocabulary
        shelf = self._shelves.setdefault(key[0][0] & 63, {})
        wish = shelf.get(key)
        is_new = wish is None
        if wish is None:
            try:
                wish = shelf[key] = Wish(body.vocabulary, key[0], read_masks(key[0]))
            except ProtocolError:
                return None
        wish.ids.append(id)
        wish.expires = max(wish.expires, expires)
        wish.score += _read_score(body)
        return wish, is_new

    def remove(self, id: int, body: SubscriptionBody) -> tuple[Wish, bool] | None:
        """Forget a subscription; return its wish and whether nobody has it any more."""
        key = strip_vector(body.vector), body.vocabulary
        shelf = self._shelves.get(key[0][0] & 63, {})
        wish = shelf.get(key)
        if body.language != FUZZY or wish is None or id not in wish.ids:
            return None
        wish.ids.remove(id)
        wish.score -= _read_score(body)
        if not wish.ids:
            del shelf[key]
        return wish, not wish.ids


def _read_score(body: SubscriptionBody) -> float:
    score = body.options.get("score", 1)
    return float(score) if isinstance(score, int | float) else 1.0
