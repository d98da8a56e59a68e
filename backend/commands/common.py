"""What the commands share: folders of logs, the master, a session that is quiet and ends."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edge.commands.failures import MISSING, CommandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Add the folders of logs and where Spark runs."""
    parser.add_argument(
        "logs", nargs="+", metavar="LOGS", help="a folder with nodes' logs, at any depth"
    )
    add_master(parser)


def add_master(parser: argparse.ArgumentParser) -> None:
    """Add where Spark runs."""
    parser.add_argument(
        "--master", metavar="URL", help="spark://…, yarn, k8s://… (this machine: local[*])"
    )


def find_folders(names: list[str]) -> list[Path]:
    """Return folders that exist."""
    folders = [Path(name) for name in names]
    for folder in folders:
        if not folder.exists():
            raise CommandError(f"{folder}: there is no such folder", MISSING)
        if not folder.is_dir():
            raise CommandError(f"{folder}: a file; name the folder that holds the logs")
    return folders


@contextmanager
def open_session(master: str | None, name: str) -> Iterator[SparkSession]:
    """Yield a session, which ends with the command."""
    try:
        import pyspark  # noqa: F401 — the first thing that is missing without the extra

        from backend.session import build_session
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[spark]'"
        raise CommandError(message, MISSING) from None
    try:
        session = build_session(master, name=name)
    except Exception as error:  # noqa: BLE001 — Java and the network fail in many ways
        first = str(error).strip().splitlines()[0]
        raise CommandError(
            f"Spark does not start: {first} (Java 17 or later is needed)", MISSING
        ) from None
    try:
        yield session
    finally:
        session.stop()
