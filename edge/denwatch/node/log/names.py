"""The names of segments, and which of several segments to read. Pure.

`north-0000000003-00000000000000000412.dlog` begins with record 412 and was written in the third run
of the node "north"; `.open` instead of `.dlog` is still being written. A `~2` before the ending
tells apart segments that would have one name after damage. Names only sort and find: what counts is
in the segment's header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote

from denwatch.node.log.segment import Header

OPEN = ".open"
CLOSED = ".dlog"
_SHAPE = re.compile(r"(?P<node>.+)-(?P<epoch>\d{10,})-(?P<first>\d{20,})(~\d+)?\.(open|dlog)")


class SegmentName(NamedTuple):
    """What the name of a segment says."""

    node: str
    epoch: int
    first: int
    is_closed: bool


class Span(NamedTuple):
    """The records that one file holds, as its header and footer (or its blocks) say."""

    file: str
    header: Header
    next: int


class Choice(NamedTuple):
    """A file to read, from one record on. `reason` is set if records are left out: why."""

    file: str
    start: int
    reason: str = ""


def write_name(node: str, epoch: int, first: int, ending: str = OPEN, again: int = 0) -> str:
    """Return the name of a segment."""
    twin = f"~{again}" if again else ""
    return f"{quote(node, safe='')}-{epoch:010d}-{first:020d}{twin}{ending}"


def read_name(name: str) -> SegmentName | None:
    """Return what a name says; None if it is not that of a segment."""
    found = _SHAPE.fullmatch(name)
    if found is None:
        return None
    return SegmentName(
        unquote(found["node"]), int(found["epoch"]), int(found["first"]), name.endswith(CLOSED)
    )


def choose_segments(spans: Iterable[Span]) -> list[Choice]:
    """Say which files to read from which record on, so that every record is read once.

    The same segment may be there twice: copied, collected from two places, or once open and once
    closed. Of records that several files hold, the file that begins first and reaches furthest is
    read; a file that adds nothing is in the answer too, with its reason, starting behind its end.
    """
    choices: list[Choice] = []
    reached: dict[tuple[str, int], tuple[int, str]] = {}
    order = sorted(spans, key=lambda s: (s.header.node, s.header.epoch, s.header.first, -s.next))
    for span in order:
        run = span.header.node, span.header.epoch
        end, holder = reached.get(run, (0, ""))
        if span.header.first >= end:
            choices.append(Choice(span.file, span.header.first))
        elif span.next <= end:
            choices.append(Choice(span.file, span.next, f"all its records are in {holder} as well"))
        else:
            reason = f"records {span.header.first} to {end - 1} are in {holder} as well"
            choices.append(Choice(span.file, end, reason))
        if span.next > end:
            reached[run] = span.next, span.file
    return choices
