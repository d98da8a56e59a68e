"""How fast a million fuzzy subscriptions are matched, against scans, the papers and a roofline.

    python -m benchmarks.match [--json] [--quick] [--save]

All numbers of one run come from one process on one core. Engines that are compared take turns on
the same notifications, so that a busy machine slows all of them. Rates that are compared with a
number instead (loading, adding, subscription·events/s) are those of the quietest of several rounds:
other processes can only slow a round.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from denwatch.node.matching.index import FuzzyIndex, warm_up
from denwatch.node.matching.records import SubscriptionBatch
from denwatch.node.matching.search import NotificationBatch
from denwatch.protocol.vectors import Predicate, SubscriptionVector

from benchmarks.common import median, percentile, run, say
from benchmarks.match_papers import measure_papers
from benchmarks.match_report import save_report
from benchmarks.match_roofline import Roofline
from benchmarks.match_work import (
    A_TREE,
    DENSE,
    FEW_MASKS,
    MANY_MASKS,
    Shape,
    draw_masks,
    draw_notifications,
    draw_subscriptions,
)
from papers.baselines import TripleScan

Result = dict[str, Any]
ROUNDS = 5


def time_call(call: Any, *arguments: Any) -> tuple[float, Any]:
    """Return the seconds of one call, and its result."""
    start = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - start, result


def check_agreement(hits: Any, found: tuple[Any, Any, Any]) -> None:
    """Raise unless index and scan found the same ids, degrees and attributes."""
    order = np.argsort(hits.ids)
    for mine, theirs in zip((hits.ids, hits.possible, hits.attributes), found, strict=True):
        if not np.array_equal(mine[order].astype(np.int64), theirs.astype(np.int64)):
            raise AssertionError("index and scan disagree")


def compare(
    index: FuzzyIndex,
    scan: TripleScan,
    notes: list[NotificationBatch],
    every: int,
    numpy_every: int,
) -> Result:
    """Time the index on all notifications and the scans on some, in turns."""
    times: dict[str, list[float]] = {"index": [], "scan": [], "numpy": []}
    hits = 0
    for i, readings in enumerate(notes):
        seconds, answer = time_call(index.match_batch, readings)
        times["index"].append(seconds)
        hits += len(answer.ids)
        table = scan.spread(readings.attributes, readings.points[:, 0])
        if i % every == 0:
            seconds, found = time_call(scan.scan, table)
            times["scan"].append(seconds)
            check_agreement(answer, found)
        if numpy_every and i % numpy_every == 0:
            seconds, found = time_call(scan.scan_numpy, table)
            times["numpy"].append(seconds)
            check_agreement(answer, found)
    quietest = min(median(part) for part in split_rounds(times["index"]))
    result: Result = {"hits": hits / len(notes), "quietest_p50_us": 1e6 * quietest}
    for name, measured in times.items():
        if measured:
            result[f"{name}_p50_us"] = 1e6 * median(measured)
            result[f"{name}_p99_us"] = 1e6 * percentile(measured, 0.99)
    return result


def measure_roofline(index: FuzzyIndex, notes: list[NotificationBatch]) -> Result:
    """Time the index, reading all that it touches, and reading whole rows, in turns."""
    roofline = Roofline(index)
    roofline.read(roofline.prepare(notes[0], True))
    times: dict[str, list[float]] = {"index": [], "touched": [], "rows": []}
    for readings in notes:
        touched, rows = (roofline.prepare(readings, whole) for whole in (False, True))
        for stranger in notes[-3:]:  # push out of the cache what `prepare` has just read
            index.match_batch(stranger)
        times["touched"].append(time_call(roofline.read, touched)[0])
        for stranger in notes[-3:]:
            index.match_batch(stranger)
        times["rows"].append(time_call(roofline.read, rows)[0])
        for stranger in notes[-3:]:
            index.match_batch(stranger)
        times["index"].append(time_call(index.match_batch, readings)[0])
    p50 = {name: 1e6 * median(seconds) for name, seconds in times.items()}
    return {
        "roofline_us": p50["touched"],
        "over_roofline": p50["index"] / p50["touched"],
        "whole_rows_us": p50["rows"],
        "over_whole_rows": p50["index"] / p50["rows"],
    }


def load(shape: Shape, batch: SubscriptionBatch) -> tuple[FuzzyIndex, float]:
    """Return the index of a batch and the seconds that loading took."""
    index = FuzzyIndex(attributes=shape.attributes)
    seconds, _ = time_call(index.add_batch, batch)
    return index, seconds


def measure_adds(index: FuzzyIndex, rng: np.random.Generator, shape: Shape, count: int) -> Result:
    """Time single adds of new subscriptions, of masks that are there, and single removals."""
    batch = draw_subscriptions(rng, shape, draw_masks(np.random.default_rng(1), shape), 4 * count)
    fresh = []
    rows = iter(batch.preds.tolist())
    for sub in batch.subs:
        row = [next(rows) for _ in range(int(sub["count"]))]
        if len({attribute // 16 for attribute, *_ in row}) == 1:  # one event, as on the wire
            predicates = [Predicate(name % 16, *triple[:4]) for name, *triple in row]
            fresh.append(
                SubscriptionVector(row[0][0] // 16, predicates, threshold=int(sub["threshold"]))
            )
    base = 1 << 40
    adds = [time_call(index.add, base + i, s)[0] for i, s in enumerate(fresh[:count])]
    removals = [time_call(index.remove, base + i)[0] for i in range(len(adds))]
    rounds = split_rounds(adds)
    return {
        "add_p50_us": 1e6 * median(adds),
        "add_p99_us": 1e6 * min(percentile(part, 0.99) for part in rounds),
        "add_p99_all_us": 1e6 * percentile(adds, 0.99),
        "add_max_us": 1e6 * max(adds),
        "adds": len(adds),
        "remove_p99_us": 1e6 * percentile(removals, 0.99),
    }


def split_rounds(seconds: list[float]) -> list[list[float]]:
    """Return the measurements as rounds, one after the other."""
    size = max(1, len(seconds) // ROUNDS)
    return [seconds[start : start + size] for start in range(0, len(seconds), size)][:ROUNDS]


def measure_growth(rng: np.random.Generator, sizes: list[int]) -> list[Result]:
    """Time the index at rising sizes; the largest come in several batches."""
    masks = draw_masks(np.random.default_rng(1), FEW_MASKS)
    notes = draw_notifications(rng, FEW_MASKS, 100, 32, 32)
    rows = []
    for size in sizes:
        index = FuzzyIndex(attributes=FEW_MASKS.attributes)
        for first in range(0, size, 1_000_000):
            count = min(1_000_000, size - first)
            index.add_batch(draw_subscriptions(rng, FEW_MASKS, masks, count, first))
        seconds = [time_call(index.match_batch, readings)[0] for readings in notes]
        rows.append({"size": size, "p50_us": 1e6 * median(seconds), "bytes": index.nbytes / size})
        say(f"  {size:>10,} subscriptions: {rows[-1]['p50_us']:.0f} us")
    return rows


def measure_shape(
    rng: np.random.Generator, shape: Shape, count: int, notes: list[NotificationBatch], every: int
) -> Result:
    """Compare index and scan on a workload of another shape."""
    batch = draw_subscriptions(rng, shape, draw_masks(rng, shape), count)
    index, seconds = load(shape, batch)
    result = compare(index, TripleScan(batch, shape.attributes), notes, every, 0)
    result |= {"count": count, "bytes": index.nbytes / count, "load_per_s": count / seconds}
    result["groups"] = index.columns["groups"].used
    return result


def measure(options: argparse.Namespace) -> Result:
    """Measure everything; return the headline numbers."""
    quick = options.quick
    count = 200_000 if quick else 1_000_000
    rng = np.random.default_rng(options.seed)
    say("compiling ...")
    warm_up()
    say(f"{count:,} subscriptions of 1-4 attributes, {FEW_MASKS.masks} masks, Zipf")
    masks = draw_masks(np.random.default_rng(1), FEW_MASKS)
    batch = draw_subscriptions(rng, FEW_MASKS, masks, count)
    notes = draw_notifications(rng, FEW_MASKS, 100 if quick else 400, 32, 32)
    loads = [load(FEW_MASKS, batch)[1] for _ in range(3)]
    index, seconds = load(FEW_MASKS, batch)
    loads.append(seconds)
    scan = TripleScan(batch, FEW_MASKS.attributes)
    compare(index, scan, notes[:2], 1, 1)  # the scans compile
    main = compare(index, scan, notes, 10, 50)
    main |= measure_roofline(index, notes[:60])
    main["bytes"] = index.nbytes / count
    say("single adds ...")
    adds = measure_adds(index, rng, FEW_MASKS, 1000 if quick else 5000)
    del index, scan, batch
    say("denser matches, many masks, the A-Tree paper's shape ...")
    short = 30 if quick else 100
    dense = measure_shape(rng, DENSE, count, notes[:short], 10)
    some = draw_notifications(rng, MANY_MASKS, 10 * short, 4, 8)
    many = measure_shape(rng, MANY_MASKS, count, some, 50)
    tree_count = 200_000 if quick else 1_390_000
    tree_notes = draw_notifications(rng, A_TREE, short, 20, 20)
    tree = measure_shape(rng, A_TREE, tree_count, tree_notes, 10)
    say("growth ...")
    growth = measure_growth(rng, [10**4, 10**5] if quick else [10**4, 10**5, 10**6, 10**7])
    say("the papers' algorithms ...")
    papers = measure_papers(rng, 500 if quick else 4000)
    result = {
        "subscriptions": count,
        "hits": main["hits"],
        "index_p50_us": main["index_p50_us"],
        "index_p99_us": main["index_p99_us"],
        "scan_p50_us": main["scan_p50_us"],
        "scan_p99_us": main["scan_p99_us"],
        "numpy_p50_us": main["numpy_p50_us"],
        "numpy_p99_us": main["numpy_p99_us"],
        "index_over_scan": main["scan_p50_us"] / main["index_p50_us"],
        "index_over_numpy": main["numpy_p50_us"] / main["index_p50_us"],
        "quietest_p50_us": main["quietest_p50_us"],
        "sub_events_per_s": 1e6 * count / main["quietest_p50_us"],
        "roofline_us": main["roofline_us"],
        "over_roofline": main["over_roofline"],
        "whole_rows_us": main["whole_rows_us"],
        "over_whole_rows": main["over_whole_rows"],
        "bytes_per_sub": main["bytes"],
        "bulk_load_per_s": count / min(loads),
        "bulk_load_median_per_s": count / median(loads),
        **adds,
        "dense_hits": dense["hits"],
        "dense_p50_us": dense["index_p50_us"],
        "dense_over_scan": dense["scan_p50_us"] / dense["index_p50_us"],
        "many_masks": many["groups"],
        "many_hits": many["hits"],
        "many_masks_p50_us": many["index_p50_us"],
        "many_masks_p99_us": many["index_p99_us"],
        "many_masks_over_scan": many["scan_p50_us"] / many["index_p50_us"],
        "a_tree_count": tree_count,
        "a_tree_masks": tree["groups"],
        "a_tree_hits": tree["hits"],
        "a_tree_p50_us": tree["index_p50_us"],
        "a_tree_over_scan": tree["scan_p50_us"] / tree["index_p50_us"],
        "a_tree_bytes_per_sub": tree["bytes"],
        **{f"growth_{row['size']}_us": row["p50_us"] for row in growth},
        **papers,
    }
    for name, value in result.items():
        say(f"  {name:<24} {value:,.4g}")
    if options.save:
        save_report(result, growth)
    return result


if __name__ == "__main__":
    run(measure, __doc__)
