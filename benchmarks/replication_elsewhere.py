"""The default strategy on contacts on which none of its constants was chosen.

Days of other kinds than the trace: disaster areas, whose crews mix little, and walkers who mix
evenly; several seeds each. The replay and the oracle are those of `benchmarks.replication`.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any, NamedTuple

from denwatch.node.core.peers import PeerSettings
from denwatch.node.replication.strategies import build_strategy

from benchmarks.common import format_table, say
from simulator.mobility import Path, find_contacts, plan_disaster, walk_randomly
from simulator.oracle import find_arrivals
from simulator.replay import Replay
from simulator.traces import ContactEvent, Parcel
from simulator.workload import Score

HOUR = 3_600_000
STEP = 5_000  # ms between two looks at who is near whom


class Elsewhere(NamedTuple):
    """What to print and what to return."""

    text: str
    keys: dict[str, Any]


class Kind(NamedTuple):
    """A kind of day."""

    name: str
    hosts: int
    hours: int
    reach: float


KINDS = (
    Kind("two disaster sites", 100, 6, 20.0),
    Kind("walkers in 4 km²", 60, 6, 30.0),
)


def make_day(kind: Kind, seed: int, hours: float) -> tuple[list[ContactEvent], list[Parcel], int]:
    """Return contacts, a message every 30 s between any two hosts, and when the day ends."""
    rng = Random(seed)
    end = round(hours * HOUR)
    plan: list[Path]
    if "disaster" in kind.name:
        plan = plan_disaster(kind.hosts, end, rng)
    else:
        plan = walk_randomly(kind.hosts, end, rng)
    parcels = []
    for number, moment in enumerate(range(0, end // 2, 30_000)):
        source, target = rng.sample(range(kind.hosts), 2)
        parcels.append(Parcel(moment, f"M{number}", 500, source, target, end))
    return find_contacts(plan, end, kind.reach, STEP), parcels, end


def measure_elsewhere(is_quick: bool) -> Elsewhere:
    """Return how near the default comes to the oracle, and what spray-and-wait does beside it."""
    default = PeerSettings().strategy
    rows, worst, longest, dearest = [], 1.0, 0.0, 0.0
    for kind in KINDS:
        for seed in (1,) if is_quick else (1, 2, 3):
            began = time.perf_counter()
            contacts, parcels, end = make_day(kind, seed, 1 if is_quick else kind.hours)
            oracle = Score(len(parcels))
            oracle.latencies = find_arrivals(contacts, parcels, end)
            for name in (default, "spray:6"):
                score = Replay(build_strategy(name), parcels, kind.hosts).run(contacts)
                rows.append(describe(f"{kind.name}, seed {seed}", name, score, oracle))
                if name == default and oracle.delivery:
                    worst = min(worst, score.delivery / oracle.delivery)
                    ratio = score.find_latency(0.5) / (oracle.find_latency(0.5) or 1.0)
                    longest, dearest = max(longest, ratio), max(dearest, score.overhead)
            say(f"{kind.name}, seed {seed}: {time.perf_counter() - began:.1f} s")
    header = ["contacts", "strategy", "messages", "oracle delivers", "delivered of oracle"]
    text = format_table([*header, "median of oracle", "overhead"], rows)
    text += (
        f"\n\nAt worst the default delivers {worst:.2f} of the oracle's, takes {longest:.2f} times"
        f" its median and has an overhead of {dearest:.1f}; on the trace 0.99, 1.6 and 10 are asked"
        " for. Medians count what was delivered: a strategy that delivers little looks fast."
    )
    return Elsewhere(text, {"delivery_over_oracle_elsewhere": round(worst, 4)})


def describe(where: str, name: str, score: Score, oracle: Score) -> list[object]:
    """Return one row."""
    best = oracle.find_latency(0.5)
    return [
        where,
        name,
        score.made,
        f"{oracle.delivery:.4f}",
        f"{score.delivery / oracle.delivery:.3f}" if oracle.delivery else "none",
        f"{score.find_latency(0.5) / best:.2f}" if best else "none",
        f"{score.overhead:.2f}",
    ]
