"""Starts a watchdog: loads its modules one after the other, because memory is scarce on a device.

A module that imports another one is half loaded meanwhile, so the leaves come first. On a board
`main.py` says `from denwatch.watchdog.boot import main; main()`. Apart from `__init__.py`, so that
the filter alone does not pay for it. On a board the hardware watchdog runs before anything else,
and an error that nothing else caught starts the program again (`supervisor.py`).
"""

import gc
import json
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_MODULES = "filter rating fuzzy execution ring spool link uplink config app"
_PATIENCE = 30_000  # ms of the hardware watchdog, unless the configuration says otherwise


def load() -> "ModuleType":
    """Import everything that a running watchdog needs; return the module `app`."""
    for name in _MODULES.split():
        module = _load(name)
        gc.collect()
    return module


def _load(name: str) -> "ModuleType":
    return __import__(__name__[: -len("boot")] + name, None, None, ["main"])


def main(path: str = "watchdog.json", period: float = 0) -> None:
    """Run the watchdog of a configuration file; every `period` seconds it prints its counters."""
    try:
        board: Any = _load("board")
    except ImportError:  # a PC
        load().main(path, period)
        return
    feed: Any = int  # which does nothing
    try:
        timeout = _read_patience(path)
    except OSError:  # no configuration yet
        if _ask_for_one(path, board):
            return
        timeout = _PATIENCE
    if timeout:
        feed = board.start_watchdog(timeout)
    supervisor: Any = _load("supervisor")
    try:
        load().main(path, period, feed, supervisor.read_crashes()[0] >= supervisor.SAFE_AFTER)
    except KeyboardInterrupt:
        if timeout:
            board.keep_fed(feed)
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, a device must come back
        print(type(error).__name__ + ":", error)
        count = supervisor.note_crash(error)
        for _ in range(min(1 << count, 60)):  # no crash follows the next at once
            feed()
            time.sleep(1)
        board.restart(count > 2)


def _ask_for_one(path: str, board: "Any") -> bool:
    """Have somebody set the board up; False: that part was left out."""
    try:
        portal: Any = _load("portal")
    except ImportError:
        return False
    portal.main(path, board)
    return True


def _read_patience(path: str) -> int:
    try:
        with open(path) as file:  # noqa: PTH123 - no pathlib on a device
            return int(json.load(file).get("watchdog", _PATIENCE))
    except ValueError:
        return _PATIENCE
