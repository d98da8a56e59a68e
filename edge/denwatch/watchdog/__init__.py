"""What runs on the sensor: subscriptions from the air, evaluated where the reading is made.

On a board `main.py` says `from denwatch.watchdog import main; main()`. `load` imports the modules
one after the other, because memory is scarce: a module that imports another one is half loaded
meanwhile, so the leaves come first.
"""

import gc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

_MODULES = "filter rating fuzzy execution ring spool link uplink config app"


def load() -> "ModuleType":
    """Import everything that a running watchdog needs; return the module `app`."""
    for name in _MODULES.split():
        module = __import__(__name__ + "." + name, None, None, ["main"])
        gc.collect()
    return module


def main(path: str = "watchdog.json", period: float = 0) -> None:
    """Run the watchdog of a configuration file; every `period` seconds it prints its counters."""
    load().main(path, period)
