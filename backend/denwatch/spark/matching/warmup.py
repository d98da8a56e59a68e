"""Compile ahead: the kernels of global matching, before workers are forked.

Spark's workers collect garbage after every task. What is loaded by now, the compiler above all, is
never garbage, and looking through it took as long as matching 30,000 notifications: set it apart.
"""

from __future__ import annotations

import gc

import numpy as np
from denwatch.node.matching import index
from denwatch.node.matching.batch import NotificationBatch
from denwatch.spark.matching import files  # noqa: F401 - loads what reads Parquet
from denwatch.spark.matching.kernels import count_readings, keep_hits, read_notes
from denwatch.spark.matching.stabs import Stabs, find_exact, match_stabs


def warm_up() -> None:
    """Run once what workers run: the index's kernels, and those of this folder; then freeze."""
    index.warm_up()
    data = np.array([0x80, 0, 0, 0, 0, 0, 0, 1, 7], np.uint8)
    ends = np.array([0, 9], np.int64)
    counts = np.zeros(1, np.int64)
    count_readings(data, ends, counts)
    starts = np.zeros(2, np.int64)
    points = np.zeros((1, 4), np.int32)
    attributes, wides = np.zeros(1, np.int32), np.zeros(1, np.uint8)
    read_notes(data, ends, counts, starts, attributes, points, wides)
    readings = NotificationBatch(starts, attributes, points, wides, np.zeros(1, np.int64))
    nothing = Stabs(np.zeros(257, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    match_stabs(readings, nothing, find_exact(starts, points, wides))
    one = np.zeros(1, np.int64)
    byte = np.zeros(1, np.uint8)
    keep_hits(
        starts,
        np.zeros(1, np.uint64),
        byte,
        byte,
        np.zeros(1, np.int32),
        one,
        one,
        one,
        one,
        np.zeros((1, 5), np.int64),
    )
    gc.collect()
    gc.freeze()
