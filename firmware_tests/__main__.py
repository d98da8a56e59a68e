"""`python -m firmware_tests`: run every device test on every runtime and print the table.

With `--update README.md` the table also replaces what stands between that file's two lines
`<!-- firmware-table -->`. Exits with 1 if something failed or a runtime is missing; then no file
is changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from firmware_tests import microbit, unix, wasm
from firmware_tests.core import (
    bundle_core,
    list_mismatches,
    list_vectors,
    start_parts,
    store_parts,
)
from firmware_tests.device_files import list_device_files
from firmware_tests.kernel import KERNEL, SUBSCRIPTIONS, compare_kernel
from firmware_tests.outcome import Outcome
from firmware_tests.runtimes import MissingRuntimeError
from firmware_tests.table import format_table, replace_block

GOLDEN = "tests/protocol/golden.py"
CELLS = dict[tuple[str, str], Outcome | str | None]


def run_files(name: str, run: Callable[[str], Outcome], cells: CELLS) -> bool:
    """Run all device files on one runtime, fill its column, and return whether all passed."""
    is_ok = True
    for file in list_device_files():
        if file.cpython_only is not None:
            cells[file.path, name] = "CPython only"
            continue
        outcome = run(file.module)
        cells[file.path, name] = outcome
        print(f"{name}: {file.path}: {outcome.passed} passed", file=sys.stderr)
        for test, reason in outcome.skips:
            print(f"{name}: {file.path}: skip {test}: {reason}", file=sys.stderr)
        if not outcome.is_ok:
            print(outcome.output, file=sys.stderr)
            is_ok = False
    cells[GOLDEN, name] = "by test_golden.py"
    cells[KERNEL, name] = "by test_kernel.py"
    return is_ok


def run_board(name: str, cells: CELLS) -> bool:
    """Run golden vectors and the filter's kernel on the micro:bit; return whether all passed."""
    vectors = list_vectors()
    parts = bundle_core()
    with microbit.Microbit() as board:
        store_parts(board, parts)
        start_parts(board, parts)
        wrong = list_mismatches(board, vectors)
    with microbit.Microbit() as board:
        events, hits, differ = compare_kernel(board, 6)
    print("\n".join([*wrong, f"{name}: {len(vectors)} vectors"]), file=sys.stderr)
    words = f"{events} events, {SUBSCRIPTIONS} subscriptions, {hits} hits"
    print("\n".join([*differ, f"{name}: {words}"]), file=sys.stderr)
    cells[GOLDEN, name] = Outcome(len(vectors) - len(wrong), len(wrong), 0, (), "\n".join(wrong))
    cells[KERNEL, name] = f"{SUBSCRIPTIONS} subscriptions" if not differ else "**differs**"
    return not wrong and not differ


def main() -> int:
    """Run, print, update."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--update", metavar="FILE", type=Path, help="replace the table in FILE")
    options = parser.parse_args()
    columns: list[str] = []
    cells: CELLS = {}
    is_ok = True
    try:
        for bits in (64, 32):
            columns.append(f"unix {unix.read_version(bits)}, {bits} bit")
            is_ok &= run_files(columns[-1], partial(unix.run_module, bits=bits), cells)
        columns.append(f"WebAssembly {wasm.read_version()}")
        is_ok &= run_files(columns[-1], wasm.run_module, cells)
        columns.append("micro:bit 1.9.2")
        is_ok &= run_board(columns[-1], cells)
    except MissingRuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    files = list_device_files()
    table = format_table(columns, [file.path for file in files] + [GOLDEN, KERNEL], cells)
    for file in files:
        if file.cpython_only is not None:
            table += f"\n\n`{file.path}` runs on CPython only: {file.cpython_only}."
    print(table)
    if options.update and is_ok:
        path: Path = options.update
        path.write_text(replace_block(path.read_text(encoding="utf-8"), table), encoding="utf-8")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
