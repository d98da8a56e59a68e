"""Starts a watchdog: loads its modules one after the other, because memory is scarce on a device.

A module that imports another one is half loaded meanwhile, so the leaves come first. On a board
`main.py` says `from denwatch.watchdog.boot import main; main()`. Apart from `__init__.py`, so that
the filter alone does not pay for it.
"""

import gc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

_MODULES = "filter rating fuzzy execution ring spool link uplink config app"


def load() -> "ModuleType":
    """Import everything that a running watchdog needs; return the module `app`."""
    package = __name__[: -len("boot")]
    for name in _MODULES.split():
        module = __import__(package + name, None, None, ["main"])
        gc.collect()
    return module


def main(path: str = "watchdog.json", period: float = 0) -> None:
    """Run the watchdog of a configuration file; every `period` seconds it prints its counters."""
    load().main(path, period)
