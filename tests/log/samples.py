"""One record of every kind with every field, and one with only the fields that must be there."""

from __future__ import annotations

from typing import Any

from denwatch.node.log.kinds import KINDS, RecordKind

NOW = 1_790_000_000_000
EXAMPLES: dict[str, Any] = {
    "text": "médic 7",
    "int": -(1 << 63),
    "id": (1 << 64) - 1,
    "real": 0.75,
    "bytes": b"\x00\xff\x10",
    "bool": True,
    "ids": [0, 5, (1 << 64) - 1],
    "texts": ["a", ""],
    "map": {"top": 3, "score": 0.5, "prefer": ["x", {"y": None}]},
}


def build_full(kind: RecordKind) -> dict[str, Any]:
    """Return fields with every one set."""
    return {field.name: EXAMPLES[field.type] for field in kind.fields}


def build_bare(kind: RecordKind) -> dict[str, Any]:
    """Return fields with only the required ones set."""
    return {field.name: EXAMPLES[field.type] for field in kind.fields if not field.is_optional}


CATALOGUE: list[tuple[str, dict[str, Any]]] = [
    entry
    for kind in KINDS.values()
    for entry in ((kind.name, build_full(kind)), (kind.name, build_bare(kind)))
]


def make_note(number: int) -> dict[str, Any]:
    """Return the fields of a notification as a node logs it."""
    return {
        "item": (number * 0x9E3779B97F4A7C15) % (1 << 64),
        "origin": "north",
        "run": 3,
        "sequence": number,
        "device": f"wd{number % 10}",
        "device_epoch": 2,
        "device_sequence": number,
        "at": NOW + 37 * number,
        "doubt": 1000,
        "expires": NOW + 86_400_000,
        "vocabulary": b"\x01\x02\x03\x04\x05\x06\x07\x08",
        "vector": bytes([number % 256]) * 11,
        "source": "",
        "degree": number % 256,
    }
