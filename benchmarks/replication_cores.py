"""The same messages through real node cores in the field emulator: what a replay leaves out.

Real cores take some hundred times longer than a replay, so they run over a stretch of the trace,
and the replay runs over the same stretch beside them.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from denwatch.client.vocabulary.loading import load_shipped
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.subscriptions import SubscriberSettings
from denwatch.node.replication.strategies import build_strategy

from benchmarks.common import format_table, say
from simulator.hosted_node import HostSettings
from simulator.replay import Replay
from simulator.traces import ContactEvent, Parcel, close_contacts
from simulator.workload import Score, Workload
from simulator.world import World, WorldSettings

HOUR = 3_600_000


class Cores(NamedTuple):
    """What to print and what to return."""

    text: str
    keys: dict[str, Any]


def run_cores(
    contacts: list[ContactEvent], parcels: list[Parcel], hosts: int, end: int, strategy: str
) -> tuple[Score, World]:
    """Carry messages by real cores; what everybody has is let go at once."""
    post = Workload(parcels)
    settings = HostSettings(
        peers=PeerSettings(strategy=strategy),
        subscribers=SubscriberSettings(is_announcing=False, purge_after=0),
    )
    world = World(1, load_shipped("rescue"), WorldSettings(host=settings), post.watch)
    names = [f"n{number:03d}" for number in range(hosts)]
    for name in names:
        world.add_node(name)
    post.open(world, names)
    world.follow(contacts, names)
    world.run(end)
    return post.finish(world), world


def measure_cores(
    contacts: list[ContactEvent], parcels: list[Parcel], hosts: int, end: int, is_quick: bool
) -> Cores:
    """Return what real cores do on the beginning of a trace, beside a replay of it."""
    end = min(end, HOUR // 6 if is_quick else HOUR)
    early = [parcel for parcel in parcels if parcel.time < end]
    part = close_contacts(contacts, end)
    strategy = PeerSettings().strategy
    began = time.perf_counter()
    score, world = run_cores(part, early, hosts, end, strategy)
    say(f"real cores, {end / HOUR:.2f} h: {time.perf_counter() - began:.0f} s")
    plain = Replay(build_strategy(strategy), early, hosts).run(part)
    rows = [
        [name, each.made, len(each.latencies), f"{each.find_latency(0.5):.0f}", each.relays]
        for name, each in (("real cores", score), ("replay", plain))
    ]
    header = ["first part of the trace", "messages", "delivered", "median s", "relays"]
    text = format_table(header, rows)
    text += (
        f"\n\nReal cores sent {score.bytes / 1e6:.2f} MB in {world.contacts} contacts over"
        f" {end / HOUR:.2f} hours: subscriptions, marks, messages, and what finds out what to send."
    )
    return Cores(
        text,
        {
            "cores_delivered": len(score.latencies),
            "replay_delivered": len(plain.latencies),
            "cores_bytes": score.bytes,
            "cores_hours": round(end / HOUR, 2),
        },
    )
