"""What a device would hold: compiled `.mpy` files by role and architecture, and the heap they need.

The files are those of `denwatch device build`.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from denwatch.cli.devices.images import build_role, compile_text

from firmware_tests.runtimes import find_unix

# Microcontrollers: ESP32, Cortex-M0 (RP2040), Cortex-M4 (RP2350, STM32).
ARCHITECTURES = ("xtensawin", "armv6m", "armv7m")


def measure_role(role: str) -> dict[str, dict[str, int]]:
    """Return architecture: bytes of each file of a role as `.mpy`."""
    with tempfile.TemporaryDirectory() as name:
        return {each: build_role(role, each, Path(name) / each) for each in ARCHITECTURES}


def compile_program(path: Path, target: Path) -> None:
    """Compile a program for the 32-bit unix port."""
    compile_text(path.read_text(encoding="utf-8"), path.stem, "x86", target)


def run_in_heap(
    folder: Path, kibibytes: int, code: str = "import program", limit: float = 300
) -> tuple[bool, str]:
    """Run code in a folder on the 32-bit port with so much heap; (worked, output)."""
    command = [str(find_unix(32)), "-X", f"heapsize={kibibytes}k", "-c", code]
    try:
        done = subprocess.run(
            command,
            cwd=folder,  # short paths, as on a device: they are kept on the heap
            env={"MICROPYPATH": ".:.frozen"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired as error:
        return False, f"stopped after {limit} s: {(error.stdout or b'').decode('utf-8', 'replace')}"
    return done.returncode == 0, done.stdout.decode("utf-8", "replace").strip()
