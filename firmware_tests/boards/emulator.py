"""Starts QEMU with the firmware that `build.sh` made, and talks to its prompt.

The board has one serial port, here a pseudo-terminal: first MicroPython's raw prompt, by which
`exec` runs programs and `put` writes files; after `start` it is the watchdog's link, for `denwatch
bridge`. With `is_counted` the board's clock counts instructions, 125 million a second, so that
times are the same in every run.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
import time
import tty
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from firmware_tests.runtimes import MissingRuntimeError, find_boards, find_cache

_LIMIT = 600.0  # seconds that a program may take on a loaded machine
_PIECE = 512


@dataclass(frozen=True)
class BoardModel:
    """A board of MicroPython's qemu port."""

    name: str
    emulator: str
    options: tuple[str, ...]
    architecture: str  # of its machine code


CORTEX_M3 = BoardModel("MPS2_AN385", "microbit/qemu-system-arm", ("-M", "mps2-an385"), "armv7m")
CORTEX_M0 = BoardModel(
    "MICROBIT",
    "microbit/qemu-system-arm",
    (
        *("-M", "microbit", "-global", "nrf51-soc.flash-size=1048576"),
        *("-global", "nrf51-soc.sram-size=262144"),
    ),
    "armv6m",
)
RV32 = BoardModel(
    "VIRT_RV32", "riscv/qemu-system-riscv32", ("-M", "virt", "-bios", "none"), "rv32imc"
)
MODELS = (CORTEX_M3, CORTEX_M0, RV32)


class EmulatorError(Exception):
    """The board raised, or does not answer; the text has what it said."""


def find_firmware(model: BoardModel) -> tuple[Path, Path]:
    """Return the emulator and the firmware of a board."""
    firmware = find_boards() / model.name / "firmware.elf"
    emulator = find_cache() / model.emulator
    for path in (firmware, emulator):
        if not path.exists():
            raise MissingRuntimeError(f"{path.name} of {model.name} is missing: run make boards")
    return emulator, firmware


class EmulatedBoard:
    """A running board: `with EmulatedBoard(CORTEX_M3) as board: board.exec("print(1)")`."""

    def __init__(self, model: BoardModel, *, is_counted: bool = False) -> None:
        emulator, firmware = find_firmware(model)
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            [
                *(str(emulator), *model.options, *(("-icount", "shift=3") if is_counted else ())),
                *("-display", "none", "-monitor", "none", "-serial", "pty", "-semihosting"),
                *("-kernel", str(firmware)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )
        self.port = self._find_port()
        self._number = os.open(self.port, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._number)
        # The prompt may have been printed before anybody listened: ask for the raw one until it is.
        self._talk(b"\r\x03\x01", b"raw REPL; CTRL-B to exit\r\n>")

    def __enter__(self) -> EmulatedBoard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Switch the board off."""
        if self._number >= 0:
            os.close(self._number)
        self._process.kill()
        self._process.communicate()
        self._complaints.close()

    def exec(self, code: str) -> str:
        """Run a program and return what it printed; EmulatorError has its traceback."""
        self._write(code.encode() + b"\x04")
        output = self._read_until(lambda data: data.count(b"\x04") >= 2 and data.endswith(b">"))
        printed, error, _ = output.removeprefix(b"OK").split(b"\x04", 2)
        if error:
            raise EmulatorError(error.decode("utf-8", "replace"))
        return printed.replace(b"\r\n", b"\n").decode("utf-8", "replace")

    def put(self, name: str, data: bytes) -> None:
        """Write a file."""
        self.exec(f"f = open({name!r}, 'wb')")
        for start in range(0, len(data), _PIECE):
            self.exec(f"f.write({data[start : start + _PIECE]!r})")
        self.exec("f.close()")

    def start(self, code: str) -> None:
        """Start a program that does not end; the port is somebody else's from now on."""
        self._write(code.encode() + b"\x04")
        self._read_until(lambda data: data.startswith(b"OK"))
        os.close(self._number)
        self._number = -1

    def _find_port(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = re.search(rb"redirected to (\S+)", line)
            if found:
                return found[1].decode()
        raise EmulatorError(self._describe_death())

    def _talk(self, words: bytes, answer: bytes) -> None:
        deadline = time.monotonic() + _LIMIT
        while time.monotonic() < deadline:
            self._write(words)
            try:
                self._read_until(lambda data: data.endswith(answer), 2.0)
            except EmulatorError:
                continue
            return
        raise EmulatorError(f"no prompt: {self._describe_death()}")

    def _write(self, data: bytes) -> None:
        for start in range(0, len(data), 64):
            os.write(self._number, data[start : start + 64])

    def _read_until(self, is_done: Callable[[bytes], bool], limit: float = _LIMIT) -> bytes:
        data = b""
        deadline = time.monotonic() + limit
        while not is_done(data):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._number], [], [], left)[0]:
                raise EmulatorError(f"silent after {data[-400:]!r}")
            try:
                data += os.read(self._number, 4096)
            except OSError:
                raise EmulatorError(self._describe_death()) from None
        return data

    def _describe_death(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read().decode("utf-8", "replace").strip()
