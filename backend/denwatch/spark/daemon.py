"""The process that Spark forks its Python workers from, with the matcher compiled before the fork.

Spark starts it as `python -m denwatch.spark.daemon pyspark.worker` (`spark.python.daemon.module`).
Without it every worker would load the compiled kernels by itself: 0.6 s from the disk, 3 s without.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from contextlib import suppress
from typing import Any

from pyspark import daemon


def prepare() -> None:
    """Load what every worker would load: all compiled kernels, and Spark's own modules.

    Threads do not survive a fork. The only one that starts here is Arrow's allocator's, which knows
    how to be forked; the algebra library, which does not need any for us, is told to start none.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("pandas", "pyspark.worker", "denwatch.spark.record_tables"):
        importlib.import_module(name)
    from denwatch.spark import services
    from denwatch.spark.analytics.contacts import ContactGraph, ContactSpan
    from denwatch.spark.matching.job import warm_up

    warm_up()
    services.warm_up()
    ContactGraph([ContactSpan("a", "b", 0, 1)]).find_arrivals("a", 0)
    # Spark collects garbage after every task. What is loaded here, the compiler above all, is none,
    # and need not be looked at each time (which took as long as matching 30,000 notifications), nor
    # copied because its pages were touched.
    gc.collect()
    gc.freeze()


_work = daemon.worker


def work(sock: Any, authenticated: bool) -> int:
    """Work for Spark until it closes the socket, as it does when a worker was idle for a minute.

    Then nobody is there to answer to, which is not for people to see.
    """
    with suppress(BrokenPipeError):
        return int(_work(sock, authenticated))
    return 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["pyspark.worker"]:  # planners of data sources do not match
        try:
            prepare()
        except Exception:  # noqa: BLE001 - a cold worker is slow, but none at all is worse
            traceback.print_exc()
    daemon.worker = work
    daemon.manager()
