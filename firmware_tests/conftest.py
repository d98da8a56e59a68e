"""Prints, at the end of a run, every test that a device skipped, with its reason."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what `check_file` recorded; it travels with the reports, so pytest-xdist keeps it."""
    lines = [
        f"{report.nodeid.rpartition('::')[2]}: {value}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for key, value in report.user_properties
        if key == "device_skip"
    ]
    if lines:
        terminalreporter.section("tests skipped on devices")
        for line in sorted(lines):
            terminalreporter.write_line(line)
