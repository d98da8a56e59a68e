"""The DENS paper's matching algorithms on the work of the matching benchmark.

They are written in plain Python with the paper's data structures, so they are measured at a size
that they can manage and scaled to a million by subscription: each of them looks at every
subscription or every predicate, so its time grows in proportion.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.plugins import SubscriptionMatch

import papers
from benchmarks.common import median, percentile
from benchmarks.match_work import (
    Shape,
    draw_masks,
    draw_notifications,
    draw_subscriptions,
    list_objects,
    make_notification,
)

SHAPE = Shape(attributes=16, masks=100)  # one event of the wire
NAMES = ("FNIF", "FNIFS", "FNIFC", "FIP")


def measure_papers(rng: np.random.Generator, count: int) -> dict[str, float]:
    """Return each algorithm's p50 and p99 at `count` subscriptions, and p50 scaled to a million."""
    batch = draw_subscriptions(rng, SHAPE, draw_masks(rng, SHAPE), count)
    subscriptions = list_objects(batch, 0)
    readings = draw_notifications(rng, SHAPE, 20, 16, 16)
    notes = [make_notification(reading, 0) for reading in readings]
    index = FuzzyIndex()
    engines: dict[str, Any] = {name: getattr(papers, name)() for name in NAMES}
    for engine in (index, *engines.values()):
        for id, subscription in enumerate(subscriptions):
            engine.add(id, subscription)
    result: dict[str, float] = {"papers_at": count}
    for name, engine in engines.items():
        seconds = []
        for note in notes:
            start = time.perf_counter()
            hits: list[SubscriptionMatch] = engine.match(note)
            seconds.append(time.perf_counter() - start)
            if hits != index.match(note):
                raise AssertionError(f"{name} and the index disagree")
        result[f"{name.lower()}_p50_us"] = 1e6 * median(seconds)
        result[f"{name.lower()}_p99_us"] = 1e6 * percentile(seconds, 0.99)
        result[f"{name.lower()}_scaled_us"] = 1e6 * median(seconds) * 1_000_000 / count
    return result
