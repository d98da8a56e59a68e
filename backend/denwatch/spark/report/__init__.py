"""The report: `analyze` writes one HTML file that opens offline, and the tables behind it."""

from __future__ import annotations

from denwatch.spark.report.analysis import EmptyLogsError, Report, Tables, analyze, tables

__all__ = ["EmptyLogsError", "Report", "Tables", "analyze", "tables"]
