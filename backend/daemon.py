"""The process that Spark forks its Python workers from, with the matcher compiled before the fork.

Spark starts it as `python -m backend.daemon pyspark.worker` (`spark.python.daemon.module`). Without
it every worker would load the compiled kernels by itself: 0.6 s from the disk, 3 s without.
"""

from __future__ import annotations

import sys

from pyspark.daemon import manager


def prepare() -> None:
    """Load what workers need. Only what starts no threads: those would not survive the fork."""
    from backend.matching.warmup import warm_up

    warm_up()


if __name__ == "__main__":
    if sys.argv[1:2] == ["pyspark.worker"]:  # planners of data sources do not match
        prepare()
    manager()
