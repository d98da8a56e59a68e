"""Logs in other storage: whatever Hadoop's file systems reach (s3a, hdfs, webhdfs, abfs, gs, file).

Segments never change once they are closed, so they are copied beside the report, each once; a
segment that still grows is copied again. What is gone there is removed here. From then on they are
files like any others. The only file that asks Hadoop; it runs on the driver.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from denwatch.spark.cluster_bundle import make_scratch
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

_URI = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


class StorageError(OSError):
    """A storage that cannot be read; the message says which, and why."""


def fetch_logs(spark: SparkSession, uris: Iterable[str], folder: Path) -> tuple[list[Path], int]:
    """Bring copies of the logs at some URIs up to date; return their folders, and files copied."""
    jvm: Any = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    folders, copied = [], 0
    for uri in uris:
        here = folder / re.sub(r"[^A-Za-z0-9._-]+", "_", uri)
        here.mkdir(parents=True, exist_ok=True)
        try:
            top = jvm.org.apache.hadoop.fs.Path(uri)
            system = top.getFileSystem(conf)
            top = system.resolvePath(top)
            files = system.listFiles(top, True)
            seen: set[Path] = set()
            while files.hasNext():
                found = files.next()
                path = here / _name_below(top.toUri().getPath(), found.getPath().toUri().getPath())
                seen.add(path)
                stamp = int(found.getLen()), int(found.getModificationTime()) * 1_000_000
                if path.exists() and (path.stat().st_size, path.stat().st_mtime_ns) == stamp:
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f".{path.name}.part")
                target = jvm.org.apache.hadoop.fs.Path(part.resolve().as_uri())
                system.copyToLocalFile(False, found.getPath(), target, True)
                os.utime(part, ns=(stamp[1], stamp[1]))
                part.replace(path)
                copied += 1
        except Py4JJavaError as error:
            reason = str(error.java_exception.toString()).splitlines()[0]
            raise StorageError(f"{uri}: {reason}") from None
        for path in here.rglob("*"):
            if path.is_file() and path not in seen:
                path.unlink()
        folders.append(here)
    return folders, copied


def copy_logs(spark: SparkSession, places: Iterable[str | Path]) -> list[Path]:
    """Return folders of logs: those that are named, and copies of what URIs name.

    Copies are in a folder of this process, which ends with it.
    """
    named = [str(place) for place in places]
    folders = [Path(place) for place in named if not _URI.match(place)]
    uris = [place for place in named if _URI.match(place)]
    return folders + (fetch_logs(spark, uris, make_scratch())[0] if uris else [])


def _name_below(top: str, path: str) -> PurePosixPath:
    """Return where a file is below the top of a listing; its name, if the top is the file."""
    inside = unquote(urlsplit(path).path).removeprefix(unquote(top)).strip("/")
    name = PurePosixPath(inside or PurePosixPath(path).name)
    if ".." in name.parts:
        raise StorageError(f"{path}: not below {top}")
    return name
