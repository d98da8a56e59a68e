"""Covering by enumeration: what the library must agree with. Plain Python, sharing no code with it.

A notification is the set of its features and a value for each. Over small domains all of them
can be listed, so a subscription *is* the set of notifications that match it, kept as the bits
of one integer.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

Box = dict[int, tuple[int, int]]
Plain = tuple[int, tuple[Box, ...], tuple[Box, ...]]  # mask, where surely, where at most


class World:
    """All notifications over a few attributes."""

    def __init__(self, domains: list[tuple[int, int]]) -> None:
        self.domains = domains
        self.notifications = [
            (mask, dict(zip(bits, values, strict=True)))
            for mask in range(1 << len(domains))
            for bits in [[b for b in range(len(domains)) if mask & (1 << b)]]
            for values in product(*(range(domains[b][0], domains[b][1] + 1) for b in bits))
        ]

    def match(self, plain: Plain, outer: bool = False) -> int:
        """Return the notifications that surely match, or that can match, one bit each."""
        mask, boxes = plain[0], plain[2] if outer else plain[1]
        bits = 0
        for number, (features, values) in enumerate(self.notifications):
            if mask & features == mask and any(
                all(low <= values[b] <= high for b, (low, high) in box.items()) for box in boxes
            ):
                bits |= 1 << number
        return bits

    def list_points(self, mask: int, covered: int) -> set[tuple[int, ...]]:
        """Return the values over exactly this mask that are not covered."""
        return {
            tuple(values[b] for b in sorted(values))
            for number, (features, values) in enumerate(self.notifications)
            if features == mask and not covered >> number & 1
        }

    def measure(self, plain: Plain) -> Fraction:
        """Return the sum of the distinct sure boxes' shares of the space over the mask."""
        mask, boxes, _ = plain
        clipped = set()
        for box in boxes:
            sides = []
            for b, (least, most) in enumerate(self.domains):
                if mask & (1 << b):
                    low, high = box.get(b, (least, most))
                    sides.append((max(low, least), min(high, most)))
            if all(low <= high for low, high in sides):
                clipped.add(tuple(sides))
        total, whole = Fraction(0), Fraction(1)
        for b, (least, most) in enumerate(self.domains):
            if mask & (1 << b):
                whole *= most - least + 1
        for sides_of in clipped:
            volume = Fraction(1)
            for low, high in sides_of:
                volume *= high - low + 1
            total += volume
        return total / whole


class Model:
    """The exact table, by definition: passive is what the active ones cover."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sure: dict[int, int] = {}
        self.possible: dict[int, int] = {}
        self.plain: dict[int, Plain] = {}
        self.active: set[int] = set()

    def cover(self, ids: set[int]) -> int:
        """Return what these subscriptions surely match together."""
        bits = 0
        for i in ids:
            bits |= self.sure[i]
        return bits

    def adds(self, i: int) -> bool:
        """Say whether a subscription can match anything that the active ones may not."""
        return bool(self.possible[i] & ~self.cover(self.active - {i}))

    def subscribe(self, i: int, plain: Plain) -> bool:
        self.plain[i] = plain
        self.sure[i], self.possible[i] = self.world.match(plain), self.world.match(plain, True)
        if self.adds(i):
            self.active.add(i)
        return i in self.active

    def unsubscribe(self, i: int) -> list[int]:
        was_active = i in self.active
        self.active.discard(i)
        del self.plain[i], self.sure[i], self.possible[i]
        return self.activate(set(self.plain) - self.active) if was_active else []

    def activate(self, passive: set[int]) -> list[int]:
        """Make those active, the widest first, that add something."""
        back = []
        for p in sorted(passive, key=self.rank):
            if self.adds(p):
                self.active.add(p)
                back.append(p)
        return back

    def rebuild(self) -> None:
        self.active = set()
        self.activate(set(self.plain))

    def rank(self, i: int) -> tuple[int, Fraction, int]:
        return bin(self.plain[i][0]).count("1"), -self.world.measure(self.plain[i]), i
