"""Loads the watchdog's modules one after the other, for a device whose memory is scarce.

A module that imports another one stays half loaded meanwhile, so leaves come first. On a board
`main.py` says `from denwatch.watchdog.boot import main; main()`.
"""

import gc

_MODULES = "filter rating doubt fuzzy execution spool link uplink app config"


def load() -> object:
    """Import everything that a running watchdog needs; return the module `app`."""
    package = __name__[: -len("boot")]
    for name in _MODULES.split():
        __import__(package + name)
        gc.collect()
    from . import app

    return app


def main(path: str = "watchdog.json", period: float = 0) -> None:
    """Run the watchdog of a configuration file."""
    load().main(path, period)  # type: ignore[attr-defined]
