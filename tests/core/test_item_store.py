"""What a node holds: what was seen stays seen, expiry is found, a restart changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from denwatch.node.core.events import Write
from denwatch.node.core.item_store import Added, ItemStore, Transaction
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    encode_body,
)
from hypothesis import given
from hypothesis import strategies as st

from simulator.memory_store import MemoryStore


@dataclass
class Witness:
    """Remembers the changes that transactions collected."""

    learned: list[tuple[Dot, str]] = field(default_factory=list)
    forgotten: list[tuple[Dot, str]] = field(default_factory=list)

    def look_at(self, transaction: Transaction) -> None:
        for change in transaction.changes:
            if isinstance(change, Added):
                self.learned += [(item.dot, change.source) for item in change.items]
            else:
                self.forgotten.append((change.item.dot, change.reason))


def commit(store: MemoryStore, transaction: Transaction) -> None:
    store.apply([action for action in transaction.actions if isinstance(action, Write)])
    store.commit()


def make(reader: MemoryStore, epoch: int = 1, shift: int = 0) -> tuple[ItemStore, Witness]:
    item_store = ItemStore(
        "a", epoch, lambda data: b"signed" + data[:1], lambda _, time: time + shift
    )
    item_store.restore(reader)
    return item_store, Witness()


def test_an_item_is_held_written_and_told() -> None:
    reader = MemoryStore("a")
    item_store, witness = make(reader)
    transaction = Transaction(1000, reader)
    item = item_store.originate(transaction, SUBSCRIPTION, 0, b"body")
    assert item.dot == Dot("a", 1, 1)
    assert item.signature.startswith(b"signed")
    assert item_store.get(transaction, SUBSCRIPTION, item.dot) == item  # in the same transaction
    commit(reader, transaction)
    assert item_store.get(reader, SUBSCRIPTION, item.dot) == item  # from the disk
    witness.look_at(transaction)
    assert witness.learned == [(item.dot, "")]
    assert list(item_store.iterate(reader, SUBSCRIPTION)) == [item]


def test_items_that_come_together_are_as_if_they_came_one_by_one() -> None:
    together, one_by_one = MemoryStore("a"), MemoryStore("a")
    bodies = [NotificationBody("dog-1", 1, n, 900 + n, 5, b"vocabula", b"nv") for n in range(3)]
    item_store, witness = make(together)
    transaction = Transaction(1000, together)
    items = item_store.originate_many(transaction, NOTIFICATION, 9_000, bodies)
    commit(together, transaction)
    witness.look_at(transaction)
    other, other_witness = make(one_by_one)
    transaction = Transaction(1000, one_by_one)
    for body in bodies:
        other.originate(transaction, NOTIFICATION, 9_000, encode_body(body), is_signed=False)
    commit(one_by_one, transaction)
    other_witness.look_at(transaction)
    assert together.medium.spaces == one_by_one.medium.spaces
    assert witness.learned == other_witness.learned == [(item.dot, "") for item in items]
    assert [item.said for item in items] == bodies
    assert item_store.live == other.live


def test_what_was_seen_is_not_taken_again() -> None:
    item_store, witness = make(MemoryStore("a"))
    transaction = Transaction(1, MemoryStore("a"))
    item = Item(Dot("b", 3, 7), NOTIFICATION, 0, b"body", b"s")
    assert item_store.accept(transaction, item, "b")
    assert not item_store.accept(transaction, item, "c")
    assert item_store.remove(transaction, NOTIFICATION, item.dot, "delivered") == item
    assert not item_store.accept(transaction, item, "c")
    assert item_store.remove(transaction, NOTIFICATION, item.dot, "delivered") is None
    witness.look_at(transaction)
    assert witness.learned == [(item.dot, "b")]
    assert witness.forgotten == [(item.dot, "delivered")]


def test_what_was_gone_before_it_came_is_not_taken() -> None:
    item_store, _ = make(MemoryStore("a"))
    transaction = Transaction(1, MemoryStore("a"))
    item_store.note_seen(transaction, Dot("b", 3, 7))
    item = Item(Dot("b", 3, 7), SUBSCRIPTION, 0, b"", b"s")
    assert not item_store.accept(transaction, item, "b")


def test_expiry_is_judged_by_this_nodes_clock() -> None:
    reader = MemoryStore("a")
    item_store, witness = make(reader, shift=5_000)
    transaction = Transaction(10_000, reader)
    dot = item_store.originate(transaction, NOTIFICATION, 12_000, b"x", is_signed=False).dot
    commit(reader, transaction)
    for now, count in ((13_000, 1), (16_900, 1), (18_500, 0)):
        transaction = Transaction(now, reader)
        item_store.expire(transaction)
        commit(reader, transaction)
        witness.look_at(transaction)
        assert item_store.count(NOTIFICATION) == count
    assert witness.forgotten == [(dot, "expired")]
    assert not reader.medium.spaces["item.notification"]


def test_an_end_is_looked_at_again_when_the_clocks_learn() -> None:
    """What came while a clock was not known does not outlive what others already ended."""
    reader, doubt = MemoryStore("a"), [86_400_000]
    item_store = ItemStore("a", 1, bytes, lambda _, time: time + doubt[0])
    item_store.restore(reader)
    transaction = Transaction(80_000, reader)
    item_store.expire(transaction)
    item_store.accept(transaction, Item(Dot("b", 1, 50), SUBSCRIPTION, 64_000, b"", b"s"), "b")
    commit(reader, transaction)
    for now, known, count in ((250_000, 86_400_000, 1), (300_000, 20, 1), (420_000, 20, 0)):
        doubt[0] = known
        transaction = Transaction(now, reader)
        item_store.expire(transaction)
        commit(reader, transaction)
        assert item_store.count(SUBSCRIPTION) == count


STEPS = st.lists(
    st.tuples(st.sampled_from(["own", "accept", "remove", "expire"]), st.integers(1, 12)),
    max_size=40,
)


@given(STEPS, st.integers(0, 40))
def test_a_restart_at_any_turn_changes_nothing(steps: list[tuple[str, int]], cut: int) -> None:
    """Against plain sets, and with a restart from the store somewhere between."""
    reader = MemoryStore("a")
    item_store, _ = make(reader)
    held: dict[Dot, int] = {}
    seen: set[Dot] = set()
    now = 1_000
    for place, (what, number) in enumerate(steps):
        if place == cut:
            item_store, _ = make(reader, epoch=2)
        now += 500
        transaction = Transaction(now, reader)
        if what == "own":
            dot = item_store.originate(transaction, NOTIFICATION, now + 1_000 * number, b"").dot
            assert dot not in seen
            held[dot] = now + 1_000 * number
            seen.add(dot)
        elif what == "accept":
            dot = Dot("b", 1, number)
            assert item_store.accept(transaction, Item(dot, NOTIFICATION, 0, b"", b"s"), "b") == (
                dot not in seen
            )
            if dot not in seen:
                held[dot] = 0
            seen.add(dot)
        elif what == "remove" and held:
            dot = sorted(held)[number % len(held)]
            item_store.remove(transaction, NOTIFICATION, dot, "removed")
            del held[dot]
        else:
            item_store.expire(transaction)
            whole = now // 1_000  # expiry is looked at by the second
            held = {d: end for d, end in held.items() if not end or end // 1_000 >= whole}
        commit(reader, transaction)
        assert {item.dot for item in item_store.iterate(reader, NOTIFICATION)} == set(held)
        assert item_store.count(NOTIFICATION) == len(held)
    for dot in seen:
        assert item_store.context.holds(*dot)
