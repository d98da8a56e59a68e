"""Global matching in plain Python: every pair asked of the protocol's own definition of a match."""

from __future__ import annotations

from typing import NamedTuple

from denwatch.protocol import notification, subscription
from denwatch.protocol.matching import match


class Sub(NamedTuple):
    id: int
    subscriber: str
    begins: int
    ends: int
    vector: bytes


class Note(NamedTuple):
    id: int
    at: int
    doubt: int
    vector: bytes


Found = tuple[int, int, str, int, int, int]


def find_matches(notes: list[Note], subs: list[Sub]) -> set[Found]:
    """Return (note, subscription, subscriber, possible, certain, attribute) of all matches."""
    found: set[Found] = set()
    decoded = [(sub, subscription.decode(sub.vector)) for sub in subs]
    for note in notes:
        vector = notification.decode(note.vector)
        for sub, asked in decoded:
            if not sub.begins - note.doubt <= note.at < sub.ends:
                continue
            answer = match(asked, vector, 0)
            if answer is not None and answer.matched:
                attribute = asked.predicates[answer.predicate].attribute
                degrees = answer.possible, answer.certain, attribute
                found.add((note.id, sub.id, sub.subscriber, *degrees))
    return found
