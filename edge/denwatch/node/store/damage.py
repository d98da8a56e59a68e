"""What changed on a node's disk by itself: finding it, and going on without it.

THEORY. SQLite notices changed bits in its own structure (`PRAGMA quick_check`), and not those in a
value or a key. So every value has checksums of its own (`interface`), every row of the outbox has
one, and each number of meta is stored twice, each with its checksum. At opening all
of them are looked at:

  a value is wrong            it goes into the space `damaged`; the rest stays as it is;
  a key or a page is wrong    SQLite may not find other rows any more: all that is right is written
                              into a new file, and the old one is kept beside it (`.damaged`);
  a row of the outbox         its records are lost, and replaced by `trouble` records: numbers of
                              the log have no gaps;
  meta, twice; the header,    the store is refused, with words: there is nothing to go on from.
  the schema

Whoever opens the store then lets the core mend what follows from a missing value. `check_store`
finds the same without changing anything. What it does not find holds nothing: free pages, gaps
within pages, and fields of the header that SQLite does not use.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from denwatch.node.core.mending import DAMAGED, write_row
from denwatch.node.log.records import encode_record
from denwatch.node.log.writer import OutboxRow
from denwatch.node.store.interface import (
    StoreDamaged,
    is_key_right,
    open_value,
    seal_value,
    seed_space,
)

KEPT = ".damaged"  # behind the name of a store that was rewritten
_PREFIX = "space_"
_META, _OUTBOX = seed_space("meta"), seed_space("outbox")
_TWIN = "~"  # behind the name of a number's second copy
_ROW_RECORDS = 4_096  # of a row whose length is damaged, at most
_QUARANTINED = 65_536  # bytes of a damaged value that are kept
Row = tuple[object, object]
Wrong = dict[str, list[tuple[Row, bool]]]  # by space: what is wrong, and whether its key is right


def connect(path: Path) -> sqlite3.Connection:
    """Open a file for us alone."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    connection.text_factory = _read_text
    # Exclusive: the index of the log lives in our memory instead of a shared file, and no other
    # program can write below us. It must be set before the first access.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def _read_text(data: bytes) -> str:
    """Return what a damaged value claims to be text as something that is no bytes."""
    return str(data, "latin-1")


def name_table(space: str) -> str:
    """Return the name of a space's table, quoted."""
    return f'"{_PREFIX}{space}"'


def write_create(space: str) -> str:
    """Return the statement that makes the table of a space."""
    return (
        f"CREATE TABLE IF NOT EXISTS {name_table(space)}"
        " (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL) WITHOUT ROWID"
    )


def list_spaces(connection: sqlite3.Connection) -> list[str]:
    """Return the spaces that have a table."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [row[0].removeprefix(_PREFIX) for row in tables if row[0].startswith(_PREFIX)]


def describe_damage(path: Path, what: str) -> StoreDamaged:
    """Return the refusal of a store that cannot be used any more."""
    return StoreDamaged(
        f"the store {path} is damaged ({what}). Keep the file; repair a copy with"
        " `sqlite3 damaged.db .recover`, or move it away and start with an empty store under a"
        " new node name: under the old one it would number its items like those already sent"
    )


def describe_key(key: object) -> str:
    """Return a key as a person can read it out."""
    return key.hex() if isinstance(key, bytes) else repr(key)[:64]


# Meta, and rows of the outbox ----------------------------------------------------------------


def write_meta(connection: sqlite3.Connection, values: Mapping[str, object]) -> None:
    """Write some of meta, twice."""
    rows = [
        (name, seal_value(_META, name.encode(), str(value).encode()))
        for each, value in values.items()
        for name in (each, each + _TWIN)
    ]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)


def read_meta(connection: sqlite3.Connection, path: Path) -> dict[str, str]:
    """Return meta, from whichever copy is right; StoreDamaged if neither is."""
    right, wrong = _look_at_meta(connection)
    for name in wrong:
        if name.removesuffix(_TWIN) not in right:
            raise describe_damage(path, f"both copies of {name!r} are wrong")
    if wrong:
        write_meta(connection, right)
    return right


def _look_at_meta(connection: sqlite3.Connection) -> tuple[dict[str, str], list[str]]:
    """Return what is right, and which copies are wrong."""
    right: dict[str, str] = {}
    wrong: list[str] = []
    known = {name + twin for name in ("node", "epoch", "settled") for twin in ("", _TWIN)}
    for name, stored in connection.execute("SELECT name, value FROM meta"):
        value = open_value(_META, str(name).encode(), stored)
        if value is None or name not in known:
            wrong.append(str(name))
        else:
            right[name.removesuffix(_TWIN)] = value.decode()
    return right, wrong


def seal_row(row: OutboxRow) -> bytes:
    """Return the records of a row of the outbox as they are stored, with their checksum."""
    return seal_value(_OUTBOX, b"%d %d %d" % row[:3], row.records)


def open_row(found: tuple[int, int, int, object]) -> OutboxRow | None:
    """Return a row of the outbox; None if it has changed."""
    first, length, epoch, stored = found
    if not all(type(number) is int for number in (first, length, epoch)):
        return None
    records = open_value(_OUTBOX, b"%d %d %d" % (first, length, epoch), stored)
    return None if records is None else OutboxRow(first, length, epoch, records)


# Finding -------------------------------------------------------------------------------------


def find_fault(connection: sqlite3.Connection, *, is_full: bool) -> str:
    """Return what is wrong with the pages and their order; "" if nothing is."""
    pragma = "integrity_check(5)" if is_full else "quick_check(5)"
    try:
        found = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}")]
    except sqlite3.DatabaseError as error:
        if _is_damage(error):
            return str(error)
        raise
    return "" if found == ["ok"] else "; ".join(found).replace("\n", " ")


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _find_wrong(rows: Iterable[Row], space: str) -> Iterator[tuple[Row, bool]]:
    """Yield the rows that are wrong, and whether their keys and their order are right."""
    seed = seed_space(space)
    before = b""
    is_first = True
    for row in rows:
        key, stored = row
        if open_value(seed, key, stored) is None:  # type: ignore[arg-type]
            yield row, is_key_right(seed, key, stored)
        elif key <= before and not is_first:  # type: ignore[operator]
            yield row, False
        if type(key) is bytes:
            before, is_first = key, False


def _read_table(connection: sqlite3.Connection, space: str) -> Iterator[Row]:
    return connection.execute(f"SELECT key, value FROM {name_table(space)}")


def find_wrong(connection: sqlite3.Connection) -> Wrong:
    """Return all values that are wrong."""
    found = {
        space: list(_find_wrong(_read_table(connection, space), space))
        for space in list_spaces(connection)
    }
    return {space: rows for space, rows in found.items() if rows}


# Going on without it -------------------------------------------------------------------------


def remove_damage(
    connection: sqlite3.Connection,
    path: Path,
    create_tables: Callable[[sqlite3.Connection], None],
    *,
    is_full: bool,
) -> sqlite3.Connection:
    """Go on without what is damaged; return the connection to what is left."""
    fault = find_fault(connection, is_full=is_full)
    wrong: Wrong = {}
    if not fault:
        try:
            wrong = find_wrong(connection)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            fault = str(error)
    if fault or not all(is_right for rows in wrong.values() for _, is_right in rows):
        return _rewrite_store(connection, path, create_tables, has_fault=bool(fault))
    _quarantine_values(connection, wrong)
    return connection


def _quarantine_values(connection: sqlite3.Connection, wrong: Wrong) -> None:
    """Move values that are wrong into the space `damaged`; make up for lost log records."""
    outbox = connection.execute("SELECT first, count, epoch, records FROM outbox").fetchall()
    is_outbox_right = all(open_row(row) is not None for row in outbox)
    if not wrong and is_outbox_right:
        return
    connection.execute("BEGIN IMMEDIATE")
    for space, found in wrong.items():
        rows = [row for row, _ in found]
        table = name_table(space)
        connection.executemany(f"DELETE FROM {table} WHERE key = ?", [(row[0],) for row in rows])
        _add_damaged(connection, space, rows)
    if not is_outbox_right:
        settled = int(_look_at_meta(connection)[0].get("settled", 1))
        connection.execute("DELETE FROM outbox")
        _write_outbox(connection, _fill_outbox(outbox, settled))
    connection.execute("COMMIT")


def _add_damaged(connection: sqlite3.Connection, space: str, rows: Iterable[Row]) -> None:
    connection.execute(write_create(DAMAGED))
    for key, stored in rows if space != DAMAGED else ():
        raw = (stored if isinstance(stored, bytes) else repr(stored).encode())[:_QUARANTINED]
        is_right = is_key_right(seed_space(space), key, stored)
        named = key if isinstance(key, bytes) else repr(key).encode()
        name, value = write_row(space, named, raw, is_key_right=is_right)
        connection.execute(
            f"INSERT OR REPLACE INTO {name_table(DAMAGED)} VALUES (?, ?)",
            (name, seal_value(seed_space(DAMAGED), name, value)),
        )


def _fill_outbox(found: list[tuple[int, int, int, object]], settled: int) -> list[OutboxRow]:
    """Return the rows that are right, and rows of `trouble` records in the place of the others."""
    rows: list[OutboxRow] = []
    right = sorted(row for each in found if (row := open_row(each)) is not None)
    next_ = settled
    for row in right:
        rows += _make_up(next_, row.first, row.epoch)
        rows.append(row)
        next_ = max(next_, row.first + row.length)
    wrong = [each for each in found if open_row(each) is None and each[0] >= next_]
    if wrong:  # the last row: its numbers must not be used again, rather some are left out
        length = wrong[-1][1]
        is_likely = type(length) is int and 0 < length <= _ROW_RECORDS
        end = next_ + (length if is_likely else _ROW_RECORDS)
        rows += _make_up(next_, end, right[-1].epoch if right else 1)
    return rows


def _make_up(first: int, end: int, epoch: int) -> list[OutboxRow]:
    fields = {"what": "log", "detail": "the record that was here was damaged on the disk"}
    record = encode_record("trouble", fields, 0)
    return [
        OutboxRow(at, length := min(end - at, _ROW_RECORDS), epoch, record * length)
        for at in range(first, end, _ROW_RECORDS)
    ]


def _write_outbox(connection: sqlite3.Connection, rows: Iterable[OutboxRow]) -> None:
    connection.executemany(
        "INSERT INTO outbox VALUES (?, ?, ?, ?)", [(*row[:3], seal_row(row)) for row in rows]
    )


def _rewrite_store(
    old: sqlite3.Connection,
    path: Path,
    create_tables: Callable[[sqlite3.Connection], None],
    *,
    has_fault: bool,
) -> sqlite3.Connection:
    """Write all that can be read and is right into a new file in the place of the old one.

    The old one is kept beside it. A crash on the way leaves the old one, or the new one. With a
    fault of the structure rows may be missing without a trace: then each space is said to lack
    some, unless it shows in which.
    """
    pages, size = (
        old.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
    )
    if path.stat().st_size < pages * size and not path.with_name(path.name + "-wal").exists():
        raise describe_damage(path, "it is cut off")
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    new = sqlite3.connect(fresh, isolation_level=None)
    try:
        new.execute("PRAGMA synchronous = FULL")
        new.execute("BEGIN IMMEDIATE")
        create_tables(new)
        write_meta(new, read_meta(old, path))
        _copy_outbox(old, new)
        spaces = [space for space in list_spaces(old) if space != DAMAGED]
        lacking = [space for space in spaces if not _copy_space(old, new, space)]
        if DAMAGED in list_spaces(old):
            _copy_space(old, new, DAMAGED)
        for space in lacking or (spaces if has_fault else ()):
            _add_damaged(new, space, [(b"", b"some values may be missing")])
        for pragma in ("application_id", "user_version"):
            value = old.execute(f"PRAGMA {pragma}").fetchone()[0]
            new.execute(f"PRAGMA {pragma} = {value}")
        new.execute("COMMIT")
    finally:
        new.close()
    with suppress(sqlite3.DatabaseError):
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    old.close()
    kept = path.with_name(path.name + KEPT)
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    path.with_name(path.name + "-wal").unlink(missing_ok=True)
    fresh.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(directory)
    os.close(directory)
    return connect(path)


def _copy_outbox(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    rows: dict[int, tuple[int, int, int, object]] = {}
    query = "SELECT first, count, epoch, records FROM outbox ORDER BY first"
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            for row in old.execute(f"{query} {order}"):
                rows.setdefault(row[0], row)
    settled = int(_look_at_meta(new)[0].get("settled", 1))
    _write_outbox(new, _fill_outbox(list(rows.values()), settled))


def _copy_space(old: sqlite3.Connection, new: sqlite3.Connection, space: str) -> bool:
    """Copy what is right in a space, read from both ends up to what cannot be read.

    Return whether it seems whole: every row was read once, in the order of keys.
    """
    new.execute(write_create(space))
    new.execute(write_create(DAMAGED))
    seed, table = seed_space(space), name_table(space)
    found: dict[object, object] = {}
    is_whole = True
    for order in ("ASC", "DESC"):
        try:
            for key, stored in old.execute(f"SELECT key, value FROM {table} ORDER BY key {order}"):
                is_right = open_value(seed, key, stored) is not None
                is_whole &= is_right and key not in found
                if is_right or key not in found:
                    found[key] = stored
            break
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            is_whole = False
    right = [row for row in found.items() if open_value(seed, *row) is not None]  # type: ignore[arg-type]
    wrong = [row for row in found.items() if open_value(seed, *row) is None]  # type: ignore[arg-type]
    new.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", sorted(right))
    _add_damaged(new, space, wrong)
    return is_whole


# Looking alone -------------------------------------------------------------------------------

_HEADER = {  # what a store of ours has in the first page, by offset
    0: b"SQLite format 3\0",
    16: b"\x10\0\2\2\0\x40\x20\x20",  # page size, WAL, no reserved bytes, payload fractions
    44: b"\0\0\0\4",  # schema format
    52: b"\0\0\0\0",  # no vacuum by itself
    56: b"\0\0\0\1",  # UTF-8
    64: b"\0\0\0\0",
    72: bytes(20),
}


def check_store(path: Path) -> list[str]:
    """Return everything that is wrong with a store that nobody has open; changes nothing."""
    wal = path.with_name(path.name + "-wal")
    with TemporaryDirectory() as folder:
        source = f"{path.absolute().as_uri()}?immutable=1"
        if wal.exists():  # reading it needs writing beside it
            copy = Path(folder) / path.name
            shutil.copyfile(path, copy)
            shutil.copyfile(wal, copy.with_name(wal.name))
            source = copy.as_uri()
        connection = sqlite3.connect(source, isolation_level=None, uri=True)
        connection.text_factory = _read_text
        try:
            # With a write-ahead log the first page may still be there.
            header = [] if wal.exists() else _check_header(path)
            return [*header, *check_wal(wal), *_check_contents(connection)]
        finally:
            connection.close()


def _check_header(path: Path) -> list[str]:
    with path.open("rb") as file:
        header = file.read(100)
    return [
        f"the file's header at byte {at}: {header[at : at + len(right)].hex(' ')} instead of"
        f" {right.hex(' ')}"
        for at, right in _HEADER.items()
        if header[at : at + len(right)] != right
    ]


def _check_contents(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        fault = find_fault(connection, is_full=True)
        if fault:
            yield f"the file's structure: {fault}"
        if connection.execute("PRAGMA user_version").fetchone()[0] < 2:
            return  # of an older version: nothing in it has a checksum
        for space in list_spaces(connection):
            yield from _check_space(connection, space)
        right, wrong = _look_at_meta(connection)
        for name in wrong:
            yield f"meta: {name} is damaged"
        copies = [row[0] for row in connection.execute("SELECT name FROM meta")]
        for name in sorted({"node", "epoch", *right}):
            if not {name, name + _TWIN} <= {*copies}:
                yield f"meta: a copy of {name} is missing"
        next_ = 0
        for row in connection.execute("SELECT first, count, epoch, records FROM outbox"):
            if open_row(row) is None or (next_ and row[0] != next_):
                yield f"log records that wait, from number {row[0]} on, are damaged"
            next_ = sum(row[:2]) if open_row(row) else 0
    except sqlite3.Error as error:
        yield f"the file cannot be read further: {error}"


def _check_space(connection: sqlite3.Connection, space: str) -> Iterator[str]:
    for (key, _), is_right in _find_wrong(_read_table(connection, space), space):
        what = "the value at" if is_right else "the key, or the order, of"
        yield f"{space}: {what} {describe_key(key)} is damaged"


_WAL_HEADER, _FRAME_HEADER = 32, 24
_Sums = tuple[int, int]


def check_wal(path: Path) -> list[str]:
    """Return what is damaged in a write-ahead log.

    SQLite ignores all that is behind the first frame with a wrong checksum: after a power cut that
    is a commit which nobody was told of; behind damage it is commits that were acknowledged.
    """
    data = path.read_bytes() if path.exists() else b""
    if not data:
        return []
    size = int.from_bytes(data[8:12], "big")
    order = ">" if data[3:4] == b"\x83" else "<"
    sums = _add_up(data[:24], (0, 0), order)
    if len(data) < _WAL_HEADER or sums != struct.unpack(">II", data[24:32]) or size < 512:
        return [f"{path.name}: its header is damaged, all commits in it are lost"]
    salts = data[16:20], data[20:24]
    broken = commits = 0
    for at in range(_WAL_HEADER, len(data) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        frame = data[at : at + _FRAME_HEADER + size]
        if frame[8:12] != salts[0] and frame[12:16] != salts[1]:
            break  # of an earlier use of the file
        sums = _add_up(frame[_FRAME_HEADER:], _add_up(frame[:8], sums, order), order)
        is_right = sums == struct.unpack(">II", frame[16:24]) and frame[8:16] == b"".join(salts)
        broken = broken or (0 if is_right else at)
        commits += bool(broken) and any(frame[4:8])
    if not broken:
        return []
    what = f"{commits} commits behind it are lost" if commits > 1 else "the last commit is lost"
    return [f"{path.name}: damaged, or cut off by a power failure, at byte {broken}: {what}"]


def _add_up(data: bytes, sums: _Sums, order: str) -> _Sums:
    """Return SQLite's own checksum of a piece of its log, after what came before."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for left, right in zip(words[::2], words[1::2], strict=True):
        first = first + left + second & 0xFFFFFFFF
        second = second + right + first & 0xFFFFFFFF
    return first, second
