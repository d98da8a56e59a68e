"""The same messages through real node cores in the simulator: what a replay leaves out.

Real cores take some hundred times longer than a replay, so they run over a stretch of the trace and
over one whole day of two sites with a ferry; the replay runs over the same beside them. Counted are
all bytes between nodes, and those of questions and answers about ways.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.events import Message
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.node.replication.strategies import build_strategy
from denwatch.node.replication.wire import ASK, FLAG, TELL

from benchmarks.common import format_table, say
from benchmarks.replication_scenarios import SCENARIOS, Day, Found, make_day, replay
from simulator.hosted_node import HostSettings
from simulator.traces import ContactEvent, Parcel, close_contacts
from simulator.workload import Score, Workload
from simulator.world import World, WorldSettings

HOUR = 3_600_000
WHOLE = "ferry, 1 hour"


class CoreRun(NamedTuple):
    """What became of the messages, and the bytes of what nodes told each other of ways."""

    score: Score
    contacts: int
    told: int


def run_cores(
    contacts: list[ContactEvent], parcels: list[Parcel], hosts: int, end: int, strategy: str
) -> CoreRun:
    """Carry messages by real cores; what everybody has is removed at once."""
    post = Workload(parcels)
    settings = HostSettings(
        peers=PeerSettings(strategy=strategy),
        subscribers=SubscriberSettings(is_announcing=False, purge_after=0),
    )
    world = World(1, load_shipped("rescue"), WorldSettings(host=settings), post.watch)
    told = 0

    def count_told(message: Message) -> None:
        nonlocal told
        if message.payload[0] & ~FLAG in (ASK, TELL):
            told += len(message.payload)

    world.overhear = count_told
    names = [f"n{number:03d}" for number in range(hosts)]
    for name in names:
        world.add_node(name)
    post.open(world, names)
    world.follow(contacts, names)
    world.run(end)
    return CoreRun(post.finish(world), world.contacts, told)


def measure_cores(trace: Day, is_quick: bool) -> Found:
    """Return what real cores do on the beginning of a trace and on a whole day, beside a replay."""
    end = min(trace.end, HOUR // 6 if is_quick else HOUR)
    early = [parcel for parcel in trace.parcels if parcel.time < end]
    part = Day(trace.hosts, close_contacts(trace.contacts, end), early, end, trace.oracle)
    days = {f"first {end / HOUR:.2g} hours of the trace": part}
    if not is_quick:
        (ferry,) = [each for each in SCENARIOS if each.name == WHOLE]
        days[f"{WHOLE}, seed 1, all {ferry.hours} hours"] = make_day(ferry, 1)
    strategy = PeerSettings().strategy
    rows, keys = [], {}
    for name, day in days.items():
        began = time.perf_counter()
        run = run_cores(day.contacts, day.parcels, day.hosts, day.end, strategy)
        say(f"real cores, {name}: {time.perf_counter() - began:.0f} s")
        plain = replay(day, build_strategy(strategy))
        total = run.score.bytes
        for kind, score in (("real cores", run.score), ("replay", plain)):
            size = f"{total / 1e6:.2f} MB in {run.contacts} contacts" if score is run.score else ""
            ways = f"{run.told / 1e6:.2f} MB, {run.told / total:.0%}" if score is run.score else ""
            median = f"{score.find_latency(0.5):.0f}"
            row = [name, kind, score.made, len(score.latencies), median, score.relays, size, ways]
            rows.append(row)
        prefix = "cores" if day is part else "whole"
        keys |= {
            f"{prefix}_delivered": len(run.score.latencies),
            f"{prefix}_replay_delivered": len(plain.latencies),
            f"{prefix}_bytes": total,
            f"{prefix}_ways_bytes": run.told,
        }
    header = ["contacts", "by", "messages", "delivered", "median s", "relays", "all bytes"]
    return Found(format_table([*header, "of them about ways"], rows), keys)
