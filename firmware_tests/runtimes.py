"""Where the MicroPython runtimes are, and what they are called.

Only this file knows the layout of the cache that `scripts/get-runtimes.sh` fills. Nothing is
started here; the runners (`unix`, `wasm`, `microbit`) do that.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from denwatch.cli.devices.images import link_library

REPOSITORY = Path(__file__).resolve().parent.parent
LIBRARY = Path(__file__).resolve().parent / "lib"

WASM_PACKAGE = "@micropython/micropython-webassembly-pyscript"


class MissingRuntimeError(Exception):
    """A runtime is not on this machine; the text names the tool and how to get it."""


def find_cache() -> Path:
    """Return the folder of the runtimes: `.cache/runtimes`, or `$DENWATCH_CACHE/runtimes`."""
    return Path(os.environ.get("DENWATCH_CACHE") or REPOSITORY / ".cache").resolve() / "runtimes"


def find_boards() -> Path:
    """Return the folder that `firmware_tests/boards/build.sh` fills."""
    return find_cache().parent / "boards"


def find_library() -> Path:
    """Return a folder laid out like a device's `lib/`, of links to our sources."""
    return link_library(find_cache() / "library")


def find_unix(bits: int) -> Path:
    """Return the unix MicroPython with this word size, 64 or 32."""
    return _require(find_cache() / f"unix{bits}" / "micropython", f"unix MicroPython, {bits} bit")


def find_wasm() -> tuple[Path, Path]:
    """Return (node, the WebAssembly MicroPython's JavaScript module)."""
    node = shutil.which("node")
    if node is None:
        raise MissingRuntimeError(_advise("node"))
    module = find_cache() / "wasm" / "node_modules" / WASM_PACKAGE / "micropython.mjs"
    return Path(node), _require(module, "WebAssembly MicroPython")


def find_microbit() -> tuple[Path, Path]:
    """Return (the emulator, the micro:bit's firmware)."""
    folder = find_cache() / "microbit"
    emulator = _require(folder / "qemu-system-arm", "qemu-system-arm")
    return emulator, _require(folder / "firmware.hex", "firmware-microbit-micropython")


def _require(path: Path, tool: str) -> Path:
    if not path.exists():
        raise MissingRuntimeError(_advise(tool))
    return path


def _advise(tool: str) -> str:
    return f"{tool} is missing: run scripts/get-runtimes.sh"
