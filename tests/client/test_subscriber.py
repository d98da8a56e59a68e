"""The subscriber over a real broker: asking, receiving, losing the way, walking."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.subscriber import (
    ConnectionState,
    HandlerTransaction,
    LoginRefusedError,
    Promise,
    ReceivedNotification,
    RequestRefusedError,
    Subscriber,
    SubscriberError,
    TransactionError,
    UnconfirmedError,
)

from simulator.site import find_free_port, wait_for
from tests.client.sites import ScriptedSite, build_note, find_dead_url
from tests.client.victim import NAME, QUICK, WORDS

BuildSite = Callable[..., ScriptedSite]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "medic7.db"


def connect(store: Path, *sites: ScriptedSite, **options: Any) -> Subscriber:
    urls = [site.url for site in sites] or [find_dead_url()]
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


def test_words_are_agreed_to_listed_and_ended(site: ScriptedSite, store: Path) -> None:
    with connect(store, site) as subscriber:
        found = subscriber.subscribe(WORDS, "fever")
        assert (found.name, found.state) == ("fever", "active")
        assert found.id
        assert subscriber.list() == [{"name": "fever", "words": WORDS}]
        assert [s.state for s in subscriber.subscriptions()] == ["active"]
        subscriber.unsubscribe(found)
        assert subscriber.list() == []
        assert subscriber.subscriptions() == []


def test_a_refusal_has_the_column_and_leaves_nothing_behind(
    site: ScriptedSite, store: Path
) -> None:
    with connect(store, site) as subscriber:
        with pytest.raises(RequestRefusedError, match="did you mean") as caught:
            subscriber.subscribe("the lottery is high", "luck")
        assert (caught.value.at, caught.value.length) == (5, 7)
        (kept,) = subscriber.subscriptions()
        assert kept.state == "refused"
        assert kept.error is not None
        assert kept.error.at == 5
        assert subscriber.subscribe(WORDS, "luck").state == "active"


def test_a_request_outlives_the_process_and_is_sent_when_a_node_is_there(
    build_site: BuildSite, store: Path
) -> None:
    with connect(store) as subscriber:
        with pytest.raises(UnconfirmedError, match="stored"):
            subscriber.subscribe(WORDS, "fever", timeout=0.2)
        assert subscriber.subscribe("pain is severe", "pain", wait=False).state == "pending"
    site = build_site()
    with connect(store, site) as subscriber:
        wait_for("both requests", lambda: len(site.node.subscriptions) == 2)
        wait_for("the answers", lambda: {s.state for s in subscriber.subscriptions()} == {"active"})
    before = site.node.count("subscribe")
    with connect(store, site) as subscriber:
        assert len(subscriber.list()) == 2
    assert site.node.count("subscribe") == before, "what is agreed is not asked again"


def test_a_silent_node_is_asked_again(site: ScriptedSite, store: Path) -> None:
    site.node.is_silent = True
    with connect(store, site) as subscriber:
        subscriber.subscribe(WORDS, "fever", wait=False)
        wait_for("a second try", lambda: site.node.count("subscribe") >= 2)
        site.node.is_silent = False
        wait_for("the answer", lambda: subscriber.subscriptions()[0].state == "active")
        assert len({r["request"] for r in site.node.requests if "subscribe" in r}) == 1


def test_asking_while_nobody_is_there_says_why(store: Path) -> None:
    with connect(store) as subscriber:
        with pytest.raises(UnconfirmedError, match="refused"):
            subscriber.list(timeout=0.5)
        assert not subscriber.wait_until_connected(0)
    with pytest.raises(SubscriberError, match="not running"):
        subscriber.subscribe(WORDS)


# Receiving ---------------------------------------------------------------------------------------


def test_every_note_comes_once_however_often_it_is_sent(site: ScriptedSite, store: Path) -> None:
    with connect(store, site) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        for _ in range(3):
            site.node.emit(NAME, *(build_note(i) for i in range(20)))
        assert sorted(take_indices(subscriber, 20)) == list(range(20))
        wait_for("the reports", lambda: not site.node.outbox[NAME])
    with connect(store, site) as subscriber:
        site.node.emit(NAME, *(build_note(i) for i in range(21)))
        assert take_indices(subscriber, 1) == [20]
        wait_for("reports of known notes, too", lambda: not site.node.outbox[NAME])


def test_what_waits_unhandled_waits_over_restarts(site: ScriptedSite, store: Path) -> None:
    with connect(store, site) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        site.node.emit(NAME, *(build_note(i) for i in range(5)))
        wait_for("the notes", lambda: subscriber.count_waiting() == 5)
        notes = subscriber.notifications()
        next(notes)
        next(notes)  # the first counts as handled
    with connect(store) as subscriber:
        assert [note.fields["index"] for note in subscriber.notifications(0.3)] == [1, 2, 3, 4]
        assert len(subscriber.stored()) == 5


def test_at_most_once_never_repeats(site: ScriptedSite, store: Path) -> None:
    with connect(store, site, promise=Promise.AT_MOST_ONCE) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        site.node.emit(NAME, *(build_note(i) for i in range(3)))
        wait_for("the notes", lambda: subscriber.count_waiting() == 3)
        next(subscriber.notifications())
    with connect(store, promise=Promise.AT_MOST_ONCE) as subscriber:
        assert [note.fields["index"] for note in subscriber.notifications(0.3)] == [1, 2]


def test_a_handler_that_fails_sees_the_note_again(site: ScriptedSite, store: Path) -> None:
    seen: list[int] = []

    def handle(note: ReceivedNotification, transaction: HandlerTransaction) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS seen (number)")
        transaction.execute("INSERT INTO seen VALUES (?)", (note.fields["index"],))
        seen.append(note.fields["index"])
        if seen == [0]:
            raise RuntimeError("the siren is broken")

    with connect(store, site, on_notification=handle) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        site.node.emit(NAME, build_note(0), build_note(1))
        wait_for("the second try", lambda: len(seen) == 3)
        wait_for("its end", lambda: subscriber.count_waiting() == 0)
    assert seen == [0, 1, 0]
    with connect(store) as subscriber:
        inbox = subscriber._session.inbox
        rows = inbox._connection.execute("SELECT number FROM seen").fetchall()
        assert Counter(rows) == {(0,): 1, (1,): 1}


def test_a_slow_handler_delays_acknowledgements_and_nothing_else(
    site: ScriptedSite, store: Path
) -> None:
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

    with connect(store, site, on_notification=handle) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        site.node.emit(NAME, build_note(0))
        assert inside.wait(20)
        site.node.emit(NAME, build_note(1))
        time.sleep(0.5)
        assert subscriber.status.state is ConnectionState.ONLINE
        assert build_note(1)["id"] not in site.node.received
        release.set()
        wait_for("both reports", lambda: not site.node.outbox[NAME])
    assert "afterwards" in str(refused[0])


def test_a_full_disk_acknowledges_nothing_and_recovers(site: ScriptedSite, store: Path) -> None:
    told: list[str] = []
    with connect(store, site, on_status=lambda tell: told.append(tell.reason)) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        connection = subscriber._session._store._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages}")
        site.node.emit(NAME, *(build_note(i, text="x" * 9_000) for i in range(3)))
        wait_for("the complaint", lambda: any("full" in reason for reason in told))
        assert subscriber.count_waiting() == 0
        assert not site.node.received
        connection.execute("PRAGMA max_page_count=1000000")
        assert take_indices(subscriber, 3) == [0, 1, 2]
        wait_for("the reports", lambda: not site.node.outbox[NAME])


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
        wait_for("the request", subscriber.subscriptions)
    thread.join(10)
    assert "stopped" in str(caught[0])
    with connect(store) as subscriber:
        assert [s.state for s in subscriber.subscriptions()] == ["pending"]


def test_junk_on_our_topics_does_no_harm(site: ScriptedSite, store: Path) -> None:
    with connect(store, site) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        client = site.node._client
        assert client is not None
        for payload in (b"", b"\xff\x00", b"{", b"[]", b'{"id": null}', b"x" * 100_000):
            for topic in ("note", "reply"):
                client.publish(f"dens/1/{topic}/{NAME}", payload, qos=1)
        site.node.emit(NAME, build_note(1))
        assert take_indices(subscriber, 1) == [1]


# Losing the way ----------------------------------------------------------------------------------


def test_a_restarted_broker_is_found_again(site: ScriptedSite, store: Path) -> None:
    told: list[ConnectionState] = []
    with connect(store, site, on_status=lambda tell: told.append(tell.state)) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        site.broker.kill()
        wait_for("the loss", lambda: ConnectionState.IDLE in told)
        site.node.emit(NAME, build_note(1))  # nobody is there to take it
        site.broker.start()
        assert take_indices(subscriber, 1) == [1]
        assert told.count(ConnectionState.ONLINE) == 2


def test_the_better_of_two_nodes_is_taken_and_the_other_after_it_is_lost(
    build_site: BuildSite, store: Path
) -> None:
    worse, better = build_site("worse"), build_site("better")
    worse.node.offer = {"new_roots": 1, "nodes": 3}
    better.node.offer = {"new_roots": 0, "nodes": 500}
    with connect(store, worse, better) as subscriber:
        assert subscriber.wait_until_connected(20)
        assert subscriber.status.server == better.url
        subscriber.subscribe(WORDS, "fever")
        assert not worse.node.subscriptions
        shared = [build_note(i) for i in range(6)]
        better.node.emit(NAME, *shared[:4])
        wait_for("the first notes", lambda: subscriber.count_waiting() == 4)
        better.broker.kill()
        wait_for("the other node", lambda: (NAME, "fever") in worse.node.subscriptions)
        worse.node.emit(NAME, *shared)  # what waits there, some of it known
        assert take_indices(subscriber, 6) == list(range(6))
        assert subscriber.status.server == worse.url


def test_a_walking_subscriber_gets_each_note_once(build_site: BuildSite, store: Path) -> None:
    tent, truck = build_site("tent"), build_site("truck")
    with connect(store, tent) as subscriber:
        subscriber.subscribe(WORDS, "fever")
        tent.node.emit(NAME, *(build_note(i) for i in range(5)))
        wait_for("the tent's notes", lambda: subscriber.count_waiting() == 5)
        subscriber.use_servers([truck.url])
        wait_for("the truck", lambda: (NAME, "fever") in truck.node.subscriptions)
        truck.node.emit(NAME, *(build_note(i) for i in range(8)))
        wait_for("the truck's notes", lambda: subscriber.count_waiting() == 8)
        subscriber.use_servers([tent.url])
        tent.node.emit(NAME, *(build_note(i) for i in range(9)))
        assert take_indices(subscriber, 9) == list(range(9))
        assert tent.node.count("subscribe") == 1
        subscriber.unsubscribe("fever")
        subscriber.use_servers([truck.url])
        wait_for("the end to reach the truck", lambda: not truck.node.subscriptions)


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
    site = ScriptedSite(
        folder, access=f"allow_anonymous false\npassword_file {users}\nacl_file {rules}",
        credentials=("node", "node"),
    )  # fmt: skip
    yield site
    site.close()


def test_a_wrong_password_is_told_and_tried_again(guarded: ScriptedSite, store: Path) -> None:
    reasons: list[str] = []
    settings = replace(QUICK, login_patience=100)
    options: dict[str, Any] = {
        "settings": settings,
        "on_status": lambda t: reasons.append(t.reason),
    }
    with (
        Subscriber(NAME, "wrong", [guarded.url], store=store, **options) as subscriber,
        pytest.raises(LoginRefusedError, match="refused: wrong name or password"),
    ):
        subscriber.subscribe(WORDS, "fever", timeout=None)
    assert "refused: wrong name or password" in reasons
    with Subscriber(NAME, "right", [guarded.url], store=store, settings=QUICK) as subscriber:
        wait_for("the request that was kept", lambda: guarded.node.subscriptions)
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
    site = ScriptedSite(tmp_path / "tls", access=listener)
    reasons: list[str] = []
    try:
        options: dict[str, Any] = {"store": store, "settings": QUICK}
        trusted = str(certificates / "site.pem")
        url = f"mqtts://localhost:{port}"
        with Subscriber(NAME, "secret", [url], tls=trusted, **options) as subscriber:
            subscriber.subscribe(WORDS, "fever")
            site.node.emit(NAME, *(build_note(i, text="x" * 5_000) for i in range(40)))
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
                wait_for("the refusal", lambda: any("not trusted" in r for r in reasons))
            reasons.clear()
    finally:
        site.close()
