"""The protocol's core on the emulated micro:bit: golden vectors, the same answers as CPython, and
a buffer of subscriptions evaluated where it lies, all within the board's 9 KB heap."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from denwatch.protocol import degrees
from denwatch.protocol.subscription import encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector

from firmware_tests.core import (
    FUNCTIONS,
    Vector,
    bundle_core,
    list_mismatches,
    list_vectors,
    start_parts,
    store_parts,
)
from firmware_tests.microbit import Microbit, Name
from firmware_tests.runtimes import find_microbit
from firmware_tests.support import require
from tests.protocol import evaluator

SUBSCRIPTIONS = 60
SIZE = 17  # bytes of a subscription vector with three plain predicates


PARTS = bundle_core()


@pytest.fixture(scope="module")
def board() -> Iterator[Microbit]:
    require(find_microbit)
    with Microbit() as running:
        store_parts(running, PARTS)
        yield running


def test_golden_vectors(board: Microbit) -> None:
    vectors = list_vectors()
    assert {name for name, _, _ in vectors} == set(FUNCTIONS)
    start_parts(board, PARTS)
    assert list_mismatches(board, vectors) == []


def make_arithmetic(rng: Random) -> Iterator[Vector]:
    """Yield random calls of the arithmetic with CPython's answers, the extremes among them."""

    def call(name: str, *args: Any) -> Vector:
        return name, args, getattr(degrees, name)(*args)

    for wide in (0, 1):
        last = 65535 if wide else 255
        for _ in range(60):
            low, high = sorted(rng.choice([0, last, rng.randint(0, last)]) for _ in range(2))
            codes = [rng.choice([0, 254, 255, rng.randint(0, 255)]) for _ in range(2)]
            yield call(
                "fuzzify", rng.choice([0, last, rng.randint(0, last)]), low, high, *codes, wide
            )
    for code in (1, 2, 3, 5, 15):
        for degree in (0, 1, 127, 254, 255):
            yield call("hedge", degree, code)
    for kind in range(degrees.SUGENO):
        for count in (1, 2, 3, 16):
            for least in (0, 1, 255):
                scratch = bytearray(rng.randint(least, 255) for _ in range(count))
                weights = bytes(rng.randint(1, 255) for _ in range(count))
                yield call("aggregate", kind, scratch, 0, count, weights, 0)


def test_arithmetic_answers_as_on_cpython(board: Microbit) -> None:
    start_parts(board, PARTS)
    assert list_mismatches(board, make_arithmetic(Random(2))) == []


def test_buffer_of_subscriptions_is_evaluated_in_place(board: Microbit) -> None:
    rng = Random(3)
    buffer = b""
    for _ in range(SUBSCRIPTIONS):
        predicates = []
        for attribute in sorted(rng.sample(range(4), 3)):
            low, high = sorted(rng.randint(0, 255) for _ in range(2))
            predicates.append(Predicate(attribute, low, high, rng.randint(0, 255)))
        kind = rng.randrange(degrees.WEIGHTED)
        buffer += encode(SubscriptionVector(1, predicates, kind, rng.randint(1, 200)))
    assert len(buffer) == SUBSCRIPTIONS * SIZE
    start_parts(board, PARTS, len(buffer), evaluator.SCRATCH)
    pieces = [(at, buffer[at : at + SIZE]) for at in range(0, len(buffer), SIZE)]
    board.call([("fill", piece) for piece in pieces])
    scratch = bytearray(evaluator.SCRATCH)
    vectors: list[Vector] = []
    for at in range(0, len(buffer), SIZE):
        values = [rng.randint(0, 255) for _ in range(4)]
        for present in (0xF, 0x7):
            degree = evaluator.evaluate(buffer, at, present, values, scratch)
            args = (Name("buffer"), at, present, values, Name("scratch"))
            vectors.append(("evaluate", args, degree))
    assert len({degree for _, _, degree in vectors}) > 15  # matches, misses and non-candidates
    assert list_mismatches(board, vectors) == []
