"""A client that is killed loses nothing and handles nothing twice; each rule is shown to matter.

The far end sends every note once only, so that the acknowledgement is all that keeps it from being
lost; what was handled is counted in the client's own store, where its handler wrote it.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.node import build_note
from tests.client.plant import PATIENCE, Place, wait_for
from tests.client.victim import NAME, POINTS
from tests.watchdog.faults.plant import REPOSITORY

BuildPlace = Callable[..., Place]


class Client:
    """The client's process and its store."""

    def __init__(self, folder: Path, *urls: str, rule: str = "") -> None:
        self.store = folder / "client.db"
        self.urls = ",".join(urls)
        self.extra = ["--break", rule] if rule else []
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "client.log"

    def start(self, order: str = "") -> None:
        command = [sys.executable, "-m", "tests.client.victim", str(self.store), self.urls]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *([order] if order else []), *self.extra],
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def is_dead(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def count_seen(self) -> Counter[int]:
        """Count how often each note was handled, by what the handler wrote."""
        if not self.store.exists():
            return Counter()
        try:
            with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=10) as found:
                return Counter(number for (number,) in found.execute("SELECT number FROM seen"))
        except sqlite3.OperationalError:  # no such table yet
            return Counter()

    def wait_until_subscribed(self, place: Place) -> None:
        wait_for(lambda: (NAME, "fever") in place.node.subscriptions, "the subscription")


@pytest.fixture
def once(build_place: BuildPlace) -> Place:
    return build_place("once", resends=False)


@pytest.mark.parametrize("point", POINTS)
def test_dying_at_any_point_loses_nothing_and_repeats_nothing(
    point: str, once: Place, tmp_path: Path
) -> None:
    client = Client(tmp_path, once.url)
    if point == "in-request":  # this one dies before it has said anything
        client.start(f"{point}:1")
        wait_for(client.is_dead, "the death of the client")
    client.start()
    client.wait_until_subscribed(once)
    client.kill()
    total = 0
    for round_ in range(2):
        if point != "in-request":
            client.start(f"{point}:{1 + 3 * round_}")
        deadline = time.monotonic() + PATIENCE
        while total % 10 or total == 10 * round_ or not client.is_dead():
            assert time.monotonic() < deadline, client.log.read_text()
            once.node.emit(NAME, build_note(total))
            total += 1
            time.sleep(0.01)
    client.start()
    wait_for(lambda: len(client.count_seen()) == total, "all notes")
    time.sleep(0.3)  # a second time would follow at once
    client.kill()
    assert client.count_seen() == Counter(range(total))


def test_killed_at_random_moments_under_load(once: Place, tmp_path: Path) -> None:
    rng = random.Random(11)
    client = Client(tmp_path, once.url)
    client.start()
    client.wait_until_subscribed(once)
    total = 0
    for _ in range(6):
        until = time.monotonic() + rng.uniform(0.3, 1.2)
        while time.monotonic() < until:
            once.node.emit(NAME, build_note(total))
            total += 1
            time.sleep(0.004)
        client.kill()
        client.start()
    wait_for(lambda: len(client.count_seen()) == total, "all notes")
    client.kill()
    assert client.count_seen() == Counter(range(total))


def test_client_and_broker_killed_with_a_node_that_repeats(place: Place, tmp_path: Path) -> None:
    rng = random.Random(5)
    client = Client(tmp_path, place.url)
    client.start()
    client.wait_until_subscribed(place)
    for round_ in range(4):
        place.node.emit(NAME, *(build_note(25 * round_ + i) for i in range(25)))
        time.sleep(rng.uniform(0.0, 0.3))
        place.kill_broker()
        if round_ % 2:
            client.kill()
            client.start()
        place.start_broker()
    wait_for(lambda: len(client.count_seen()) == 100, "all notes")
    wait_for(lambda: not place.node.outbox[NAME], "the reports of all notes")
    client.kill()
    assert client.count_seen() == Counter(range(100))


# Rules switched off: the checks above would see it ---------------------------------------------


def test_acknowledging_before_the_commit_would_lose_notes(once: Place, tmp_path: Path) -> None:
    client = Client(tmp_path, once.url, rule="ack-after-commit")
    client.start()
    client.wait_until_subscribed(once)
    client.kill()
    client.start("before-commit:1")
    once.node.emit(NAME, *(build_note(i) for i in range(5)))
    wait_for(client.is_dead, "the death of the client")
    once.node.emit(NAME, build_note(99))
    client.start()
    wait_for(lambda: 99 in client.count_seen(), "the last note")
    client.kill()
    assert set(range(5)) - set(client.count_seen())


def test_marking_apart_from_the_handler_would_repeat_notes(once: Place, tmp_path: Path) -> None:
    client = Client(tmp_path, once.url, rule="mark-with-handler")
    client.start()
    client.wait_until_subscribed(once)
    once.node.emit(NAME, build_note(1))
    wait_for(lambda: client.count_seen()[1] > 1, "the note to come twice")
    client.kill()


def test_forgetting_ids_would_repeat_notes(once: Place, tmp_path: Path) -> None:
    client = Client(tmp_path, once.url, rule="known-ids")
    client.start()
    client.wait_until_subscribed(once)
    once.node.emit(NAME, build_note(1))
    wait_for(lambda: client.count_seen()[1] == 1, "the note")
    once.node.send_note(NAME, build_note(1))
    wait_for(lambda: client.count_seen()[1] == 2, "the note to come twice")
    client.kill()
