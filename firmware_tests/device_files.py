"""Which test files run on devices: all of the device areas, except those that say why they cannot.

A test file runs on every device runtime unless one of its first lines is
`# cpython only: <reason>`. Only this file reads that convention.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from firmware_tests.runtimes import REPOSITORY

# The areas that run on a device, and their packages; the tests of each are in tests/<area>.
AREAS = {"protocol": "protocol/denwatch/protocol", "watchdog": "edge/denwatch/watchdog"}

_HEAD_LINES = 40
_CPYTHON_ONLY = re.compile(r"^# cpython only: *(\S.*)$", re.MULTILINE)


@dataclass(frozen=True)
class DeviceFile:
    """A test file: its dotted name, and why it stays on CPython (None: it runs on devices)."""

    module: str
    cpython_only: str | None

    @property
    def path(self) -> str:
        """The file's path from the repository's root."""
        return self.module.replace(".", "/") + ".py"


def read_reason(text: str) -> str | None:
    """Return the reason of a `# cpython only:` line near the top, or None."""
    head = "\n".join(text.splitlines()[:_HEAD_LINES])
    found = _CPYTHON_ONLY.search(head)
    return found[1].strip() if found else None


def list_device_files(root: Path = REPOSITORY) -> list[DeviceFile]:
    """Return every test file of the device areas, in the order of their names."""
    files = []
    for area in AREAS:
        for path in sorted((root / "tests" / area).glob("test_*.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            files.append(DeviceFile(module, read_reason(path.read_text(encoding="utf-8"))))
    return files
