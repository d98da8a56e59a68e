"""What the durability benchmark kills and starts again: a node or a Mosquitto, and their users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.notifications import shorten_hash

from simulator.site import ServerProcess, Site, make_mosquitto

APP, PLANNER = "medic", "planner"
WORDS = "east between 1 and 60000 m, event patient"


class DurabilitySite(Site):
    """A node with some devices and two subscribers."""

    def __init__(self, folder: Path, devices: int) -> None:
        super().__init__(folder)
        self.vocabulary = shorten_hash(load_shipped("rescue"))
        self.server = self.add_node("node", interval=10)
        self.server.arguments = ("--level", "warning")
        self.server.configure(("\nshared = []", '\nshared = ["bench/#"]'))
        for person in (APP, PLANNER):
            self.add_subscriber(person)
        self.devices: list[dict[str, Any]] = [
            self.server.add_device(f"dog-{number}") for number in range(devices)
        ]

    def list_segments(self) -> list[Path]:
        """Return the files of the node's log."""
        return sorted((self.server.folder / "data" / "log").iterdir())


def make_durable_mosquitto(folder: Path, settings: list[str]) -> ServerProcess:
    """Make a Mosquitto that keeps sessions on the disk, with further settings."""
    data = folder / "mosquitto"
    data.mkdir()
    return make_mosquitto(
        folder,
        "persistence true",
        f"persistence_location {data}/",
        "max_queued_messages 0",  # no bound: what is lost is not lost for lack of room
        *settings,
    )
