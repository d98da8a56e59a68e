"""The folder `updates/` of a node: what `denwatch device update` puts there, and what it reads.

    rollout.json    which device shall have which image (the command writes it last)
    ID.image        signed images
    fleet.json      what the node knows of its devices; the node writes it

Only this file of the node reads and writes that folder. What is wrong in it is reported once and
not used; the roll-out of before goes on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

from denwatch.node.core.updates import DeviceUpdates, UpdateImage, decode_image, decode_rollout
from denwatch.node.security.cards import verify_signature
from denwatch.protocol.errors import ProtocolError

_log = logging.getLogger("denwatch.node")
FOLDER, ROLLOUT, FLEET = "updates", "rollout.json", "fleet.json"
_EVERY = 1_000  # ms between two looks, and for each device
_EACH = 5


class RolloutFolder:
    """Keeps a node's updates in step with the folder. `find_authority` returns its public key."""

    def __init__(
        self, folder: Path, updates: DeviceUpdates, find_authority: Callable[[], bytes]
    ) -> None:
        self._folder = folder / FOLDER
        self._updates = updates
        self._find_authority = find_authority
        self._stamp: tuple[int, int] | None = None
        self._fleet = ""
        self._next = 0

    def step(self, list_fleet: Callable[[], list[dict[str, object]]], now: int) -> None:
        """Load a roll-out that is new, and write what the fleet is now; once a second."""
        if now < self._next:
            return
        try:
            self._load()
        except (OSError, ProtocolError) as error:
            _log.error("the roll-out on the disk is not used: %s", error)
        fleet = list_fleet()
        self._next = now + max(_EVERY, _EACH * len(fleet))
        text = json.dumps(fleet, indent=1) + "\n"
        if fleet and text != self._fleet:
            self._fleet = text
            try:
                self._write(text)
            except OSError as error:
                _log.error("%s: %s", self._folder / FLEET, error.strerror)

    def _load(self) -> None:
        path = self._folder / ROLLOUT
        try:
            found = path.stat()
        except FileNotFoundError:
            return
        stamp = (found.st_mtime_ns, found.st_size)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # what is wrong is reported once
        rollout = decode_rollout(path.read_text(encoding="utf-8"))
        images = {id: self._read_image(id) for id in dict.fromkeys(rollout.targets.values())}
        self._updates.replace(rollout, images)
        versions = ", ".join(dict.fromkeys(image.version for image in images.values()))
        _log.info("rolling out %s to %d devices", versions, len(rollout.targets))

    def _read_image(self, id: bytes) -> UpdateImage:
        path = self._folder / f"{id.hex()}.image"
        try:
            image = decode_image(
                path.read_bytes(),
                lambda data, signature: verify_signature(self._find_authority(), data, signature),
            )
        except ProtocolError as error:
            raise ProtocolError(f"{path}: {error}") from None
        if image.id != id:
            raise ProtocolError(f"{path}: another image")
        return image

    def _write(self, text: str) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        fresh = self._folder / f"{FLEET}.new"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self._folder / FLEET)
