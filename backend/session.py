"""Starting Spark. The only file that makes a session, and that knows what a cluster must be sent.

`local[*]` unless a master is named. A cluster's executors get our packages with the job, as an
archive that is unpacked beside them: numba keeps compiled kernels for files, not for what is inside
a zip. `spark-submit --master` and `spark-defaults.conf` keep their say: nothing is set that the
caller or the environment has set.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("protocol", "edge", "backend")
ARCHIVE = "denwatch"
ARROW_ROWS = 50_000  # notifications that cross to Python at a time

# Spark's generated code for wide rows passes HotSpot's limit of 8,000 bytecodes, and would be
# interpreted: 4 to 16 times slower.
_JAVA = "-XX:-DontCompileHugeMethods"


def build_session(
    master: str | None = None,
    *,
    name: str = "denwatch",
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with our data source in it; `options` are Spark's own, and win."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # For the workers on this machine, and those that plan the reading of a source.
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    cache = os.environ.setdefault("NUMBA_CACHE_DIR", str(_find_cache()))
    conf = SparkConf()
    chosen = master or conf.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    settings = {
        "spark.app.name": name,
        "spark.master": chosen,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
        "spark.python.daemon.module": "backend.daemon",
        "spark.python.worker.reuse": "true",
        "spark.executorEnv.NUMBA_CACHE_DIR": cache,
        "spark.driver.extraJavaOptions": _JAVA,
        "spark.executor.extraJavaOptions": _JAVA,
    }
    if is_local(chosen):
        cores = os.cpu_count() or 1
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.sql.shuffle.partitions"] = str(2 * cores)
    else:
        settings["spark.archives"] = f"{pack_code()}#{ARCHIVE}"
        settings["spark.executorEnv.PYTHONPATH"] = ARCHIVE
    for key, value in settings.items():
        if key in ("spark.app.name", "spark.master") or not conf.contains(key):
            conf.set(key, value)
    for key, value in (options or {}).items():
        conf.set(key, value)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register_sources(session)
    return session


def register_sources(session: SparkSession) -> None:
    """Let a session know the format `denwatch`."""
    from backend.source import LogSource

    session.dataSource.register(LogSource)


def is_local(master: str) -> bool:
    """Return whether executors are threads of this machine's one process."""
    return master == "local" or master.startswith("local[")


def pack_code() -> Path:
    """Write our packages into an archive for executors; return where it is."""
    path = Path(tempfile.mkdtemp(prefix="denwatch-code-")) / "denwatch.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for package in PACKAGES:
            archive.add(ROOT / package, package, filter=_leave_out_caches)
    return path


def _leave_out_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name else member


def _find_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "denwatch" / "numba"
