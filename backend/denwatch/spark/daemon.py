"""The process that Spark forks its Python workers from, with the matcher compiled before the fork.

Spark starts it as `python -m denwatch.spark.daemon pyspark.worker`
(`spark.python.daemon.module`). Without
it every worker would load the compiled kernels by itself: 0.6 s from the disk, 3 s without.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import sys
import traceback
from contextlib import suppress
from typing import Any

from pyspark import daemon

_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_KEPT = 1 << 28  # bytes, several times what a batch takes


def keep_memory() -> None:
    """Keep what a batch took for the next one, which takes as much.

    The C library would give each large array back, and the kernel would clear its pages again:
    37,000 of them for a million notifications, a twentieth of the time. Other libraries than GNU's
    have no such switch.
    """
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM, _KEPT)
        library.mallopt(_MAP, _KEPT)


def prepare() -> None:
    """Load what every worker would load: the matcher's kernels, and Spark's own modules.

    Threads do not survive a fork. The only one that starts here is Arrow's allocator's, which knows
    how to be forked; the algebra library, which does not need any for us, is told to start none.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    keep_memory()
    for name in ("pandas", "pyspark.worker", "denwatch.spark.tables"):
        importlib.import_module(name)
    from denwatch.spark.matching.job import warm_up

    warm_up()
    # Spark collects garbage after every task. What is loaded here is none, and need not be
    # looked at each time, nor copied because its pages were touched.
    gc.collect()
    gc.freeze()


_work = daemon.worker


def work(sock: Any, authenticated: bool) -> int:
    """Work for Spark until it closes the socket, as it does when a worker was idle for a minute.

    The worker then answers that there was nothing to read, and a socket in the file system tells
    that nobody is there any more: not for people to see.
    """
    try:
        return int(_work(sock, authenticated))
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["pyspark.worker"]:  # planners of data sources do not match
        try:
            prepare()
        except Exception:  # noqa: BLE001 - a cold worker is slow, but none at all is worse
            traceback.print_exc()
    daemon.worker = work
    daemon.manager()
