"""The same 10,000-subscription work in libraries that people would reach for.

    python -m benchmarks.peers [--json] [--quick] [--save]

Each peer gets the form that suits it best: scikit-fuzzy all values of a predicate in one call,
simpful its sets without its slower rules, DuckDB one join for all notifications, on one thread like
everybody else. Only their time to match is counted, not to load. Their answers are
checked: DuckDB's exactly, those in real numbers except within 2/255 of a threshold.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from denwatch.node.matching.evaluation import SLOPE
from denwatch.node.matching.index import FuzzyIndex, warm_up
from denwatch.node.matching.records import SubscriptionBatch
from denwatch.node.matching.search import NotificationBatch
from denwatch.protocol.vectors import NotificationVector

from benchmarks.common import (
    describe_machine,
    format_table,
    median,
    new_figure,
    run,
    save_figure,
    save_text,
    say,
)
from benchmarks.match_work import (
    Shape,
    draw_masks,
    draw_notifications,
    draw_subscriptions,
    list_objects,
    make_notification,
)
from papers.baselines import PlainMatcher

SHAPE = Shape(attributes=16, masks=100, core=8.0, steep=120)  # one event of the wire
Degrees = list[dict[int, float]]  # by notification: the degree (0..255) of each hit
Peer = Callable[[SubscriptionBatch, list[NotificationBatch]], tuple[float, Degrees]]
NAMES = {
    "python": "plain Python (denwatch.protocol.matching)",
    "duckdb": "DuckDB join",
    "scikit_fuzzy": "scikit-fuzzy",
    "simpful": "simpful",
}


def list_corners(batch: SubscriptionBatch) -> tuple[Any, Any, Any, Any]:
    """Return the corners of all predicates' trapezoids, in steps of the domain."""
    preds = batch.preds
    low, high = preds["low"].astype(float), preds["high"].astype(float)
    fall = 255 / (SLOPE[preds["left"]] / 256)
    fall[preds["left"] == 255] = 1e-6  # crisp: as steep as can be told apart
    return low - fall, low, high, high + fall


def list_starts(batch: SubscriptionBatch) -> list[int]:
    """Return where each subscription's predicates start; the last start is the end."""
    return [0, *np.cumsum(batch.subs["count"], dtype=np.int64).tolist()]


def collect(batch: SubscriptionBatch, strengths: Any) -> Degrees:
    """Return the hits among strengths (0..1) of all subscriptions, by notification."""
    found = []
    for row in strengths:
        hits = np.flatnonzero(255 * row >= batch.subs["threshold"])
        found.append({int(id): float(255 * row[id]) for id in hits})
    return found


def run_scikit_fuzzy(
    batch: SubscriptionBatch, notes: list[NotificationBatch]
) -> tuple[float, Degrees]:
    """Interpolate each predicate for all notifications at once, then take the lowest."""
    from skfuzzy import interp_membership  # type: ignore[import-untyped]

    corners = list(zip(*(corner.tolist() for corner in list_corners(batch)), strict=True))
    shape = [0.0, 1.0, 1.0, 0.0]
    values = np.array([readings.points[:, 0] for readings in notes], float)
    names, starts = batch.preds["attribute"].tolist(), list_starts(batch)
    start = time.perf_counter()
    strengths = np.empty((len(notes), len(batch)))
    for id in range(len(batch)):
        least = np.ones(len(notes))
        for p in range(starts[id], starts[id + 1]):
            a, b, c, d = corners[p]
            # Equal corners of a set of one value: its outline needs rising points.
            degrees = interp_membership([a, b, c + 1e-9, d + 2e-9], shape, values[:, names[p]])
            least = np.minimum(least, degrees)
        strengths[:, id] = least
    return time.perf_counter() - start, collect(batch, strengths)


def run_simpful(batch: SubscriptionBatch, notes: list[NotificationBatch]) -> tuple[float, Degrees]:
    """Ask each predicate's set for its membership, and take the lowest.

    As a system with a rule for each subscription it would take a thousand times longer: each clause
    of a rule evaluates every term of its variable.
    """
    import simpful  # type: ignore[import-untyped]

    names, starts = batch.preds["attribute"].tolist(), list_starts(batch)
    rows = zip(*list_corners(batch), strict=True)
    sets = [simpful.TrapezoidFuzzySet(*map(float, row), term=f"t{p}") for p, row in enumerate(rows)]
    values = [[float(x) for x in readings.points[:, 0]] for readings in notes]
    strengths = []
    start = time.perf_counter()
    for x in values:
        strengths.append(
            [
                min([sets[p].get_value(x[names[p]]) for p in range(starts[id], starts[id + 1])])
                for id in range(len(batch))
            ]
        )
    return time.perf_counter() - start, collect(batch, np.array(strengths))


def run_duckdb(batch: SubscriptionBatch, notes: list[NotificationBatch]) -> tuple[float, Degrees]:
    """Join the alpha-cuts of all predicates with the readings of all notifications."""
    import duckdb
    import pandas  # type: ignore[import-untyped]

    preds = batch.preds
    owner = np.repeat(np.arange(len(batch)), batch.subs["count"])
    threshold = batch.subs["threshold"][owner].astype(np.int64)
    slope = SLOPE[preds["left"]]
    reach = np.where(preds["left"] == 255, 0, ((256 - threshold) * 256 - 129) // slope)
    cuts = pandas.DataFrame(
        {
            "id": owner,
            "attribute": preds["attribute"].astype(np.int32),
            "low": preds["low"].astype(np.int32),
            "high": preds["high"].astype(np.int32),
            "start": preds["low"].astype(np.int32) - reach.astype(np.int32),
            "stop": preds["high"].astype(np.int32) + reach.astype(np.int32),
            "slope": slope.astype(np.int32),
            "wanted": batch.subs["count"][owner].astype(np.int32),
        }
    )
    readings = pandas.DataFrame(
        {
            "note": np.repeat(np.arange(len(notes)), [len(n.attributes) for n in notes]),
            "attribute": np.concatenate([n.attributes for n in notes]),
            "x": np.concatenate([n.points[:, 0] for n in notes]),
        }
    )
    base = duckdb.connect(config={"threads": 1})
    for name, frame in (("cuts", cuts), ("readings", readings)):
        base.register("frame", frame)
        base.execute(f"CREATE TABLE {name} AS SELECT * FROM frame")
        base.unregister("frame")
    query = """
        SELECT note, id, min(255 - ((greatest(low - x, x - high, 0) * slope + 128) >> 8)) AS degree
        FROM cuts JOIN readings USING (attribute)
        WHERE x BETWEEN start AND stop
        GROUP BY note, id, wanted HAVING count(*) = wanted
    """
    start = time.perf_counter()
    rows = base.execute(query).fetchnumpy()
    seconds = time.perf_counter() - start
    found: Degrees = [{} for _ in notes]
    for note, id, degree in zip(rows["note"], rows["id"], rows["degree"], strict=True):
        found[int(note)][int(id)] = float(degree)
    return seconds, found


def run_python(batch: SubscriptionBatch, notes: list[NotificationBatch]) -> tuple[float, Degrees]:
    """Ask the protocol's own definition about every subscription."""
    matcher = PlainMatcher()
    for id, subscription in enumerate(list_objects(batch, 0)):
        matcher.add(id, subscription)
    objects: list[NotificationVector] = [make_notification(readings, 0) for readings in notes]
    start = time.perf_counter()
    answers = [matcher.match(note) for note in objects]
    seconds = time.perf_counter() - start
    return seconds, [{hit.id: float(hit.possible) for hit in hits} for hits in answers]


def run_index(index: FuzzyIndex, notes: list[NotificationBatch]) -> tuple[float, Degrees]:
    """Match one notification after the other; return the seconds of a median one times all."""
    seconds = []
    found = []
    for readings in notes:
        start = time.perf_counter()
        hits = index.match_batch(readings)
        seconds.append(time.perf_counter() - start)
        found.append(dict(zip(hits.ids.tolist(), hits.possible.tolist(), strict=True)))
    return median(seconds) * len(notes), found


def check(name: str, batch: SubscriptionBatch, mine: Degrees, theirs: Degrees) -> None:
    """Raise unless a peer found what the index found, up to rounding near the threshold."""
    slack = 0 if name in ("duckdb", "python") else 2
    for ours, others in zip(mine, theirs, strict=True):
        for id in ours.keys() | others.keys():
            if id in ours and id in others:
                if abs(ours[id] - others[id]) > slack:
                    raise AssertionError(f"{name}: {ours[id]} is not {others[id]}")
            else:
                degree = ours.get(id, others.get(id, 0.0))
                if not slack or abs(degree - batch.subs["threshold"][id]) > slack:
                    raise AssertionError(f"{name} and the index disagree on {id}: {degree}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all peers; return how many times longer than the index each takes."""
    count = 2000 if options.quick else 10_000
    rng = np.random.default_rng(options.seed)
    batch = draw_subscriptions(rng, SHAPE, draw_masks(rng, SHAPE), count)
    notes = draw_notifications(rng, SHAPE, 10 if options.quick else 30, 16, 16)
    warm_up()
    index = FuzzyIndex()
    index.add_batch(batch)
    run_index(index, notes)
    peers: dict[str, Peer] = {
        "scikit_fuzzy": run_scikit_fuzzy,
        "simpful": run_simpful,
        "duckdb": run_duckdb,
        "python": run_python,
    }
    result: dict[str, Any] = {"subscriptions": count, "notifications": len(notes)}
    times = {}
    for name, peer in peers.items():
        seconds, theirs = peer(batch, notes)
        own, mine = run_index(index, notes)  # again for each, so that both see the same machine
        check(name, batch, mine, theirs)
        times[name] = 1e6 * seconds / len(notes)
        result[f"over_{name}"] = seconds / own
        result[f"{name}_us"] = times[name]
        result["index_us"] = 1e6 * own / len(notes)
        result["hits"] = sum(map(len, mine)) / len(mine)
        say(f"  {NAMES[name]:<34} {times[name]:>12,.0f} us, {seconds / own:>8,.0f} times the index")
    if options.save:
        save_report(result)
    return result


def save_report(r: dict[str, Any]) -> None:
    """Write peers.md and peers.svg."""
    rows = [("the index", r["index_us"], "1")]
    rows += [(NAMES[name], r[f"{name}_us"], f"{r[f'over_{name}']:,.0f}") for name in NAMES]
    table = format_table(["", "us a notification", "times the index"], rows)
    text = f"""# The same work elsewhere

{r["subscriptions"]:,} subscriptions of 1-4 attributes, 16 attributes, 100 masks;
{r["notifications"]} notifications that carry all of them and match {r["hits"]:,.0f} subscriptions
each. One core of a shared machine ({describe_machine()}), one run; loading is not counted. All
found the same matches.

{table}

DuckDB and scikit-fuzzy take all notifications in one go, which suits them; the index and the others
take them one by one, as they arrive.
"""
    save_text("peers.md", text)
    figure, axis = new_figure(width=7, height=2.6)
    names = ["the index", *NAMES.values()]
    axis.barh(names[::-1], [float(row[1]) for row in rows][::-1])
    axis.set_xscale("log")
    axis.set_xlabel("µs a notification")
    save_figure(figure, "peers.svg")


if __name__ == "__main__":
    run(measure, __doc__)
