"""Figures 5 and 6 of PrefSIENA with mosquitto_sub and mosquitto_pub, after a kill, after walking.

Red patients stand for comedies (score 0.9), yellow ones for dramas (0.8). A last red one shows that
what did not come was not only slow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.subscriber import RequestRefusedError, Subscriber

from simulator.site import ENVIRONMENT, NodeProcess, Site, run_denwatch, wait_for
from tests.node.app import App

pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None and not os.environ.get("CI"),
    reason="mosquitto_sub is not installed",
)
EXPIRY = 4  # s


class PlainApp:
    """A person with Mosquitto's clients, and nothing of ours."""

    def __init__(self, site: Site, node: NodeProcess, name: str) -> None:
        self.name = name
        words = ("-h", "127.0.0.1", "-p", str(node.port), "-u", name, "-P", site.passwords[name])
        self._login = (*words, "-q", "1")

    def publish(self, what: str, text: str) -> None:
        """Return after the node's PUBACK."""
        topic = f"dens/1/{what}/{self.name}"
        command = ("mosquitto_pub", *self._login, "-t", topic, "-m", text)
        subprocess.run(command, check=True, timeout=60)

    @contextmanager
    def listening(self, path: Path) -> Iterator[Path]:
        """Write what comes into a file, one notification a line."""
        command = ("mosquitto_sub", *self._login, "-t", f"dens/1/note/{self.name}")
        with path.open("w") as file:
            process = subprocess.Popen(command, stdout=file)
        try:
            yield path
        finally:
            process.terminate()
            process.wait()


def read_colours(path: Path, *earlier: Path) -> list[str]:
    """Return what came, in order, each once.

    A client that ends before its PUBACK is on the way gets that notification again (QoS 1).
    """
    known = {note["id"] for other in earlier for note in read_notes(other)}
    new = {note["id"]: note["values"]["triage"]["value"] for note in read_notes(path)}
    return [colour for id, colour in new.items() if id not in known]


def read_notes(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if "\n" in line]


def wait_for_colours(path: Path, colours: list[str], *earlier: Path) -> None:
    wait_for("notifications", lambda: len(read_colours(path, *earlier)) >= len(colours), 60)
    assert read_colours(path, *earlier) == colours


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.add_node("north")
    for name in ("john", "theatre"):
        made.add_subscriber(name)
    made.add_node("south")
    try:
        made.first.start()
        yield made
    finally:
        made.kill()


def subscribe(john: PlainApp, options: str = "") -> None:
    john.publish("sub", f"triage = red, named comedies, score 0.9{options}")
    john.publish("sub", f"triage = yellow, named dramas, score 0.8{options}")
    john.publish("sub", "my top 2")


def test_figure_5_then_a_kill_then_another_node(site: Site, tmp_path: Path) -> None:
    north, south = site.nodes.values()
    john, theatre = (PlainApp(site, north, name) for name in ("john", "theatre"))
    subscribe(john)
    with john.listening(tmp_path / "first") as path:
        for place, colour in enumerate(("red", "yellow", "red"), start=1):
            theatre.publish("report", f"patient: triage {colour}")
            wait_for("one more", lambda place=place: len(read_colours(path)) >= place, 60)
        for colour in ("yellow", "yellow", "yellow", "red"):
            theatre.publish("report", f"patient: triage {colour}")
        wait_for_colours(path, ["red", "yellow", "red", "red"])
    north.kill()
    north.start()
    with john.listening(tmp_path / "second") as path:
        for colour in ("yellow", "red"):
            theatre.publish("report", f"patient: triage {colour}")
        wait_for_colours(path, ["red"], tmp_path / "first")
    south.start()
    walked, troupe = (PlainApp(site, south, name) for name in ("john", "theatre"))
    with App(south.port, "john", site.passwords["john"]) as app:
        app.subscribe("dens/1/reply/john")  # receipts come before subscriptions
        wait_for(
            "the subscriptions",
            lambda: len(app.ask("john", "list").get("subscriptions", ())) == 2,
            60,
        )
        assert app.ask("john", "list")["my_top"] == "my top 2"
    with walked.listening(tmp_path / "third") as path:
        for colour in ("yellow", "red"):
            troupe.publish("report", f"patient: triage {colour}")
        wait_for_colours(path, ["red"], tmp_path / "first", tmp_path / "second")


def test_the_commands_ask_and_explain(site: Site, tmp_path: Path) -> None:
    key = tmp_path / "john.key"
    key.write_text(site.passwords["john"])
    key.chmod(0o600)
    login = ("--as", "john", "--password-file", str(key), "--node", site.first.url)
    PlainApp(site, site.first, "theatre").publish("report", "patient: triage red")
    assert run_denwatch("subscribe", "my top 2", *login) == "north: my top 2\n"
    found = json.loads(run_denwatch("find", "triage", "--json", *login))
    assert [(row["name"], row["person"]) for row in found["found"]] == [("theatre", True)]
    store = ("--store", str(tmp_path / "john.db"), "--timeout", "60")
    command = (sys.executable, "-m", "denwatch.cli", "subscribe", "pain is severe", "--explain")
    words = ("--for", "0.1", "--name", "pain", *store, *login)
    done = subprocess.run((*command, *words), capture_output=True, text=True, env=ENVIRONMENT)
    assert "no other node was in range" in done.stderr
    why = run_denwatch("subscribe", "--why", "pain", *login)
    assert why == "north: no device here senses all that it names\n"


def test_a_program_says_it_in_any_form(site: Site, tmp_path: Path) -> None:
    login = ("john", site.passwords["john"], [site.first.url])
    with Subscriber(*login, store=tmp_path / "john.db") as john:
        for wanted in ("meine besten 3", 3, {"top": 3}):
            assert john.set_preference(wanted, 120) == "my top 3"
        with pytest.raises(RequestRefusedError, match="a number or off"):
            john.set_preference("my top secret", 120)
        assert john.set_preference(None, 120) == "my top off"


def test_figure_6(site: Site, tmp_path: Path) -> None:
    john, theatre = (PlainApp(site, site.first, name) for name in ("john", "theatre"))
    subscribe(john, f", expires after {EXPIRY} s")
    with john.listening(tmp_path / "notes") as path:
        for place, colour in enumerate(("red", "yellow", "red"), start=1):
            theatre.publish("report", f"patient: triage {colour}")
            wait_for("one more", lambda place=place: len(read_colours(path)) >= place, 60)
        last = json.loads(path.read_text().splitlines()[-1])
        assert last["expires"] > last["at"]

        def has_expired() -> bool:
            theatre.publish("report", "patient: triage yellow")
            return "yellow" in read_colours(path)[3:]

        wait_for("that the first ones count no more", has_expired, 60)
        for _ in range(2):  # as good as those that count
            before = len(read_colours(path))
            theatre.publish("report", "patient: triage yellow")
            wait_for("one more", lambda before=before: len(read_colours(path)) > before, 60)


def test_figure_6_after_a_kill_at_another_node(site: Site, tmp_path: Path) -> None:
    """What was heard counts for as long as it was said to, wherever the person is."""
    north, south = site.nodes.values()
    john, theatre = (PlainApp(site, north, name) for name in ("john", "theatre"))
    subscribe(john, ", expires after 60 s")
    with john.listening(tmp_path / "first") as first:
        for place in (1, 2):
            theatre.publish("report", "patient: triage red")
            wait_for("one more", lambda place=place: len(read_colours(first)) >= place, 60)
    north.kill()
    north.start()
    south.start()
    walked, troupe = (PlainApp(site, south, name) for name in ("john", "theatre"))
    with App(south.port, "john", site.passwords["john"]) as app:
        app.subscribe("dens/1/reply/john")
        wait_for(
            "the subscriptions",
            lambda: len(app.ask("john", "list").get("subscriptions", ())) == 2,
            120,
        )
    with walked.listening(tmp_path / "second") as second:

        def has_expired() -> bool:
            troupe.publish("report", "patient: triage yellow")
            return "yellow" in read_colours(second, first)

        wait_for("that the first ones count no more", has_expired, 180)
    heard = min(note["at"] for note in read_notes(second) if is_yellow(note))
    assert sum(note["expires"] > heard for note in read_notes(first)) < 2, "both still counted"


def is_yellow(note: Any) -> bool:
    return bool(note["values"]["triage"]["value"] == "yellow")
