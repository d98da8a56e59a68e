"""Passwords: hashes, what is remembered, what is too easy."""

from __future__ import annotations

import base64
import hashlib

import pytest
from denwatch.node.security.credentials import (
    COST_MADE,
    SecurityError,
    VerifiedPasswords,
    check_chosen,
    check_hash,
    hash_password,
    make_hash,
    make_password,
    open_hash,
    verify_password,
)

PASSWORD = "stretcher-7-north"


def test_a_hash_is_scrypt_as_hashlib_computes_it() -> None:
    salt = bytes(range(16))
    text = hash_password(b"secret", salt, 10)
    expected = hashlib.scrypt(b"secret", salt=salt, n=1024, r=8, p=1, dklen=32)
    assert text.startswith("scrypt$10$8$1$")
    import base64

    assert base64.b64decode(text.rpartition("$")[2]) == expected


def test_only_the_password_verifies() -> None:
    text = make_hash(PASSWORD, COST_MADE)
    assert verify_password(text, PASSWORD.encode())
    for wrong in ("", PASSWORD[:-1], PASSWORD + "x", PASSWORD.upper()):
        assert not verify_password(text, wrong.encode())
    assert make_hash(PASSWORD, COST_MADE) != text  # another salt


def test_a_huge_password_is_refused_unread() -> None:
    assert not verify_password(make_hash(PASSWORD, COST_MADE), b"x" * 100_000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "scrypt$14$8$1$AA==$AA==",
        "scrypt$4$8$1$AAAAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "=",
        "scrypt$30$8$1$AAAAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "=",
        "scrypt$x$8$1$AAAAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "=",
        "scrypt$14$8$1$A?AAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "=",
        "bcrypt$14$8$1$AAAAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "=",
    ],
)
def test_what_is_no_hash_is_refused(text: str) -> None:
    with pytest.raises(SecurityError, match="medic7"):
        check_hash(text, "medic7")


def test_a_right_password_is_computed_once_and_a_wrong_one_each_time() -> None:
    known = VerifiedPasswords(b"k" * 32)
    text = make_hash(PASSWORD, COST_MADE)
    assert not known.is_known(text, PASSWORD.encode())
    assert len({known.open(text, PASSWORD.encode()) for _ in range(3)} - {None}) == 1
    assert known.computed == 1
    for _ in range(3):
        assert known.open(text, b"wrong") is None
    assert known.computed == 4


def test_a_remembered_password_is_not_good_for_another_hash() -> None:
    known = VerifiedPasswords(b"k" * 32)
    assert known.open(make_hash(PASSWORD, COST_MADE), PASSWORD.encode())
    assert known.open(make_hash("another-one-9", COST_MADE), PASSWORD.encode()) is None


def test_the_secret_of_a_password_does_not_follow_from_its_hash() -> None:
    text = make_hash(PASSWORD, COST_MADE)
    secret = open_hash(text, PASSWORD.encode())
    assert secret == open_hash(text, PASSWORD.encode())
    assert secret is not None
    assert len(secret) == 32
    assert base64.b64encode(secret).decode() not in text
    salt = base64.b64decode(text.split("$")[4])
    alone = hashlib.scrypt(PASSWORD.encode(), salt=salt, n=1 << COST_MADE, r=8, p=1, dklen=32)
    assert base64.b64encode(alone).decode() == text.split("$")[5]  # as older versions stored it
    assert secret != open_hash(make_hash(PASSWORD, COST_MADE), PASSWORD.encode())


@pytest.mark.parametrize(
    ("password", "words"),
    [("short", "12 characters"), ("aaaaaaaaaaaaaa", "few different"), ("medic7-is-here", "name")],
)
def test_easy_passwords_are_refused(password: str, words: str) -> None:
    with pytest.raises(SecurityError, match=words):
        check_chosen(password, "medic7")
    check_chosen(PASSWORD, "medic7")


def test_made_passwords_differ_and_can_be_typed() -> None:
    made = {make_password() for _ in range(50)}
    assert len(made) == 50
    assert all(
        len(one) == 35 and set(one) <= set("abcdefghjkmnpqrstuvwxyz23456789-") for one in made
    )
