"""What a micro:bit can hold: the protocol's fuzzifier and aggregators, and the tests' evaluator.

Says which functions those are, loads them onto a board, and compares what they answer there with
what is expected. The emulator is in `microbit`, the shrinking in `bundle`.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from firmware_tests.bundle import bundle
from firmware_tests.microbit import Microbit
from firmware_tests.runtimes import REPOSITORY

MODULES = (
    "protocol/denwatch/protocol/slopes.py",
    "protocol/denwatch/protocol/degrees.py",
    "tests/protocol/evaluator.py",
)
FUNCTIONS = ("fuzzify", "hedge", "aggregate", "evaluate")

# A vector: the function's name, its arguments (literals, or a board's variable), the answer.
Vector = tuple[str, tuple[Any, ...], Any]


def bundle_core(root: Path = REPOSITORY) -> list[str]:
    """Return the core as programs that the board can compile."""
    return bundle([(root / path).read_text(encoding="utf-8") for path in MODULES], FUNCTIONS)


def list_vectors() -> list[Vector]:
    """Return the golden vectors of the core: tests/protocol/golden.py."""
    vectors: list[Vector] = importlib.import_module("tests.protocol.golden").list_core()
    return vectors


def store_parts(board: Microbit, parts: Sequence[str]) -> None:
    """Put the parts on the board's filesystem."""
    for number, text in enumerate(parts):
        board.put(f"part{number}", text.encode("ascii"))


def start_parts(board: Microbit, parts: Sequence[str], buffer: int = 0, scratch: int = 0) -> None:
    """Run the stored parts in a heap that is empty at first.

    Makes `buffer` and `scratch`, of so many bytes, after the two largest parts: low in the heap,
    where they do not cut in two what is left. `fill(at, data)` writes into the buffer.
    """
    board.reset()
    board.prepare_calls()
    board.reserve_names(["f", "buffer", "scratch", *_list_names(parts)])
    board.exec("def fill(at, data):\n for c in data:\n  buffer[at] = c\n  at += 1")
    for number in range(len(parts)):
        # Collecting first lets a part fill the holes that the last one's syntax tree left.
        board.exec(f"gc.collect()\nf = open('part{number}')\nexec(f.read())\nf.close()")
        if number == min(1, len(parts) - 1):
            board.exec(f"gc.collect()\nbuffer = bytearray({buffer})")
            board.exec(f"scratch = bytearray({scratch})")
    board.exec("f = None\ngc.collect()")


def _list_names(parts: Iterable[str]) -> Iterator[str]:
    """Yield the global names that the parts define."""
    for part in parts:
        for stmt in ast.parse(part).body:
            if isinstance(stmt, ast.FunctionDef):
                yield stmt.name
            elif isinstance(stmt, ast.Assign):
                yield from (name.id for name in stmt.targets if isinstance(name, ast.Name))


def list_mismatches(board: Microbit, vectors: Iterable[Vector]) -> list[str]:
    """Call every vector's function on the board; describe each answer that differs."""
    expected = list(vectors)
    answers = board.call([(name, args) for name, args, _ in expected])
    return [
        f"{name}{args!r} is {answer!r} on the board, not {right!r}"
        for (name, args, right), answer in zip(expected, answers, strict=True)
        if answer != right
    ]
