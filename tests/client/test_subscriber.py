"""The subscriber over a real broker: asking, receiving, losing the way, walking."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.subscriber import (
    ConnectionState,
    HandlerTransaction,
    Promise,
    ReceivedNotification,
    RequestRefusedError,
    Subscriber,
    SubscriberError,
    TransactionError,
    UnconfirmedError,
)

from tests.client.node import build_note
from tests.client.plant import Place, find_dead_url, wait_for
from tests.client.victim import NAME, QUICK, WORDS
from tests.watchdog.faults.plant import find_free_port

BuildPlace = Callable[..., Place]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "medic7.db"


def connect(store: Path, *places: Place, **options: Any) -> Subscriber:
    urls = [place.url for place in places] or [find_dead_url()]
    return Subscriber(NAME, servers=urls, store=store, settings=QUICK, **options)


def take_indices(subscriber: Subscriber, count: int, patience: float = 20) -> list[int]:
    found = []
    for note in subscriber.notifications(patience):
        found.append(note.fields["index"])
        if len(found) == count:
            patience = 0.3
            break
    # The one in hand is put back by leaving the loop: take it, and what should not be there.
    return found[:-1] + [note.fields["index"] for note in subscriber.notifications(0.4)]


# Asking ------------------------------------------------------------------------------------------


def test_words_are_agreed_to_listed_and_ended(place: Place, store: Path) -> None:
    with connect(store, place) as subscriber:
        found = subscriber.subscribe(WORDS, "fever")
        assert (found.name, found.state) == ("fever", "active")
        assert found.id
        assert subscriber.list() == [{"name": "fever", "words": WORDS}]
        assert [s.state for s in subscriber.subscriptions()] == ["active"]
        subscriber.unsubscribe(found)
        assert subscriber.list() == []
        assert subscriber.subscriptions() == []


def test_a_refusal_has_the_column_and_leaves_nothing_behind(place: Place, store: Path) -> None:
    with connect(store, place) as subscriber:
        with pytest.raises(RequestRefusedError, match="did you mean") as caught:
            subscriber.subscribe("the lottery is high", "luck")
        assert (caught.value.at, caught.value.length) == (5, 7)
        (kept,) = subscriber.subscriptions()
        assert kept.state == "refused"
        assert kept.error is not None
        assert kept.error.at == 5
        assert subscriber.subscribe(WORDS, "luck").state == "active"


def test_a_request_outlives_the_process_and_is_sent_when_a_node_is_there(
    build_place: BuildPlace, store: Path
) -> None:
    with connect(store) as subscriber:
        with pytest.raises(UnconfirmedError, match="stored"):
            subscriber.subscribe(WORDS, "fever", timeout=0.2)
        assert subscriber.subscribe("pain is severe", "pain", wait=False).state == "pending"
    place = build_place()
    with connect(store, place) as subscriber:
        wait_for(lambda: len(place.node.subscriptions) == 2, "both requests")
        wait_for(lambda: {s.state for s in subscriber.subscriptions()} == {"active"}, "the answers")
    before = place.node.count("subscribe")
    with connect(store, place) as subscriber:
        assert len(subscriber.list()) == 2
    assert place.node.count("subscribe") == before, "what is agreed is not asked again"


def test_a_silent_node_is_asked_again(place: Place, store: Path) -> None:
    place.node.is_silent = True
    with connect(store, place) as subscriber:
        subscriber.subscribe(WORDS, "fever", wait=False)
        wait_for(lambda: place.node.count("subscribe") >= 2, "a second try")
        place.node.is_silent = False
        wait_for(lambda: subscriber.subscriptions()[0].state == "active", "the answer")
        assert len({r["request"] for r in place.node.requests if "subscribe" in r}) == 1


def test_asking_while_nobody_is_there_says_why(store: Path) -> None:
    with connect(store) as subscriber:
        with pytest.raises(UnconfirmedError, match="refused"):
            subscriber.list(timeout=0.5)
        assert not subscriber.wait_until_connected(0)
    with pytest.raises(SubscriberError, match="not running"):
        subscriber.subscribe(WORDS)


# Receiving ---------------------------------------------------------------------------------------


def test_every_note_comes_once_however_often_it_is_sent(place: Place, store: Path) -> None:
    with connect(store, place) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        for _ in range(3):
            place.node.emit(NAME, *(build_note(i) for i in range(20)))
        assert sorted(take_indices(subscriber, 20)) == list(range(20))
        wait_for(lambda: not place.node.outbox[NAME], "the reports")
    with connect(store, place) as subscriber:
        place.node.emit(NAME, *(build_note(i) for i in range(21)))
        assert take_indices(subscriber, 1) == [20]
        wait_for(lambda: not place.node.outbox[NAME], "reports of known notes, too")


def test_what_waits_unhandled_waits_over_restarts(place: Place, store: Path) -> None:
    with connect(store, place) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        place.node.emit(NAME, *(build_note(i) for i in range(5)))
        wait_for(lambda: subscriber.count_waiting() == 5, "the notes")
        notes = subscriber.notifications()
        next(notes)
        next(notes)  # the first counts as handled
    with connect(store) as subscriber:
        assert [note.fields["index"] for note in subscriber.notifications(0.3)] == [1, 2, 3, 4]
        assert len(subscriber.stored()) == 5


def test_at_most_once_never_repeats(place: Place, store: Path) -> None:
    with connect(store, place, promise=Promise.AT_MOST_ONCE) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        place.node.emit(NAME, *(build_note(i) for i in range(3)))
        wait_for(lambda: subscriber.count_waiting() == 3, "the notes")
        next(subscriber.notifications())
    with connect(store, promise=Promise.AT_MOST_ONCE) as subscriber:
        assert [note.fields["index"] for note in subscriber.notifications(0.3)] == [1, 2]


def test_a_handler_that_fails_sees_the_note_again(place: Place, store: Path) -> None:
    seen: list[int] = []

    def handle(note: ReceivedNotification, transaction: HandlerTransaction) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS seen (number)")
        transaction.execute("INSERT INTO seen VALUES (?)", (note.fields["index"],))
        seen.append(note.fields["index"])
        if seen == [0]:
            raise RuntimeError("the siren is broken")

    with connect(store, place, on_notification=handle) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        place.node.emit(NAME, build_note(0), build_note(1))
        wait_for(lambda: len(seen) == 3, "the second try")
        wait_for(lambda: subscriber.count_waiting() == 0, "its end")
    assert seen == [0, 1, 0]
    with connect(store) as subscriber:
        inbox = subscriber._session.inbox
        rows = inbox._connection.execute("SELECT number FROM seen").fetchall()
        assert Counter(rows) == {(0,): 1, (1,): 1}


def test_a_slow_handler_delays_acknowledgements_and_nothing_else(place: Place, store: Path) -> None:
    release, inside = threading.Event(), threading.Event()
    refused: list[Exception] = []

    def handle(note: ReceivedNotification, transaction: HandlerTransaction) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS seen (number)")
        if note.fields["index"] == 0:
            inside.set()
            release.wait(20)
            try:
                subscriber.subscribe("pain is severe")
            except TransactionError as error:
                refused.append(error)

    with connect(store, place, on_notification=handle) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        place.node.emit(NAME, build_note(0))
        assert inside.wait(20)
        place.node.emit(NAME, build_note(1))
        time.sleep(0.5)
        assert subscriber.status.state is ConnectionState.ONLINE
        assert build_note(1)["id"] not in place.node.received
        release.set()
        wait_for(lambda: not place.node.outbox[NAME], "both reports")
    assert "afterwards" in str(refused[0])


def test_a_full_disk_acknowledges_nothing_and_recovers(place: Place, store: Path) -> None:
    told: list[str] = []
    with connect(store, place, on_status=lambda tell: told.append(tell.reason)) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        connection = subscriber._session._store._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages}")
        place.node.emit(NAME, *(build_note(i, text="x" * 9_000) for i in range(3)))
        wait_for(lambda: any("full" in reason for reason in told), "the complaint")
        assert subscriber.count_waiting() == 0
        assert not place.node.received
        connection.execute("PRAGMA max_page_count=1000000")
        assert take_indices(subscriber, 3) == [0, 1, 2]
        wait_for(lambda: not place.node.outbox[NAME], "the reports")


def test_closing_ends_every_wait(store: Path) -> None:
    caught: list[BaseException] = []
    with connect(store) as subscriber:

        def ask() -> None:
            try:
                subscriber.subscribe(WORDS, timeout=60)
            except SubscriberError as error:
                caught.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        wait_for(subscriber.subscriptions, "the request")
    thread.join(10)
    assert "stopped" in str(caught[0])
    with connect(store) as subscriber:
        assert [s.state for s in subscriber.subscriptions()] == ["pending"]


def test_junk_on_our_topics_does_no_harm(place: Place, store: Path) -> None:
    with connect(store, place) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        client = place.node._client
        assert client is not None
        for payload in (b"", b"\xff\x00", b"{", b"[]", b'{"id": null}', b"x" * 100_000):
            for topic in ("note", "reply"):
                client.publish(f"dens/1/{topic}/{NAME}", payload, qos=1)
        place.node.emit(NAME, build_note(1))
        assert take_indices(subscriber, 1) == [1]


# Losing the way ----------------------------------------------------------------------------------


def test_a_restarted_broker_is_found_again(place: Place, store: Path) -> None:
    told: list[ConnectionState] = []
    with connect(store, place, on_status=lambda tell: told.append(tell.state)) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        place.kill_broker()
        wait_for(lambda: ConnectionState.IDLE in told, "the loss")
        place.node.emit(NAME, build_note(1))  # nobody is there to take it
        place.start_broker()
        assert take_indices(subscriber, 1) == [1]
        assert told.count(ConnectionState.ONLINE) == 2


def test_the_better_of_two_nodes_is_taken_and_the_other_after_it_is_lost(
    build_place: BuildPlace, store: Path
) -> None:
    worse, better = build_place("worse"), build_place("better")
    worse.node.offer = {"new_roots": 1, "nodes": 3}
    better.node.offer = {"new_roots": 0, "nodes": 500}
    with connect(store, worse, better) as subscriber:
        assert subscriber.wait_until_connected(20)
        assert subscriber.status.server == better.url
        subscriber.subscribe(WORDS, "fever")
        assert not worse.node.subscriptions
        shared = [build_note(i) for i in range(6)]
        better.node.emit(NAME, *shared[:4])
        wait_for(lambda: subscriber.count_waiting() == 4, "the first notes")
        better.kill_broker()
        wait_for(lambda: (NAME, "fever") in worse.node.subscriptions, "the other node")
        worse.node.emit(NAME, *shared)  # what waits there, some of it known
        assert take_indices(subscriber, 6) == list(range(6))
        assert subscriber.status.server == worse.url


def test_a_walking_subscriber_gets_each_note_once(build_place: BuildPlace, store: Path) -> None:
    tent, truck = build_place("tent"), build_place("truck")
    with connect(store, tent) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        tent.node.emit(NAME, *(build_note(i) for i in range(5)))
        wait_for(lambda: subscriber.count_waiting() == 5, "the tent's notes")
        subscriber.use_servers([truck.url])
        wait_for(lambda: (NAME, "fever") in truck.node.subscriptions, "the truck")
        truck.node.emit(NAME, *(build_note(i) for i in range(8)))
        wait_for(lambda: subscriber.count_waiting() == 8, "the truck's notes")
        subscriber.use_servers([tent.url])
        tent.node.emit(NAME, *(build_note(i) for i in range(9)))
        assert take_indices(subscriber, 9) == list(range(9))
        assert tent.node.count("subscribe") == 1
        subscriber.unsubscribe("fever")
        subscriber.use_servers([truck.url])
        wait_for(lambda: not truck.node.subscriptions, "the end to reach the truck")


# Being let in ------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Any:
    """A broker with passwords and rules: each only its own topics."""
    folder = tmp_path / "guarded"
    folder.mkdir()
    users, rules = folder / "users", folder / "rules"
    for name, password in ((NAME, "right"), ("node", "node")):
        subprocess.run(
            ["mosquitto_passwd", "-b", *([] if users.exists() else ["-c"]), users, name, password],
            check=True,
            capture_output=True,
        )
    users.chmod(0o644)
    rules.write_text(
        "user node\ntopic readwrite #\n"
        "pattern write dens/1/sub/%u\npattern read dens/1/reply/%u\npattern read dens/1/note/%u\n"
    )
    place = Place(
        folder, access=f"allow_anonymous false\npassword_file {users}\nacl_file {rules}",
        credentials=("node", "node"),
    )  # fmt: skip
    yield place
    place.close()


def test_a_wrong_password_is_told_and_tried_again(guarded: Place, store: Path) -> None:
    reasons: list[str] = []
    options: dict[str, Any] = {"settings": QUICK, "on_status": lambda t: reasons.append(t.reason)}
    with (
        Subscriber(NAME, "wrong", [guarded.url], store=store, **options) as subscriber,
        pytest.raises(UnconfirmedError),
    ):
        subscriber.subscribe(WORDS, "fever", timeout=1)
    assert any("not auth" in reason or "bad user" in reason for reason in reasons), reasons
    with Subscriber(NAME, "right", [guarded.url], store=store, settings=QUICK) as subscriber:
        wait_for(lambda: guarded.node.subscriptions, "the request that was kept")
        assert len(subscriber.list()) == 1


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A certificate of its own for localhost, and another that nobody knows."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing")
    folder = tmp_path / "certificates"
    folder.mkdir()
    for name in ("site", "stranger"):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
                *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")),
                *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            ],
            check=True,
            capture_output=True,
        )
    (folder / "site.key").chmod(0o644)
    return folder


def test_tls_is_verified(certificates: Path, tmp_path: Path, store: Path) -> None:
    port = find_free_port()
    listener = (
        f"allow_anonymous true\nlistener {port} 127.0.0.1\n"
        f"certfile {certificates}/site.pem\nkeyfile {certificates}/site.key"
    )
    place = Place(tmp_path / "tls", access=listener)
    reasons: list[str] = []
    try:
        options: dict[str, Any] = {"store": store, "settings": QUICK}
        trusted = str(certificates / "site.pem")
        url = f"mqtts://localhost:{port}"
        with Subscriber(NAME, "secret", [url], tls=trusted, **options) as subscriber:
            subscriber.subscribe(WORDS, "fever")
            place.node.emit(NAME, *(build_note(i, text="x" * 5_000) for i in range(40)))
            assert take_indices(subscriber, 40) == list(range(40))
        for address, ca in ((url, "stranger.pem"), (f"mqtts://127.0.0.1:{port}", "site.pem")):
            with Subscriber(
                NAME,
                "secret",
                [address],
                tls=certificates / ca,
                on_status=lambda tell: reasons.append(tell.reason),
                **options,
            ):
                wait_for(lambda: any("not trusted" in r for r in reasons), "the refusal")
            reasons.clear()
    finally:
        place.close()
