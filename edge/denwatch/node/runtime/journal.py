"""The process's own log on stderr: one line an event, for people or as JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

FORMATS = ("text", "json")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def start_journal(node: str, style: str, level: str) -> None:
    """Send the log of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        text = f"%(asctime)s {node} %(levelname)s %(message)s"
        handler.setFormatter(logging.Formatter(text, "%H:%M:%S"))
    logger = logging.getLogger("denwatch")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
