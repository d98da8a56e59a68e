"""A standalone Spark cluster on loopback: a master, workers of one core, all ports random.

The workers' folders and environment are their own: nothing of ours can be imported there unless a
job brings it.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

_HOME = Path(pyspark.__file__).parent
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_PATIENCE = 600  # s


@contextmanager
def start_cluster(
    folder: Path, workers: int = 2, started: list[subprocess.Popen[bytes]] | None = None
) -> Iterator[str]:
    """Yield the address of a master with so many workers of one core and 1 GB each.

    `started` gets the workers' processes.
    """
    with ExitStack() as stack:
        told = folder / "master.log"
        where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        stack.enter_context(_run("master.Master", where, folder, told))
        (master,) = _await(told, _STARTED, 1)
        for number in range(workers):
            home = folder / f"worker-{number}"
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(home)]
            arguments = [*where, *size, master]
            log = folder / f"worker-{number}.log"
            worker = stack.enter_context(_run("worker.Worker", arguments, folder, log))
            if started is not None:
                started.append(worker)
        _await(told, re.compile(r"Registering worker (\S+)"), workers)
        yield master


@contextmanager
def _run(
    name: str, arguments: list[str], folder: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    kept = ("PATH", "JAVA_HOME", "HOME", "LANG", "TMPDIR")
    environment = {key: os.environ[key] for key in kept if key in os.environ}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _await(log: Path, pattern: re.Pattern[str], times: int) -> list[str]:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        found = pattern.findall(log.read_text())
        if len(found) >= times:
            return found[:times]
        time.sleep(0.1)
    raise TimeoutError(f"{log}: {pattern.pattern} did not come {times} times:\n{log.read_text()}")


def pack_environment(path: Path) -> Path:
    """Write an environment as venv-pack does, with this interpreter and without our packages.

    Its `python` leaves out what `site` adds, where an installation for development would be found.
    """
    site = sysconfig.get_paths()["purelib"]
    script = (
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" PACKED="$0" exec {sys.executable} -S "$@"\n'
    ).encode()
    member = tarfile.TarInfo("bin/python")
    member.size, member.mode = len(script), 0o755
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(member, io.BytesIO(script))
    return path
