"""What the commands share: folders of logs, the master, a session that is quiet and ends."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from denwatch.cli.failures import MISSING, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Add the folders of logs and where Spark runs."""
    parser.add_argument(
        "logs", nargs="+", metavar="LOGS", help="a folder with nodes' logs, at any depth"
    )
    add_master(parser)


def add_master(parser: argparse.ArgumentParser) -> None:
    """Add where Spark runs, and with what."""
    parser.add_argument(
        "--master", metavar="URL", help="spark://…, yarn, k8s://… (this machine: local[*])"
    )
    parser.add_argument(
        "--archive",
        metavar="FILE",
        help="a Python environment for executors, as venv-pack makes (they have one)",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark's own; may be repeated",
    )


def read_conf(pairs: Iterable[str]) -> dict[str, str]:
    """Return settings that were given as KEY=VALUE."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise CommandError(f"--conf {pair}: spark.KEY=VALUE", WRONG_USAGE)
        settings[key] = value
    return settings


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
def open_session(
    master: str | None, name: str, archive: str | None = None, conf: Iterable[str] = ()
) -> Iterator[SparkSession]:
    """Yield a session, which ends with the command."""
    options = read_conf(conf)
    try:
        import pyspark  # noqa: F401 — the first thing that is missing without the extra
        from denwatch.spark.cluster_bundle import ArchiveError
        from denwatch.spark.session import build_session
    except ImportError as error:
        message = f"{error.name} is missing: pip install 'denwatch[spark]'"
        raise CommandError(message, MISSING) from None
    try:
        session = build_session(master, name=name, options=options, archive=archive)
    except ArchiveError as error:
        raise CommandError(f"--archive {error}", WRONG_USAGE) from None
    except Exception as error:  # noqa: BLE001 — Java and the network fail in many ways
        raise CommandError(
            f"Spark does not start: {explain_failure(error)} (Java 17 or later is needed)", MISSING
        ) from None
    try:
        yield session
    finally:
        session.stop()


def make_teller(is_quiet: bool) -> Callable[[str], None]:
    """Return what shows progress, with the seconds since now."""
    began = time.monotonic()

    def tell(words: str) -> None:
        if not is_quiet:
            print(f"[{time.monotonic() - began:6.1f} s] {words}", file=sys.stderr, flush=True)

    return tell


def explain_failure(error: Exception) -> str:
    """Return the line of an error of Spark's that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if not lines[0].endswith("Traceback (most recent call last):"):
        return lines[0]
    # A worker's error: its last line is the cause, before what Java adds.
    end = next((n for n, line in enumerate(lines) if line.startswith("SQLSTATE")), len(lines))
    named = [line for line in lines[1:end] if line[:1].isupper() and not line.startswith("File ")]
    return named[-1] if named else lines[0]


def require_shared(session: SparkSession, folders: Iterable[Path]) -> None:
    """Complain if the machines of a cluster do not see the folders that this one does."""
    from denwatch.spark.cluster_bundle import find_unseen
    from denwatch.spark.session import is_local

    if is_local(str(session.sparkContext.master)):
        return
    unseen = find_unseen(session, folders)
    if unseen:
        host, path = unseen[0]
        others = f" (and {len(unseen) - 1} more such)" if len(unseen) > 1 else ""
        raise CommandError(
            f"{path}: {host} of the cluster does not see this folder{others};"
            " logs and report must lie where all machines have them under the same name"
        )
