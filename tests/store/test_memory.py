"""The emulated disk: crashes and faults at every operation, and a disk that lies."""

from __future__ import annotations

import pytest
from denwatch.node.store import StoreFailed, StoreFull

from simulator.memory_store import Crashed, EmulatedDisk, Fault, Faults, MemoryStore


def run_transfers(medium: EmulatedDisk, faults: Faults, told: list[int]) -> None:
    """Move a coin between two keys ten times; `told` gets each number after its commit."""
    store = MemoryStore("north", medium, faults=faults)
    start = int(store.get("state", b"turn") or b"0")
    for turn in range(start + 1, start + 11):
        here, there = (b"left", b"right") if turn % 2 else (b"right", b"left")
        store.apply([("state", b"turn", str(turn).encode()), ("coin", here, b"1")], [b"\x01"])
        store.apply([("coin", there, None)])
        assert len(list(store.scan("coin"))) == 1
        store.commit()
        told.append(turn)
        store.drop_outbox(store.next_number)
    store.close()


def check_transfers(medium: EmulatedDisk, told: list[int]) -> int:
    with MemoryStore("north", medium) as store:
        turn = int(store.get("state", b"turn") or b"0")
        assert turn >= max(told, default=0)
        assert len(list(store.scan("coin"))) == (1 if turn else 0)
        assert store.next_number == turn + 1
        return turn


def count_operations() -> int:
    faults = Faults()
    run_transfers(EmulatedDisk(), faults, [])
    return faults.counts["any"]


@pytest.mark.parametrize("trouble", ["crash", "crash-after", "full", "failed"])
def test_a_fault_at_every_operation_breaks_no_promise(trouble: Fault) -> None:
    total = count_operations()
    assert total > 50
    for number in range(1, total + 1):
        faults = Faults()
        faults.plan("any", number, trouble)
        medium = EmulatedDisk()
        told: list[int] = []
        with pytest.raises((Crashed, StoreFull, StoreFailed)):
            run_transfers(medium, faults, told)
        medium.is_open = False  # a process that stops on an error lets go as well
        check_transfers(medium, told)


def test_a_crash_around_a_commit_leaves_all_or_nothing() -> None:
    for trouble, turns in (("crash", 2), ("crash-after", 3)):
        faults = Faults()
        faults.plan("commit", 3, trouble)  # type: ignore[arg-type]
        medium = EmulatedDisk()
        told: list[int] = []
        with pytest.raises(Crashed):
            run_transfers(medium, faults, told)
        assert told == [1, 2]
        assert check_transfers(medium, told) == turns


def test_after_a_full_disk_the_store_goes_on_where_it_was() -> None:
    faults = Faults()
    faults.plan("commit", 2, "full")
    store = MemoryStore("north", faults=faults)
    store.apply([("a", b"k", b"1")])
    store.commit()
    store.apply([("a", b"k", b"2")])
    with pytest.raises(StoreFull):
        store.commit()
    with pytest.raises(StoreFull):
        store.get("a", b"k")
    store.rollback()
    assert store.get("a", b"k") == b"1"
    assert not store.commit()


def test_after_a_failure_only_opening_anew_helps() -> None:
    faults = Faults()
    faults.plan("apply", 1, "failed")
    store = MemoryStore("north", faults=faults)
    with pytest.raises(StoreFailed):
        store.apply([("a", b"k", b"1")])
    with pytest.raises(StoreFailed):
        store.rollback()
    store.close()
    assert MemoryStore("north", store.medium).epoch == 2


def test_a_dead_process_does_nothing_more() -> None:
    store = MemoryStore("north")
    store.crash()
    with pytest.raises(StoreFailed):
        store.apply([])
    with MemoryStore("north", store.medium) as again:
        assert again.epoch == 2


def test_a_crash_cannot_be_caught_by_the_code_that_dies() -> None:
    assert not issubclass(Crashed, Exception)


@pytest.mark.parametrize(("keep", "left"), [(0, b"2"), (1, b"3"), (2, b"4"), (9, b"4")])
def test_a_disk_that_does_not_sync_loses_the_last_commits(keep: int, left: bytes) -> None:
    store = MemoryStore("north", EmulatedDisk(syncs=False))
    for number in (b"1", b"2", b"3", b"4"):
        store.apply([("a", b"k", number)])
        store.commit()
        if number == b"2":
            store.medium.sync()
    medium = store.crash(keep)
    with MemoryStore("north", medium) as again:
        assert again.get("a", b"k") == left


def test_a_copy_of_the_disk_lives_on_apart() -> None:
    store = MemoryStore("north")
    store.apply([("a", b"k", b"1")], [b"\x01"])
    store.commit()
    twin = store.medium.copy()
    store.apply([("a", b"k", b"2")], [b"\x02"])
    store.commit()
    with MemoryStore("north", twin) as other:
        assert other.get("a", b"k") == b"1"
        assert other.next_number == 2
    assert store.get("a", b"k") == b"2"


def test_a_plan_must_make_sense() -> None:
    with pytest.raises(ValueError, match="no fault"):
        Faults().plan("commit", 1, "earthquake")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no fault"):
        Faults().plan("lunch", 1, "crash")  # type: ignore[arg-type]
