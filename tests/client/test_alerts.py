"""Alerts go to webhooks and through Apprise: again after a failure, not too many, not silent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from denwatch.cli.alert import AlertError, AlertForwarder, AlertRoute
from denwatch.client.subscriber import HandlerTransaction
from denwatch.client.subscriber.messages import ReceivedNotification, read_notification
from denwatch.client.subscriber.store import SubscriberStore, connect, transact

from simulator.site import ENVIRONMENT, Site, run_denwatch, wait_for
from tests.node.app import App

NOW = 1_800_000_000_000


class Hook(ThreadingHTTPServer):
    """A web server that keeps what is posted; `refuses` so many first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted: list[Any] = []
        self.refuses = 0
        self.status = 204

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.refuses:
            self.server.refuses -= 1
            self.send_response(503)
        else:
            is_json = self.headers["Content-Type"].startswith("application/json")
            self.server.posted.append(json.loads(body) if is_json else body)
            self.send_response(self.server.status)
            self.send_header("Location", self.server.url)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def make_note(number: int, subscription: str = "pulse", **fields: Any) -> ReceivedNotification:
    body = {"id": f"{number:016x}", "event": "patient", "device": "bed-1", "degree": 1.0}
    values = {"heart_rate": {"value": 140.0, "unit": "bpm"}}
    made = {**body, "values": values, "subscriptions": [subscription], **fields}
    found = read_notification(json.dumps(made).encode())
    assert found is not None
    return found


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_webhook_that_has_moved_is_no_delivery(hook: Hook, status: int) -> None:
    """Following would turn the POST into a GET without the alert, or send it somewhere else."""
    hook.status = status
    with pytest.raises(AlertError, match=f"{status}"):
        AlertRoute(hook.url, "pulse").send(make_note(1), NOW)


def test_a_webhook_gets_what_it_is_for(hook: Hook) -> None:
    route = AlertRoute(hook.url, "pulse")
    assert not route.wants(make_note(1, "pain"), NOW)
    assert route.wants(make_note(2), NOW)
    assert route.send(make_note(2), NOW)
    (posted,) = hook.posted
    assert (posted["device"], posted["more"]) == ("bed-1", 0)


def test_beyond_the_limit_they_are_counted(hook: Hook) -> None:
    route = AlertRoute(hook.url, per_minute=2)
    sent = [route.send(make_note(number), NOW + 1000 * number) for number in range(5)]
    assert sent == [True, True, False, False, False]
    assert route.send(make_note(6), NOW + 61_500)
    assert [each["more"] for each in hook.posted] == [0, 0, 3]


def test_what_somebody_silenced_makes_no_alert(hook: Hook) -> None:
    had = {"by": "ada", "silent_until": "2027-01-15T08:10:00.000Z"}
    route = AlertRoute(hook.url)
    assert not route.wants(make_note(1, had=had), NOW)
    assert route.wants(make_note(1, had=had), NOW + 11 * 60_000)
    assert route.wants(make_note(1, had={**had, "silent_until": None}), NOW)


def test_a_dead_route_delays_no_other_and_gets_everything_when_it_is_back(
    tmp_path: Path, hook: Hook
) -> None:
    """The dead one is the first of the list; the alerts survive a restart."""
    dead = Hook()
    dead.refuses = 1_000_000
    thread = Thread(target=dead.serve_forever)
    thread.start()
    path = tmp_path / "siren.db"
    SubscriberStore(path, "siren", "device").close()
    routes = [AlertRoute(dead.url), AlertRoute(hook.url), AlertRoute(hook.url, "pain")]
    for start in (0, 3):
        with (
            closing(AlertForwarder(routes, path)) as forwarder,
            closing(connect(path, 1_000)) as db,
        ):
            forwarder.start()
            for number in range(start, start + 3):
                with transact(db):
                    forwarder.forward(make_note(number), HandlerTransaction(db))
            wait_for("the others", lambda: len(hook.posted) == start + 3, 30)  # noqa: B023
        assert dead.posted == []
    ids = [f"{number:016x}" for number in range(6)]
    assert [each["id"] for each in hook.posted] == ids
    dead.refuses = 1
    with closing(AlertForwarder(routes, path)) as forwarder:
        forwarder.start()
        wait_for("what it missed", lambda: len(dead.posted) == 6, 60)
    assert [each["id"] for each in dead.posted] == ids
    assert len(hook.posted) == 6  # nobody gets anything twice
    dead.shutdown()
    dead.server_close()
    thread.join()


def test_apprise_sends_it_in_words(hook: Hook) -> None:
    url = hook.url.replace("http://", "json://")
    assert AlertRoute(url, per_minute=1).send(make_note(1, escalated="ada"), NOW)
    (posted,) = hook.posted
    assert posted["title"] == "pulse: nobody has it"
    assert "heart_rate 140.0 bpm" in posted["message"]
    hook.refuses = 9
    with pytest.raises(AlertError, match="not taken"):
        AlertRoute(url).send(make_note(2), NOW)
    with pytest.raises(AlertError, match="does not know"):
        AlertRoute("nothing://x").send(make_note(3), NOW)


def test_the_command_follows_what_a_node_delivers(tmp_path: Path, hook: Hook) -> None:
    with Site(tmp_path) as site:
        north = site.add_node("north")
        for name in ("siren", "ada"):
            site.add_subscriber(name)
        north.start()
        key = tmp_path / "siren.key"
        key.write_text(site.passwords["siren"])
        key.chmod(0o600)
        login = ("--as", "siren", "--password-file", str(key), "--node", north.url)
        words = ("--subscribe", "triage = red, named red", "--to", f"red={hook.url}")
        store = ("--store", str(tmp_path / "siren.db"))
        command = (sys.executable, "-m", "denwatch.cli", "alert", *words, *store, *login)
        process = subprocess.Popen(command, env=ENVIRONMENT)
        try:
            with App(north.port, "ada", site.passwords["ada"]) as app:
                app.subscribe("dens/1/reply/ada")
                wait_for("the subscription", lambda: "red" in run_denwatch("mine", *login), 60)
                app.ask("ada", "patient: triage red", "report")
                wait_for("the alert", lambda: len(hook.posted) == 1, 60)
                assert json.loads(run_denwatch("have", "ada", "--json", *login))["by"] == "siren"
                assert "siren has ada since" in run_denwatch("have", *login)
        finally:
            process.kill()
            process.wait()
    assert hook.posted[0]["subscription"] == "red"
