"""Mutations of scripts, which know their structure. Pure: a script and a generator in, one out.

A *script* is what one input is: a CBOR document, such as a list of frames. A mutation changes one
place of its tree. A byte string in it that is CBOR or JSON itself is taken apart and changed
inside; other byte strings are damaged as bytes. So what is sealed, signed or counted around the
place stays right, and the change gets as far into a node as it can.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import cbor2

_NUMBERS = (
    *(0, 1, -1, 2, 7, 23, 24, 127, 128, 255, 256, 65_535, 65_536, -(2**31), 2**31, 2**32 - 1),
    *(
        2**32,
        2**48 - 1,
        2**48,
        2**53,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63),
        -(2**64),
        10**40,
    ),
)
_FLOATS = (0.5, -0.0, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "",
    " ",
    "\0",
    "\ud800",
    "\ufeff",
    "x" * 300,
    "é" * 40,
    "1e999",
    "-",
    "/",
    "#",
    "+",
    '"',
    "<",
    "{",
)
_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, b"", [[]], [None], {"": None}, {0: 0})
_DEEP = 600  # levels: less than Python's own limit in a decoder, more than a careless reader has
_LONGEST = 1 << 16  # bytes of a script; beyond it nothing new is learnt


def mutate_script(data: bytes, rng: Random, donors: Sequence[bytes] = ()) -> bytes:
    """Return a script with one to four places changed; `donors` are scripts to take parts from."""
    value = load_script(data)
    for _ in range(1 << rng.randrange(3)):
        other = load_script(rng.choice(donors)) if donors else None
        value = _change(value, rng, other)
    try:
        changed = cbor2.dumps(value)
    except (ValueError, TypeError, OverflowError, RecursionError, cbor2.CBOREncodeError):
        return data  # a text that UTF-8 cannot hold, outside of JSON
    return changed if len(changed) <= _LONGEST else data


def load_script(data: bytes) -> Any:
    """Return what a script says; None if it is none."""
    try:
        return cbor2.loads(data)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is no script
        return None


def _change(value: Any, rng: Random, donor: Any) -> Any:
    """Return a value with one place of its tree changed."""
    if isinstance(value, list) and value and rng.random() < 0.95:
        at = _choose(value, rng)
        choice = rng.randrange(16)
        if choice == 0:
            return value[:at] + value[at + 1 :]
        if choice == 1:
            return value[: at + 1] + value[at:]
        if choice == 2:
            return [*value[:at], _draw(rng, donor), *value[at:]]
        if choice == 3:
            other = rng.randrange(len(value))
            return [
                value[other] if i == at else value[at] if i == other else v
                for i, v in enumerate(value)
            ]
        return [_change(v, rng, donor) if i == at else v for i, v in enumerate(value)]
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = list(value)[_choose(list(value.values()), rng)]
        changed = dict(value)
        choice = rng.randrange(8)
        if choice == 0:
            del changed[key]
        elif choice == 1:
            name = _change(key, rng, donor)
            changed[name if isinstance(name, str | int | bytes) else key] = changed.pop(key)
        elif choice == 2 and isinstance(donor, dict):
            changed |= donor
        else:
            changed[key] = _change(value[key], rng, donor)
        return changed
    if isinstance(value, bytes):
        return _change_bytes(value, rng, donor)
    if isinstance(value, str) and rng.random() < 0.7:
        return _change_text(value, rng)
    if type(value) is int and rng.random() < 0.6:
        return (
            value + rng.choice((1, -1, 2, 256, -256))
            if rng.random() < 0.5
            else value ^ 1 << rng.randrange(64)
        )
    return _draw(rng, donor)


def _choose(parts: list[Any], rng: Random) -> int:
    """Return which part to change: a larger one more often, as there is more to change in it."""
    return rng.choices(range(len(parts)), [_weigh(part) for part in parts])[0]


def _weigh(value: Any) -> int:
    if isinstance(value, list | dict):
        return 2 + sum(map(_weigh, value.values() if isinstance(value, dict) else value))
    return 2 + min(len(value) // 4, 20) if isinstance(value, str | bytes) else 2


def _draw(rng: Random, donor: Any) -> Any:
    """Return a value that readers seldom meet, or a part of another script."""
    choice = rng.randrange(8)
    if choice == 0 and donor is not None:
        part = donor
        while isinstance(part, list | dict) and part and rng.random() < 0.8:
            part = rng.choice(list(part.values()) if isinstance(part, dict) else part)
        return part
    if choice == 1:
        return rng.choice(_FLOATS)
    if choice == 2:
        return rng.choice(_OTHERS)
    if choice == 3:
        return rng.randbytes(rng.randrange(40))
    if choice == 4 and rng.random() < 0.1:
        deep: Any = []
        for _ in range(_DEEP):
            deep = [deep]
        return deep
    return rng.choice(_TEXTS) if choice < 6 else rng.choice(_NUMBERS)


def _change_bytes(data: bytes, rng: Random, donor: Any) -> bytes:
    """Return bytes with a change: inside what they encode, of their words, or of the bytes."""
    choice = rng.random()
    if choice < 0.8 and data[:1] in (b"{", b"["):
        try:
            return json.dumps(_change(json.loads(data), rng, donor)).encode()
        except (ValueError, TypeError, RecursionError):
            pass
    elif choice < 0.6 and data:
        inner = load_script(data)
        if isinstance(inner, list | dict):
            try:
                return cbor2.dumps(_change(inner, rng, donor))
            except (ValueError, TypeError, OverflowError, RecursionError, cbor2.CBOREncodeError):
                pass
    elif choice < 0.85:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = ""
        if " " in text:
            return _change_text(text, rng).encode("utf-8", "surrogatepass")
    return _damage(data, rng)


def _change_text(text: str, rng: Random) -> str:
    """Return a text with a word dropped, repeated or replaced, or with another character."""
    words = text.split(" ")
    at = rng.randrange(len(words))
    choice = rng.randrange(5)
    if choice == 0:
        del words[at]
    elif choice == 1:
        words.insert(at, rng.choice(words))
    elif choice == 2:
        words[at] = rng.choice(_TEXTS)
    elif choice == 3:
        words[at] = str(rng.choice((*_NUMBERS, *_FLOATS)))
    else:
        place = rng.randrange(len(text) + 1)
        return (
            text[:place]
            + chr(rng.choice((0, 34, 44, 60, 64, 123, 0x2028, 0x1F600)))
            + text[place + 1 :]
        )
    return " ".join(words)


def _damage(data: bytes, rng: Random) -> bytes:
    """Return bytes with a few changed, cut, doubled or put in."""
    changed = bytearray(data)
    for _ in range(1 + rng.randrange(3)):
        at = rng.randrange(len(changed) + 1)
        choice = rng.randrange(7)
        if choice == 0:
            del changed[at:]
        elif choice == 1:
            changed[at:at] = bytes([rng.randrange(256)])
        elif choice == 2:
            changed += changed[at:]
        elif choice == 3:
            del changed[at : at + 1 + rng.randrange(4)]
        elif choice == 4:
            changed[at : at + 1] = rng.choice(
                (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff")
            )
        elif at < len(changed):
            changed[at] = changed[at] ^ 1 << rng.randrange(8) if choice == 5 else rng.randrange(256)
    return bytes(changed)


def shrink_script(data: bytes, shows: Any) -> bytes:
    """Return the smallest script found for which `shows(script)` still holds."""
    smallest = data
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in _list_smaller(load_script(smallest)):
            try:
                encoded = cbor2.dumps(candidate)
            except (ValueError, TypeError, RecursionError):
                continue
            if len(encoded) < len(smallest) and shows(encoded):
                smallest, is_smaller = encoded, True
                break
    return smallest


def _list_smaller(value: Any) -> Any:
    """Yield values that are this one without a part, or with a smaller part."""
    if isinstance(value, list):
        size = len(value)
        for step in (size // 2, 1):
            for at in range(0, size, max(1, step)):
                if step:
                    yield value[:at] + value[at + step :]
        for at, part in enumerate(value):
            for smaller in _list_smaller(part):
                yield [*value[:at], smaller, *value[at + 1 :]]
    elif isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
        for key, part in value.items():
            for smaller in _list_smaller(part):
                yield {**value, key: smaller}
    elif isinstance(value, bytes):
        inner = load_script(value)
        if isinstance(inner, list | dict) and cbor2.dumps(inner) == value:
            for smaller in _list_smaller(inner):
                yield cbor2.dumps(smaller)
        size = len(value)
        for step in sorted({size // 2, size // 4, 8, 1}, reverse=True):
            if 0 < step <= size:
                for at in range(0, size, step):
                    yield value[:at] + value[at + step :]
    elif isinstance(value, str) and value:
        yield value[: len(value) // 2]
        yield value[1:]
    elif type(value) is int and value:
        yield 0
        yield value // 2
