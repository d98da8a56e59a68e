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

from denwatch.node.log import Header, SegmentSpan, choose_segments, read_footer, read_header
from denwatch.node.log.reader import read_segment
from denwatch.node.log.segments import CLOSED, MAGIC, OPEN, TRAILER

DAMAGE = "damage"
DUPLICATE = "duplicate"
FOREIGN = "foreign"
PIECE_RECORDS = 250_000  # a larger segment is shared by several tasks
_HEAD = 1024
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


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


class Quarantined(NamedTuple):
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


Found = Segment | Quarantined | None  # None: begun, and nothing in it yet
Known = dict[str, tuple[tuple[int, int], Found]]  # by path: (size, time of change), what it is


class Listing(NamedTuple):
    """What is in some folders."""

    segments: list[Segment]
    problems: list[Quarantined]


class ReadingPlan(NamedTuple):
    """What to read, and what not."""

    pieces: list[Piece]
    problems: list[Quarantined]


def list_segments(folders: Iterable[str | Path], known: Known | None = None) -> Listing:
    """Look at every file in the folders and below; `known` spares looking at the same one again."""
    known = {} if known is None else known
    segments: list[Segment] = []
    problems: list[Quarantined] = []
    files, unread = walk_folders(folders)
    problems += unread
    for path in files:
        try:
            status = path.stat()
            stamp = status.st_size, status.st_mtime_ns
            before = known.get(str(path))
            found = before[1] if before and before[0] == stamp else inspect_file(path)
        except FileNotFoundError:
            continue  # closed in this moment: it is there under its other name
        except OSError as error:
            problems.append(Quarantined(str(path), DAMAGE, f"cannot be read: {error.strerror}"))
            continue
        known[str(path)] = stamp, found
        if isinstance(found, Segment):
            segments.append(found)
        elif found is not None:
            problems.append(found)
    return Listing(segments, problems)


def walk_folders(folders: Iterable[str | Path]) -> tuple[list[Path], list[Quarantined]]:
    """Return all files in the folders and below, each once, in order; and what cannot be looked at.

    Links are followed, each folder once.
    """
    files: dict[Path, None] = {}
    problems: dict[str, Quarantined] = {}
    seen: set[str] = set()

    def note(error: OSError) -> None:
        where = str(error.filename)
        problems[where] = Quarantined(where, DAMAGE, f"cannot be read: {error.strerror}")

    for folder in map(Path, folders):
        if not folder.exists():
            raise FileNotFoundError(f"there is no folder {folder}")
        found = [] if folder.is_dir() else [folder.resolve()]
        for base, below, names in os.walk(folder, onerror=note, followlinks=True):
            real = os.path.realpath(base)
            if real in seen:
                below.clear()
                continue
            seen.add(real)
            found += [Path(real, name) for name in names]
        for path in sorted(found):
            if path.is_file():
                files[path.resolve()] = None
            elif path.is_symlink() or path.exists():  # else it went in this moment
                is_lost = path.is_symlink() and not path.exists()
                why = "a link to nothing" if is_lost else "neither a file nor a folder"
                problems[str(path)] = Quarantined(str(path), FOREIGN, why)
    return list(files), list(problems.values())


def inspect_file(path: Path) -> Found:
    """Say what a file is, reading as little of it as tells."""
    is_closed = path.suffix == CLOSED
    with path.open("rb") as file:
        head = file.read(_HEAD)
        if path.suffix not in (OPEN, CLOSED) and not head.startswith(MAGIC):
            size = path.stat().st_size
            return Quarantined(str(path), FOREIGN, explain_foreign(head), 0, size)
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


def explain_foreign(head: bytes) -> str:
    """Say what a file is that begins otherwise than a segment."""
    for start, name in _PACKED.items():
        if head.startswith(start):
            return f"packed with {name}: unpack it, and it will be read"
    return "not a segment of a node's log: it begins otherwise"


def _read_whole(path: Path, is_closed: bool) -> Found:
    data = path.read_bytes()
    contents = read_segment(data, is_closed=is_closed)
    if contents.header is None:
        if not contents.damages:
            return None
        if MAGIC.startswith(data[: len(MAGIC)]):
            return Quarantined(str(path), DAMAGE, contents.damages[0].reason, 0, len(data))
        return Quarantined(str(path), FOREIGN, explain_foreign(data[:_HEAD]), 0, len(data))
    return Segment(str(path), is_closed, contents.header, contents.next, (), len(data))


def plan_reading(listing: Listing) -> ReadingPlan:
    """Choose from which file each record is read, so that all are read once."""
    by_path = {segment.path: segment for segment in listing.segments}
    spans = [SegmentSpan(s.path, s.header, s.next) for s in _put_whole_first(listing.segments)]
    pieces: list[Piece] = []
    problems = list(listing.problems)
    for choice in choose_segments(spans):
        segment = by_path[choice.file]
        node, epoch, first, _ = segment.header
        if choice.reason:
            left_out = choice.start - first
            problems.append(
                Quarantined(
                    segment.path, DUPLICATE, choice.reason, 0, 0, node, epoch, first, left_out
                )
            )
        if choice.start < segment.next or segment.next == first:
            pieces += split_segment(segment, [(choice.start, segment.next)])
    return ReadingPlan(pieces, problems)


def _put_whole_first(segments: Iterable[Segment]) -> list[Segment]:
    """Return segments so that of several copies the least damaged is read; only copies are read."""
    copies: dict[tuple[str, int, int, int], list[Segment]] = {}
    for segment in segments:
        copies.setdefault((*segment.header[:3], segment.next), []).append(segment)
    ordered = []
    for same in copies.values():
        ordered += sorted(same, key=_count_damages) if len(same) > 1 else same
    return ordered


def _count_damages(segment: Segment) -> int:
    try:
        data = Path(segment.path).read_bytes()
    except OSError:
        return 1 << 30
    return len(read_segment(data, is_closed=segment.is_closed).damages)


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


# Ranges of record numbers ---------------------------------------------------------------
# A set of numbers is a list of half-open (start, stop), rising and disjoint; in a stream's offsets
# it is the text "1-411,500-900", inclusive.

Range = tuple[int, int]


def join_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges in any order and overlap as a set."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if stop <= start:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], stop)
        else:
            joined.append((start, stop))
    return joined


def subtract_ranges(whole: list[Range], part: list[Range]) -> list[Range]:
    """Return what is in the first set and not in the second."""
    left: list[Range] = []
    for start, stop in whole:
        for begin, end in part:
            if end <= start or begin >= stop:
                continue
            if begin > start:
                left.append((start, begin))
            start = end
            if start >= stop:
                break
        if start < stop:
            left.append((start, stop))
    return left


def count_numbers(ranges: Iterable[Range]) -> int:
    """Return how many numbers a set has."""
    return sum(stop - start for start, stop in ranges)


def take_first(ranges: list[Range], count: int) -> list[Range]:
    """Return the lowest numbers of a set, so many or all."""
    taken: list[Range] = []
    for start, stop in ranges:
        if count <= 0:
            break
        taken.append((start, min(stop, start + count)))
        count -= stop - start
    return taken


def write_ranges(ranges: list[Range]) -> str:
    """Return a set as text."""
    return ",".join(f"{start}-{stop - 1}" for start, stop in ranges)


def read_ranges(text: str) -> list[Range]:
    """Return the set of a text."""
    pairs = [part.split("-") for part in text.split(",") if part]
    return [(int(start), int(last) + 1) for start, last in pairs]
