"""Names and keys that are not good enough."""

from __future__ import annotations

import random

import pytest
from denwatch.node.security.credentials import (
    SecurityError,
    check_distinct,
    check_name,
    check_secret,
    find_weakness,
    make_secret,
    read_secret,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("name", ["medic7", "node-a", "a", "A.b_c-9", "x" * 64])
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "+", "#", "a/b", "a b", "-a", ".a", "a+", "a#", "é", "x" * 65, "a\n", "a\0", "$SYS"],
)
def test_names_that_would_change_a_topic_are_refused(name: str) -> None:
    with pytest.raises(SecurityError):
        check_name(name)


@given(st.text(max_size=70))
def test_a_good_name_is_one_level_of_a_topic(name: str) -> None:
    try:
        check_name(name)
    except SecurityError:
        return
    assert name.isascii()
    assert not set(name) & set("+#/$ \0")


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (b"", "0 bytes"),
        (b"\x01\x02\x03", "3 bytes"),
        (bytes(32), "different bytes"),
        (bytes(range(32)), "count"),
        (bytes(range(64, 32, -1)), "count"),
        (bytes(range(0, 96, 3)), "count"),
        (bytes.fromhex("0011223344556677") * 4, "only 8 different"),
        (bytes.fromhex("9f1c22d34450667718") * 3, "repeated"),
        (b"correct horse battery staple", "text"),
        (bytes(65), "65 bytes"),
    ],
)
def test_weak_keys_are_refused_with_the_reason(secret: bytes, words: str) -> None:
    with pytest.raises(SecurityError, match=words):
        check_secret(secret)


def test_random_keys_are_good() -> None:
    rng = random.Random(7)
    for length in (16, 24, 32, 64):
        for _ in range(200):
            assert find_weakness(rng.randbytes(length)) == ""
    assert len(make_secret()) == 32


def test_a_key_is_read_from_hexadecimal() -> None:
    secret = make_secret()
    assert read_secret(secret.hex()) == secret
    with pytest.raises(SecurityError, match="not hexadecimal"):
        read_secret("zz")


def test_equal_keys_are_refused_by_their_owners_names() -> None:
    one, two = make_secret(), make_secret()
    check_distinct([("a", one), ("b", two)])
    with pytest.raises(SecurityError, match="c: has the same key as a"):
        check_distinct([("a", one), ("b", two), ("c", one)])
