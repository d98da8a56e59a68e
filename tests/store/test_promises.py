"""What every store promises, on the disk and in memory alike."""

from __future__ import annotations

from itertools import islice

import pytest
from denwatch.node.store import StoreBusy, StoreError, StoreFailed, StoreForeign
from denwatch.node.store.interface import find_prefix_end

from tests.store.places import Place


def test_reads_see_what_was_applied_before_any_commit(place: Place) -> None:
    with place.open() as store:
        store.apply([("a", b"1", b"one"), ("b", b"1", b"other")])
        assert store.get("a", b"1") == b"one"
        assert list(store.scan("a")) == [(b"1", b"one")]
        store.apply([("a", b"1", b"uno"), ("a", b"2", b"due"), ("b", b"1", None)])
        assert list(store.scan("a")) == [(b"1", b"uno"), (b"2", b"due")]
        assert store.get("b", b"1") is None
        assert list(store.scan("b")) == []


def test_what_is_not_there_is_none(place: Place) -> None:
    with place.open() as store:
        assert store.get("never", b"") is None
        assert list(store.scan("never")) == []
        store.apply([("never", b"x", None)])
        assert store.commit()
        assert store.get("never", b"x") is None


def test_the_last_change_of_a_key_in_a_group_counts(place: Place) -> None:
    with place.open() as store:
        store.apply([("a", b"k", b"1"), ("a", b"k", None), ("a", b"k", b"3")])
        store.apply([("a", b"gone", b"1"), ("a", b"gone", None)])
        store.commit()
        assert list(store.scan("a")) == [(b"k", b"3")]


def test_committed_survives_a_crash_and_the_rest_does_not(place: Place) -> None:
    store = place.open()
    store.apply([("a", b"1", b"safe")], [b"\x01"])
    assert store.commit()
    store.apply([("a", b"1", b"lost"), ("a", b"2", b"lost"), ("new", b"", b"lost")], [b"\x02"])
    list(store.scan("a"))  # moves the group into the database's transaction
    place.crash(store)
    with place.open() as again:
        assert list(again.scan("a")) == [(b"1", b"safe")]
        assert list(again.scan("new")) == []
        assert again.next_number == 2
        assert [row.records for row in again.read_outbox(10)] == [b"\x01"]


def test_closing_forgets_what_is_not_committed(place: Place) -> None:
    with place.open() as store:
        store.apply([("a", b"1", b"x")])
    with place.open() as store:
        assert store.get("a", b"1") is None


def test_rollback_goes_back_to_the_last_commit(place: Place) -> None:
    with place.open() as store:
        store.apply([("a", b"1", b"kept")], [b"\x01"])
        store.commit()
        store.apply([("a", b"1", None), ("fresh", b"1", b"x")], [b"\x02"])
        list(store.scan("fresh"))
        store.rollback()
        assert store.get("a", b"1") == b"kept"
        assert store.get("fresh", b"1") is None
        assert store.next_number == 2
        assert not store.commit()
        store.apply([("fresh", b"1", b"y")])
        store.commit()
        assert store.get("fresh", b"1") == b"y"


def test_a_commit_without_changes_does_nothing(place: Place) -> None:
    with place.open() as store:
        assert not store.commit()
        store.apply([])
        assert not store.commit()


def test_the_epoch_rises_with_each_start_even_after_a_crash(place: Place) -> None:
    seen = []
    for _ in range(3):
        store = place.open()
        seen.append(store.epoch)
        place.crash(store)
    assert seen == [1, 2, 3]
    with place.open(first_epoch=100) as store:
        assert store.epoch == 100
    with place.open(first_epoch=50) as store:
        assert store.epoch == 101


def test_a_store_of_another_node_is_refused(place: Place) -> None:
    place.open("north").close()
    with pytest.raises(StoreForeign, match=r"north.*south"):
        place.open("south")
    with place.open("north") as store:
        assert store.node == "north"
        assert store.epoch == 2  # the refused start did not count


def test_a_store_is_open_once(place: Place) -> None:
    with place.open(), pytest.raises(StoreBusy):
        place.open()
    place.open().close()


def test_scan_goes_in_key_order_within_its_prefix(place: Place) -> None:
    keys = [b"", b"a", b"a\x00", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff", b"\xff\x00"]
    with place.open() as store:
        store.apply([("s", key, b"v") for key in reversed(keys)])
        store.commit()
        for prefix in (b"", b"a", b"a\xff", b"\xff", b"\xff\xff", b"c"):
            found = [key for key, _ in store.scan("s", prefix)]
            assert found == sorted(key for key in keys if key.startswith(prefix)), prefix


def test_a_scan_of_many_keys_sees_each_once_while_others_change(place: Place) -> None:
    with place.open() as store:
        store.apply([("s", i.to_bytes(2, "big"), b"v") for i in range(0, 3000, 2)])
        store.commit()
        seen = []
        for key, _ in store.scan("s"):
            number = int.from_bytes(key, "big")
            seen.append(number)
            if number % 2 == 0:
                store.apply([("s", (number + 1).to_bytes(2, "big"), b"new")])
                store.apply([("t", key, b"elsewhere")])
            if number % 500 == 0:
                store.commit()
        assert [number for number in seen if number % 2 == 0] == list(range(0, 3000, 2))
        assert len(seen) == len(set(seen))
        assert len(list(store.scan("s"))) == 3000


def test_a_scan_may_be_left_in_the_middle(place: Place) -> None:
    with place.open() as store:
        store.apply([("s", i.to_bytes(2, "big"), b"v") for i in range(600)])
        rest = store.scan("s")
        assert len(list(islice(rest, 300))) == 300
        store.commit()
        store.apply([("s", i.to_bytes(2, "big"), None) for i in range(600)])
        store.commit()
        assert list(store.scan("s")) == []


def test_a_scan_can_delete_what_it_sees(place: Place) -> None:
    with place.open() as store:
        store.apply([("s", i.to_bytes(2, "big"), b"v") for i in range(1000)])
        for key, _ in store.scan("s"):
            store.apply([("s", key, None)])
        store.commit()
        assert list(store.scan("s")) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("a", "text", b"v"), TypeError),
        (("a", b"k", "text"), TypeError),
        (("a", bytearray(b"k"), b"v"), TypeError),
        (("Bad Name", b"k", b"v"), ValueError),
        (('x"; drop table meta; --', b"k", b"v"), ValueError),
        (("", b"k", b"v"), ValueError),
    ],
)
def test_a_bad_change_is_refused_with_the_whole_call(
    place: Place, change: tuple[str, bytes, bytes], error: type[Exception]
) -> None:
    with place.open() as store:
        with pytest.raises(error):
            store.apply([("a", b"good", b"v"), change], [b"\x01"])
        assert store.get("a", b"good") is None
        assert store.next_number == 1
        assert not store.commit()


def test_a_log_record_must_be_bytes(place: Place) -> None:
    with place.open() as store, pytest.raises(TypeError):
        store.apply([("a", b"k", b"v")], [b""])


def test_records_are_numbered_without_gaps(place: Place) -> None:
    store = place.open()
    store.apply([], [b"\x01", b"\x02"])
    store.commit()
    store.apply([], [b"\x03"])
    place.crash(store)
    store = place.open()
    store.apply([], [b"\x04"])
    assert store.next_number == 4
    assert store.read_outbox(10)[-1].first == 1  # not committed, not there
    store.commit()
    assert [tuple(row) for row in store.read_outbox(10)] == [
        (1, 2, 1, b"\x01\x02"),
        (3, 1, 2, b"\x04"),
    ]
    assert len(store.read_outbox(2)) == 1
    place.crash(store)


def test_dropping_from_the_outbox_is_part_of_the_group(place: Place) -> None:
    store = place.open()
    for number in range(3):
        store.apply([], [bytes([number + 1])])
        store.commit()
    store.drop_outbox(3)
    assert [row.first for row in store.read_outbox(10)] == [3]
    assert store.settled == 1
    store.rollback()
    assert [row.first for row in store.read_outbox(10)] == [1, 2, 3]
    store.drop_outbox(4)
    assert store.commit()
    assert store.settled == 4
    place.crash(store)
    with place.open() as again:
        assert again.settled == again.next_number == 4
        assert again.read_outbox(10) == []
        again.drop_outbox(2)
        assert again.settled == 4


def test_half_a_row_or_the_future_cannot_be_dropped(place: Place) -> None:
    with place.open() as store:
        store.apply([], [b"\x01", b"\x02"])
        with pytest.raises(ValueError, match="no row"):
            store.drop_outbox(3)
        store.commit()
        with pytest.raises(ValueError, match="no row"):
            store.drop_outbox(2)
        with pytest.raises(ValueError, match="no row"):
            store.drop_outbox(9)
        assert len(store.read_outbox(10)) == 1


def test_a_group_with_very_many_records_becomes_several_rows(place: Place) -> None:
    with place.open() as store:
        store.apply([], [b"\x01"] * 10_000)
        store.commit()
        rows = store.read_outbox(100_000)
        assert sum(row.length for row in rows) == 10_000
        assert [row.first for row in rows] == [1, 4097, 8193]
        store.apply([], [bytes(700_000)] * 3)
        store.commit()
        assert [row.length for row in store.read_outbox(100_000)[3:]] == [1, 1, 1]


def test_a_closed_store_refuses_everything(place: Place) -> None:
    store = place.open()
    store.close()
    store.close()
    for call in (
        lambda: store.get("a", b""),
        lambda: list(store.scan("a")),
        lambda: store.apply([]),
        lambda: store.commit(),
        lambda: store.rollback(),
        lambda: store.read_outbox(1),
        lambda: store.drop_outbox(1),
    ):
        with pytest.raises(StoreFailed, match="closed"):
            call()
    assert issubclass(StoreFailed, StoreError)


def test_large_groups_and_values(place: Place) -> None:
    with place.open() as store:
        changes = [("s", i.to_bytes(3, "big"), bytes(20)) for i in range(20_000)]
        store.apply(changes)
        store.apply([("s", b"big", bytes(5 << 20))])
        assert store.get("s", (7).to_bytes(3, "big")) == bytes(20)
        store.commit()
        assert sum(1 for _ in store.scan("s")) == 20_001
        assert len(store.get("s", b"big") or b"") == 5 << 20


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"", None), (b"\xff\xff", None), (b"a", b"b"), (b"a\xff", b"b"), (b"\x00", b"\x01")],
)
def test_the_end_of_a_prefix(prefix: bytes, end: bytes | None) -> None:
    assert find_prefix_end(prefix) == end
