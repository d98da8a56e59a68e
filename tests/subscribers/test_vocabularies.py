"""Vocabularies of several nodes: learnt, checked by their hash, compared by what codes mean."""

from __future__ import annotations

import copy
import json

import pytest
from denwatch.client.vocabulary import Vocabulary, build_vocabulary, load_shipped
from denwatch.node.core.items import VOCABULARY, Dot, Item, VocabularyBody, encode_body
from denwatch.node.core.notifications import Vocabularies, shorten_hash, write_document

RESCUE = load_shipped("rescue")


def change(*path: str, value: object) -> Vocabulary:
    document = copy.deepcopy(json.loads(write_document(RESCUE)))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return build_vocabulary(document)


def wrap(body: VocabularyBody) -> Item:
    return Item(Dot("b", 1, 1), VOCABULARY, 0, encode_body(body))


def test_a_vocabulary_travels_whole() -> None:
    known = Vocabularies(load_shipped("weather"))
    body = VocabularyBody(shorten_hash(RESCUE), write_document(RESCUE))
    assert known.learn(wrap(body)) == body
    learnt = known.find(body.hash)
    assert learnt is not None
    assert learnt.hash == RESCUE.hash
    assert known.find_event(body.hash, 1) == RESCUE.events["patient"]
    assert known.find_event(body.hash, 60) is None


@pytest.mark.parametrize(
    ("hash", "document"),
    [
        (b"12345678", write_document(RESCUE)),
        (shorten_hash(RESCUE), "{}"),
        (shorten_hash(RESCUE), "[]"),
        (shorten_hash(RESCUE), "nonsense"),
        (shorten_hash(RESCUE), '{"name": "x", "event": {"a": 7}}'),
    ],
)
def test_what_is_no_vocabulary_of_its_hash_is_refused(hash: bytes, document: str) -> None:
    known = Vocabularies(load_shipped("weather"))
    assert known.learn(wrap(VocabularyBody(hash, document))) is None
    assert hash not in known


def test_vocabularies_agree_where_codes_mean_the_same() -> None:
    known = Vocabularies(RESCUE)
    renamed = change("description", value="the same with another preface")
    wider = change("event", "patient", "attribute", "heart_rate", "domain", value=[0, 300])
    for other in (renamed, wider):
        assert shorten_hash(other) != known.own_hash
        assert known.agree(known.own_hash, shorten_hash(other), 1, 0b10)  # nothing known against it
        known.add(other)
    assert known.agree(known.own_hash, shorten_hash(renamed), 1, 0xFFFF)
    assert not known.agree(known.own_hash, shorten_hash(wider), 1, 0b10)
    assert known.agree(known.own_hash, shorten_hash(wider), 1, 0b1)
    assert not known.agree(known.own_hash, shorten_hash(wider), 60, 0b1)
