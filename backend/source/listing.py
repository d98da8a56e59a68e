"""Which files to read, and which records of each. The only file of the source that lists folders.

Names only find: what a file holds is said by its header, its footer and its blocks. Every file
that is found is either read, or is a problem with its reason; a segment that was collected twice is
read once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from backend.source.ranges import Range
from edge.dens.log import Header, Span, choose_segments, read_footer, read_header
from edge.dens.log.names import CLOSED, OPEN
from edge.dens.log.reader import read_segment
from edge.dens.log.segment import MAGIC, TRAILER

DAMAGE = "damage"
DUPLICATE = "duplicate"
FOREIGN = "foreign"
PIECE_RECORDS = 250_000  # a larger segment is shared by several tasks
_HEAD = 1024


class Piece(NamedTuple):
    """Records of one file for one task: those from `start` up to before `stop`."""

    path: str
    is_closed: bool
    node: str
    epoch: int
    begun: int  # when the segment was begun, ms
    start: int
    stop: int
    is_first: bool  # of its file: it also tells of damage that no record's number belongs to
    is_last: bool  # of its file: it tells of damage behind the last record


class Problem(NamedTuple):
    """A file, or a part of one, that is not read, and why: a row of the quarantine."""

    file: str
    class_: str
    reason: str
    offset: int = 0
    size: int = 0
    node: str | None = None
    epoch: int | None = None
    first: int | None = None
    length: int | None = None


class Segment(NamedTuple):
    """A file that is a segment, and what it holds."""

    path: str
    is_closed: bool
    header: Header
    next: int
    cuts: tuple[int, ...]  # numbers at which blocks begin, if that is known without reading them
    size: int


Found = Segment | Problem | None  # None: begun, and nothing in it yet
Known = dict[str, tuple[tuple[int, int], Found]]  # by path: (size, time of change), what it is


class Listing(NamedTuple):
    """What is in some folders."""

    segments: list[Segment]
    problems: list[Problem]


class Plan(NamedTuple):
    """What to read, and what not."""

    pieces: list[Piece]
    problems: list[Problem]


def list_segments(folders: Iterable[str | Path], known: Known | None = None) -> Listing:
    """Look at every file in the folders and below; `known` spares looking at the same one again."""
    known = {} if known is None else known
    segments: list[Segment] = []
    problems: list[Problem] = []
    for path in list_files(folders):
        try:
            status = path.stat()
            stamp = status.st_size, status.st_mtime_ns
            found = known[str(path)][1] if _is_known(known, path, stamp) else inspect_file(path)
        except FileNotFoundError:
            continue  # closed in this moment: it is there under its other name
        except OSError as error:
            problems.append(Problem(str(path), DAMAGE, f"cannot be read: {error.strerror}"))
            continue
        known[str(path)] = stamp, found
        if isinstance(found, Segment):
            segments.append(found)
        elif found is not None:
            problems.append(found)
    return Listing(segments, problems)


def _is_known(known: Known, path: Path, stamp: tuple[int, int]) -> bool:
    return known.get(str(path), (None,))[0] == stamp


def list_files(folders: Iterable[str | Path]) -> list[Path]:
    """Return all files in the folders and below, each once, in order."""
    files: dict[Path, None] = {}
    for folder in map(Path, folders):
        if not folder.exists():
            raise FileNotFoundError(f"there is no folder {folder}")
        walked = folder.rglob("*") if folder.is_dir() else [folder]
        files |= dict.fromkeys(sorted(path.resolve() for path in walked if path.is_file()))
    return list(files)


def inspect_file(path: Path) -> Found:
    """Say what a file is, reading as little of it as tells."""
    is_closed = path.suffix == CLOSED
    with path.open("rb") as file:
        head = file.read(_HEAD)
        if path.suffix not in (OPEN, CLOSED) and not head.startswith(MAGIC):
            size = path.stat().st_size
            return Problem(str(path), FOREIGN, "not a segment of a node's log", 0, size)
        header = read_header(head)
        size = file.seek(0, os.SEEK_END)
        footer = None
        if header is not None and is_closed and size >= TRAILER.size:
            file.seek(-TRAILER.size, os.SEEK_END)
            length, _ = TRAILER.unpack(file.read(TRAILER.size))
            file.seek(-min(size, length + TRAILER.size), os.SEEK_END)
            footer = read_footer(file.read())
    if header is not None and footer is not None:
        cuts = tuple(entry.first for entry in footer.blocks)
        return Segment(str(path), is_closed, header, footer.next, cuts, size)
    return _read_whole(path, is_closed)


def _read_whole(path: Path, is_closed: bool) -> Found:
    data = path.read_bytes()
    contents = read_segment(data, is_closed=is_closed)
    if contents.header is None:
        if not contents.damages:
            return None
        class_ = DAMAGE if MAGIC.startswith(data[: len(MAGIC)]) else FOREIGN
        return Problem(str(path), class_, contents.damages[0].reason, 0, len(data))
    return Segment(str(path), is_closed, contents.header, contents.next, (), len(data))


def plan_reading(listing: Listing) -> Plan:
    """Choose from which file each record is read, so that all are read once."""
    by_path = {segment.path: segment for segment in listing.segments}
    spans = [Span(s.path, s.header, s.next) for s in listing.segments]
    pieces: list[Piece] = []
    problems = list(listing.problems)
    for choice in choose_segments(spans):
        segment = by_path[choice.file]
        node, epoch, first, _ = segment.header
        if choice.reason:
            left_out = choice.start - first
            problems.append(
                Problem(segment.path, DUPLICATE, choice.reason, 0, 0, node, epoch, first, left_out)
            )
        if choice.start < segment.next or segment.next == first:
            pieces += split_segment(segment, [(choice.start, segment.next)])
    return Plan(pieces, problems)


def split_segment(segment: Segment, ranges: Sequence[Range]) -> list[Piece]:
    """Return ranges of a segment's records as pieces of a good size."""
    pieces: list[Piece] = []
    header, last = segment.header, segment.next
    for start, stop in ranges:
        begin = start
        cuts = [cut for cut in segment.cuts if start < cut < stop]
        for cut in [*cuts, stop]:
            if cut - begin >= PIECE_RECORDS or cut == stop:
                whose = segment.path, segment.is_closed, header.node, header.epoch, header.time
                pieces.append(Piece(*whose, begin, cut, begin == header.first, cut == last))
                begin = cut
    return pieces
