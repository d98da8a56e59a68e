"""Versions of a folder of tables, switched atomically. The only file that replaces `current`.

    DIR/current -> versions/00000012      one link, replaced atomically
    DIR/records -> current/records        never changes
    DIR/tables  -> current/tables         never changes

A version is built beside the others, from hard links to unchanged files and from new files. It
gets its name when it is complete and becomes visible when `current` is replaced. So every reader,
with any program, sees all of a batch or nothing of it, and a killed driver leaves at most a folder
that no link points to, which the next driver removes. No file name is ever used for other bytes: a
reader that lists one version and opens files in the next finds the same bytes, or no file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from denwatch.spark.record_tables import RecordTables

FORMAT = 2
MANIFEST = "manifest.json"
CURRENT, VERSIONS = "current", "versions"
SHOWN = ("records", "tables")  # have a link of their own in DIR
STATE = "state"  # the folder of a version that only the stream reads
KEPT_SECONDS = 120.0  # how long readers may go on with a version that was replaced
_PARTIAL = ".partial-"


class VersionError(RuntimeError):
    """The folder cannot be used; the message says why."""


@dataclass
class Manifest:
    """Which batches a version contains, and what the next batch must know."""

    number: int = 0
    batch: int = -1  # the last one in it
    judged: int = -1  # the last batch whose outcomes were evaluated
    query: str = ""  # whose batches: the id in Spark's checkpoint
    counts: dict[str, int] = field(default_factory=dict)  # records by kind
    clocks: list[list[Any]] = field(default_factory=list)  # [node, run, ms ahead, ms of doubt]
    meanings: list[str] = field(default_factory=list)  # vocabularies whose documents are known
    latest: list[list[Any]] = field(default_factory=list)  # [node, run, its latest reading, ms]
    newest: int = 0  # of the nodes' latest readings the middle one, clocks corrected, ms
    settled: int = 0  # readings up to here are decided about for good, ms
    matches: int = 0


class Building:
    """A version under construction, not visible yet."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    def make(self, *names: str) -> Path:
        """Return a folder of the version; create it if needed."""
        path = self.folder.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def records(self) -> RecordTables:
        """The records of the version."""
        return RecordTables(self.folder / "records")


class Versions:
    """The versions of one folder, locked for this process."""

    def __init__(self, folder: Path, keep: float = KEPT_SECONDS) -> None:
        self.folder = folder
        self._keep = keep
        self._lock = _lock_folder(folder)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock on the folder."""
        os.close(self._lock)

    def _prepare(self) -> None:
        for name in SHOWN:
            link = self.folder / name
            if link.exists() and not link.is_symlink():
                raise VersionError(
                    f"{link} was not made by `denwatch stream`: `analyze` and `stream` need a"
                    " folder each"
                )
        (self.folder / VERSIONS).mkdir(exist_ok=True)
        now = self._find_current()
        for path in (self.folder / VERSIONS).iterdir():  # left by a killed run
            if path.name.startswith(_PARTIAL) or (now is None or path.name > now.name):
                shutil.rmtree(path)
        if now is None:
            with self.build() as empty:
                for name in SHOWN:
                    empty.make(name)
        for name in SHOWN:
            _replace_link(self.folder / name, f"{CURRENT}/{name}")

    # Reading --------------------------------------------------------------------------------

    def _find_current(self) -> Path | None:
        link = self.folder / CURRENT
        return link.resolve() if link.is_symlink() else None

    @property
    def current(self) -> Path:
        """The folder of the visible version."""
        found = self._find_current()
        assert found is not None, "a folder that is open has a version"
        return found

    def read_manifest(self) -> Manifest:
        """Return the manifest of the current version."""
        version = self._find_current()
        if version is None:
            return Manifest()
        stored = json.loads((version / MANIFEST).read_text(encoding="utf-8"))
        if stored.pop("format") != FORMAT:
            raise VersionError(
                f"{version} was written by another version of denwatch: name a new DIR"
            )
        return Manifest(**stored)

    # Writing --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def build(self) -> Iterator[Building]:
        """Yield a copy of the current version; switch to it unless an error is raised."""
        before = self._find_current()
        manifest = self.read_manifest()
        manifest.number += 1
        # A new name each time: workers that outlive a killed driver write where nobody looks.
        partial = self.folder / VERSIONS / f"{_PARTIAL}{os.getpid()}-{time.time_ns()}"
        partial.mkdir()
        try:
            if before is not None:
                shutil.copytree(before, partial, copy_function=_link, dirs_exist_ok=True)
            building = Building(partial, manifest)
            yield building
            self._switch(building)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        self._remove_old()

    def _switch(self, building: Building) -> None:
        text = json.dumps({"format": FORMAT, **vars(building.manifest)}, indent=1)
        path = building.folder / MANIFEST
        path.unlink(missing_ok=True)  # it may be a link to that of the version before
        path.write_text(text, encoding="utf-8")
        _sync_new(building.folder)
        name = f"{building.manifest.number:08d}"
        building.folder.rename(self.folder / VERSIONS / name)
        _sync(self.folder / VERSIONS)
        before = self._find_current()
        _replace_link(self.folder / CURRENT, f"{VERSIONS}/{name}")
        _sync(self.folder)
        if before is not None:
            os.utime(before)  # starts the time that readers have left

    def _remove_old(self) -> None:
        current = self.current.name
        limit = time.time() - self._keep
        for path in (self.folder / VERSIONS).iterdir():
            is_old = path.name < current and path.stat().st_mtime < limit
            if is_old and not path.name.startswith(_PARTIAL):
                shutil.rmtree(path)


def _lock_folder(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise VersionError(f"{folder}: another `denwatch stream` is writing there") from None
        raise
    return handle


def _replace_link(path: Path, target: str) -> None:
    if path.is_symlink() and path.readlink() == Path(target):
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    partial.symlink_to(target)
    partial.replace(path)


def _link(source: str, target: str) -> None:
    """Link a file into another folder; copy it if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
            raise
        shutil.copy2(source, target)


def _sync_new(folder: Path) -> None:
    """Flush to disk the files that no older version has."""
    for place, _, names in os.walk(folder):
        is_new = False
        for name in names:
            path = Path(place, name)
            if path.stat().st_nlink == 1:
                is_new = True
                _sync(path)
        if is_new:
            _sync(Path(place))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
