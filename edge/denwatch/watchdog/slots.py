"""Chooses which code a board runs; the one file that is never updated over the air.

    /            what was installed over USB: `main.py`, `lib/`, `watchdog.json`
    /a, /b       slots: code, configuration and manifest of an update (`update.py`)

Installed as `lib/slots.mpy`; `main.py` says `import slots; slots.run()`. Which slot runs is in a
record. Two files hold it in turn, each with a CRC, so that a power cut leaves the record before or
the one after. What must always hold:

* The record names the code that worked last (`current`). Only `confirm` changes that, and a node
  has answered then.
* A slot on trial is started at most `TRIES` times. Each start is counted before it happens, so a
  board that hangs, crashes or loses its power in a trial comes back to `current` by itself.
* Nothing writes to the slot that runs, nor to `lib/`: if a slot cannot be imported, `lib/` can.

EXAMPLE. `5 a b 3 1f..` tries b; 6, 7, 8 count its starts; no node answered, so 9 is `a - 0 1f..`:
a runs, and b's image has failed.
"""

import os
import sys
from binascii import crc32, hexlify
from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NONE = "-"
TRIES = 3
MANIFEST = "/manifest"
_CONFIG = "watchdog.json"
_FILES = ("slot.0", "slot.1")

slot = NONE  # which one runs
is_trial = False
path = _CONFIG  # of the configuration that is in use


def read() -> "tuple[int, str, str, int, str]":
    """Return the record: its number, the current slot, the one on trial, the tries that it has
    left, and the id of the image on trial, or of the one that failed."""
    best = (0, NONE, NONE, 0, NONE)
    for name in _FILES:
        try:
            with open(name, "rb") as file:  # noqa: PTH123 - no pathlib on a device
                data = file.read()
        except OSError:
            continue
        if len(data) > 8 and data[:8] == b"%08x" % crc32(data[8:]):
            number, current, trial, tries, image = data[8:].decode().split()
            if int(number) > best[0]:
                best = (int(number), current, trial, int(tries), image)
    return best


def write(current: str, trial: str, tries: int, image: str) -> None:
    """Write the next record over the one before the last."""
    number = read()[0] + 1
    text = f"{number} {current} {trial} {tries} {image}".encode()
    with open(_FILES[number & 1], "wb") as file:  # noqa: PTH123
        file.write(b"%08x" % crc32(text) + text)


def begin(trial: str, image: str) -> None:
    """Let the next start try a slot that is complete."""
    write(read()[1], trial, TRIES, image)


def confirm() -> None:
    """Note that what runs works: a node has answered its hello."""
    global is_trial
    write(slot, NONE, 0, NONE)
    is_trial = False


def find_other() -> str:
    """Return the slot that an update may write to."""
    return "b" if slot == "a" else "a"


def enter() -> None:
    """Choose what runs, and count a trial before it starts."""
    global is_trial, slot
    _, current, trial, tries, image = read()
    slot, is_trial = current, False
    if trial != NONE:
        if tries:
            write(current, trial, tries - 1, image)
            slot, is_trial = trial, True
        else:
            write(current, NONE, 0, image)
            _forget_crashes()
    _use()


def leave(image: str) -> None:
    """Go back from a slot whose code cannot be imported."""
    global is_trial, slot
    current = read()[1]
    current = NONE if current == slot else current
    write(current, NONE, 0, image)
    sys.path.remove(slot)
    for name in list(sys.modules):
        if name.startswith("denwatch"):
            del sys.modules[name]
    slot, is_trial = current, False
    _use()


def _use() -> None:
    global path
    path = _CONFIG
    if slot != NONE:
        sys.path.insert(0, slot)
        if _CONFIG in os.listdir(slot):  # noqa: PTH208
            path = slot + "/" + _CONFIG


def _forget_crashes() -> None:
    """Forget the crashes of a trial: they are not of the code that runs now."""
    if "crash.txt" in os.listdir():  # noqa: PTH208
        os.remove("crash.txt")  # noqa: PTH107


def describe() -> "tuple[str, str, str]":
    """Return the version that runs, its image's id, and the id of one that failed."""
    _, _, trial, _, image = read()
    failed = image if trial == NONE and image != NONE else ""
    try:
        with open(("lib" if slot == NONE else slot) + MANIFEST, "rb") as file:  # noqa: PTH123
            version = file.readline().split()[1].decode()
            file.seek(0)
            return version, digest(file), failed
    except (OSError, IndexError, ValueError):
        return "", "", failed


def digest(file: "Any") -> str:
    """Return the first 16 bytes of the SHA-256 of what a file holds from here on."""
    state = sha256()
    data = file.read(512)
    while data:
        state.update(data)
        data = file.read(512)
    return hexlify(state.digest()[:16]).decode()


def run() -> None:
    """Run the watchdog of the slot that is chosen."""
    enter()
    while True:
        try:
            from denwatch.watchdog.boot import main

            break
        except Exception as error:
            if slot == NONE:
                raise
            print(slot + ":", type(error).__name__, error)
            leave(describe()[1] or NONE)
    main(path)
