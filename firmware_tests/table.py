"""The table of the README: which test file passes on which runtime.

Pure: results in, Markdown out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firmware_tests.outcome import Outcome

MARKER = "<!-- firmware-table -->"


def format_outcome(outcome: Outcome | None) -> str:
    """Return one cell: what passed, failed and was skipped; a dash where nothing was to run."""
    if outcome is None:
        return "-"
    words = f"**{outcome.failed} failed**, " if outcome.failed else ""
    words += f"{outcome.passed} passed"
    return words + (f", {outcome.skipped} skipped" if outcome.skipped else "")


def format_table(
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Mapping[tuple[str, str], Outcome | str | None],
) -> str:
    """Return a Markdown table; a cell is an outcome, a text (why not), or missing."""
    lines = ["| test file | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for row in rows:
        values = []
        for column in columns:
            cell = cells.get((row, column))
            values.append(cell if isinstance(cell, str) else format_outcome(cell))
        lines.append(f"| `{row}` | " + " | ".join(values) + " |")
    return "\n".join(lines)


def replace_block(text: str, table: str) -> str:
    """Return the text with the table between its two markers."""
    pieces = text.split(MARKER)
    if len(pieces) != 3:
        raise ValueError(f"the file has {len(pieces) - 1} lines {MARKER}; it needs two")
    return f"{pieces[0]}{MARKER}\n{table}\n{MARKER}{pieces[2]}"
