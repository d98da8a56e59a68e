"""Lies made from the forms of messages: everything that somebody with good keys can say.

A lie begins as a message that could be true and is then changed in one place, seldom in two or
none: a number that is too large by one, by 2**32 or by 2**64, a text that is too long or cannot be
encoded, a value of another type, something missing or nested. So it comes as far as it can before
somebody refuses it. Pure: a generator of random numbers in, bytes out; who signs and seals them is
in `liars.py`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from denwatch.node.core.items import (
    ANNOUNCEMENT,
    CLAIM,
    DELIVERED,
    NEVER,
    NOTIFICATION,
    PREFERENCE,
    REMOVAL,
    REVOCATION,
    SUBSCRIPTION,
    VOCABULARY,
    Dot,
)
from denwatch.node.replication import wire
from denwatch.node.replication.dot_sets import Run, Spans
from denwatch.protocol import notification
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import NotificationVector, Reading

NUMBERS = (
    *(0, 1, -1, 2, 7, 23, 24, 255, 256, 65_535, 65_536, (1 << 20) + 1, 1 << 31),
    *((1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 48, 1 << 53, (1 << 63) - 1, 1 << 63),
    *((1 << 64) - 1, 1 << 64, 1 << 70, -(1 << 63), -(1 << 64), -(1 << 70)),
)
TEXTS = (
    *("", " ", "a", "\ud800", "x\udfff", "\0", "#", "+/", "a/b", "é" * 33, "\u202e", "\x7f"),
    *("x" * length for length in (64, 65, 127, 128, 129, 255, 256, 300, 5_000)),
)
FLOATS = (0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 1e308, 5e-324, float("inf"), float("nan"))


@dataclass(frozen=True)
class Tagged:
    """A value under a CBOR tag."""

    number: int
    value: Any


# CBOR and JSON without questions --------------------------------------------------------------


def encode_cbor(value: Any) -> bytes:
    """Return CBOR of anything, also of what other encoders refuse."""
    depth = 0
    while type(value) is list and len(value) == 1:  # without recursion: it may be very deep
        depth, value = depth + 1, value[0]
    if depth:
        return b"\x81" * depth + encode_cbor(value)
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", False: b"\xf4", True: b"\xf5"}[value]
    if isinstance(value, int):
        return _encode_int(value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str):
        raw = _raw(value)
        return _head(3, len(raw)) + raw
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, Tagged):
        return _head(6, value.number) + encode_cbor(value.value)
    if isinstance(value, dict):
        rows = [encode_cbor(key) + encode_cbor(each) for key, each in value.items()]
        return _head(5, len(rows)) + b"".join(rows)
    return _head(4, len(value)) + b"".join(map(encode_cbor, value))


def _encode_int(value: int) -> bytes:
    kind, size = (0, value) if value >= 0 else (1, -1 - value)
    if size < 1 << 64:
        return _head(kind, size)
    raw = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return _head(6, 2 + kind) + _head(2, len(raw)) + raw


def _head(kind: int, size: int) -> bytes:
    if size < 24:
        return bytes([kind << 5 | size])
    for place, width in enumerate((1, 2, 4, 8)):
        if size < 1 << 8 * width:
            return bytes([kind << 5 | 24 + place]) + size.to_bytes(width, "big")
    raise ValueError(f"CBOR has no length {size}")


def encode_json(value: Any) -> bytes:
    """Return JSON; a text that cannot be encoded is escaped, bytes are hexadecimal."""
    plain = lambda each: getattr(each, "value", str(each))  # noqa: E731 - a line is enough
    return json.dumps(value, default=plain, skipkeys=True).encode()


# Values that are nearly right -----------------------------------------------------------------


def draw_any(rng: Random, depth: int = 0) -> Any:
    """Return a value of any type."""
    kind = rng.randrange(10 if depth < 2 else 7)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice(TEXTS)
    if kind == 2:
        return rng.choice(FLOATS)
    if kind == 3:
        return rng.choice((True, False, None))
    if kind == 4:
        return rng.randbytes(rng.choice((0, 1, 7, 8, 9, 64)))
    if kind == 5:
        return rng.choice(([], {}, [[]], "5", [None]))
    if kind == 6:
        return Tagged(rng.choice((0, 1, 2, 3, 4, 24, 30, 35, 258, 55_799)), rng.choice((1, "x")))
    if kind == 7:
        return [draw_any(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 8:
        return {str(n): draw_any(rng, depth + 1) for n in range(rng.randrange(4))}
    nested: Any = 0
    for _ in range(rng.choice((3, 60, 400))):
        nested = [nested]
    return nested


def bend(rng: Random, value: Any) -> Any:
    """Return something near a value: of its type and too large, or of another type."""
    if rng.random() < 0.3:
        return draw_any(rng)
    if isinstance(value, bool):
        return rng.choice((not value, int(value), None))
    if isinstance(value, int):
        return rng.choice((*NUMBERS, value + 1, value - 1, float(value), str(value), [value]))
    if isinstance(value, float):
        return rng.choice((*FLOATS, *NUMBERS[:4]))
    if isinstance(value, str):
        return rng.choice((*TEXTS, value * 40, value + "\ud800", _raw(value), [value]))
    if isinstance(value, bytes):
        return rng.choice((value[:-1], value + b"\0", value * 40, b"", _flip(rng, value), 5))
    if isinstance(value, list):
        choice = rng.randrange(5)
        if choice == 0:
            return value[:-1]
        if choice == 1:
            return [*value, draw_any(rng)]
        if choice == 2:
            return value * rng.choice((2, 100, 5_000))
        return rng.choice((5, "x", {}, [value], None))
    return draw_any(rng)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _flip(rng: Random, value: bytes) -> bytes:
    changed = bytearray(value or b"\0")
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def spoil(rng: Random, value: Any) -> Any:
    """Return a value with one place in it changed; every place is as likely."""
    places = [()] * _is_leaf(value) + list(_list_places(value, ()))
    return _change(rng, value, rng.choice(places) if places else ())


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _list_places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the places within a value: of lists and maps too, and of what is in them."""
    if _is_leaf(value):
        return
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from _list_places(each, (*path, key))


def _change(rng: Random, value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return bend(rng, value)
    key, rest = path[0], path[1:]
    if isinstance(value, list):
        return [_change(rng, v, rest) if at == key else v for at, v in enumerate(value)]
    luck = rng.random()
    if not rest and luck < 0.05:  # it is missing
        return {k: v for k, v in value.items() if k != key}
    if not rest and luck < 0.1:  # it has another name
        other = bend(rng, key)
        name = other if isinstance(other, int | str | bytes | float) else "other"
        return {name if k == key else k: v for k, v in value.items()}
    return {k: _change(rng, v, rest) if k == key else v for k, v in value.items()}


def spoil_some(rng: Random, value: Any) -> Any:
    """Return a value changed in one place, seldom in two or in none."""
    for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 1, 2))):
        value = spoil(rng, value)
    return value


# What a liar knows ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """What the liar can speak of."""

    name: str  # its own
    epoch: int
    sequence: int  # the next of its own
    now: int
    vocabulary: bytes  # 8 bytes
    device: str  # whose key it has
    subscriber: str  # who belongs to it
    nodes: Sequence[str] = ()  # the others
    epochs: Sequence[int] = ()  # of the others


# Requests of subscribers ----------------------------------------------------------------------

_WORDS = (
    "carbon monoxide is high",
    "carbon monoxide is above 50 ppm, name co, top 3, score 0.5",
    "water depth is high, expires after 60 s",
    "unsubscribe co",
    "list",
    "mute",
)
_REQUESTS: tuple[dict[str, Any], ...] = (
    {"list": True, "request": "1"},
    {"subscribe": "carbon monoxide is high", "name": "co", "format": "json", "request": "2"},
    {
        "content": [["event", "=", "gas"], ["carbon_monoxide", ">", 5]],
        "name": "gas",
        "format": "cbor",
        "score": 0.5,
        "top": 3,
        "expiry": 60,
        "valid_for": 60,
        "request": "3",
    },
    {"unsubscribe": "co", "request": "4"},
    {"mute": False, "request": "5"},
    {"prefer": [["co", "gas"]], "request": "6"},
    {"have": "device-1", "silence": "10 min", "to": "person-1", "request": "7"},
    {"release": "device-1", "request": "8"},
    {"change": "co", "score": 0.5, "muted": True, "escalate": {"to": "person-1", "after": 9}},
    {"received": ["0123456789abcdef"], "request": "7"},
    {"probe": ["carbon monoxide is high"], "request": "8"},
    {"when": {"attribute": "carbon_monoxide", "is": "high"}, "name": "co", "prefer": [["a", "b"]]},
)


def make_request(rng: Random) -> bytes:
    """Return a request in words, JSON or CBOR, nearly right."""
    kind = rng.randrange(8)
    if kind == 0:
        text = rng.choice(_WORDS)
        at = rng.randrange(len(text) + 1)
        return _raw(text[:at] + str(bend(rng, "x")) + text[at:])
    request = spoil_some(rng, rng.choice(_REQUESTS))
    return encode_cbor(request) if kind == 1 else encode_json(request)


# Frames of devices ----------------------------------------------------------------------------


def make_hello(rng: Random, facts: Facts, epoch: int) -> bytes:
    """Return the body of a hello, nearly right."""
    good: dict[int, Any] = {
        0: 1,
        1: facts.device,
        2: epoch,
        3: facts.vocabulary,
        4: {3: [1, 0]},
        5: 1_024,
        6: [0],
        7: "field",
        8: 1,
        9: 100,
        10: 0,
    }
    return encode_cbor(spoil_some(rng, good))


def make_vector(rng: Random, sequence: int = 1, *, is_sound: bool = False) -> bytes:
    """Return a notification vector of an event that nobody of the site asks for."""
    vector = bytearray(
        notification.encode(NotificationVector(3, [Reading(0, (rng.randrange(256),) * 4)]))
    )
    vector[2:4] = (sequence & 0xFFFF).to_bytes(2, "big")
    if is_sound or rng.random() < 0.5:
        return bytes(vector)
    return rng.choice((_flip(rng, bytes(vector)), bytes(vector[:-1]), bytes(vector) + b"\0"))


# Items of a node ------------------------------------------------------------------------------

_SUBSCRIPTION_VECTOR = bytes.fromhex("410000008000000391ffab")  # of event 3


def make_body(rng: Random, facts: Facts, kind: int) -> bytes:
    """Return the body of an item, nearly right; of nobody but the liar's own people."""
    rest = facts.now, 0, facts.vocabulary
    options = {
        "name": "gas",
        "score": 0.5,
        "top": 2,
        "expiry": 60,
        "prefer": [["co", "gas"]],
        "format": "json",
    }
    content = encode_cbor(spoil_some(rng, [["event", "=", "gas"], ["carbon_monoxide", ">", 5]]))
    subscription: list[Any] = [facts.subscriber, "all", "gas", *rest, _SUBSCRIPTION_VECTOR, options]
    if rng.random() < 0.3:
        subscription[4], subscription[6] = 1, content
    dots: list[list[Any]] = [[facts.name, facts.epoch, facts.sequence + n] for n in range(2)]
    if rng.random() < 0.3:
        counted = [facts.now, 1, [facts.sequence], facts.now + 60_000, b"\x80", bytes(64)]
        dots[0] = [*dots[0], b"", spoil_some(rng, counted)]
    bodies: dict[int, list[Any]] = {
        SUBSCRIPTION: subscription,
        NOTIFICATION: [facts.device, 1, facts.sequence, *rest, make_vector(rng, is_sound=True)],
        DELIVERED: [facts.subscriber, dots],
        VOCABULARY: [facts.vocabulary, json.dumps({"events": {}})],
        REVOCATION: _draw_notice(rng, facts),
        ANNOUNCEMENT: [facts.device, facts.vocabulary, [[3, 1]]],
        PREFERENCE: [facts.subscriber, facts.now, {"top": 1, "fading": 60, "weights": {"x": 2}}],
        CLAIM: [facts.device, facts.subscriber, facts.subscriber, facts.now, facts.now, 60_000],
        REMOVAL: [[dot[:3] for dot in dots], rng.choice(("", "A" * 128))],
    }
    return encode_cbor(spoil_some(rng, bodies[kind]))


def _draw_notice(rng: Random, facts: Facts) -> list[Any]:
    """Return a notice about a name that is nobody's."""
    return rng.choice(
        (
            [1, rng.randrange(3), "nobody", rng.choice((None, 1)), b""],
            [2, rng.randbytes(40)],
            [3, rng.choice((facts.name, *facts.nodes)), rng.randbytes(60)],
        )
    )


def draw_expiry(rng: Random, facts: Facts) -> int:
    """Return when an item ends."""
    return rng.choice(
        (NEVER, 1, facts.now, facts.now + 60_000, facts.now + (1 << 40), (1 << 63) - 1)
    )


def draw_dot(rng: Random, facts: Facts) -> Dot:
    """Return the name of an item of the liar's own."""
    epoch = rng.choice((facts.epoch, facts.epoch, facts.epoch, facts.epoch + 1, 0, (1 << 32) - 1))
    sequence = rng.choice((facts.sequence, facts.sequence, facts.sequence + 9, (1 << 20) - 1))
    return Dot(facts.name, epoch, sequence)


# Frames between nodes -------------------------------------------------------------------------


def draw_spans(rng: Random) -> Spans:
    """Return a set of numbers."""
    first = rng.choice((1, 1, 2, 100, 1 << 20, (1 << 63) - 2))
    return rng.choice((((first, first),), ((first, first + 9),), ((first, (1 << 63) - 1),), ()))


def _draw_run(rng: Random, facts: Facts) -> Run:
    name = rng.choice((facts.name, "nobody", "é" * 32, "x" * 64, "x" * 65))
    return name, rng.choice((facts.epoch, facts.epoch + 1, 0, (1 << 32) - 1))


def make_frame(rng: Random, facts: Facts, kind: int, body: bytes) -> bytes:
    """Return the body of a frame in the place of a true one; never about others' items."""
    choice = rng.randrange(4)
    if choice == 0:
        return rng.choice((_flip(rng, body), body[:-1], body + b"\0", b"", rng.randbytes(40)))
    try:
        return _FORGE.get(kind, _forge_bytes)(rng, facts, body)
    except (ValueError, OverflowError, ProtocolError):
        return rng.randbytes(rng.randrange(60))


def _forge_bytes(rng: Random, _: Facts, body: bytes) -> bytes:
    return _flip(rng, body)


def _forge_digest(rng: Random, facts: Facts, body: bytes) -> bytes:
    salt, fingerprint, _ = wire.decode_digest(body)
    return wire.encode_digest(salt, _flip(rng, fingerprint), _draw_time(rng, facts))


def _draw_time(rng: Random, facts: Facts) -> int:
    return rng.choice((0, 1, facts.now, facts.now + (1 << 40), (1 << 48) - 1))


def _forge_entries(
    rng: Random, facts: Facts, entries: tuple[wire.SummaryEntry, ...]
) -> tuple[wire.SummaryEntry, ...]:
    spans = draw_spans(rng)
    mine = wire.SummaryEntry(_draw_run(rng, facts), spans, rng.choice(((), spans)))
    return rng.choice(((*entries, mine), (mine, mine), (), entries[:-1]))


def _forge_summary(rng: Random, facts: Facts, body: bytes) -> bytes:
    said = wire.decode_summary(body)
    changes: dict[str, Any] = rng.choice(
        (
            {"time": _draw_time(rng, facts)},
            {"token": rng.randbytes(4)},
            {"table": rng.choice((1, 1 << 32, (1 << 63) - 1))},
            {"entries": _forge_entries(rng, facts, said.entries)},
        )
    )
    return wire.encode_summary(replace(said, **changes))


def _forge_answer(rng: Random, facts: Facts, body: bytes) -> bytes:
    said = wire.decode_answer(body)
    changes: dict[str, Any] = rng.choice(
        (
            {"time": _draw_time(rng, facts), "lag": rng.choice((-(1 << 62), 1 << 62))},
            {"token": rng.randbytes(4)},
            {"table": rng.choice((1, 1 << 32, (1 << 63) - 1))},
            {"entries": _forge_entries(rng, facts, said.entries)},
            {"differences": (*said.differences, wire.EntryDifference(draw_spans(rng), ()))},
        )
    )
    return wire.encode_answer(replace(said, **changes))


def _forge_completion(rng: Random, facts: Facts, body: bytes) -> bytes:
    said = wire.decode_completion(body)
    changes: dict[str, Any] = rng.choice(
        (
            {"time": _draw_time(rng, facts), "lag": rng.choice((-(1 << 62), 1 << 62))},
            {"differences": (*said.differences, wire.EntryDifference(draw_spans(rng), ()))},
            {"differences": ()},
        )
    )
    return wire.encode_completion(replace(said, **changes))


def _forge_items(rng: Random, facts: Facts, body: bytes) -> bytes:
    said = wire.decode_item_batch(body)
    run = _draw_run(rng, facts)
    offset = rng.choice((0, 1 << 40, -(1 << 40), 1 << 50, (1 << 61), -(1 << 61)))
    clock = (run, offset, rng.choice((0, 1, 1 << 50, (1 << 62))))
    clocks = rng.choice((said.clocks, (*said.clocks, clock), tuple(_shift(said.clocks, offset))))
    dead = rng.choice((said.dead, (*said.dead, (run, draw_spans(rng)))))
    return wire.encode_item_batch(wire.ItemBatch(dead, clocks, said.items))


def _shift(clocks: tuple[tuple[Run, int, int], ...], offset: int) -> list[tuple[Run, int, int]]:
    return [(run, old + offset, bound) for run, old, bound in clocks]


def _forge_ack(rng: Random, _: Facts, __: bytes) -> bytes:
    return wire.encode_ack(rng.choice((0, 1, 2, 1 << 32, (1 << 63) - 1)))


def _forge_question(rng: Random, _: Facts, __: bytes) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 2, 3, 64, 2_000)))


_FORGE = {
    wire.DIGEST: _forge_digest,
    wire.SUMMARY: _forge_summary,
    wire.ANSWER: _forge_answer,
    wire.COMPLETION: _forge_completion,
    wire.ITEMS: _forge_items,
    wire.ACK: _forge_ack,
    wire.ASK: _forge_question,
    wire.TELL: _forge_question,
    wire.GROUPS: _forge_question,
    wire.PICK: _forge_question,
}


# Frames of operators --------------------------------------------------------------------------


def make_operator_frame(rng: Random, facts: Facts) -> bytes:
    """Return a plan or items, nearly right."""
    plan = ["plan", "spray:4", "because", facts.now]
    item = [facts.name, facts.epoch, facts.sequence, NOTIFICATION, NEVER, b"", bytes(64)]
    return encode_cbor(spoil_some(rng, rng.choice((plan, ["items", [item, item]]))))


# Registrations --------------------------------------------------------------------------------


def make_registration(rng: Random, name: str, kind: int, secret: Any, role: str) -> bytes:
    """Return the registration of somebody, nearly right: 1 is a device, 2 a subscriber."""
    fields: list[Any] = [kind, name, rng.choice((2, 9, 65_535))]
    fields += [[[7, secret]]] if kind == 1 else [role, [[1, secret]]]
    return encode_cbor(fields if rng.random() < 0.7 else spoil_some(rng, fields))
