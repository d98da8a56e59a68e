"""Drives MicroPython 1.9.2 on an emulated micro:bit (a Cortex-M0 with 16 KB of RAM).

Only this file starts the emulator and speaks to its serial REPL. Code is sent in the REPL's paste
mode, which echoes: at most four bytes are on their way (the receiver's FIFO is six), and the next
are sent when these came back. So nothing is lost however slow the machine is, and every byte that
the board compiled was seen. `-icount shift=6` makes the board's own time repeatable.
"""

from __future__ import annotations

import ast
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from firmware_tests.runtimes import find_microbit

PROMPT = b">>> "
PASTE = b"=== "
DONE = b"\x06"  # printed after the last statement: it was reached

_CHUNK = 4
_FILE_PIECE = 96
_ARGUMENTS = 6  # arguments of a call on the board
_INTERNED = 10  # bytes of the longest literal that the compiler interns
_SILENCE = 120.0  # seconds without a byte, on a loaded machine, before a board counts as dead
_LIMIT = 600.0  # seconds that one program may run

Call = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Name:
    """An argument of `Microbit.call` that stands for a variable on the board."""

    code: str


class BoardError(Exception):
    """The board raised; the text is its traceback."""


class BoardStuckError(Exception):
    """The board stopped answering or died."""


class Microbit:
    """A running board: `with Microbit() as board: board.exec("print(1)")`."""

    def __init__(self) -> None:
        self.silence = _SILENCE
        self.limit = _LIMIT
        self._process: subprocess.Popen[bytes] | None = None
        self._can_call = False

    def __enter__(self) -> Microbit:
        emulator, firmware = find_microbit()
        self._complaints = tempfile.TemporaryFile()  # closed in close()
        self._process = subprocess.Popen(
            [
                *(str(emulator), "-M", "microbit", "-icount", "shift=6"),
                *("-nodefaults", "-display", "none", "-serial", "stdio"),
                *("-device", f"loader,file={firmware}"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            bufsize=0,
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        try:
            self._wait_for(PROMPT)
        except BaseException:
            self.close()
            raise
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
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.communicate()
        self._selector.close()
        self._complaints.close()

    def exec(self, code: str) -> str:
        """Run a program and return what it printed; raises BoardError with its traceback."""
        program = code.rstrip("\n") + f"\nprint({DONE.decode()!r})"
        self._write(b"\x05")
        self._wait_for(PASTE)
        for index, line in enumerate(program.split("\n")):
            if index:
                self._echo(b"\r", b"\r\n" + PASTE)
            data = line.encode("ascii")
            for start in range(0, len(data), _CHUNK):
                chunk = data[start : start + _CHUNK]
                self._echo(chunk, chunk)
        self._write(b"\x04")
        output = self._wait_for(PROMPT)
        # A program may print what looks like a prompt: the real one answers an empty line.
        self._write(b"\r")
        output += self._wait_for(PROMPT + b"\r\n" + PROMPT, before=output)
        output = output.removesuffix(PROMPT + b"\r\n" + PROMPT).removeprefix(b"\r\n")
        text = output.replace(b"\r\n", b"\n")
        if not text.endswith(DONE + b"\n"):
            raise BoardError(text.decode("utf-8", "replace"))
        return text.removesuffix(DONE + b"\n").decode("utf-8", "replace")

    def put(self, name: str, data: bytes) -> None:
        """Write a file onto the board's small filesystem (13 KB in all)."""
        self.exec(f"_f = open({name!r}, 'wb')")
        for start in range(0, len(data), _FILE_PIECE):
            self.exec(f"_f.write({data[start : start + _FILE_PIECE]!r})")
        size = self.exec(f"_f.close()\ndel _f\nimport os\nprint(os.size({name!r}))")
        if int(size) != len(data):
            raise BoardStuckError(f"{name}: {size.strip()} bytes arrived of {len(data)}")

    def reset(self) -> None:
        """Restart the interpreter: an empty heap, the files kept."""
        self._write(b"\x04")
        self._wait_for(PROMPT)
        self._can_call = False

    def read_free_heap(self) -> int:
        """Return the free bytes of the heap, after a collection."""
        return int(self.exec("import gc\ngc.collect()\nprint(gc.mem_free())"))

    def reserve_names(self, names: Sequence[str]) -> None:
        """Make variables while the heap is empty.

        The tables of names and of globals grow by being moved; a table that grew late would stand
        in the middle of the last free stretch, and the parser needs 500 bytes in one piece.
        """
        for start in range(0, len(names), 4):
            self.exec("".join(f"{name}=" for name in names[start : start + 4]) + "None")

    def prepare_calls(self) -> None:
        """Define what `call` needs, once in a heap's life; best before anything else."""
        if not self._can_call:
            self.reserve_names([f"_{number}" for number in range(_ARGUMENTS)])
            self.exec("import gc\ndef _call(f, *a):\n print(repr(f(*a)))\n gc.collect()")
            self.exec("def _bytes(*a):\n return bytearray(a)")
            self._can_call = True

    def call(self, calls: Iterable[Call]) -> list[Any]:
        """Call functions by name with literal arguments, one by one, and return their results.

        For example `board.call([("evaluate", (Name("buffer"), 17, [3, 4]))])`. `exec` must have
        made the function and the variable; what is returned must be a literal, too.
        """
        self.prepare_calls()
        results: list[Any] = []
        held: dict[str, object] = {}
        for name, args in calls:
            words = [name]
            for number, arg in enumerate(args):
                if isinstance(arg, Name | int):
                    words.append(arg.code if isinstance(arg, Name) else repr(arg))
                    continue
                # Not a bracket in a bracket: the parser's stack grows with every level.
                words.append(f"_{number}")
                if not isinstance(arg, bytes) or held.get(words[-1]) != arg:
                    self.exec(f"_{number}={_write_literal(arg)}\ngc.collect()")
                held[words[-1]] = arg
            printed = self.exec(f"_call({','.join(words)})")
            try:
                results.append(ast.literal_eval(printed.rstrip("\n")))
            except (SyntaxError, ValueError):
                raise BoardError(f"{name}{args!r} answered {printed!r}") from None
        return results

    def _echo(self, data: bytes, expected: bytes) -> None:
        self._write(data)
        got = self._wait_for(expected)
        if got != expected:
            raise BoardStuckError(f"sent {data!r}, echoed {got!r}")

    def _write(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
        except BrokenPipeError:
            raise self._describe_death("does not read") from None

    def _wait_for(self, end: bytes, before: bytes = b"") -> bytes:
        """Return what arrives until `before` and it, joined, end with `end`."""
        assert self._process is not None
        assert self._process.stdout is not None
        received = b""
        deadline = time.monotonic() + self.limit
        while not (before + received[-len(end) :]).endswith(end):
            if time.monotonic() > deadline:
                raise BoardStuckError(f"not done after {self.limit} s: {received[-200:]!r}")
            if not self._selector.select(self.silence):
                raise BoardStuckError(
                    f"silent for {self.silence} s, waiting for {end!r} after {received[-200:]!r}"
                )
            data = os.read(self._process.stdout.fileno(), 4096)
            if not data:
                raise self._describe_death("ended")
            received += data
        return received

    def _describe_death(self, what: str) -> BoardStuckError:
        self._complaints.seek(0)
        words = self._complaints.read().decode("utf-8", "replace").strip()
        return BoardStuckError(f"the emulator {what}: {words}")


def _write_literal(arg: object) -> str:
    if isinstance(arg, bytearray) and not any(arg):
        return f"bytearray({len(arg)})"
    if isinstance(arg, bytes | bytearray) and len(arg) <= _INTERNED:
        # The board keeps every short literal for ever, as it keeps names.
        return f"_bytes({','.join(map(str, arg))})"
    return repr(arg)
