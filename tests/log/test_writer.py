"""The writer on a real directory, with the real store; what it does without a crash."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from denwatch.node.log import (
    DiskFiles,
    Header,
    LogError,
    LogRecord,
    Writer,
    encode_record,
    read_name,
    read_segment,
)
from denwatch.node.log.segments import pack_header
from denwatch.node.store import Storage, Store

from simulator.memory_store import MemoryStore
from tests.log.building import read_all
from tests.log.samples import NOW, make_note

ROOT = Path(__file__).parents[2]


def log(store: Storage, count: int) -> None:
    """Log notifications that carry their own number."""
    for _ in range(count):
        store.apply([], [encode_record("note", make_note(store.next_number), NOW)])


def list_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def read_directory(directory: Path) -> list[LogRecord]:
    """Return all records in all segments; there must be no damage."""
    records: list[LogRecord] = []
    for path in sorted(directory.iterdir()):
        parsed = read_name(path.name)
        assert parsed is not None, path
        found, damages = read_all(read_segment(path.read_bytes(), is_closed=parsed.is_closed))
        assert damages == []
        records += found
    return records


def check_numbers(records: list[LogRecord], count: int) -> None:
    assert [record.number for record in records] == list(range(1, count + 1))
    assert [record.fields["sequence"] for record in records] == list(range(1, count + 1))


def test_records_move_from_the_outbox_to_a_segment(tmp_path: Path) -> None:
    with Store(tmp_path / "n.db", "north") as store:
        writer = Writer(store, DiskFiles(tmp_path / "log"))
        assert writer.move(NOW) == 0
        assert list_names(tmp_path / "log") == []
        log(store, 10)
        assert writer.move(NOW) == 0  # not committed
        store.commit()
        assert writer.move(NOW) == 10
        assert store.commit()
        assert store.read_outbox(1) == []
        assert store.settled == writer.next_number == 11
        check_numbers(read_directory(tmp_path / "log"), 10)
        assert writer.move(NOW) == 0
        assert not store.commit()


def test_a_limit_moves_whole_commits_up_to_it(tmp_path: Path) -> None:
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path))
    for _ in range(5):
        log(store, 4)
        store.commit()
    assert [writer.move(NOW, limit=6) for _ in range(4)] == [8, 8, 4, 0]
    store.commit()
    check_numbers(read_directory(tmp_path), 20)


def test_segments_are_closed_at_their_size(tmp_path: Path) -> None:
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path), segment_bytes=2_000)
    for _ in range(40):
        log(store, 5)
        store.commit()
        writer.move(NOW)
        store.commit()
    names = list_names(tmp_path)
    assert len(names) > 3
    assert [name.endswith(".dlog") for name in names] == [True] * (len(names) - 1) + [False]
    check_numbers(read_directory(tmp_path), 200)


def test_segments_are_closed_at_their_age_even_if_nothing_comes(tmp_path: Path) -> None:
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path), segment_age=1000)
    log(store, 1)
    store.commit()
    writer.move(NOW)
    writer.move(NOW + 2000)
    assert list_names(tmp_path)[0].endswith(".open")  # its rows are not dropped for good
    store.commit()
    writer.move(NOW + 999)
    assert list_names(tmp_path)[0].endswith(".open")
    writer.move(NOW + 1000)
    assert list_names(tmp_path)[0].endswith(".dlog")


def test_a_clock_that_is_set_back_closes_the_segment(tmp_path: Path) -> None:
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path))
    log(store, 1)
    store.commit()
    writer.move(NOW)
    store.commit()
    writer.move(NOW - 1)
    assert list_names(tmp_path)[0].endswith(".dlog")


def test_each_run_has_its_own_segments_and_numbers_go_on(tmp_path: Path) -> None:
    medium = None
    for run in range(3):
        store = MemoryStore("north", medium)
        medium = store.medium
        writer = Writer(store, DiskFiles(tmp_path))
        log(store, 3)
        store.commit()
        for _ in range(3 if run < 2 else 0):
            writer.move(NOW)
            store.commit()
        store.crash()
    store = MemoryStore("north", medium)
    Writer(store, DiskFiles(tmp_path)).close(NOW)
    records = read_directory(tmp_path)
    check_numbers(records, 9)
    assert [record.epoch for record in records] == [1] * 3 + [2] * 3 + [3] * 3
    assert all(name.endswith(".dlog") for name in list_names(tmp_path))


def test_close_moves_everything_and_closes(tmp_path: Path) -> None:
    with Store(tmp_path / "n.db", "north") as store:
        writer = Writer(store, DiskFiles(tmp_path / "log"))
        log(store, 100)
        writer.close(NOW)
        assert store.settled == 101
        writer.close(NOW)
    (name,) = list_names(tmp_path / "log")
    assert name == "north-0000000001-00000000000000000001.dlog"
    check_numbers(read_directory(tmp_path / "log"), 100)


def test_a_rolled_back_drop_moves_nothing_twice(tmp_path: Path) -> None:
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path))
    log(store, 3)
    store.commit()
    assert writer.move(NOW) == 3
    store.rollback()
    assert len(store.read_outbox(10)) == 1
    log(store, 2)
    store.commit()
    assert writer.move(NOW) == 2
    store.commit()
    check_numbers(read_directory(tmp_path), 5)


def test_a_store_older_than_its_log_is_refused(tmp_path: Path) -> None:
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path))
    log(store, 3)
    store.commit()
    old = store.medium.copy()
    log(store, 3)
    store.commit()
    writer.close(NOW)
    with pytest.raises(LogError, match=r"up to 6.*only up to 3.*older than the log"):
        Writer(MemoryStore("north", old), DiskFiles(tmp_path))


def test_nodes_may_share_a_directory_with_each_other_and_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for name in ("north", "north-2", "a/b"):
        store = MemoryStore(name)
        writer = Writer(store, DiskFiles(tmp_path))
        log(store, 2)
        writer.close(NOW)
    assert len(list_names(tmp_path)) == 4
    assert (tmp_path / "notes.txt").read_text() == "hello"


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_segment_that_was_damaged_while_open(tmp_path: Path, is_settled: bool) -> None:
    """What is damaged is written again if the outbox has it, and kept and reported if not."""
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path))
    for _ in range(2):
        log(store, 5)
        store.commit()
        writer.move(NOW)  # the next commit settles it; the last one is not settled
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[150 if is_settled else -10] ^= 1
    path.write_bytes(data)
    again = MemoryStore("north", store.crash())
    Writer(again, DiskFiles(tmp_path)).close(NOW)
    if not is_settled:
        check_numbers(read_directory(tmp_path), 10)
        return
    contents = read_segment(next(tmp_path.iterdir()).read_bytes(), is_closed=True)
    assert [(d.first, d.length) for d in contents.damages] == [(1, 5), (11, None)]
    assert [record.number for record in read_all(contents)[0]] == list(range(6, 11))


def test_a_header_that_never_reached_the_disk_is_begun_again(tmp_path: Path) -> None:
    store = MemoryStore("north")
    log(store, 2)
    store.commit()
    name = "north-0000000001-00000000000000000001.open"
    for stump in (b"", bytes(200), b"\x89DLG"):
        (tmp_path / name).write_bytes(stump)
        Writer(store, DiskFiles(tmp_path))
        assert list_names(tmp_path) == []
    (tmp_path / name).write_bytes(b"\x89DL")
    writer = Writer(store, DiskFiles(tmp_path))
    (tmp_path / name).write_bytes(b"left by a disk that was full")
    writer.move(NOW)
    check_numbers(read_directory(tmp_path), 2)


def test_two_open_segments_are_refused(tmp_path: Path) -> None:
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path))
    log(store, 2)
    store.commit()
    writer.move(NOW)
    (path,) = tmp_path.iterdir()
    twin = tmp_path / "north-0000000001-00000000000000000003.open"
    twin.write_bytes(path.read_bytes())
    with pytest.raises(LogError, match="both open"):
        Writer(store, DiskFiles(tmp_path))


def test_a_segment_whose_header_is_damaged_is_kept_under_a_free_name(tmp_path: Path) -> None:
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path))
    log(store, 2)
    store.commit()
    writer.move(NOW)
    store.commit()
    (path,) = tmp_path.iterdir()
    damaged = b"?" + path.read_bytes()[1:]
    path.write_bytes(damaged)
    path.with_suffix(".dlog").write_bytes(b"somebody's copy")
    Writer(store, DiskFiles(tmp_path))
    twin = path.with_name(path.stem + "~1.dlog")
    assert twin.read_bytes() == damaged
    assert "begins otherwise" in read_segment(damaged, is_closed=True).damages[0].reason


def test_a_segment_that_was_only_begun_goes_with_its_run(tmp_path: Path) -> None:
    store = MemoryStore("north")
    log(store, 2)
    store.commit()
    header = pack_header(Header("north", 7, 1, NOW))
    (tmp_path / "north-0000000007-00000000000000000001.open").write_bytes(header)
    writer = Writer(store, DiskFiles(tmp_path))
    writer.move(NOW)
    assert list_names(tmp_path) == ["north-0000000001-00000000000000000001.open"]


def test_an_outbox_with_a_hole_is_an_error_and_not_a_gap(tmp_path: Path) -> None:
    store = MemoryStore("north")
    writer = Writer(store, DiskFiles(tmp_path))
    for _ in range(2):
        log(store, 2)
        store.commit()
    del store.medium.outbox[0]
    with pytest.raises(LogError, match="record 3, not 1"):
        writer.move(NOW)


def test_files_can_be_written_in_another_thread(tmp_path: Path) -> None:
    """Only `take` and `settle` touch the store, which belongs to one thread."""
    with Store(tmp_path / "n.db", "north") as store, ThreadPoolExecutor(1) as pool:
        writer = Writer(store, DiskFiles(tmp_path / "log"), segment_bytes=1_000)
        for _ in range(10):
            log(store, 5)
            store.commit()
            batch = writer.take()
            moving = pool.submit(writer.write, batch, NOW)
            log(store, 5)  # the node goes on meanwhile
            assert moving.result() == len(batch.rows) * 5
            writer.settle()
            store.commit()
        writer.close(NOW)
        check_numbers(read_directory(tmp_path / "log"), 100)


def test_a_file_is_not_renamed_over_another(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    files.create("a", b"1")
    files.create("b", b"2")
    with pytest.raises(FileExistsError):
        files.rename("a", "b")
    with pytest.raises(FileExistsError):
        files.create("a", b"3")
    assert files.read("b") == b"2"


NODE = """
import sys
from denwatch.node.log import DiskFiles, Writer, encode_record
from denwatch.node.store import Store
from tests.log.samples import make_note
store = Store(sys.argv[1] + "/n.db", "north")
writer = Writer(store, DiskFiles(sys.argv[1] + "/log"), segment_bytes=20_000)
print("open", flush=True)
step = 0
while True:
    step += 1
    number = store.next_number
    store.apply([], [encode_record("note", make_note(number), step)])
    if step % 3 == 0:
        store.commit()
        print(number, flush=True)
    if step % 20 == 0:
        writer.move(step)
"""


def test_kills_of_a_real_process_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(3)
    told = 0
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", NODE, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.2))
        process.kill()
        lines = process.stdout.read().split("\n")[:-1]
        told = int(lines[-1]) if lines else told
        process.wait()
        process.stdout.close()
    with Store(tmp_path / "n.db", "north") as store:
        Writer(store, DiskFiles(tmp_path / "log")).close(NOW)
        count = store.next_number - 1
    assert count >= told > 8
    check_numbers(read_directory(tmp_path / "log"), count)
