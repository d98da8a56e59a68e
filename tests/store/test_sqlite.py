"""What only the store on the disk has: files, versions, damage, locks, full disks."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from denwatch.node.core.mending import list_damage
from denwatch.node.store import (
    Store,
    StoreBusy,
    StoreDamaged,
    StoreFailed,
    StoreForeign,
    StoreFull,
)
from denwatch.node.store.damage import check_store
from denwatch.node.store.sqlite import APPLICATION_ID, MIGRATIONS


def fill(path: Path, rows: int = 500) -> None:
    with Store(path, "north") as store:
        store.apply([("item", i.to_bytes(4, "big"), bytes([i % 256]) * 50) for i in range(rows)])
        store.commit()


def run_script(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_it_syncs_every_commit_to_a_write_ahead_log(tmp_path: Path) -> None:
    with Store(tmp_path / "n.db", "north") as store:
        connection = store._use()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    with Store(tmp_path / "n.db", "north") as store:
        store.apply([("a", b"k", b"v")])
        store.commit()
        for path in tmp_path.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path


def test_another_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    path = tmp_path / "n.db"
    holder = run_script(
        "import sys; from denwatch.node.store import Store\n"
        "store = Store(sys.argv[1], 'north'); print('open', flush=True); sys.stdin.read()",
        path,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreBusy, match=f"in use by process {holder.pid}"):
            Store(path, "north")
        holder.kill()
        holder.wait()
        with Store(path, "north") as store:  # the lock went with the process
            assert store.epoch == 2
    finally:
        holder.kill()
        holder.communicate()


def test_a_tool_that_writes_to_the_file_is_noticed(tmp_path: Path) -> None:
    fill(tmp_path / "n.db")
    tool = sqlite3.connect(tmp_path / "n.db", isolation_level=None)
    tool.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="another program"):
        Store(tmp_path / "n.db", "north")
    tool.close()
    Store(tmp_path / "n.db", "north").close()


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE bills (id)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreForeign, match="another program"):
        Store(path, "north")
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 500)
    with pytest.raises(StoreDamaged, match=r"notes\.txt is damaged"):
        Store(path, "north")
    assert path.read_text() == "dear diary, " * 500


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "n.db")
    newer = (*MIGRATIONS, lambda connection: connection.execute("CREATE TABLE news (x)"))
    with Store(tmp_path / "n.db", "north", migrations=newer):
        pass
    with pytest.raises(StoreForeign, match=r"version 3.*up to 2.*upgrade"):
        Store(tmp_path / "n.db", "north")


def test_migrations_run_once_each_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "n.db"
    fill(path, 3)
    done: list[int] = []

    def add_column(connection: sqlite3.Connection) -> None:
        done.append(3)
        connection.execute("ALTER TABLE outbox ADD COLUMN note TEXT")

    def fill_column(connection: sqlite3.Connection) -> None:
        done.append(4)
        connection.execute("UPDATE outbox SET note = ''")

    for _ in range(2):
        with Store(path, "north", migrations=(*MIGRATIONS, add_column, fill_column)) as store:
            assert len(list(store.scan("item"))) == 3
            assert store._use().execute("PRAGMA user_version").fetchone() == (4,)
            assert store._use().execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert done == [3, 4]


def test_a_failed_migration_leaves_the_old_store(tmp_path: Path) -> None:
    path = tmp_path / "n.db"
    fill(path, 3)

    def change(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE half (x)")

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(StoreFailed, match="nowhere"):
        Store(path, "north", migrations=(*MIGRATIONS, change, fail))
    with Store(path, "north") as store:
        assert len(list(store.scan("item"))) == 3
        tables = store._use().execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'")
        assert tables.fetchone() == (0,)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize("check", ["quick", "full"])
def test_a_page_that_is_damaged_costs_its_values_and_no_others(tmp_path: Path, check: str) -> None:
    path = tmp_path / "n.db"
    fill(path, 5000)
    before = path.read_bytes()
    overwrite(path, 4096 * 20, b"\xa5" * 4096)
    damaged = path.read_bytes()
    with Store(path, "north", check=check) as store:  # type: ignore[arg-type]
        rows = dict(store.scan("item"))
        assert 4800 < len(rows) < 5000
        assert all(value == bytes([key[-1]]) * 50 for key, value in rows.items())
        assert [str(each) for each in list_damage(store)] == ["item at a key like any, 26 bytes"]
        assert store.epoch == 2
    assert path.with_name("n.db.damaged").read_bytes() == damaged != before


def look_at_all(store: Store) -> None:
    for number in range(5000):
        store.get("item", number.to_bytes(4, "big"))


def write_over_all(store: Store) -> None:
    store.apply([("item", number.to_bytes(4, "big"), b"new") for number in range(5000)])
    store.commit()


@pytest.mark.parametrize(
    "use", [lambda store: list(store.scan("item")), look_at_all, write_over_all]
)
def test_damage_that_is_met_later_stops_the_store(
    tmp_path: Path, use: Callable[[Store], object]
) -> None:
    path = tmp_path / "n.db"
    fill(path, 5000)
    overwrite(path, 4096 * 20, b"\xa5" * 4096)
    with Store(path, "north", check="none") as store:
        store.apply([("other", b"k", b"v")])
        with pytest.raises(StoreDamaged):
            use(store)
        for call in (store.commit, store.rollback, lambda: store.get("other", b"k")):
            with pytest.raises(StoreDamaged):
                call()
    with Store(path, "north", check="none") as store:
        assert store.get("other", b"k") is None


def test_a_damaged_outbox_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "n.db"
    with Store(path, "north") as store:
        for _ in range(200):
            store.apply([], [bytes([7]) * 1000])
            store.commit()
    overwrite(path, 4096 * 3, b"\xa5" * (path.stat().st_size - 4096 * 3))
    with pytest.raises(StoreDamaged):
        Store(path, "north", check="none").read_outbox(1 << 30)
    assert any("structure" in what for what in check_store(path))
    with Store(path, "north") as store:
        assert store.read_outbox(1 << 30) == []
    assert path.with_name("n.db.damaged").exists()


@pytest.mark.parametrize("size", [1, 50, 1000, 4096, 10_000])
def test_a_cut_off_file_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "n.db"
    fill(path, 2000)
    os.truncate(path, size)
    with pytest.raises(StoreDamaged):
        Store(path, "north")


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"nowhere.*directory exists"):
        Store(tmp_path / "nowhere" / "n.db", "north")


def limit_pages(store: Store, more: int) -> None:
    connection = store._use()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + more}")


def test_a_full_disk_undoes_the_group_and_leaves_the_rest(tmp_path: Path) -> None:
    with Store(tmp_path / "n.db", "north") as store:
        store.apply([("a", b"k", b"safe")], [b"\x01"])
        store.commit()
        limit_pages(store, 4)
        store.apply([("a", b"k", b"new"), ("big", b"1", bytes(1 << 20))], [b"\x02"])
        with pytest.raises(StoreFull, match=r"n\.db is full.*make room"):
            store.commit()
        with pytest.raises(StoreFull):  # nobody goes on as if nothing had happened
            store.get("a", b"k")
        with pytest.raises(StoreFull):
            store.commit()
        store.rollback()
        assert store.get("a", b"k") == b"safe"
        assert store.get("big", b"1") is None
        assert store.next_number == 2
        store.apply([("a", b"k", b"small")], [b"\x02"])
        assert store.commit()
    with Store(tmp_path / "n.db", "north") as store:
        assert store.get("a", b"k") == b"small"
        assert list(store.scan("big")) == []
        assert [row.records for row in store.read_outbox(9)] == [b"\x01", b"\x02"]


FILLER = """
import resource, signal, sys
from denwatch.node.store import Store, StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(sys.argv[1], "north")
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
for number in range(100000):
    try:
        store.apply([("a", number.to_bytes(4, "big"), bytes(3000))])
        store.commit()
    except StoreError as error:
        print(type(error).__name__, flush=True)
        try:
            store.get("a", b"")
        except StoreError:
            print("stopped", flush=True)
        break
    print(number, flush=True)
"""


def test_a_disk_that_refuses_writes_loses_nothing_committed(tmp_path: Path) -> None:
    """The system's limit on the size of files makes real writes fail."""
    path = tmp_path / "n.db"
    output, _ = run_script(FILLER, path, 700_000).communicate(timeout=60)
    *numbers, error, stopped = output.split()
    assert error in ("StoreFailed", "StoreFull")
    assert stopped == "stopped"
    assert len(numbers) > 20
    with Store(path, "north", check="full") as store:
        kept = [int.from_bytes(key, "big") for key, _ in store.scan("a")]
    assert kept[: len(numbers)] == [int(number) for number in numbers]
    assert len(kept) <= len(numbers) + 1
