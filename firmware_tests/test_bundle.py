"""The shrunk code means the same as its source: checked where that is fast, on CPython."""

from __future__ import annotations

from typing import Any

import pytest

from firmware_tests.bundle import PART_SIZE, bundle

FIRST = '''
"""A module."""
try:
    from micropython import const
except ImportError:
    def const(value: int) -> int:
        return value

LIMIT = const(0x10)
_STEP = const(-3)
TABLE = b"\\x01\\x02\\n"

def b(value: int, one: int = 1) -> int:
    """Return one less; the short name must not be taken for a local one."""
    return value - one

def clip(value: int, other: bytes = b"") -> int:
    """Return the value, at most LIMIT."""
    local: int
    local = b(value + TABLE[0])
    return LIMIT if local > LIMIT else local

def unused(value):
    return value
'''
SECOND = '''
from first import LIMIT, clip

def walk(count: int, values: list[int]) -> list[int]:
    """Call clip, and itself."""
    if not count:
        return [clip(value) for value in values if value != LIMIT]
    return walk(count - 1, values)
'''


def load(parts: list[str]) -> dict[str, Any]:
    """Run the parts in one namespace, as the board does."""
    names: dict[str, Any] = {}
    for part in parts:
        exec(part, names)
    return names


def test_wanted_functions_work_and_the_rest_is_gone() -> None:
    parts = bundle([FIRST, SECOND], ["walk"])
    assert load(parts)["walk"](2, [1, 16, 40]) == [1, 16]
    text = "".join(parts)
    for gone in ("unused", "LIMIT", "const", "int", '"""', "local", "first"):
        assert gone not in text


def test_long_definitions_are_parts_of_their_own_and_come_first() -> None:
    lines = "".join(f"    x += {number}\n" for number in range(PART_SIZE // 8))
    source = f"def low(x):\n    return x\ndef high(x):\n{lines}    return low(x)\n"
    parts = bundle([source], ["low", "high"])
    assert [part.splitlines()[0] for part in parts] == ["def high(a):", "def low(a):"]
    assert load(parts)["high"](5) == 5 + sum(range(PART_SIZE // 8))


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (["def other(): pass"], "wanted is not defined"),
        (["def wanted(): pass", "def wanted(): pass"], "two modules define wanted"),
        (["X = const(1)\ndef wanted(): return X", "X = const(2)"], "two modules define X"),
        (["class wanted: pass"], "a ClassDef cannot be bundled"),
        (["def wanted():\n    return lambda: 1"], "Lambda cannot be renamed"),
        (["def wanted(a):\n    return wanted(a=1)"], "keyword cannot be renamed"),
        (["X = const(1)\ndef wanted():\n    X = 2"], "X is a constant"),
        (["T = b''\ndef wanted(a=T): pass"], "wanted needs T before it is called"),
        (["T = b''\nwanted = T + T"], "wanted needs T before it is called"),
        (["wanted = {}\nwanted['a'] = 1"], "only plain names"),
    ],
)
def test_what_is_unsafe_is_refused(sources: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bundle(sources, ["wanted"])
