"""The README's table: what a cell says, and that only the block between the markers changes."""

from __future__ import annotations

import pytest

from firmware_tests.outcome import Outcome
from firmware_tests.table import MARKER, format_table, replace_block


def make_outcome(passed: int, failed: int = 0, skipped: int = 0) -> Outcome:
    return Outcome(passed, failed, skipped, (), "")


def test_cells_say_what_happened() -> None:
    cells: dict[tuple[str, str], Outcome | str] = {
        ("a.py", "unix"): make_outcome(3),
        ("a.py", "wasm"): make_outcome(1, failed=2, skipped=4),
        ("b.py", "unix"): "CPython only: cbor2",
    }
    assert format_table(["unix", "wasm"], ["a.py", "b.py"], cells).splitlines() == [
        "| test file | unix | wasm |",
        "|---|---|---|",
        "| `a.py` | 3 passed | **2 failed**, 1 passed, 4 skipped |",
        "| `b.py` | CPython only: cbor2 | - |",
    ]


def test_block_is_replaced_and_the_rest_stays() -> None:
    text = f"# Title\n{MARKER}\nold\n{MARKER}\nend\n"
    new = f"# Title\n{MARKER}\n| new |\n{MARKER}\nend\n"
    assert replace_block(text, "| new |") == new
    assert replace_block(new, "| new |") == new


@pytest.mark.parametrize("count", [0, 1, 3])
def test_file_without_two_markers_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="needs two"):
        replace_block(f"text\n{MARKER}\n" * count, "| new |")
