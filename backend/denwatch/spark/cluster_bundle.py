"""What a cluster receives: our packages, compiled kernels, a Python environment.

The only file that knows how executors get what they need. Our packages travel as an archive that
Spark unpacks beside each executor, because numba caches compiled kernels for files, not for the
contents of a zip. The kernels that this machine has compiled travel with them: executors with the
same processor load them, others compile once, into their own copy.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import shutil
import socket
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

PACKAGES = ("protocol", "client", "node", "spark")  # below `denwatch`
CODE = "denwatch"  # what the archives are called where they are unpacked
ENVIRONMENT = "environment"
_KERNELS = (".nbi", ".nbc")
_ASKS = 4  # tasks for each core, so that no executor is left out
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ArchiveError(ValueError):
    """An environment that cannot be sent; the message says why."""


def list_settings(archive: str | Path | None = None) -> dict[str, str]:
    """Return the settings by which executors find our code, and an environment if given."""
    settings = {
        "spark.archives": f"{pack_code(make_scratch())}#{CODE}",
        "spark.executorEnv.PYTHONPATH": CODE,
        "spark.executorEnv.NUMBA_CACHE_DIR": "",  # beside the code, where the kernels came with it
    }
    if archive is not None:
        path = check_archive(Path(archive))
        settings["spark.archives"] += f",{path}#{ENVIRONMENT}"
        # Executors find `python` there first. Spark gives the same path to those who plan the
        # reading of a source on this machine, where the name must lead to our own.
        here = Path(sys.executable).parent
        settings["spark.executorEnv.PATH"] = f"{ENVIRONMENT}/bin:{here}:{_PATH}"
    return settings


def check_archive(path: Path) -> Path:
    """Return where an environment is that was packed as venv-pack and conda-pack do."""
    if not path.is_file():
        raise ArchiveError(f"{path}: no such file")
    try:
        with tarfile.open(path) as archive:
            found = any(member.name.removeprefix("./") == "bin/python" for member in archive)
    except tarfile.TarError:
        raise ArchiveError(f"{path}: not a tar archive, as venv-pack and conda-pack make") from None
    if not found:
        raise ArchiveError(f"{path}: it contains no bin/python")
    return path.resolve()


def make_scratch() -> Path:
    """Return a new temporary folder, removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="denwatch-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def pack_code(folder: Path) -> Path:
    """Write our packages into an archive for executors; return where it is."""

    def leave_out(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if "__pycache__" in member.name else member

    path = folder / f"{CODE}.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as archive:
        for package in PACKAGES:
            archive.add(_find_package(package), f"denwatch/{package}", filter=leave_out)
        for source, name in find_kernels():
            archive.add(source, name)
    return path


def find_roots() -> list[str]:
    """Return the folders that have a part of `denwatch`: several in a checkout, else one."""
    return list(dict.fromkeys(str(_find_package(name).parents[1]) for name in PACKAGES))


def _find_package(name: str) -> Path:
    spec = importlib.util.find_spec(f"denwatch.{name}")
    assert spec is not None, name
    assert spec.origin is not None, name
    return Path(spec.origin).resolve().parent


def find_kernels() -> Iterator[tuple[Path, str]]:
    """Yield the kernels that this machine has compiled, and where they belong beside the code.

    Numba keeps them below a folder of its own, in one named after where the source is.
    """
    base = os.environ.get("NUMBA_CACHE_DIR")
    for package in PACKAGES if base else ():
        root = _find_package(package)
        for folder in (root, *root.rglob("*")):
            if not folder.is_dir() or folder.name == "__pycache__":
                continue
            name = f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"
            for kernel in sorted(Path(str(base), name).glob("*.nb?")):
                if kernel.suffix in _KERNELS:
                    place = folder.relative_to(root) / "__pycache__" / kernel.name
                    yield kernel, f"denwatch/{package}/{place.as_posix()}"


def find_unseen(session: SparkSession, paths: Iterable[str | Path]) -> list[tuple[str, str]]:
    """Return (host, path) of the driver's files and folders that an executor does not see."""
    wanted = [str(Path(path).resolve()) for path in paths]
    context = session.sparkContext
    tasks = _ASKS * max(1, context.defaultParallelism)

    def look(_: int) -> list[tuple[str, str]]:
        return [(socket.gethostname(), path) for path in wanted if not Path(path).exists()]

    found = context.parallelize(range(tasks), tasks).flatMap(look).distinct().collect()
    return sorted(found)
