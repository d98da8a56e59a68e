"""New code on trial: kept when a node answers it, given back when none does.

The part of a running watchdog that knows the slots (`slots.py`); loaded on boards whose `main.py`
came through them, and left out with `update.py`.
"""

import os

from ..protocol.degrees import const

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .app import Watchdog

_TRIAL = const(600_000)  # ms in which a node must answer, at each of the starts that are counted


class CodeTrial:
    """What one start of a watchdog has to do with the slots."""

    def __init__(self, dog: "Watchdog", slots: "Any", board: "Any") -> None:
        self._dog = dog
        self._slots = slots
        self._board = board
        self._has_update = _has_update()

    def describe(self) -> list[object]:
        """Return what a hello says of the code: whether it can be updated (1) or is on trial (2),
        the version, the image, and the one that failed."""
        slots = self._slots
        version, image, failed = slots.describe()
        state = 2 if slots.is_trial else 1 if self._has_update else 0
        return [state, version, bytes.fromhex(image), bytes.fromhex(failed)]

    def open_update(self) -> "Any":
        """Return what receives an image; None if that part was left out."""
        if not self._has_update:
            return None
        from .update import ImageUpdate

        return ImageUpdate(self._slots, self._dog.log, lambda: self._board.restart(True))

    def check(self, now: int) -> None:
        """Keep new code if a node has answered it; start again, which counts, if none does."""
        if not self._slots.is_trial:
            return
        if self._dog.uplink.is_answered:
            self._slots.confirm()
            self._dog.log("update: confirmed")
            self._board.restart(True)  # now as its configuration says: it may sleep
        elif now > _TRIAL:
            self._board.restart(True)


def _has_update() -> bool:
    """Return whether the part that receives is here, without loading it."""
    try:
        files = os.listdir(__file__[: __file__.rfind("/")])  # noqa: PTH208
    except (NameError, OSError):  # code in the firmware has no file, and takes none
        return False
    return "update.py" in files or "update.mpy" in files
