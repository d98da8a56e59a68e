"""Starts Spark, and filters what Java prints. The only file that makes a session.

`local[*]` unless a master is named; `cluster_bundle` has what a cluster receives. Settings of the
caller, `spark-submit --master` and `spark-defaults.conf` take precedence over ours. Spark prints
errors only, and leaves nothing in the folder it is started from.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from denwatch.spark.cluster_bundle import find_roots, list_settings, make_scratch
from pyspark import SparkConf
from pyspark.sql import SparkSession

ARROW_ROWS = 50_000  # notifications that cross to Python at a time
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

# Spark's generated code for wide rows passes HotSpot's limit of 8,000 bytecodes, and would be
# interpreted: 4 to 16 times slower.
_HUGE = "-XX:-DontCompileHugeMethods"
# Planning calls much of Spark once in a while. Java 17 throws away compiled code that it takes for
# cold, and a stream's next batch, or an analysis's next query, would be planned by an interpreter.
_KEEP = "-XX:-UseCodeCacheFlushing -XX:ReservedCodeCacheSize=512m"
_JAVA = f"{_HUGE} {_KEEP}"
# A session that lives for half a minute ends before Java's second compiler has paid for itself.
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LITTLE = 32 << 20  # bytes of logs, compressed; some 300,000 records
_LOGGING = Path(__file__).with_name("log4j2.json")


def build_session(
    master: str | None = None,
    *,
    name: str = "denwatch",
    options: Mapping[str, str] | None = None,
    archive: str | Path | None = None,
    is_brief: bool = False,
) -> SparkSession:
    """Return a session with our data source in it; `options` are Spark's own, and win.

    One that `is_brief` is for little work (`is_little`): Java compiles less.
    `archive` is a packed environment for the executors of a cluster that have no Python of ours.
    """
    conf = SparkConf()
    chosen = master or conf.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    prepare_environment(uses_archive=archive is not None and not is_local(chosen))
    settings = {"spark.app.name": name, "spark.master": chosen}
    settings |= list_common() | list_place(chosen, archive)
    if is_brief and is_local(chosen):
        settings["spark.driver.extraJavaOptions"] += f" {_BRIEF}"
    for key, value in settings.items():
        if key in ("spark.app.name", "spark.master") or not conf.contains(key):
            conf.set(key, value)
    for key, value in (options or {}).items():
        conf.set(key, value)
    from denwatch.spark.source import LogSource

    with filter_errors():
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(LogSource)
    return session


def is_little(folders: Iterable[Path]) -> bool:
    """Return whether logs are small: most of the time goes into starting and planning."""
    left = _LITTLE
    for folder in folders:
        for path in folder.rglob("*"):
            left -= path.stat().st_size if path.is_file() else 0
            if left < 0:
                return False
    return True


def prepare_environment(uses_archive: bool) -> None:
    """Set the environment that Python processes on this machine inherit through Spark."""
    if uses_archive:
        paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        os.environ["PATH"] = os.pathsep.join(filter(None, paths))
        os.environ["PYSPARK_PYTHON"] = "python"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # For the workers on this machine, and those that plan the reading of a source.
    paths = [*find_roots(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache / "denwatch" / "numba"))


def list_common() -> dict[str, str]:
    """Return the settings for any master."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(make_scratch() / "warehouse"),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
        # Below the largest number Spark adds up the bytes of every row, a sixth of its time.
        "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
        # A query's tasks are broadcast in blocks of 4 MiB however small they are, each of which is
        # larger than half a region of Java's heap, and every few queries that starts a collection.
        "spark.broadcast.blockSize": "256k",
        "spark.python.daemon.module": "denwatch.spark.daemon",
        "spark.python.worker.reuse": "true",
        # Over TCP a task that returns little waits for an acknowledgement: 40 ms each.
        "spark.python.unix.domain.socket.enabled": "true",
        # Workers with other variables get a daemon of their own, to be warmed once more.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.driver.extraJavaOptions": f"{_JAVA} -Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.executor.extraJavaOptions": _JAVA,
    }


def list_place(master: str, archive: str | Path | None) -> dict[str, str]:
    """Return the settings for this master."""
    if is_local(master):
        return {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
            # Planning anew after each stage costs 15 ms, and finds little to gain with so few
            # partitions: analyses of small logs take 8 % less without.
            "spark.sql.adaptive.enabled": "false",
            "spark.executorEnv.NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"],
        }
    from denwatch.spark.matching.job import warm_up

    warm_up()  # what is compiled here is not compiled there
    settings = list_settings(archive)
    if urlsplit(master).hostname in _LOOPBACK:
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
    return settings


def is_local(master: str) -> bool:
    """Return whether executors are threads of this machine's one process."""
    return master == "local" or master.startswith("local[")


# Log noise ------------------------------------------------------------------------------
# A virtual machine that is started within `filter_errors` writes its errors into a pipe for as long
# as it lives; a thread passes on every line that is not in `NOISE`, and every traceback except one:
# Spark closes a Python process of its own that was idle for a minute, and that process reports that
# it cannot answer any more (for our own workers `daemon` handles it).

NOISE = (  # what no setting of Spark's or Java's keeps back
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
)
_TRACEBACK = b"Traceback (most recent call last):"
_CLOSED = b"BrokenPipeError:"
_DAEMON = b"/pyspark/daemon.py"
_ERRORS = 2


@contextmanager
def filter_errors() -> Iterator[None]:
    """Let processes that start here write their errors through the filter."""
    mine = os.dup(_ERRORS)
    reader, writer = os.pipe()
    os.dup2(writer, _ERRORS)
    os.close(writer)
    thread = threading.Thread(target=_hand_on, args=(reader, mine), daemon=True, name="errors")
    thread.start()
    try:
        yield
    finally:
        os.dup2(mine, _ERRORS)


def _hand_on(reader: int, target: int) -> None:
    """Write whole lines as they come, until everybody who writes has ended."""
    with os.fdopen(reader, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in drop_noise(lines):
            try:
                out.write(line)
            except OSError:  # nobody reads errors any more; Spark must not stop for that
                continue


def drop_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that somebody can use; a traceback when its last line is there."""
    kept: list[bytes] = []
    for line in lines:
        if line.startswith(_TRACEBACK):
            yield from kept
            kept = [line]
        elif kept and line.startswith(b" "):
            kept.append(line)
        else:
            if not (line.startswith(_CLOSED) and _is_of_daemon(kept)):
                yield from kept
                if not line.startswith(NOISE):
                    yield line
            kept = []
    yield from kept


def _is_of_daemon(traceback: list[bytes]) -> bool:
    """Return whether all of a traceback is in the process that only starts others."""
    places = [line for line in traceback[1:] if line.startswith(b"  File ")]
    return bool(places) and all(_DAEMON in place for place in places)
