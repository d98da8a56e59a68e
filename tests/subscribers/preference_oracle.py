"""Definition 6 over all subscriptions of a person, in plain Python; shares no code with `edge`.

Every decision looks at the whole history of what the person received, wherever that was. Times are
plain numbers. A match is (name, score, level).
"""

from __future__ import annotations

import math


class PersonOracle:
    """One person who walks between nodes that tell each other everything when the person walks."""

    def __init__(self, k, last=0, within=0, fading=0, by="maximum", weights=None):
        self.k, self.last, self.within, self.fading = k, last, within, fading
        self.by, self.weights = by, weights or {}
        self.received = []  # (level, value, decided, until, turn)
        self.turns = {}  # by node
        self.node = "a"

    def walk(self, node):
        """What was delivered has a number; the next node goes on from the highest."""
        self.node = node
        highest = max((turn for *_, turn in self.received), default=0)
        self.turns[node] = max(self.turns.get(node, 0), highest)

    def rank(self, matches):
        level = min(level for _, _, level in matches)
        deciding = [(name, score) for name, score, its in matches if its == level]
        scores = [score for _, score in deciding]
        if self.by == "mean":
            return level, math.fsum(scores) / len(scores)
        if self.by == "minimum":
            return level, min(scores)
        if self.by == "sum":
            return level, math.fsum(s * self.weights.get(name, 1) for name, s in deciding)
        return level, max(scores)

    def is_better(self, entry, level, value, now, turn):
        its_level, its_value, decided, until, its_turn = entry
        if until <= now or (self.within and decided + self.within <= now):
            return False
        if self.last and turn - its_turn >= self.last:
            return False
        if self.fading:
            if decided + self.fading <= now:
                return False
            its_value *= 1 - (now - decided) / self.fading
        return its_level < level or (its_level == level and its_value > value)

    def offer(self, matches, now, until):
        """Return whether a notification is delivered."""
        turn = self.turns[self.node] = self.turns.get(self.node, 0) + 1
        level, value = self.rank(matches)
        better = [e for e in self.received if self.is_better(e, level, value, now, turn)]
        if len(better) >= self.k:
            return False
        self.received.append((level, value, now, until, turn))
        return True
