"""Updates over the air in the emulated world: boards with slots for code, and nodes that roll out.

The product's own parts run on both sides: `core.updates` at the nodes; `slots`, `trial` and
`update` on the devices, each board with modules of its own, as after a start, over files in memory.
The power goes in the middle of them. Code is a file of an image: good, or such that it crashes.

In some scenarios all devices get an image, one after the other or at once; it may be a bad one. And
somebody without the authority's key puts an image of their own beside it.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterator
from random import Random
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from denwatch.node.core import updates
from denwatch.node.core.updates import DeviceUpdates, Rollout, UpdateImage
from denwatch.protocol.errors import ProtocolError

from simulator.faults import Play
from simulator.flash import PowerCut
from simulator.hosted_node import HostedNode
from simulator.keys import sign_by_name
from simulator.registry import RULES, Rule, Violation, check, dial, on_heal, on_setup
from simulator.whole_scenarios import WHOLE

if TYPE_CHECKING:
    from simulator.device import EmulatedDevice

_AUTHORITY = "authority"
_CODE = "denwatch/code.py"
_GOOD, _BAD = b"good " * 1_000, b"crashes at its start " * 250
_CUTS = 6  # of the power, in the first changes of a board's files
_FEW = 22  # changes
_LATEST = 90_000  # ms before the end: who is with a node since then has what it was offered
# After these nobody can say that a device heard its node.
_UNHEARD = {"forged-frame", "replayed-frame", "mad-device", "held-up", "revoked-device", "reflash"}


# A board ---------------------------------------------------------------------------------------


class _File(io.BytesIO):
    """An open file: what was written is on the flash after a flush, or when it is closed."""

    def __init__(self, files: BoardFiles, path: str, mode: str) -> None:
        kept = b"" if "w" in mode else files.contents[path]
        super().__init__(kept)
        if "a" in mode:
            self.seek(0, io.SEEK_END)
        self._files, self._path, self._is_new = files, path, mode[0] in "wa"

    def flush(self) -> None:
        if self._is_new and not self.closed:
            self._files.write(self._path, self.getvalue())

    def close(self) -> None:
        if not self.closed and not self._files.is_dead:
            self.flush()
        super().close()


class BoardFiles:
    """A board's file system, and the part of `os` that a watchdog uses; a change is whole or not
    there. `cuts` are the numbers of those changes in which the power goes."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.folders: set[str] = set()
        self.changes = 0
        self.cuts: set[int] = set()
        self.is_dead = False  # the power is off: nobody closes files

    def _change(self) -> None:
        self.changes += 1
        if self.changes in self.cuts:
            self.is_dead = True
            raise PowerCut

    def write(self, path: str, data: bytes) -> None:
        """Put a file's contents on the flash."""
        if self.contents.get(path) != data:
            self._change()
            self.contents[path] = data

    def open(self, path: str, mode: str = "r") -> io.IOBase:
        """Open a file, as the function of that name."""
        if path not in self.contents:
            if mode[0] == "r":
                raise FileNotFoundError(path)
            self.write(path, b"")
        file = _File(self, path, mode)
        return file if "b" in mode else _Text(file)

    def listdir(self, folder: str = "") -> list[str]:
        """Return the names in a folder."""
        if folder and folder not in self.folders:
            raise FileNotFoundError(folder)
        start = folder + "/" if folder else ""
        paths = [path for path in (*self.contents, *self.folders) if path.startswith(start)]
        return sorted({path[len(start) :].partition("/")[0] for path in paths})

    def stat(self, path: str) -> tuple[int, ...]:
        """Return the kind and the size of a file or folder."""
        if path in self.folders:
            return (0x4000, 0, 0, 0, 0, 0, 0)
        if path not in self.contents:
            raise FileNotFoundError(path)
        return (0x8000, 0, 0, 0, 0, 0, len(self.contents[path]))

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        self._change()
        self.folders.add(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        self._change()
        self.folders.remove(path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        if path not in self.contents:
            raise FileNotFoundError(path)
        self._change()
        del self.contents[path]

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, at once."""
        self._change()
        self.contents[new] = self.contents.pop(old)


class _Text(io.TextIOWrapper):
    """An open file of text."""

    def __init__(self, file: _File) -> None:
        super().__init__(file, "utf-8", write_through=True)


def load_part(name: str, files: BoardFiles) -> ModuleType:
    """Return a module of the watchdog as a start makes it, over a board's files."""
    spec = importlib.util.find_spec(f"denwatch.watchdog.{name}")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.os, module.open = files, files.open
    module.sys = SimpleNamespace(path=[], modules={})
    return module  # type: ignore[no-any-return]


class Board:
    """What of a device can be updated: its files, and the code that its last start chose."""

    def __init__(self, device: EmulatedDevice, first: UpdateImage) -> None:
        self._device = device
        self.files = BoardFiles()
        self.files.folders.update(("lib", "lib/denwatch"))
        self.files.contents["watchdog.json"] = b"{}"
        for path, data in zip(("manifest", _CODE), first.files, strict=True):
            self.files.contents["lib/" + path] = data
        self.is_crashed = False
        self.wants_restart = False
        self.asked = 0  # ms, when it first asked for a piece; 0: never
        self.confirmed = 0  # ms, when its image was confirmed
        self._trial: Any = None
        self.slots: Any = None

    def start(self) -> None:
        """Start the code of the slot that is chosen."""
        self.files.is_dead = self.wants_restart = False
        self.slots = load_part("slots", self.files)
        self.slots.enter()
        self.is_crashed = self.find_code() != _GOOD
        uplink = self._device.uplink
        dog = SimpleNamespace(uplink=uplink, log=lambda _: None)
        restart = SimpleNamespace(restart=self._restart)
        self._trial = load_part("trial", self.files).CodeTrial(dog, self.slots, restart)
        self._trial._has_update = True
        update = load_part("update", self.files)
        uplink.open_update = lambda: update.ImageUpdate(self.slots, dog.log, self._restart)

    def _restart(self, _: bool = True) -> None:
        self.wants_restart = True

    def find_code(self) -> bytes:
        """Return the code that runs."""
        folder = "lib" if self.slots.slot == self.slots.NONE else self.slots.slot
        return self.files.contents.get(f"{folder}/{_CODE}", b"")

    def find_image(self) -> str:
        """Return the id of the image that runs."""
        return str(self.slots.describe()[1])

    @property
    def is_updating(self) -> bool:
        """Whether an image is under way."""
        update = self._device.uplink.update
        return update is not None and bool(update.image)

    def describe(self) -> list[object]:
        """Return what a hello says of the code."""
        return [0, *self._trial.describe()]

    def look(self, now: int) -> None:
        """Keep new code that a node has answered."""
        was_trial = self.slots.is_trial
        self._trial.check(now)
        if was_trial and not self.slots.is_trial:
            self.confirmed = self._device.field_now
        if self.is_updating:
            self.asked = self.asked or self._device.field_now


# A roll-out ------------------------------------------------------------------------------------


def make_image(version: str, code: bytes) -> tuple[UpdateImage, bytes]:
    """Return an image and what the authority signs of it."""
    manifest = updates.write_manifest(version, 1, {_CODE: code})
    image = UpdateImage(updates.digest(manifest), version, (manifest, code))
    return image, updates.cover_manifest(manifest)


def read_image(image: UpdateImage, signature: bytes) -> UpdateImage | None:
    """Return an image as a node reads it from its folder; None if it is refused."""

    def verify(data: bytes, signed: bytes) -> bool:
        return sign_by_name(_AUTHORITY, data) == signed

    try:
        return updates.decode_image(updates.encode_image(image.files, signature), verify)
    except ProtocolError:
        return None


@dial("updates")
def draw_updates(rng: Random) -> int:
    """Return 0, or what is rolled out and how: 2 for a bad image, 4 for one after the other."""
    return rng.randrange(1, 1 << 16) if rng.random() < 0.15 else 0


@on_setup.append
def roll_out(play: Play) -> None:
    """Let all nodes roll out an image to all devices; and somebody try another one."""
    number = play.scenario.dial("updates")
    if not number or play.scenario.dial(WHOLE):
        return
    rng = Random(f"updates {number}")
    first, _ = make_image("1", _GOOD)
    wanted, covered = make_image("2", _BAD if number & 2 else _GOOD)
    forged, _ = make_image("9", _GOOD)
    names = [f"dog-{n}" for n in range(play.scenario.devices)]
    rows = [(wanted, sign_by_name(_AUTHORITY, covered)), (forged, bytes(64))]
    found = {image.id: read_image(image, signature) for image, signature in rows}
    # Who has no right to it says that the last device shall have theirs.
    targets = dict.fromkeys(names, wanted.id)
    if found[forged.id] is not None:
        targets[names[-1]] = forged.id
    images = {id: image for id, image in found.items() if image is not None}
    for host in play.world.hosts.values():
        wait = rng.randrange(play.scenario.trouble // 2)
        rollout = Rollout(1 if number & 4 else 0, targets)
        play.world.calendar.wait(wait, _begin, host, rollout, images)
    for name in names:
        device = play.world.devices[name]
        board = device.board = Board(device, first)
        board.files.cuts = {rng.randrange(1, _FEW) for _ in range(_CUTS)} if number & 8 else set()
        play.world.kill_device(name, 500)


def _begin(host: HostedNode, rollout: Rollout, images: dict[bytes, UpdateImage]) -> None:
    host.rollout = rollout, images
    if host.is_up:
        host.devices.updates.replace(rollout, images)


@on_heal.append
def end_cuts(play: Play) -> None:
    """Let the power stay on."""
    for device in play.world.devices.values():
        if device.board is not None:
            device.board.files.cuts = set()


@check("updated")
def check_updated(play: Play) -> Iterator[Violation]:
    """No device is left without code that works, nor with code that the authority did not sign.

    In stages nobody begins before those of the stage before have theirs. Who is with a node in the
    end, and is offered a good image, has it.
    """
    number = play.scenario.dial("updates")
    boards = [(each, each.board) for each in play.world.devices.values() if each.board]
    signed = {make_image("1", _GOOD)[0].id.hex(): _GOOD}
    signed[make_image("2", _BAD if number & 2 else _GOOD)[0].id.hex()] = b""
    first = play.world.devices["dog-0"]
    for device, board in boards:
        running = board.find_image()
        if board.is_crashed:
            yield Violation("updated", f"{device.name} has no code that works")
        if running not in signed:
            yield Violation("updated", f"{device.name} runs {running!r}, which nobody signed")
        if not _is_whole(board):
            yield Violation("updated", f"{device.name} runs code that is not what its list says")
        is_staged = bool(number & 4) and device is not first
        if is_staged and board.asked and not 0 < boards[0][1].confirmed <= board.asked:
            yield Violation("updated", f"{device.name} began before dog-0 was done")
        is_due = not number & 2 and not is_staged and _has_been_there(play, device)
        if is_due and running != make_image("2", _GOOD)[0].id.hex():
            yield Violation("updated", f"{device.name} never got its image")


def _has_been_there(play: Play, device: EmulatedDevice) -> bool:
    truth = play.truth
    if truth.liars or device.node in truth.find_forgetful():
        return False
    if _UNHEARD & set(play.scenario.list_faults()):
        return False
    welcomes = truth.welcomes.get((device.node, device.name), [])
    is_early = any(time < play.world.now - _LATEST for time in welcomes)
    return device.is_up and device.uplink.is_answered and is_early


def _is_whole(board: Board) -> bool:
    """Return whether every file of the running code is as its list says."""
    folder = "lib" if board.slots.slot == board.slots.NONE else board.slots.slot
    _, *rows = board.files.contents[f"{folder}/manifest"].decode().splitlines()
    files = [board.files.contents.get(f"{folder}/{row.split()[2]}", b"") for row in rows]
    return [updates.digest(file).hex() for file in files] == [row.split()[0] for row in rows]


# Without the rules ------------------------------------------------------------------------------


def _count_nothing(load: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    """Start code on trial for ever."""

    def load_endless(name: str, files: BoardFiles) -> ModuleType:
        module: Any = load(name, files)
        if name == "slots":
            write, tries = module.write, module.TRIES
            module.write = lambda current, trial, left, image: write(
                current, trial, left if trial == module.NONE else tries, image
            )
        return module  # type: ignore[no-any-return]

    return load_endless


def _hold_all(load: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    """Believe that every file is as it should be."""

    def load_trusting(name: str, files: BoardFiles) -> ModuleType:
        module: Any = load(name, files)
        if name == "update":
            module.ImageUpdate._holds = lambda _, path, __, ___: path in files.contents
        return module  # type: ignore[no-any-return]

    return load_trusting


_THIS: Any = importlib.import_module(__name__)
RULES["counted-trials"] = Rule(
    _THIS,
    "load_part",
    _count_nothing,
    "new code is started three times at most before a node has answered it",
    dials={"updates": 2, "whole": 0},
)
RULES["image-digests"] = Rule(
    _THIS,
    "load_part",
    _hold_all,
    "a file of an image is used if its digest is right",
    dials={"updates": 8, "whole": 0},
)
RULES["image-signature"] = Rule(
    updates,
    "decode_image",
    lambda decode: lambda data, _: decode(data, lambda *_: True),
    "an image is the authority's",
    dials={"updates": 16, "whole": 0},
)
RULES["stages"] = Rule(
    DeviceUpdates,
    "_is_turn",
    lambda _: lambda *_: True,
    "the next stage of a roll-out begins when the one before is done",
    dials={"updates": 6, "whole": 0},
)

__all__ = ["Board", "BoardFiles"]
