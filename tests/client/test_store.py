"""The store and the inbox: what is on the disk, what is handled, what is refused."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.subscriber import Promise, SubscriberStoreError, TransactionError
from denwatch.client.subscriber.core import (
    MarkReported,
    StoreNotification,
    StoreReply,
    SubscriberRequest,
)
from denwatch.client.subscriber.messages import Reply, read_notification
from denwatch.client.subscriber.store import Inbox, SubscriberStore

from tests.client.sites import build_note, number


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "medic7.db"


def keep(index: int, **fields: Any) -> StoreNotification:
    payload = json.dumps(build_note(index, **fields)).encode()
    note = read_notification(payload)
    assert note is not None
    return StoreNotification(note, payload, 5)


def drain(inbox: Inbox) -> list[int]:
    found: list[int] = []
    while True:
        with inbox.take() as taken:
            if taken is None:
                return found
            found.append(taken[0].fields["index"])


# The store ---------------------------------------------------------------------------------------


def test_it_is_safe_against_a_power_cut(path: Path) -> None:
    store = SubscriberStore(path, "medic7", "device")
    ask = store._connection.execute
    assert ask("PRAGMA journal_mode").fetchone() == ("wal",)
    assert ask("PRAGMA synchronous").fetchone() == (2,)  # FULL
    store.close()


def test_a_note_is_new_once_and_reported_again_when_it_comes_again(path: Path) -> None:
    store = SubscriberStore(path, "medic7", "device")
    assert store.apply([keep(1), keep(2), keep(1)]) == 2
    keys = store.list_unreported()
    assert keys == [json.dumps(number(1)), json.dumps(number(2))]
    assert store.apply([MarkReported(tuple(keys))]) == 0
    assert store.list_unreported() == []
    assert store.apply([keep(2)]) == 0
    assert store.list_unreported() == [json.dumps(number(2))]
    store.close()


def test_one_reading_through_two_nodes_is_one_note_and_both_nodes_are_told(path: Path) -> None:
    store = SubscriberStore(path, "medic7", "device")
    inbox = Inbox(path, Clock())
    assert store.apply([keep(1, reading="cuff/3/9"), keep(2, reading="cuff/3/9")]) == 1
    assert store.apply([keep(3, reading="cuff/3/10"), keep(4), keep(5)]) == 3
    assert drain(inbox) == [1, 3, 4, 5]
    keys = [json.dumps(number(index)) for index in (1, 2, 3, 4, 5)]
    assert store.list_unreported() == keys
    store.apply([MarkReported(tuple(keys))])
    assert store.apply([keep(2, reading="cuff/3/9"), keep(1, reading="cuff/3/9")]) == 0
    assert sorted(store.list_unreported()) == sorted(keys[:2])
    assert drain(inbox) == []
    inbox.close()
    store.close()


def test_a_store_of_the_first_schema_is_taken_over(path: Path) -> None:
    store = SubscriberStore(path, "medic7", "device")
    store.apply([keep(1)])
    ask = store._connection.execute
    ask("DROP INDEX denwatch_readings")
    ask("ALTER TABLE denwatch_inbox DROP COLUMN reading")
    ask("PRAGMA user_version=1")
    store.close()
    store = SubscriberStore(path, "medic7", "device")
    assert store.apply([keep(1), keep(2, reading="a/1/1"), keep(3, reading="a/1/1")]) == 1
    store.close()


def test_numbers_and_texts_are_different_ids_and_come_back_as_they_were(path: Path) -> None:
    store = SubscriberStore(path, "medic7", "device")
    store.apply([keep(1, id=7), keep(2, id="7"), keep(3, id=2**63 + 1)])
    assert [json.loads(key) for key in store.list_unreported()] == [7, "7", 2**63 + 1]
    store.close()


def test_requests_and_subscriptions_survive(path: Path) -> None:
    store = SubscriberStore(path, "medic7", "device")
    first, second = (
        SubscriberRequest(str(i), "subscribe", f"s{i}", "pain is severe") for i in (1, 2)
    )
    store.add_request(first)
    store.add_request(second)
    store.apply([StoreReply(first, Reply("1", True, {"id": "ab"}), "mqtt://a")])
    store.close()
    store = SubscriberStore(path, "medic7", "another")
    assert store.device == "device"
    assert store.list_requests() == [second]
    assert [(s.name, s.state, s.id) for s in store.list_subscriptions()] == [
        ("s1", "active", "ab"),
        ("s2", "pending", None),
    ]
    assert store.list_wanted() == [
        ("s1", "pain is severe", ["mqtt://a"]),
        ("s2", "pain is severe", []),
    ]
    refusal = Reply("2", False, {"error": "no such word", "at": 3, "length": 4, "hint": "look"})
    store.apply([StoreReply(second, refusal, "mqtt://a")])
    refused = store.list_subscriptions()[1]
    assert refused.state == "refused"
    assert refused.error is not None
    assert (refused.error.at, refused.error.length, refused.error.hint) == (3, 4, "look")
    assert [name for name, _, _ in store.list_wanted()] == ["s1"]
    store.close()


def test_an_end_is_remembered_until_every_node_has_heard(path: Path) -> None:
    store = SubscriberStore(path, "medic7", "device")
    asked = SubscriberRequest("1", "subscribe", "fever", "pain is severe")
    store.add_request(asked)
    for server in ("mqtt://a", "mqtt://b"):
        store.apply([StoreReply(asked, Reply("1", True), server)])
    end = SubscriberRequest("2", "unsubscribe", "fever")
    store.add_request(end)
    assert store.list_ended() == [("fever", ["mqtt://a", "mqtt://b"])]
    store.apply([StoreReply(end, Reply("2", True), "mqtt://b")])
    assert store.list_wanted() == []
    assert store.list_ended() == [("fever", ["mqtt://a"])]
    assert store.list_subscriptions()[0].state == "ended"
    store.apply([StoreReply(end, Reply("2", True), "mqtt://a")])
    assert store.list_subscriptions() == []
    assert store.list_ended() == []
    store.close()


def test_a_second_process_is_kept_out(path: Path) -> None:
    store = SubscriberStore(path, "medic7", "device")
    with pytest.raises(SubscriberStoreError, match="another process"):
        SubscriberStore(path, "medic7", "device")
    store.close()
    SubscriberStore(path, "medic7", "device").close()


@pytest.mark.parametrize("content", ["other", "text", "newer", "folder", "somebody"])
def test_what_is_not_our_store_is_refused_and_left_alone(path: Path, content: str) -> None:
    if content == "folder":
        path.mkdir()
    elif content == "text":
        path.write_text("not a database, but long enough to be taken for one" * 50)
    elif content == "other":
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE recipes (name TEXT)")
        other.close()
    else:
        SubscriberStore(path, "medic8" if content == "somebody" else "medic7", "device").close()
        if content == "newer":
            with sqlite3.connect(path) as other:
                other.execute("PRAGMA user_version = 99")
            other.close()
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(SubscriberStoreError, match=path.name):
        SubscriberStore(path, "medic7", "device")
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_it_forgets_texts_first_then_ids_and_never_what_waits(path: Path) -> None:
    store = SubscriberStore(path, "medic7", "device", keep=10, remember=50)
    inbox = Inbox(path, Clock())
    store.apply([keep(i) for i in range(100)])
    for _ in range(95):
        with inbox.take():
            pass
    store.tidy()
    rows = store._connection.execute(
        "SELECT payload IS NULL, count(*) FROM denwatch_inbox GROUP BY 1"
    )
    assert dict(rows.fetchall()) == {1: 40, 0: 10}
    assert drain(inbox) == [95, 96, 97, 98, 99]
    inbox.close()
    store.close()


# The inbox ---------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pair(path: Path, clock: Clock) -> Any:
    store, inbox = SubscriberStore(path, "medic7", "device"), Inbox(path, clock)
    yield store, inbox
    inbox.close()
    store.close()


def test_effects_and_mark_are_one(pair: tuple[SubscriberStore, Inbox], path: Path) -> None:
    store, inbox = pair
    store.apply([keep(1)])

    def handle() -> None:
        with inbox.take() as taken:
            assert taken is not None
            taken[1].execute("CREATE TABLE seen (number)")
            taken[1].execute("INSERT INTO seen VALUES (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        handle()
    with sqlite3.connect(path) as other:
        assert not other.execute("SELECT * FROM sqlite_schema WHERE name = 'seen'").fetchall()
    other.close()
    assert inbox.count_waiting() == 1


def test_a_note_that_fails_goes_behind_the_others_and_comes_again(
    pair: tuple[SubscriberStore, Inbox], clock: Clock
) -> None:
    store, inbox = pair
    store.apply([keep(i) for i in range(3)])
    with pytest.raises(ZeroDivisionError), inbox.take():
        raise ZeroDivisionError
    assert drain(inbox) == [1, 2]
    assert not inbox.wait(0)
    clock.now += 1_000
    assert inbox.wait(0)
    assert drain(inbox) == [0]


def test_at_most_once_marks_before_it_hands_over(pair: tuple[SubscriberStore, Inbox]) -> None:
    store, inbox = pair
    store.apply([keep(1), keep(2)])
    with pytest.raises(ZeroDivisionError), inbox.take(Promise.AT_MOST_ONCE):
        raise ZeroDivisionError
    lent = inbox.lend(Promise.AT_MOST_ONCE)
    assert lent is not None
    assert lent[1].fields["index"] == 2
    assert inbox.count_waiting() == 0


def test_lent_notes_are_lent_once_and_can_be_put_back(pair: tuple[SubscriberStore, Inbox]) -> None:
    store, inbox = pair
    store.apply([keep(1), keep(2)])
    first, second = (inbox.lend(Promise.AT_LEAST_ONCE) for _ in range(2))
    assert first is not None
    assert second is not None
    assert inbox.lend(Promise.AT_LEAST_ONCE) is None
    assert not inbox.wait(0)
    inbox.put_back(first[0])
    inbox.mark(second[0])
    assert drain(inbox) == [1]


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK"])
def test_a_handler_cannot_end_the_transaction(
    pair: tuple[SubscriberStore, Inbox], word: str
) -> None:
    store, inbox = pair
    store.apply([keep(1)])

    def handle() -> None:
        with inbox.take() as taken:
            assert taken is not None
            taken[1].execute(word)

    with pytest.raises(TransactionError, match="ended"):
        handle()


def test_a_transaction_is_not_used_after_its_note(pair: tuple[SubscriberStore, Inbox]) -> None:
    store, inbox = pair
    store.apply([keep(1)])
    with inbox.take() as taken:
        pass
    assert taken is not None
    with pytest.raises(TransactionError, match="over"):
        taken[1].execute("SELECT 1")


def test_a_note_inside_a_note_is_refused_instead_of_waiting_for_ever(
    pair: tuple[SubscriberStore, Inbox],
) -> None:
    store, inbox = pair
    store.apply([keep(1), keep(2)])
    with inbox.take():
        with pytest.raises(TransactionError, match="afterwards"), inbox.take():
            pass
        assert len(inbox.list_stored()) == 2  # looking is fine


def test_closing_wakes_who_waits(pair: tuple[SubscriberStore, Inbox]) -> None:
    _, inbox = pair
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(inbox.wait()))
    thread.start()
    inbox.close()
    thread.join(10)
    assert answers == [False]
