"""Who plays in the demo: watchdogs on MicroPython, and people with the client library."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from denwatch.client.subscriber import ReceivedNotification, Subscriber
from denwatch.client.subscriber.core import SubscriberOptions
from denwatch.client.subscriber.store import HandlerTransaction

from demo.site import DemoSite
from firmware_tests.runtimes import find_library, find_unix


def read_metrics(url: str) -> dict[str, float]:
    """Return a node's counters and gauges; nothing while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=1) as page:
            text = page.read().decode()
    except OSError:
        return {}
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("denwatch_"):
            name, _, value = line.rpartition(" ")
            key = name.partition("{")[0].removeprefix("denwatch_").removesuffix("_total")
            found[key] = found.get(key, 0.0) + float(value)
    return found


class WatchdogProcess:
    """A watchdog on MicroPython; it prints its counters, which are kept here."""

    def __init__(self, site: DemoSite, name: str) -> None:
        self.name = name
        self.report: Mapping[str, Any] = {}
        config = str(site.folder / name / "watchdog.json")
        code = f"from denwatch.watchdog.boot import main; main({config!r}, 1)"
        self._process = subprocess.Popen(
            [str(find_unix(64)), "-X", "heapsize=512k", "-c", code],
            stdout=subprocess.PIPE,
            stderr=(site.folder / f"{name}.log").open("w"),
            env={**os.environ, "MICROPYPATH": f"{find_library()}:.frozen"},
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.report = json.loads(line)

    @property
    def readings(self) -> int:
        """How many readings it has taken."""
        return int(self.report.get("rounds", 0))

    @property
    def sent(self) -> int:
        """How many of them somebody wanted."""
        return int(self.report.get("matched", 0))

    @property
    def acknowledged(self) -> int:
        """How many the node has on its disk."""
        return int(self.report.get("uplink", {}).get("acknowledged", 0))

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(10)


class Person:
    """Somebody with the client library, at one node at a time."""

    def __init__(self, site: DemoSite, name: str, node: str, words: str) -> None:
        self.name = name
        self.node = node
        self.words = words
        self.notes: list[ReceivedNotification] = []
        self.delays: list[float] = []  # s from the reading to the app
        self._site = site
        self._subscriber = Subscriber(
            name,
            site.passwords[name],
            [site.nodes[node].url],
            store=site.folder / f"{name}.db",
            on_notification=self._take,
            settings=SubscriberOptions(),
        )

    def ask(self) -> None:
        """Say what is wanted."""
        self._subscriber.start()
        self._subscriber.subscribe(self.words, name="demo", timeout=60)

    def walk(self, node: str) -> None:
        """Go to another node."""
        self.node = node
        self._subscriber.use_servers([self._site.nodes[node].url])

    def leave(self) -> None:
        """Close the app."""
        self._subscriber.close()

    def _take(self, note: ReceivedNotification, transaction: HandlerTransaction) -> None:  # noqa: ARG002
        if note.at is not None:
            self.delays.append(time.time() - note.at / 1000)
        self.notes.append(note)


def make_folder(root: Path) -> Path:
    """Return a fresh folder for one run."""
    folder = root / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    return folder
