"""A start looks up what it knows of vectors, and answers the same without that."""

from __future__ import annotations

import pytest
from denwatch.node.core import stored_facts, subscriptions

from tests.subscribers.subscriber_node import SubscriberNode, patient

SPACE = stored_facts.FACT
WORDS = (
    "heart_rate is high",
    "heart_rate is very high and patient_temperature is not normal",
    "heart_rate is high or patient_temperature is high",
    "heart_rate is high, quiet for 5 min",
    "heart_rate above 100 /min",
)


def ask_all() -> SubscriberNode:
    node = SubscriberNode()
    for number, words in enumerate(WORDS):
        assert node.ask(f"m{number}", f"{words}, named a")["ok"]
    assert node.ask("again", f"{WORDS[0]}, named a")["ok"]  # two with one vector
    return node


def read_all(node: SubscriberNode) -> list[tuple[str, object]]:
    """Return who has what waiting, with its degree, after some readings."""
    for rate in (80, 105, 125, 150, 190):
        node.read(patient(heart_rate=rate, patient_temperature=40.2))
        node.read(patient(heart_rate=(rate - 9, rate - 3, rate + 3, rate + 9)))
    found = []
    for name in [*(f"m{number}" for number in range(len(WORDS))), "again"]:
        sent = node.attach(name)
        found.append((name, len(sent)))
        found += [(name, publish.payload.split(b'"degree"')[1][:8]) for publish in sent]
    return found


def test_facts_are_written_at_the_next_starts_ticks_and_used() -> None:
    expected = read_all(ask_all())
    assert any(count for _, count in expected)
    node = ask_all().reopen()  # a crash; no facts yet
    assert SPACE not in node.medium.spaces or not node.medium.spaces[SPACE]
    node.tick()
    assert len(node.medium.spaces[SPACE]) == 1
    node.tick()
    assert len(node.medium.spaces[SPACE]) == 1  # written once
    node = node.reopen()
    assert read_all(node) == expected
    node.tick()
    assert len(node.medium.spaces[SPACE]) == 1  # nothing new was learnt


def test_a_start_with_facts_does_not_decode_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    node = ask_all().reopen()
    node.tick()
    decoded: list[bytes] = []
    decode = subscriptions.decode_content
    monkeypatch.setattr(
        subscriptions, "decode_content", lambda body: (decoded.append(body.vector), decode(body))[1]
    )
    node = node.reopen()
    assert 0 < len(decoded) < len(WORDS)  # the "or", and what has a significance


@pytest.mark.parametrize("how", ["cut", "changed", "empty"])
def test_facts_that_are_of_no_use_are_dropped_and_written_anew(how: str) -> None:
    expected = read_all(ask_all())
    node = ask_all().reopen()
    node.tick()
    chunks = node.medium.spaces[SPACE]
    (key, value), *_ = chunks.items()
    chunks[key] = {"cut": value[:-9], "changed": value[:30] + b"x" + value[31:], "empty": b""}[how]
    node = node.reopen()
    assert read_all(node) == expected
    node.tick()
    node.tick()
    assert list(node.medium.spaces[SPACE].values()) == [value]


def test_facts_of_those_who_left_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_facts, "_CHUNK", 1)
    node = ask_all().reopen()
    for _ in range(9):
        node.tick()
    count = len(node.medium.spaces[SPACE])
    assert count == 3  # of plain vectors, one a chunk
    for number in range(len(WORDS)):
        assert node.ask(f"m{number}", "unsubscribe a")["ok"]
    node.ask("again", "unsubscribe a")
    node = node.reopen()
    for _ in range(9):
        node.tick()
    assert not node.medium.spaces[SPACE]
