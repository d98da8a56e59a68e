"""A transaction reads what it has written, and what the node reports afterwards is in order."""

from __future__ import annotations

from denwatch.node.core.events import Write
from denwatch.node.core.item_store import Transaction
from hypothesis import given
from hypothesis import strategies as st

from simulator.memory_store import MemoryStore


@given(
    st.dictionaries(st.binary(max_size=2), st.binary(max_size=1)),
    st.dictionaries(st.binary(max_size=2), st.none() | st.binary(max_size=1)),
    st.binary(max_size=1),
)
def test_a_transaction_reads_what_it_has_written(
    old: dict[bytes, bytes], new: dict[bytes, bytes | None], prefix: bytes
) -> None:
    reader = MemoryStore("a")
    reader.apply([("x", key, value) for key, value in old.items()])
    transaction = Transaction(0, reader)
    for key, value in new.items():
        transaction.write("x", key, value)
    after = {key: value for key, value in {**old, **new}.items() if value is not None}
    wanted = sorted((k, v) for k, v in after.items() if k.startswith(prefix))
    assert list(transaction.scan("x", prefix)) == wanted
    assert all(transaction.get("x", key) == after.get(key) for key in {*old, *new})


def test_all_keys_with_a_prefix_are_deleted_new_ones_too() -> None:
    reader = MemoryStore("a")
    reader.apply([("x", b"a1", b"1"), ("x", b"b1", b"2")])
    transaction = Transaction(0, reader)
    transaction.write("x", b"a2", b"3")
    transaction.clear("x", b"a")
    assert list(transaction.scan("x")) == [(b"b1", b"2")]
    reader.apply([action for action in transaction.actions if isinstance(action, Write)])
    assert dict(reader.scan("x")) == {b"b1": b"2"}
