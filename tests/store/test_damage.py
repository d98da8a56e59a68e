"""Bits that change on the disk: each is found, and nothing that changed is ever returned."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from denwatch.node.core.mending import DAMAGED, list_damage
from denwatch.node.log import encode_record
from denwatch.node.store import Store, StoreDecayed, StoreError, StoreFull
from denwatch.node.store.damage import check_store
from denwatch.node.store.sqlite import MAX_EPOCH, MIGRATIONS, create_tables

FLIPS = int(os.environ.get("DENWATCH_FLIPS", "250"))
RECORD = encode_record("stop", {"reason": "a test"}, 1_700_000_000_000)
Contents = dict[tuple[str, bytes], bytes]


def make_contents(rng: Random, count: int = 300) -> Contents:
    """Return values of all sizes in several spaces."""
    rows: Contents = {}
    for space in ("item.notification", "context", "peer.version"):
        for number in range(count):
            size = rng.choice((0, 8, 60, 200, 5_000 if number % 40 == 0 else 90))
            rows[space, b"\5north" + number.to_bytes(12, "big")] = rng.randbytes(size)
    return rows


def make_store(path: Path, rng: Random) -> Contents:
    rows = make_contents(rng)
    with Store(path, "north") as store:
        store.apply([(*place, value) for place, value in rows.items()])
        store.commit()
        for _ in range(30):
            store.apply([], [RECORD] * 5)
            store.commit()
        store.drop_outbox(11)
        store.commit()
    return rows


def read_all(store: Store) -> Contents:
    return {
        (space, key): value
        for space in sorted(store._statements)
        if space != DAMAGED
        for key, value in store.scan(space)
    }


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1 << bit]))


def test_a_store_as_it_was_written_is_right(tmp_path: Path) -> None:
    rows = make_store(tmp_path / "n.db", Random(1))
    before = (tmp_path / "n.db").read_bytes()
    assert check_store(tmp_path / "n.db") == []
    assert (tmp_path / "n.db").read_bytes() == before
    with Store(tmp_path / "n.db", "north") as store:
        assert read_all(store) == rows
        assert list(list_damage(store)) == []


def test_every_flipped_bit_is_named_or_holds_nothing(tmp_path: Path) -> None:
    """`check_store` names it, or all that can be read is what it was; opening serves no other."""
    rng = Random(7)
    path, copy = tmp_path / "n.db", tmp_path / "copy" / "n.db"
    copy.parent.mkdir()
    rows = make_store(path, rng)
    named = refused = 0
    for _ in range(FLIPS):
        shutil.rmtree(copy.parent)
        copy.parent.mkdir()
        shutil.copyfile(path, copy)
        place = rng.randrange(path.stat().st_size), rng.randrange(8)
        flip(copy, *place)
        found = check_store(copy)
        named += bool(found)
        try:
            with Store(copy, "north") as store:
                read = read_all(store)
                outbox = store.read_outbox(1 << 30)
                lost = list(list_damage(store))
                end = store.next_number
                assert store.epoch == 2
        except StoreError:
            assert found, place
            refused += 1
            continue
        assert read.items() <= rows.items(), (place, found)
        if not found:
            assert (read, lost) == (rows, []), place
            assert [row.records for row in outbox] == [RECORD * 5] * 28, place
        assert len(read) == len(rows) or lost, place
        assert end >= 151 or (copy.parent / "n.db.damaged").exists(), place
        ends = [11, *(row.first + row.length for row in outbox)]  # no gaps, whatever was lost
        assert [row.first for row in outbox] + [end] == ends, place
        assert check_store(copy) == [], place
    assert named > FLIPS * 3 // 4
    assert refused < FLIPS // 20


def test_a_value_that_changes_while_a_node_runs_is_not_returned(tmp_path: Path) -> None:
    path = tmp_path / "n.db"
    make_store(path, Random(1))
    key = b"\5north" + (77).to_bytes(12, "big")
    with Store(path, "north") as store:
        table = store._use()
        select = 'SELECT value FROM "space_context" WHERE key = ?'
        stored = table.execute(select, (key,)).fetchone()[0]
        changed = bytes([stored[0] ^ 4]) + stored[1:]
        table.execute('UPDATE "space_context" SET value = ? WHERE key = ?', (changed, key))
        store.apply([("other", b"k", b"v")])
        with pytest.raises(StoreDecayed, match=f"{key.hex()} in context"):
            store.get("context", key)
        with pytest.raises(StoreDecayed):
            store.commit()
    with Store(path, "north") as store:
        assert store.get("other", b"k") is None
        assert store.get("context", key) is None
        (lost,) = list_damage(store)
        assert (lost.space, lost.key, lost.is_key_right) == ("context", key, True)
        assert store.get("context", key[:-1] + b"N") is not None
    with Store(path, "north") as store:
        table = store._use()
        table.execute('UPDATE "space_context" SET value = zeroblob(20) WHERE key > ?', (key,))
        with pytest.raises(StoreDecayed):
            list(store.scan("context"))


def test_a_store_of_the_version_before_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "n.db"
    rows = make_contents(Random(3), 50)
    old = sqlite3.connect(path, isolation_level=None)
    create_tables(old)
    for space in {space for space, _ in rows}:
        old.execute(
            f'CREATE TABLE "space_{space}"'
            " (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL) WITHOUT ROWID"
        )
    for (space, key), value in rows.items():
        old.execute(f'INSERT INTO "space_{space}" VALUES (?, ?)', (key, value))
    old.execute("INSERT INTO outbox VALUES (40, 2, 17, ?)", (RECORD * 2,))
    old.executemany(
        "INSERT INTO meta VALUES (?, ?)", [("node", "north"), ("epoch", 17), ("settled", 40)]
    )
    old.execute("PRAGMA application_id = 0x44454E53")
    old.execute("PRAGMA user_version = 1")
    old.close()
    for _ in range(2):
        with Store(path, "north") as store:
            assert read_all(store) == rows
            (row,) = store.read_outbox(9)
            assert tuple(row) == (40, 2, 17, RECORD * 2)
            assert (store.settled, store.next_number) == (40, 42)
    assert store.epoch == 19
    assert check_store(path) == []
    assert len(MIGRATIONS) == 2


def test_an_epoch_of_a_far_clock_is_forgotten(tmp_path: Path) -> None:
    with Store(tmp_path / "n.db", "north", first_epoch=MAX_EPOCH + 20_000_000):
        pass
    with Store(tmp_path / "n.db", "north", first_epoch=1_700_000_000) as store:
        assert store.epoch == 1_700_000_000


KILLED = """
import os, sys
from denwatch.node.store import Store
store = Store(sys.argv[1], "north")
for number in range(40):
    store.apply([("item.notification", number.to_bytes(4, "big"), bytes(300))])
    store.commit()
os.kill(os.getpid(), 9)
"""


def test_a_flipped_bit_in_the_write_ahead_log_is_named(tmp_path: Path) -> None:
    """SQLite takes damage there for a power cut, and forgets commits without a word."""
    path = tmp_path / "n.db"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    wal = path.with_name("n.db-wal")
    whole = wal.read_bytes()
    assert check_store(path) == []
    assert wal.read_bytes() == whole
    rng = Random(5)
    for _ in range(FLIPS // 5):
        flip(wal, rng.randrange(len(whole)), rng.randrange(8))
        assert any("n.db-wal" in what for what in check_store(path))
        wal.write_bytes(whole)


def test_no_room_for_a_file_is_something_that_may_pass(tmp_path: Path) -> None:
    script = """
import resource, sys
from denwatch.node.store import Store, StoreFull
import encodings.latin_1
files = [open(sys.executable) for _ in range(10)]
resource.setrlimit(resource.RLIMIT_NOFILE, (files[-1].fileno() + 1 + int(sys.argv[2]), 4096))
try:
    Store(sys.argv[1], "north")
except StoreFull as error:
    print(error)
"""
    for free in range(2):  # of the lock and of the database
        command = [sys.executable, "-c", script, str(tmp_path / "n.db"), str(free)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "cannot be opened" in said, (free, said)
    assert StoreFull.__mro__[1] is StoreError
