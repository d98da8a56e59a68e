"""Updates over the air: takes an image in pieces into the slot that does not run.

An image is a manifest and files. The manifest is lines of text: `denwatch VERSION MADE`, then one
line `DIGEST SIZE PATH` for each file; its own digest is the image's id. The node offers an id
(numbered and sealed like a subscription, so that nobody can play an old offer back), and this
device asks for what it lacks: file 0 is the manifest, file n its nth line.

* A file that the running code has, too, is copied; one that is complete in the slot stays.
* What is being received is called after its digest (`part.DIGEST`) and gets its name when its
  digest is right. So after a power cut each name has a whole file, and a part goes on where it was.
* The slot is put on trial (`slots.py`) after every file in it was read again and is right, and
  what is not in the manifest is gone.
* `changes.json` in an image changes the configuration: its fields replace those of the running
  one, null removes one. Keys never travel: the configuration is made here, for the slot.

May be left out of a device. One step does at most one file's work, so that other tasks go on.
"""

import json
import os

from ..protocol.degrees import const
from .seal import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

WANT = const(18)  # type of the message
_PIECE = const(512)  # bytes that are asked for at a time
_WAIT = const(5_000)  # ms for a piece
_FLUSH = const(4096)  # bytes between two looks at the flash, which wears
_FAILURES = const(5)  # files that came wrong, after which an offer is dropped
_LONGEST = const(8192)  # bytes of a manifest
_CHANGES = "changes.json"
_SLOT_FILES = ("manifest", "watchdog.json")


class ImageUpdate:
    """One image on its way into a slot. `slots` is the module that `main.py` started with."""

    def __init__(
        self, slots: "Any", log: "Callable[[str], None]", restart: "Callable[[], None]"
    ) -> None:
        self._slots = slots
        self._log = log
        self._restart = restart
        self._slot = ""
        self.image = b""  # its id, empty: there is none
        self._dropped = b""  # one that found no room, or came wrong: not again in this run
        self._rows: list[tuple[str, int, str]] = []  # digest, size and path of each file
        self._row = -1  # the one that is looked at; -1: the manifest
        self._size = 0  # of the manifest
        self._part: Any = None  # the file that is being received
        self._at = 0
        self._until = 0
        self._unsaved = 0
        self._failures = 0

    def offer(self, image: bytes, size: int) -> None:
        """Begin with an image, unless it is under way, or failed here before."""
        failed = self._slots.describe()[2]
        name = image.hex()
        if image in (self.image, self._dropped) or name == failed or self._slots.is_trial:
            return
        if size > _LONGEST:
            return
        self._close()
        self._log("update: " + name[:16])
        self._slot = self._slots.find_other()
        self.image = image
        self._size = size
        self._failures = 0
        self._restart_files()

    def _restart_files(self) -> None:
        self._row = -1
        self._rows = []
        self._until = 0

    def _find_row(self) -> "tuple[str, int, str]":
        if self._row < 0:
            return self.image.hex(), self._size, "manifest"
        return self._rows[self._row]

    def next_want(self, now: int) -> "bytes | None":
        """Do one step; return the message that asks for the next piece, None: nothing to ask."""
        if not self.image:
            return None
        try:
            if self._part is None and not self._open():
                return None
        except OSError as error:  # a full file system, for one
            self._drop(error)
            return None
        if now < self._until:
            return None
        self._until = now + _WAIT
        length = min(_PIECE, self._find_row()[1] - self._at)
        return pack({0: WANT, 1: self.image, 2: self._row + 1, 3: self._at, 4: length})

    def take(self, message: "dict[Any, Any]") -> None:
        """Take a piece; one that was not asked for, or came before, is passed over."""
        is_next = (self.image, self._row + 1, self._at) == tuple(
            [message.get(i) for i in (1, 2, 3)]
        )
        data = message.get(4)
        if self._part is None or not is_next or not isinstance(data, bytes) or not data:
            return
        try:
            self._store(data)
        except OSError as error:
            self._drop(error)

    def _store(self, data: bytes) -> None:
        digest, size, path = self._find_row()
        self._part.write(data)
        self._at += len(data)
        self._unsaved += len(data)
        self._until = 0
        if self._at >= size:
            self._close()
            self._finish_file(digest, size, path)
        elif self._unsaved >= _FLUSH:
            self._part.flush()
            self._unsaved = 0

    # Files ---------------------------------------------------------------------------------------

    def _open(self) -> bool:
        """Go to the next file that is not here; False: this step is over, or all is here."""
        if self._row >= len(self._rows):
            self._complete()
            return False
        digest, size, path = self._find_row()
        where = self._slot + "/" + path
        if self._holds(where, digest, size):
            self._advance(where)
            return False
        if _measure(where) >= 0:  # of the image before: its room is needed
            os.remove(where)  # noqa: PTH107
        part = self._slot + "/part." + digest[:8]
        _make_folders(part)
        source = self._find_copy(digest, size, path)
        if source:
            with open(source, "rb") as old, open(part, "wb") as new:  # noqa: PTH123
                data = old.read(_PIECE)
                while data:
                    new.write(data)
                    data = old.read(_PIECE)
            self._finish_file(digest, size, path)
            return False
        self._at = max(_measure(part), 0)
        if self._at >= size:  # whole, but for its name
            self._finish_file(digest, size, path)
            return False
        self._part = open(part, "ab")  # noqa: SIM115, PTH123 - until the last piece
        self._unsaved = 0
        return True

    def _find_copy(self, digest: str, size: int, path: str) -> str:
        slot = self._slots.slot
        for folder in ("lib", "/rom/lib") if slot == self._slots.NONE else (slot,):
            if self._holds(folder + "/" + path, digest, size):
                return folder + "/" + path
        return ""

    def _holds(self, path: str, digest: str, size: int) -> bool:
        if _measure(path) != size:
            return False
        with open(path, "rb") as file:  # noqa: PTH123
            return bool(self._slots.digest(file) == digest)

    def _finish_file(self, digest: str, size: int, path: str) -> None:
        """Give a file its name, if it is right; forget it otherwise."""
        part = self._slot + "/part." + digest[:8]
        where = self._slot + "/" + path
        if not self._holds(part, digest, size):
            os.remove(part)  # noqa: PTH107
            self._failures += 1
            self._log("update: wrong: " + path)
            if self._failures >= _FAILURES:
                self._drop("given up")
            return
        _make_folders(where)
        os.rename(part, where)  # noqa: PTH104
        self._advance(where)

    def _advance(self, where: str) -> None:
        if self._row < 0:
            with open(where) as file:  # noqa: PTH123
                file.readline()
                for line in file:
                    digest, size, path = line.split()
                    self._rows.append((digest, int(size), path))
            self._sweep(self._slot, self._list_kept())
        self._row += 1
        self._until = 0

    def _complete(self) -> None:
        """Check everything again, make the configuration, and put the slot on trial."""
        self._sweep(self._slot, [row[2] for row in self._rows])
        for row in range(-1, len(self._rows)):
            self._row = row
            digest, size, path = self._find_row()
            if not self._holds(self._slot + "/" + path, digest, size):
                self._restart_files()
                return
        image = self.image.hex()
        self.image = b""
        with open(self._slots.path) as file:  # noqa: PTH123
            config = json.load(file)
        if _measure(self._slot + "/" + _CHANGES) >= 0:
            with open(self._slot + "/" + _CHANGES) as file:  # noqa: PTH123
                changes = json.load(file)
            for name in changes:
                config[name] = changes[name]
                if changes[name] is None:
                    del config[name]
        with open(self._slot + "/watchdog.json", "w") as file:  # noqa: PTH123
            json.dump(config, file)
        self._slots.begin(self._slot, image)
        self._log("update: on trial")
        self._restart()

    def _sweep(self, folder: str, kept: list[str]) -> None:
        """Remove what the manifest does not have, and folders that are empty then."""
        for name in os.listdir(folder):  # noqa: PTH208
            path = folder + "/" + name
            if os.stat(path)[0] & 0x4000:  # noqa: PTH116 - a folder
                self._sweep(path, kept)
                if not os.listdir(path):  # noqa: PTH208
                    os.rmdir(path)  # noqa: PTH106
            elif path[len(self._slot) + 1 :] not in kept and name not in _SLOT_FILES:
                os.remove(path)  # noqa: PTH107

    def _list_kept(self) -> list[str]:
        """Return what of the slot may be of use: files of the manifest, and parts of them."""
        parts = ["part." + row[0][:8] for row in self._rows]
        return parts + [row[2] for row in self._rows]

    def _drop(self, reason: object) -> None:
        """Do without this image until the next start."""
        self._log("update: " + str(reason))
        self._dropped, self.image = self.image, b""
        try:
            self._close()
        except OSError:
            self._part = None

    def _close(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None


def _measure(path: str) -> int:
    """Return the bytes of a file, -1 if there is none."""
    try:
        return int(os.stat(path)[6])  # noqa: PTH116
    except OSError:
        return -1


def _make_folders(path: str) -> None:
    """Make the folders above a file."""
    at = path.find("/")
    while at > 0:
        if _measure(path[:at]) < 0:
            os.mkdir(path[:at])  # noqa: PTH102
        at = path.find("/", at + 1)
