"""What a node's log must be after all its lives: the numbers from 1 on, each once, no damage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from denwatch.node.log import read_name, read_segment


class LogCheck(NamedTuple):
    """How many records there are, and what is wrong with them."""

    records: int
    faults: list[str]


def check_log(segments: Mapping[str, bytes]) -> LogCheck:
    """Read all segments of one node, by file name."""
    faults: list[str] = []
    spans: list[tuple[int, int]] = []
    for name, data in segments.items():
        found = read_name(name)
        if found is None:
            faults.append(f"{name} is no segment")
            continue
        contents = read_segment(data, is_closed=found.is_closed)
        faults += [f"{name}: {damage.reason}" for damage in contents.damages]
        spans += [(block.header.first, block.header.length) for block in contents.blocks]
    expected = 1
    for first, length in sorted(spans):
        if first != expected:
            faults.append(f"record {first} comes where {expected} is due")
        expected = first + length
    return LogCheck(expected - 1, faults)
