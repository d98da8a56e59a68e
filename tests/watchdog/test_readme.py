# cpython only: reads README.md
"""The README's program prints what the README shows, and its table names every file."""

from __future__ import annotations

import contextlib
import io
import re
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "edge" / "denwatch" / "watchdog"
TEXT = (PACKAGE / "README.md").read_text(encoding="utf-8")


class ReadmeTest(unittest.TestCase):
    def test_program_prints_what_is_shown(self) -> None:
        program, shown = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", TEXT, re.DOTALL)[0]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "README.md", "exec"), {})
        self.assertEqual(printed.getvalue(), shown)

    def test_every_file_that_it_names_exists(self) -> None:
        for name in re.findall(r"`([a-z_]+\.py)`", TEXT):
            self.assertTrue((PACKAGE / name).exists(), name)


if __name__ == "__main__":
    unittest.main()
