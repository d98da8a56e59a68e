"""A client that is killed loses nothing and handles nothing twice; each rule is shown to matter.

The far end sends every note once only, so that the acknowledgement is all that keeps it from being
lost; what was handled is counted in the client's own store, where its handler wrote it.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from simulator.site import REPOSITORY, wait_for
from tests.client.sites import PATIENCE, RealSite, ScriptedSite, build_note
from tests.client.victim import NAME, POINTS

BuildSite = Callable[..., ScriptedSite]


class FarEnd(Protocol):
    """What a client meets, scripted or real."""

    url: str
    words: str
    password: str | None

    def emit(self, count: int) -> list[int]:
        """Let so many new notes go out; return their numbers."""


class Client:
    """The client's process and its store."""

    def __init__(self, folder: Path, far: FarEnd, rule: str = "") -> None:
        self._far = far
        self.store = folder / "client.db"
        self._arguments = [str(self.store), far.url, far.words]
        self._extra = ["--break", rule] if rule else []
        self._environment = {**os.environ, "VICTIM_PASSWORD": far.password or ""}
        if far.password is None:
            del self._environment["VICTIM_PASSWORD"]
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "client.log"

    def start(self, order: str = "") -> None:
        command = [sys.executable, "-m", "tests.client.victim", *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *([order] if order else []), *self._extra],
                cwd=REPOSITORY,
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def is_dead(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        if not self.store.exists():
            return []
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=10)) as found:
            try:
                return found.execute(sql).fetchall()
            except sqlite3.OperationalError:  # no such table yet
                return []

    def count_seen(self) -> Counter[int]:
        """Count how often each note was handled, by what the handler wrote."""
        return Counter(number for (number,) in self.query("SELECT number FROM seen"))

    def wait_until_subscribed(self) -> None:
        """Return when the node has agreed, and the first notes come: a watchdog that has not
        heard of the subscription yet keeps its readings for itself."""
        query = "SELECT * FROM denwatch_subscriptions WHERE state = 'active'"
        wait_for("the subscription", lambda: self.query(query))
        wait_for("the first note", lambda: self._far.emit(1) and self.count_seen())

    def check(self, numbers: list[int]) -> None:
        """Each was handled once, after all that has happened."""
        wait_for("all notes", lambda: set(self.count_seen()) >= set(numbers), 2 * PATIENCE)
        time.sleep(0.3)  # a second time would follow at once
        self.kill()
        counts = self.count_seen()
        assert {number: counts[number] for number in numbers} == dict.fromkeys(numbers, 1)
        assert set(counts.values()) == {1}


@pytest.fixture
def once(build_site: BuildSite) -> ScriptedSite:
    return build_site("once", resends=False)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSite]:
    site = RealSite(tmp_path_factory.mktemp("real"))
    yield site
    site.close()


@pytest.fixture
def far(request: pytest.FixtureRequest) -> FarEnd:
    found: FarEnd = request.getfixturevalue("once" if request.param == "scripted" else "real")
    return found


# The real node stands behind a watchdog, and takes its time to start: a few points there in short.
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("far", "point"),
    [
        *(("scripted", point) for point in POINTS),
        ("real", "after-commit"),
        *(pytest.param("real", p, marks=SLOW) for p in POINTS if p != "after-commit"),
    ],
    indirect=["far"],
)
def test_dying_at_any_point_loses_nothing_and_repeats_nothing(
    far: FarEnd, point: str, tmp_path: Path
) -> None:
    client = Client(tmp_path, far)
    if point == "in-request":  # this one dies before it has said anything
        client.start(f"{point}:1")
        wait_for("the death of the client", client.is_dead)
    client.start()
    client.wait_until_subscribed()
    client.kill()
    numbers: list[int] = []
    for round_ in range(2):
        if point != "in-request":
            client.start(f"{point}:{1 + 3 * round_}")
        deadline = time.monotonic() + PATIENCE
        numbers += far.emit(5)
        while not client.is_dead():
            assert time.monotonic() < deadline, client.log.read_text()
            numbers += far.emit(1)
            time.sleep(0.01)
    client.start()
    client.check(numbers)


@pytest.mark.parametrize("far", ["scripted", "real"], indirect=True)
def test_killed_at_random_moments_under_load(far: FarEnd, tmp_path: Path) -> None:
    rng = random.Random(11)
    client = Client(tmp_path, far)
    client.start()
    client.wait_until_subscribed()
    numbers: list[int] = []
    for _ in range(5):
        until = time.monotonic() + rng.uniform(0.3, 1.0)
        while time.monotonic() < until:
            numbers += far.emit(1)
        client.kill()
        client.start()
    client.check(numbers)


@SLOW
def test_client_and_node_killed_by_turns(real: RealSite, tmp_path: Path) -> None:
    client = Client(tmp_path, real)
    client.start()
    client.wait_until_subscribed()
    numbers: list[int] = []
    for _ in range(2):
        numbers += real.emit(20)
        real.node.kill()
        client.kill()
        client.start()
        numbers += real.emit(20)
        real.node.start()
    client.check(numbers)


def test_client_and_broker_killed_with_a_node_that_repeats(
    site: ScriptedSite, tmp_path: Path
) -> None:
    rng = random.Random(5)
    client = Client(tmp_path, site)
    client.start()
    client.wait_until_subscribed()
    numbers: list[int] = []
    for round_ in range(4):
        numbers += site.emit(25)
        time.sleep(rng.uniform(0.0, 0.3))
        site.broker.kill()
        if round_ % 2:
            client.kill()
            client.start()
        site.broker.start()
    wait_for("the reports of all notes", lambda: not site.node.outbox[NAME])
    client.check(numbers)


# Rules switched off: the checks above would see it ---------------------------------------------


def test_acknowledging_before_the_commit_would_lose_notes(
    once: ScriptedSite, tmp_path: Path
) -> None:
    client = Client(tmp_path, once, "ack-after-commit")
    client.start()
    client.wait_until_subscribed()
    client.kill()
    client.start("before-commit:1")
    lost = once.emit(5)
    wait_for("the death of the client", client.is_dead)
    (last,) = once.emit(1)
    client.start()
    wait_for("the last note", lambda: last in client.count_seen())
    client.kill()
    assert set(lost) - set(client.count_seen())


def test_marking_apart_from_the_handler_would_repeat_notes(
    once: ScriptedSite, tmp_path: Path
) -> None:
    client = Client(tmp_path, once, "mark-with-handler")
    client.start()
    client.wait_until_subscribed()
    wait_for("a note to come twice", lambda: max(client.count_seen().values()) > 1)
    client.kill()


def test_forgetting_ids_would_repeat_notes(once: ScriptedSite, tmp_path: Path) -> None:
    client = Client(tmp_path, once, "known-ids")
    client.start()
    client.wait_until_subscribed()
    (number,) = once.emit(1)
    wait_for("the note", lambda: client.count_seen()[number] == 1)
    once.node.send_note(NAME, build_note(number))
    wait_for("the note to come twice", lambda: client.count_seen()[number] == 2)
    client.kill()
