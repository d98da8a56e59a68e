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

# 1,000 subscriptions and 50 events on the filter, in as small a heap as can be.
_FILTER_PROGRAM = """
buffer = bytearray({capacity})  # before anything else, while it still finds room in one piece
import denwatch.watchdog.viper  # one after the other: nested imports need more at once
from denwatch.watchdog.filter import Filter

def run():
    import gc
    from array import array
    filter = Filter(buffer)
    file = open({frames!r}, "rb")
    for i in range({count}):
        filter.add(file.read(17), b"")
    values = array("H", [0] * 16)
    hits = 0
    for i in range(50):
        for a in range(3):
            values[a] = (i * 37 + a * 91) & 255
        filter.begin(1, 7, values)
        while filter.step() >= 0:
            hits += 1
    print(filter.count, hits, gc.mem_free())

run()
"""


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


def find_filter_heap(folder: Path) -> tuple[int, str]:
    """Return the smallest heap (KiB) for 1,000 subscriptions and the filter, and its output."""
    build_role("filter", "x86", folder)
    frames = folder / "frames.bin"
    data = bytearray()
    for handle in range(1000):
        low = handle * 7 % 200
        data += bytes([0x41, 0, handle >> 8, handle & 255, 160, 0, 0, 7])
        for attribute in range(3):
            start = (low + 60 * attribute) % 200
            data += bytes([start, start + 50, 60 + handle % 150])
    frames.write_bytes(data)
    program = folder / "program.py"
    program.write_text(
        _FILTER_PROGRAM.format(capacity=17_006, count=1000, frames=frames.name), encoding="utf-8"
    )
    compile_program(program, folder / "program.mpy")
    program.unlink()
    for kibibytes in range(19, 65):
        worked, output = run_in_heap(folder, kibibytes)
        if worked:
            return kibibytes, output.strip()
    raise RuntimeError(f"not even in 64 KiB: {output}")
