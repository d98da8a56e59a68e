"""What a writer finds at its start: how far the segments reach, and the one to go on with.

The files may be as any crash left them: a segment without a whole header, a torn block at the end,
a footer without its new name. What can be mended is; what is damaged is closed as it is, for the
reader to report, and never cut unless the outbox still has it.
"""

from __future__ import annotations

from typing import NamedTuple

from denwatch.node.log.decoding import decode_columns
from denwatch.node.log.files import Files
from denwatch.node.log.kinds import KINDS
from denwatch.node.log.names import CLOSED, OPEN, SegmentName, read_name
from denwatch.node.log.reader import Contents, read_segment
from denwatch.node.log.segment import Footer, Header, IndexEntry


class LogError(Exception):
    """The log cannot be written; the text says why, and what to do."""


class OpenSegment(NamedTuple):
    """The segment that is being written."""

    name: str
    header: Header
    size: int
    counts: dict[int, int]
    blocks: list[IndexEntry]

    def build_footer(self, next_: int) -> Footer:
        """Return the footer that closes it."""
        return Footer(next_, self.counts, self.blocks)


class Recovered(NamedTuple):
    """Where the writer goes on."""

    segment: OpenSegment | None
    next: int  # number of the next record


def recover(files: Files, node: str, settled: int, end: int) -> Recovered:
    """Mend what the last run left. The store has the records from `settled` up to before `end`."""
    parsed = [(read_name(name), name) for name in files.list_names()]
    mine = sorted((found, name) for found, name in parsed if found and found.node == node)
    reached = settled
    if mine and mine[-1][0].is_closed:
        # Only a damaged segment that an earlier start had to close can reach further.
        reached = max(reached, read_segment(files.read(mine[-1][1]), is_closed=True).next)
    segment: OpenSegment | None = None
    for found, name in mine:
        if found.is_closed:
            continue
        if segment is not None:
            raise LogError(f"{segment.name} and {name} are both open: move one of them away")
        mended = _mend(files, found, name, settled)
        segment = mended.segment
        reached = max(reached, mended.next)
    files.sync_directory()
    if reached > end:
        raise LogError(
            f"the log of {node!r} has records up to {reached - 1}, and the store only up to"
            f" {end - 1}: this store is older than the log. Find the right one, or move the log"
            " away and give the node a new name, since others know its items by their numbers"
        )
    return Recovered(segment, reached)


def _mend(files: Files, found: SegmentName, name: str, settled: int) -> Recovered:
    """Mend one open segment; no segment is returned if it is gone, or could only be closed."""
    data = files.read(name)
    contents = read_segment(data, is_closed=False)
    if contents.damages and contents.header is not None:
        # Blocks that were written together may reach the disk in any order.
        whole = read_segment(data[: contents.damages[0].offset], is_closed=False)
        if whole.next >= settled:
            contents = whole
    if contents.header is None and found.first >= settled:
        files.remove(name)  # begun, and all that it was to hold is still in the outbox
        return Recovered(None, settled)
    if (
        contents.header is None
        or contents.footer is not None  # closed but for the name
        or contents.damages
        or contents.next < settled
    ):
        _close_as_is(files, name)
        return Recovered(None, contents.next)
    if contents.end < len(data):
        files.truncate(name, contents.end)
    files.sync(name)  # what we found may still be only in the machine's cache
    return Recovered(_take_up(name, contents.header, contents), contents.next)


def _take_up(name: str, header: Header, contents: Contents) -> OpenSegment:
    counts: dict[int, int] = {}
    entries = []
    for block in contents.blocks:
        head = block.header
        times = head.earliest, head.latest
        entries.append(IndexEntry(block.offset, head.first, head.length, *times, head.kinds))
        for kind, columns in decode_columns(block)[0].items():
            id_ = KINDS[kind].id
            counts[id_] = counts.get(id_, 0) + len(columns["number"])
    return OpenSegment(name, header, contents.end, counts, entries)


def _close_as_is(files: Files, name: str) -> None:
    files.sync(name)
    stem = name.removesuffix(OPEN)
    taken = set(files.list_names())
    again = 0
    target = stem + CLOSED
    while target in taken:
        again += 1
        target = f"{stem}~{again}{CLOSED}"
    files.rename(name, target)
