"""A console without a node, served from this process, and a real browser to look at it.

Whoever uses it puts notifications in by hand: tests/console, benchmarks.console.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from denwatch.client.console.auth import ConsoleUsers
from denwatch.client.console.server import ListenAddress, build_server
from denwatch.client.console.user_session import NodeServers, UserSession
from denwatch.client.subscriber import ReceivedNotification
from denwatch.client.subscriber.messages import read_notification
from denwatch.client.vocabulary import load_shipped
from playwright.sync_api import Browser, sync_playwright

from simulator.site import READY, wait_for

RESCUE = load_shipped("rescue")


def make_note(
    key: str, values: dict[str, Any] | None = None, **fields: Any
) -> ReceivedNotification:
    """Return a note: exact and certain unless it is said otherwise."""
    degree = fields.get("degree", 1.0)
    document = {
        "id": key,
        "event": "patient",
        "device": "bed-1",
        "values": values or {"heart_rate": {"value": 150.0, "unit": "bpm"}},
        "degree": degree,
        "possible": degree,
        "certain": degree,
        "why": None,
        "subscriptions": ["fast"],
        "at": "2026-11-16T10:00:00.000Z",
        "expires": "2026-11-16T10:10:00.000Z",
        "score": degree,
        "node": "north",
        **fields,
    }
    note = read_notification(json.dumps(document).encode())
    assert note is not None
    return note


@dataclass
class ServedConsole:
    """The console of medic7: its address with the secret, and its session."""

    address: str
    user: UserSession
    users: ConsoleUsers
    count: int = 0

    def add(self, device: str, **values: Any) -> None:
        """Receive a notification from a device that was measured now; values are numbers, or
        (low, high)."""
        self.add_all([(device, values)])

    def add_all(self, readings: list[tuple[str, dict[str, Any]]], step: int = 0) -> None:
        """Receive notifications, `step` ms apart, the last of them now."""
        now = self.user.now()
        attributes = RESCUE.events["patient"].attributes
        notes = []
        for place, (device, values) in enumerate(readings, 1 - len(readings)):
            self.count += 1
            shown = {}
            for name, value in values.items():
                low, high = value if isinstance(value, tuple) else (value, value)
                shown[name] = {"value": (low + high) / 2, "unit": attributes[name].unit}
                if low != high:
                    shown[name] |= {"low": low, "high": high}
            at = now + place * step
            fields: dict[str, Any] = {"at": at, "expires": now + 600_000}
            if any(isinstance(value, tuple) for value in values.values()):
                fields |= {"certain": 0.2}
            notes.append(make_note(f"n{self.count}", shown, device=device, **fields))
        self.user._add(notes)


@contextlib.contextmanager
def served_console(folder: Path) -> Iterator[ServedConsole]:
    """Serve a console of medic7 on a free port."""
    users = ConsoleUsers(NodeServers(("mqtt://127.0.0.1:1",)), folder, RESCUE)
    token = users.open_single("medic7", "key", folder / "medic7.db")
    assert users.single is not None
    with served_users(users) as address:
        yield ServedConsole(f"{address}/enter?token={token}", users.single, users)


@contextlib.contextmanager
def served_users(users: ConsoleUsers) -> Iterator[str]:
    """Serve a console on a free port; yield its address."""
    found: list[str] = []
    server: uvicorn.Server = build_server(users, ListenAddress("127.0.0.1", 0), found.append)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_for("the console", lambda: found, READY)
        yield found[0]
    finally:
        server.should_exit = True
        thread.join(30)
        users.close()


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """Run Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "chromium is missing: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()
