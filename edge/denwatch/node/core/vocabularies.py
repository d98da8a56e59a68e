"""The vocabularies that a node knows, by the first eight bytes of their content hash.

One is the node's own: requests are compiled with it. Others come as items from other nodes, so
that what was read or asked for elsewhere can be named here. Only this file turns a vocabulary into
an item and back.
"""

from __future__ import annotations

import json

from denwatch.client.errors import LanguageError
from denwatch.client.vocabulary import Attribute, EventType, Vocabulary, build_vocabulary
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import (
    NEVER,
    VOCABULARY,
    Item,
    VocabularyBody,
    decode_body,
    encode_body,
)
from denwatch.node.core.transaction import Transaction
from denwatch.protocol.errors import ProtocolError

HASH_SIZE = 8


def shorten_hash(vocabulary: Vocabulary) -> bytes:
    """Return the eight bytes by which items call a vocabulary."""
    return bytes.fromhex(vocabulary.hash)[:HASH_SIZE]


def write_document(vocabulary: Vocabulary) -> str:
    """Return a vocabulary's document as JSON, in its own order: terms build on earlier ones."""
    return json.dumps(vocabulary.document, separators=(",", ":"), ensure_ascii=False, default=str)


def _shape(attribute: Attribute | None) -> tuple[object, ...] | None:
    """Return what a code of the attribute means, whatever the attribute is called."""
    if attribute is None:
        return None
    a = attribute
    return (a.kind, a.low, a.high, a.unit, a.wide, a.symbols)


def list_sensed(vocabulary: Vocabulary) -> dict[int, tuple[int, int]]:
    """Return what a vocabulary lets a device sense: by event, features and those with 16 bits."""
    sensed = {}
    for event in vocabulary.events.values():
        features = wides = 0
        for attribute in event.attributes.values():
            features |= 1 << attribute.bit
            wides |= (1 << attribute.bit) if attribute.wide else 0
        sensed[event.number] = features, wides
    return sensed


class Vocabularies:
    """The node's own vocabulary and those that it has learnt."""

    def __init__(self, own: Vocabulary) -> None:
        self.own = own
        self.own_hash = shorten_hash(own)
        self._known = {self.own_hash: own}
        self._events: dict[tuple[bytes, int], EventType | None] = {}
        self._sensed: dict[bytes, dict[int, tuple[int, int]]] = {}
        self._agreements: dict[tuple[bytes, bytes, int, int], bool] = {}

    def __contains__(self, hash: bytes) -> bool:
        return hash in self._known

    def find(self, hash: bytes) -> Vocabulary | None:
        """Return the vocabulary of a hash."""
        return self._known.get(hash)

    def find_sensed(self, hash: bytes) -> dict[int, tuple[int, int]] | None:
        """Return what the vocabulary of a hash lets a device sense; None: unknown."""
        if hash not in self._sensed:
            vocabulary = self._known.get(hash)
            if vocabulary is None:
                return None
            self._sensed[hash] = list_sensed(vocabulary)
        return self._sensed[hash]

    def find_event(self, hash: bytes, number: int) -> EventType | None:
        """Return the event of a number in the vocabulary of a hash."""
        key = hash, number
        if key not in self._events:
            vocabulary = self._known.get(hash)
            self._events[key] = None if vocabulary is None else vocabulary.find_number(number)
        return self._events[key]

    def agree(self, one: bytes, other: bytes, event: int, features: int) -> bool:
        """Return whether two vocabularies give an event's codes the same meaning.

        A synonym more makes another vocabulary, and yet all codes stay what they were. Of a
        vocabulary that is not known here nothing is held against it.
        """
        if one == other:
            return True
        key = one, other, event, features
        answer = self._agreements.get(key)
        if answer is None:
            answer = self._compare(one, other, event, features)
            if one in self._known and other in self._known:
                self._agreements[key] = answer
        return answer

    def _compare(self, one: bytes, other: bytes, number: int, features: int) -> bool:
        if one not in self._known or other not in self._known:
            return True
        left, right = self.find_event(one, number), self.find_event(other, number)
        if left is None or right is None or left.name != right.name:
            return False
        return all(
            _shape(left.find_bit(bit)) == _shape(right.find_bit(bit))
            for bit in range(16)
            if features >> bit & 1
        )

    def learn(self, item: Item) -> VocabularyBody | None:
        """Take a vocabulary from an item; None for one that is no vocabulary of its hash."""
        try:
            body = decode_body(VocabularyBody, item.body)
            vocabulary = build_vocabulary(json.loads(body.document))
        except (ProtocolError, LanguageError, ValueError, AttributeError, TypeError):
            return None
        if shorten_hash(vocabulary) != body.hash:
            return None
        self.add(vocabulary)
        return body

    def add(self, vocabulary: Vocabulary) -> None:
        """Know one more vocabulary."""
        hash = shorten_hash(vocabulary)
        if hash not in self._known:
            self._known[hash] = vocabulary
            self._events = {key: e for key, e in self._events.items() if key[0] != hash}

    def announce(self, transaction: Transaction, item_store: ItemStore) -> bool:
        """Make an item of the node's own vocabulary, unless one is held; return whether."""
        for item in item_store.iterate(transaction, VOCABULARY):
            try:
                if decode_body(VocabularyBody, item.body).hash == self.own_hash:
                    return False
            except ProtocolError:
                continue  # somebody else's mistake; `learn` has said so
        body = VocabularyBody(self.own_hash, write_document(self.own))
        item_store.originate(transaction, VOCABULARY, NEVER, encode_body(body))
        return True
