"""Updates of devices over the air: which image goes to which device, and when. No I/O, no clock.

An image is a manifest and the files that it lists (`denwatch.watchdog.update` has its format); its
id is the first half of the manifest's SHA-256. The site's authority signs the manifest, so a node
offers nothing that the authority did not make; a device, which cannot verify signatures, trusts the
tag of the frame that offers an id to it, and compares every file with the manifest.

A roll-out says which device shall have which image, in an order. In stages of N devices, the next
stage begins when all of the stage before run theirs, confirmed; one that went back to its old code
stops the roll-out. Devices fetch: an offer is repeated until a device asks for pieces, and nothing
is kept for them here but how far they are, for people.

EXAMPLE. dog-1 to dog-4 shall have 3f2a, in stages of 2: dog-1 and dog-2 are offered it. Both say
hello with 3f2a on trial, are answered, and say so with the next hello; then it is dog-3's turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import cbor2
from denwatch.protocol.errors import ProtocolError

CANNOT, READY, TRIAL = 0, 1, 2  # what a hello says of the code that runs
ID_BYTES = 16
MAX_PIECE = 900  # bytes: a watchdog takes packets of 2,048
_COVER = b"denwatch image 1\0"
_AGAIN = 30_000  # ms until an offer is repeated


class RunningImage(NamedTuple):
    """What a hello says of a device's code."""

    kind: int  # `sys.implementation._mpy`: which machine code it runs
    state: int
    version: str
    image: bytes
    failed: bytes  # the image that it went back from


class UpdateImage(NamedTuple):
    """An image as a node offers it; file 0 is the manifest."""

    id: bytes
    version: str
    files: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(map(len, self.files))


class Rollout(NamedTuple):
    """Which device shall have which image, in order; a stage of 0 is everybody at once."""

    stage: int
    targets: dict[str, bytes]


def digest(data: bytes) -> bytes:
    """Return an image's id, or a file's digest."""
    return sha256(data).digest()[:ID_BYTES]


def write_manifest(version: str, made: int, files: Mapping[str, bytes]) -> bytes:
    """Return the manifest of files by path; `made` tells two images of one version apart."""
    rows = [f"{digest(data).hex()} {len(data)} {path}" for path, data in files.items()]
    return "".join(f"{row}\n" for row in (f"denwatch {version} {made}", *rows)).encode()


def cover_manifest(manifest: bytes) -> bytes:
    """Return what the authority signs."""
    return _COVER + manifest


def encode_image(files: Iterable[bytes], signature: bytes) -> bytes:
    """Return a signed image as one file."""
    return cbor2.dumps([list(files), signature])


def decode_image(data: bytes, verify: Callable[[bytes, bytes], bool]) -> UpdateImage:
    """Return an image whose signature and files are right; ProtocolError otherwise."""
    try:
        match cbor2.loads(data):
            case [[bytes(manifest), *files], bytes(signature)]:
                head, *rows = (line.split(" ") for line in manifest.decode().splitlines())
                version = head[1]
            case _:
                raise ProtocolError("not an image")
    except (cbor2.CBORDecodeError, ValueError, IndexError):
        raise ProtocolError("not an image") from None
    if not verify(cover_manifest(manifest), signature):
        raise ProtocolError("not signed by this site's authority")
    sums = [[digest(file).hex(), str(len(file))] for file in files]
    if sums != [row[:2] for row in rows]:
        raise ProtocolError("files that are not those of the manifest")
    return UpdateImage(digest(manifest), version, (manifest, *files))


def encode_rollout(rollout: Rollout) -> str:
    """Return a roll-out as text."""
    targets = {name: image.hex() for name, image in rollout.targets.items()}
    return json.dumps({"stage": rollout.stage, "targets": targets}, indent=1) + "\n"


def decode_rollout(text: str) -> Rollout:
    """Return the roll-out of a text; ProtocolError if it is none."""
    try:
        match json.loads(text):
            case {"stage": int(stage), "targets": dict(targets)} if stage >= 0:
                return Rollout(stage, {name: bytes.fromhex(id) for name, id in targets.items()})
    except (ValueError, TypeError):
        pass
    raise ProtocolError("a roll-out has a stage and targets")


# The node's side -------------------------------------------------------------------------------


class DeviceUpdates:
    """The roll-out of one node. `find` returns what a device's last hello said, None: no hello."""

    def __init__(self) -> None:
        self.rollout = Rollout(0, {})
        self._images: dict[bytes, UpdateImage] = {}
        self._offered: dict[str, int] = {}  # when, ms; also when a device asked last
        self._done: dict[str, int] = {}  # bytes that a device has of its image

    def replace(self, rollout: Rollout, images: Mapping[bytes, UpdateImage]) -> None:
        """Use another roll-out; everything that is due is offered again."""
        self.rollout = rollout
        self._images = dict(images)
        self._offered.clear()
        self._done.clear()

    def find_due(
        self, device: str, find: Callable[[str], RunningImage | None], now: int
    ) -> UpdateImage | None:
        """Return the image to offer to a device now."""
        image = self._images.get(self.rollout.targets.get(device, b""))
        if image is None or self._find_state(device, find) != "due":
            return None
        if now - self._offered.get(device, -_AGAIN) < _AGAIN:
            return None
        self._offered[device] = now
        return image

    def answer(self, device: str, fields: Mapping[str, Any], now: int) -> dict[str, Any] | None:
        """Return the piece that a device asks for; None if it was not offered this image."""
        image = self._images.get(self.rollout.targets.get(device, b""))
        number, at = fields["file"], fields["at"]
        if image is None or fields["image"] != image.id or number >= len(image.files):
            return None
        data = image.files[number][at : at + min(fields["length"], MAX_PIECE)]
        if not data:
            return None
        self._offered[device] = now
        self._done[device] = sum(map(len, image.files[:number])) + at
        return {"image": image.id, "file": number, "at": at, "data": data}

    def forget_offer(self, device: str) -> None:
        """Offer again at once: the device has just connected."""
        self._offered.pop(device, None)

    def _find_state(self, device: str, find: Callable[[str], RunningImage | None]) -> str:
        """Return where a device of the roll-out stands: done, failed, cannot, waiting, due, ..."""
        wanted = self.rollout.targets[device]
        running = find(device)
        if running is None:
            return "not heard"
        if running.image == wanted:
            return "on trial" if running.state == TRIAL else "done"
        if running.failed == wanted:
            return "failed"
        if running.state == CANNOT:
            return "cannot"
        if running.state == TRIAL:
            return "on trial"
        return "due" if self._is_turn(device, find) else "waiting"

    def _is_turn(self, device: str, find: Callable[[str], RunningImage | None]) -> bool:
        """Return whether all devices of the stages before run their image."""
        names = list(self.rollout.targets)
        stage = self.rollout.stage
        before = names[: names.index(device) // stage * stage] if stage else []
        return all(self._find_state(name, find) == "done" for name in before)

    def describe(
        self, device: str, find: Callable[[str], RunningImage | None]
    ) -> dict[str, int | str]:
        """Return where the update of a device stands, for people; empty if it has none."""
        if device not in self.rollout.targets:
            return {}
        state = self._find_state(device, find)
        wanted = self.rollout.targets[device]
        image = self._images.get(wanted)
        shown: dict[str, int | str] = {"state": state, "image": wanted.hex()}
        if image is not None:
            shown["version"] = image.version
            done = image.size if state in ("done", "on trial") else self._done.get(device, 0)
            shown["percent"] = 100 * done // image.size
            if state == "due" and done:
                shown["state"] = "receiving"
        return shown
